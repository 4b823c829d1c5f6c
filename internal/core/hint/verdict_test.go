package hint_test

import (
	"slices"
	"testing"

	"github.com/tenon-project/tenon/internal/core/topo"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/hint"
)

// machine is a node as its providers see it, in the plainest form: it lists hints by asking every mask.
type machine struct {
	rule      hint.Rule
	resources []hint.Resource
	free      [][]int64 // by resource and node
	memory    [][]int64 // allocatable by type and node
	spare     [][]int64 // free by type and node
	group     []topo.NodeSet
	assigned  []bool
}

func (m *machine) summary() *hint.Summary {
	s := hint.NewCapacity(m.rule, m.resources, m.memory).Summary()
	for r := range m.free {
		for p, n := range m.free[r] {
			s.SetFree(r, p, n)
		}
	}
	for t := range m.spare {
		for i, n := range m.spare[t] {
			s.SetMemory(t, i, n)
		}
	}
	for i := range m.group {
		s.SetGroup(i, m.group[i], m.assigned[i])
	}
	return s
}

// units is the list of the CPU manager or the device manager.
func (m *machine) units(a hint.Ask) hint.List {
	if a.Amount <= 0 {
		return nil
	}
	r := m.resources[a.Resource]
	list, size := hint.List{}, r.Walked.Len()
	for mask := topo.NodeSet(1); mask <= topo.FirstNodes(m.rule.Nodes); mask++ {
		if !mask.Within(r.Walked) {
			continue
		}
		capacity, free := int64(0), int64(0)
		for i := range mask.All() {
			capacity += r.Capacity[i]
			free += m.free[a.Resource][i]
		}
		if capacity >= a.Amount {
			size = min(size, mask.Len())
		}
		if free >= a.Amount {
			list = append(list, hint.Hint{Mask: mask})
		}
	}
	for i := range list {
		list[i].Preferred = list[i].Mask.Len() == size
	}
	return list
}

// bytes are the lists of the memory manager, one for each type.
func (m *machine) bytes(q *hint.Request) []hint.List {
	var list hint.List
	types, size := 0, m.rule.Nodes
	for _, need := range q.Memory {
		if need > 0 {
			types++
		}
	}
	if types == 0 {
		return nil
	}
	for mask := topo.NodeSet(1); mask <= topo.FirstNodes(m.rule.Nodes); mask++ {
		enough, large := true, true
		for t, need := range q.Memory {
			if need <= 0 {
				continue
			}
			capacity, free := int64(0), int64(0)
			for i := range m.group {
				if mask.Has(topo.NUMA(i)) {
					capacity += m.memory[t][i]
					free += m.spare[t][i]
				}
			}
			large = large && capacity >= need
			enough = enough && free >= need
		}
		if !large {
			continue
		}
		size = min(size, mask.Len())
		for i := range m.group {
			switch {
			case !mask.Has(topo.NUMA(i)):
			case mask.Len() == 1:
				enough = enough && m.group[i].Len() <= 1
			case m.assigned[i]:
				enough = enough && m.group[i] == mask
			}
		}
		if enough {
			list = append(list, hint.Hint{Mask: mask})
		}
	}
	for i := range list {
		list[i].Preferred = list[i].Mask.Len() == size
	}
	lists := make([]hint.List, types)
	for i := range lists {
		lists[i] = list
	}
	return lists
}

func (m *machine) lists(q *hint.Request) []hint.List {
	var lists []hint.List
	for _, a := range q.Asks {
		lists = append(lists, m.units(a))
	}
	return append(lists, m.bytes(q)...)
}

func drawMachine(t *rapid.T, maxNodes int) *machine {
	m := &machine{rule: *drawRule(t, maxNodes)}
	n := m.rule.Nodes
	amounts := func(what string, n int, top int64) []int64 {
		return rapid.SliceOfN(rapid.Int64Range(0, top), n, n).Draw(t, what)
	}
	for range rapid.IntRange(0, 3).Draw(t, "resources") {
		r := hint.Resource{Walked: topo.FirstNodes(n)}
		top := rapid.Int64Range(1, 4).Draw(t, "top")
		if r.Capacity = slices.Repeat([]int64{top}, n); rapid.Bool().Draw(t, "unequal") {
			r.Capacity = amounts("capacity", n, top)
		}
		free := slices.Clone(r.Capacity)
		used, hostsOnly := rapid.Bool().Draw(t, "used"), rapid.Bool().Draw(t, "hosts only")
		for i, c := range r.Capacity {
			if used {
				free[i] = rapid.Int64Range(0, c).Draw(t, "free")
			}
			if hostsOnly && c == 0 {
				r.Walked &^= 1 << i
			}
		}
		m.resources = append(m.resources, r)
		m.free = append(m.free, free)
	}
	for range rapid.IntRange(0, 2).Draw(t, "types") {
		allocatable := amounts("allocatable", n, 4)
		spare := make([]int64, n)
		for i := range spare {
			spare[i] = rapid.Int64Range(allocatable[i]/2, allocatable[i]).Draw(t, "spare")
		}
		m.memory, m.spare = append(m.memory, allocatable), append(m.spare, spare)
	}
	m.group, m.assigned = make([]topo.NodeSet, n), make([]bool, n)
	for i := range m.group {
		m.group[i], m.assigned[i] = 1<<i, rapid.IntRange(0, 3).Draw(t, "assigned") == 0
	}
	if rapid.Bool().Draw(t, "grouped") {
		g := topo.NodeSet(rapid.Uint64Range(1, uint64(topo.FirstNodes(n))).Draw(t, "group"))
		for i := range m.group {
			if g.Has(topo.NUMA(i)) {
				m.group[i], m.assigned[i] = g, rapid.IntRange(0, 9).Draw(t, "in use") > 0
			}
		}
	}
	return m
}

func (m *machine) drawRequest(t *rapid.T) *hint.Request {
	q := &hint.Request{}
	for i := range m.resources {
		q.Asks = append(q.Asks, hint.Ask{Resource: i, Amount: rapid.Int64Range(0, 7).Draw(t, "amount")})
	}
	for range m.memory {
		q.Memory = append(q.Memory, rapid.Int64Range(0, 6).Draw(t, "bytes"))
	}
	return q
}

// agree fails unless the counters answer what the lists do.
func agree(t *rapid.T, m *machine, q *hint.Request, got, want hint.Answer) {
	if !want.Admitted {
		want.Hint.Mask = 0
	}
	if got != want {
		t.Fatalf("%+v asked %+v: got %+v, want %+v of %v", m, q, got, want, m.lists(q))
	}
}

func TestVerdictIsTheMergeOfTheListsThatProvidersMake(t *testing.T) {
	t.Parallel()
	var w hint.Scratch
	rapid.Check(t, func(t *rapid.T) {
		m := drawMachine(t, 6)
		q := m.drawRequest(t)
		want := m.rule.Answer(m.lists(q), nil)
		agree(t, m, q, m.summary().Verdict(q, &w), want)
	})
}

func TestVerdictIsTheProductOfTheListsThatProvidersMake(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawMachine(t, 3)
		q := m.drawRequest(t)
		h, admitted := product(&m.rule, m.lists(q))
		agree(t, m, q, m.summary().Verdict(q, new(hint.Scratch)), hint.Answer{Hint: h, Admitted: admitted})
	})
}
