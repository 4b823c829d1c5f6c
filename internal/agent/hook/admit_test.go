package hook_test

import (
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
)

// late is a container whose group the runtime creates with its first process: it reports only the group of the pod.
func late(p hook.Pod, id string) hook.Container { return hook.Container{Pod: p, ID: id, Name: "main"} }

// sandboxed runs the sandbox of a container's pod.
func (n *node) sandboxed(c hook.Container) {
	n.t.Helper()
	n.must(n.service.RunPod(n.t.Context(), c.Pod))
	n.must(n.tree.MkdirAll(c.Pod.Cgroup[1:]))
}

// admit asks before the start, as a runtime proxy does: what the container is to have now is what the runtime will
// write.
func (n *node) admit(c hook.Container) (hook.Container, error) {
	n.t.Helper()
	a, _, err := n.service.Create(n.t.Context(), c)
	n.must(err)
	c.Has = a
	return c, n.service.Start(n.t.Context(), c)
}

// begin creates the group and the first process of an admitted container, and reports that it runs.
func (n *node) begin(c hook.Container) error {
	n.t.Helper()
	group := c.Pod.Cgroup[1:] + "/" + c.ID
	n.must(n.tree.MkdirAll(group))
	n.must(n.tree.Write(group, desired.CPUs, c.Has.CPUs))
	if _, err := n.tree.Spawn(group); err != nil {
		n.t.Fatal(err)
	}
	c.Running = true
	return n.service.Start(n.t.Context(), c)
}

func TestAContainerWithoutAGroupStartsOnItsCPUs(t *testing.T) {
	t.Parallel()
	n := ready(t)
	ls := in(sandbox("a", "LS", ""), "c1")
	n.must(n.run(ls))
	lse := late(sandbox("b", "LSE", "6-7"), "c2")
	n.sandboxed(lse)
	lse, err := n.admit(lse)
	n.must(err)
	want(t, "what the runtime is to write", lse.Has.CPUs, "6-7")
	want(t, "the shared pool", n.cpus(ls), "0-5")
	n.must(n.begin(lse))
	plain := late(sandbox("c", "", ""), "c3")
	n.sandboxed(plain)
	plain, err = n.admit(plain)
	n.must(err)
	want(t, "what the runtime is to write for a plain pod", plain.Has.CPUs, "0-5")
	n.must(n.begin(plain))
}

// A container that ends before the agent checks it is not an error.
func TestAContainerThatEndsAtOnce(t *testing.T) {
	t.Parallel()
	n := ready(t)
	lse := late(sandbox("b", "LSE", "6-7"), "c2")
	n.sandboxed(lse)
	lse, err := n.admit(lse)
	n.must(err)
	lse.Running = true
	n.must(n.service.Start(t.Context(), lse))
}

// The set of a container that the runtime is starting is nowhere in the tree yet.
func TestAnExclusiveContainerWaitsForOneThatIsStarting(t *testing.T) {
	t.Parallel()
	ends := map[string]struct {
		end   func(*node, hook.Container)
		after error
	}{
		"it runs, and has left the CPUs": {func(n *node,
			c hook.Container,
		) {
			n.must(n.begin(c))
			n.must(n.engine.Verify())
		}, nil},
		"it did not start":     {func(n *node, c hook.Container) { n.service.Stop(c) }, nil},
		"no report ever comes": {func(n *node, _ hook.Container) { n.clock.Step(2 * time.Minute) }, nil},
		"it takes its time": {
			func(n *node, _ hook.Container) { n.clock.Step(time.Minute) },
			apply.ErrHandOverPending,
		},
		"its pod is gone": {func(n *node, c hook.Container) { n.service.RemovePod(c.Pod) }, nil},
	}
	for name, e := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := ready(t)
			ls := late(sandbox("a", "LS", ""), "c1")
			n.sandboxed(ls)
			ls, err := n.admit(ls)
			n.must(err)
			want(t, "what the runtime is to write", ls.Has.CPUs, "0-7")
			lse := late(sandbox("b", "LSE", "6-7"), "c2")
			n.sandboxed(lse)
			_, err = n.admit(lse)
			wantCause(t, err, apply.ErrHandOverPending)
			e.end(n, ls)
			_, err = n.admit(lse)
			wantCause(t, err, e.after)
		})
	}
}
