package claim_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/claim"
	"github.com/tenon-project/tenon/internal/core/topo"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// on is a set of NUMA nodes.
func on(nodes ...topo.NUMA) (s topo.NodeSet) {
	for _, n := range nodes {
		s |= 1 << n
	}
	return s
}

// request asks for devices of a sort, or for all of them.
type request struct {
	sort  string
	count int
	all   bool
	// shared: others may get a part of its devices.
	shared bool
}

// allocator gives the first devices of each sort, as the one of Kubernetes does where nothing but the sort matters.
type allocator struct {
	node     claim.Node
	requests []request
	asked    [][]bool
	answers  []claim.Answer
}

func (a *allocator) ask(hidden []bool) (answer claim.Answer, ok bool) {
	a.asked = append(a.asked, hidden)
	used := map[int]bool{}
	for _, r := range a.requests {
		left := r.count
		for i := range a.node.Devices {
			d := &a.node.Devices[i]
			if d.Sort != r.sort || hidden != nil && hidden[i] {
				continue
			}
			if d.Taken || used[i] {
				if r.all {
					return nil, false
				}
				continue
			}
			if r.all || left > 0 {
				used[i] = true
				answer = append(answer, claim.Pick{Device: i, All: r.all, Shared: r.shared})
				left--
			}
		}
		if left > 0 {
			return nil, false
		}
	}
	a.answers = append(a.answers, answer)
	return answer, true
}

// chosen returns the devices of a choice.
func (a *allocator) chosen(c claim.Choice) (devices []int) {
	// Each ask has an entry in asked; answers are those that gave one.
	at := 0
	for i := range c.Asked {
		if _, ok := (&allocator{node: a.node, requests: a.requests}).ask(a.asked[i+1]); ok {
			at++
		}
	}
	for _, p := range a.answers[at] {
		devices = append(devices, p.Device)
	}
	slices.Sort(devices)
	return devices
}

// gpu and nic are devices of one pool each.
func gpu(nodes topo.NodeSet, root string) claim.Device {
	return claim.Device{Pool: "gpu/n", Sort: "gpu", Nodes: nodes, Root: root}
}

func nic(nodes topo.NodeSet, root string) claim.Device {
	return claim.Device{Pool: "nic/n", Sort: "nic", Nodes: nodes, Root: root}
}

func taken(d claim.Device) claim.Device { d.Taken = true; return d }

func part(card string, node topo.NodeSet) claim.Device {
	return claim.Device{Pool: "gpu/n", Sort: "half", Card: card, Nodes: node, Counted: true}
}

