package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// cluster is a Round over some pods. It accepts every move but those of pods named fixed….
type cluster struct {
	pods  []*corev1.Pod
	fits  map[string]string // where the scheduler would place a pod; "" is on the first node
	moved []string
	costs map[string]int32

	waiting []Waiting
	// room are the moves that the scheduler plans, by the pods that must not move.
	room   func(without map[types.UID]bool) *view.RoomAnswer
	refuse map[types.UID]bool // pods that cannot move beside others
	asked  []string           // the pods that room was asked for

	loads    map[string]*load.Report
	moving   string // a node that a move is under way from or to
	detector load.Detector
	later    time.Duration // after now
}

func (c *cluster) Load(node string) (load.View, bool) {
	n := load.NewNode()
	for _, p := range c.pods {
		if p.Spec.NodeName == node {
			one, _ := convert.LoadSettings{Factors: load.Percents{amount.CPU: 100, amount.Memory: 100}}.Pod(p,
				convert.AssignedAt(p))
			n.Put(one)
		}
	}
	n.SetReport(c.loads[node])
	return n.View(), node == c.moving
}

func (c *cluster) Detector() *load.Detector { return &c.detector }

func (c *cluster) Interval() time.Duration { return 2 * time.Minute }

func (c *cluster) Waiting() []Waiting { return c.waiting }

func (c *cluster) RoomFor(_ context.Context, w Waiting, without map[types.UID]bool, _ int) (*view.RoomAnswer, error) {
	c.asked = append(c.asked, w.Pods[0].Name)
	return c.room(without), nil
}

func (c *cluster) Fragments(_ context.Context, movable func(*corev1.Pod) bool, maxMoves int, minFall int64,
) (*view.RoomAnswer, error) {
	out := &view.RoomAnswer{}
	for _, p := range c.pods {
		if movable(p) && len(out.Moves) < maxMoves && minFall <= 60 {
			out.Moves = append(out.Moves, view.RoomMove{UID: string(p.UID), Target: "n9", Fall: 60})
		}
	}
	return out, nil
}

func (c *cluster) MoveAll(_ context.Context, room *view.RoomAnswer, _ Waiting, _ string) (refused []types.UID) {
	for _, m := range room.Moves {
		if c.refuse[types.UID(m.UID)] {
			refused = append(refused, types.UID(m.UID))
		}
	}
	for _, m := range room.Moves {
		if len(refused) == 0 {
			c.moved = append(c.moved, m.UID+" to "+m.Target)
		}
	}
	return refused
}

func (c *cluster) Now() time.Time { return now.Add(c.later) }

func (c *cluster) Pods(node string) (pods []*corev1.Pod) {
	for _, p := range c.pods {
		if p.Spec.NodeName == node && !slices.Contains(c.moved, p.Name) {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, Before)
	return pods
}

func (c *cluster) Movable(p *corev1.Pod) bool { return !strings.HasPrefix(p.Name, "fixed") }

func (c *cluster) Fit(_ context.Context, p *corev1.Pod, nodes []*corev1.Node) *corev1.Node {
	for _, n := range nodes {
		if name, said := c.fits[p.Name]; n.Name != p.Spec.NodeName && (!said || n.Name == name) {
			return n
		}
	}
	return nil
}

func (c *cluster) Move(_ context.Context, p *corev1.Pod, reason string) bool {
	if reason == "" || !c.Movable(p) {
		return false
	}
	c.moved = append(c.moved, p.Name)
	return true
}

func (c *cluster) SetDeletionCost(_ context.Context, p *corev1.Pod, cost int32) error {
	c.costs[p.Name] = cost
	return nil
}

// run runs a plugin as a configuration names it, and returns which pods it moved, in order.
func run(t *testing.T, name, args string, c *cluster, nodes ...*corev1.Node) []string {
	t.Helper()
	point := "balance"
	if _, ok := All()[name]; !ok {
		t.Fatalf("no plugin %s", name)
	}
	read := func(point string) (descheduler.Settings, error) {
		return descheduler.Read("f.yaml",
			[]byte("apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofiles:\n"+
				"- name: p\n  plugins: {"+point+": {enabled: ["+name+"]}}\n"+
				"  pluginConfig: [{name: "+name+", args: "+args+"}]\n"))
	}
	settings, err := read(point)
	if err != nil {
		if settings, err = read("deschedule"); err != nil {
			t.Fatal(err)
		}
	}
	p := settings.Profiles[0]
	c.costs = map[string]int32{}
	var status *Status
	switch made := All()[name](slices.Concat(p.Deschedule, p.Balance)[0].Args, c).(type) {
	case DeschedulePlugin:
		status = made.Deschedule(t.Context(), nodes)
	case BalancePlugin:
		status = made.Balance(t.Context(), nodes)
	}
	if status != nil {
		t.Fatal(status.Err)
	}
	return c.moved
}

// pod returns a running pod of the ReplicaSet web.
func pod(name, node string, more ...object.PodOption) *corev1.Pod {
	return object.Pod(name, append([]object.PodOption{
		object.On(node), object.Phase(corev1.PodRunning), object.Label("app", "web"),
		object.Created(now.Add(-time.Hour)), owner("ReplicaSet", "web"), object.Container("main", "image"),
	}, more...)...)
}

func owner(kind, name string) object.PodOption {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{
			Kind: kind, Name: name, UID: types.UID(name),
			Controller: new(true),
		}}
	}
}

