// Package event lists the Events that Tenon sends and the conditions that it sets: one Entry for each, from which the
// Events are made and docs/reference/events.md is written.
package event
