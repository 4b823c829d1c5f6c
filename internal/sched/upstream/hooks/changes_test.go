package hooks

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// TestAChangeOfTheSnapshotIsReadBeforeThoseThatItDoesNotHave compares the log with two lists: what a reader must have
// seen at its position, and what the snapshot does not have yet.
func TestAChangeOfTheSnapshotIsReadBeforeThoseThatItDoesNotHave(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c, read := &Changes{}, uint64(0)
		var due, later []string
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			name := fmt.Sprint("n", rapid.IntRange(0, 3).Draw(t, "node"))
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				c.Node(name)
				if len(later) == 0 || later[len(later)-1] != name {
					later = append(later, name)
				}
			case 1:
				c.Shown(name)
				due = append(due, name)
			case 2:
				c.snapshot()
				due, later = append(due, later...), nil
			default:
				got, ok := c.Since(read)
				if !ok || !slices.Equal(got, due) {
					t.Fatalf("read %v, want %v", got, due)
				}
				read, _ = c.Position()
				due = nil
			}
		}
	})
}
