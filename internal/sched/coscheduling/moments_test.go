package coscheduling_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	testclock "k8s.io/utils/clock/testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// infoOf is what the scheduler has of a pod.
func infoOf(t *testing.T, p *corev1.Pod) fwk.PodInfo {
	t.Helper()
	info, err := framework.NewPodInfo(p)
	testkit.Check(t, err)
	return info
}

// TestWhenHeldPodsNeedANode: on a node run a pod of one hour, one of two hours, one without an end, and one that would
// have ended when h1 was promised its start. Pods h1 and h2 hold the node, and start after one and two hours.
func TestWhenHeldPodsNeedANode(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	pod := func(name string, change ...object.PodOption) *corev1.Pod {
		return object.Pod("ns/"+name, append([]object.PodOption{object.UID(name), object.Priority(5)}, change...)...)
	}
	runs := func(d string) object.PodOption {
		return func(p *corev1.Pod) {
			object.On("n")(p)
			p.Status.StartTime = new(metav1.NewTime(now))
			if d != "" {
				p.Annotations[annotation.ExpectedRuntime] = d
			}
		}
	}
	reserves := func(p *corev1.Pod) { p.Name, p.Annotations[annotation.ReservePodKey] = string(p.UID), "true" }
	h1, h2, plain, low := pod("h1"), pod("h2"), pod("p"), object.Priority(4)
	easy := gang.HoldRules{Most: 2, Backfill: true}
	const first, second = "over [hour late], starts [h1]", "over [hour two late], starts [h1 h2]"
	for name, c := range map[string]struct {
		pod       *corev1.Pod
		nominated []*corev1.Pod
		rules     gang.HoldRules
		want      []string
	}{
		"one held pod":                      {plain, []*corev1.Pod{h1}, easy, []string{first}},
		"two, in the order of their starts": {plain, []*corev1.Pod{h2, h1}, easy, []string{first, second}},
		"none":                              {plain, nil, easy, nil},
		"without backfill":                  {plain, []*corev1.Pod{h1}, gang.HoldRules{Most: 2}, nil},
		"one without a promise":             {plain, []*corev1.Pod{h1, pod("victims")}, easy, nil},
		"one of a lower priority does not":  {plain, []*corev1.Pod{h1, pod("low", low)}, easy, []string{first}},
		"one of a higher priority does":     {plain, []*corev1.Pod{h1, pod("high", object.Priority(6))}, easy, nil},
		"itself does not":                   {h2, []*corev1.Pod{h1, h2}, easy, []string{first}},
		"itself alone":                      {h1, []*corev1.Pod{h1}, easy, nil},
		"a pod of a Reservation":            {pod("p", reserves), []*corev1.Pod{h1}, easy, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, gangs := newPlugin(t)
			gangs.Read(func(s *gang.State) {
				s.SetHoldRules(c.rules)
				var holds []gang.Hold
				for i, uid := range []string{"h1", "h2"} {
					holds = append(holds, gang.Hold{
						Rank: gang.Rank{Name: "pod/ns/" + uid}, Start: now.Add(time.Duration(i+1) * time.Hour),
						Nodes: map[string]string{uid: "n"}, Over: map[string][]string{"n": {"late"}},
					})
				}
				s.PublishHolds(holds)
			})
			r := coscheduling.NewRounds(coscheduling.Cluster{
				Gangs: gangs, Quotas: kube.NewQuotas(time.Now), Wall: testclock.NewFakePassiveClock(now),
			})
			node := framework.NewNodeInfo(pod("hour", runs("1h")), pod("two", runs("2h")), pod("ever", runs("")),
				pod("late", runs("3h")))
			node.SetNode(object.Node("n", nil, "cpu", "8"))
			var nominated []fwk.PodInfo
			for _, p := range c.nominated {
				nominated = append(nominated, infoOf(t, p))
			}
			names := func(infos []fwk.PodInfo) (out []string) {
				for _, info := range infos {
					out = append(out, string(info.GetPod().UID))
				}
				return out
			}
			var got []string
			for _, m := range r.Moments(c.pod, node, nominated) {
				got = append(got, fmt.Sprintf("over %v, starts %v", names(m.Over), names(m.Starts)))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
