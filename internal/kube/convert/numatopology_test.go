package convert_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// exported is a machine as Volcano's exporter writes it: 2 sockets of 4 cores with 2 threads, CPU c and c+8 on one
// core, core_id from 0 on each socket, and numbers that are 0 left out.
func exported(tb testing.TB, change func(*nodeinfo.NumatopoSpec)) *nodeinfo.Numatopology {
	tb.Helper()
	cpus := []string{}
	for c := range 16 {
		var fields []string
		if socket := c % 8 / 4; socket > 0 {
			fields = append(fields, `"numa":1`, `"socket":1`)
		}
		if core := c % 4; core > 0 {
			fields = append(fields, `"core":`+strconv.Itoa(core))
		}
		cpus = append(cpus, strconv.Quote(strconv.Itoa(c))+":{"+strings.Join(fields, ",")+"}")
	}
	text := `{"metadata":{"name":"n"},"spec":{"policies":{"CPUManagerPolicy":"static",` +
		`"TopologyManagerPolicy":"restricted"},` +
		`"resReserved":{"cpu":"1500m","memory":"500Mi"},"numares":{"cpu":{"allocatable":"0-3,5,8-11,13-15",` +
		`"capacity":16}},"cpuDetail":{` + strings.Join(cpus, ",") + `},` +
		`"podAllocations":[{"uid":"a","containerAllocations":[{"name":"c","allocations":{"cpu":"4,12"}}]},` +
		`{"namespace":"ns","name":"b","containerAllocations":[{"name":"c","allocations":{"cpu":"6"}}]}]}}`
	out := &nodeinfo.Numatopology{}
	if err := json.Unmarshal([]byte(text), out); err != nil {
		tb.Fatalf("%v in %s", err, text)
	}
	if change != nil {
		change(&out.Spec)
	}
	return out
}

