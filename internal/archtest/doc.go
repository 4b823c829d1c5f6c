// Package archtest holds the architecture as tests: who may import whom, and that every package says what it is.
//
// The law itself is the table in law_test.go; ARCHITECTURE.md shows the same picture for people.
package archtest
