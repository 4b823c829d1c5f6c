package testkit

import (
	"os"
	"testing"
)

// memory is where Linux keeps a file system in memory.
const memory = "/dev/shm"

// Dir is tb.TempDir in memory where that is possible: a machine is thousands of small files, and on some disks a new
// file takes half a millisecond.
func Dir(tb testing.TB) string {
	tb.Helper()
	if !hasRoom(memory) {
		return tb.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "tenon-test-")
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("remove the test's folder: %v", err)
		}
	})
	return dir
}
