package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/sched/core"
	"github.com/tenon-project/tenon/internal/sched/upstream/preempt"
	"github.com/tenon-project/tenon/internal/testkit"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// states returns a name and a state or code for each pod.
func states(r Result) string {
	var got []string
	for _, p := range r.Pods {
		state := p.State
		if state == Waiting && len(p.Reasons) > 0 {
			state = p.Reasons[0].Code.String()
		}
		got = append(got, p.Name+" "+state)
	}
	slices.Sort(got)
	return strings.Join(got, ", ")
}

// nonStrict is what says returns, of a NonStrict gang.
func nonStrict(metadata string) string {
	return strings.TrimSuffix(metadata, "}") + ", gang.scheduling.koordinator.sh/mode: NonStrict}"
}

// TestAGangEvictsOnlyWhatLetsAllOfItStart is G10: who makes way on nodes of 4 CPUs. Pods l… are on nodes, with
// priority 1.
func TestAGangEvictsOnlyWhatLetsAllOfItStart(t *testing.T) {
	runs := func(name, node string, cpus int, metadata string, priority int) string {
		return cpuPod(name, cpus, metadata, fmt.Sprintf(", nodeName: %s, priority: %d", node, priority))
	}
	gang := func(n, least, cpus int, more string) (pods string) {
		for i := range n {
			pods += cpuPod(fmt.Sprint("a", i), cpus, says("a", least), ", priority: 10"+more)
		}
		return pods
	}
	in := func(quota string) string { return ", labels: {quota.scheduling.koordinator.sh/name: " + quota + "}" }
	both := func(gang string, least int) string {
		return strings.TrimSuffix(nonStrict(says(gang, least)), "}") +
			`, gang.scheduling.koordinator.sh/groups: '["default/a","default/b"]'}`
	}
	for name, c := range map[string]struct {
		nodes int
		pods  string
		want  string
	}{
		"each member a node of its own": {
			nodes: 2,
			pods:  runs("l0", "n0", 4, "", 1) + runs("l1", "n1", 4, "", 1) + gang(2, 2, 4, ""),
			want:  "a0 Scheduled, a1 Scheduled, l0 Preempted, l1 Preempted",
		},
		"one node cannot be freed, so none is": {
			nodes: 2,
			pods:  runs("l0", "n0", 4, "", 1) + runs("l1", "n1", 4, "", 10) + gang(2, 2, 4, ""),
			want:  "a0 GangSiblingFailed, a1 GangSiblingFailed, l0 Existing, l1 Existing",
		},
		"a pod instead of a gang": {
			nodes: 2,
			pods: runs("l0", "n0", 2, says("l", 2), 1) + runs("l1", "n1", 2, says("l", 2), 1) +
				runs("l2", "n1", 2, "", 1) + runs("l3", "n0", 2, "", 10) + gang(1, 1, 2, ""),
			want: "a0 Scheduled, l0 Existing, l1 Existing, l2 Preempted, l3 Existing",
		},
		"a gang goes whole": {
			nodes: 2,
			pods: runs("l0", "n0", 4, says("l", 2), 1) + runs("l1", "n1", 2, says("l", 2), 1) +
				runs("l2", "n1", 2, "", 10) + gang(1, 1, 2, ""),
			want: "a0 Scheduled, l0 Preempted, l1 Preempted, l2 Existing",
		},
		"a member above the minimum of its gang": {
			nodes: 2,
			pods:  runs("l0", "n0", 4, says("l", 1), 1) + runs("l1", "n1", 4, says("l", 1), 1) + gang(1, 1, 4, ""),
			want:  "a0 Scheduled, l0 Existing, l1 Preempted",
		},
		"one member above the minimum, and not two": {
			nodes: 4,
			pods: runs("l3", "n3", 4, "", 1) + runs("l0", "n0", 4, says("l", 2), 1) +
				runs("l1", "n1", 4, says("l", 2), 1) + runs("l2", "n2", 4, says("l", 2), 1) + gang(2, 2, 4, ""),
			want: "a0 Scheduled, a1 Scheduled, l0 Existing, l1 Existing, l2 Preempted, l3 Preempted",
		},
		"two of five could go alone, and four must: all go": {
			nodes: 3,
			pods: runs("l0", "n0", 2, says("l", 3), 0) + runs("l1", "n0", 1, says("l", 3), 0) +
				runs("l2", "n0", 1, says("l", 3), 0) + runs("l3", "n1", 3, says("l", 3), 1) +
				runs("l4", "n1", 1, "", 1) + runs("l5", "n2", 2, "", 1) + runs("l6", "n2", 2, says("l", 3), 1) +
				gang(3, 3, 3, ""),
			want: "a0 Scheduled, a1 Scheduled, a2 Scheduled, l0 Preempted, l1 Preempted, l2 Preempted, l3 Preempted, " +
				"l4 Existing, l5 Preempted, l6 Preempted",
		},
		"a gang with a member that is as important stays": {
			nodes: 2,
			pods:  runs("l0", "n0", 4, says("l", 2), 1) + runs("l1", "n1", 4, says("l", 2), 10) + gang(1, 1, 4, ""),
			want:  "a0 GangSiblingFailed, l0 Existing, l1 Existing",
		},
		"the least important first": {
			nodes: 3,
			pods: runs("l0", "n0", 4, "", 3) + runs("l1", "n1", 4, "", 1) + runs("l2", "n2", 4, "", 2) +
				gang(2, 2, 4, ""),
			want: "a0 Scheduled, a1 Scheduled, l0 Existing, l1 Preempted, l2 Preempted",
		},
		"what is needed and no more": {
			nodes: 1,
			pods: runs("l0", "n0", 1, "", 1) + runs("l1", "n0", 1, "", 2) + runs("l2", "n0", 2, "", 1) +
				gang(2, 2, 1, ""),
			want: "a0 Scheduled, a1 Scheduled, l0 Existing, l1 Existing, l2 Preempted",
		},
		"a member beyond the minimum evicts for itself": {
			nodes: 2,
			pods:  runs("l0", "n0", 4, "", 1) + runs("l1", "n1", 4, "", 1) + gang(2, 1, 4, ""),
			want:  "a0 Scheduled, a1 Scheduled, l0 Preempted, l1 Preempted",
		},
		"victims of its own quota, though there is room elsewhere": {
			nodes: 3,
			pods: elastic("scheduling.sigs.k8s.io", "one", "", "{cpu: 6}", "{cpu: 6}") +
				elastic("scheduling.sigs.k8s.io", "two", "", "{cpu: 6}", "{cpu: 12}") +
				runs("l0", "n0", 3, in("one"), 1) + runs("l1", "n0", 1, in("one"), 1) +
				runs("l2", "n1", 2, in("two"), 1) +
				strings.ReplaceAll(gang(2, 2, 2, ""), ", annotations", in("one")+", annotations"),
			want: "a0 Scheduled, a1 Scheduled, l0 Preempted, l1 Existing, l2 Existing",
		},
		"members that its quota admits, and not the first": {
			nodes: 3,
			pods: elastic("scheduling.sigs.k8s.io", "one", "", "{cpu: 4}", "{cpu: 4}") +
				runs("l0", "n0", 4, in("one"), 1) +
				cpuPod("a0", 4, in("one")+says("a", 2), ", priority: 10") +
				cpuPod("a1", 2, in("one")+says("a", 2), ", priority: 10") +
				cpuPod("a2", 2, in("one")+says("a", 2), ", priority: 10"),
			want: "a0 Unschedulable, a1 Scheduled, a2 Scheduled, l0 Preempted",
		},
		"its quota has no room for a member beyond the minimum": {
			nodes: 2,
			pods: elastic("scheduling.sigs.k8s.io", "one", "", "{cpu: 4}", "{cpu: 4}") +
				runs("l0", "n0", 1, in("one"), 1) + runs("l1", "n0", 1, in("one"), 20) +
				strings.ReplaceAll(gang(4, 3, 1, ""), ", annotations", in("one")+", annotations"),
			want: "a0 Scheduled, a1 Scheduled, a2 Scheduled, a3 Unschedulable, l0 Preempted, l1 Existing",
		},
		"no victims of other quotas": {
			nodes: 2,
			pods: elastic("scheduling.sigs.k8s.io", "one", "", "{cpu: 4}", "{cpu: 8}") +
				elastic("scheduling.sigs.k8s.io", "two", "", "{cpu: 4}", "{cpu: 8}") +
				runs("l0", "n0", 4, in("two"), 1) + runs("l1", "n1", 2, in("one"), 1) +
				strings.ReplaceAll(gang(2, 2, 3, ""), ", annotations", in("one")+", annotations"),
			want: "a0 GangSiblingFailed, a1 GangSiblingFailed, l0 Existing, l1 Existing",
		},
		"a budget is kept where it can be": {
			nodes: 2,
			pods: "\n{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: kept}, spec: " +
				"{minAvailable: 1, selector: {matchLabels: {app: kept}}}}\n---" +
				runs("l0", "n0", 4, ", labels: {app: kept}", 0) + runs("l1", "n1", 4, "", 1) + gang(1, 1, 4, ""),
			want: "a0 Scheduled, l0 Existing, l1 Preempted",
		},
		"NonStrict: for what is missing beside what it holds": {
			nodes: 3,
			pods: runs("l0", "n0", 4, "", 1) + runs("l1", "n1", 4, "", 2) +
				strings.ReplaceAll(gang(3, 3, 3, ""), says("a", 3), nonStrict(says("a", 3))),
			want: "a0 Scheduled, a1 Scheduled, a2 Scheduled, l0 Preempted, l1 Preempted",
		},
		"NonStrict: victims of the quota that it holds a part of": {
			nodes: 2,
			pods: elastic("scheduling.sigs.k8s.io", "one", "", "{cpu: 4}", "{cpu: 4}") +
				runs("l0", "n0", 1, in("one"), 1) + runs("l1", "n0", 1, in("one"), 2) +
				strings.ReplaceAll(gang(3, 3, 1, ""), says("a", 3), in("one")+nonStrict(says("a", 3))),
			want: "a0 Scheduled, a1 Scheduled, a2 Scheduled, l0 Preempted, l1 Existing",
		},
		"NonStrict: for two gangs that start together": {
			nodes: 3,
			pods: runs("l0", "n0", 4, "", 1) + runs("l1", "n1", 4, "", 2) + runs("l2", "n2", 1, "", 3) +
				cpuPod("a0", 3, both("a", 1), ", priority: 10") + cpuPod("b0", 3, both("b", 2), ", priority: 10") +
				cpuPod("b1", 3, both("b", 2), ", priority: 10"),
			want: "a0 Scheduled, b0 Scheduled, b1 Scheduled, l0 Preempted, l1 Preempted, l2 Existing",
		},
		"NonStrict: not for a part": {
			nodes: 3,
			pods: runs("l0", "n0", 4, "", 1) + runs("l1", "n1", 4, "", 10) +
				strings.ReplaceAll(gang(3, 3, 3, ""), says("a", 3), nonStrict(says("a", 3))),
			want: "a0 Waiting, a1 Unschedulable, a2 Unschedulable, l0 Existing, l1 Existing",
		},
		"the PodGroup's priority": {
			nodes: 2,
			pods: runs("l0", "n0", 4, "", 1) +
				nativeGroup("v1alpha2", "l", "{gang: {minCount: 1}}, priority: 10") +
				cpuPod("l1", 4, "", ", nodeName: n1, priority: 1"+own("l")) +
				nativeGroup("v1alpha2", "a", "{gang: {minCount: 1}}, priority: 9") +
				cpuPod("a0", 4, "", own("a")) + nativeGroup("v1alpha2", "b", "{gang: {minCount: 1}}, priority: 8") +
				cpuPod("b0", 4, "", ", priority: 9"+own("b")),
			want: "a0 Scheduled, b0 GangSiblingFailed, l0 Preempted, l1 Existing",
		},
		"a policy that forbids it": {
			nodes: 1,
			pods:  runs("l0", "n0", 4, "", 1) + gang(2, 2, 1, ", preemptionPolicy: Never"),
			want:  "a0 GangSiblingFailed, a1 GangSiblingFailed, l0 Existing",
		},
		"a PodGroup of Kubernetes 1.37 that forbids it": {
			nodes: 1,
			pods: runs("l0", "n0", 4, "", 1) +
				nativeGroup("v1beta1", "a", "{gang: {minCount: 1}}, preemptionPolicy: Never") +
				cpuPod("a0", 4, "", ", priority: 10"+own("a")),
			want: "a0 GangSiblingFailed, l0 Existing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := ""
			for i := range c.nodes {
				in += cpuNode(fmt.Sprint("n", i), 4)
			}
			r, _ := simulate(t, in+c.pods, "-")
			if got := states(r); got != c.want {
				t.Errorf("got  %s\nwant %s\n%+v", got, c.want, r.Pods)
			}
		})
	}
}

