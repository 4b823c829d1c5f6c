//go:build e2e_node

package runtime

import (
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// Pods that use nothing of Tenon must not notice that there is one.
func TestPlainPodsAreNeverBlocked(t *testing.T) {
	t.Run("no agent was ever there", func(t *testing.T) {
		for _, route := range paths {
			t.Run(string(route), func(t *testing.T) {
				w := newWorld(t, route, options{noAgent: true})
				b, c := w.run(pod("plain"))
				w.wants(c, allCPUs)
				if err := b.Remove(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	})
	t.Run("the agent is killed", func(t *testing.T) {
		for _, route := range paths {
			t.Run(string(route), func(t *testing.T) {
				w := newWorld(t, route, options{})
				w.agent.Kill()
				b, c := w.run(pod("plain"))
				w.wants(c, allCPUs)
				if err := b.Remove(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	})
	t.Run("the API server does not answer", func(t *testing.T) {
		for _, route := range paths {
			t.Run(string(route), func(t *testing.T) {
				w := newWorld(t, route, options{})
				made := w.bind(pod("plain"))
				thaw := w.plane.Freeze()
				b, err := w.runtime.RunPod(t.Context(), made)
				testkit.Check(t, err)
				c := w.start(b, "main")
				w.wants(c, allCPUs)
				thaw()
			})
		}
	})
}

func TestABoundPodDoesNotStartWithoutTheAgent(t *testing.T) {
	for _, route := range closed {
		t.Run(string(route), func(t *testing.T) {
			w := newWorld(t, route, options{})
			w.agent.Kill()
			b, err := w.runtime.RunPod(t.Context(),
				w.bind(pod("bound", withClass("LSR"), guaranteed("1"), allocated(exclusive), fenced)))
			if err == nil {
				err = w.refused(t.Context(), b, "main")
			}
			t.Logf("the runtime says: %v", err)
			w.agent.Start()
			if b == nil {
				b, err = w.runtime.RunPod(t.Context(), w.get("bound"))
				testkit.Check(t, err)
			}
			stage.Await(t, "the pod to start once the agent is back", func() error {
				c, err := b.Run(t.Context(), "main")
				if err != nil {
					return err
				}
				w.wants(c, exclusive)
				w.never(c, exclusive)
				return nil
			})
		})
	}
}

// containerd 1.7 asks no validator: a container starts without an agent that is away, the node says so, and LSE pods
// are refused there.
func TestContainerd17StartsBoundPodsWithoutTheAgentAndTheNodeSaysSo(t *testing.T) {
	w := newWorld(t, byOldNRI, options{})
	w.condition("tenon.sh/EnforcementDegraded", "True", "OldRuntime")
	_, err := w.runtime.RunPod(t.Context(), w.bind(pod("lse", withClass("LSE"), guaranteed("1"), allocated(exclusive))))
	if err == nil || !strings.Contains(err.Error(), "EnforcementDegraded") {
		t.Errorf("an LSE pod: the runtime says %v, want EnforcementDegraded in it", err)
	}
	w.unbind(w.get("lse"))

	w.agent.Kill()
	_, bound := w.run(pod("bound", withClass("LSR"), guaranteed("1"), allocated(exclusive), fenced))
	w.wants(bound, allCPUs)
	w.agent.Start()
	w.wants(bound, exclusive)
	w.never(bound, allCPUs, exclusive)
}
