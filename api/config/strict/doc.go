// Package strict reads configuration files. Nothing in a file is ignored: a field that its type does not have, a key
// that occurs twice and a value of another type are problems. All are reported at once, each with its place.
package strict
