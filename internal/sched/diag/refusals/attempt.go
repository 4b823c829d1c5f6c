package refusals

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/core/why"
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
		findings = append(findings, refused.findings(n, why.Filter, statuses.Get(n.Node().Name), "")...)
	}
	return append(findings, preemption(pod, fit, lister)...), fit.NumAllNodes
}

// Refusals returns why an attempt failed, by all filters where filters refused; none for another failure. It must be
// called from the scheduling cycle, where the snapshot does not change.
func Refusals(ctx context.Context, f framework.Framework, pod *corev1.Pod, status *fwk.Status) ([]why.Finding, error) {
	first, _ := Attempt(f, pod, status)
	if ByFilters(status) == nil {
		return first, nil
	}
	v, err := Of(ctx, f, pod)
	if err != nil {
		return nil, err
	}
	return Completed(v.Findings, first), nil
}

// Completed adds to all those of first that are about preemption or about nodes that no filter rejects.
func Completed(all, first []why.Finding) []why.Finding {
	refused := make(map[string]bool, len(all))
	for _, f := range all {
		refused[f.Object] = true
	}
	for _, f := range first {
		if !refused[f.Object] || f.Phase == why.Preemption {
			all = append(all, f)
		}
	}
	return all
}

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
	case outcome == "" || strings.Contains(outcome, "not eligible"):
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