func asks(list ...string) object.PodOption {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{}
		for i := 0; i < len(list); i += 2 {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceName(list[i])] = resource.MustParse(list[i+1])
		}
	}
}

// node returns a node with 10 CPUs and 10Gi, and labels as KEY=VALUE.
func node(name string, labels ...string) *corev1.Node {
	all := map[string]string{"host": name}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		all[key] = value
	}
	return object.Node(name, all, "cpu", "10", "memory", "10Gi", "pods", "100")
}

func tainted(n *corev1.Node, taints ...corev1.Taint) *corev1.Node {
	n.Spec.Taints = taints
	return n
}

func onLabel(key, value string) object.PodOption {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
}

func prefers(key, value string) object.PodOption {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
				Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}},
				}},
			}},
		}}
	}
}

func avoids(key, app string) object.PodOption {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
			}},
		}}
	}
}

func spreads(skew int32, whenNot corev1.UnsatisfiableConstraintAction) object.PodOption {
	return func(p *corev1.Pod) {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			TopologyKey: "zone", MaxSkew: skew, WhenUnsatisfiable: whenNot,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		}}
	}
}

func container(restarts int32, state corev1.ContainerState) object.PodOption {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			RestartCount: restarts,
			State:        state,
		})
	}
}

func initContainer(restarts int32) object.PodOption {
	return func(p *corev1.Pod) {
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{RestartCount: restarts}}
	}
}

func waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

func exited1(code int32, reason string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
}

// some returns n pods of one node, named node-0 and so on.
func some(n int, on string, more ...object.PodOption) (pods []*corev1.Pod) {
	for i := range n {
		pods = append(pods, pod(fmt.Sprintf("%s-%d", on, i), on, more...))
	}
	return pods
}

