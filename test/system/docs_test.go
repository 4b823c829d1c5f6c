package system

import (
	"testing"

	"github.com/tenon-project/tenon/internal/testkit/page"
)

// TestTheCommandsOfThePagesDoWhatTheyShow runs them as a reader does, in the order of page.Steps.
func TestTheCommandsOfThePagesDoWhatTheyShow(t *testing.T) {
	t.Parallel()
	bin := binary(t)
	for _, scene := range []page.Scene{page.Offline, page.Demo, page.Plain, page.Aligned, page.Moved} {
		t.Run(string(scene), func(t *testing.T) {
			t.Parallel()
			page.Play(t, scene, bin)
		})
	}
}
