package oracle

import (
	"cmp"
	"errors"
	"fmt"
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
	devices map[string]topo.NodeSet // NUMA nodes of a device by resource and id
	// aligns: there is a topology policy, so containers have merged hints.
	aligns bool
	// stubborn: device plugins do not take what the model predicts.
	stubborn bool
	// trace: the kubelet's answers have its hint lists.
	trace bool
	// reports: each admission is fed back as a report, else as predicted where the prediction held.
	// external: at least one was fed back as a report.
	reports, external bool
	running           []*Pod // in the order of their admission
	again             bool   // the kubelet was restarted, and admits the pods that ran
}

// errNeverStarts: the model says that the kubelet ends when it starts, because it cannot reserve the CPUs of its
// configuration.
var errNeverStarts = errors.New("the kubelet cannot reserve its CPUs")

// newModel builds the model of a machine whose kubelet runs the given minor. It returns the reason for which the model
// refuses the machine, and errNeverStarts for a kubelet that never serves.
func newModel(minor string, m *Machine) (*model, why.Reason, error) {
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
				spec.CPUs = append(spec.CPUs, topo.CPUSpec{
					ID: id, Core: k.ID, L3: k.L3, Socket: k.Socket,
					NUMA: n.ID,
				})
			}
		}
		spec.NUMA = append(spec.NUMA, z)
	}
	machine, err := topo.New(spec)
	if err != nil {
		return nil, why.Reason{}, err
	}
	out := &model{machine: machine, devices: map[string]topo.NodeSet{}}
	config, err := out.config(minor, m)
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
	out.trace, out.stubborn = m.Trace, m.Stubborn
	out.aligns = config.Topology.Policy != hint.None
	return out, why.Reason{}, nil
}

func (o *model) config(minor string, m *Machine) (kubelet.Config, error) {
	var c kubelet.Config
	var ok bool
	if c.Model, ok = kubelet.ModelOf("v" + minor + ".0"); !ok {
		return c, fmt.Errorf("no model of kubelet %s", minor)
	}
	if m.CPUPolicy == "static" {
		c.CPU = kubelet.StaticCPU(m.CPUOptions)
		if err := o.reserve(&c, m); err != nil {
			return c, err
		}
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

// reserve sets the CPUs that the kubelet keeps: those of reservedSystemCPUs, else as many as are reserved by amount.
func (o *model) reserve(c *kubelet.Config, m *Machine) error {
	if m.ReservedIDs == "" {
		var starts bool
		if c.CPU.Reserved, starts = kubelet.ReservedCPUs(o.machine, *c, m.ReservedCPU); !starts {
			return errNeverStarts
		}
		return nil
	}
	set, unknown, err := o.machine.ParseList(m.ReservedIDs)
	if err != nil {
		return fmt.Errorf("reserved CPUs: %w", err)
	}
	if len(unknown) > 0 {
		return fmt.Errorf("reserved CPUs %q: the machine has no %v", m.ReservedIDs, unknown)
	}
	c.CPU.Reserved = set
	return nil
}

func (o *model) inventory(m *Machine) (kubelet.Inventory, error) {
	var inv kubelet.Inventory
	for _, n := range m.NUMA {
		z := map[string]int64{"memory": free(n) - n.Reserved["memory"]}
		for size, pages := range n.Hugepages {
			z[hugepages(size)] = pages*size*kib - n.Reserved[hugepages(size)]
		}
		inv.Zones = append(inv.Zones, z)
	}
	for _, v := range m.Devices {
		mask, err := o.mask(v.Nodes)
		if err != nil {
			return inv, err
		}
		o.devices[v.Resource+" "+v.ID] = mask
		i := slices.IndexFunc(inv.Devices, func(s kubelet.DeviceSet) bool {
			return s.Resource == v.Resource &&
				s.Nodes == mask
		})
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

// reserved are the CPUs that the kubelet keeps.
func (o *model) reserved() string {
	c := o.node.Config()
	return o.machine.FormatList(c.CPU.Reserved)
}

// mask is the set of the nodes with NUMA ids.
func (o *model) mask(ids []int) (topo.NodeSet, error) {
	var m topo.NodeSet
	for _, id := range ids {
		i, ok := o.machine.NUMAByID(id)
		if !ok || i >= topo.MaxNodes {
			return 0, fmt.Errorf("no NUMA node %d", id)
		}
		m |= 1 << i
	}
	return m, nil
}

// ids are the NUMA ids of a set of nodes.
func (o *model) ids(s topo.NodeSet) []int { return o.machine.NodeIDs(s) }

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
				i := slices.IndexFunc(p.Devices, func(d kubelet.Devices) bool {
					return d.Resource == resource &&
						d.Nodes == nodes
				})
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

// prefer is a predicted choice of devices, for the plugin to take where it may.
func (o *model) prefer(pl kubelet.Placement) map[string]map[string][]Share {
	out := map[string]map[string][]Share{}
	for _, g := range pl {
		out[g.Container] = map[string][]Share{}
		for _, d := range g.Devices {
			out[g.Container][d.Resource] = append(out[g.Container][d.Resource],
				Share{Nodes: o.ids(d.Nodes), Count: d.Count})
		}
	}
	return out
}
