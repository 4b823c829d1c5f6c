// Package nearest finds the name that a person meant by a misspelt one.
package nearest