// TestChoice has one case for each rule of the package.
func TestChoice(t *testing.T) {
	t.Parallel()
	one, two := []request{{sort: "gpu", count: 1}}, []request{{sort: "gpu", count: 2}}
	only := func(allowed ...topo.NodeSet) claim.Room {
		return claim.RoomFunc(func(nodes topo.NodeSet) bool { return slices.Contains(allowed, nodes) })
	}
	for name, tt := range map[string]struct {
		devices   []claim.Device
		requests  []request
		rest      claim.Rest
		closeness claim.Links
		want      []int
		nodes     topo.NodeSet
		lost      bool // the rest does not fit
		asks      int  // most questions
	}{
		"the NUMA node with CPUs": {
			[]claim.Device{gpu(on(0), ""), gpu(on(1), "")},
			one,
			claim.Rest{Nodes: on(0, 1), Room: only(on(1)), Required: true},
			nil,
			[]int{1},
			on(1),
			false, 1,
		},
		"a device that several may share": {
			[]claim.Device{gpu(on(0), ""), gpu(on(1), "")},
			[]request{{sort: "gpu", count: 1, shared: true}},
			claim.Rest{Nodes: on(0, 1), Room: only(on(1)), Required: true},
			nil,
			[]int{1},
			on(1),
			false, 1,
		},
		"the last of many NUMA nodes": {
			[]claim.Device{
				gpu(on(0), ""), taken(gpu(on(1), "")), taken(gpu(on(2), "")), taken(gpu(on(3), "")),
				taken(gpu(on(4), "")), taken(gpu(on(5), "")), taken(gpu(on(6), "")), gpu(on(7), ""),
			},
			[]request{{sort: "gpu", count: 1, shared: true}},
			claim.Rest{
				Nodes: on(0, 1, 2, 3, 4, 5, 6, 7), Required: true,
				Room: only(on(1), on(2), on(3), on(4), on(5), on(6), on(7)),
			},
			nil,
			[]int{7},
			on(7),
			false, 20,
		},
		"the last of more NUMA nodes than other answers are asked for": {
			[]claim.Device{
				gpu(on(0), ""), taken(gpu(on(1), "")), taken(gpu(on(2), "")), taken(gpu(on(3), "")),
				taken(gpu(on(4), "")), taken(gpu(on(5), "")), taken(gpu(on(6), "")), taken(gpu(on(7), "")),
				taken(gpu(on(8), "")), taken(gpu(on(9), "")), gpu(on(10), ""),
			},
			[]request{{sort: "gpu", count: 1, shared: true}},
			claim.Rest{
				Nodes: on(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), Required: true,
				Room: only(on(1), on(2), on(3), on(4), on(5), on(6), on(7), on(8), on(9), on(10)),
			},
			nil,
			[]int{10},
			on(10),
			false, 30,
		},
		"no NUMA node has both": {
			[]claim.Device{gpu(on(0), ""), taken(gpu(on(1), ""))},
			one,
			claim.Rest{Nodes: on(0, 1), Room: only(on(1)), Required: true},
			nil,
			[]int{0},
			on(0),
			true, 3,
		},
		"nothing is known": {
			[]claim.Device{gpu(0, ""), gpu(0, "")},
			one,
			claim.Rest{Nodes: on(0, 1), Room: only(on(1)), Required: true},
			nil,
			[]int{0},
			0,
			false, 0,
		},
		"a device of an unknown NUMA node comes after those of known ones": {
			[]claim.Device{gpu(on(0), ""), gpu(0, ""), gpu(on(1), "")},
			one,
			claim.Rest{Nodes: on(0, 1), Room: only(on(1)), Required: true},
			nil,
			[]int{2},
			on(1),
			false, 2,
		},
		"a device of an unknown NUMA node is better than a wrong one": {
			[]claim.Device{gpu(on(0), ""), gpu(0, "")},
			one,
			claim.Rest{Nodes: on(0, 1), Room: only(on(1)), Required: true},
			nil,
			[]int{1},
			0,
			false, 3,
		},
		"devices of a claim that is allocated": {
			[]claim.Device{gpu(on(0), ""), gpu(on(1), "")},
			one,
			claim.Rest{Given: on(1)},
			nil,
			[]int{1},
			on(1),
			false, 1,
		},
		"the rest needs a further NUMA node": {
			[]claim.Device{gpu(on(0), ""), gpu(on(1), "")},
			one,
			claim.Rest{Nodes: on(0, 1, 2), Room: only(on(1, 2))},
			nil,
			[]int{1},
			on(1),
			false, 1,
		},
		"two on one NUMA node": {
			[]claim.Device{gpu(on(0), ""), gpu(on(1), ""), gpu(on(1), "")},
			two,
			claim.Rest{},
			nil,
			[]int{1, 2},
			on(1),
			false, 1,
		},
		"two on one root complex": {
			[]claim.Device{gpu(on(0), "a"), gpu(on(0), "b"), gpu(on(0), "b")},
			two,
			claim.Rest{},
			nil,
			[]int{1, 2},
			on(0),
			false, 1,
		},
		"two that are linked directly": {
			[]claim.Device{gpu(on(0), "a"), gpu(on(0), "a"), gpu(on(0), "a")},
			two,
			claim.Rest{},
			claim.LinksFunc(func(a, b int) int64 { return map[int]int64{2: 400}[a+b] }),
			[]int{0, 2},
			on(0),
			false, 1,
		},
		"two that are linked directly, all on one NUMA node": {
			[]claim.Device{gpu(on(0), ""), gpu(on(0), ""), gpu(on(0), "")},
			two,
			claim.Rest{},
			claim.LinksFunc(func(a, b int) int64 { return map[int]int64{2: 400}[a+b] }),
			[]int{0, 2},
			on(0),
			false, 1,
		},
		"two on one root complex, of unknown NUMA nodes": {
			[]claim.Device{gpu(0, "a"), gpu(0, "b"), gpu(0, "b")},
			two,
			claim.Rest{},
			nil,
			[]int{1, 2},
			0,
			false, 1,
		},
		"links of devices without known places do not count": {
			[]claim.Device{gpu(0, ""), gpu(0, ""), gpu(0, "")},
			two,
			claim.Rest{},
			claim.LinksFunc(func(a, b int) int64 { return map[int]int64{2: 400}[a+b] }),
			[]int{0, 1},
			0,
			false, 0,
		},
		"a GPU beside the only NIC": {
			[]claim.Device{gpu(on(0), "a"), gpu(on(0), "b"), taken(nic(on(0), "a")), nic(on(0), "b")},
			[]request{{sort: "gpu", count: 1}, {sort: "nic", count: 1}},
			claim.Rest{},
			nil,
			[]int{1, 3},
			on(0),
			false, 1,
		},
		"a NUMA node that is in use before a whole one": {
			[]claim.Device{gpu(on(0), ""), gpu(on(0), ""), taken(gpu(on(1), "")), gpu(on(1), "")},
			one,
			claim.Rest{},
			nil,
			[]int{3},
			on(1),
			false, 1,
		},
		"a root complex that is in use before a whole one": {
			[]claim.Device{gpu(on(0), "a"), gpu(on(0), "a"), taken(gpu(on(0), "b")), gpu(on(0), "b")},
			one,
			claim.Rest{},
			nil,
			[]int{3},
			on(0),
			false, 1,
		},
		"a card that is in use before a whole one": {
			[]claim.Device{part("a", 0), part("a", 0), taken(part("b", 0)), part("b", 0)},
			[]request{{sort: "half", count: 1}},
			claim.Rest{},
			nil,
			[]int{3},
			0,
			false, 1,
		},
		"of whole NUMA nodes the one with fewer devices": {
			[]claim.Device{gpu(on(0), ""), gpu(on(0), ""), gpu(on(0), ""), gpu(on(1), ""), gpu(on(1), "")},
			one,
			claim.Rest{},
			nil,
			[]int{3},
			on(1),
			false, 1,
		},
		"equal ones in the order of the allocator": {
			[]claim.Device{gpu(on(0), "a"), gpu(on(0), "a"), gpu(on(1), "b"), gpu(on(1), "b")},
			one,
			claim.Rest{},
			nil,
			[]int{0},
			on(0),
			false, 0,
		},
		"all devices": {
			[]claim.Device{gpu(on(0), ""), gpu(on(1), "")},
			[]request{{sort: "gpu", all: true}},
			claim.Rest{Nodes: on(0, 1), Room: only(on(1)), Required: true},
			nil,
			[]int{0, 1},
			on(0, 1),
			true, 0,
		},
		"an alternative that asks for all": {
			[]claim.Device{gpu(on(0), ""), gpu(on(1), "")},
			one,
			claim.Rest{Nodes: on(0, 1), Room: only(on(1)), Required: true, Fixed: true},
			nil,
			[]int{0},
			on(0),
			true, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &allocator{node: claim.Node{Devices: tt.devices, Links: tt.closeness}, requests: tt.requests}
			first, ok := a.ask(nil)
			if !ok {
				t.Fatal("no first answer")
			}
			c := claim.Choose(&a.node, &tt.rest, first, a.ask)
			if got := a.chosen(c); !slices.Equal(got, tt.want) || c.Nodes != tt.nodes || c.Aligned == tt.lost ||
				len(a.asked)-1 > tt.asks {
				t.Errorf("got %v on %v, aligned %t after %d questions, want %v on %v, %t after %d", got, c.Nodes,
					c.Aligned, len(a.asked)-1, tt.want, tt.nodes, !tt.lost, tt.asks)
			}
			if tt.rest.Required {
				b := &allocator{node: a.node, requests: tt.requests}
				first, _ := b.ask(nil)
				if aligned := claim.Align(&b.node, &tt.rest, first, b.ask); aligned.Aligned == tt.lost {
					t.Errorf("Align says %t", aligned.Aligned)
				}
			}
		})
	}
}