// TestAGangEvictsTheLeast compares with brute force, on nodes of 4 CPUs with pods and gangs of several priorities: the
// gang starts whole or evicts none, other gangs keep their minimum or nothing, none can be spared of what was evicted,
// and where nothing was, the gang does not fit without all that it might evict either. A plain pod in the gang's place
// follows the same rules, but that upstream's choice may evict more than it must.
func TestAGangEvictsTheLeast(t *testing.T) {
	const mine = 2 // the gang's priority
	rapid.Check(t, func(rt *rapid.T) {
		type running struct {
			name, node, gang string
			cpus, priority   int
		}
		least := map[string]int{"": 0}
		for _, g := range []string{"x", "z"} {
			least[g] = rapid.IntRange(1, 3).Draw(rt, "minimum")
		}
		nodes, all := "", []running{}
		for n := range rapid.IntRange(1, 3).Draw(rt, "nodes") {
			node := fmt.Sprint("n", n)
			nodes += cpuNode(node, 4)
			for free := 4; free > 0; {
				p := running{
					fmt.Sprint("l", len(all)), node, rapid.SampledFrom([]string{"", "", "x", "z"}).Draw(rt, "gang"),
					rapid.IntRange(1, free).Draw(rt, "CPUs"),
					rapid.SampledFrom([]int{0, 1, 1, mine}).Draw(rt, "priority"),
				}
				free -= p.cpus
				all = append(all, p)
			}
		}
		plain := rapid.Bool().Draw(rt, "plain")
		size, cpus := rapid.IntRange(1, 4).Draw(rt, "members"), rapid.IntRange(1, 4).Draw(rt, "CPUs of a member")
		metadata := says("a", size)
		if plain {
			size, metadata = 1, ""
		} else if rapid.Bool().Draw(rt, "NonStrict") {
			metadata = nonStrict(metadata)
		}
		// run simulates with some of them.
		run := func(stays func(running) bool, policy string) (bound int, evicted map[string]bool) {
			in := nodes
			for _, p := range all {
				metadata := ""
				if p.gang != "" {
					metadata = says(p.gang, least[p.gang])
				}
				if stays(p) {
					in += cpuPod(p.name, p.cpus, metadata,
						fmt.Sprintf(", nodeName: %s, priority: %d", p.node, p.priority))
				}
			}
			for i := range size {
				in += cpuPod(fmt.Sprint("a", i), cpus, metadata, fmt.Sprintf(", priority: %d%s", mine, policy))
			}
			r, _ := simulate(t, in, "-")
			evicted = map[string]bool{}
			for _, p := range r.Pods {
				switch p.State {
				case Scheduled:
					bound++
				case Preempted:
					evicted[p.Name] = true
				}
			}
			return bound, evicted
		}
		fits := func(stays func(running) bool) bool {
			bound, _ := run(stays, ", preemptionPolicy: Never")
			return bound == size
		}
		bound, evicted := run(func(running) bool { return true }, "")
		if bound != 0 && bound != size {
			rt.Fatalf("%d of %d members started", bound, size)
		}
		left, important := map[string]int{}, map[string]bool{}
		for _, p := range all {
			if !evicted[p.name] {
				left[p.gang]++
			}
			important[p.gang] = important[p.gang] || p.priority >= mine
			if evicted[p.name] && (bound == 0 || p.priority >= mine) {
				rt.Errorf("%+v was evicted, %d members started", p, bound)
			}
		}
		before := map[string]int{}
		for _, p := range all {
			before[p.gang]++
		}
		for _, g := range []string{"x", "z"} {
			if left[g] > 0 && left[g] < before[g] && left[g] < least[g] {
				rt.Errorf("gang %s has %d of %d left", g, left[g], least[g])
			}
		}
		if bound == 0 {
			if fits(func(p running) bool { return p.priority >= mine || p.gang != "" && important[p.gang] }) {
				rt.Errorf("the gang fits without what it might evict, and evicted nothing")
			}
			return
		}
		for _, p := range all {
			if plain {
				break
			}
			whole := p.gang != "" && left[p.gang] == 0
			if evicted[p.name] && fits(func(o running) bool {
				return !evicted[o.name] || o.name == p.name || whole && o.gang == p.gang
			}) {
				rt.Errorf("%s need not have been evicted, of %v", p.name, evicted)
			}
		}
	})
}

