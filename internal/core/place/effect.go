package place

import (
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Effect is how a node reads a binding pod's wishes: its own policies, its kubelet's options and its architecture
// decide together with the pod.
type Effect struct {
	Bind      cpualloc.Bind
	Required  bool
	Exclusive cpualloc.Exclusive
	Strategy  cpualloc.Strategy
	Topology  hint.Policy
	// Broken: the pod prefers SpreadByPCPUs and gets whole cores, because the node allows nothing else.
	Broken bool
	// Ignored: the exclusive policy does not exist on this architecture.
	Ignored bool
}

// EffectOn returns the effect of v's node on r, or the reason why their policies contradict each other.
func EffectOn(v *ledger.View, r *Request) (Effect, why.Reason) {
	f := v.Facts()
	r = r.On(f)
	e := Effect{Exclusive: r.Exclusive, Strategy: f.Strategy, Topology: max(f.Topology, r.Topology)}
	if f.ARM64 && r.Exclusive == cpualloc.PCPULevel {
		e.Exclusive, e.Ignored = cpualloc.NotExclusive, true
	}
	threads := 1
	if f.Machine != nil {
		threads = f.Machine.ThreadsPerCore()
	}
	if threads == 1 {
		// FullPCPUs and SpreadByPCPUs coincide: every CPU is a core, every wish is met.
		return e, why.Reason{}
	}
	node, pod := nodeWish(f), r.Required
	switch {
	case pod != NoWish && node != NoWish && pod != node,
		pod == WantSpreadByPCPUs && f.ARM64:
		return e, why.Reason{Code: why.BindPolicyConflict, Resource: why.CPU}
	case node != NoWish:
		e.Bind, e.Required = node.bind(), true
		e.Broken = node == WantFullPCPUs && pod == NoWish && r.Preferred == WantSpreadByPCPUs
	case pod != NoWish:
		e.Bind, e.Required = pod.bind(), true
	case f.ARM64:
		e.Bind = cpualloc.FullPCPUs
	case r.Preferred != NoWish:
		e.Bind = r.Preferred.bind()
	default:
		e.Bind = r.Default
	}
	return e, why.Reason{}
}

// nodeWish is the bind policy that the node requires of every binding pod: its label, else what the kubelet's options
// imply. SpreadByPCPUs does not exist on arm64; a label that asks for it there says nothing.
func nodeWish(f *ledger.Facts) BindWish {
	switch f.Bind {
	case ledger.FullPCPUsOnly:
		return WantFullPCPUs
	case ledger.SpreadByPCPUs:
		if f.ARM64 {
			return NoWish
		}
		return WantSpreadByPCPUs
	case ledger.NoPolicy:
		return NoWish
	}
	if f.Model.Config.CPU.Static && f.Model.Config.CPU.FullPCPUsOnly {
		return WantFullPCPUs
	}
	return NoWish
}

// bind returns the policy that the allocator follows. The default is whole cores.
func (w BindWish) bind() cpualloc.Bind {
	if w == WantSpreadByPCPUs {
		return cpualloc.SpreadByPCPUs
	}
	return cpualloc.FullPCPUs
}

// request returns the allocator's request for n CPUs with this effect on a node.
func (e *Effect) request(n int, f *ledger.Facts) cpualloc.Request {
	return cpualloc.Request{
		Count: n, Bind: e.Bind, Required: e.Required, Exclusive: e.Exclusive, Strategy: e.Strategy,
		SingleNUMANode: e.Topology == hint.SingleNUMANode, PreferL3: f.Model.Config.CPU.AlignL3,
	}
}
