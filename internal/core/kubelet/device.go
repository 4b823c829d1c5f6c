package kubelet

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// deviceState counts the devices that are given, by set of the node.
type deviceState []int

// free counts the devices of a set that can be given.
func (d deviceState) free(n *Node, set int) int { return max(n.sets[set].Healthy-d[set], 0) }

// add adds counts, or subtracts them with the sign -1.
func (d deviceState) add(counts deviceState, sign int) {
	for set, count := range counts {
		d[set] += sign * count
	}
}

// taken counts what a pod has by set. A container takes what finished init containers have before it takes anything
// new, so of what both have the smaller number is the same devices.
func (n *Node) taken(p *Pod, pl Placement) deviceState {
	reuse, sum := make([]int, len(n.sets)), make(deviceState, len(n.sets))
	for i := range pl {
		role := p.RoleOf(pl[i].Container)
		for _, d := range pl[i].Devices {
			set, known := n.setOf(d.Resource, d.Nodes)
			if !known || d.Count <= 0 {
				continue
			}
			again := min(reuse[set], d.Count)
			sum[set] += d.Count - again
			if role == Init {
				reuse[set] += d.Count - again
			} else {
				reuse[set] -= again
			}
		}
	}
	return sum
}

// setOf finds the set that a report is about. Nodes that no set has go to the first set of the resource that shares one
// of them, else to the first: counted somewhere beats not counted.
func (n *Node) setOf(resource string, nodes topo.NodeSet) (int, bool) {
	k, known := n.kindOf(resource)
	if !known {
		return 0, false
	}
	first, sets := n.kinds[k].first, n.sets[n.kinds[k].first:n.kinds[k].last]
	at := slices.IndexFunc(sets, func(d DeviceSet) bool { return d.Nodes == nodes })
	if at < 0 {
		at = slices.IndexFunc(sets, func(d DeviceSet) bool { return d.Nodes&nodes != 0 })
	}
	return first + max(at, 0), true
}

// deviceAdmission is one pod on its way through the device manager, container by container.
type deviceAdmission struct {
	node *Node
	// given is what all pods have, with what the containers before have got. It is a copy, and changed in place.
	given deviceState
	// reuse is what finished init containers of the pod leave to later ones, by set.
	reuse []int
	// free and counts are working memory: available returns free.
	counts []int
	free   []int
	room   *room // of the hints
	// open are the resources of which the pod was given devices that may be others.
	open []string
}

// hints is the list for n devices of a kind, of which each set has so many available and reusable: nil when the manager
// has no preference, empty when no NUMA nodes are feasible.
func (a *deviceAdmission) hints(k *kind, available, reuse []int, n int64) hint.List {
	if k.hosts == 0 {
		return nil
	}
	sets := a.node.sets[k.first:k.last]
	list, _ := a.room.list(k.walked, func(m topo.NodeSet) bool {
		capacity := 0
		for i := range sets {
			if sets[i].Nodes&m != 0 {
				capacity += sets[i].Registered
			}
		}
		return int64(capacity) >= n
	}, func(m topo.NodeSet) bool {
		matching := 0
		for i := range sets {
			if sets[i].Nodes&m != 0 {
				matching += available[i] + reuse[i]
			} else if sets[i].Nodes != 0 && reuse[i] > 0 {
				return false
			}
		}
		return int64(matching) >= n
	})
	return list
}

// keep is the list for n devices of a kind of which the pod or container has some already.
func (a *deviceAdmission) keep(k *kind, has []int, n int64) hint.List {
	sum := 0
	for _, count := range has {
		sum += count
	}
	if k.hosts != 0 && int64(sum) != n {
		return hint.List{}
	}
	return a.hints(k, has, make([]int, len(has)), n)
}

