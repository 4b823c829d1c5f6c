package convert_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// drawPod draws a pod with any mix of init containers, sidecars, pod-level requests and overhead. Requests are always
// written, as the API server completes them.
func drawPod(t *rapid.T) *corev1.Pod {
	amount := rapid.SampledFrom([]string{"1", "2", "500m", "1500m", "0", "7"})
	options := []podOption{container(amount.Draw(t, "cpu"))}
	for i := range rapid.IntRange(0, 3).Draw(t, "containers") {
		options = append(options, container(amount.Draw(t, fmt.Sprint("cpu", i))))
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "initContainers") {
		options = append(options, initContainer(amount.Draw(t, fmt.Sprint("init", i)),
			rapid.Bool().Draw(t, fmt.Sprint("sidecar", i))))
	}
	pod := newPod(options...)
	if rapid.Bool().Draw(t, "overhead") {
		pod.Spec.Overhead = amounts("250m", "1Mi")
	}
	if rapid.Bool().Draw(t, "podLevel") {
		pod.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts(amount.Draw(t, "pod"), "")}
	}
	return pod
}

func TestMilliCPUIsWhatTheSchedulerCounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pod := drawPod(t)
		want := resource.PodRequests(pod, resource.PodResourcesOptions{})
		if got := convert.MilliCPU(pod); got != want.Cpu().MilliValue() {
			t.Fatalf("MilliCPU = %d, want %s for %+v", got, want.Cpu(), pod.Spec)
		}
	})
}

func TestTopologyThenMachineIsTheSameMachine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawMachine(t)
		again, err := convert.Machine(convert.Topology(m), m.Arch(), nil)
		if err != nil {
			t.Fatalf("machine of %v: %v", convert.Topology(m), err)
		}
		if a, b := convert.Topology(m).String(), convert.Topology(again).String(); a != b {
			t.Fatalf("topology %s became %s", a, b)
		}
		if m.FormatList(m.Online()) != again.FormatList(again.Online()) ||
			m.ThreadsPerCore() != again.ThreadsPerCore() {
			t.Fatalf("machine changed: %v, %v", m.Spec(), again.Spec())
		}
	})
}

// drawMachine draws a small machine with sparse ids, whose core ids repeat per socket.
func drawMachine(t *rapid.T) *topo.Machine {
	spec := topo.Spec{Arch: rapid.SampledFrom([]string{"amd64", "arm64"}).Draw(t, "arch")}
	stride := rapid.IntRange(1, 3).Draw(t, "stride")
	threads := rapid.IntRange(1, 2).Draw(t, "threads")
	id := 0
	for socket := range rapid.IntRange(1, 2).Draw(t, "sockets") {
		for core := range rapid.IntRange(1, 4).Draw(t, "cores") {
			for range threads {
				spec.CPUs = append(spec.CPUs, topo.CPUSpec{
					ID: id, Core: core, L3: 2*socket + core/2,
					Socket: socket * stride, NUMA: (2*socket + core/2) * stride,
				})
				id += stride
			}
		}
	}
	return grid.Build(t, spec)
}

