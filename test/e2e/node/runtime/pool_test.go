//go:build e2e_node

package runtime

import (
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

func TestPoolsMoveWhenAPodIsBoundAndNotWhenItStarts(t *testing.T) {
	for _, route := range append(paths, byReconcile) {
		t.Run(string(route), func(t *testing.T) {
			w := newWorld(t, route, options{})
			_, plain := w.run(pod("plain"))
			_, ls := w.run(pod("ls", withClass("LS")))
			b := w.bind(pod("bound", withClass("LSR"), guaranteed("1"), allocated(exclusive)))
			w.wants(plain, shared)
			w.wants(ls, shared)
			if route.nri() {
				w.knows(plain, shared)
			}

			sandbox, err := w.runtime.RunPod(t.Context(), b)
			testkit.Check(t, err)
			bound := w.start(sandbox, "main")
			w.wants(bound, exclusive)
			w.never(plain, allCPUs, shared)

			testkit.Check(t, sandbox.Remove(t.Context()))
			w.unbind(b)
			w.wants(plain, allCPUs)
			w.wants(ls, allCPUs)
		})
	}
}

// knows waits until the runtime has stored a set for a container: what it would write again at the next update.
func (w *world) knows(c *stage.Container, cpus string) {
	w.Helper()
	stage.Await(w, "the runtime to store the set of "+c.Name, func() error {
		answer, err := w.runtime.Client().ContainerStatus(w.Context(),
			&runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
		if got := answer.GetStatus().GetResources().GetLinux().GetCpusetCpus(); err == nil && got != cpus {
			err = fmt.Errorf("it has %q, want %q", got, cpus)
		}
		return err
	})
}
