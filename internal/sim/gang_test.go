package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/deploy/examples"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/testkit/page"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// inGang is a Pod whose metadata has more, as YAML that begins with a comma.
func inGang(name, more string) string {
	return fmt.Sprintf("\n{apiVersion: v1, kind: Pod, metadata: {name: %s%s}, "+
		"spec: {containers: [{name: c, image: i}]}}\n---", name, more)
}

// says is what a pod says of its gang in annotations.
func says(gang string, least int) string {
	return fmt.Sprintf(`, annotations: {gang.scheduling.koordinator.sh/name: %s, `+
		`gang.scheduling.koordinator.sh/min-available: "%d"}`, gang, least)
}

// own is what a pod says of a PodGroup of Kubernetes in its spec.
func own(group string) string { return ", schedulingGroup: {podGroupName: " + group + "}" }

// nativeGroup is a PodGroup of Kubernetes.
func nativeGroup(version, name, policy string) string {
	return fmt.Sprintf("\n{apiVersion: scheduling.k8s.io/%s, kind: PodGroup, metadata: {name: %s}, spec: "+
		"{schedulingPolicy: %s}}\n---", version, name, policy)
}

// TestTheOlderGangIsTriedFirst: if one of two gangs fits, that whose PodGroup is older starts, whatever the order
// of the input and the age of the pods; without PodGroups that with the oldest pod.
func TestTheOlderGangIsTriedFirst(t *testing.T) {
	group := func(name, created string) string {
		return "\n{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: PodGroup, metadata: {name: " + name +
			created + "}, spec: {minMember: 2}}\n---"
	}
	const (
		inGang = ", labels: {pod-group.scheduling.sigs.k8s.io: %s}"
		first  = `, creationTimestamp: "2026-01-01T00:00:00Z"`
		later  = `, creationTimestamp: "2026-01-02T00:00:00Z"`
	)
	for name, in := range map[string]string{
		"by their PodGroups": group("a", later) + group("b", first) + cpuPod("a0", 6, fmt.Sprintf(inGang, "a")+first, "") +
			cpuPod("a1", 6, fmt.Sprintf(inGang, "a")+first, "") + cpuPod("b0", 6, fmt.Sprintf(inGang, "b")+later, "") +
			cpuPod("b1", 6, fmt.Sprintf(inGang, "b")+later, ""),
		"by their oldest pods": cpuPod("a0", 6, says("a", 2)+later, "") + cpuPod("a1", 6, says("a", 2)+later, "") +
			cpuPod("b0", 6, says("b", 2)+later, "") + cpuPod("b1", 6, says("b", 2)+first, ""),
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := simulate(t, plain("n0", 16)+in, "-")
			for _, p := range r.Pods {
				if (p.Node != "") != strings.HasPrefix(p.Name, "b") {
					t.Errorf("%s is %s %v", p.Name, p.State, p.Reasons)
				}
			}
		})
	}
}

// TestPodsOfAPodGroupThatHasEndedStartTogether: its minimum of 3 counts anew, and 2 of 3 fit.
func TestPodsOfAPodGroupThatHasEndedStartTogether(t *testing.T) {
	t.Parallel()
	for phase, want := range map[string]string{
		"Finished": Waiting, "Failed": Waiting, "Pending": Waiting, "Unknown": Scheduled,
	} {
		in := plain("n0", 5) + "\n{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: PodGroup, " +
			"metadata: {name: again}, spec: {minMember: 3}, status: {phase: " + phase + "}}\n---"
		for _, name := range []string{"p0", "p1", "p2"} {
			in += cpuPod(name, 2, ", labels: {pod-group.scheduling.sigs.k8s.io: again}", "")
		}
		r, _ := simulate(t, in, "-")
		if got := r.Pods[0].State; got != want {
			t.Errorf("%s: the first pod is %s %v, want %s", phase, got, r.Pods[0].Reasons, want)
		}
	}
}

