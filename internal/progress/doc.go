// Package progress shows on a terminal that a command is at work, once it takes longer than two seconds:
//
//	⠙ simulate: 1200 attempts, 12s
//
// The line is drawn over itself on standard error and removed at the end. Nothing is shown where standard error is not
// a terminal, or in CI.
package progress
