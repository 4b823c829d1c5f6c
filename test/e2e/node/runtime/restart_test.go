//go:build e2e_node

package runtime

import (
	"fmt"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

func TestARestartedAgentFindsEverythingInOrder(t *testing.T) {
	for _, route := range append(paths, byReconcile) {
		t.Run(string(route), func(t *testing.T) {
			w := newWorld(t, route, options{})
			_, plain := w.run(pod("plain"))
			w.wants(plain, allCPUs)
			b, bound := w.run(pod("bound", withClass("LSR"), guaranteed("1"), allocated(exclusive)))
			w.wants(bound, exclusive)
			w.wants(plain, shared)
			w.agent.Kill()

			_, late := w.run(pod("late")) // no agent confines it
			w.wants(bound, exclusive)
			w.wants(plain, shared)
			w.agent.Start()
			w.wants(late, shared)
			w.wants(bound, exclusive)
			if route != byReconcile {
				w.never(bound, exclusive)
			}
			if n := w.count(plain, "Cpus_allowed_list="+allCPUs); n != 1 {
				t.Errorf("the plain container was on CPUs %s %d times, want once, before the bound pod came", allCPUs,
					n)
			}

			testkit.Check(t, b.Remove(t.Context()))
			w.unbind(b.Pod)
			w.wants(plain, allCPUs)
			w.wants(late, allCPUs)
		})
	}
}

// What a pod loses while the agent is away it has lost: its CPUs are free for others when the agent is back.
func TestAPodThatGoesWhileTheAgentIsAwayLeavesItsCPUs(t *testing.T) {
	w := newWorld(t, byNRI, options{})
	_, plain := w.run(pod("plain"))
	b, _ := w.run(pod("bound", withClass("LSR"), guaranteed("1"), allocated(exclusive)))
	w.wants(plain, shared)
	w.agent.Kill()
	testkit.Check(t, b.Remove(t.Context()))
	w.unbind(b.Pod)
	w.agent.Start()
	w.wants(plain, allCPUs)
}

func TestARestartedRuntimeKeepsEverybodyWhereHeIs(t *testing.T) {
	for _, route := range paths {
		t.Run(string(route), func(t *testing.T) {
			w := newWorld(t, route, options{})
			_, plain := w.run(pod("plain"))
			_, bound := w.run(pod("bound", withClass("LSR"), guaranteed("1"), allocated(exclusive)))
			w.wants(bound, exclusive)
			w.wants(plain, shared)
			w.containerd.Kill()
			w.wants(bound, exclusive)
			w.wants(plain, shared)
			w.containerd.Start()
			if route.nri() {
				w.awaitConnected()
			}
			_, late := w.run(pod("late"))
			w.wants(late, shared)
			w.never(late, shared)
			w.never(bound, exclusive)
			w.wants(bound, exclusive)
			w.wants(plain, shared)
		})
	}
}

// manyPods times manyContainers run when the agent comes.
const (
	manyPods       = 10
	manyContainers = 10
)

func TestAHundredContainersAreThereWhenTheAgentComes(t *testing.T) {
	w := newWorld(t, byNRI, options{noAgent: true})
	var all []*stage.Container
	for i := range manyPods {
		p := pod(fmt.Sprintf("plain-%d", i))
		main := p.Spec.Containers[0]
		p.Spec.Containers = nil
		for j := range manyContainers {
			c := main
			c.Name = fmt.Sprintf("c%d", j)
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
		b := w.sandbox(p)
		for _, c := range p.Spec.Containers {
			all = append(all, w.start(b, c.Name))
		}
	}
	made := w.bind(pod("bound", withClass("LSR"), guaranteed("1"), allocated(exclusive)))
	w.startAgent(byNRI)
	for _, c := range all {
		w.wants(c, shared)
	}
	b, err := w.runtime.RunPod(t.Context(), made)
	testkit.Check(t, err)
	c := w.start(b, "main")
	w.wants(c, exclusive)
	w.never(c, exclusive)
}