func TestPlugins(t *testing.T) {
	t.Parallel()
	const (
		affinity = "RemovePodsViolatingNodeAffinity"
		taints   = "RemovePodsViolatingNodeTaints"
		anti     = "RemovePodsViolatingInterPodAntiAffinity"
		restarts = "RemovePodsHavingTooManyRestarts"
		spread   = "RemovePodsViolatingTopologySpreadConstraint"
		low      = "LowNodeUtilization"
		high     = "HighNodeUtilization"
	)
	noSchedule := corev1.Taint{Key: "dedicated", Value: "batch", Effect: corev1.TaintEffectNoSchedule}
	preferNot := corev1.Taint{Key: "old", Effect: corev1.TaintEffectPreferNoSchedule}
	noExecute := corev1.Taint{Key: "gone", Effect: corev1.TaintEffectNoExecute}
	tolerates := func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	}
	failed := func(more ...object.PodOption) *corev1.Pod {
		return pod("a", "n0", append([]object.PodOption{object.Phase(corev1.PodFailed)}, more...)...)
	}
	for name, c := range map[string]struct {
		plugin, args string
		pods         []*corev1.Pod
		nodes        []*corev1.Node
		fits         map[string]string
		want         []string
	}{
		"a node selector that the node does not match": {
			plugin: affinity, args: "{}", pods: []*corev1.Pod{pod("a", "n0", onLabel("disk", "ssd")), pod("b", "n0")},
			nodes: []*corev1.Node{node("n0"), node("n1", "disk=ssd")}, want: []string{"a"},
		},
		"a node selector that no node matches": {
			plugin: affinity, args: "{}", pods: []*corev1.Pod{pod("a", "n0", onLabel("disk", "ssd"))},
			nodes: []*corev1.Node{node("n0"), node("n1")},
		},
		"a preference that another node matches, not asked for": {
			plugin: affinity, args: "{}", pods: []*corev1.Pod{pod("a", "n0", prefers("disk", "ssd"))},
			nodes: []*corev1.Node{node("n0"), node("n1", "disk=ssd")},
		},
		"a preference that another node matches": {
			plugin: affinity, args: "{nodeAffinityType: [preferredDuringSchedulingIgnoredDuringExecution]}",
			pods:  []*corev1.Pod{pod("a", "n0", prefers("disk", "ssd"))},
			nodes: []*corev1.Node{node("n0"), node("n1", "disk=ssd")}, want: []string{"a"},
		},
		"a preference, and no room there": {
			plugin: affinity, args: "{nodeAffinityType: [preferredDuringSchedulingIgnoredDuringExecution]}",
			pods: []*corev1.Pod{pod("a", "n0", prefers("disk", "ssd"))}, fits: map[string]string{"a": "n2"},
			nodes: []*corev1.Node{node("n0"), node("n1", "disk=ssd"), node("n2")},
		},
		"another namespace": {
			plugin: affinity, args: "{namespaces: {exclude: [default]}}",
			pods:  []*corev1.Pod{pod("a", "n0", onLabel("disk", "ssd"))},
			nodes: []*corev1.Node{node("n0"), node("n1", "disk=ssd")},
		},
		"a taint that one pod tolerates": {
			plugin: taints, args: "{}", pods: []*corev1.Pod{pod("a", "n0"), pod("b", "n0", tolerates)},
			nodes: []*corev1.Node{tainted(node("n0"), noSchedule)}, want: []string{"a"},
		},
		"a taint that is only a preference": {
			plugin: taints, args: "{}", pods: some(1, "n0"), nodes: []*corev1.Node{tainted(node("n0"), preferNot)},
		},
		"a taint that is only a preference, included": {
			plugin: taints, args: "{includePreferNoSchedule: true}", pods: some(1, "n0"),
			nodes: []*corev1.Node{tainted(node("n0"), preferNot)}, want: []string{"n0-0"},
		},
		"a taint that Kubernetes evicts for": {
			plugin: taints, args: "{}", pods: some(1, "n0"), nodes: []*corev1.Node{tainted(node("n0"), noExecute)},
		},
		"a taint that is excluded by its key": {
			plugin: taints, args: "{excludedTaints: [dedicated]}", pods: some(1, "n0"),
			nodes: []*corev1.Node{tainted(node("n0"), noSchedule)},
		},
		"a taint of which another value is excluded": {
			plugin: taints, args: "{excludedTaints: [dedicated=web]}", pods: some(1, "n0"),
			nodes: []*corev1.Node{tainted(node("n0"), noSchedule)}, want: []string{"n0-0"},
		},
		"a taint that is not included": {
			plugin: taints, args: "{includedTaints: [other]}", pods: some(1, "n0"),
			nodes: []*corev1.Node{tainted(node("n0"), noSchedule)},
		},
		"a pod that two others avoid": {
			plugin: anti, args: "{}", nodes: []*corev1.Node{node("n0"), node("n1")}, want: []string{"a"},
			pods: []*corev1.Pod{
				pod("a", "n0"), pod("b", "n0", object.Label("app", "db"), avoids("host", "web")),
				pod("c", "n0", object.Label("app", "db"), avoids("host", "web")),
			},
		},
		"pods that avoid each other, the lower priority first": {
			plugin: anti, args: "{}", nodes: []*corev1.Node{node("n0", "zone=a"), node("n1", "zone=a")},
			want: []string{"b"},
			pods: []*corev1.Pod{
				pod("a", "n0", avoids("zone", "web"), object.Priority(2)), pod("b", "n1", avoids("zone", "web"),
					object.Priority(1)),
			},
		},
		"pods that avoid each other in two zones": {
			plugin: anti, args: "{}", nodes: []*corev1.Node{node("n0", "zone=a"), node("n1", "zone=b")},
			pods: []*corev1.Pod{pod("a", "n0", avoids("zone", "web")), pod("b", "n1", avoids("zone", "web"))},
		},
		"as many restarts as the threshold": {
			plugin: restarts, args: "{podRestartThreshold: 5}", nodes: []*corev1.Node{node("n0")}, want: []string{"a"},
			pods: []*corev1.Pod{
				pod("a", "n0", container(3, corev1.ContainerState{}), container(2, corev1.ContainerState{})),
				pod("b", "n0", container(4, corev1.ContainerState{}), initContainer(1)),
			},
		},
		"restarts of init containers": {
			plugin: restarts, args: "{podRestartThreshold: 5, includingInitContainers: true}",
			nodes: []*corev1.Node{node("n0")}, want: []string{"b"},
			pods: []*corev1.Pod{pod("b", "n0", container(4, corev1.ContainerState{}), initContainer(1))},
		},
		"restarts of a container that waits": {
			plugin: restarts, args: "{podRestartThreshold: 1, states: [CrashLoopBackOff]}",
			nodes: []*corev1.Node{node("n0")}, want: []string{"a"},
			pods: []*corev1.Pod{
				pod("a", "n0", container(3, waiting("CrashLoopBackOff"))), pod("b", "n0", container(3,
					corev1.ContainerState{})),
			},
		},
		"a pod that has failed": {
			plugin: "RemoveFailedPods", args: "{}", pods: []*corev1.Pod{failed(), pod("b", "n0")},
			nodes: []*corev1.Node{node("n0")}, want: []string{"a"},
		},
		"a pod that failed for another reason": {
			plugin: "RemoveFailedPods", args: "{reasons: [OutOfcpu]}", nodes: []*corev1.Node{node("n0")},
			pods: []*corev1.Pod{failed(container(0, exited1(1, "Error")))},
		},
		"a pod that failed with the code": {
			plugin: "RemoveFailedPods", args: "{exitCodes: [3], reasons: [Error]}", nodes: []*corev1.Node{node("n0")},
			pods: []*corev1.Pod{failed(container(0, exited1(3, "Error")))}, want: []string{"a"},
		},
		"a pod that failed too early": {
			plugin: "RemoveFailedPods", args: "{minPodLifetimeSeconds: 3601}", nodes: []*corev1.Node{node("n0")},
			pods: []*corev1.Pod{failed()},
		},
		"a failed pod of an excluded owner": {
			plugin: "RemoveFailedPods", args: "{excludeOwnerKinds: [Job]}", nodes: []*corev1.Node{node("n0")},
			pods: []*corev1.Pod{failed(owner("Job", "j"))},
		},
		"pods that are too old, the youngest one not": {
			plugin: "PodLifeTime", args: "{maxPodLifeTimeSeconds: 1800}", nodes: []*corev1.Node{node("n0")},
			pods: []*corev1.Pod{pod("a", "n0"), pod("b", "n0", object.Created(now.Add(-30*time.Minute)))},
			want: []string{"a"},
		},
		"old pods of another state": {
			plugin: "PodLifeTime", args: "{maxPodLifeTimeSeconds: 1800, states: [Pending]}",
			nodes: []*corev1.Node{node("n0")}, pods: some(1, "n0"),
		},
		"two pods of a workload on one of two nodes": {
			plugin: "RemoveDuplicates", args: "{}", pods: some(2, "n0"), nodes: []*corev1.Node{node("n0"), node("n1")},
			want: []string{"n0-0"},
		},
		"two pods of a workload on the only node": {
			plugin: "RemoveDuplicates", args: "{}", pods: some(2, "n0"), nodes: []*corev1.Node{node("n0")},
		},
		"two pods of a workload, and a node that they do not tolerate": {
			plugin: "RemoveDuplicates", args: "{}", pods: some(2, "n0"),
			nodes: []*corev1.Node{node("n0"), tainted(node("n1"), noSchedule)},
		},
		"pods of a workload with different images": {
			plugin: "RemoveDuplicates", args: "{}", nodes: []*corev1.Node{node("n0"), node("n1")},
			pods: []*corev1.Pod{pod("a", "n0"), pod("b", "n0", object.Container("side", "other"))},
		},
		"duplicates of an excluded owner": {
			plugin: "RemoveDuplicates", args: "{excludeOwnerKinds: [ReplicaSet]}", pods: some(2, "n0"),
			nodes: []*corev1.Node{node("n0"), node("n1")},
		},
		"three pods in one zone, none in the other": {
			plugin: spread, args: "{}", pods: some(3, "n0", spreads(1, corev1.DoNotSchedule)),
			nodes: []*corev1.Node{node("n0", "zone=a"), node("n1", "zone=b")}, want: []string{"n0-0"},
		},
		"a soft constraint": {
			plugin: spread, args: "{}", pods: some(3, "n0", spreads(1, corev1.ScheduleAnyway)),
			nodes: []*corev1.Node{node("n0", "zone=a"), node("n1", "zone=b")},
		},
		"a soft constraint, asked for": {
			plugin: spread, args: "{constraints: [ScheduleAnyway]}", pods: some(3, "n0", spreads(1,
				corev1.ScheduleAnyway)),
			nodes: []*corev1.Node{node("n0", "zone=a"), node("n1", "zone=b")}, want: []string{"n0-0"},
		},
		"a zone that the pods may not use": {
			plugin: spread, args: "{}", pods: some(3, "n0", spreads(1, corev1.DoNotSchedule), onLabel("zone", "a")),
			nodes: []*corev1.Node{node("n0", "zone=a"), node("n1", "zone=b")},
		},
		"no room in the other zone": {
			plugin: spread, args: "{}", pods: some(2, "n0", spreads(1, corev1.DoNotSchedule)),
			nodes: []*corev1.Node{node("n0", "zone=a"), node("n1", "zone=b")},
			fits:  map[string]string{"n0-0": "", "n0-1": ""},
		},
		"no room in the other zone, not asked for": {
			plugin: spread, args: "{topologyBalanceNodeFit: false}", pods: some(2, "n0", spreads(1,
				corev1.DoNotSchedule)),
			nodes: []*corev1.Node{node("n0", "zone=a"), node("n1", "zone=b")}, fits: map[string]string{
				"n0-0": "",
				"n0-1": "",
			},
			want: []string{"n0-0"},
		},
		"a full node beside an empty one, down to the target": {
			plugin: low, args: "{thresholds: {cpu: 20}, targetThresholds: {cpu: 50}}",
			pods:  some(4, "n0", asks("cpu", "2")),
			nodes: []*corev1.Node{node("n0"), node("n1")}, want: []string{"n0-0", "n0-1"},
		},
		"a full node, and a pod that would fill the other above the target": {
			plugin: low, args: "{thresholds: {cpu: 20}, targetThresholds: {cpu: 50}}",
			pods: some(1, "n0", asks("cpu", "6")), nodes: []*corev1.Node{node("n0"), node("n1")},
		},
		"a full node, and fewer empty ones than asked for": {
			plugin: low, args: "{thresholds: {cpu: 20}, targetThresholds: {cpu: 50}, numberOfNodes: 1}",
			pods: some(4, "n0", asks("cpu", "2")), nodes: []*corev1.Node{node("n0"), node("n1")},
		},
		"a full node with a limit of the plugin": {
			plugin: low, args: "{thresholds: {cpu: 20}, targetThresholds: {cpu: 50}, evictionLimits: {node: 1}}",
			pods: some(4, "n0", asks("cpu", "2")), nodes: []*corev1.Node{node("n0"), node("n1")},
			want: []string{"n0-0"},
		},
		"distances from the mean": {
			plugin: low, args: "{thresholds: {cpu: 10}, targetThresholds: {cpu: 10}, useDeviationThresholds: true}",
			pods: some(4, "n0", asks("cpu", "1")), nodes: []*corev1.Node{node("n0"), node("n1")},
			want: []string{"n0-0"},
		},
		"pods without requests, not asked for": {
			plugin: low,
			args:   "{thresholds: {cpu: 20}, targetThresholds: {cpu: 50}, evictionModes: [OnlyThresholdingResources]}",
			pods:   []*corev1.Pod{pod("a", "n0"), pod("b", "n0", asks("cpu", "4")), pod("c", "n0", asks("cpu", "4"))},
			nodes:  []*corev1.Node{node("n0"), node("n1")}, want: []string{"b"},
		},
		"a node that is used little": {
			plugin: high, args: "{thresholds: {cpu: 20}}", nodes: []*corev1.Node{node("n0"), node("n1")},
			want: []string{"a"},
			pods: []*corev1.Pod{pod("a", "n0", asks("cpu", "1")), pod("b", "n1", asks("cpu", "4"))},
		},
		"a node that is used little, and no room elsewhere": {
			plugin: high, args: "{thresholds: {cpu: 20}}", nodes: []*corev1.Node{node("n0"), node("n1")},
			pods: []*corev1.Pod{pod("a", "n0", asks("cpu", "1")), pod("b", "n1", asks("cpu", "9500m"))},
		},
		"CPUs used and memory free": {
			plugin: "FragmentationAware", args: "{}", nodes: []*corev1.Node{node("n0"), node("n1")},
			want: []string{"big"},
			pods: []*corev1.Pod{
				pod("big", "n0", asks("cpu", "5", "memory", "1Gi")), pod("small", "n0", asks("cpu", "2", "memory",
					"1Gi")),
				pod("memory", "n1", asks("cpu", "1", "memory", "6Gi")),
			},
		},
		"CPUs used and memory free, and the other node would have it worse": {
			plugin: "FragmentationAware", args: "{}", nodes: []*corev1.Node{node("n0"), node("n1")},
			pods: []*corev1.Pod{
				pod("big", "n0", asks("cpu", "5", "memory", "1Gi")), pod("other", "n1", asks("cpu", "2", "memory",
					"1Gi")),
			},
		},
		"a paused plugin": {
			plugin: "FragmentationAware", args: "{paused: true}", nodes: []*corev1.Node{node("n0"), node("n1")},
			pods: []*corev1.Pod{pod("big", "n0", asks("cpu", "5", "memory", "1Gi"))},
		},
		"an evenly used node": {
			plugin: "FragmentationAware", args: "{}", nodes: []*corev1.Node{node("n0"), node("n1")},
			pods: some(3, "n0", asks("cpu", "3", "memory", "3Gi")),
		},
		"the emptiest node": {
			plugin: "ScaleDownBinPack", args: "{strategy: EvictDirectly}", want: []string{"n1-0"},
			nodes: []*corev1.Node{node("n0"), node("n1"), node("n2")},
			pods:  append(some(2, "n0", asks("cpu", "3")), some(1, "n1", asks("cpu", "1"))...),
		},
		"the emptiest node with a pod that may move": {
			plugin: "ScaleDownBinPack", args: "{strategy: EvictDirectly, maxPodsToEvict: 1}", want: []string{"n1-0"},
			nodes: []*corev1.Node{node("n0"), node("n1")},
			pods:  append(some(1, "n0", asks("cpu", "8")), some(2, "n1", asks("cpu", "500m"))...),
		},
		"an expensive node beside a cheap one": {
			plugin: "CustomPriority", args: prices("", ""), want: []string{"n0-0", "n0-1"},
			nodes: []*corev1.Node{node("n0", "price=high"), node("n1", "price=low")}, pods: some(2, "n0", asks("cpu",
				"3")),
		},
		"an expensive node, and a cheap one that takes one pod": {
			plugin: "CustomPriority", args: prices("", "rejectThreshold: {cpu: 40}"), want: []string{"n0-0"},
			nodes: []*corev1.Node{node("n0", "price=high"), node("n1", "price=low")}, pods: some(2, "n0", asks("cpu",
				"3")),
		},
		"an expensive node that is used enough": {
			plugin: "CustomPriority", args: prices("keepThreshold: {cpu: 60}", ""),
			nodes: []*corev1.Node{node("n0", "price=high"), node("n1", "price=low")}, pods: some(2, "n0", asks("cpu",
				"3")),
		},
		"an expensive node that cannot be emptied": {
			plugin: "CustomPriority", args: prices("", "rejectThreshold: {cpu: 40}") + "MODE",
			nodes: []*corev1.Node{node("n0", "price=high"), node("n1", "price=low")}, pods: some(2, "n0", asks("cpu",
				"3")),
		},
		"an expensive node with a pod that must not be moved": {
			plugin: "CustomPriority", args: prices("", "") + "MODE",
			nodes: []*corev1.Node{node("n0", "price=high"), node("n1", "price=low")},
			pods:  append(some(1, "n0", asks("cpu", "3")), pod("fixed", "n0")),
		},
		"an expensive node that can be emptied but for a DaemonSet": {
			plugin: "CustomPriority", args: prices("", "") + "MODE", want: []string{"n0-0"},
			nodes: []*corev1.Node{node("n0", "price=high"), node("n1", "price=low")},
			pods:  append(some(1, "n0", asks("cpu", "3")), pod("log", "n0", owner("DaemonSet", "log"))),
		},
		"cheap nodes that the scheduler does not choose": {
			plugin: "CustomPriority", args: prices("", ""), fits: map[string]string{"n0-0": "n0", "n0-1": "n0"},
			nodes: []*corev1.Node{node("n0", "price=high"), node("n1", "price=low")}, pods: some(2, "n0", asks("cpu",
				"3")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := c.args
			if text, whole := strings.CutSuffix(args, "MODE"); whole {
				args = strings.Replace(text, "{evictionOrder", "{mode: DrainNode, evictionOrder", 1)
			}
			got := run(t, c.plugin, args, &cluster{pods: c.pods, fits: c.fits}, c.nodes...)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("moved (-want +got):\n%s", diff)
			}
		})
	}
}