func TestGangsAreTriedWhenAllTheirMembersExist(t *testing.T) {
	const label = ", labels: {pod-group.scheduling.sigs.k8s.io: %s}"
	in := machineWith(gpu, 1) +
		inGang("a0", says("a", 2)) + inGang("a1", says("a", 2)) +
		inGang("b0", says("b", 2)) +
		inGang("c0", fmt.Sprintf(label, "c")) + inGang("c1", fmt.Sprintf(label, "c")) +
		inGang("d0", fmt.Sprintf(label, "d")) +
		"\n{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: PodGroup, metadata: {name: c}, " +
		"spec: {minMember: 2}}\n---" +
		inGang("e0", ", labels: {scheduling.x-k8s.io/pod-group: e}") +
		"\n{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: e}, spec: {minMember: 1}}\n---" +
		cpuPod("f0", 1, "", own("f")) + cpuPod("f1", 1, "", own("f")) +
		nativeGroup("v1alpha2", "f", "{gang: {minCount: 2}}") +
		cpuPod("g0", 1, "", own("g")) + nativeGroup("v1beta1", "g", "{gang: {minCount: 2}}") +
		cpuPod("h0", 1, "", own("h")) + nativeGroup("v1alpha2", "h", "{basic: {}}") + cpuPod("i0", 1, "", own("i"))
	r, _ := simulate(t, in, "-")
	want := map[string]string{
		"a0": Scheduled, "a1": Scheduled, "b0": "GangNotReady", "c0": Scheduled, "c1": Scheduled, "d0": "GangNotFound",
		"e0": Scheduled, "f0": Scheduled, "f1": Scheduled, "g0": "GangNotReady", "h0": Scheduled, "i0": "GangNotFound",
	}
	for _, p := range r.Pods {
		got := p.State
		if got == Waiting && len(p.Reasons) == 1 {
			got = p.Reasons[0].Code.String()
		}
		if got != want[p.Name] {
			t.Errorf("%s is %s %v, want %s", p.Name, p.State, p.Reasons, want[p.Name])
		}
	}
	gangs := []Gang{
		{Name: "default/a", State: gang.StatusBound, Members: 2, MinMember: 2, Bound: 2},
		{Name: "default/b", State: gang.StatusWaiting, Members: 1, MinMember: 2},
		{Name: "default/c", State: gang.StatusBound, Members: 2, MinMember: 2, Bound: 2},
		{Name: "default/d", State: gang.StatusWaiting, Members: 1, MinMember: 1},
		{Name: "default/e", State: gang.StatusBound, Members: 1, MinMember: 1, Bound: 1},
		{Name: "default/f", State: gang.StatusBound, Members: 2, MinMember: 2, Bound: 2},
		{Name: "default/g", State: gang.StatusWaiting, Members: 1, MinMember: 2},
		{Name: "default/i", State: gang.StatusWaiting, Members: 1, MinMember: 1},
	}
	if diff := cmp.Diff(gangs, r.Gangs); diff != "" {
		t.Errorf("gangs (-want +got):\n%s", diff)
	}
}

func TestAGangWhoseSettingsCannotBeReadIsRefused(t *testing.T) {
	r, _ := simulate(t, machineWith(gpu, 1)+inGang("p", says("g", 0)), "-")
	reasons := r.Pods[0].Reasons
	if r.Pods[0].State != Refused || len(reasons) != 1 || reasons[0].Code != why.BadAnnotation ||
		!strings.Contains(reasons[0].Message, "min-available") {
		t.Errorf("the pod is %s, %v", r.Pods[0].State, reasons)
	}
}

// cpuNode is a node with so many CPUs.
func cpuNode(name string, cpus int) string {
	has := fmt.Sprintf("{cpu: %d, memory: 64Gi, pods: 200}", cpus)
	return fmt.Sprintf("\n{apiVersion: v1, kind: Node, metadata: {name: %s, labels: {kubernetes.io/hostname: %[1]s}}, "+
		"status: {capacity: %[2]s, allocatable: %[2]s}}\n---", name, has)
}

// cpuPod is a Pod that asks for CPUs; its metadata and spec have more, as YAML that begins with a comma.
func cpuPod(name string, cpus int, metadata, spec string) string {
	return fmt.Sprintf("\n{apiVersion: v1, kind: Pod, metadata: {name: %s%s}, spec: {containers: [{name: c, image: i, "+
		"resources: {requests: {cpu: %d}}}]%s}}\n---", name, metadata, cpus, spec)
}