// TestAPlainPodEvictsNoPartThatAGangNeeds: what a gang cannot spare goes with all of it, or not at all.
func TestAPlainPodEvictsNoPartThatAGangNeeds(t *testing.T) {
	runs := func(name, node string, cpus int, metadata string, priority int) string {
		return cpuPod(name, cpus, metadata, fmt.Sprintf(", nodeName: %s, priority: %d", node, priority))
	}
	plain := cpuPod("a", 4, "", ", priority: 10")
	for name, c := range map[string]struct{ pods, want string }{
		"a gang goes whole": {
			pods: runs("l0", "n0", 4, says("l", 2), 1) + runs("l1", "n1", 2, says("l", 2), 1) +
				runs("l2", "n1", 2, "", 10) + plain,
			want: "a Scheduled, l0 Preempted, l1 Preempted, l2 Existing",
		},
		"a pod rather than a gang": {
			pods: runs("l0", "n0", 2, says("l", 2), 1) + runs("l1", "n0", 2, says("l", 2), 1) +
				runs("l2", "n1", 1, "", 1) + runs("l3", "n1", 3, "", 1) + plain,
			want: "a Scheduled, l0 Existing, l1 Existing, l2 Preempted, l3 Preempted",
		},
		"a pod rather than a gang with a member elsewhere": {
			pods: runs("l0", "n0", 4, says("l", 2), 1) + runs("l1", "n1", 1, says("l", 2), 1) +
				runs("l2", "n1", 3, "", 10) + runs("l3", "n2", 4, "", 1) + plain,
			want: "a Scheduled, l0 Existing, l1 Existing, l2 Existing, l3 Preempted",
		},
		"a member above the minimum": {
			pods: runs("l0", "n0", 4, says("l", 1), 1) + runs("l1", "n1", 4, says("l", 1), 10) + plain,
			want: "a Scheduled, l0 Preempted, l1 Existing",
		},
		"a gang with a member that is as important": {
			pods: runs("l0", "n0", 4, says("l", 2), 1) + runs("l1", "n1", 4, says("l", 2), 10) + plain,
			want: "a Unschedulable, l0 Existing, l1 Existing",
		},
		"two of a node where one could go": {
			pods: runs("l0", "n0", 2, says("l", 2), 1) + runs("l1", "n0", 2, says("l", 2), 1) +
				runs("l2", "n1", 4, says("l", 2), 10) + plain,
			want: "a Unschedulable, l0 Existing, l1 Existing, l2 Existing",
		},
		"its own gang": {
			pods: runs("l0", "n0", 4, says("l", 1), 1) + runs("l1", "n1", 4, says("l", 1), 1) +
				cpuPod("a", 4, says("l", 1), ", priority: 10"),
			want: "a Unschedulable, l0 Existing, l1 Existing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := cpuNode("n0", 4) + cpuNode("n1", 4)
			if strings.Contains(c.pods, "n2") {
				in += cpuNode("n2", 4)
			}
			r, _ := simulate(t, in+c.pods, "-")
			if got := states(r); got != c.want {
				t.Errorf("got  %s\nwant %s\n%+v", got, c.want, r.Pods)
			}
		})
	}
}

