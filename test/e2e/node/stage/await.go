//go:build linux

package stage

import (
	"testing"
	"time"
)

const (
	// patience bounds a wait for something that takes a moment; it is long because machines may be slow.
	patience = time.Minute
	pause    = 20 * time.Millisecond
)

// Await asks until no error is returned. A test that waits for longer than a minute fails with the last error.
func Await(t testing.TB, what string, ask func() error) {
	t.Helper()
	AwaitWithin(t, patience, what, ask)
}

// AwaitWithin is Await with another limit than a minute.
func AwaitWithin(t testing.TB, limit time.Duration, what string, ask func() error) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(pause) {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s: %v", limit, what, err)
		}
	}
}