// TestAGangStartsWholeOrNotAtAll: what is bound on nodes of 4 CPUs, and why the rest is not.
//
// F1: two gangs come interleaved, and each holds half of the room.
// F9: two groups of two gangs come as A C B D, and wait for each other.
func TestAGangStartsWholeOrNotAtAll(t *testing.T) {
	group := func(gang string, least int, more string) string {
		return strings.TrimSuffix(says(gang, least), "}") + ", " + more + "}"
	}
	const both = `gang.scheduling.koordinator.sh/groups: '["default/a","default/b"]'`
	const nonStrict = "gang.scheduling.koordinator.sh/mode: NonStrict"
	const apart = ", affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: " +
		"kubernetes.io/hostname, labelSelector: {matchLabels: {app: a}}}]}}"
	const app = ", labels: {app: a}"
	const ofObject = ", labels: {pod-group.scheduling.sigs.k8s.io: a}"
	free := func(cpus int) string { // must be, for a gang of 1
		return fmt.Sprintf("\n{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: PodGroup, metadata: {name: a}, "+
			"spec: {minResources: {cpu: %d}}}\n---", cpus)
	}
	pair := func(gangName, with string) string { // a gang of one that starts with another
		const key = "gang.scheduling.koordinator.sh/groups"
		return group(gangName, 1, fmt.Sprintf(`%s: '["default/%s","default/%s"]'`, key, gangName, with))
	}
	composite := func(name string, least int, parent string) string {
		return fmt.Sprintf("\n{apiVersion: scheduling.k8s.io/v1alpha3, kind: CompositePodGroup, metadata: {name: %s}, "+
			"spec: {parentCompositePodGroupName: %q, schedulingPolicy: {gang: {minGroupCount: %d}}}}\n---",
			name, parent, least)
	}
	leaf := func(name, parent string) string {
		return nativeGroup("v1beta1", name, "{gang: {minCount: 1}}, parentCompositePodGroupName: "+parent)
	}
	numbered := map[string]int{}
	inQuota := func(quotaName string, cpus int) string { // the next member
		name := fmt.Sprint(quotaName, numbered[quotaName])
		numbered[quotaName]++
		return cpuPod(
			name,
			cpus,
			", labels: {quota.scheduling.koordinator.sh/name: ten}"+group(quotaName, 2, nonStrict),
			"",
		)
	}
	for name, c := range map[string]struct {
		nodes int
		pods  string
		want  string // a name and a state or code for each pod
	}{
		"one of three does not fit: the room is left to others": {
			nodes: 1,
			pods: cpuPod("a0", 2, says("a", 3), "") + cpuPod("a1", 2, says("a", 3), "") +
				cpuPod("a2", 2, says("a", 3), "") + cpuPod("b", 4, "", ""),
			want: "a0 GangSiblingFailed, a1 GangSiblingFailed, a2 GangSiblingFailed, b Scheduled",
		},
		"PodGroups of Kubernetes: one of three does not fit": {
			nodes: 1,
			pods: nativeGroup("v1alpha2", "a", "{gang: {minCount: 3}}") + cpuPod("a0", 2, "", own("a")) +
				cpuPod("a1", 2, "", own("a")) + cpuPod("a2", 2, "", own("a")) + cpuPod("b", 4, "", ""),
			want: "a0 GangSiblingFailed, a1 GangSiblingFailed, a2 GangSiblingFailed, b Scheduled",
		},
		"PodGroups of Kubernetes 1.37: two want the room of one": {
			nodes: 2,
			pods: nativeGroup("v1beta1", "a", "{gang: {minCount: 2}}") +
				nativeGroup("v1beta1", "b", "{gang: {minCount: 2}}") +
				cpuPod("a0", 4, "", own("a")) + cpuPod("b0", 4, "", own("b")) + cpuPod("a1", 4, "", own("a")) +
				cpuPod("b1", 4, "", own("b")),
			want: "a0 Scheduled, a1 Scheduled, b0 GangSiblingFailed, b1 GangSiblingFailed",
		},
		"a tree of PodGroups of Kubernetes 1.37: all start": {
			nodes: 2,
			pods: composite("root", 2, "") + composite("sub", 2, "root") + leaf("a", "root") + leaf("b", "sub") +
				leaf("c", "sub") + cpuPod("a0", 4, "", own("a")) + cpuPod("b0", 2, "", own("b")) +
				cpuPod("c0", 2, "", own("c")),
			want: "a0 Scheduled, b0 Scheduled, c0 Scheduled",
		},
		"a tree of PodGroups of Kubernetes 1.37: one does not fit": {
			nodes: 2,
			pods: composite("root", 2, "") + composite("sub", 2, "root") + leaf("a", "root") + leaf("b", "sub") +
				leaf("c", "sub") + cpuPod("a0", 4, "", own("a")) + cpuPod("b0", 2, "", own("b")) +
				cpuPod("c0", 3, "", own("c")) + cpuPod("d", 4, "", ""),
			want: "a0 GangSiblingFailed, b0 GangSiblingFailed, c0 GangSiblingFailed, d Scheduled",
		},
		"a tree of PodGroups of Kubernetes 1.37: a child group is missing": {
			nodes: 2,
			pods: composite("root", 2, "") + leaf("a", "root") + cpuPod("a0", 4, "", own("a")) +
				cpuPod("d", 4, "", ""),
			want: "a0 GangNotFound, d Scheduled",
		},
		"PodGroups of Kubernetes: pods of one that is not a gang start one by one": {
			nodes: 1,
			pods: nativeGroup("v1alpha2", "a", "{basic: {}}") + cpuPod("a0", 2, says("a", 3), own("a")) +
				cpuPod("a1", 2, says("a", 3), own("a")) + cpuPod("a2", 2, says("a", 3), own("a")),
			want: "a0 Scheduled, a1 Scheduled, a2 InsufficientCPU",
		},
		"PodGroups of Kubernetes: annotations count": {
			nodes: 1,
			pods: nativeGroup("v1alpha2", "a, annotations: {"+nonStrict+"}", "{gang: {minCount: 3}}") +
				cpuPod("a0", 2, "", own("a")) + cpuPod("a1", 1, "", own("a")) + cpuPod("a2", 2, "", own("a")),
			want: "a0 Waiting, a1 Waiting, a2 InsufficientCPU",
		},
		"a member beyond the minimum does not fit": {
			nodes: 1,
			pods: cpuPod("a0", 2, says("a", 2), "") + cpuPod("a1", 3, says("a", 2), "") +
				cpuPod("a2", 2, says("a", 2), ""),
			want: "a0 Scheduled, a1 InsufficientCPU, a2 Scheduled",
		},
		"two gangs want the room of one": {
			nodes: 2,
			pods: cpuPod("a0", 4, says("a", 2), "") + cpuPod("b0", 4, says("b", 2), "") +
				cpuPod("a1", 4, says("a", 2), "") + cpuPod("b1", 4, says("b", 2), ""),
			want: "a0 Scheduled, a1 Scheduled, b0 GangSiblingFailed, b1 GangSiblingFailed",
		},
		"gangs of one group, and one does not fit": {
			nodes: 1,
			pods: cpuPod("a0", 2, group("a", 1, both), "") + cpuPod("b0", 2, group("b", 2, both), "") +
				cpuPod("b1", 2, group("b", 2, both), ""),
			want: "a0 GangSiblingFailed, b0 GangSiblingFailed, b1 GangSiblingFailed",
		},
		"gangs of one group, and all fit": {
			nodes: 2,
			pods: cpuPod("a0", 2, group("a", 1, both), "") + cpuPod("b0", 2, group("b", 2, both), "") +
				cpuPod("b1", 2, group("b", 2, both), ""),
			want: "a0 Scheduled, b0 Scheduled, b1 Scheduled",
		},
		"a member beyond the minimum of one gang, in the room that another needs": {
			nodes: 1,
			pods: cpuPod("b0", 3, group("b", 1, both), "") + cpuPod("b1", 1, group("b", 1, both), "") +
				cpuPod("a0", 1, group("a", 1, both), ""),
			want: "a0 Scheduled, b0 Scheduled, b1 InsufficientCPU",
		},
		"a gang that can do without its largest member, in the room that another needs": {
			nodes: 1,
			pods: cpuPod("a0", 1, group("a", 2, both), "") + cpuPod("a1", 3, group("a", 2, both), "") +
				cpuPod("a2", 1, group("a", 2, both), "") + cpuPod("b0", 2, group("b", 1, both), ""),
			want: "a0 Scheduled, a1 InsufficientCPU, a2 Scheduled, b0 Scheduled",
		},
		"two groups of two gangs, one after the other interleaved": {
			nodes: 1,
			pods: cpuPod("a", 2, pair("a", "b"), "") + cpuPod("c", 2, pair("c", "d"), "") +
				cpuPod("b", 2, pair("b", "a"), "") + cpuPod("d", 2, pair("d", "c"), ""),
			want: "a Scheduled, b Scheduled, c GangSiblingFailed, d GangSiblingFailed",
		},
		"members that keep apart": {
			nodes: 2,
			pods: cpuPod("a0", 1, app+says("a", 3), apart) + cpuPod("a1", 1, app+says("a", 3), apart) +
				cpuPod("a2", 1, app+says("a", 3), apart),
			want: "a0 GangSiblingFailed, a1 GangSiblingFailed, a2 GangSiblingFailed",
		},
		"NonStrict: what fits waits for the rest": {
			nodes: 1,
			pods: cpuPod("a0", 2, group("a", 3, nonStrict), "") + cpuPod("a1", 1, group("a", 3, nonStrict), "") +
				cpuPod("a2", 2, group("a", 3, nonStrict), ""),
			want: "a0 Waiting, a1 Waiting, a2 InsufficientCPU",
		},
		"NonStrict: all fit": {
			nodes: 1,
			pods:  cpuPod("a0", 2, group("a", 2, nonStrict), "") + cpuPod("a1", 1, group("a", 2, nonStrict), ""),
			want:  "a0 Scheduled, a1 Scheduled",
		},
		"NonStrict: two hold what each other needs, and the older one starts": {
			nodes: 1,
			pods: cpuPod("a0", 1, group("a", 2, nonStrict), "") + cpuPod("b0", 2, group("b", 2, nonStrict), "") +
				cpuPod("a1", 2, group("a", 2, nonStrict), "") + cpuPod("b1", 2, group("b", 2, nonStrict), ""),
			want: "a0 Scheduled, a1 Scheduled, b0 InsufficientCPU, b1 InsufficientCPU",
		},
		"NonStrict: three gangs in a quota of 10, where the first two can start": {
			nodes: 4,
			pods: elastic("scheduling.sigs.k8s.io", "ten", "", "{cpu: 10}", "{cpu: 10}") +
				inQuota("a", 3) + inQuota("b", 3) + inQuota("c", 4) + inQuota("a", 2) + inQuota("b", 2) +
				inQuota("c", 1),
			want: "a0 Scheduled, a1 Scheduled, b0 Scheduled, b1 Scheduled, c0 QuotaExceeded, c1 QuotaExceeded",
		},
		"a member that is held back by a gate": {
			nodes: 1,
			pods: cpuPod("a0", 1, says("a", 2), "") +
				cpuPod("a1", 1, says("a", 2), ", schedulingGates: [{name: example.com/later}]"),
			want: "a0 GangGated, a1 SchedulingGate",
		},
		"less is free in the cluster than minResources": {
			nodes: 2, pods: free(9) + cpuPod("a0", 1, ofObject, ""), want: "a0 GangSiblingFailed",
		},
		"as much is free as minResources": {
			nodes: 2, pods: free(8) + cpuPod("a0", 1, ofObject, ""), want: "a0 Scheduled",
		},
		"pods that it may evict have some of minResources": {
			nodes: 2,
			pods: free(8) + cpuPod("b", 1, "", ", nodeName: n0, priority: 1") +
				cpuPod("a0", 1, ofObject, ", priority: 10"),
			want: "a0 Scheduled, b Existing",
		},
		"pods that it may not evict have some of minResources": {
			nodes: 2,
			pods: free(8) + cpuPod("b", 1, "", ", nodeName: n0, priority: 1") +
				cpuPod("a0", 1, ofObject, ", priority: 10, preemptionPolicy: Never"),
			want: "a0 GangSiblingFailed, b Existing",
		},
		"no victim goes for one member": {
			nodes: 1,
			pods: "\n{apiVersion: v1, kind: Pod, metadata: {name: low}, spec: {nodeName: n0, priority: 0, " +
				"containers: [{name: c, image: i, resources: {requests: {cpu: 3}}}]}}\n---" +
				cpuPod("a0", 2, says("a", 3), ", priority: 10") + cpuPod("a1", 2, says("a", 3), ", priority: 10") +
				cpuPod("a2", 2, says("a", 3), ", priority: 10"),
			want: "a0 GangSiblingFailed, a1 GangSiblingFailed, a2 GangSiblingFailed, low Existing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := ""
			for i := range c.nodes {
				in += cpuNode(fmt.Sprint("n", i), 4)
			}
			r, _ := simulate(t, in+c.pods, "-")
			var got []string
			for _, p := range r.Pods {
				state := p.State
				if state != Scheduled && len(p.Reasons) > 0 {
					state = p.Reasons[0].Code.String()
				}
				got = append(got, p.Name+" "+state)
			}
			slices.Sort(got)
			if got := strings.Join(got, ", "); got != c.want {
				t.Errorf("got  %s\nwant %s\n%+v", got, c.want, r.Pods)
			}
		})
	}
}

