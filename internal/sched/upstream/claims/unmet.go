package claims

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/core/claim"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// notAllocated is what the plugin says of a node with too few free devices, and poolInvalid what it says first of a
// node with too few in valid pools.
const (
	notAllocated = "cannot allocate all claims"
	poolInvalid  = "invalid resource pools were encountered"
)

// unmet is the refusal of a node with too few free devices. What keeps devices from the requests is read when it is
// asked for: most refusals are only counted.
type unmet struct {
	*plan
	pod  *corev1.Pod
	node *corev1.Node
	text string // of the plugin
}

// explained adds to the refusal of a node what it can tell.
func (p *plan) explained(status *fwk.Status, pod *corev1.Pod, node *corev1.Node) *fwk.Status {
	text := status.Message()
	if status.IsRejected() && (text == notAllocated || strings.HasPrefix(text, poolInvalid)) {
		return fwk.NewStatus(status.Code()).WithError(&unmet{p, pod, node, text})
	}
	return status
}

// Error returns the text of the plugin, which names no pool, with the pools of the node that are not valid.
func (u *unmet) Error() string {
	if u.text == notAllocated {
		return u.text
	}
	u.count()
	names := sets.New[string]()
	for _, s := range u.slices {
		if u.pools[poolOf(s)].isBroken() && u.isHere(s.Spec.NodeName, s.Spec.AllNodes, s.Spec.NodeSelector) {
			names.Insert(strings.TrimSuffix(poolOf(s), "/"))
		}
	}
	return poolInvalid + ": " + strings.Join(sets.List(names), ", ")
}

// Finding returns the reason, with a clause for each request.
func (u *unmet) Finding() why.Finding {
	u.count()
	var requests []claim.Request
	var constraints []string
	held := u.heldOn(u.node.Name)
	open := slices.DeleteFunc(slices.Clone(u.claims), func(c *resourcev1.ResourceClaim) bool {
		return c.Status.Allocation != nil
	})
	if own := u.extended(u.pod, u.node); own != nil {
		open = append(open, own)
	}
	for _, c := range open {
		for i := range c.Spec.Devices.Requests {
			requests = append(requests, u.requests(c, &c.Spec.Devices.Requests[i], held)...)
		}
		for i := range c.Spec.Devices.Constraints {
			if name := c.Spec.Devices.Constraints[i].MatchAttribute; name != nil {
				constraints = append(constraints, "matchAttribute "+string(*name))
			} else if name := c.Spec.Devices.Constraints[i].DistinctAttribute; name != nil {
				constraints = append(constraints, "distinctAttribute "+string(*name))
			}
		}
	}
	f := why.Finding{Reason: why.Reason{Code: why.InsufficientClaimDevices, Unit: why.Count}}
	for i := range requests {
		if slices.ContainsFunc(requests[i].Devices, func(d claim.Barred) bool { return d.Bar == claim.HeldOutside }) {
			f.Code = why.ClaimDevicesHeld
		}
	}
	f.Detail, f.Asked, f.Free = claim.Unmet(requests, constraints)
	return f
}

// heldOn returns the devices of a node whose cards pods have, with a pod each.
func (p *plan) heldOn(node string) map[string]string {
	held := map[string]string{}
	b, _ := p.dra.(*Books)
	if i, ok := p.dra.(*Imagined); ok {
		b = i.books
	}
	if b != nil {
		names, pods := b.Held(node)
		for i := range names {
			held[names[i]] = pods[i]
		}
	}
	return held
}

// census is what refusals of a pod read of all claims and slices.
type census struct {
	// owners has the claim of each device that is allocated or promised.
	owners map[structured.DeviceID]string
	pools  map[string]*pool
}

// pool is a pool of devices by its newest slices.
type pool struct {
	generation, slices, expected int64
	names                        sets.Set[string]
	invalid                      bool // two devices have one name, or one uses a counter that the pool lacks
	// left is what is left of each counter, by SET/COUNTER.
	left map[string]resource.Quantity
}

func poolOf(s *resourcev1.ResourceSlice) string {
	return convert.DeviceName(s.Spec.Driver, s.Spec.Pool.Name, "")
}

// isBroken reports whether no device of the pool can be allocated.
func (p *pool) isBroken() bool { return p.invalid || p.slices != p.expected }