// TestMixedDevicesAreAlignedAllTheSame: the sort of a device is a guess. Where requests tell devices of one sort apart,
// hiding whole NUMA nodes finds the answer that no proposed set is.
func TestMixedDevicesAreAlignedAllTheSame(t *testing.T) {
	t.Parallel()
	node := claim.Node{}
	for i := range 16 {
		node.Devices = append(node.Devices, gpu(on(topo.NUMA(i/8)), ""))
	}
	ask := func(hidden []bool) (claim.Answer, bool) { // only the devices 7 and 15 are selected
		for _, i := range []int{7, 15} {
			if !hidden[i] {
				return claim.Answer{{Device: i}}, true
			}
		}
		return nil, false
	}
	room := claim.RoomFunc(func(n topo.NodeSet) bool { return n == on(1) })
	rest := claim.Rest{Nodes: on(0, 1), Room: room, Required: true}
	c := claim.Choose(&node, &rest, claim.Answer{{Device: 7}}, ask)
	if !c.Aligned || c.Nodes != on(1) {
		t.Errorf("got %+v", c)
	}
}

// TestPoolsWithoutAnswerAreNotNarrowed: one may be invalid, and valid without the device that is hidden.
func TestPoolsWithoutAnswerAreNotNarrowed(t *testing.T) {
	t.Parallel()
	other := gpu(on(1), "")
	other.Pool = "gpu/broken"
	node := claim.Node{Devices: []claim.Device{gpu(on(0), ""), gpu(on(1), ""), other}}
	all := func(int) bool { return true }
	if got := node.Hidden(all, claim.Answer{{Device: 0}}); !slices.Equal(got, []bool{true, true, false}) {
		t.Errorf("got %v", got)
	}
	node.Devices[1].Taken, node.Devices[1].Counted = true, true
	if got := node.Hidden(all, claim.Answer{{Device: 0, All: true}}, claim.Answer{{Device: 2}}); !slices.Equal(got,
		[]bool{false, false, true}) {
		t.Errorf("got %v: devices that use up counters, and those of a request for all, remain", got)
	}
}

