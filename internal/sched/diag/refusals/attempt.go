package refusals

import (
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/view"
)

// ByFilters returns what Filter plugins said of each node, nil for an attempt that failed otherwise.
func ByFilters(status *fwk.Status) *framework.FitError {
	if fit := fitOf(status); fit != nil && fit.Diagnosis.PreFilterMsg == "" {
		return fit
	}
	return nil
}

// fitOf returns the error of an attempt that found no node; nil for any other failure.
func fitOf(status *fwk.Status) *framework.FitError {
	var fit *framework.FitError
	_ = errors.As(status.AsError(), &fit)
	return fit
}

// Attempt reads a failed attempt's first refusal of each node, and the number of nodes that were asked; none for an
// attempt that failed for another reason than a refusal.
func Attempt(f framework.Framework, pod *corev1.Pod, status *fwk.Status) ([]why.Finding, int) {
	fit := fitOf(status)
	if fit == nil {
		if own := Refusal(nil); errors.As(status.AsError(), &own) && !status.IsRejected() {
			return []why.Finding{own.Finding()}, 0 // a plugin that panicked; the error names it
		}
		if !status.IsRejected() || status.Plugin() == "" {
			return nil, 0
		}
		return Findings(pod, nil, why.Reserve, status, ""), 0
	}
	statuses := fit.Diagnosis.NodeToStatus
	if fit.Diagnosis.PreFilterMsg != "" {
		return Findings(pod, nil, why.PreFilter, statuses.AbsentNodesStatus(), ""), fit.NumAllNodes
	}
	lister := f.SnapshotSharedLister().NodeInfos()
	nodes, err := lister.List()
	if err != nil {
		return nil, 0
	}
	findings, refused := make([]why.Finding, 0, len(nodes)), &refusedPod{Pod: pod}
	for _, n := range nodes {
		findings = refused.findings(findings, n, why.Filter, statuses.Get(n.Node().Name), "")
	}
	return append(findings, preemption(pod, fit, lister)...), fit.NumAllNodes
}

// Refusals returns why an attempt failed, by all filters where filters refused; none for another failure. It must be
// called from the scheduling cycle, where the snapshot does not change.
func Refusals(ctx context.Context, f framework.Framework, pod *corev1.Pod, status *fwk.Status) ([]why.Finding, error) {
	if ByFilters(status) == nil {
		first, _ := Attempt(f, pod, status)
		return first, nil
	}
	first, v, err := After(ctx, f, status)
	if err != nil {
		return nil, err
	}
	return Completed(v.Findings, first), nil
}

// After runs all filters on all nodes after an attempt that filters refused, and reads the attempt in the same pass. Of
// nodes that some filter refuses, first has only the closest finding of each code: that is all that a count of the
// attempt's codes and Completed read. The rest of first is as in Attempt. If nodes are not asked, because PreFilter
// refuses or filters fail, first is Attempt.
func After(ctx context.Context, f framework.Framework, status *fwk.Status) (first []why.Finding, v view.Verdict,
	err error,
) {
	fit := fitOf(status)
	read := &attempted{statuses: fit.Diagnosis.NodeToStatus}
	v, err = verdict(ctx, f, framework.NewCycleState(), fit.Pod, read)
	if err != nil || !read.any {
		first, _ = Attempt(f, fit.Pod, status)
		return first, v, err
	}
	first = read.closest
	first = append(first, read.passed...)
	return append(first, preemption(fit.Pod, fit, f.SnapshotSharedLister().NodeInfos())...), v, nil
}

// attempted is what a pass of all filters reads of the attempt before it.
type attempted struct {
	statuses *framework.NodeToStatus
	any      bool // a node was read
	// closest has a finding of each code, passed all those on nodes that no filter refuses any more.
	closest, passed []why.Finding
	// another has the findings of a node that refused the attempt otherwise than now.
	another []why.Finding
}

// node reads how a node refused the attempt. first is how it does now. findings has the findings of first, then others.
func (a *attempted) node(p *refusedPod, n fwk.NodeInfo, first *fwk.Status, findings []why.Finding) {
	a.any = true
	was := a.statuses.Get(n.Node().Name)
	if first != nil && was != nil && was.Plugin() == first.Plugin() && slices.Equal(was.Reasons(), first.Reasons()) &&
		WordsOnly(was) && WordsOnly(first) {
		end := 0
		for end < min(len(findings), len(was.Reasons())) && findings[end].Plugin == was.Plugin() {
			end++
		}
		findings = findings[:end]
	} else {
		a.another = p.findings(a.another[:0], n, why.Filter, was, "")
		findings = a.another
	}
	for i := range findings {
		a.closest = why.Closest(a.closest, &findings[i])
	}
}

// Completed adds to all those of first that are about preemption or about nodes that no filter rejects.
func Completed(all, first []why.Finding) []why.Finding {
	passed := make(map[string]bool)
	for i := range first {
		if first[i].Phase != why.Preemption {
			passed[first[i].Object] = true
		}
	}
	for i := range all {
		if len(passed) == 0 {
			break
		}
		delete(passed, all[i].Object)
	}
	all = slices.Grow(all, len(first))
	for _, f := range first {
		if f.Phase == why.Preemption || passed[f.Object] {
			all = append(all, f)
		}
	}
	return all
}

// victimsFound is in the text of a preemption that names victims.
const victimsFound = "found a potential placement"

// preemption reads what came of preemption. Upstream's text counts nodes and does not name them: they are those whose
// refusal eviction could resolve. Nothing is said when the pod is not to preempt or victims were found.
func preemption(pod *corev1.Pod, fit *framework.FitError, nodes fwk.NodeInfoLister) []why.Finding {
	outcome := fit.Diagnosis.PostFilterMsg
	finding := func(code why.Code, node string) why.Finding {
		return why.Finding{
			Reason: why.Reason{Code: code}, Plugin: names.DefaultPreemption, Phase: why.Preemption, Object: node,
		}
	}
	switch {
	case strings.Contains(outcome, "terminating pod on the nominated node"):
		return []why.Finding{finding(why.VictimsTerminating, pod.Status.NominatedNodeName)}
	case outcome == "" || strings.Contains(outcome, "not eligible"), strings.Contains(outcome, victimsFound):
		return nil
	}
	candidates, err := fit.Diagnosis.NodeToStatus.NodesForStatusCode(nodes, fwk.Unschedulable)
	if err != nil {
		return nil
	}
	findings := make([]why.Finding, len(candidates))
	for i, n := range candidates {
		findings[i] = finding(why.NoVictims, n.Node().Name)
	}
	return findings
}
