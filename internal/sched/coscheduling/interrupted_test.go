package coscheduling_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
)

// TestTheBoundPartOfAnInterruptedGangIsKeptForEver where the gang or the argument says Evict: two of its three members
// are bound, and they are evicted through the API of evictions when the waiting time of a minute is over, again after
// 10 seconds where a disruption budget refused it, and not by a replica that does not lead. A gang that started whole,
// one that keeps its pods and a NonStrict one lose no pod.
func TestTheBoundPartOfAnInterruptedGangIsKeptForEver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		argument, says, mode string
		started              bool // the third member was created after the first was bound
		refused              bool // the first time
		evicted              []string
	}{
		"no setting":                         {},
		"the gang says Evict":                {says: "Evict", evicted: []string{"a", "b"}},
		"the argument says Evict":            {argument: "Evict", evicted: []string{"a", "b"}},
		"the gang says Keep":                 {argument: "Evict", says: "Keep"},
		"it started whole":                   {argument: "Evict", started: true},
		"it is NonStrict":                    {argument: "Evict", mode: "NonStrict"},
		"a disruption budget does not allow": {says: "Evict", refused: true, evicted: []string{"a", "b", "a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gangs := kube.NewGangs()
			defaults := gang.Settings{Interrupted: gang.Interrupted(c.argument)}
			testkit.Check(t, gangs.Configure(defaults, convert.DefaultGangRules()))
			w := newWriter(t, gangs)
			var evicted []string
			w.Client.(*fake.Clientset).PrependReactor("create", "pods",
				func(a clienttesting.Action) (bool, runtime.Object, error) {
					e, ok := a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
					if !ok || string(*e.DeleteOptions.Preconditions.UID) != "uid-"+e.Name {
						t.Errorf("it creates %+v", a)
						return false, nil, nil
					}
					evicted = append(evicted, e.Name)
					if c.refused {
						return true, nil, apierrors.NewTooManyRequests("budget", 1)
					}
					gangs.RemovePod(gangs.Pod("uid-" + e.Name))
					return true, nil, nil
				})
			for _, name := range []string{"a", "b", "c"} {
				p := member(name, "g", "3")
				p.CreationTimestamp = metav1.Unix(100, 0)
				p.Annotations[annotation.GangWaitingTime] = "1m"
				for key, value := range map[string]string{
					annotation.GangInterrupted: c.says, annotation.GangMode: c.mode,
				} {
					if value != "" {
						p.Annotations[key] = value
					}
				}
				switch {
				case name != "c":
					p.Spec.NodeName = "n"
					p.Status.Conditions = []corev1.PodCondition{{
						Type: corev1.PodScheduled, Status: corev1.ConditionTrue,
						LastTransitionTime: metav1.Unix(200, 0),
					}}
				case c.started:
					p.CreationTimestamp = metav1.Unix(300, 0)
				}
				gangs.PutPod(p)
			}
			after := func(d time.Duration) {
				w.clock.Step(d)
				w.EvictInterrupted(t.Context())
			}
			after(0)
			after(59 * time.Second)
			if len(evicted) > 0 {
				t.Errorf("before the waiting time is over %v are evicted", evicted)
			}
			w.leading = false
			after(2 * time.Second)
			w.leading = true
			if len(evicted) > 0 {
				t.Errorf("a replica that does not lead evicts %v", evicted)
			}
			after(11 * time.Second)
			after(time.Second)
			if c.refused {
				after(10 * time.Second)
			}
			if !slices.Equal(evicted, c.evicted) || len(w.events.Events) != len(c.evicted) {
				t.Errorf("evicted are %v with %d Events, want %v", evicted, len(w.events.Events), c.evicted)
			}
			for len(w.events.Events) > 0 {
				const text = "the scheduler stopped while it bound gang ns/g, and the rest did not fit within the " +
					"waiting time"
				e := <-w.events.Events
				if !strings.HasPrefix(e, "Warning GangInterrupted ") || !strings.HasSuffix(e, text) ||
					strings.Contains(e, "not evicted: ") != c.refused {
					t.Errorf("the Event %q, want one that ends in %q", e, text)
				}
			}
		})
	}
}
