package app_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/testkit"
)

// away lets the API server of a world disappear and come back.
func (w *world) away() *atomic.Bool {
	gone := &atomic.Bool{}
	refuse := func(clienttesting.Action) (bool, runtime.Object, error) { return gone.Load(), nil, errDown }
	refuseWatch := func(clienttesting.Action) (bool, watch.Interface, error) { return gone.Load(), nil, errDown }
	w.client.PrependReactor("*", "*", refuse)
	w.client.PrependWatchReactor("*", refuseWatch)
	w.objects.PrependReactor("*", "*", refuse)
	w.objects.PrependWatchReactor("*", refuseWatch)
	return gone
}

// TestAnAgentRestartedWithoutTheAPIServerServesThePodsOfItsCheckpoint: it waited for the API server, and neither a
// restarted container nor a changed cpuset got what the pod was granted.
func TestAnAgentRestartedWithoutTheAPIServerServesThePodsOfItsCheckpoint(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		gone := w.away()
		node, err := w.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
		testkit.Check(t, err)
		node.Annotations = map[string]string{annotation.NodeReservation: `{"reservedCPUs":"60-63"}`}
		if _, err := w.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		lsr, ls, quiet := pod("lsr", "LSR", "4", "0-3"), pod("ls", "LS", "1500m", ""), pod("quiet", "LSR", "2", "8-9")
		group := map[string]string{}
		w.run(func(a *app.Agent) {
			for _, p := range []*corev1.Pod{lsr, ls, quiet} {
				w.create(p)
				c, err := w.start(a, p)
				testkit.Check(t, err)
				group[p.Name] = c.Cgroup
			}
			later(time.Minute)
		})
		expect := func(when string, groups map[string]string) {
			t.Helper()
			for group, want := range groups {
				if got, err := w.tree.Read(group, desired.CPUs); got != want || err != nil {
					t.Errorf("%s: group %s has CPUs %q, %v; want %s", when, group, got, err, want)
				}
			}
		}
		before := map[string]string{group["lsr"]: "0-3", group["ls"]: "4-7,10-59", group["quiet"]: "8-9"}
		expect("before the restart", before)

		gone.Store(true)
		w.run(func(a *app.Agent) {
			later(10 * time.Second)
			if err := a.Ready(); err == nil {
				t.Error("ready without the API server")
			}
			// The runtime reports what it has, restarts one container and starts another that shares CPUs.
			again, err := w.start(a, lsr)
			if err != nil {
				t.Fatalf("a container of a bound pod does not start: %v", err)
			}
			if _, err := w.start(a, ls); err != nil {
				t.Fatalf("a container of a pod of the shared pool does not start: %v", err)
			}
			if got := w.cpuset(again); got != "0-3" {
				t.Errorf("the restarted container has CPUs %s, want those of the checkpoint", got)
			}
			testkit.Check(t, w.tree.Write(group["lsr"], desired.CPUs, "0-63"))
			later(time.Minute)
			expect("a minute without the API server", before)
			taker := pod("taker", "LSE", "2", "8-9") // CPUs of a pod of which only the checkpoint knows
			if _, err := w.start(a, taker); err == nil {
				t.Error("a pod starts on CPUs that the checkpoint holds for another one")
			}
			if err := a.Alive(); err != nil {
				t.Errorf("Alive = %v", err)
			}
			later(time.Hour)
			if err := a.Alive(); err != nil {
				t.Errorf("Alive = %v after an hour without the API server", err)
			}

			gone.Store(false)
			later(2 * time.Minute)
			if err := a.Ready(); err != nil {
				t.Errorf("Ready = %v two minutes after the API server is back", err)
			}
			expect("once the API server is back", before)
			if got := w.published(annotation.CPUSharedPoolsKey); !strings.Contains(got, `"cpuset":"4-7,10-59"`) {
				t.Errorf("published pools = %s", got)
			}
		})
	})
}

// TestAnAgentWithoutACheckpointWaitsForTheAPIServer: what it does not know it does not guess.
func TestAnAgentWithoutACheckpointWaitsForTheAPIServer(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		gone := w.away()
		gone.Store(true)
		w.run(func(a *app.Agent) {
			later(time.Hour)
			if _, err := w.start(a, pod("lsr", "LSR", "4", "0-3")); err == nil ||
				!strings.Contains(err.Error(), apply.ErrNotReady.Error()) {
				t.Errorf("start = %v, want %v", err, apply.ErrNotReady)
			}
			if err := a.Alive(); err != nil {
				t.Errorf("Alive = %v while it waits", err)
			}
		})
	})
}
