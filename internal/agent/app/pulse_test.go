package app_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/apply"
)

// hangingTree does not return from reads while it hangs, as a broken kernel does.
type hangingTree struct {
	apply.Cgroup
	hangs   atomic.Bool
	release chan struct{}
}

func (h *hangingTree) Children(group string) ([]string, error) {
	if h.hangs.Load() {
		<-h.release
	}
	return h.Cgroup.Children(group)
}

func TestAgentIsAliveWhileItsLoopsMove(t *testing.T) {
	inWorld(t, "hybrid", func(t *testing.T, w *world) {
		tree := &hangingTree{Cgroup: w.tree, release: make(chan struct{})}
		w.options.Cgroup = tree
		w.run(func(a *app.Agent) {
			later(time.Hour)
			if err := a.Alive(); err != nil {
				t.Errorf("Alive = %v of an agent at work", err)
			}
			tree.hangs.Store(true)
			later(4 * time.Minute)
			if err := a.Alive(); err != nil {
				t.Errorf("Alive = %v after 4 minutes: it may be over soon", err)
			}
			later(4 * time.Minute)
			if err := a.Alive(); err == nil || !strings.Contains(err.Error(), "the cgroup tree was last checked") {
				t.Errorf("Alive = %v while the tree hangs, want an error that says so", err)
			}
			tree.hangs.Store(false)
			close(tree.release)
			later(time.Minute)
			if err := a.Alive(); err != nil {
				t.Errorf("Alive = %v after the tree answers again", err)
			}
		})
	})
}
