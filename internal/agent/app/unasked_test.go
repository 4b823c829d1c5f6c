package app_test

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/testkit"
)

// No runtime or proxy asks the agent: it finds containers by the API and the tree.
func TestAContainerThatStartedUnaskedIsMovedAtThePodsNextEvent(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		w.unasked, w.options.Resync = true, time.Hour
		w.run(func(*app.Agent) {
			if got := w.condition(event.EnforcementDegraded); got != "True" {
				t.Errorf("condition %s is %q without a runtime, want True", event.EnforcementDegraded, got)
			}
			lse := pod("lse", "LSE", "2", "2-3")
			w.create(lse)
			group := "kubepods/pod" + string(lse.UID) + "/c"
			testkit.Check(t, w.tree.MkdirAll(group))
			if _, err := w.tree.Spawn(group); err != nil {
				t.Fatal(err)
			}
			status := lse.DeepCopy()
			status.Labels["changed"] = "by the kubelet's report"
			w.update(status)
			later(time.Second)
			if got, err := w.tree.Read(group, desired.CPUs); got != "2-3" || err != nil {
				t.Errorf("cpuset = %q, %v a second after the pod's event, want 2-3", got, err)
			}
		})
	})
}

func TestDegradedEnforcementThatIsAllowedSaysSo(t *testing.T) {
	t.Parallel()
	for allowed, want := range map[bool]string{false: "NoTransport", true: annotation.DegradedAllowed} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "arm64-1s")
			w.unasked, w.options.AllowDegraded = true, allowed
			w.run(func(*app.Agent) {
				node, err := w.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
				if err != nil || len(node.Status.Conditions) != 1 || node.Status.Conditions[0].Reason != want {
					t.Errorf("allowed %v: conditions %+v, %v; want one of reason %s", allowed, node.Status.Conditions,
						err, want)
				}
			})
		})
	}
}
