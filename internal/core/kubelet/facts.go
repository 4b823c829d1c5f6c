package kubelet

import (
	"slices"
	"strconv"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Facts is what is known of a node's kubelet besides the pods, as far as its answers can be predicted. The zero value
// predicts nothing, and costs nothing.
type Facts struct {
	// Config is that of Node, also while there is a Fault. Where CPUs alone are counted it is CPU alone, with all
	// options; CPU is set wherever a static CPU manager is reported, also while the machine is not known.
	Config Config
	// Node is the kubelet before it has allocated anything; nil while all its managers are off, or the machine is not
	// known. One of a Counting configuration predicts nothing. Equal facts share one.
	Node *Node
	// Fault says, while Node is nil, why the kubelet can run no pod that takes part.
	Fault why.Reason
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
