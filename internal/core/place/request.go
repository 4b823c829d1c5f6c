package place

import (
	"fmt"
	"strconv"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// BindWish is a pod's bind policy; NoWish takes the default.
type BindWish uint8

// Bind wishes.
const (
	NoWish BindWish = iota
	WantFullPCPUs
	WantSpreadByPCPUs
)

// NUMAExclusive is what a pod wants of the NUMA nodes it uses: none of them has a pod of the other kind, where one kind
// uses one NUMA node and the other several. Only the pod that is placed is asked, and only under a topology policy:
// BestEffort, which never refuses, prefers where the others require.
type NUMAExclusive uint8

// NUMAExclusive values.
const (
	ShareNUMANodes NUMAExclusive = iota
	PreferNUMAExclusive
	RequireNUMAExclusive
)

// Isolation is whether a pod gets CPUs that the boot has isolated. Its CPUs are all isolated or none is: the kernel
// moves no thread between the two kinds.
type Isolation uint8

// Isolation values.
const (
	AvoidIsolated Isolation = iota
	// PreferIsolated takes isolated CPUs where they fit, on no more NUMA nodes than others would.
	PreferIsolated
	RequireIsolated
)

// Request is what a pod asks of one machine. Build it with convert.Request; it does not depend on the node.
type Request struct {
	UID, Namespace, Name string
	Class                qos.Class
	Role                 qos.Role
	// CPUs: exclusive CPUs; > 0 exactly for roles that bind.
	CPUs int
	// Required and Preferred are the pod's bind policies, Default the plugin's.
	Required, Preferred BindWish
	Default             cpualloc.Bind
	Exclusive           cpualloc.Exclusive
	Isolated            Isolation
	// ConstrainedBurst asks for a shared pool that holds LimitMilli.
	ConstrainedBurst         bool
	RequestMilli, LimitMilli int64
	// Needs are what the pod asks of rows, ordinary memory first; each resource once, more than 0 and in whole pages.
	// They take part where a topology policy of BestEffort or tighter places the pod.
	Needs []align.Need
	// Devices are what the pod asks of devices; nil for nothing, and where another plugin decides about them.
	Devices *device.Request
	// Options are what devices are chosen by besides, with Accept nil.
	Options device.Options
	// DevicesApart: devices may be on other NUMA nodes than the rest of the pod, whatever the topology policy.
	DevicesApart bool
	// Claimed are the NUMA nodes of the devices that ResourceClaims give r on the node; 0 where none is known.
	// ClaimSpread is the number of NUMA nodes that these devices need on an empty machine.
	Claimed     topo.NodeSet
	ClaimSpread int
	// GPUIsolation is what must keep the pod to its share of a GPU; "" asks nothing of the node.
	GPUIsolation string
	// Topology is the pod's own policy; it may tighten the node's, never loosen it.
	Topology hint.Policy
	// NUMAExclusive keeps pods that use one NUMA node and pods that use several off each other's NUMA nodes.
	NUMAExclusive NUMAExclusive
	// Volcano is Topology where the pod's annotation of Volcano says it, else NoTopology: such a pod asks something of
	// the node's kubelet too. SamePolicy: the node's policy must be no other (plugin argument
	// volcanoStrictPolicyMatch).
	Volcano    hint.Policy
	SamePolicy bool
	// Kubelet is the pod as a node's kubelet sees it; nil when no kubelet would give it anything of its own. Created is
	// when it was made, in seconds since the epoch.
	Kubelet *kubelet.Pod
	Created int64
	// OnPolicyNodes, where it is not nil, is what the pod asks of nodes with a label cpu-bind-policy in place of r: its
	// role binds there (plugin argument bindAllPodsOnPolicyNodes). Its CPUs are 0 when the pod's request is not a whole
	// number: such nodes refuse it. It has no OnPolicyNodes itself; who asks is read from r alone.
	OnPolicyNodes *Request
	// Key is the key of r in a Memo. It is zero until Seal sets it.
	Key Key
}

// On returns what r asks of a node with the given facts: r itself, or OnPolicyNodes.
func (r *Request) On(f *ledger.Facts) *Request {
	if r.OnPolicyNodes != nil && (f.Bind == ledger.FullPCPUsOnly || f.Bind == ledger.SpreadByPCPUs) {
		return r.OnPolicyNodes
	}
	return r
}

// at returns what r asks of v's node: On, with a preference for isolated CPUs replaced by what it comes to. It is
// RequireIsolated where such CPUs fit. Where they do not, or where other CPUs need fewer NUMA nodes, it remains.
func (r *Request) at(v *ledger.View) *Request {
	r = r.On(v.Facts())
	if r.Isolated != PreferIsolated || r.CPUs == 0 || v.Summary().Isolated == nil {
		return r
	}
	isolated := *r
	isolated.Isolated = RequireIsolated
	if !fits(v, &isolated).OK() || fits(v, r).OK() && span(v, r) < span(v, &isolated) {
		return r
	}
	return &isolated
}

// Concerns reports whether any node could treat r differently from a pod that asks for nothing of ours. When false,
// the scheduler skips all of the plugin's per-node work: the pod neither binds, nor is constrained, nor is it pinned by
// a static kubelet, nor could a node's topology policy constrain it.
//
// A pod that does not bind and has neither ConstrainedBurst nor a topology policy of its own concerns only nodes whose
// policy is Restricted or tighter, when it has CPUs of a kubelet also nodes with a static kubelet, and when it has
// OnPolicyNodes those.
func (r *Request) Concerns() bool {
	return r.CPUs > 0 || r.wantsPool() || r.Kubelet != nil || r.Devices != nil
}

// wantsPool reports whether a topology policy or ConstrainedBurst can confine r to the shared pools of some NUMA nodes.
func (r *Request) wantsPool() bool { return r.Role == qos.SharedPool && r.poolNeed() > 0 }

// poolNeed is what a confined pod's shared pool must hold, in milli-CPU: the limit for ConstrainedBurst, else the
// request.
func (r *Request) poolNeed() int64 {
	if r.ConstrainedBurst {
		return max(r.LimitMilli, r.RequestMilli)
	}
	return r.RequestMilli
}

// Signature is equal for requests that every node answers equally: Fits, the CPUs of Try, and Score for equal usage. It
// leaves out who asks, and what cannot matter.
func (r *Request) Signature() string {
	signature := string(r.sign(nil))
	if r.OnPolicyNodes != nil {
		signature += "|" + string(r.OnPolicyNodes.sign(nil))
	}
	return signature
}

// sign appends what nodes answer the request by. Fields of a kind that the request does not have are left out.
func (r *Request) sign(b []byte) []byte {
	field := func(key byte, value int64) {
		if value != 0 {
			b = strconv.AppendInt(append(b, key), value, 10)
		}
	}
	switch {
	case r.CPUs > 0:
		field('n', int64(r.CPUs))
		field('r', int64(r.Required))
		if r.Required == NoWish {
			field('p', int64(r.Preferred))
			if r.Preferred == NoWish {
				field('d', int64(r.Default))
			}
		}
		field('x', int64(r.Exclusive))
		field('y', int64(r.Isolated))
	case r.wantsPool():
		field('q', r.RequestMilli)
		if r.ConstrainedBurst {
			field('b', r.poolNeed())
		}
	}
	if r.CPUs > 0 || r.wantsPool() {
		field('t', int64(r.Topology))
		field('h', int64(r.NUMAExclusive))
		for _, n := range r.Needs {
			b = append(append(append(b, 'm'), n.Resource...), '=')
			b = strconv.AppendInt(b, n.N, 10)
		}
	}
	field('o', int64(r.Volcano))
	if r.Volcano != 0 && r.SamePolicy {
		field('e', 1)
	}
	if r.Kubelet != nil {
		b = signGuest(b, r.Kubelet)
	}
	if r.Devices != nil {
		b = r.Devices.Sign(append(b, 'v'))
		for _, model := range r.Options.WholeOnly {
			b = strconv.AppendQuote(append(b, 'w'), model)
		}
		if r.DevicesApart {
			b = append(b, 'a')
		}
		if r.GPUIsolation != "" {
			b = strconv.AppendQuote(append(b, 'i'), r.GPUIsolation)
		}
		if len(r.Options.Templates) > 0 {
			b = fmt.Appendf(b, "T%v", r.Options.Templates)
		}
	}
	return b
}

// signGuest writes what a kubelet reads of a pod, who it is left out.
func signGuest(b []byte, p *kubelet.Pod) []byte {
	b = append(b, 'g')
	if p.Guaranteed {
		b = append(b, 'G')
	}
	if p.PodLevel {
		b = append(b, 'L')
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		b = strconv.AppendInt(append(b, 'a'+byte(c.Role)), int64(c.CPUs), 10)
		for _, list := range [...][]kubelet.Amount{c.Memory, c.Devices} {
			b = append(b, ';')
			for _, a := range list {
				b = strconv.AppendInt(append(strconv.AppendQuote(b, a.Name), '='), a.N, 10)
			}
		}
	}
	return b
}

// Key names a request by all that verdicts about it depend on. The zero value is the key of a request that is not
// sealed.
type Key struct {
	hash      uint64 // of signature
	signature string
}

// Equal reports whether two keys are the same.
func (k Key) Equal(o Key) bool { return k == o }

// Seal computes r's key once, for Recall. r must not be changed afterwards.
func (r *Request) Seal() {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	k := Key{offset, r.Signature()}
	for i := range len(k.signature) {
		k.hash = (k.hash ^ uint64(k.signature[i])) * prime
	}
	r.Key = k
}

// Memo remembers verdicts about requests on one view. A view never changes, so a verdict remains true for as long as
// the view exists. A Memo may forget a verdict at any time, and must be safe for concurrent use.
type Memo interface {
	Recall(k Key, hash uint64) (why.Reason, bool)
	Keep(k Key, hash uint64, verdict why.Reason)
}

// Recall is Fits, answered from the memo of v if the request is sealed and an equal request was answered before;
// remembered then is true. A remembered answer costs no look at the view, and no allocation.
func Recall(m Memo, v *ledger.View, r *Request) (reason why.Reason, remembered bool) {
	if r.Key == (Key{}) {
		return Fits(v, r), false
	}
	if reason, remembered = m.Recall(r.Key, r.Key.hash); remembered {
		return reason, true
	}
	reason = Fits(v, r)
	m.Keep(r.Key, r.Key.hash, reason)
	return reason, false
}