// available counts the devices of a kind that can be given, by set, until it is called again.
func (a *deviceAdmission) available(k *kind) []int {
	a.free = a.free[:0]
	for set := k.first; set < k.last; set++ {
		a.free = append(a.free, a.given.free(a.node, set))
	}
	return a.free
}

// allocate gives a container, as g says, n devices of a kind: reusable ones, then those on the nodes of its hint, then
// others, at last those without topology.
func (a *deviceAdmission) allocate(k *kind, n int64, g *Given) why.Reason {
	available := a.available(k)
	free := int64(0)
	for _, count := range available {
		free += int64(count)
	}
	sets := len(available)
	counts := a.counts[:4*sets]
	clear(counts)
	need := deviceTaking{node: a.node, kind: k, left: n, taken: counts[:sets], fit: counts[sets : 2*sets]}
	if k.healthy == 0 {
		return devicesRefused(why.DevicesUnhealthy, n, 0)
	}
	anywhere := func(topo.NodeSet) bool { return true }
	reusable, reused := counts[2*sets:3*sets], counts[3*sets:]
	copy(reusable, a.reuse[k.first:k.last])
	need.from(reusable, anywhere)
	if free < need.left {
		return devicesRefused(why.DevicesShort, need.left, free)
	}
	copy(reused, need.taken)
	if m := g.Hint.Mask; m == 0 || k.hosts == 0 {
		need.from(available, anywhere)
	} else {
		need.from(available, func(nodes topo.NodeSet) bool { return nodes&m != 0 })
		// A plugin with preferences chooses among all that are left; else those with a topology go first.
		need.choose(available)
		need.from(available, func(nodes topo.NodeSet) bool { return nodes != 0 })
		need.from(available, anywhere)
	}
	if need.open {
		a.open = append(a.open, k.resource)
	}
	for i, count := range need.taken {
		a.given[k.first+i] += count - reused[i]
	}
	for i, count := range need.taken {
		if count > 0 {
			g.Devices = append(g.Devices, Devices{k.resource, a.node.sets[k.first+i].Nodes, count, need.open})
		}
	}
	return why.Reason{}
}

// devicesRefused returns the refusal of a number of devices.
func devicesRefused(cause why.AllocationCause, asked, free int64) why.Reason {
	return why.Reason{Code: why.KubeletAdmission, Unit: why.Count, Asked: asked, Free: free, Extra: int64(cause)}
}

// keepReusable records which devices an init container leaves to later containers, or which of these a container uses.
func (a *deviceAdmission) keepReusable(role Role, devices []Devices) {
	for _, d := range devices {
		set, _ := a.node.setOf(d.Resource, d.Nodes)
		if role == Init {
			a.reuse[set] = max(a.reuse[set], d.Count)
		} else {
			a.reuse[set] = max(a.reuse[set]-d.Count, 0)
		}
	}
}

// deviceTaking chooses devices of one resource for one container, set by set.
type deviceTaking struct {
	node  *Node
	kind  *kind
	left  int64
	taken []int
	fit   []int // of each set in the step under way
	open  bool  // some step had a choice between sets
}

// choose notes whether taking from the stock leaves a choice between sets.
func (d *deviceTaking) choose(stock []int) {
	choices, sum := 0, int64(0)
	for _, n := range stock {
		if n > 0 {
			choices++
			sum += int64(n)
		}
	}
	d.open = d.open || d.left > 0 && d.left < sum && choices > 1
}

// from takes from the sets that suit, in ascending order of their nodes.
func (d *deviceTaking) from(stock []int, suits func(topo.NodeSet) bool) {
	if d.left == 0 {
		return
	}
	for i := range stock {
		if d.fit[i] = 0; suits(d.node.sets[d.kind.first+i].Nodes) {
			d.fit[i] = stock[i]
		}
	}
	d.choose(d.fit)
	for i := range d.fit {
		n := int(min(int64(d.fit[i]), d.left))
		stock[i] -= n
		d.taken[i] += n
		d.left -= int64(n)
	}
}
