package sim

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// need is what a member of a gang asks for: CPUs, cards, and a node by its name; any where that is -1.
type need struct{ cpus, cards, node int }

// room is what a node has free.
type room struct{ cpus, cards int }

func (n need) write(name string, least int) string {
	selector, cards := "", ""
	if n.node >= 0 {
		selector = fmt.Sprintf(", nodeSelector: {kubernetes.io/hostname: n%d}", n.node)
	}
	if n.cards > 0 {
		cards = fmt.Sprintf(`, example.com/card: "%d"`, n.cards)
	}
	return fmt.Sprintf("\n{apiVersion: v1, kind: Pod, metadata: {name: %s%s}, spec: {containers: [{name: c, image: i, "+
		"resources: {requests: {cpu: %d%s}, limits: {cpu: %d%s}}}]%s}}\n---", name, says("g", least), n.cpus, cards, n.cpus,
		cards, selector)
}

func (r room) write(i int) string {
	return fmt.Sprintf("\n{apiVersion: v1, kind: Node, metadata: {name: n%d, labels: {kubernetes.io/hostname: n%d}}, "+
		"status: {allocatable: {cpu: %d, memory: 64Gi, pods: 110, example.com/card: %d}, "+
		"conditions: [{type: Ready, status: \"True\"}]}}\n---", i, i, r.cpus, r.cards)
}

// fit reports whether the rooms take all that is needed, by looking at all choices.
func fit(needs []need, rooms []room) bool {
	if len(needs) == 0 {
		return true
	}
	n := needs[0]
	for i := range rooms {
		if n.node >= 0 && n.node != i || rooms[i].cpus < n.cpus || rooms[i].cards < n.cards {
			continue
		}
		rooms[i].cpus -= n.cpus
		rooms[i].cards -= n.cards
		ok := fit(needs[1:], rooms)
		rooms[i].cpus += n.cpus
		rooms[i].cards += n.cards
		if ok {
			return true
		}
	}
	return false
}

// starts simulates one gang on empty nodes, and reports whether all of its members are placed. It is an error that some
// are.
func starts(t *testing.T, needs []need, rooms []room) bool {
	t.Helper()
	var in strings.Builder
	for i, r := range rooms {
		in.WriteString(r.write(i))
	}
	for i, n := range needs {
		in.WriteString(n.write(fmt.Sprintf("m%02d", i), len(needs)))
	}
	r, _ := simulate(t, in.String(), "-")
	placed := 0
	for _, p := range r.Pods {
		if p.State == Scheduled {
			placed++
		}
	}
	if placed != 0 && placed != len(needs) {
		t.Fatalf("%d of %d members of a gang are placed", placed, len(needs))
	}
	return placed > 0
}

// TestAGangThatFitsAnEmptyClusterDoesNotWaitForEver: whatever the order of its members' names, sizes and nodes.
func TestAGangThatFitsAnEmptyClusterDoesNotWaitForEver(t *testing.T) {
	for name, c := range map[string]struct {
		needs []need
		rooms []room
	}{
		"the largest member is the last": {[]need{{2, 0, -1}, {2, 0, -1}, {4, 0, -1}}, []room{{4, 0}, {4, 0}}},
		"the largest is in the middle":   {[]need{{1, 0, -1}, {5, 0, -1}, {2, 0, -1}, {4, 0, -1}}, []room{{6, 0}, {6, 0}}},
		"one member wants all cards of a node": {
			[]need{{1, 1, -1}, {1, 1, -1}, {1, 1, -1}, {1, 1, -1}, {1, 4, -1}}, []room{{8, 4}, {8, 4}},
		},
		"the last one selects its node": {[]need{{3, 0, -1}, {3, 0, -1}, {1, 0, 0}}, []room{{4, 0}, {6, 0}}},
		"largest first is wrong":        {[]need{{4, 0, -1}, {3, 0, -1}, {3, 0, -1}, {2, 0, -1}}, []room{{6, 0}, {6, 0}}},
		"CPUs and cards pull apart": {
			[]need{{4, 0, -1}, {1, 2, -1}, {4, 0, -1}, {3, 2, -1}}, []room{{8, 2}, {5, 2}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if !fit(c.needs, c.rooms) {
				t.Fatal("the case does not fit")
			}
			if !starts(t, c.needs, c.rooms) {
				t.Error("the gang waits")
			}
		})
	}
}

// TestASmallGangStartsWhereBruteForceFitsIt: at most six members on at most five nodes.
func TestASmallGangStartsWhereBruteForceFitsIt(t *testing.T) {
	fitting := 0
	rapid.Check(t, func(rt *rapid.T) {
		needs, rooms := drawGang(rt, 6, 5)
		want := fit(needs, rooms)
		if want {
			fitting++
		}
		if got := starts(t, needs, rooms); got != want {
			rt.Fatalf("it starts: %t, want %t: %v on %v", got, want, needs, rooms)
		}
	})
	if fitting < 20 && !testing.Short() {
		t.Errorf("%d gangs fit: too few", fitting)
	}
}

func drawGang(t *rapid.T, members, nodes int) (needs []need, rooms []room) {
	for range rapid.IntRange(nodes/2, nodes).Draw(t, "nodes") {
		rooms = append(rooms, room{rapid.IntRange(2, 10).Draw(t, "CPUs"), rapid.IntRange(0, 4).Draw(t, "cards")})
	}
	for range rapid.IntRange(members/2, members).Draw(t, "members") {
		n := need{
			rapid.IntRange(1, 5).Draw(t, "CPUs asked"),
			rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "cards asked"),
			-1,
		}
		if rapid.IntRange(0, 4).Draw(t, "selects") == 0 {
			n.node = rapid.IntRange(0, len(rooms)-1).Draw(t, "node")
		}
		needs = append(needs, n)
	}
	return needs, rooms
}

// TestFewLargerGangsThatFitWait: gangs that ask for three quarters of the CPUs of eight nodes, in random order of names. Their members are more
// than are searched for exactly. docs/reference/gang.md has the share that waits although it would fit.
func TestFewLargerGangsThatFitWait(t *testing.T) {
	gangs, waiting := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		var needs []need
		var rooms []room
		for i := range 8 {
			left := room{rapid.IntRange(4, 16).Draw(rt, "CPUs"), rapid.IntRange(0, 4).Draw(rt, "cards")}
			rooms = append(rooms, left)
			for most := left.cpus / 4; left.cpus > most; { // a quarter of the CPUs remains free
				n := need{rapid.IntRange(1, left.cpus-most).Draw(rt, "CPUs asked"), 0, -1}
				if n.cards = rapid.IntRange(0, left.cards).Draw(rt, "cards asked"); rapid.IntRange(0, 9).
					Draw(rt, "selects") ==
					0 {
					n.node = i
				}
				left.cpus, left.cards = left.cpus-n.cpus, left.cards-n.cards
				needs = append(needs, n)
			}
		}
		needs = rapid.Permutation(needs).Draw(rt, "by name")
		if gangs++; !starts(t, needs, rooms) {
			waiting++
		}
	})
	t.Logf("%d of %d gangs wait although they would fit", waiting, gangs)
	if 2*waiting > gangs {
		t.Errorf("%d of %d gangs wait, want at most half of them", waiting, gangs)
	}
}
