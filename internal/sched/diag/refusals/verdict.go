package refusals

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/view"
)

// waiting is a plugin that lets pods wait for others.
type waiting interface {
	fwk.Plugin
	// Waiting returns why a pod that passes the queue is not bound; nil for one that waits for none.
	Waiting(pod *corev1.Pod) *fwk.Status
}

// thorough is a filter plugin that makes several checks of a node. Its Filter ends at the first that refuses.
type thorough interface {
	fwk.Plugin
	// Refusals returns the refusals of all checks, for a pod that Filter refused.
	Refusals(state fwk.CycleState, node fwk.NodeInfo) []*fwk.Status
}

// Held returns why a pod does not pass the queue, or waits for others behind it.
func Held(ctx context.Context, f framework.Framework, pod *corev1.Pod) []why.Finding {
	for _, plugin := range f.PreEnqueuePlugins() {
		if status := preEnqueue(ctx, plugin, pod); !status.IsSuccess() {
			return Findings(pod, nil, why.PreEnqueue, status, plugin.Name())
		}
	}
	for _, plugin := range f.EnqueueExtensions() {
		if w, ok := plugin.(waiting); ok {
			if status := w.Waiting(pod); !status.IsSuccess() {
				return Findings(pod, nil, why.Permit, status, w.Name())
			}
		}
	}
	return nil
}

// preEnqueue asks a plugin, and returns an error where it panics.
func preEnqueue(ctx context.Context, plugin fwk.PreEnqueuePlugin, pod *corev1.Pod) (status *fwk.Status) {
	defer func() {
		if cause := recover(); cause != nil {
			status = fwk.AsStatus(fmt.Errorf("plugin %s panicked in PreEnqueue: %v", plugin.Name(), cause))
		}
	}()
	return plugin.PreEnqueue(ctx, pod)
}

// Explainer is implemented by profiles in which a pod finds other room on a node than its filters do by themselves.
type Explainer interface {
	// Explain returns what remains of the filters' findings on a node, and what is to be said besides. find returns
	// what they find in that room, given the state of the cycle and the node as they are there.
	Explain(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo, findings []why.Finding,
		find func(fwk.CycleState, fwk.NodeInfo) []why.Finding) []why.Finding
}

// Of runs all filters for a pod on every node of the framework's snapshot, which must not change meanwhile.
func Of(ctx context.Context, f framework.Framework, pod *corev1.Pod) (view.Verdict, error) {
	return In(ctx, f, framework.NewCycleState(), pod)
}

// In is Of in a cycle whose state has no more than marks.
func In(ctx context.Context, f framework.Framework, state fwk.CycleState, pod *corev1.Pod) (view.Verdict, error) {
	return verdict(ctx, f, state, pod, nil)
}

// verdict is In. It also reads an attempt unless that is nil.
func verdict(ctx context.Context, f framework.Framework, state fwk.CycleState, pod *corev1.Pod, read *attempted,
) (view.Verdict, error) {
	nodes, err := f.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return view.Verdict{}, fmt.Errorf("list the snapshot's nodes: %w", err)
	}
	v := view.Verdict{Served: true, Nodes: len(nodes)}
	allowed, status, narrowing := f.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() {
		if !status.IsRejected() {
			return view.Verdict{}, fmt.Errorf("prepare the filters: %w", status.AsError())
		}
		v.Findings = Findings(pod, nil, why.PreFilter, status, "")
		return v, nil
	}
	skip, refused := state.GetSkipFilterPlugins(), &refusedPod{Pod: pod, heard: map[string]sets.Set[string]{}}
	v.Findings = make([]why.Finding, 0, len(nodes))
	for _, plugin := range f.EnqueueExtensions() {
		if t, ok := plugin.(thorough); ok {
			refused.thorough = append(refused.thorough, t)
		}
	}
	for _, n := range nodes {
		before := len(v.Findings)
		all, first, err := refusals(ctx, f, state, skip, refused, n, v.Findings)
		if err != nil {
			return view.Verdict{}, err
		}
		findings := all[before:len(all):len(all)]
		if read != nil {
			read.node(refused, n, first, findings)
		}
		if !allowed.AllNodes() && !allowed.NodeNames.Has(n.Node().Name) {
			findings = append(findings, narrowed(pod, n, narrowing, findings)...)
		}
		if knows, ok := f.(Explainer); ok {
			find := func(state fwk.CycleState, n fwk.NodeInfo) []why.Finding {
				// Filters that fail are asked by the attempt itself, which reports their error.
				found, _, _ := refusals(ctx, f, state, state.GetSkipFilterPlugins(), refused, n, nil)
				return found
			}
			findings = knows.Explain(ctx, state, pod, n, findings, find)
		}
		if len(findings) == 0 {
			v.Feasible++
			if read != nil {
				read.passed = refused.findings(read.passed, n, why.Filter, read.statuses.Get(n.Node().Name), "")
			}
		}
		v.Findings = all[:before]
		v.Findings = append(v.Findings, findings...)
	}
	if len(v.Findings) == 0 {
		v.Findings = nil
	}
	return v, nil
}

