package tenancy

import (
	"cmp"
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
)

// Report is what a node reports of its kubelet, and what follows from the kubelet's settings.
type Report struct {
	// Facts are the same value for as long as the node's report is the same.
	*kubelet.Facts
	// Given is sorted by UID.
	Given []Grant
	// Unattributed is true if some grant has no UID. What one pod has then depends on which other pods the node has.
	Unattributed bool
	// Imported is true if another exporter's object, whose age is unknown, replaces the report of the node's agent.
	Imported bool
}

// concerns reports whether the kubelet gives t anything; t may be nil.
func (r *Report) concerns(t *Tenant) bool { return t != nil && r.Facts.Gives(t.Pod) }

// Grant is what the node reports that its kubelet has given to a pod. A grant without UID belongs to the pod of its
// namespace and name; a grant with neither belongs to pods that the report does not identify.
type Grant struct {
	UID, Namespace, Name string
	// CPUs are the CPUs that the pod is pinned to, for a report that has nothing else of the pod.
	CPUs cpuset.Set
	// Placement is what the pod's containers have; nil if the report has CPUs alone.
	Placement kubelet.Placement
}

// Equal reports whether two grants are the same.
func (g Grant) Equal(o Grant) bool {
	return g.UID == o.UID && g.Namespace == o.Namespace && g.Name == o.Name && g.CPUs == o.CPUs &&
		g.Placement.Equal(o.Placement)
}

// SortGrants returns grants ordered by UID, stably. It returns list itself if list is ordered already.
func SortGrants(list []Grant) []Grant {
	byUID := func(a, b Grant) int { return cmp.Compare(a.UID, b.UID) }
	if !slices.IsSortedFunc(list, byUID) {
		list = slices.Clone(list)
		slices.SortStableFunc(list, byUID)
	}
	return list
}

// grantsOf returns the grants of a pod from a list that is sorted by UID.
func grantsOf(list []Grant, uid string) []Grant {
	first, _ := slices.BinarySearchFunc(list, uid, func(g Grant, uid string) int { return cmp.Compare(g.UID, uid) })
	last := first
	for last < len(list) && list[last].UID == uid {
		last++
	}
	return list[first:last]
}

// ResolveUIDs returns given, sorted by UID, where a grant that has a name and no UID has got the UID of the tenant of
// its namespace and name. Of two tenants of one name the one with the lower UID gets the grant: an exporter that
// reports no UID cannot distinguish them either. Tenants are in ascending order of UID.
func ResolveUIDs(given []Grant, tenants []*Tenant) []Grant {
	given = slices.Clone(given)
	for i := range given {
		if given[i].UID != "" || given[i].Name == "" {
			continue
		}
		if at := slices.IndexFunc(tenants, func(t *Tenant) bool {
			return t.Namespace == given[i].Namespace && t.Name == given[i].Name
		}); at >= 0 {
			given[i].UID = tenants[at].UID
		}
	}
	return SortGrants(given)
}

// UnattributedCPUs returns the CPUs that grants give to pods that the report does not identify.
func UnattributedCPUs(given []Grant) cpuset.Set {
	var cpus cpuset.Set
	for _, g := range given {
		if g.UID == "" && g.Name == "" {
			cpus.Include(&g.CPUs)
		}
	}
	return cpus
}

// unattributedDevices returns the devices that grants give to pods that the report does not identify, in a list of the
// caller's own.
func unattributedDevices(given []Grant) (devices []kubelet.Devices) {
	for _, g := range given {
		for i := 0; g.UID == "" && g.Name == "" && i < len(g.Placement); i++ {
			devices = append(devices, g.Placement[i].Devices...)
		}
	}
	return devices
}

// PinOf returns the CPUs that the node reports the kubelet to have pinned for a pod.
func (r *Report) PinOf(uid string) cpuset.Set {
	var cpus cpuset.Set
	for _, g := range grantsOf(r.Given, uid) {
		cpus.Include(&g.CPUs)
	}
	return cpus
}

// placementOf returns the placement that the node reports of a pod. It returns false for a report that is older than
// the pod's prediction, and for one that was read while the kubelet was still giving CPUs to the pod's containers, one
// after the other.
func (r *Report) placementOf(t *Tenant) (kubelet.Placement, bool) {
	if p := t.Prediction; p != nil && r.Gen <= p.Gen {
		return nil, false
	}
	for _, g := range grantsOf(r.Given, t.UID) {
		if g.Placement != nil {
			return g.Placement, r.isComplete(t.Pod, g.Placement)
		}
	}
	return nil, false
}

// isComplete reports whether p has CPUs for every container that a static CPU manager gives CPUs. Init containers do
// not count: one that has ended is not reported.
func (r *Report) isComplete(pod *kubelet.Pod, p kubelet.Placement) bool {
	if !pod.Guaranteed || pod.PodLevel || !r.Config.CPU.Static {
		return true
	}
	return !slices.ContainsFunc(pod.Containers, func(c kubelet.Container) bool {
		g := p.Find(c.Name)
		return c.CPUs > 0 && c.Role != kubelet.Init && (g == nil || g.CPUs.IsEmpty())
	})
}

// contradicts reports whether the node reports another placement of a pod than was predicted.
func (r *Report) contradicts(t *Tenant) bool {
	if t.Predicted == nil {
		return false
	}
	actual, ok := r.placementOf(t)
	return ok && Compare(atReport(t.Pod, t.Predicted, actual), actual) != 0
}

// atReport returns a prediction as a later report shows it that confirms it, by what the pod's init containers have
// had since. The memory manager removes an init container's blocks when the next container starts, and the CPU and the
// device manager keep theirs, so an ended init container may be reported without its memory alone. A kubelet that
// restarts admits the pod again: an ended init container then has memory again, at most what it requests, on the NUMA
// nodes that are best at that time.
func atReport(p *kubelet.Pod, predicted, actual kubelet.Placement) kubelet.Placement {
	expected := make(kubelet.Placement, 0, len(predicted))
	for _, g := range predicted {
		if i := p.Index(g.Container); i >= 0 && p.Containers[i].Role == kubelet.Init {
			a := actual.Find(g.Container)
			if a == nil {
				continue
			}
			if requestsAtLeast(&p.Containers[i], a.Memory) {
				g.Memory = a.Memory
			}
		}
		expected = append(expected, g)
	}
	return expected
}

// requestsAtLeast reports whether a container requests all that blocks have.
func requestsAtLeast(c *kubelet.Container, blocks []kubelet.Block) bool {
	left := map[string]int64{}
	for _, ask := range c.Memory {
		left[ask.Name] = ask.N
	}
	return !slices.ContainsFunc(blocks, func(b kubelet.Block) bool {
		left[b.Type] -= b.Bytes
		return left[b.Type] < 0
	})
}
