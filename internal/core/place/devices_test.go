package place_test

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// cards is an inventory of GPUs, one for each NUMA id; -1 is unknown. Those of broken, by index, are not healthy.
func cards(tb interface{ Fatal(...any) }, m *topo.Machine, numa []int, broken ...int) *device.Inventory {
	var spec device.Spec
	for i, n := range numa {
		spec.Devices = append(spec.Devices, device.Device{
			Type: device.GPU, ID: fmt.Sprint("gpu-", i), Minor: int32(i), Healthy: !slices.Contains(broken, i),
			Total: device.Vector{device.Bytes: 80 << 30}, Location: device.Location{NUMAID: n, Bus: fmt.Sprint(i)},
		})
	}
	inventory, err := device.NewInventory(&spec, m, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return inventory
}

// gpus makes a request ask for devices by resource name.
func gpus(tb interface{ Fatal(...any) }, amounts map[string]int64) func(*place.Request) {
	c := device.Container{Name: "c", Requests: amounts, Limits: amounts}
	r, faults := device.NewRequest(device.Pod{Containers: []device.Container{c}}, nil)
	if len(faults) > 0 {
		tb.Fatal(faults)
	}
	return func(p *place.Request) { p.Devices = r }
}

// holding is a pod that has percent of a GPU.
func holding(gpu int, percent int64) ledger.Entry {
	return ledger.Entry{UID: fmt.Sprint("on-", gpu), Devices: []device.Grant{{
		Type: device.GPU, ID: fmt.Sprint("gpu-", gpu), Minor: int32(gpu),
		Amount: device.Vector{device.Cores: percent, device.Bytes: 80 << 30 / 100 * percent},
	}}}
}

// TestCPUsAreBesideTheirDevices is on the worked example, with two GPUs on each of its four NUMA nodes: nodes 0 and 1
// are on socket 0 and have the CPUs 0-3, 16-19 and 4-7, 20-23.
func TestCPUsAreBesideTheirDevices(t *testing.T) {
	t.Parallel()
	whole := func(n int64) func(*place.Request) { return gpus(t, map[string]int64{device.NVIDIAGPU: n}) }
	share := gpus(t, map[string]int64{device.GPUPercent: 50})
	single, restricted := policy(hint.SingleNUMANode), policy(hint.Restricted)
	apart := func(r *place.Request) { r.DevicesApart = true }
	busy := func(list string) ledger.Entry {
		e := held(list)
		e.UID = "busy"
		return e
	}
	onlyOn := func(node int) []ledger.Entry {
		var entries []ledger.Entry
		for i := range 8 {
			if i/2 != node {
				entries = append(entries, holding(i, 100))
			}
		}
		return entries
	}
	tests := map[string]struct {
		entries []ledger.Entry
		request *place.Request
		cpus    string
		devices []int
		code    why.Code
	}{
		"without a policy CPUs follow the GPU": {
			entries: onlyOn(3), request: binding(4, whole(1)), cpus: "12-13,28-29", devices: []int{6},
		},
		"and where they must go elsewhere remain on its socket": {
			entries: append(onlyOn(3), busy("12-15,28-31")), request: binding(4, whole(1)), cpus: "8-9,24-25",
			devices: []int{6},
		},
		"and go farther only then": {
			entries: append(onlyOn(3), busy("8-15,24-31")), request: binding(4, whole(1)), cpus: "0-1,16-17",
			devices: []int{6},
		},
		"under a policy the GPU is one whose NUMA node has the CPUs": {
			entries: []ledger.Entry{busy("0-3,16-19")}, request: binding(4, single, whole(1)), cpus: "4-5,20-21",
			devices: []int{2},
		},
		"a share too": {
			entries: []ledger.Entry{busy("0-7,16-23"), holding(0, 30)}, request: binding(2, single, share),
			cpus: "8,24", devices: []int{4},
		},
		"CPUs are free and GPUs are free, but nowhere together": {
			entries: append(onlyOn(3), busy("12-15,28-31")), request: binding(4, single, whole(1)),
			code: why.InsufficientNUMADevices,
		},
		"unless they may be apart": {
			entries: append(onlyOn(3), busy("12-15,28-31")), request: binding(4, single, apart, whole(1)),
			cpus: "0-1,16-17", devices: []int{6},
		},
		"three GPUs are never on one NUMA node": {
			request: binding(4, single, whole(3)), code: why.InsufficientNUMADevices,
		},
		"Restricted lets GPUs use as many NUMA nodes as they need": {
			request: binding(4, restricted, whole(4)), cpus: "0-1,16-17", devices: []int{0, 1, 2, 3},
		},
		"but no more": {
			entries: []ledger.Entry{holding(0, 10), holding(2, 10), holding(4, 10), holding(6, 10)},
			request: binding(4, restricted, whole(2)), code: why.InsufficientNUMADevices,
		},
		"and CPUs as many as the GPUs": {
			entries: []ledger.Entry{busy("0-2,4-6,8-10,12-14,16-18,20-22,24-26,28-30")},
			request: binding(4, restricted, whole(4)), cpus: "3,7,19,23", devices: []int{0, 1, 2, 3},
		},
		"and a shared pool": {
			entries: []ledger.Entry{confined(6000, 0), confined(6000, 1), confined(6000, 2), confined(6000, 3)},
			request: sharing(4000, restricted, whole(4)), devices: []int{0, 1, 2, 3},
		},
		"a pod of the shared pool is confined where its GPU is": {
			entries: onlyOn(2), request: sharing(4000, single, whole(1)), devices: []int{4},
		},
		"and refused where its pool is promised away": {
			entries: append(onlyOn(2), confined(8000, 2)), request: sharing(4000, single, whole(1)),
			code: why.InsufficientNUMADevices,
		},
		"more GPUs than there are": {request: binding(4, whole(9)), code: why.InsufficientDevices},
		"no CPUs asked":            {request: sharing(0, whole(2)), devices: []int{0, 1}},
		"no CPUs asked, one NUMA node": {
			entries: []ledger.Entry{holding(1, 100), holding(3, 100)}, request: sharing(0, single, whole(2)),
			devices: []int{4, 5},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := worked(t)
			f := ledger.Facts{Machine: m, Devices: cards(t, m, []int{0, 0, 1, 1, 2, 2, 3, 3}), OwnDevices: true}
			account := ledger.New(f, test.entries...)
			offer, reason := place.Try(account.View(), test.request)
			if reason.Code != test.code || place.Fits(account.View(), test.request) != reason {
				t.Fatalf("got %+v, want %v", reason, test.code)
			}
			var devices []int
			for _, g := range offer.Entry.Devices {
				devices = append(devices, int(g.Minor))
			}
			if offer.Entry.CPUList != test.cpus || !slices.Equal(devices, test.devices) {
				t.Errorf("got CPUs %s and GPUs %v, want %s and %v", offer.Entry.CPUList, devices, test.cpus,
					test.devices)
			}
			if !reason.OK() {
				return
			}
			if err := account.Commit(offer); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWhoGivesTheDevicesOut: only a node whose devices are Tenon's gives shares; whole GPUs by their vendor's name are
// left to other nodes' kubelets.
func TestWhoGivesTheDevicesOut(t *testing.T) {
	t.Parallel()
	m := worked(t)
	follow := ledger.Facts{Machine: m, Devices: cards(t, m, []int{0, 0})}
	own := follow
	own.OwnDevices = true
	unknown, err := device.NewInventory(&device.Spec{
		Devices: []device.Device{{Type: device.GPU, ID: "a", Healthy: true}},
		Foreign: []device.Foreign{{UID: "u", Names: []string{"x"}}},
	}, m, nil)
	testkit.Check(t, err)
	closed := ledger.Facts{Machine: m, Devices: unknown}
	ownClosed := closed
	ownClosed.OwnDevices = true
	vendor, share := gpus(t, map[string]int64{device.NVIDIAGPU: 1}), gpus(t, map[string]int64{device.GPUPercent: 50})
	hinted := func(r *place.Request) {
		vendor(r)
		d := *r.Devices
		d.Hints = map[device.Type]device.Hint{device.GPU: {Scope: device.PCIeLevel}}
		r.Devices = &d
	}
	isolated := own
	isolated.GPUIsolation = "HAMi-core"
	limited := func(r *place.Request) { share(r); r.GPUIsolation = "HAMi-core" }
	if binding(2, share).Signature() == binding(2, limited).Signature() {
		t.Error("a share that is to be limited is signed as one that is not")
	}
	for _, test := range []struct {
		facts   ledger.Facts
		request *place.Request
		code    why.Code
		devices int
	}{
		{own, binding(2, limited), why.GPUIsolationMissing, 0},
		{isolated, binding(2, limited), why.None, 1},
		{isolated, binding(2, share), why.None, 1},
		{own, binding(2, vendor), why.None, 1},
		{own, binding(2, share), why.None, 1},
		{ownClosed, binding(2, vendor), why.ForeignDevices, 0},
		{ownClosed, binding(2, share), why.ForeignDevices, 0},
		{ownClosed, binding(2), why.None, 0},
		{closed, binding(2, vendor), why.None, 0},
		{follow, binding(2, vendor), why.None, 0},
		{follow, binding(2, share), why.DevicesOfKubelet, 0},
		{follow, binding(2, hinted), why.DevicesOfKubelet, 0},
		{ledger.Facts{Machine: m}, binding(2, vendor), why.None, 0},
		{ledger.Facts{Machine: m}, binding(2, share), why.DeviceMissing, 0},
		{ledger.Facts{Machine: m}, binding(2, hinted), why.DeviceMissing, 0},
	} {
		offer, reason := place.Try(ledger.New(test.facts).View(), test.request)
		if reason.Code != test.code || len(offer.Entry.Devices) != test.devices {
			t.Errorf("devices of Tenon %v, %+v: got %v and %d devices, want %v and %d", test.facts.OwnDevices,
				test.request.Devices, reason.Code, len(offer.Entry.Devices), test.code, test.devices)
		}
	}
}

// room is a machine with one thread per core, in the dullest form: what each NUMA node has, and each GPU.
type room struct {
	cpus, memory []int // in all, by NUMA node
	free, left   []int // of them
	numa, used   []int // of each GPU: NUMA node or -1, percent
	broken       []int // GPUs
	facts        ledger.Facts
	entries      []ledger.Entry
}

func drawRoom(t *rapid.T) *room {
	nodes, cores := rapid.IntRange(1, 4).Draw(t, "NUMA nodes"), rapid.IntRange(1, 4).Draw(t, "cores")
	m := grid.Build(t, spec(1, nodes, cores, 1))
	r := &room{facts: ledger.Facts{
		Machine: m, OwnDevices: true,
		Topology: rapid.SampledFrom([]hint.Policy{0, 1, 2, 2, 3, 3}).Draw(t, "policy"),
	}}
	for n := range nodes {
		taken, memory := rapid.IntRange(0, cores).Draw(t, "taken"), rapid.IntRange(1, 4).Draw(t, "memory")
		used := rapid.IntRange(0, memory).Draw(t, "memory used")
		r.cpus, r.free = append(r.cpus, cores), append(r.free, cores-taken)
		r.memory, r.left = append(r.memory, memory), append(r.left, memory-used)
		r.facts.Amounts = append(r.facts.Amounts, align.Amount{NUMAID: n, Resource: "memory", N: int64(memory)})
		e := ledger.Entry{UID: fmt.Sprint("cpu-", n), Class: qos.LSR, Role: qos.ExclusiveWithBE}
		if taken == 0 {
			r.left[n] = memory
			continue
		}
		e.CPUList = fmt.Sprintf("%d-%d", n*cores, n*cores+taken-1)
		if used > 0 {
			e.Amounts = []align.Amount{{NUMAID: n, Resource: "memory", N: int64(used)}}
		}
		r.entries = append(r.entries, e)
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "GPUs") {
		r.numa = append(r.numa, rapid.IntRange(-1, nodes-1).Draw(t, "NUMA node"))
		r.used = append(r.used, rapid.SampledFrom([]int{0, 0, 0, 30, 60, 100}).Draw(t, "used"))
		if r.used[i] > 0 {
			r.entries = append(r.entries, holding(i, int64(r.used[i])))
		}
		if rapid.IntRange(0, 9).Draw(t, "broken") == 0 {
			r.broken = append(r.broken, i)
		}
	}
	return r
}

// fits tries every set of GPUs with every set of NUMA nodes. count GPUs are asked, percent of each.
func (r *room) fits(cpus, memory, count, percent int) bool {
	policy, nodes := r.facts.Topology, len(r.cpus)
	devices := func(busy bool, visit func(mask uint)) {
		for set := range uint(1) << len(r.numa) {
			mask, ok := uint(0), bits.OnesCount(set) == count
			for i, n := range r.numa {
				if set>>i&1 != 0 {
					ok = ok && !slices.Contains(r.broken, i) && (!busy || r.used[i]+percent <= 100)
					if n >= 0 {
						mask |= 1 << n
					}
				}
			}
			if ok {
				visit(mask)
			}
		}
	}
	least := func(need int, have []int) int {
		have = slices.Sorted(slices.Values(have))
		slices.Reverse(have)
		for k, sum := 1, 0; k <= nodes; k++ {
			if sum += have[k-1]; sum >= need {
				return k
			}
		}
		return nodes
	}
	spread := nodes
	if policy == hint.SingleNUMANode {
		spread = 1
	}
	if policy == hint.Restricted {
		spread = least(cpus, r.cpus)
		if enough := sum(r.memory) >= memory; enough && least(memory, r.memory) != spread {
			return false // resources that never need the same number of NUMA nodes
		}
		fewest := nodes
		devices(false, func(mask uint) { fewest = min(fewest, max(bits.OnesCount(mask), 1)) })
		spread = max(spread, fewest)
	}
	found := false
	devices(true, func(mask uint) {
		for set := uint(0); set < 1<<nodes; set++ {
			if policy < hint.Restricted {
				found = found || sum(r.free) >= cpus
				continue
			}
			haveCPUs, haveMemory := 0, 0
			for n := range nodes {
				if set>>n&1 != 0 {
					haveCPUs, haveMemory = haveCPUs+r.free[n], haveMemory+r.left[n]
				}
			}
			found = found || mask&^set == 0 && bits.OnesCount(set) <= spread && haveCPUs >= cpus && haveMemory >= memory
		}
	})
	return found
}

func sum(list []int) (total int) {
	for _, n := range list {
		total += n
	}
	return total
}

// askingForGPUs is a pod that asks for CPUs, bytes, and percent of each of count GPUs.
func askingForGPUs(tb interface{ Fatal(...any) }, cpus, memory, count, percent int) *place.Request {
	asked := map[string]int64{device.NVIDIAGPU: int64(count)}
	if percent < 100 {
		asked = map[string]int64{
			device.GPUShared: int64(count), device.GPUCore: int64(count * percent),
			device.GPURatio: int64(count * percent),
		}
	}
	ask := binding(cpus, gpus(tb, asked), asking(align.Need{Resource: "memory", N: int64(memory)}))
	ask.Required, ask.Preferred = place.NoWish, place.WantSpreadByPCPUs
	return ask
}

// TestDevicesAndTheRestAreFoundTogether: where any set of GPUs and any NUMA nodes for CPUs and memory go together, an
// offer is made, it keeps to the policy, and the ledger takes it; where none do, none is.
func TestDevicesAndTheRestAreFoundTogether(t *testing.T) {
	t.Parallel()
	granted, apart, undecided := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		r := drawRoom(t)
		inventory := cards(t, r.facts.Machine, r.numa, r.broken...)
		r.facts.Devices = inventory
		cpus, memory := rapid.IntRange(1, 6).Draw(t, "CPUs"), rapid.IntRange(1, 6).Draw(t, "memory asked")
		count, percent := rapid.IntRange(1, 4).Draw(t, "count"), 100
		if rapid.Bool().Draw(t, "share") {
			percent = rapid.SampledFrom([]int{40, 70}).Draw(t, "percent")
		}
		ask := askingForGPUs(t, cpus, memory, count, percent)
		account := ledger.New(r.facts, r.entries...)
		offer, reason := place.Try(account.View(), ask)
		if fits := place.Fits(account.View(), ask); fits != reason {
			t.Fatalf("Fits says %+v, Try says %+v", fits, reason)
		}
		checkReason(t, reason)
		switch {
		case reason.Code == why.SharedPoolFloor: // the last CPU is for others
			undecided++
			return
		case reason.OK() != r.fits(cpus, memory, count, percent):
			t.Fatalf("%d CPUs, %d bytes, %d GPUs of %d %%: got %+v on %+v", cpus, memory, count, percent, reason, r)
		case reason.Code == why.InsufficientNUMADevices:
			apart++
		}
		if !reason.OK() {
			return
		}
		granted++
		var nodes topo.NodeSet
		for _, g := range offer.Entry.Devices {
			nodes |= inventory.NodesOf(g.Type, g.ID)
		}
		if len(offer.Entry.Devices) != count || !nodes.Within(offer.Nodes) {
			t.Fatalf("got %d GPUs on %b of %b, want %d", len(offer.Entry.Devices), nodes, offer.Nodes, count)
		}
		if r.facts.Topology == hint.SingleNUMANode && offer.Nodes.Len() > 1 {
			t.Fatalf("a pod for one NUMA node is on %b", offer.Nodes)
		}
		testkit.Check(t, account.Commit(offer))
		before, again := account.View(), offer
		if err := account.Commit(again); err == nil {
			t.Fatal("the offer commits twice")
		}
		if account.View() != before {
			t.Fatal("a refused offer changes the account")
		}
	})
	t.Logf("%d granted, %d refused for NUMA nodes alone, %d by the pool's floor", granted, apart, undecided)
	if granted == 0 || apart == 0 {
		t.Error("the generator is too narrow")
	}
}