// evictBy lets a function evict the victims of a profile.
func evictBy(f framework.Framework,
	evict func(context.Context, preempt.Eviction, preempt.Evictor) (rejected bool, err error),
) {
	core.PreemptionOf(f).EvictBy(func(inner preempt.Evictor) preempt.Evictor { return replaced{inner, evict} })
}

type replaced struct {
	inner preempt.Evictor
	evict func(context.Context, preempt.Eviction, preempt.Evictor) (rejected bool, err error)
}

func (r replaced) Evict(ctx context.Context, e preempt.Eviction) (rejected bool, err error) {
	return r.evict(ctx, e, r.inner)
}

// TestVictimsThatTakeLongAreWaitedFor: while victims of a gang have yet to end it evicts no others, and what the first
// of them leaves is not for a pod of lower priority.
func TestVictimsThatTakeLongAreWaitedFor(t *testing.T) {
	waitFor(t, says("a", 4), "GangPreempting", "GangPreempting")
	waitFor(t, nonStrict(says("a", 4)), "None", "GangHolding") // each member has its own reason, until two fit
}

func waitFor(t *testing.T, metadata string, reasons ...string) {
	t.Helper()
	in := cpuNode("n0", 4) + cpuNode("n1", 4) + cpuNode("n2", 4)
	for i := range 3 {
		in += cpuPod(fmt.Sprint("l", i), 4, "", fmt.Sprintf(", nodeName: n%d, priority: %d", i, i))
	}
	for i := range 4 {
		in += cpuPod(fmt.Sprint("a", i), 2, metadata, ", priority: 10")
	}
	in += cpuPod("b", 4, "", ", priority: 5, preemptionPolicy: Never")
	var evicted []*corev1.Pod
	var waits []string // what the gang waits for when b is tried
	r, err := simulated(t, in, func(e *engine) {
		for _, f := range e.core.Profiles {
			evictBy(f, func(_ context.Context, eviction preempt.Eviction, _ preempt.Evictor) (bool, error) {
				ends, now := eviction.Victim.DeepCopy(), metav1.NewTime(e.api.clock.Now())
				ends.DeletionTimestamp = &now
				ends.Status.Conditions = append(ends.Status.Conditions, corev1.PodCondition{
					Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
					Reason: corev1.PodReasonPreemptionByScheduler,
				})
				e.api.update(eviction.Victim, ends)
				evicted = append(evicted, ends)
				return false, nil
			})
		}
		schedule := e.core.SchedulePod
		e.core.SchedulePod = func(ctx context.Context, f framework.Framework, s fwk.CycleState,
			p *framework.QueuedPodInfo,
		) (scheduler.ScheduleResult, error) {
			result, err := schedule(ctx, f, s, p)
			if p.Pod.Name == "b" && len(waits) < 2 {
				var report gang.Report
				e.gangs.Read(func(s *gang.State) { report, _ = s.Find("default/a") })
				waits = append(waits, report.Why.Code.String())
				e.api.remove(evicted[len(waits)-1])
			}
			return result, err
		}
	})
	testkit.Check(t, err)
	want := "a0 Scheduled, a1 Scheduled, a2 Scheduled, a3 Scheduled, b Unschedulable, l0 Preempted, l1 Preempted, " +
		"l2 Existing"
	if got := states(r); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if len(evicted) != 2 || !slices.Equal(waits, reasons) {
		t.Errorf("%d were evicted, want 2; the gang waits for %v", len(evicted), waits)
	}
}