// count reads the claims and slices once.
func (p *plan) count() {
	p.read()
	p.counted.Do(func() {
		p.owners, p.pools = map[structured.DeviceID]string{}, map[string]*pool{}
		all, _ := p.dra.ResourceClaims().List() // without it, owners are not named
		for _, c := range all {
			a := cmp.Or(c.Status.Allocation, p.dra.ResourceClaims().GetPendingAllocation(c.UID))
			for i := 0; a != nil && i < len(a.Devices.Results); i++ {
				if d := &a.Devices.Results[i]; !ptr.Deref(d.AdminAccess, false) {
					p.owners[structured.MakeDeviceID(d.Driver, d.Pool, d.Device)] = c.Namespace + "/" + c.Name
				}
			}
		}
		for _, s := range p.slices {
			p.pool(s)
		}
		for _, s := range p.slices {
			p.useUp(s)
		}
	})
}

// pool adds a slice to its pool.
func (c *census) pool(s *resourcev1.ResourceSlice) {
	key := poolOf(s)
	if c.pools[key] == nil || c.pools[key].generation < s.Spec.Pool.Generation {
		c.pools[key] = &pool{
			generation: s.Spec.Pool.Generation, names: sets.New[string](), left: map[string]resource.Quantity{},
		}
	}
	in := c.pools[key]
	if in.generation > s.Spec.Pool.Generation {
		return
	}
	in.slices, in.expected = in.slices+1, s.Spec.Pool.ResourceSliceCount
	for i := range s.Spec.Devices {
		in.invalid = in.invalid || in.names.Has(s.Spec.Devices[i].Name)
		in.names.Insert(s.Spec.Devices[i].Name)
	}
	for _, set := range s.Spec.SharedCounters {
		for name, counter := range set.Counters {
			in.left[set.Name+"/"+name] = counter.Value.DeepCopy()
		}
	}
}

// useUp takes what the allocated devices of a slice use from the counters of their pool.
func (p *plan) useUp(s *resourcev1.ResourceSlice) {
	in := p.pools[poolOf(s)]
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		if in.generation != s.Spec.Pool.Generation {
			continue
		}
		taken := p.taken.Has(structured.MakeDeviceID(s.Spec.Driver, s.Spec.Pool.Name, d.Name))
		for _, use := range d.ConsumesCounters {
			for name, counter := range use.Counters {
				left, known := in.left[use.CounterSet+"/"+name]
				if in.invalid = in.invalid || !known; taken {
					left.Sub(counter.Value)
					in.left[use.CounterSet+"/"+name] = left
				}
			}
		}
	}
}

// claimsOf returns the claims of a pod.
func claimsOf(dra fwk.SharedDRAManager, pod *corev1.Pod) (list []*resourcev1.ResourceClaim) {
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue
		}
		if own, err := dra.ResourceClaims().Get(pod.Namespace, *name); err == nil {
			list = append(list, own)
		}
	}
	return list
}

// requests returns a request, or its alternatives, with the devices of the node.
func (u *unmet) requests(c *resourcev1.ResourceClaim, r *resourcev1.DeviceRequest, held map[string]string,
) (list []claim.Request) {
	add := func(alternative string, e *resourcev1.ExactDeviceRequest) {
		out := claim.Request{Claim: c.Name, Name: r.Name, Alternative: alternative, Class: e.DeviceClassName}
		if e.AllocationMode != resourcev1.DeviceAllocationModeAll {
			out.Count = e.Count
		}
		if class, err := u.dra.DeviceClasses().Get(e.DeviceClassName); err == nil {
			for _, s := range u.slices {
				out.Devices = append(out.Devices, u.ofClass(s, class, e, held)...)
			}
		}
		list = append(list, out)
	}
	if r.Exactly != nil {
		add("", r.Exactly)
	}
	for i := range r.FirstAvailable {
		sub := &r.FirstAvailable[i]
		add(sub.Name, &resourcev1.ExactDeviceRequest{
			DeviceClassName: sub.DeviceClassName, Selectors: sub.Selectors, AllocationMode: sub.AllocationMode,
			Count: sub.Count, Tolerations: sub.Tolerations, Capacity: sub.Capacity,
		})
	}
	return list
}

// ofClass returns the devices of a slice that the node has of a class, with what keeps each from a request.
func (u *unmet) ofClass(s *resourcev1.ResourceSlice, class *resourcev1.DeviceClass, r *resourcev1.ExactDeviceRequest,
	held map[string]string,
) (list []claim.Barred) {
	in := u.pools[poolOf(s)]
	if in.generation != s.Spec.Pool.Generation {
		return nil
	}
	each := ptr.Deref(s.Spec.PerDeviceNodeSelection, false)
	if !each && !u.isHere(s.Spec.NodeName, s.Spec.AllNodes, s.Spec.NodeSelector) {
		return nil
	}
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		if each && !u.isHere(d.NodeName, d.AllNodes, d.NodeSelector) || u.fails(s, d, class.Spec.Selectors) != "" {
			continue
		}
		id := structured.MakeDeviceID(s.Spec.Driver, s.Spec.Pool.Name, d.Name)
		list = append(list, u.bar(in, s, d, id, r, held[id.String()]))
	}
	return list
}

