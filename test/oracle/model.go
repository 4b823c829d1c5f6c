package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// model is our side of a case.
type model struct {
	machine *topo.Machine
	node    *kubelet.Node
	state   *kubelet.State
	devices map[string]hint.Mask // NUMA nodes of a device by resource and id
	// aligns: there is a topology policy, so containers have merged hints.
	aligns bool
	// trace: the kubelet's answers have its hint lists.
	trace bool
	// reports: each admission is fed back as a report, else as predicted where the prediction held. told: one was.
	reports, told bool
	running       []*Pod // in the order of their admission
}

// newModel builds the model of a machine whose kubelet runs the given minor and keeps the CPUs of reserved. It returns
// the reason for which the model refuses the machine.
func newModel(minor string, m *Machine, reserved string) (*model, why.Reason, error) {
	spec := topo.Spec{}
	for _, n := range m.NUMA {
		z := topo.NUMASpec{ID: n.ID, MemoryBytes: n.Memory, Hugepages: map[int64]int64{}}
		for _, v := range n.Distances {
			z.Distances = append(z.Distances, int(v))
		}
		for size, pages := range n.Hugepages {
			z.Hugepages[size*kib] = pages
		}
		for _, k := range n.Cores {
			for _, id := range k.Threads {
				spec.CPUs = append(spec.CPUs, topo.CPUSpec{ID: id, Core: k.ID, L3: k.L3, Die: -1, Socket: k.Socket, NUMA: n.ID})
			}
		}
		spec.NUMA = append(spec.NUMA, z)
	}
	machine, err := topo.New(spec)
	if err != nil {
		return nil, why.Reason{}, err
	}
	out := &model{machine: machine, devices: map[string]hint.Mask{}}
	config, err := out.config(minor, m, reserved)
	if err != nil {
		return nil, why.Reason{}, err
	}
	inventory, err := out.inventory(m)
	if err != nil {
		return nil, why.Reason{}, err
	}
	node, reason := kubelet.NewNode(machine, config, inventory)
	if reason.Code != why.None {
		return nil, reason, nil
	}
	out.node, out.state = node, node.Empty()
	out.trace = m.Trace
	out.aligns = config.Topology.Policy != hint.None
	return out, why.Reason{}, nil
}

func (o *model) config(minor string, m *Machine, reserved string) (kubelet.Config, error) {
	var c kubelet.Config
	var ok bool
	if c.Model, ok = kubelet.ModelOf("v" + minor + ".0"); !ok {
		return c, fmt.Errorf("no model of kubelet %s", minor)
	}
	set, unknown, err := o.machine.ParseList(reserved)
	if err != nil {
		return c, fmt.Errorf("reserved CPUs: %w", err)
	}
	if len(unknown) > 0 {
		return c, fmt.Errorf("reserved CPUs %q: the machine has no %v", reserved, unknown)
	}
	c.CPU = kubelet.CPU{
		Static:                m.CPUPolicy == "static",
		FullPCPUsOnly:         m.CPUOptions["full-pcpus-only"] == "true",
		DistributeAcrossNUMA:  m.CPUOptions["distribute-cpus-across-numa"] == "true",
		DistributeAcrossCores: m.CPUOptions["distribute-cpus-across-cores"] == "true",
		AlignBySocket:         m.CPUOptions["align-by-socket"] == "true",
		StrictReservation:     m.CPUOptions["strict-cpu-reservation"] == "true",
		AlignL3:               m.CPUOptions["prefer-align-cpus-by-uncorecache"] == "true",
		Reserved:              set,
	}
	c.Memory.Static = m.MemoryPolicy == "Static"
	if c.Topology.Policy, ok = hint.ParsePolicy(m.TopologyPolicy); !ok {
		return c, fmt.Errorf("topology policy %q", m.TopologyPolicy)
	}
	c.Topology.PodScope = m.TopologyScope == "pod"
	c.Topology.PreferClosest = m.TopologyOptions["prefer-closest-numa-nodes"] == "true"
	if most := m.TopologyOptions["max-allowable-numa-nodes"]; most != "" {
		if _, err := fmt.Sscan(most, &c.Topology.MaxNodes); err != nil {
			return c, fmt.Errorf("max-allowable-numa-nodes %q: %w", most, err)
		}
	}
	return c, nil
}