// stepped decides about a text, and calls after between two steps of the scheduler. It returns how often a pod was
// assumed, and how often one was tried.
func stepped(t *testing.T, in string, after func(*engine)) (r Result, assumed, tried int) {
	t.Helper()
	r, err := simulated(t, in, func(e *engine) {
		next := e.core.NextEntity
		e.core.NextEntity = func(logger klog.Logger) (framework.QueuedEntityInfo, error) {
			after(e)
			return next(logger)
		}
		e.core.Cache = &countingCache{e.core.Cache, &assumed}
		for name, f := range e.core.Profiles {
			e.core.Profiles[name] = &countingProfile{f, &tried}
		}
	})
	testkit.Check(t, err)
	return r, assumed, tried
}

type countingCache struct {
	cache.Cache
	assumed *int
}

func (c *countingCache) AssumePod(logger klog.Logger, p *corev1.Pod) error {
	*c.assumed++
	return c.Cache.AssumePod(logger, p)
}

type countingProfile struct {
	framework.Framework
	tried *int
}

func (c *countingProfile) RunPreFilterPlugins(ctx context.Context, state fwk.CycleState, p *corev1.Pod,
) (*fwk.PreFilterResult, *fwk.Status, sets.Set[string]) {
	*c.tried++
	return c.Framework.RunPreFilterPlugins(ctx, state, p)
}