func TestFirstCPUsTakesWholeCoresOfTheFirstSocket(t *testing.T) {
	t.Parallel()
	var spec topo.Spec
	for id := range 8 { // the kernel numbers first threads first, sockets in turn
		spec.CPUs = append(spec.CPUs, topo.CPUSpec{
			ID: id, Core: id % 4 / 2, L3: -1, Socket: id % 2,
			NUMA: id % 2,
		})
	}
	m := grid.Build(t, spec)
	for n, want := range map[int]string{0: "", 1: "0", 2: "0,4", 3: "0,2,4", 5: "0-2,4,6", 8: "0-7", 9: "0-7"} {
		if got := m.FormatList(convert.FirstCPUs(m, n)); got != want {
			t.Errorf("FirstCPUs(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestMachineKeepsDistancesAndNUMANodesWithoutCPUs(t *testing.T) {
	t.Parallel()
	nrt := newNRT(map[string]string{annotation.CPUTopology: `{"detail":[{"id":0},{"id":1,"core":1,"node":4}]}`})
	nrt.Zones = v1alpha2.ZoneList{
		{Name: "node-8", Type: "Node", Costs: v1alpha2.CostList{
			{Name: "node-0", Value: 17},
			{Name: "node-4", Value: 28},
			{Name: "node-8", Value: 10},
		}},
		{Name: "node-0", Type: "Node", Costs: v1alpha2.CostList{
			{Name: "node-0", Value: 10},
			{Name: "node-4", Value: 32},
			{Name: "node-8", Value: 17},
		}},
		{Name: "node-4", Type: "Node", Costs: v1alpha2.CostList{{Name: "node-0", Value: 32}}},
		{Name: "balloon-1", Type: "balloon"},
		{Name: "node-9", Type: "cache"},
	}
	facts, problems := convert.Facts(nil, nrt, convert.DefaultArgs())
	m := facts.Machine
	if m == nil || len(problems) != 1 || problems[0].Key != "zones[node-4].costs" {
		t.Fatalf("machine %v, problems %v; want one, of the costs that do not name every zone", m, problems)
	}
	if m.NumNUMA() != 3 || len(m.CPUNodes()) != 2 {
		t.Errorf("%d NUMA nodes, %d with CPUs; want 3 and 2", m.NumNUMA(), len(m.CPUNodes()))
	}
	if got := [...]int{
		m.Distance(0, 1), m.Distance(0, 2), m.Distance(2, 1), m.Distance(1, 0),
		m.Distance(1, 1),
	}; got != [...]int{32, 17, 28, 20, 10} {
		t.Errorf("distances = %v, want what the full rows say and 20 for the row that is not full", got)
	}
}

func TestMachineRefusesMoreNUMANodesThanCanBeAllocated(t *testing.T) {
	t.Parallel()
	var d annotation.CPUTopologyDetail
	for i := range int32(topo.MaxNodes + 1) {
		d.Detail = append(d.Detail, annotation.CPUInfo{ID: i, Core: i, Node: i})
	}
	_, err := convert.Machine(d, "amd64", nil)
	if want := "machine has 65 NUMA nodes with CPUs, at most 64 are supported"; err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
}

func FuzzFacts(f *testing.F) {
	f.Add(twoNodes, `{"policy":"static","reservedCPUs":"0-1"}`, `[{"cpuset":"1","managedByKubelet":true}]`,
		`{"reservedCPUs":"0"}`, `{"cpuset":"3"}`)
	f.Add(`{"detail":[{"id":-1}]}`, `{}`, `[]`, `{"resources":{"cpu":"1e30"}}`, `{"cpuset":"0-99999999999"}`)
	f.Add(`{"detail":[{"id":65535,"core":-7,"node":300}]}`, `{"policy":"static","reservedCPUs":"x"}`, `null`,
		`{"resources":{"cpu":"-1"}}`, ``)
	f.Fuzz(func(t *testing.T, topology, kubelet, allocs, reservation, system string) {
		nrt := newNRT(map[string]string{
			annotation.CPUTopology: topology, annotation.KubeletCPUManagerPolicy: kubelet,
			annotation.PodCPUAllocsKey: allocs, annotation.NodeReservation: reservation,
			annotation.NodeSystemQoSResource: system,
		})
		facts, _ := convert.Facts(nil, nrt, convert.DefaultArgs())
		if (facts.Machine == nil) == facts.Fault.OK() {
			t.Fatalf("machine %v with fault %v", facts.Machine, facts.Fault)
		}
		if facts.Machine == nil {
			return
		}
		online := facts.Machine.Online()
		if !facts.NodeReserved.SubsetOf(&online) || !facts.System.SubsetOf(&online) ||
			!facts.Model.Config.CPU.Reserved.SubsetOf(&online) {
			t.Fatalf("CPUs that the machine does not have: %+v", facts)
		}
	})
}

func FuzzEntry(f *testing.F) {
	f.Add("LSR", `{"cpuset":"0-3"}`, `{"preferredCPUExclusivePolicy":"PCPULevel"}`)
	f.Add("LS", `{"cpuSharedPools":[{"socket":0,"node":-1}]}`, ``)
	f.Fuzz(func(t *testing.T, qosClass, status, spec string) {
		pod := newPod(onNode, class(qosClass), container("2"), annot(annotation.ResourceStatusKey, status),
			annot(annotation.ResourceSpecKey, spec))
		entry, _ := convert.EntryUnder(convert.Args{}, pod)
		if entry.CPUList != "" && !entry.Role.Binds() {
			t.Fatalf("%+v holds CPUs without a role that binds", entry)
		}
		convert.ReadPod(pod)
		if r, reason, detail := convert.Request(pod, convert.DefaultArgs()); (r == nil) == reason.OK() ||
			(r == nil) == (detail == "") {
			t.Fatalf("request %v, reason %v, detail %q", r, reason, detail)
		}
	})
}
