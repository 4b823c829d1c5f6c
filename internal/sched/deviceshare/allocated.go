package deviceshare

import "github.com/tenon-project/tenon/internal/core/device"

// allocated scores a node as Koordinator's strategies LeastAllocated and MostAllocated do. For each type of device that
// the pod asks for, it is the weighted mean of the part of each resource that is free, or in use, with the pod on the
// node. The result is the sum over the types, each from 0 to 100.
func (p *Plugin) allocated(account *device.View, r *device.Request) int64 {
	if account == nil || r == nil {
		return 0
	}
	score := int64(0)
	for _, t := range r.Types() {
		var total, used, unit device.Vector
		for d := range account.Devices() {
			if d.Type != t || !d.Offered {
				continue
			}
			unit = d.Total
			for dim := range total {
				total[dim] += d.Total[dim]
				used[dim] += d.Total[dim] - d.Free[dim] // all of one that is not healthy
			}
		}
		for i := range r.Parts {
			if p := &r.Parts[i]; p.Type == t && p.Role != device.Init {
				// Init containers share the devices of the others, so only the others count.
				asked := p.Need.Of(&unit)
				for dim := range used {
					used[dim] += p.Count * asked[dim]
				}
			}
		}
		score += p.weigh(t, &used, &total)
	}
	return score
}

// weigh returns the weighted mean over the resources of a type that the node has, from 0 to 100. used includes the pod.
// A node that would be used beyond its total scores 0 for the resource, unless the fullest nodes are the best.
func (p *Plugin) weigh(t device.Type, used, total *device.Vector) int64 {
	sum, weights := int64(0), int64(0)
	for name, weight := range p.weights {
		dim, ok := dimension(t, name)
		if !ok || total[dim] == 0 {
			continue
		}
		n, all := used[dim], total[dim]
		weights += weight
		switch {
		case p.most:
			sum += weight * device.FreeRatio(all, n)
		case n < all:
			sum += weight * device.FreeRatio(all, all-n)
		}
	}
	return sum / max(weights, 1)
}

// dimension returns the dimension in which devices of a type count a resource of the arguments; false if they do not
// have the resource. Memory in bytes and as a ratio is one dimension.
func dimension(t device.Type, resource string) (device.Dim, bool) {
	switch {
	case t == device.GPU && resource == device.GPUCore:
		return device.Cores, true
	case t == device.GPU && (resource == device.GPUMemory || resource == device.GPURatio):
		return device.Bytes, true
	}
	return device.Share, t != device.GPU && resource == device.ShareOf(t)
}