// TestVictimsThatHaveNotStarted have no start time, as pods that were only just bound.
func TestVictimsThatHaveNotStarted(t *testing.T) {
	in := ""
	for i := range 2 {
		in += cpuNode(fmt.Sprint("n", i), 4) +
			cpuPod(fmt.Sprint("l", i), 4, "", fmt.Sprintf(", nodeName: n%d, priority: 1", i)) +
			cpuPod(fmt.Sprint("a", i), 4, says("a", 2), ", priority: 10")
	}
	r, err := simulated(t, in, func(e *engine) {
		for _, o := range e.api.pods.GetStore().List() {
			if p := o.(*corev1.Pod); p.Spec.NodeName != "" {
				bound := p.DeepCopy()
				bound.Status.StartTime = nil
				e.api.update(p, bound)
			}
		}
	})
	testkit.Check(t, err)
	if got, want := states(r), "a0 Scheduled, a1 Scheduled, l0 Preempted, l1 Preempted"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestAGangThatIsGoneEvictsNoMore: the first victim's eviction finds the gang short of a member.
func TestAGangThatIsGoneEvictsNoMore(t *testing.T) {
	in := cpuNode("n0", 4) + cpuNode("n1", 4)
	for i := range 2 {
		in += cpuPod(fmt.Sprint("l", i), 4, "", fmt.Sprintf(", nodeName: n%d, priority: 1", i)) +
			cpuPod(fmt.Sprint("a", i), 4, says("a", 2), ", priority: 10")
	}
	r, err := simulated(t, in, func(e *engine) {
		for _, f := range e.core.Profiles {
			evictBy(f, func(ctx context.Context, eviction preempt.Eviction, inner preempt.Evictor) (bool, error) {
				for _, o := range e.api.pods.GetStore().List() {
					if p := o.(*corev1.Pod); p.Name == "a1" {
						e.api.remove(p)
					}
				}
				return inner.Evict(ctx, eviction)
			})
		}
	})
	testkit.Check(t, err)
	if got := states(r); strings.Count(got, " Existing") != 1 || !strings.Contains(got, "a0 GangNotReady") {
		t.Errorf("got %s, want one that was evicted before the gang was known to be short of a1", got)
	}
}

// extender refuses nodes, and has a say in preemption.
type extender struct {
	fwk.Extender
	refuses  string
	preempts bool
}

func (extender) Name() string                  { return "extender" }
func (extender) IsFilter() bool                { return true }
func (extender) IsPrioritizer() bool           { return false }
func (extender) IsBinder() bool                { return false }
func (extender) IsIgnorable() bool             { return false }
func (extender) IsInterested(*corev1.Pod) bool { return true }
func (e extender) SupportsPreemption() bool    { return e.preempts }

func (e extender) Filter(_ *corev1.Pod, nodes []fwk.NodeInfo,
) (left []fwk.NodeInfo, failed, unresolvable extenderv1.FailedNodesMap, err error) {
	failed = extenderv1.FailedNodesMap{}
	for _, n := range nodes {
		if n.Node().Name == e.refuses {
			failed[n.Node().Name] = "refused by the extender"
		} else {
			left = append(left, n)
		}
	}
	return left, failed, nil, nil
}

func (extender) Prioritize(*corev1.Pod, []fwk.NodeInfo) (*extenderv1.HostPriorityList, int64, error) {
	return &extenderv1.HostPriorityList{}, 1, nil
}

// TestExtendersAreAskedInThePlan of a gang, also of one that evicts. One that decides about victims is not passed over:
// the gang evicts none.
func TestExtendersAreAskedInThePlan(t *testing.T) {
	low := func(name, node string) string { return cpuPod(name, 4, "", ", nodeName: "+node+", priority: 1") }
	gang := cpuPod("a0", 4, says("a", 2), ", priority: 9") + cpuPod("a1", 4, says("a", 2), ", priority: 9")
	nodes := cpuNode("n0", 4) + cpuNode("n1", 4)
	for name, c := range map[string]struct {
		in        string
		preemptor extender
		want      string
	}{
		"a node that the extender refuses": {
			nodes + gang, extender{refuses: "n1"}, "a0 GangSiblingFailed, a1 GangSiblingFailed",
		},
		"nothing is refused": {nodes + gang, extender{}, "a0 Scheduled, a1 Scheduled"},
		"no victims on a node that it refuses": {
			nodes + gang + low("l0", "n0") + low("l1", "n1"),
			extender{refuses: "n1"},
			"a0 GangSiblingFailed, a1 GangSiblingFailed, l0 Existing, l1 Existing",
		},
		"victims": {
			nodes + gang + low("l0", "n0") + low("l1", "n1"),
			extender{},
			"a0 Scheduled, a1 Scheduled, l0 Preempted, l1 Preempted",
		},
		"victims that it may refuse": {
			nodes + gang + low("l0", "n0") + low("l1", "n1"),
			extender{preempts: true},
			"a0 GangSiblingFailed, a1 GangSiblingFailed, l0 Existing, l1 Existing",
		},
	} {
		r, err := simulated(t, c.in, func(e *engine) { e.core.Extenders = []fwk.Extender{c.preemptor} })
		if got := states(r); got != c.want || err != nil {
			t.Errorf("%s: got %s, %v\nwant %s", name, got, err, c.want)
		}
	}
}
