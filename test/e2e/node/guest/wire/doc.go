// Package wire is what the host and a guest say to each other: one JSON object a line, in both directions.
package wire
