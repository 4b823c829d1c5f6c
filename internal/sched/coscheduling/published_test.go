package coscheduling_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestAHoldIsAnEvent: when it begins, and when it has ended and the unit still waits a while later.
func TestAHoldIsAnEvent(t *testing.T) {
	t.Parallel()
	pod := func(name string, change ...func(*corev1.Pod)) *corev1.Pod {
		p := object.Pod("ns/"+name, object.UID("uid-"+name))
		for _, f := range change {
			f(p)
		}
		return p
	}
	bound := func(p *corev1.Pod) { p.Spec.NodeName = "n" }
	both := []string{"NodesHeld", "HoldEnded"}
	for name, c := range map[string]struct {
		unit, uid string
		after     []*corev1.Pod // the pods once the hold has ended
		back      bool          // it holds nodes again meanwhile
		renewed   bool          // the leader before has said so
		want      []string
	}{
		"a pod waits on":         {"pod/ns/p", "uid-p", []*corev1.Pod{pod("p")}, false, false, both},
		"a pod starts":           {"pod/ns/p", "uid-p", []*corev1.Pod{pod("p", bound)}, false, false, both[:1]},
		"a pod is deleted":       {"pod/ns/p", "uid-p", nil, false, false, both[:1]},
		"a pod is another one":   {"pod/ns/p", "uid-p", []*corev1.Pod{pod("p", object.UID("new"))}, false, false, both[:1]},
		"a pod holds them again": {"pod/ns/p", "uid-p", []*corev1.Pod{pod("p")}, true, false, both[:1]},
		"another leader, and a pod waits on": {
			"pod/ns/p", "uid-p", []*corev1.Pod{pod("p")}, false, true, both[1:],
		},
		"another leader, and a pod starts": {"pod/ns/p", "uid-p", []*corev1.Pod{pod("p", bound)}, false, true, nil},
		"a gang that has gone":             {"ns/g", "uid-g", nil, false, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, gangs := newPlugin(t)
			w := newWriter(t, gangs)
			client := fake.NewClientset(pod("p"))
			w.Client = client
			hold := gang.Hold{
				Rank: gang.Rank{Name: c.unit}, Nodes: map[string]string{c.uid: "n"},
				Start: w.clock.Now().Add(time.Hour), Renewed: c.renewed,
			}
			publish := func(holds ...gang.Hold) {
				gangs.Read(func(s *gang.State) { s.PublishHolds(holds) })
			}
			publish(hold)
			w.pass(t.Context(), 10)
			publish()
			if err := client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "ns", "p"); err != nil {
				t.Fatal(err)
			}
			for _, p := range c.after {
				if err := client.Tracker().Add(p); err != nil {
					t.Fatal(err)
				}
			}
			w.pass(t.Context(), 3)
			if c.back {
				publish(hold)
			}
			w.pass(t.Context(), 20)
			var got []string
			for len(w.events.Events) > 0 {
				got = append(got, strings.Fields(<-w.events.Events)[1])
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("Events (-want +got):\n%s", diff)
			}
		})
	}
}
