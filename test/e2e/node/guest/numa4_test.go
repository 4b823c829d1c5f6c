//go:build e2e_guest

package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/guest/vm"
	"github.com/tenon-project/tenon/test/e2e/node/guest/wire"
)

// four is a machine of two sockets, two dies in each and a NUMA node a die.
var four = vm.Shape{
	Name: "numa4", Sockets: 2, Dies: 2, Cores: 2, Threads: 2, MemoryMiB: 768,
	Distance: [][]int{{10, 12, 32, 32}, {12, 10, 32, 32}, {32, 32, 10, 12}, {32, 32, 12, 10}},
}

// blind are the switches of the first phase of a take-over.
func blind() []string {
	return []string{"--disable-query-kubelet-config", "--feature-gates=CPUSetAllocator=false"}
}

func TestFourNodes(t *testing.T) {
	g := begin(t, four)
	n := join(t, g, four, KubeletPolicy{CPUManager: "static", Reserved: "0"}, append(blind(), "--resync=2s")...)
	check(t, four, "the topology that is published is the machine's", func(t *testing.T) { topologyIsTrue(t, n) })

	var pinned, burst *corev1.Pod
	check(t, four, "phase 1: the kubelet has the say, the agent writes nothing", func(t *testing.T) {
		n.create(t, n.pod("pinned", "", "2", "64Mi"), n.pod("burst", "", "200m", "64Mi"))
		pods := n.running(t, "pinned", "burst")
		pinned, burst = pods[0], pods[1]
		state := n.kubeletState(t)
		n.holds(t, map[*corev1.Pod]cpuset.Set{pinned: state.cpusFor(t, pinned), burst: parse(t, state.Default)})
		if mode := n.report(t).GetAnnotations()[annotation.TopologyMode]; mode != "Blind" {
			t.Errorf("the published mode is %q, want Blind", mode)
		}
	})
	if burst == nil {
		t.Fatal("there are no pods to take over")
	}
	var later *corev1.Pod
	check(t, four, "phase 2: pods that the kubelet pinned keep their CPUs, later ones get ours", func(t *testing.T) {
		before := lives(n.look(t), []*corev1.Pod{pinned, burst})
		n.agent = []string{"--resync=2s"}
		testkit.Check(t, errors.Join(n.Kill(t.Context(), "TERM", "tenon-agent"), n.startAgent(t.Context())))
		n.takenOver(t, 1)
		n.create(t, n.pod("later", "LSE", "4", "64Mi"))
		later = n.running(t, "later")[0]
		n.holds(t, n.shares(t, later, pinned, burst))
		own, kept := allocated(t, later), n.kubeletState(t).cpusFor(t, pinned)
		if own.Overlaps(&kept) {
			t.Errorf("the new pod was given %v, the kubelet pinned one to %v", own, kept)
		}
		same(t, before, lives(n.look(t), []*corev1.Pod{pinned, burst}))
	})
	if later == nil {
		t.Fatal("nothing was taken over")
	}
	check(t, four, "a static kubelet that starts again undoes nothing",
		func(t *testing.T) { kubeletInsists(t, n, later, pinned, burst) })
	check(t, four, "shared pods that ask for it run on one NUMA node only", func(t *testing.T) {
		n.create(t, n.pod("local", "LS", "1", "64Mi", func(p *corev1.Pod) {
			p.Annotations[annotation.ResourceSpecKey] = `{"preferredCPUBindPolicy":"ConstrainedBurst"}`
		}))
		local := n.running(t, "local")[0]
		status, _, err := annotation.ParseResourceStatus(local.Annotations[annotation.ResourceStatusKey])
		if err != nil || len(status.CPUSharedPools) != 1 {
			t.Fatalf("the pod was given the pools %v (%v), want that of one NUMA node", status.CPUSharedPools, err)
		}
		first, last := n.Shape.NodeCPUs(int(status.CPUSharedPools[0].Node))
		want := n.shares(t, later, pinned, burst)
		want[local] = want[burst].Intersect(cpuset.Span(first, last))
		n.holds(t, want)
		n.remove(t, "local")
	})
	check(t, four, "memory comes from the NUMA node of the pod's CPUs", func(t *testing.T) {
		n.create(t, n.pod("local", "LSR", "2", "64Mi", oneNode))
		memoryIsLocal(t, n, n.running(t, "local")[0])
		n.remove(t, "local")
	})
	check(t, four, "CPUs that the kubelet had pinned are everybody's when their pod has ended", func(t *testing.T) {
		n.remove(t, "pinned")
		n.takenOver(t, 0)
		n.holds(t, map[*corev1.Pod]cpuset.Set{later: allocated(t, later), burst: n.all().Minus(allocated(t, later))})
	})
}

