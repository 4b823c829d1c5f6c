package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// driver is what a DRA driver publishes for a node.
type driver struct {
	devices, placed, cards int
	cpus                   bool
	// slices has the newest slices of each pool, expected how many the pool should have.
	slices, expected map[string]int64
}

// claims reports DRA drivers of the node whose devices are not allocated or not aligned, and cards with two holders.
func (v *NodeView) claims() (out []Finding) {
	if v.ClaimsUnknown != nil {
		return []Finding{unknown("resourceslices.resource.k8s.io", "%v", v.ClaimsUnknown)}
	}
	drivers := v.drivers()
	for _, name := range slices.Sorted(maps.Keys(drivers)) {
		d := drivers[name]
		f := ok("driver "+name, "%s", view.Count(d.devices, "device"))
		var broken []string
		for _, pool := range slices.Sorted(maps.Keys(d.slices)) {
			if d.slices[pool] != d.expected[pool] {
				broken = append(broken, fmt.Sprintf("pool %s has %d of %d ResourceSlices", pool, d.slices[pool],
					d.expected[pool]))
			}
		}
		follows := v.Device != nil && v.Device.Annotations[annotation.DeviceModeKey] == annotation.DeviceFollow
		switch {
		case len(broken) > 0:
			f.Found += ", " + strings.Join(broken, ", ")
			f = f.Because(Warn, "no device of such a pool is allocated", "see the log of the driver's pod on the node")
		case d.cards > 0 && follows:
			f.Found += fmt.Sprintf(", %d of them cards of the node's Device", d.cards)
			f = f.Because(Warn, "the device plugin can allocate a card that a claim has: it does not know claims",
				"let the driver or the device plugin serve the cards, not both")
		case d.cpus:
			f = f.Because(Warn, "the driver pins CPUs, and so does Tenon for pods with exclusive CPUs",
				"request exclusive CPUs on this node in one way only")
		case d.devices > 0 && d.placed == 0:
			f.Found += ", none with a known NUMA node"
			f = f.Because(Warn, "devices of claims are not aligned with the CPUs of their pods",
				"use a version of the driver that publishes numaNode, or run the agent, which reports cards by uuid "+
					"or PCI address")
		}
		out = append(out, f)
	}
	for _, text := range v.Twice {
		out = append(out, ok("resourceclaims.resource.k8s.io", "%s", text).Because(Fail,
			"two pods use one card", "delete one of the two, and let one program allocate the card"))
	}
	return out
}

// drivers returns what drivers publish for the node, by name.
func (v *NodeView) drivers() map[string]*driver {
	newest := map[string]int64{}
	pool := func(s *resourcev1.ResourceSlice) string { return s.Spec.Driver + "/" + s.Spec.Pool.Name }
	for i := range v.Slices {
		newest[pool(&v.Slices[i])] = max(newest[pool(&v.Slices[i])], v.Slices[i].Spec.Pool.Generation)
	}
	all := map[string]*driver{}
	for i := range v.Slices {
		s := &v.Slices[i]
		if ptr.Deref(s.Spec.NodeName, "") != v.Node.Name || s.Spec.Pool.Generation != newest[pool(s)] {
			continue
		}
		d := cmp.Or(all[s.Spec.Driver], &driver{slices: map[string]int64{}, expected: map[string]int64{}})
		all[s.Spec.Driver] = d
		d.slices[s.Spec.Pool.Name]++
		d.expected[s.Spec.Pool.Name] = s.Spec.Pool.ResourceSliceCount
		sites, cards := convert.SitesOf(s, v.Node.Name, v.Account)
		for j := range sites {
			d.devices++
			if sites[j].Nodes != 0 {
				d.placed++
			}
			if cards[j] >= 0 {
				d.cards++
			}
		}
		for j := range s.Spec.Devices {
			for name := range s.Spec.Devices[j].Attributes {
				local := string(name)[strings.LastIndexByte(string(name), '/')+1:]
				d.cpus = d.cpus || local == "cpuID" || local == "numCPUs"
			}
		}
	}
	return all
}