func TestImportedFacts(t *testing.T) {
	t.Parallel()
	type read struct {
		Mode                ledger.Mode
		Static, Assumed     bool
		Topology            hint.Policy
		Scope               string
		Release             string
		Reserved, Unclaimed string
		Pins                []tenancy.Grant
		Problems            []string
	}
	set := func(f *ledger.Facts, list string) (out tenancy.Grant) {
		out.CPUs, _, _ = f.Machine.ParseList(list)
		return out
	}
	for name, c := range map[string]struct {
		change  func(*nodeinfo.NumatopoSpec)
		version string
		nrt     *v1alpha2.NodeResourceTopology
		want    read
		pins    map[string]string // by UID, or name
	}{
		"an exporter's object": {
			version: versioned, pins: map[string]string{"a": "4,12", "b": "6"},
			want: read{
				Mode: ledger.Follow, Static: true, Assumed: true, Topology: hint.Restricted,
				Scope: "container", Release: "1.36", Reserved: "0,8", Unclaimed: "7",
			},
		},
		"the kubelet's version decides its model": {
			version: "v1.34.1", pins: map[string]string{"a": "4,12", "b": "6"},
			want: read{
				Mode: ledger.Follow, Static: true, Assumed: true, Topology: hint.Restricted,
				Scope: "container", Release: "1.34", Reserved: "0,8", Unclaimed: "7",
			},
		},
		"an old exporter exports no pods": {
			change: func(s *nodeinfo.NumatopoSpec) { s.PodAllocations = nil },
			want: read{
				Mode: ledger.Follow, Static: true, Assumed: true, Topology: hint.Restricted,
				Scope: "container", Release: "1.36", Reserved: "0,8", Unclaimed: "4,6-7,12",
			},
		},
		"without an amount the CPUs that are not allocated are reserved": {
			change: func(s *nodeinfo.NumatopoSpec) { s.ResReserved = map[string]string{"cpu": "0"} },
			pins:   map[string]string{"a": "4,12", "b": "6"},
			want: read{
				Mode: ledger.Follow, Static: true, Assumed: true, Topology: hint.Restricted,
				Scope: "container", Release: "1.36", Reserved: "7",
			},
		},
		"a kubelet that pins nothing": {
			change: func(s *nodeinfo.NumatopoSpec) { s.Policies = map[string]string{"CPUManagerPolicy": "none"} },
			want:   read{Mode: ledger.Blind},
		},
		"CPUs are free if free CPUs are not exported": {
			change: func(s *nodeinfo.NumatopoSpec) { s.NumaResMap, s.PodAllocations = nil, nil },
			want: read{
				Mode: ledger.Follow, Static: true, Assumed: true, Topology: hint.Restricted,
				Scope: "container", Release: "1.36", Reserved: "0,8",
			},
		},
		"no CPU is free": {
			change: func(s *nodeinfo.NumatopoSpec) {
				s.NumaResMap["cpu"], s.PodAllocations = nodeinfo.ResourceInfo{Capacity: 16}, nil
			},
			want: read{
				Mode: ledger.Follow, Static: true, Assumed: true, Topology: hint.Restricted,
				Scope: "container", Release: "1.36", Reserved: "0,8", Unclaimed: "1-7,9-15",
			},
		},
		"another exporter's NodeResourceTopology has the scope": {
			nrt: &v1alpha2.NodeResourceTopology{
				ObjectMeta: metav1.ObjectMeta{Name: "n"},
				Attributes: []v1alpha2.AttributeInfo{
					{Name: "topologyManagerPolicy", Value: "single-numa-node"},
					{Name: "topologyManagerScope", Value: "pod"},
				},
			},
			pins: map[string]string{"a": "4,12", "b": "6"},
			want: read{
				Mode: ledger.Follow, Static: true, Assumed: true, Topology: hint.SingleNUMANode, Scope: "pod",
				Release: "1.36", Reserved: "0,8", Unclaimed: "7",
			},
		},
		"invalid fields are left out and reported": {
			change: func(s *nodeinfo.NumatopoSpec) {
				s.Policies["TopologyManagerPolicy"], s.ResReserved["cpu"] = "strict", "lots"
				s.NumaResMap["cpu"] = nodeinfo.ResourceInfo{Allocatable: "0-3,5-15,99", Capacity: 16}
				s.PodAllocations = []nodeinfo.PodAllocation{
					{ContainerAllocations: []nodeinfo.ContainerAllocation{{
						Name:        "c",
						Allocations: map[string]string{"cpu": "4"},
					}}},
					{UID: "u", ContainerAllocations: []nodeinfo.ContainerAllocation{{
						Name:        "c",
						Allocations: map[string]string{"cpu": "4-x"},
					}}},
				}
			},
			want: read{
				Mode: ledger.Follow, Static: true, Assumed: true, Release: "1.36", Scope: "container", Unclaimed: "4",
				Problems: []string{
					"spec.resReserved[cpu]", "spec.numares[cpu].allocatable", "spec.podAllocations[0]",
					"spec.podAllocations[1].containerAllocations[c]",
					"spec.policies[TopologyManagerPolicy]",
				},
			},
		},
		"more is reserved than there is": {
			change: func(s *nodeinfo.NumatopoSpec) { s.ResReserved["cpu"], s.PodAllocations = "17", nil },
			want: read{
				Mode: ledger.Follow, Static: true, Assumed: true, Topology: hint.Restricted, Scope: "container",
				Release: "1.36", Unclaimed: "4,6-7,12",
				Problems: []string{"spec.resReserved[cpu]"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := convert.Sources{Node: nodeOf(c.version), Topology: c.nrt, Numatopology: exported(t, c.change)}
			f, problems := new(convert.Known).Read(s, convert.DefaultArgs())
			if f.Machine == nil || !f.Imported {
				t.Fatalf("no machine, or not imported: %s, %v", f.Fault.Code, problems)
			}
			if n := f.Machine.NumCores(); n != 8 || f.Machine.NumNUMA() != 2 {
				t.Errorf("%d cores and %d NUMA nodes, want 8 and 2: core ids repeat on each socket", n,
					f.Machine.NumNUMA())
			}
			got := read{
				Mode: f.Mode, Static: f.Model.Config.CPU.Static,
				Assumed: len(f.Model.Assumed) > 0, Topology: f.Topology,
				Release:   f.Model.Release(),
				Reserved:  f.Machine.FormatList(f.Model.Config.CPU.Reserved),
				Unclaimed: f.Machine.FormatList(tenancy.UnattributedCPUs(f.Given)),
			}
			for _, g := range f.Given {
				if g.UID+g.Name != "" {
					got.Pins = append(got.Pins, g)
				}
			}
			if f.Model.Node != nil {
				if got.Scope = annotation.TopologyScopeContainer; f.Model.Config.Topology.PodScope {
					got.Scope = annotation.TopologyScopePod
				}
			}
			for _, p := range problems {
				if p.Object != "Numatopology/n" || p.Text == "" {
					t.Errorf("problem %+v names no Numatopology, or says nothing", p)
				}
				got.Problems = append(got.Problems, p.Key)
			}
			if list, ok := c.pins["a"]; ok {
				c.want.Pins = append(c.want.Pins, tenancy.Grant{UID: "a", CPUs: set(&f, list).CPUs})
			}
			if list, ok := c.pins["b"]; ok {
				c.want.Pins = append(c.want.Pins, tenancy.Grant{Namespace: "ns", Name: "b", CPUs: set(&f, list).CPUs})
			}
			if diff := cmp.Diff(c.want, got, cmp.Comparer(tenancy.Grant.Equal)); diff != "" {
				t.Errorf("facts (-want +got):\n%s\n%v", diff, problems)
			}
			var known convert.Known
			if again, _ := known.Read(s, convert.DefaultArgs()); !again.Equal(&f) {
				t.Error("facts that are remembered differ")
			}
		})
	}
}

// TestImportedReservationIsTheKubelets: with an amount alone the ids are those that a kubelet takes.
func TestImportedReservationIsTheKubelets(t *testing.T) {
	t.Parallel()
	model, _ := kubelet.ModelOf(versioned)
	for amount, milli := range map[string]int64{"1": 1000, "1500m": 1500, "3": 3000, "8": 8000, "16": 16000} {
		n := exported(t, func(s *nodeinfo.NumatopoSpec) { s.ResReserved["cpu"], s.PodAllocations = amount, nil })
		sources := convert.Sources{Node: nodeOf(versioned), Numatopology: n}
		f, _ := new(convert.Known).Read(sources, convert.DefaultArgs())
		want, ok := kubelet.ReservedCPUs(f.Machine, kubelet.Config{Model: model, CPU: kubelet.CPU{Static: true}}, milli)
		if !ok || f.Model.Config.CPU.Reserved != want {
			t.Errorf("with %s the reserved CPUs are %s, want %s", amount,
				f.Machine.FormatList(f.Model.Config.CPU.Reserved),
				f.Machine.FormatList(want))
		}
	}
}

func TestMalformedNumatopologiesAreNotBelieved(t *testing.T) {
	t.Parallel()
	cpu := func(id string, c nodeinfo.CPUInfo) func(*nodeinfo.NumatopoSpec) {
		return func(s *nodeinfo.NumatopoSpec) { s.CPUDetail[id] = c }
	}
	for name, c := range map[string]struct {
		change func(*nodeinfo.NumatopoSpec)
		key    string
		text   string
	}{
		"no CPUs": {
			func(s *nodeinfo.NumatopoSpec) { s.CPUDetail = nil }, "spec.cpuDetail",
			"no CPU can be parsed",
		},
		"nothing at all": {
			func(s *nodeinfo.NumatopoSpec) { *s = nodeinfo.NumatopoSpec{} },
			"spec.cpuDetail", "no CPU can be parsed",
		},
		"a CPU without number": {
			cpu("x", nodeinfo.CPUInfo{}), "spec.cpuDetail",
			`"x": want the number of a CPU`,
		},
		"a negative CPU": {
			cpu("-1", nodeinfo.CPUInfo{}), "spec.cpuDetail",
			`"-1": want the number of a CPU`,
		},
		"a CPU twice":              {cpu("01", nodeinfo.CPUInfo{CoreID: 1}), "spec.cpuDetail", "1"},
		"a negative NUMA node":     {cpu("1", nodeinfo.CPUInfo{NUMANodeID: -1}), "spec.cpuDetail", "1.numa: -1"},
		"a core beyond all bounds": {cpu("1", nodeinfo.CPUInfo{CoreID: 1 << 40}), "spec.cpuDetail", "1.core"},
		"a core on two NUMA nodes": {
			cpu("1", nodeinfo.CPUInfo{CoreID: 1, NUMANodeID: 1}), "spec.cpuDetail",
			"core",
		},
		"free CPUs that are no CPU set": {func(s *nodeinfo.NumatopoSpec) {
			s.NumaResMap["cpu"] = nodeinfo.ResourceInfo{Allocatable: "0-"}
		}, "spec.numares[cpu].allocatable", `0-`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, problems := new(convert.Known).Read(convert.Sources{
				Node:         nodeOf(versioned),
				Numatopology: exported(t, c.change),
			}, convert.DefaultArgs())
			if f.Machine != nil || f.Fault.Code != why.InvalidTopology {
				t.Errorf("machine %v, fault %s; want none and %s", f.Machine, f.Fault.Code, why.InvalidTopology)
			}
			if len(problems) != 1 || problems[0].Key != c.key || problems[0].Kind != convert.BadTopology ||
				!strings.Contains(problems[0].Text, c.text) {
				t.Errorf("problems %v, want one of %s with %q", problems, c.key, c.text)
			}
		})
	}
}

