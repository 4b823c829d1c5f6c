package placement

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// counted is an amount of a vendor's resource. NodeResourcesFit does not count it in profiles with DeviceShare, so
// where the kubelet serves it from a device plugin, it is counted here, as NodeResourcesFit would.
type counted struct {
	// name is the vendor's name of the resource.
	name corev1.ResourceName
	// amount is the number of devices that the pod asks for.
	amount int64
	// claimed is true if a device class serves the resource. Then a node without the resource is not refused, because
	// dynamic resource allocation decides about it.
	claimed bool
}

// counted returns what nodes that leave devices to their kubelets must have for a pod; nil for a request that they
// refuse.
func (d *decision) counted(pod *corev1.Pod, r *device.Request) (list []counted) {
	if r == nil || !r.LeftToKubelet() {
		return nil
	}
	for _, p := range r.Parts {
		name := corev1.ResourceName(p.Need.VendorName())
		if slices.ContainsFunc(list, func(c counted) bool { return c.name == name }) {
			continue
		}
		c := counted{name: name, amount: convert.Amount(pod, name)}
		if dra := d.handle.SharedDRAManager(); dra != nil {
			c.claimed = dra.DeviceClassResolver().GetDeviceClass(name) != nil
		}
		list = append(list, c)
	}
	return list
}

// leftToKubelet reports whether place leaves whole GPUs by their vendor's name to the kubelet of a node.
func leftToKubelet(f *ledger.Facts) bool { return f.Devices == nil || !f.OwnDevices }

// lack returns the refusal for the first resource of which the pods on a node leave too little. It returns nil if all
// suffice.
func lack(list []counted, n fwk.NodeInfo) *Refusal {
	for _, c := range list {
		has := n.GetAllocatable().GetScalarResources()[c.name]
		free := max(has-n.GetRequested().GetScalarResources()[c.name], 0)
		if c.amount <= free || has == 0 && c.claimed {
			continue
		}
		return &Refusal{never: c.amount > has, Reason: why.Reason{
			Code: why.InsufficientExtended, Resource: why.Resource(c.name), Unit: why.Count, Asked: c.amount,
			Free: free, Extra: has,
		}}
	}
	return nil
}

// offers reports whether a node would have enough for a pod if no other pod were there.
func (d *decision) offers(node *corev1.Node, pod *corev1.Pod, r *place.Request) bool {
	return !slices.ContainsFunc(d.counted(pod, r.Devices), func(c counted) bool {
		has := node.Status.Allocatable[c.name]
		return c.amount > has.Value() && (!has.IsZero() || !c.claimed)
	})
}