// prices are groups of expensive and cheap nodes, each with more fields.
func prices(high, low string) string {
	group := func(price, more string) string {
		fields := []string{"name: " + price, "nodeSelector: {matchLabels: {price: " + price + "}}"}
		if more != "" {
			fields = append(fields, more)
		}
		return "{" + strings.Join(fields, ", ") + "}"
	}
	return "{evictionOrder: [" + group("high", high) + ", " + group("low", low) + "]}"
}

func TestPodsOfEmptierNodesAreDeletedFirst(t *testing.T) {
	t.Parallel()
	c := &cluster{pods: []*corev1.Pod{
		pod("full", "n0", asks("cpu", "9", "memory", "9Gi")), pod("half", "n1", asks("cpu", "5", "memory", "5Gi")),
		pod("set", "n1", owner("StatefulSet", "s")),
	}}
	run(t, "ScaleDownBinPack", "{}", c, node("n0"), node("n1"), node("n2"))
	if diff := cmp.Diff(map[string]int32{"full": -11, "half": -51}, c.costs); diff != "" {
		t.Errorf("costs (-want +got):\n%s", diff)
	}
	if len(c.moved) > 0 {
		t.Errorf("moved %v, want none", c.moved)
	}
}

func TestRoomIsMadeForPodsThatWaitLongEnough(t *testing.T) {
	t.Parallel()
	waits := func(name string, minutes int) Waiting {
		return Waiting{
			Pods:  []*corev1.Pod{object.Pod(name, object.Label("app", name))},
			Since: now.Add(-time.Duration(minutes) * time.Minute),
		}
	}
	// plan moves the first of a, b and c that may move.
	plan := func(without map[types.UID]bool) *view.RoomAnswer {
		for _, uid := range []string{"a", "b", "c"} {
			if !without[types.UID(uid)] {
				return &view.RoomAnswer{RoomPlan: view.RoomPlan{
					Found: true, Moves: []view.RoomMove{{UID: uid, Target: "n2"}},
				}}
			}
		}
		return &view.RoomAnswer{}
	}
	for name, c := range map[string]struct {
		args         string
		waiting      []Waiting
		refuse       []types.UID
		moved, asked []string
	}{
		"one that waits for less is left alone": {
			"{}", []Waiting{waits("early", 4), waits("late", 5)}, nil, []string{"a to n2"}, []string{"late"},
		},
		"the time is an argument": {
			"{pendingFor: 10m}", []Waiting{waits("early", 9)}, nil, nil, nil,
		},
		"no more than so many are asked about": {
			"{maxWaitingPerRound: 1}", []Waiting{waits("x", 9), waits("y", 9)}, nil, []string{"a to n2"}, []string{"x"},
		},
		"only pods of the scope count": {
			"{labelSelector: {matchLabels: {app: y}}}",
			[]Waiting{waits("x", 9), waits("y", 9)},
			nil,
			[]string{"a to n2"},
			[]string{"y"},
		},
		"another set is looked for where the evictors refuse one": {
			"{}", []Waiting{waits("x", 9)}, []types.UID{"a", "b"}, []string{"c to n2"}, []string{"x", "x", "x"},
		},
		"nothing moves where no set is left": {
			"{}", []Waiting{waits("x", 9)}, []types.UID{"a", "b", "c"}, nil, []string{"x", "x", "x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on := &cluster{waiting: c.waiting, room: plan, refuse: map[types.UID]bool{}}
			for _, uid := range c.refuse {
				on.refuse[uid] = true
			}
			if diff := cmp.Diff(c.moved, run(t, "MakeRoom", c.args, on)); diff != "" {
				t.Errorf("moved (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.asked, on.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFragmentsAreLoweredByMovesOfTheTarget(t *testing.T) {
	t.Parallel()
	label := func(value string) map[string]string { return map[string]string{"pool": value} }
	n1, n2 := object.Node("n1", label("gpu")), object.Node("n2", label("cpu"))
	for name, c := range map[string]struct {
		args   string
		refuse types.UID
		want   []string
	}{
		"as many as the round allows":      {"{}", "", []string{"a to n9", "b to n9"}},
		"one where the arguments say so":   {"{maxMovesPerRound: 1}", "", []string{"a to n9"}},
		"none that helps too little":       {"{minFall: 61}", "", nil},
		"none after one that is refused":   {"{}", "a", nil},
		"those before one that is refused": {"{}", "b", []string{"a to n9"}},
		"of the nodes that are selected":   {"{nodeSelector: {matchLabels: {pool: cpu}}}", "", []string{"c to n9"}},
		"none while it is paused":          {"{paused: true}", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on := &cluster{refuse: map[types.UID]bool{c.refuse: true}}
			for _, p := range []*corev1.Pod{pod("a", "n1"), pod("b", "n1"), pod("c", "n2")} {
				p.UID = types.UID(p.Name)
				on.pods = append(on.pods, p)
			}
			if diff := cmp.Diff(c.want, run(t, "Defragment", c.args, on, n1, n2)); diff != "" {
				t.Errorf("moved (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGuaranteedPodsAreMovedLast: those with the weakest promise of resources first, whatever their age.
func TestGuaranteedPodsAreMovedLast(t *testing.T) {
	t.Parallel()
	order := []corev1.PodQOSClass{corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed}
	made := func(at int) *corev1.Pod {
		p := pod("p", "n", object.Created(now.Add(-time.Duration(at)*time.Hour)))
		p.Status.QOSClass = order[2-at]
		return p
	}
	pods := []*corev1.Pod{made(0), made(1), made(2)}
	slices.SortFunc(pods, Before)
	for i, want := range order {
		if got := pods[i].Status.QOSClass; got != want {
			t.Errorf("pod %d to move is %s, want %s", i, got, want)
		}
	}
}

func TestAPodWithoutPriorityHasZero(t *testing.T) {
	t.Parallel()
	if got := Priority(&corev1.Pod{}); got != 0 {
		t.Errorf("the priority is %d", got)
	}
	if got := Priority(object.Pod("p", object.Priority(7))); got != 7 {
		t.Errorf("the priority is %d, want 7", got)
	}
}