func TestNumatopologyCountsOnlyWithoutACPUTopology(t *testing.T) {
	t.Parallel()
	nrt := nrtOf(pairOf(t, 1), nil)
	alone, _ := convert.Facts(nodeOf(versioned), nrt, convert.DefaultArgs())
	both, problems := new(convert.Known).Read(convert.Sources{
		Node: nodeOf(versioned), Topology: nrt,
		Numatopology: exported(t, nil),
	}, convert.DefaultArgs())
	if both.Imported || !both.Equal(&alone) || len(problems) > 0 {
		t.Errorf("an exporter changes what the agent reports: %v", problems)
	}
	nrt.Annotations[annotation.CPUTopology] = "{"
	sources := convert.Sources{Topology: nrt, Numatopology: exported(t, nil)}
	broken, _ := new(convert.Known).Read(sources, convert.DefaultArgs())
	if broken.Machine != nil || broken.Fault.Code != why.InvalidTopology {
		t.Errorf("an exporter stands in for an agent whose report is broken: %+v", broken.Fault)
	}
}

// FuzzImportedFacts: whatever an exporter writes, facts can be read, a machine is there or a fault says why, and CPUs
// are only those of the machine.
func FuzzImportedFacts(f *testing.F) {
	for _, change := range []func(*nodeinfo.NumatopoSpec){
		nil,
		func(s *nodeinfo.NumatopoSpec) { s.PodAllocations = nil },
		func(s *nodeinfo.NumatopoSpec) { s.CPUDetail = nil },
	} {
		text, err := json.Marshal(exported(f, change))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		n := &nodeinfo.Numatopology{}
		if json.Unmarshal(text, n) != nil {
			return
		}
		facts, problems := new(convert.Known).Read(convert.Sources{Numatopology: n}, convert.DefaultArgs())
		if facts.Machine == nil {
			if facts.Fault.Code != why.InvalidTopology || len(problems) == 0 {
				t.Fatalf("no machine, fault %s, problems %v", facts.Fault.Code, problems)
			}
			return
		}
		all := facts.Model.Config.CPU.Reserved
		for _, p := range facts.Given {
			all.Include(&p.CPUs)
		}
		if offline := all.Minus(facts.Machine.Online()); !offline.IsEmpty() {
			t.Fatalf("CPUs %v are not on the machine", offline)
		}
		ledger.New(facts)
	})
}