// TestAGangThatDoesNotFitReservesNothing: of 1,000 members that count in a quota, the nodes have room for 999. Each is
// tried once, none is assumed, and no step leaves anything reserved.
//
// F2: what nine of ten members hold starves the cluster.
// F8: a large gang is looked at again and again for each of its members.
func TestAGangThatDoesNotFitReservesNothing(t *testing.T) {
	const members = 1000
	in := "\n{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: ElasticQuota, metadata: {name: default, " +
		"namespace: default}, spec: {max: {cpu: 1000}, min: {cpu: 1000}}}\n---" +
		"\n{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: PodGroup, metadata: {name: a}, " +
		fmt.Sprintf("spec: {minMember: %d}}\n---", members) + cpuNode("n0", 4) +
		strings.Replace(cpuNode("cordoned", 100), "status:", "spec: {unschedulable: true}, status:", 1)
	for i := range 5 {
		in += cpuNode(fmt.Sprint("m", i), 199)
	}
	for i := range members {
		in += cpuPod(fmt.Sprint("a", i), 1, ", labels: {pod-group.scheduling.sigs.k8s.io: a}", "")
	}
	check := func(e *engine) {
		for _, n := range e.store.Nodes() {
			for held := range e.store.View(n).Entries() {
				t.Errorf("%s holds something on %s between two steps", held.UID, n)
			}
		}
		if r, _ := e.quotas.Report("default"); r.Used["cpu"] > 0 {
			t.Errorf("the quota uses %v between two steps", r.Used)
		}
	}
	r, assumed, tried := stepped(t, in, check)
	for _, p := range r.Pods {
		if p.State != Waiting || len(p.Reasons) != 1 || p.Reasons[0].Code != why.GangSiblingFailed ||
			!strings.Contains(p.Reasons[0].Message, "only 999 of 1000 members fit") {
			t.Fatalf("%s is %s, %v", p.Name, p.State, p.Reasons)
		}
	}
	if assumed != 0 || tried > members+2 { // and one of each kind for the shape of the gang
		t.Errorf("%d assumed and %d tried, want none and each once", assumed, tried)
	}
	r, assumed, _ = stepped(t, in+cpuNode("n2", 1), func(*engine) {})
	if g := r.Gangs[0]; g.Bound != members || assumed != members {
		t.Errorf("with room for all: %+v, %d assumed", g, assumed)
	}
}

