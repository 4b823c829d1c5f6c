package sim

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/gang"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

// members returns how many members of a gang are in a phase.
func (l *live) members(gangName string, phase gang.Phase) (n int) {
	l.gangs.Read(func(s *gang.State) {
		r, _ := s.Find("default/" + gangName)
		for _, m := range r.Members {
			if m.Phase == phase {
				n++
			}
		}
	})
	return n
}

// resize gives a quota another min and max, as an edit of its object does.
func (l *live) resize(name string, amounts corev1.ResourceList) {
	l.quotas.PutQuota(testobject.Quota("default/"+name, amounts, amounts))
	r := v1alpha1.Resource(v1alpha1.GroupName)
	l.core.SchedulingQueue.MoveAllToActiveOrBackoffQueue(klog.Background(), fwk.ClusterEvent{
		Resource: fwk.EventResource(r.Resource + "." + r.Version + "." + r.Group), ActionType: fwk.Update,
	}, nil, nil, nil)
}

// TestANonStrictGangHoldsWhatItsQuotaHasRoomFor: 2 of 4 members, and the others wait for the quota. When the quota
// grows by one member, one more is held; when it grows by the last, the gang starts.
func TestANonStrictGangHoldsWhatItsQuotaHasRoomFor(t *testing.T) {
	for name, c := range map[string]struct {
		amounts func(members int) corev1.ResourceList
		ask     func(*corev1.Pod)
		refused string
	}{
		"CPUs": {
			func(n int) corev1.ResourceList { return testobject.List("cpu", fmt.Sprint(2*n)) },
			func(*corev1.Pod) {},
			"runtime: cpu:4, used: cpu:4, pod's request: cpu:2, exceedDimensions: [cpu]",
		},
		"GPUs": {
			func(n int) corev1.ResourceList { return testobject.List("cpu", "64", gpu, fmt.Sprint(n)) },
			testobject.Both("cpu", "2", gpu, "1"),
			"exceedDimensions: [nvidia.com/gpu]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLive(t, gpuNode("n0", 64, 4))
			check := func(room, waiting, bound int) {
				t.Helper()
				l.runUntilIdle()
				held, started := l.members("g", gang.Waiting), len(l.on("g"))
				if held != waiting || started != bound {
					t.Fatalf("with room for %d: %d are reserved and %d bound, want %d and %d", room, held, started,
						waiting, bound)
				}
			}
			l.resize("team", c.amounts(2))
			l.gang("g", 4, 2, testobject.Label(annotation.QuotaName, "team"),
				testobject.Annotation(annotation.GangMode, "NonStrict"), c.ask)
			check(2, 2, 0)
			for _, name := range []string{"g2", "g3"} {
				o, _, _ := l.api.pods.GetStore().GetByKey("default/" + name)
				text := fmt.Sprint(o.(*corev1.Pod).Status.Conditions)
				if !strings.Contains(text, c.refused) {
					t.Errorf("%s waits for %s, want %s", name, text, c.refused)
				}
			}
			l.resize("team", c.amounts(3))
			check(3, 3, 0)
			l.resize("team", c.amounts(4))
			check(4, 0, 4)
		})
	}
}
