package place_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// machine is a regular machine.
func machine(tb testing.TB, sockets, nodes, cores, threads int, offline ...int) *topo.Machine {
	tb.Helper()
	return grid.Build(tb, spec(sockets, nodes, cores, threads, offline...))
}

func spec(sockets, nodes, cores, threads int, offline ...int) topo.Spec {
	return grid.Machine{Sockets: sockets, Nodes: nodes, Cores: cores, Threads: threads, Offline: offline}.Spec()
}

func worked(tb testing.TB) *topo.Machine {
	tb.Helper()
	return grid.Worked().Build(tb)
}

func drawView(t *rapid.T) *ledger.View {
	threads := rapid.SampledFrom([]int{1, 2, 2, 4}).Draw(t, "threads")
	s := spec(rapid.IntRange(1, 2).Draw(t, "sockets"), rapid.IntRange(1, 3).Draw(t, "NUMA nodes per socket"),
		rapid.IntRange(1, 4).Draw(t, "cores per NUMA node"), threads,
		rapid.SliceOfN(rapid.IntRange(1, 40), 0, 3).Draw(t, "offline")...)
	return drawViewOf(t, s)
}

// drawDistances gives a machine distances of its own, not the same both ways, at times.
func drawDistances(t *rapid.T, s *topo.Spec) {
	nodes := 0
	for _, c := range s.CPUs {
		nodes = max(nodes, c.NUMA+1)
	}
	if !rapid.Bool().Draw(t, "has distances") {
		return
	}
	for i := range nodes {
		row := rapid.SliceOfN(rapid.SampledFrom([]int{11, 12, 20, 32}), nodes, nodes).Draw(t, "distances")
		row[i] = 10
		s.NUMA = append(s.NUMA, topo.NUMASpec{ID: i, Distances: row})
	}
}

const mib = 1 << 20

// drawMemory draws amounts on the NUMA nodes of m: ordinary memory, hugepages of one size, both or nothing.
func drawMemory(t *rapid.T, m *topo.Machine, most int) []align.Amount {
	var list []align.Amount
	kinds := rapid.SampledFrom([][]why.Resource{nil, {"memory"}, {"memory"}, {"memory", "hugepages-2Mi"}}).Draw(t,
		"types of memory")
	for _, kind := range kinds {
		for n := range m.NumNUMA() {
			bytes := int64(rapid.IntRange(0, most).Draw(t, string(kind))) * mib
			if kind == "memory" {
				bytes += rapid.SampledFrom([]int64{0, 0, 1, mib - 1}).Draw(t, "odd bytes")
			}
			if bytes > 0 {
				list = append(list, align.Amount{NUMAID: n, Resource: kind, N: bytes})
			}
		}
	}
	return list
}

func drawViewOf(t *rapid.T, s topo.Spec) *ledger.View {
	drawDistances(t, &s)
	m := grid.Build(t, s)
	f := ledger.Facts{
		Machine:       m,
		ARM64:         rapid.SampledFrom([]bool{false, false, true}).Draw(t, "arm64"),
		Bind:          rapid.SampledFrom([]ledger.NodeBind{0, 0, 1, 2, 3}).Draw(t, "node bind"),
		Strategy:      rapid.SampledFrom([]cpualloc.Strategy{0, 1, 2}).Draw(t, "strategy"),
		Topology:      rapid.SampledFrom([]hint.Policy{0, 0, 1, 2, 2, 3}).Draw(t, "node policy"),
		MinSharedCPUs: rapid.IntRange(-1, 3).Draw(t, "min shared"),
		Model: kubelet.Facts{Config: kubelet.Config{CPU: kubelet.CPU{
			Static: rapid.Bool().Draw(t, "static"), FullPCPUsOnly: rapid.Bool().Draw(t, "full-pcpus-only"),
			AlignL3: rapid.Bool().Draw(t, "align L3"), Reserved: drawSet(t, m, "kubelet reserved", 2),
			StrictReservation: rapid.SampledFrom([]bool{false, false, true}).Draw(t, "strict reservation"),
		}}},
	}
	if rapid.Bool().Draw(t, "reserves") {
		f.NodeReserved, f.System = drawSet(t, m, "node reserved", 2), drawSet(t, m, "system", 1)
	}
	if rapid.SampledFrom([]bool{false, false, true}).Draw(t, "isolates") {
		f.Isolated, f.NoTick = drawSet(t, m, "isolated", 6), drawSet(t, m, "no tick", 4)
	}
	count(t, &f)
	f.Amounts = drawMemory(t, m, 20)
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "pins") {
		uid := rapid.SampledFrom([]string{"kubelet-0", "pod-0", "pod-1"}).Draw(t, "pinned pod")
		f.Given = append(f.Given, tenancy.Grant{UID: uid, CPUs: drawSet(t, m, "pin", 2)})
	}
	var entries []ledger.Entry
	var taken cpuset.Set
	for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
		uid := fmt.Sprint("pod-", i)
		if rapid.Bool().Draw(t, "exclusive") {
			cpus := drawSet(t, m, "cpus", 4).Minus(taken)
			taken = taken.Union(cpus)
			entries = append(entries, ledger.Entry{
				UID: uid, Class: qos.LSR, Role: qos.ExclusiveWithBE, CPUList: m.FormatList(cpus),
				Exclusive: rapid.SampledFrom([]cpualloc.Exclusive{0, 1, 2}).Draw(t, "exclusive policy"),
			})
			continue
		}
		entries = append(entries, ledger.Entry{
			UID: uid, Class: qos.LS, Role: qos.SharedPool,
			NUMAIDs:  rapid.SliceOfN(rapid.IntRange(0, m.NumNUMA()-1), 0, 2).Draw(t, "NUMA"),
			MilliCPU: int64(rapid.IntRange(0, 4000).Draw(t, "milli")),
		})
		if cpus := rapid.IntRange(0, 2).Draw(t, "kubelet CPUs"); cpus > 0 {
			entries[len(entries)-1].Guest = &tenancy.Guest{Pod: guestOf(uid, cpus, 0)}
		}
	}
	for i := range entries {
		if rapid.Bool().Draw(t, "holds memory") {
			entries[i].Amounts = drawMemory(t, m, 8)
		}
	}
	return ledger.New(f, entries...).View()
}