// isHere reports whether the node is one that a slice or a device names.
func (u *unmet) isHere(name *string, all *bool, selector *corev1.NodeSelector) bool {
	matches, err := structured.NodeMatches(u.features, u.node, ptr.Deref(name, ""), ptr.Deref(all, false), selector)
	return err == nil && matches
}

// bar returns what keeps a device from a request. holder is the pod that has its card, "" for none.
func (u *unmet) bar(in *pool, s *resourcev1.ResourceSlice, d *resourcev1.Device, id structured.DeviceID,
	r *resourcev1.ExactDeviceRequest, holder string,
) claim.Barred {
	admin := ptr.Deref(r.AdminAccess, false)
	selector, taint, short := u.fails(s, d, r.Selectors), untolerated(d, r), u.short(in, d, id, r)
	switch {
	case in.isBroken():
		return claim.Barred{Bar: claim.PoolBroken, By: poolOf(s)[:len(poolOf(s))-1]}
	case selector != "":
		return claim.Barred{Bar: claim.Unselected, By: "`" + selector + "`"}
	case taint != "":
		return claim.Barred{Bar: claim.Tainted, By: taint}
	case admin:
		return claim.Barred{}
	case holder != "" && u.owners[id] == "":
		return claim.Barred{Bar: claim.HeldOutside, By: holder}
	case u.state != nil && u.state.AllocatedDevices.Has(id):
		return claim.Barred{Bar: claim.Allocated, By: cmp.Or(u.owners[id], "a claim")}
	case short != "":
		return claim.Barred{Bar: claim.TooSmall, By: short}
	}
	return claim.Barred{}
}

// selectorShown is how much of a selector a text has.
const selectorShown = 80

// fails returns the first selector that a device fails, "" for none.
func (p *plan) fails(s *resourcev1.ResourceSlice, d *resourcev1.Device, selectors []resourcev1.DeviceSelector) string {
	for _, one := range selectors {
		if one.CEL == nil {
			continue
		}
		text := one.CEL.Expression
		if compiled := p.selectors.GetOrCompile(text); compiled.Error == nil {
			matches, _, err := compiled.DeviceMatches(context.Background(), cel.Device{
				Driver: s.Spec.Driver, AllowMultipleAllocations: d.AllowMultipleAllocations,
				Attributes: d.Attributes, Capacity: d.Capacity,
			})
			if err == nil && matches {
				continue
			}
		}
		if len(text) > selectorShown {
			text = fmt.Sprintf("%.*s…", selectorShown, text)
		}
		return text
	}
	return ""
}

// untolerated returns the first taint that keeps a device from a request, "" for none.
func untolerated(d *resourcev1.Device, r *resourcev1.ExactDeviceRequest) string {
	for _, taint := range d.Taints {
		tolerated := slices.ContainsFunc(r.Tolerations, func(t resourcev1.DeviceToleration) bool {
			return resourceclaim.ToleratesTaint(t, taint)
		})
		if taint.Effect != resourcev1.DeviceTaintEffectNone && !tolerated {
			return fmt.Sprintf("%s:%s", strings.TrimSuffix(taint.Key+"="+taint.Value, "="), taint.Effect)
		}
	}
	return ""
}

// short returns the first capacity or counter of which too little is left for a request, "" for none.
func (u *unmet) short(in *pool, d *resourcev1.Device, id structured.DeviceID, r *resourcev1.ExactDeviceRequest) string {
	if r.Capacity != nil {
		for _, name := range slices.Sorted(maps.Keys(r.Capacity.Requests)) {
			left, asked := d.Capacity[name].Value.DeepCopy(), r.Capacity.Requests[name]
			if u.state != nil && u.state.AggregatedCapacity[id] != nil {
				if used := u.state.AggregatedCapacity[id][name]; used != nil {
					left.Sub(*used)
				}
			}
			if asked.Cmp(left) > 0 {
				return "capacity " + string(name)
			}
		}
	}
	for _, use := range d.ConsumesCounters {
		for _, name := range slices.Sorted(maps.Keys(use.Counters)) {
			left := in.left[use.CounterSet+"/"+name]
			if asked := use.Counters[name].Value; asked.Cmp(left) > 0 {
				return "counter " + use.CounterSet + "/" + name
			}
		}
	}
	return ""
}