// topologyIsTrue compares zones and distances with the shape.
func topologyIsTrue(t *testing.T, n *node) {
	t.Helper()
	zones, _, err := unstructured.NestedSlice(n.report(t).Object, "zones")
	testkit.Check(t, err)
	var got []string
	for _, zone := range zones {
		z, ok := zone.(map[string]any)
		if !ok || z["type"] != "Node" {
			continue
		}
		line := fmt.Sprint(z["name"])
		resources, _, _ := unstructured.NestedSlice(z, "resources")
		for _, resource := range resources {
			if r, ok := resource.(map[string]any); ok && r["name"] == "cpu" {
				line += fmt.Sprintf(" cpu=%v", r["capacity"])
			}
		}
		costs, _, _ := unstructured.NestedSlice(z, "costs")
		for _, cost := range costs {
			if c, ok := cost.(map[string]any); ok {
				line += fmt.Sprintf(" %v:%v", c["name"], c["value"])
			}
		}
		got = append(got, line)
	}
	slices.Sort(got)
	var want []string
	for i, row := range n.Shape.Distance {
		line := fmt.Sprintf("node-%d cpu=%d", i, n.Shape.CPUs()/n.Shape.Nodes())
		for j, distance := range row {
			line += fmt.Sprintf(" node-%d:%d", j, distance)
		}
		want = append(want, line)
	}
	if !slices.Equal(got, want) {
		t.Errorf("zones are\n%q, want\n%q", got, want)
	}
}

// report is what the agent publishes.
func (n *node) report(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	object, err := n.plane.dynamic.Resource(topologies).Get(t.Context(), n.Name, metav1.GetOptions{})
	testkit.Check(t, err)
	return object
}

// takenOver waits until phase 2 has that many pods left which the kubelet pinned.
func (n *node) takenOver(t *testing.T, remaining int32) {
	t.Helper()
	await(t, "the take-over", func() error {
		annotations := n.report(t).GetAnnotations()
		if mode := annotations[annotation.TopologyMode]; mode != "Own" {
			return fmt.Errorf("the published mode is %q, want Own", mode)
		}
		takeover, _, err := annotation.ParseTakeover(annotations[annotation.TakeoverKey])
		if err != nil {
			return err
		}
		if takeover.Phase != 2 || takeover.RemainingPods != remaining {
			return fmt.Errorf("the take-over is %v, want phase 2 with %d pods", takeover, remaining)
		}
		return nil
	})
}

// cpuState is the record of a kubelet's CPU manager.
type cpuState struct {
	Policy  string                       `json:"policyName"`
	Default string                       `json:"defaultCpuSet"`
	Entries map[string]map[string]string `json:"entries"`
}

// cpusFor returns the CPUs that the kubelet gave a pod.
func (s cpuState) cpusFor(t *testing.T, p *corev1.Pod) cpuset.Set {
	t.Helper()
	list := s.Entries[string(p.UID)]["main"]
	if list == "" {
		t.Fatalf("the kubelet has pinned nothing of pod %s: %+v", p.Name, s)
	}
	return parse(t, list)
}

func (n *node) kubeletState(t *testing.T) cpuState {
	t.Helper()
	var s cpuState
	testkit.Check(t, json.Unmarshal([]byte(script(t, n.Guest, "cat /var/lib/kubelet/cpu_manager_state")), &s))
	return s
}

// shares are the CPUs of a pod of ours, of one that the kubelet pinned before, and of one that shares the rest.
func (n *node) shares(t *testing.T, own, pinned, shared *corev1.Pod) map[*corev1.Pod]cpuset.Set {
	t.Helper()
	kept := n.kubeletState(t).cpusFor(t, pinned)
	return map[*corev1.Pod]cpuset.Set{
		own: allocated(t, own), pinned: kept,
		shared: n.all().Minus(allocated(t, own)).Minus(kept),
	}
}

// kubeletInsists starts a kubelet again that sends every running container the CPUs that it would have chosen, and goes
// on to do so whenever its shared pool changes.
func kubeletInsists(t *testing.T, n *node, own, pinned, shared *corev1.Pod) {
	t.Helper()
	before := lives(n.look(t), []*corev1.Pod{own, pinned, shared})
	n.watch(t)
	testkit.Check(t, errors.Join(n.Kill(t.Context(), "TERM", "kubelet"), n.StartKubelet(t.Context())))
	n.create(t, n.pod("other", "LSE", "2", "64Mi"))
	other := n.running(t, "other")[0]
	n.remove(t, "other")
	if got := allocated(t, other); got.Len() != 2 {
		t.Errorf("pod other was given the CPUs %v, want two", got)
	}
	n.holds(t, n.shares(t, own, pinned, shared))
	same(t, before, lives(n.look(t), []*corev1.Pod{own, pinned, shared}))
	for _, problem := range n.watched(t).Problems {
		t.Error(problem)
	}
}

// watch begins to look on in the guest.
func (n *node) watch(t *testing.T) {
	t.Helper()
	script(t, n.Guest, "rm -f /tmp/enough; setsid inside watch --root /sys/fs/cgroup/"+n.Root()+
		" --until /tmp/enough >/tmp/watched 2>&1 </dev/null & echo $! >/run/watch.pid")
}

// watched ends the watch that runs in the guest and returns what it saw.
func (n *node) watched(t *testing.T) wire.Watched {
	t.Helper()
	text := script(t, n.Guest,
		"touch /tmp/enough; while kill -0 $(cat /run/watch.pid) 2>/dev/null; do sleep 0.1; done; cat /tmp/watched")
	var w wire.Watched
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return w
}
