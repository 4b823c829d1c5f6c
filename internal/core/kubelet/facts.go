package kubelet

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Facts is what is known of a node's kubelet besides the pods, as far as its answers can be predicted. The zero value
// predicts nothing, and costs nothing.
type Facts struct {
	// Node is the kubelet before it has allocated anything; nil while all its managers are off, or the machine is not
	// known. One of a Counting configuration predicts nothing. Equal facts share one.
	Node *Node
	// Fault says, while Node is nil, why the kubelet can run no pod that takes part.
	Fault why.Reason
	// Config is that of Node, also while there is a Fault. Where CPUs alone are counted it is CPU alone, with all
	// options; CPU is set wherever a static CPU manager is reported, also while the machine is not known.
	Config Config
	// Devices are the resources that the device manager knows, sorted.
	Devices []string
	// Assumed is what predictions of this kubelet take for granted, a phrase each: a release, an option or a feature
	// gate that the model does not know, settings that only another project's exporter reports. None: the model knows
	// it.
	Assumed []string
	// Trust is what an assumed kubelet is good for in mode Follow; Trusted for all others.
	Trust Trust
	// Gen is the generation of the node's report, 0 = there is none.
	Gen int64
}

// Trust is what pods meet whose CPUs a kubelet chooses.
type Trust uint8

// Degrees of trust.
const (
	// Trusted: its predictions count as any other's.
	Trusted Trust = iota
	// Doubted: its node ranks behind others.
	Doubted
	// Distrusted: it gets no such pods.
	Distrusted
)

// Release is the kubelet's minor version: 1.36; "" while its answers are not predicted.
func (f *Facts) Release() string {
	if f.Config.Model.Minor == 0 {
		return ""
	}
	return "1." + strconv.Itoa(f.Config.Model.Minor)
}

// Predicts reports whether it is known what the kubelet gives, and not only how much it can.
func (f *Facts) Predicts() bool { return f.Node != nil && f.Config.Model.Minor > 0 }

// Concerns reports whether a kubelet that is predicted, or can run no pod, gives p anything of its own, or would have
// to.
func (f *Facts) Concerns(p *Pod) bool { return (f.Predicts() || !f.Fault.OK()) && f.Gives(p) }

// Gives reports whether the kubelet gives p anything of its own, or would have to, whether or not it is known what.
func (f *Facts) Gives(p *Pod) bool {
	if p == nil || f.Node == nil && f.Fault.OK() {
		return false
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		if p.Guaranteed && (f.Config.CPU.Static && c.CPUs > 0 || f.Config.Memory.Static && len(c.Memory) > 0) {
			return true
		}
		for _, d := range c.Devices {
			if _, known := slices.BinarySearch(f.Devices, d.Name); known {
				return true
			}
		}
	}
	return false
}

// Equal reports whether two facts say the same.
func (f *Facts) Equal(o *Facts) bool {
	return f.Node.Equal(o.Node) && f.Fault == o.Fault &&
		f.Config == o.Config && slices.Equal(f.Devices, o.Devices) && slices.Equal(f.Assumed, o.Assumed) &&
		f.Trust == o.Trust && f.Gen == o.Gen
}

// Grant is what the node reports that its kubelet has given to a pod. One without UID is that of the pod of its
// namespace and name; one that names no pod is of pods that the node does not name.
type Grant struct {
	UID, Namespace, Name string
	// CPUs are what the pod is pinned to, where only that is reported.
	CPUs cpuset.Set
	// Placement is what its containers have; nil where only CPUs are reported.
	Placement Placement
}

// Equal reports whether two grants are the same.
func (g Grant) Equal(o Grant) bool {
	return g.UID == o.UID && g.Namespace == o.Namespace && g.Name == o.Name && g.CPUs == o.CPUs &&
		g.Placement.Equal(o.Placement)
}

// Equal reports whether containers have the same, in the same order.
func (pl Placement) Equal(o Placement) bool {
	return slices.EqualFunc(pl, o, func(a, b Given) bool {
		return a.Container == b.Container && a.Hint == b.Hint && a.Uncertain == b.Uncertain && a.CPUs == b.CPUs &&
			slices.Equal(a.Memory, b.Memory) && slices.Equal(a.Devices, b.Devices)
	})
}

// CPUs are those of all containers together.
func (pl Placement) CPUs() cpuset.Set {
	var cpus cpuset.Set
	for i := range pl {
		cpus.Include(&pl[i].CPUs)
	}
	return cpus
}

// Sorted returns grants by UID, in the given order where that is the same; list itself where it is sorted already.
func Sorted(list []Grant) []Grant {
	byUID := func(a, b Grant) int { return cmp.Compare(a.UID, b.UID) }
	if !slices.IsSortedFunc(list, byUID) {
		list = slices.Clone(list)
		slices.SortStableFunc(list, byUID)
	}
	return list
}

// grantsOf yields the grants of a pod of a sorted list.
func grantsOf(list []Grant, uid string) []Grant {
	first, _ := slices.BinarySearchFunc(list, uid, func(g Grant, uid string) int { return cmp.Compare(g.UID, uid) })
	last := first
	for last < len(list) && list[last].UID == uid {
		last++
	}
	return list[first:last]
}
