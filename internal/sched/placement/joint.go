package placement

import (
	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/place"
)

// jointKey is where an attempt has the GPUs of its gang.
const jointKey fwk.StateKey = "PlacementJoint"

// joint is a set of GPUs on one node from which the members of a gang get theirs. Attempts on the members carry it in
// their cycle's state.
type joint struct {
	// node is the one that has the GPUs. On any other node the set says nothing.
	node   string
	within map[string]bool // by ID
}

// Clone returns j: it is never changed.
func (j *joint) Clone() fwk.StateData { return j }

// on returns the request of a pod for a node, restricted to the set if the node is that of the set. j may be nil.
func (j *joint) on(node string, r *place.Request) *place.Request {
	if j == nil || j.node != node || r.Devices == nil {
		return r
	}
	inside := *r
	inside.Options.Within = j.within
	return &inside
}

// Joint returns how well the GPUs are linked that pods would have together on a node, more is better, and what makes an
// attempt on one of them choose of these. link is 0, and mark nil, where they do not ask for whole GPUs of one kind, or
// the node has not so many that are free.
func (p *Plugin) Joint(node string, pods []*corev1.Pod) (link int64, mark func(fwk.CycleState)) {
	v := p.store.View(node)
	if v == nil || v.Devices() == nil {
		return 0, nil
	}
	var requests []*device.Request
	var options device.Options
	for _, pod := range pods {
		if r, refused := p.request(pod); refused == nil && r.Devices != nil {
			requests, options = append(requests, r.Devices), r.Options
		}
	}
	ids, keys, ok := v.Devices().Union(requests, &options)
	if !ok {
		return 0, nil
	}
	j := &joint{node, ids}
	return 1 + keys.Ring<<32 + keys.Links, func(cs fwk.CycleState) { cs.Write(jointKey, j) }
}