func (o *model) inventory(m *Machine) (kubelet.Inventory, error) {
	var inv kubelet.Inventory
	for _, n := range m.NUMA {
		z := kubelet.Zone{Allocatable: map[string]int64{"memory": free(n) - n.Reserved["memory"]}}
		for size, pages := range n.Hugepages {
			z.Allocatable[hugepages(size)] = pages*size*kib - n.Reserved[hugepages(size)]
		}
		inv.Zones = append(inv.Zones, z)
	}
	for _, v := range m.Devices {
		mask, err := o.mask(v.Nodes)
		if err != nil {
			return inv, err
		}
		o.devices[v.Resource+" "+v.ID] = mask
		i := slices.IndexFunc(inv.Devices, func(s kubelet.DeviceSet) bool { return s.Resource == v.Resource && s.Nodes == mask })
		if i < 0 {
			i = len(inv.Devices)
			inv.Devices = append(inv.Devices, kubelet.DeviceSet{Resource: v.Resource, Nodes: mask})
		}
		inv.Devices[i].Registered++
		if !v.Unhealthy {
			inv.Devices[i].Healthy++
		}
	}
	slices.SortFunc(inv.Devices, func(a, b kubelet.DeviceSet) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Nodes, b.Nodes))
	})
	return inv, nil
}

// mask is the dense mask of NUMA ids.
func (o *model) mask(ids []int) (hint.Mask, error) {
	var m hint.Mask
	for _, id := range ids {
		i, ok := o.machine.NUMAByID(id)
		if !ok || i >= hint.MaxNodes {
			return 0, fmt.Errorf("no NUMA node %d", id)
		}
		m |= 1 << i
	}
	return m, nil
}

// ids are the NUMA ids of a dense mask.
func (o *model) ids(m hint.Mask) []int {
	var ids []int
	for i := range o.machine.NumNUMA() {
		if m.Has(i) {
			ids = append(ids, o.machine.NUMAID(topo.NUMA(i)))
		}
	}
	return ids
}

// pod is the pod as the model reads it.
func (o *model) pod(p *Pod) *kubelet.Pod {
	out := &kubelet.Pod{UID: p.UID, Guaranteed: p.Guaranteed, PodLevel: p.PodLevel}
	roles := map[string]kubelet.Role{RoleApp: kubelet.App, RoleInit: kubelet.Init, RoleSidecar: kubelet.Sidecar}
	for _, k := range p.Containers {
		c := kubelet.Container{Name: k.Name, Role: roles[k.Role], Memory: amounts(k.Memory), Devices: amounts(k.Devices)}
		if k.CPU%1000 == 0 {
			c.CPUs = int(k.CPU / 1000)
		}
		out.Containers = append(out.Containers, c)
	}
	return out
}

func amounts(m map[string]int64) []kubelet.Amount {
	var out []kubelet.Amount
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if m[name] > 0 {
			out = append(out, kubelet.Amount{Name: name, N: m[name]})
		}
	}
	return out
}

// placement reads what the kubelet gave.
func (o *model) placement(given []Given) (kubelet.Placement, error) {
	var out kubelet.Placement
	for _, g := range given {
		p := kubelet.Given{Container: g.Name, Hint: hint.Hint{Preferred: g.Preferred}}
		var err error
		if p.Hint.Mask, err = o.mask(g.Mask); err != nil {
			return nil, err
		}
		if p.CPUs, _, err = o.machine.ParseList(g.CPUs); err != nil {
			return nil, err
		}
		for _, b := range g.Memory {
			nodes, err := o.mask(b.Nodes)
			if err != nil {
				return nil, err
			}
			p.Memory = append(p.Memory, kubelet.Block{Type: b.Type, Nodes: nodes, Bytes: b.Bytes})
		}
		for resource, list := range g.Devices {
			for _, id := range list {
				nodes, ok := o.devices[resource+" "+id]
				if !ok {
					return nil, fmt.Errorf("no device %s of %s", id, resource)
				}
				i := slices.IndexFunc(p.Devices, func(d kubelet.Devices) bool { return d.Resource == resource && d.Nodes == nodes })
				if i < 0 {
					i = len(p.Devices)
					p.Devices = append(p.Devices, kubelet.Devices{Resource: resource, Nodes: nodes})
				}
				p.Devices[i].Count++
			}
		}
		sortDevices(p.Devices)
		out = append(out, p)
	}
	return out, nil
}

func sortDevices(list []kubelet.Devices) {
	slices.SortFunc(list, func(a, b kubelet.Devices) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Nodes, b.Nodes))
	})
}

// prefer writes a predicted choice of devices into the request, for the plugin to take it where it may.
func (o *model) prefer(p *Pod, pl kubelet.Placement) *Pod {
	out := *p
	out.Containers = slices.Clone(p.Containers)
	for i := range out.Containers {
		for _, g := range pl {
			if g.Container != out.Containers[i].Name {
				continue
			}
			prefer := map[string][]Share{}
			for _, d := range g.Devices {
				prefer[d.Resource] = append(prefer[d.Resource], Share{Nodes: o.ids(d.Nodes), Count: d.Count})
			}
			out.Containers[i].Prefer = prefer
		}
	}
	return &out
}