// refusals runs the filters on one node again and again, each time without those that have refused, until none does. It
// appends what they find, and returns the first refusal.
func refusals(ctx context.Context, f framework.Framework, state fwk.CycleState, skip sets.Set[string], pod *refusedPod,
	n fwk.NodeInfo, out []why.Finding,
) (all []why.Finding, first *fwk.Status, err error) {
	defer state.SetSkipFilterPlugins(skip)
	before := len(out)
	// heard are the plugins that need not be asked again.
	heard := skip
	for {
		status := f.RunFilterPlugins(ctx, state, pod.Pod, n)
		if status.IsSuccess() {
			return append(out, nominated(ctx, f, state, pod.Pod, n, len(out)-before)...), first, nil
		}
		if !status.IsRejected() || status.Plugin() == "" || heard.Has(status.Plugin()) {
			return nil, nil, fmt.Errorf("filter node %s: %w", n.Node().Name, status.AsError())
		}
		if first == nil {
			first = status
		}
		out = pod.findings(out, n, why.Filter, status, "")
		out = append(out, pod.hidden(state, n, status.Plugin(), out[before:])...)
		heard = pod.also(heard, status.Plugin(), heard.Len() == skip.Len())
		state.SetSkipFilterPlugins(heard)
	}
}

// also returns plugins with one more. Most nodes refuse the pod by one plugin alone: what follows from the first one is
// made once.
func (p *refusedPod) also(plugins sets.Set[string], one string, first bool) sets.Set[string] {
	if more, made := p.heard[one]; first && made {
		return more
	}
	more := plugins.Clone().Insert(one)
	if first {
		p.heard[one] = more
	}
	return more
}

// hidden returns what a plugin refuses the node for besides known, which has the first refusal of its Filter.
func (p *refusedPod) hidden(state fwk.CycleState, n fwk.NodeInfo, plugin string, known []why.Finding,
) (out []why.Finding) {
	for _, t := range p.thorough {
		if t.Name() != plugin {
			continue
		}
		for _, status := range t.Refusals(state, n) {
			for _, f := range p.findings(nil, n, why.Filter, status, plugin) {
				if !slices.ContainsFunc(known, func(k why.Finding) bool { return k.Code == f.Code }) {
					out = append(out, f)
				}
			}
		}
	}
	return out
}

// nominated returns the refusal of a node that would fit the pod without nominated pods of no lower priority.
func nominated(ctx context.Context, f framework.Framework, state fwk.CycleState, pod *corev1.Pod, n fwk.NodeInfo,
	refused int,
) []why.Finding {
	if refused > 0 || len(f.NominatedPodsForNode(n.Node().Name)) == 0 {
		return nil
	}
	status := f.RunFilterPluginsWithNominatedPods(ctx, state, pod, n)
	if !status.IsRejected() {
		return nil
	}
	return []why.Finding{{
		Reason: why.Reason{Code: why.NominatedElsewhere}, Plugin: status.Plugin(), Phase: why.Filter,
		Object: n.Node().Name,
		Detail: "resources are reserved for a pod of higher or equal priority: " + status.Message(),
	}}
}

// narrowed are the findings of plugins that excluded the node in PreFilter and did not refuse it in Filter.
func narrowed(pod *corev1.Pod, n fwk.NodeInfo, plugins sets.Set[string], heard []why.Finding) []why.Finding {
	var out []why.Finding
	for _, plugin := range sets.List(plugins) {
		if slices.ContainsFunc(heard, func(f why.Finding) bool { return f.Plugin == plugin }) {
			continue
		}
		status := fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) didn't satisfy plugin "+plugin)
		out = append(out, Findings(pod, n, why.PreFilter, status, plugin)...)
	}
	return out
}
