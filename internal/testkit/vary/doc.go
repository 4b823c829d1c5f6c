// Package vary changes values field by field, so that a test can hold a comparison against every field there is, also
// those that are added later.
package vary
