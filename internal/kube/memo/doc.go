// Package memo remembers values of pure functions: the memory that packages of internal/core, which have no locks, get
// from their callers.
package memo
