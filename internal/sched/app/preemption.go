package app

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/core/why"
)

// preemptionFindings reads what came of preemption after the filters had refused. Upstream's plugin leaves a text
// alone, which counts nodes and does not name them; it looks at exactly those nodes whose refusal eviction could
// resolve. Nothing is said of a pod that is not to preempt, nor when victims were found.
func preemptionFindings(pod *corev1.Pod, fit *framework.FitError, nodes fwk.NodeInfoLister) []why.Finding {
	outcome := fit.Diagnosis.PostFilterMsg
	finding := func(code why.Code, node string) why.Finding {
		return why.Finding{
			Reason: why.Reason{Code: code}, Plugin: names.DefaultPreemption, Phase: why.Preemption,
			Object: node,
		}
	}
	switch {
	case outcome == "":
		return nil
	case strings.Contains(outcome, "terminating pod on the nominated node"):
		return []why.Finding{finding(why.VictimsTerminating, pod.Status.NominatedNodeName)}
	case strings.Contains(outcome, "not eligible"):
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
