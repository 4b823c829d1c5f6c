package host_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/testkit"
)

// memoryState is a kubelet with a group of two NUMA nodes and one that serves alone.
const memoryState = `{"policyName":"Static","machineState":{
 "0":{"numberOfAssignments":2,"memoryMap":{
   "memory":{"total":4096,"systemReserved":1024,"allocatable":3072,"reserved":3072,"free":0},
   "hugepages-2Mi":{"total":64,"systemReserved":0,"allocatable":64,"reserved":32,"free":32}},"cells":[0,8]},
 "8":{"numberOfAssignments":2,"memoryMap":{"memory":{"total":4096,"systemReserved":0,"allocatable":4096,"reserved":1024,"free":3072}},"cells":[8,0]},
 "9":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":0,"systemReserved":0,"allocatable":0,"reserved":0,"free":0}},"cells":[9]}},
 "entries":{"u1":{"a":[{"numaAffinity":[8,0],"type":"memory","size":4096},{"numaAffinity":[0],"type":"hugepages-2Mi","size":32}]}},
 "checksum":1234567890}`

func TestKubeletMemoryState(t *testing.T) {
	t.Parallel()
	const file = "var/lib/kubelet/memory_manager_state"
	zones := map[int]host.MemoryZone{
		0: {Assignments: 2, Group: []int{0, 8}, Types: map[string]host.MemoryAmount{
			"memory":        {Total: 4096, SystemReserved: 1024, Allocatable: 3072, Reserved: 3072},
			"hugepages-2Mi": {Total: 64, Allocatable: 64, Reserved: 32, Free: 32},
		}},
		8: {Assignments: 2, Group: []int{0, 8}, Types: map[string]host.MemoryAmount{
			"memory": {Total: 4096, Allocatable: 4096, Reserved: 1024, Free: 3072},
		}},
		9: {Group: []int{9}, Types: map[string]host.MemoryAmount{"memory": {}}},
	}
	blocks := []host.MemoryBlock{
		{NUMAIDs: []int{0, 8}, Type: "memory", Bytes: 4096},
		{NUMAIDs: []int{0}, Type: "hugepages-2Mi", Bytes: 32},
	}
	tests := map[string]struct {
		text string
		want host.MemoryState
		bad  string
	}{
		"version 1": {
			text: memoryState,
			want: host.MemoryState{
				Policy: "Static", Zones: zones,
				Pods: map[string]map[string][]host.MemoryBlock{"u1": {"a": blocks}},
			},
		},
		"version 2 counts the blocks of the pod, not only of its containers": {
			text: strings.Replace(memoryState, `"checksum"`,
				`"podEntries":{"u1":{"memoryBlocks":[{"numaAffinity":[0],"type":"memory","size":5}]}},"checksum"`, 1),
			want: host.MemoryState{Policy: "Static", Zones: zones, Pods: map[string]map[string][]host.MemoryBlock{
				"u1": {host.WholePod: {{NUMAIDs: []int{0}, Type: "memory", Bytes: 5}}},
			}},
		},
		"policy None": {
			text: `{"policyName":"None","machineState":{},"checksum":1}`,
			want: host.MemoryState{
				Policy: "None", Zones: map[int]host.MemoryZone{},
				Pods: map[string]map[string][]host.MemoryBlock{},
			},
		},
		"torn":      {text: memoryState[:200], bad: file},
		"no policy": {text: `{}`, bad: "has no policyName"},
		"a node that is not a number": {
			text: `{"policyName":"Static","machineState":{"a":{}}}`,
			bad:  `machineState["a"]`,
		},
		"a negative node": {
			text: `{"policyName":"Static","machineState":{"-1":{}}}`,
			bad:  `machineState["-1"]`,
		},
		"a group without its own node": {
			text: strings.Replace(memoryState, `"cells":[9]`, `"cells":[8]`, 1),
			bad:  "machineState[9]: cells [8] do not have the node itself",
		},
		"a group with an unknown node": {
			text: strings.Replace(memoryState, `"cells":[9]`, `"cells":[9,10]`, 1),
			bad:  "machineState[9]: cells name NUMA node 10",
		},
		"more free than allocatable": {
			text: strings.Replace(memoryState, `"free":3072`, `"free":5000`, 1),
			bad:  `machineState[8].memoryMap["memory"]: want 0 ≤ free ≤ allocatable ≤ total`,
		},
		"negative assignments": {
			text: strings.Replace(memoryState, `"numberOfAssignments":0`, `"numberOfAssignments":-1`, 1),
			bad:  "numberOfAssignments is -1",
		},
		"a block on an unknown node": {
			text: strings.Replace(memoryState, `[8,0],"type"`, `[8,1],"type"`, 1),
			bad:  `entries["u1"]["a"]: a block names NUMA node 1`,
		},
		"a block on no node": {
			text: strings.Replace(memoryState, `[8,0],"type"`, `[],"type"`, 1),
			bad:  `entries["u1"]["a"]: a block of 4096 bytes of type "memory" on NUMA nodes []`,
		},
		"an amount that no machine has": {text: strings.Replace(memoryState, `"total":64`,
			`"total":99999999999999999999`, 1), bad: "memory_manager_state"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := host.ReadMemoryState(write(t, map[string]string{file: test.text}))
			if test.bad != "" {
				if err == nil || !strings.Contains(err.Error(), test.bad) {
					t.Errorf("error = %v, want one that says %q", err, test.bad)
				}
				return
			}
			testkit.Check(t, err)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	if got, err := host.ReadMemoryState(write(t, nil)); err != nil || got.Policy != "" {
		t.Errorf("without a file: %+v, %v, want nothing", got, err)
	}
}

func TestKubeletDeviceState(t *testing.T) {
	t.Parallel()
	const file = "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
	tests := map[string]struct {
		text string
		want host.DeviceState
		bad  string
	}{
		"ids by NUMA node": {
			text: `{"Data":{"PodDeviceEntries":[
				{"PodUID":"u1","ContainerName":"a","ResourceName":"x/gpu","DeviceIDs":{"1":["g1","wide"],"0":["wide"],"-1":["lost"]},"AllocResp":"Cg=="}],
				"RegisteredDevices":{"x/gpu":["wide","g1","lost","g0"]}},"Checksum":1}`,
			want: host.DeviceState{
				Registered: map[string][]string{"x/gpu": {"g0", "g1", "lost", "wide"}},
				Pods: map[string]map[string]map[string][]host.Device{"u1": {"a": {"x/gpu": {
					{Resource: "x/gpu", ID: "g1", NUMAIDs: []int{1}},
					{Resource: "x/gpu", ID: "lost"},
					{Resource: "x/gpu", ID: "wide", NUMAIDs: []int{0, 1}},
				}}}},
			},
		},
		"a plain list, as before 1.20": {
			text: `{"Data":{"PodDeviceEntries":[{"PodUID":"u1","ContainerName":"a","ResourceName":"x/gpu",` +
				`"DeviceIDs":["g1","g0"]}],"RegisteredDevices":{"x/gpu":["g0"]}}}`,
			want: host.DeviceState{
				Registered: map[string][]string{"x/gpu": {"g0"}},
				Pods: map[string]map[string]map[string][]host.Device{"u1": {"a": {"x/gpu": {
					{Resource: "x/gpu", ID: "g0"}, {Resource: "x/gpu", ID: "g1"},
				}}}},
			},
		},
		"a list of numbers": {
			text: `{"Data":{"PodDeviceEntries":[{"PodUID":"u1","ContainerName":"a","ResourceName":"x/gpu",` +
				`"DeviceIDs":[0]}]}}`,
			bad: "cannot unmarshal number",
		},
		"nothing registered": {
			text: `{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}`,
			want: host.DeviceState{
				Registered: map[string][]string{},
				Pods:       map[string]map[string]map[string][]host.Device{},
			},
		},
		"torn":    {text: `{"Data":{"PodDevice`, bad: file},
		"no data": {text: `{}`, bad: "has no Data"},
		"an entry without a pod": {
			text: `{"Data":{"PodDeviceEntries":[{"ContainerName":"a","ResourceName":"x/gpu","DeviceIDs":{}}]}}`,
			bad:  "PodDeviceEntries[0]: want PodUID",
		},
		"a node that is none": {
			text: `{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"a","ResourceName":"x/gpu",` +
				`"DeviceIDs":{"-2":["g"]}}]}}`, bad: "DeviceIDs[-2]",
		},
		"one device, two pods": {
			text: `{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"a","ResourceName":"x/gpu","DeviceIDs":{"0":["g"]}},
				{"PodUID":"v","ContainerName":"a","ResourceName":"x/gpu","DeviceIDs":{"0":["g"]}}]}}`,
			bad: `device "g" of x/gpu is given to the pods u and v`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := host.ReadDeviceState(write(t, map[string]string{file: test.text}))
			if test.bad != "" {
				if err == nil || !strings.Contains(err.Error(), test.bad) {
					t.Errorf("error = %v, want one that says %q", err, test.bad)
				}
				return
			}
			testkit.Check(t, err)
			if got.Doubt == "" {
				t.Error("a wrong checksum raises no doubt")
			}
			if got.Doubt = ""; !cmp.Equal(test.want, got) {
				t.Errorf("-want +got:\n%s", cmp.Diff(test.want, got))
			}
		})
	}
	if got, err := host.ReadDeviceState(write(t, nil)); err != nil || got.Registered != nil {
		t.Errorf("without a file: %+v, %v, want nothing", got, err)
	}
}