// TestFewest: the number of NUMA nodes on an empty machine.
func TestFewest(t *testing.T) {
	t.Parallel()
	node := claim.Node{Devices: []claim.Device{
		gpu(on(0), ""), taken(gpu(on(0), "")), gpu(on(1), ""), gpu(on(1), ""), nic(on(1), ""),
	}}
	for want, a := range map[int]claim.Answer{
		1: {{Device: 0}, {Device: 2}}, 2: {{Device: 0}, {Device: 2}, {Device: 3}},
	} {
		if got := node.Fewest(a); got != want {
			t.Errorf("%v: got %d, want %d", a, got, want)
		}
	}
	if got := node.Fewest(claim.Answer{{Device: -1}}); got != 1 {
		t.Errorf("a device of no node: got %d", got)
	}
}

// TestNodesOf: sources in agreement, and lists of NUMA nodes.
func TestNodesOf(t *testing.T) {
	t.Parallel()
	machine, err := topo.New(topo.Spec{
		NUMA: []topo.NUMASpec{{ID: 0}, {ID: 1}, {ID: 2}},
		CPUs: []topo.CPUSpec{{ID: 0, NUMA: 0}, {ID: 1, Core: 1, NUMA: 1, Socket: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		machine    *topo.Machine
		attributes [][]int
		card, want topo.NodeSet
	}{
		"nothing":                              {machine, nil, 0, 0},
		"an attribute":                         {machine, [][]int{{1}}, 0, on(1)},
		"the card":                             {machine, nil, on(1), on(1)},
		"both, and the driver's own attribute": {machine, [][]int{{1}, {1}}, on(1), on(1)},
		"two that differ":                      {machine, [][]int{{1}, {0}}, 0, 0},
		"the card is elsewhere":                {machine, [][]int{{1}}, on(0), 0},
		"a list":                               {machine, [][]int{{1, 0}}, 0, on(1)},
		"a NUMA node of memory alone":          {machine, [][]int{{2, 1}}, 0, on(1)},
		"no NUMA node with CPUs":               {machine, [][]int{{2}}, 0, on(2)},
		"one that the machine lacks":           {machine, [][]int{{7}}, 0, 0},
		"-1":                                   {machine, [][]int{{-1}}, 0, 0},
		"an unknown machine":                   {nil, [][]int{{3}}, 0, on(3)},
		"an unknown machine, -1":               {nil, [][]int{{-1}}, 0, 0},
		"an unknown machine, 64":               {nil, [][]int{{64}}, 0, 0},
	} {
		if got := claim.NodesOf(tt.machine, tt.attributes, tt.card); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

// TestChoiceIsTheBestOfAll compares with all sets of devices that the allocator accepts.
func TestChoiceIsTheBestOfAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := &allocator{}
		for i := range rapid.IntRange(1, 7).Draw(t, "devices") {
			kind := rapid.SampledFrom([]string{"gpu", "nic"}).Draw(t, "sort")
			node := topo.NodeSet(rapid.SampledFrom([]int{0, 1, 2, 4}).Draw(t, "NUMA node"))
			d := claim.Device{Pool: kind, Sort: kind, Nodes: node, Taken: rapid.IntRange(0, 3).Draw(t, "taken") == 0}
			if d.Root = ""; node != 0 {
				d.Root = fmt.Sprint(node, rapid.IntRange(0, 1).Draw(t, "root"))
			}
			d.Counted = i%3 == 0
			a.node.Devices = append(a.node.Devices, d)
		}
		a.requests = []request{
			{sort: "gpu", count: rapid.IntRange(0, 2).Draw(t, "gpus"), shared: rapid.Bool().Draw(t, "shared")},
			{sort: "nic", count: rapid.IntRange(0, 2).Draw(t, "nics")},
		}
		fits := map[topo.NodeSet]bool{}
		for n := topo.NodeSet(1); n < 8; n++ {
			fits[n] = rapid.Bool().Draw(t, "fits")
		}
		rest := claim.Rest{Nodes: 7, Required: rapid.Bool().Draw(t, "required")}
		if rapid.IntRange(0, 4).Draw(t, "rest") > 0 {
			rest.Room = claim.RoomFunc(func(n topo.NodeSet) bool { return fits[n] })
		}
		first, ok := a.ask(nil)
		if !ok {
			return
		}
		aligned := claim.Align(&a.node, &rest, first, (&allocator{node: a.node, requests: a.requests}).ask).Aligned
		c := claim.Choose(&a.node, &rest, first, a.ask)
		if rest.Required && aligned && !c.Aligned {
			t.Fatalf("Align finds an answer that is aligned, Choose does not\n%+v", a.node)
		}
		got := a.chosen(c)
		gotNodes, best := topo.NodeSet(0), -1
		for hidden := range 1 << len(a.node.Devices) {
			mask := make([]bool, len(a.node.Devices))
			for i := range mask {
				mask[i] = hidden>>i&1 != 0
			}
			answer, ok := (&allocator{node: a.node, requests: a.requests}).ask(mask)
			if !ok {
				continue
			}
			if span := spanOf(&a.node, &rest, answer); best < 0 || span < best {
				best = span
			}
		}
		for _, i := range got {
			gotNodes |= a.node.Devices[i].Nodes
		}
		if gotNodes != c.Nodes {
			t.Fatalf("the choice says %v, its devices %v are on %v", c.Nodes, got, gotNodes)
		}
		var answer claim.Answer
		for _, i := range got {
			answer = append(answer, claim.Pick{Device: i})
		}
		if span := spanOf(&a.node, &rest, answer); span > best && facts(&a.node, answer) {
			t.Fatalf("got %v that needs %d NUMA nodes, %d are enough\n%+v", got, span, best, a.node)
		}
		if c.Aligned != (spanOf(&a.node, &rest, answer) < 900) {
			t.Fatalf("aligned %t", c.Aligned)
		}
	})
}

// facts reports whether anything is known of the devices that could be in an answer.
func facts(n *claim.Node, a claim.Answer) bool {
	for _, p := range a {
		for i := range n.Devices {
			if d := &n.Devices[i]; d.Sort == n.Devices[p.Device].Sort && (d.Nodes != 0 || d.Root != "") {
				return true
			}
		}
	}
	return false
}

// spanOf is the number of NUMA nodes that devices and rest need together, 900 where they do not fit, with 10 for each
// device without a known NUMA node of a sort where others have one.
func spanOf(n *claim.Node, rest *claim.Rest, a claim.Answer) int {
	nodes := topo.NodeSet(0)
	unknown := 0
	for _, p := range a {
		d := &n.Devices[p.Device]
		nodes |= d.Nodes
		if d.Nodes == 0 && slices.ContainsFunc(n.Devices, func(o claim.Device) bool {
			return o.Sort == d.Sort && o.Nodes != 0
		}) {
			unknown += 10
		}
	}
	if rest.Room == nil {
		return unknown + nodes.Len()
	}
	best := 900
	for s := topo.NodeSet(1); s < 8; s++ {
		if nodes.Within(s) && rest.Room.Fits(s) {
			best = min(best, unknown+s.Len())
		}
	}
	if best == 900 && nodes == 0 && !rest.Required {
		return unknown
	}
	return best
}