func drawSet(t *rapid.T, m *topo.Machine, label string, most int) cpuset.Set {
	var s cpuset.Set
	for _, c := range rapid.SliceOfN(rapid.IntRange(0, m.NumCPUs()-1), 0, most).Draw(t, label) {
		s.Add(c)
	}
	return s
}

func drawRequest(t *rapid.T) *place.Request {
	r := &place.Request{
		UID: "new", Namespace: "ns", Name: "new",
		Topology: rapid.SampledFrom([]hint.Policy{0, 0, 0, 1, 2, 3}).Draw(t, "policy"),
		Default:  rapid.SampledFrom([]cpualloc.Bind{0, 1}).Draw(t, "default"),
	}
	r.NUMAExclusive = rapid.SampledFrom([]place.NUMAExclusive{0, 0, 1, 2, 2}).Draw(t, "NUMA exclusive")
	r.Needs = rapid.SampledFrom([][]align.Need{
		nil, nil,
		{{Resource: "memory", N: 1}},
		{{Resource: "memory", N: 10 * mib}},
		{{Resource: "memory", N: 25*mib + 1}},
		{{Resource: "hugepages-2Mi", N: 8 * mib}},
		{{Resource: "hugepages-1Gi", N: 1 << 30}},
		{{Resource: "memory", N: 20 * mib}, {Resource: "hugepages-2Mi", N: 4 * mib}},
		{{Resource: "memory", N: 5 * mib}, {Resource: "hugepages-2Mi", N: 24 * mib}},
	}).Draw(t, "memory asked")
	if rapid.Bool().Draw(t, "guaranteed") {
		containers(rapid.SliceOfN(rapid.IntRange(1, 4), 1, 2).Draw(t, "containers")...)(r)
		if rapid.Bool().Draw(t, "init container") { // its CPUs are used again
			r.Kubelet.Containers[0].Role = kubelet.Init
		}
	}
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0, 1:
		r.Class, r.Role = qos.LSR, qos.ExclusiveWithBE
		r.CPUs = rapid.IntRange(1, 10).Draw(t, "CPUs")
		r.Required = rapid.SampledFrom([]place.BindWish{0, 0, 1, 2}).Draw(t, "required")
		r.Preferred = rapid.SampledFrom([]place.BindWish{0, 1, 2}).Draw(t, "preferred")
		r.Exclusive = rapid.SampledFrom([]cpualloc.Exclusive{0, 1, 2}).Draw(t, "exclusive")
		r.Isolated = rapid.SampledFrom([]place.Isolation{0, 0, 1, 1, 2}).Draw(t, "isolated")
	case 2:
		r.Class, r.Role = qos.LS, qos.SharedPool
		r.RequestMilli = int64(rapid.IntRange(0, 9000).Draw(t, "request"))
		r.ConstrainedBurst = rapid.Bool().Draw(t, "burst")
		if rapid.Bool().Draw(t, "whole") {
			r.RequestMilli = (r.RequestMilli + 999) / 1000 * 1000
		}
		r.LimitMilli = r.RequestMilli + int64(rapid.IntRange(0, 5000).Draw(t, "burst room"))
		if r.RequestMilli > 0 && rapid.Bool().Draw(t, "binds on policy nodes") {
			r.OnPolicyNodes = boundOf(r)
		}
	default:
		r.Class, r.Role = qos.BE, qos.BEPool
	}
	return r
}

// boundOf is what r asks of nodes that bind every pod.
func boundOf(r *place.Request) *place.Request {
	b := *r
	b.Role, b.ConstrainedBurst = qos.ExclusiveWithBE, false
	if r.RequestMilli%1000 == 0 {
		b.CPUs = int(r.RequestMilli / 1000)
	}
	return &b
}