// TestGangsNeverStartInPart is G1, G2 and G6 with random gangs, some in groups, and single pods: each gang has its
// minimum or nothing, with all gangs of its group; nodes hold no more than they have; and no gang that waits fits in
// what is left.
func TestGangsNeverStartInPart(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type member struct {
			name, gang string
			cpus       int
		}
		gangs := []string{"a", "b", "c", ""}
		least, size := map[string]int{}, map[string]int{}
		together := rapid.Bool().Draw(rt, "a and b start together")
		var members []member
		for i := range rapid.IntRange(1, 9).Draw(rt, "pods") {
			m := member{
				fmt.Sprint("p", i), rapid.SampledFrom(gangs).Draw(rt, "gang"), rapid.IntRange(1, 3).Draw(rt, "CPUs"),
			}
			members = append(members, m)
			size[m.gang]++
		}
		for _, g := range gangs {
			least[g] = rapid.IntRange(1, 4).Draw(rt, "minimum")
		}
		together = together && size["a"] > 0 && size["b"] > 0
		nodes, pods, spec := "", map[string]string{}, map[string]member{}
		for i := range rapid.IntRange(1, 2).Draw(rt, "nodes") {
			nodes += cpuNode(fmt.Sprint("n", i), 4)
		}
		for _, m := range members {
			metadata := ""
			if m.gang != "" {
				metadata = says(m.gang, least[m.gang])
				if together && m.gang != "c" {
					metadata = strings.TrimSuffix(metadata, "}") +
						`, gang.scheduling.koordinator.sh/groups: '["default/a","default/b"]'}`
				}
			}
			pods[m.name], spec[m.name] = cpuPod(m.name, m.cpus, metadata, ""), m
		}
		all := nodes
		for _, m := range members {
			all += pods[m.name]
		}
		r, _ := simulate(t, all, "-")
		bound, used := map[string]int{}, map[string]int{}
		rest := nodes
		for _, p := range r.Pods {
			if p.State != Scheduled {
				continue
			}
			bound[spec[p.Name].gang]++
			used[p.Node] += spec[p.Name].cpus
			rest += cpuPod(p.Name, spec[p.Name].cpus, "", ", nodeName: "+p.Node)
		}
		starts := func(g string) bool { return bound[g] >= least[g] }
		for _, g := range gangs[:3] {
			if bound[g] > 0 && !starts(g) || together && g != "c" && bound[g] > 0 && !(starts("a") && starts("b")) {
				rt.Fatalf("gangs that need %v have %v", least, bound)
			}
		}
		for n, cpus := range used {
			if cpus > 4 {
				rt.Fatalf("%s has 4 CPUs, and %d are given", n, cpus)
			}
		}
		for _, g := range gangs[:3] {
			if bound[g] > 0 || size[g] == 0 {
				continue
			}
			again := rest
			for _, m := range members {
				if m.gang == g || together && g != "c" && (m.gang == "a" || m.gang == "b") {
					again += pods[m.name]
				}
			}
			r, _ := simulate(t, again, "-")
			for _, group := range r.Gangs {
				if group.Name == "default/"+g && group.Bound > 0 {
					rt.Fatalf("gang %s waits, and fits in what is left: %+v", g, r.Pods)
				}
			}
		}
	})
}

