package placement

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	nodeutil "k8s.io/component-helpers/node/util"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
)

// PreFilter parses the pod and stores the cycle's state. It returns Skip for a pod that no node treats differently from
// any other pod, so that such a pod costs nothing from here on. The plugin's first name that is called stores the state
// and filters; the framework then skips the filters of the other names.
func (p *Plugin) PreFilter(_ context.Context, cs fwk.CycleState, pod *corev1.Pod,
	_ []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	if Read(cs) != nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	r, refused := p.request(pod)
	if refused != nil {
		return nil, refused.Status()
	}
	trial := OnTrial(cs)
	if !p.concerns(r) && (trial == nil || !trial.imagined || !r.Concerns()) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	s := &Cycle{
		store: p.store, Request: r, trial: trial, counted: p.counted(pod, r.Devices),
		adapt: p.sharing.Adapt, others: p.others, decision: p.decision,
	}
	if p.tracker.HasBackoffs() {
		s.signature = r.Signature()
	}
	cs.Write(stateKey, s)
	return nil, nil
}

// PreFilterExtensions returns p.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// Filter refuses a node in this order: the node's kubelet has just rejected an equal pod; the node's agent cannot
// enforce exclusive CPUs; the account has too little; the kubelet's devices do not suffice. It reads a snapshot of the
// account and takes no lock of it. Equal pods share one answer until the account changes.
func (p *Plugin) Filter(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, n fwk.NodeInfo) *fwk.Status {
	s := Read(cs)
	if s == nil {
		return nil
	}
	name := n.Node().Name
	if s.ahead { // the pod was tried on the node as it is
		if lacked := s.lackedAmount(name, n, s.lacking); lacked != nil {
			return lacked.Status()
		}
		return statusOf(s.lacking)
	}
	if s.signature != "" {
		if reason := p.tracker.Refuses(name, s.signature); !reason.OK() {
			p.tracker.Wait(pod, name, s.signature)
			return (&Refusal{Reason: reason}).Status()
		}
	}
	reason := p.enforced(n.Node(), s.Request)
	if reason.OK() {
		var remembered bool
		if reason, remembered = s.nodeView(name).Fits(s.Request); remembered {
			p.metrics.hit.Inc()
		} else {
			p.metrics.miss.Inc()
		}
	}
	if lacked := s.lackedAmount(name, n, reason); lacked != nil {
		return lacked.Status()
	}
	return statusOf(reason)
}

// statusOf is the status of a refusal; nil for none.
func statusOf(reason why.Reason) *fwk.Status {
	if reason.OK() {
		return nil
	}
	return (&Refusal{Reason: reason}).Status()
}

// Refusals returns all reasons for which the node refuses the pod of the cycle, for explanations. Filter reports the
// first one only.
func (p *Plugin) Refusals(cs fwk.CycleState, n fwk.NodeInfo) (all []*fwk.Status) {
	s := Read(cs)
	if s == nil {
		return nil
	}
	name := n.Node().Name
	reasons := []why.Reason{p.enforced(n.Node(), s.Request)}
	if s.signature != "" {
		reasons = append(reasons, p.tracker.Refuses(name, s.signature))
	}
	for _, reason := range append(reasons, place.Refusals(s.View(name), s.Request)...) {
		if !reason.OK() {
			all = append(all, (&Refusal{Reason: reason}).Status())
		}
	}
	if leftToKubelet(s.View(name).Facts()) {
		if lacked := lack(s.counted, n); lacked != nil {
			all = append(all, lacked.Status())
		}
	}
	return all
}

// lackedAmount returns the refusal for devices that the node's kubelet has too few of. It returns nil if the kubelet
// has enough, if the node allocates devices itself, and if the other reason that was found is the better one to report.
func (c *Cycle) lackedAmount(name string, n fwk.NodeInfo, other why.Reason) *Refusal {
	if len(c.counted) == 0 || !other.OK() && !place.YieldsToDevices(other) || !leftToKubelet(c.View(name).Facts()) {
		return nil
	}
	return lack(c.counted, n)
}

// enforced refuses pods that must be alone on their CPUs where a container may start on all CPUs before the agent
// confines it, unless the node's agent is configured to accept that.
func (d *decision) enforced(node *corev1.Node, r *place.Request) why.Reason {
	if node == nil || r.Role != qos.Exclusive && !(d.args().FilterLSROnDegradedNodes && r.Role == qos.ExclusiveWithBE) {
		return why.Reason{}
	}
	_, c := nodeutil.GetNodeCondition(&node.Status, annotation.EnforcementDegraded)
	if c != nil && c.Status == corev1.ConditionTrue && c.Reason != annotation.DegradedAllowed {
		return why.Reason{Code: why.EnforcementDegraded}
	}
	return why.Reason{}
}

// RemovePod removes a victim from this cycle's copy of the node's account, so that its CPUs and devices are free. The
// cycle has such a copy of one node at a time: the dry run of a preemption clones the state for each node.
func (p *Plugin) RemovePod(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, victim fwk.PodInfo,
	n fwk.NodeInfo,
) *fwk.Status {
	if s := Read(cs); s != nil {
		name := n.Node().Name
		s.node, s.changed = name, kube.NewNodeView(s.View(name).Leave(string(victim.GetPod().UID)))
	}
	return nil
}

// AddPod puts a pod on this cycle's copy of the view: a victim that is spared has its own CPUs again; a nominated pod,
// which has none yet, gets the ones that it would get now, or in a look ahead, then.
func (p *Plugin) AddPod(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, added fwk.PodInfo,
	n fwk.NodeInfo,
) *fwk.Status {
	s := Read(cs)
	if s == nil {
		return nil
	}
	name, pod := n.Node().Name, added.GetPod()
	if s.ahead {
		s.start(pod)
		return nil
	}
	view := s.View(name)
	// The live account still has what a victim has. A nominated pod has nothing in it.
	next := view.Return(string(pod.UID), p.store.View(name))
	if next == view {
		if entry, held := p.expect(view, pod); held {
			next = view.With(entry)
		}
	}
	if next != view {
		s.node, s.changed = name, kube.NewNodeView(next)
	}
	return nil
}

// expect returns the entry that holds the room of a nominated pod on the node; false where it holds none.
func (d *decision) expect(v *ledger.View, pod *corev1.Pod) (ledger.Entry, bool) {
	r, refused := d.request(pod)
	if refused != nil || !d.concerns(r) {
		return ledger.Entry{}, false
	}
	return place.Promise(v, r)
}
