package probe_test

import (
	gojson "encoding/json"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

func TestNumatopologyIsAsVolcanoReadsIt(t *testing.T) {
	t.Parallel()
	in := recorded(t)
	ours := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "lsr", UID: "o"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "x"}, {Name: "y"}}},
	}
	in.Pods = append(in.Pods, convert.ReadPod(ours))
	in.Entries = []ledger.Entry{{
		UID: "o", Namespace: "apps", Name: "lsr", Class: qos.LSR, Role: qos.ExclusiveWithBE,
		CPUList: "2,18",
	}}
	o := probe.Numatopology(in)
	if o.Name != "n0" || o.Kind != "Numatopology" || o.APIVersion != "nodeinfo.volcano.sh/v1alpha1" ||
		len(o.Annotations) > 0 ||
		len(o.OwnerReferences) != 1 || o.OwnerReferences[0].UID != "node-uid" {
		t.Errorf("metadata = %+v %+v", o.TypeMeta, o.ObjectMeta)
	}
	details := o.Spec.CPUDetail
	o.Spec.CPUDetail = nil
	want := nodeinfo.NumatopoSpec{
		Policies:    map[string]string{"CPUManagerPolicy": "static", "TopologyManagerPolicy": "single-numa-node"},
		ResReserved: map[string]string{"cpu": "0"},
		NumaResMap:  map[string]nodeinfo.ResourceInfo{"cpu": {Allocatable: "1,3,6-15,17,19-31", Capacity: 32}},
		PodAllocations: []nodeinfo.PodAllocation{
			{UID: "o", Namespace: "apps", Name: "lsr", ContainerAllocations: []nodeinfo.ContainerAllocation{
				{Name: "x", Allocations: map[string]string{"cpu": "2,18"}},
				{Name: "y", Allocations: map[string]string{"cpu": "2,18"}},
			}},
			{UID: "a", Namespace: "default", Name: "p", ContainerAllocations: []nodeinfo.ContainerAllocation{
				{Name: "main", Allocations: map[string]string{"cpu": "4-5", "memory": "2Gi", "hugepages-2Mi": "1Gi"}},
			}},
		},
	}
	if diff := cmp.Diff(want, o.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if len(details) != 32 || details["0"] != (nodeinfo.CPUInfo{}) ||
		details["20"] != (nodeinfo.CPUInfo{NUMANodeID: 1, CoreID: 4}) ||
		details["31"] != (nodeinfo.CPUInfo{NUMANodeID: 3, SocketID: 1, CoreID: 15}) {
		t.Errorf("cpuDetail = %+v", details)
	}
	text, err := gojson.Marshal(details["0"])
	if err != nil || string(text) != `{"numa":0,"socket":0,"core":0}` {
		t.Errorf("CPU 0 is written as %s, %v", text, err)
	}
}

func TestNumatopologyOfAKubeletWithoutPolicies(t *testing.T) {
	t.Parallel()
	o := probe.Numatopology(probe.Input{NodeName: "n0", Machine: seedMachine(t), Mode: ownMode})
	text, err := gojson.Marshal(o.Spec.Policies)
	if err != nil || string(text) != `{"CPUManagerPolicy":"none","TopologyManagerPolicy":"none"}` {
		t.Errorf("policies = %s, %v: none is a word, never empty", text, err)
	}
	if cpu := o.Spec.NumaResMap["cpu"]; cpu.Allocatable != "0-31" || cpu.Capacity != 32 ||
		o.Spec.PodAllocations == nil {
		t.Errorf("cpu = %+v, podAllocations %v", cpu, o.Spec.PodAllocations)
	}
	if o := probe.Numatopology(probe.Input{NodeName: "n0", Machine: seedMachine(t), Mode: blindMode}); o != nil {
		t.Errorf("published while the kubelet is not asked: %+v", o.Spec)
	}
}

// Free CPUs, those of pods and reserved ones never overlap, every CPU has a place, and core ids are dense and unique.
func TestNumatopologyNeverOffersACPUTwice(t *testing.T) {
	t.Parallel()
	m := seedMachine(t)
	rapid.Check(t, func(t *rapid.T) {
		perm := rapid.Permutation(m.All().Slice()).Draw(t, "cpus")
		take := func(label string) []int {
			n := rapid.IntRange(1, 4).Draw(t, label)
			ids := perm[:n]
			perm = perm[n:]
			return ids
		}
		list := func(ids []int) string { return cpuset.FormatIDs(sorted(ids)) }
		in := probe.Input{
			NodeName: "n0", Node: node(nil), Machine: m,
			Mode: rapid.SampledFrom([]annotation.Mode{ownMode, followMode}).Draw(t, "mode"),
		}
		in.Kubelet.CPU.Policy, in.Kubelet.CPU.Reserved = "static", list(take("reserved"))
		in.Node.Annotations = map[string]string{annotation.NodeReservation: `{"reservedCPUs":"` + list(take("node")) +
			`"}`}
		taken, _ := cpuset.ParseIDs(in.Kubelet.CPU.Reserved)
		held := list(take("pod"))
		in.Entries = []ledger.Entry{{UID: "o", Role: qos.Exclusive, Class: qos.LSE, CPUList: held}}
		in.Pods = []*convert.Pod{convert.ReadPod(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: "o"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
		})}
		pinned := list(take("pin"))
		in.Pins = []annotation.PodCPUAlloc{{UID: "k", CPUSet: pinned, ManagedByKubelet: true}}
		if rapid.Bool().Draw(t, "the pinned pod has a label") {
			in.Entries = append(in.Entries, ledger.Entry{UID: "k", Role: qos.SharedPool, Class: qos.LS})
		}
		o := probe.Numatopology(in)
		free, err := cpuset.ParseIDs(o.Spec.NumaResMap["cpu"].Allocatable)
		testkit.Check(t, err)
		for _, other := range []string{held, pinned} {
			ids, _ := cpuset.ParseIDs(other)
			taken = append(taken, ids...)
		}
		isTaken := map[int]bool{}
		for _, id := range taken {
			isTaken[id] = true
		}
		for _, id := range free {
			if isTaken[id] {
				t.Fatalf("CPU %d is free and taken: %+v", id, o.Spec)
			}
		}
		cores := map[int64]int64{}
		for id := range 32 {
			c, ok := o.Spec.CPUDetail[strconv.Itoa(id)]
			if socket, again := cores[c.CoreID]; !ok || again && socket != c.SocketID || c.CoreID > 15 {
				t.Fatalf("CPU %d: %+v of cores %v", id, c, cores)
			}
			cores[c.CoreID] = c.SocketID
		}
	})
}

func sorted(ids []int) []int {
	out := slices.Clone(ids)
	slices.Sort(out)
	return out
}