// TestAPlanThatDoesWithoutTheFirstMember: a1 is tried first, by its age, and takes no room of a2 and b0.
func TestAPlanThatDoesWithoutTheFirstMember(t *testing.T) {
	const both = `, gang.scheduling.koordinator.sh/groups: '["default/a","default/b"]'}`
	answer := func(gang string, least int) string { return strings.TrimSuffix(says(gang, least), "}") + both }
	in := cpuNode("n0", 4) + cpuPod("a1", 3, answer("a", 1)+`, creationTimestamp: "2026-01-01T00:00:00Z"`, "") +
		cpuPod("a2", 1, answer("a", 1)+`, creationTimestamp: "2026-01-02T00:00:00Z"`, "") +
		cpuPod("b0", 2, answer("b", 1)+`, creationTimestamp: "2026-01-02T00:00:00Z"`, "")
	r, _ := simulate(t, in, "-")
	if got, want := states(r), "a1 Unschedulable, a2 Scheduled, b0 Scheduled"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestWhatHelpsAnotherKindOfMemberWakesTheGang: a0 took the node with the GPU that a1 needs. A new node lets both
// start, though it does not take a1.
//
// F6: members wait for the flush of the unschedulable pods, 60 to 90 s.
func TestWhatHelpsAnotherKindOfMemberWakesTheGang(t *testing.T) {
	in := strings.ReplaceAll(cpuNode("n0", 4), "pods: 200", "pods: 200, nvidia.com/gpu: 1") +
		cpuPod("a0", 3, says("a", 2), "") +
		strings.ReplaceAll(cpuPod("a1", 3, says("a", 2), ""), "requests:", "limits: {nvidia.com/gpu: 1}, requests:") +
		cpuPod("b", 100, "", ", priority: -5")
	r, err := simulated(t, in, func(e *engine) {
		schedule := e.core.SchedulePod
		e.core.SchedulePod = func(ctx context.Context, f framework.Framework, s fwk.CycleState,
			p *framework.QueuedPodInfo,
		) (scheduler.ScheduleResult, error) {
			if p.Pod.Name == "b" && len(e.api.nodes.GetStore().List()) == 1 { // after the gang
				has := testobject.List("cpu", "8", "pods", "9")
				n := &corev1.Node{Status: corev1.NodeStatus{Capacity: has, Allocatable: has}}
				n.Name = "n1"
				e.api.create(e.api.nodes, n)
			}
			return schedule(ctx, f, s, p)
		}
	})
	testkit.Check(t, err)
	if got, want := states(r), "a0 Scheduled, a1 Scheduled, b Unschedulable"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestAPlannedMemberThatFailsIsTheCause, and not one that the plan does without: a0 never fits, and a2 lost its node
// after the plan.
func TestAPlannedMemberThatFailsIsTheCause(t *testing.T) {
	in := cpuNode("n0", 2) + cpuPod("a0", 4, says("a", 2), ", priority: 9") + cpuPod("a1", 1, says("a", 2), "") +
		cpuPod("a2", 1, says("a", 2), "")
	var causes []string
	note := func(e *engine) {
		e.gangs.Read(func(s *gang.State) {
			if report, _ := s.Find("default/a"); report.Why.Pod != "" {
				causes = append(causes, report.Why.Pod)
			}
		})
	}
	shrunk := false
	_, err := simulated(t, in, func(e *engine) {
		fail := e.core.FailureHandler
		e.core.FailureHandler = func(ctx context.Context, f framework.Framework, p *framework.QueuedPodInfo,
			status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time,
		) {
			fail(ctx, f, p, status, nominating, start)
			note(e)
			if !shrunk {
				shrunk = true
				old := e.api.nodes.GetStore().List()[0].(*corev1.Node)
				n := old.DeepCopy()
				n.Status.Allocatable["cpu"] = resource.MustParse("1")
				e.api.stamp(n)
				for _, h := range e.api.nodes.handlers {
					h.OnUpdate(old, n)
				}
			}
		}
	})
	if err != nil || len(causes) == 0 || slices.ContainsFunc(causes, func(c string) bool { return c != "default/a2" }) {
		t.Errorf("causes %v, %v; want default/a2 alone", causes, err)
	}
}

// TestTheGangsOfTheGuideStart: every block of YAML is read, and all pods of its jobs start. Those of other operators'
// jobs are made of their templates.
func TestTheGangsOfTheGuideStart(t *testing.T) {
	want := map[string]int{"default/train": 4, "default/solve": 5, "default/tune": 3}
	want["default/actors"], want["default/learner"], want["default/close"] = 0, 0, 0
	got := map[string]int{}
	for _, block := range page.Blocks(t) {
		if block.File != "docs/guide/gang.md" || block.Language != "yaml" {
			continue
		}
		in := cpuNode("n0", 100)
		for _, doc := range block.Documents() {
			var job struct {
				Kind     string
				Metadata metav1.ObjectMeta
				Spec     map[string]json.RawMessage
			}
			if err := yaml.Unmarshal([]byte(doc), &job); err != nil {
				t.Fatalf("%v in\n%s", err, doc)
			}
			var roles map[string]struct {
				Replicas int
				Template corev1.PodTemplateSpec
			}
			for _, key := range []string{"mpiReplicaSpecs", "pytorchReplicaSpecs"} {
				if raw := job.Spec[key]; raw != nil {
					if err := yaml.UnmarshalStrict(raw, &roles); err != nil {
						t.Fatalf("%v in\n%s", err, doc)
					}
				}
			}
			if roles == nil {
				in += "\n" + doc + "\n---"
			}
			for role, gangName := range roles {
				for i := range gangName.Replicas {
					p := corev1.Pod{ObjectMeta: gangName.Template.ObjectMeta, Spec: gangName.Template.Spec}
					p.APIVersion, p.Kind = "v1", "Pod"
					p.Name = fmt.Sprintf("%s-%s-%d", job.Metadata.Name, strings.ToLower(role), i)
					pod, err := json.Marshal(&p)
					testkit.Check(t, err)
					in += "\n" + string(pod) + "\n---"
				}
			}
		}
		r, _ := simulate(t, in, "-")
		for _, g := range r.Gangs {
			if got[g.Name] = max(got[g.Name], g.Bound); g.Members != g.Bound {
				t.Errorf("gang %+v, want all its members bound", g)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods of the gangs in the guide (-want +got):\n%s", diff)
	}
}

// TestTheDemoHasAGangThatRunsAndOneThatWaits for a member.
func TestTheDemoHasAGangThatRunsAndOneThatWaits(t *testing.T) {
	r, _ := simulate(t, cpuNode("n0", 100)+"\n"+string(examples.Demo()), "-")
	want := []Gang{{"default/eval", gang.StatusWaiting, 2, 3, 0}, {"default/train", gang.StatusBound, 3, 3, 3}}
	if diff := cmp.Diff(want, r.Gangs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
