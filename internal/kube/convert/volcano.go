package convert

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/why"
)

// readVolcano reads the annotation of Volcano, an alias of the policy in numa-topology-spec: own, "" without. A pod
// that names two different policies is refused, for neither can be the one that is meant, and so is a pod with a policy
// that no kubelet would pin (seed 004); the webhook says the same with more words.
func readVolcano(pod *corev1.Pod, own annotation.NUMATopologyPolicy, r *place.Request, args Args) (why.Reason, string) {
	policy, found, err := parse(pod.Annotations, annotation.VolcanoTopologyPolicy,
		annotation.ParseVolcanoTopologyPolicy)
	if err != nil {
		return badAnnotation(annotation.VolcanoTopologyPolicy, err)
	}
	if !found {
		return why.Reason{}, ""
	}
	if own != "" && own != policy {
		return badAnnotation(annotation.VolcanoTopologyPolicy,
			fmt.Errorf("conflicting values for %s and its alias %s: %s and %s",
				annotation.NUMATopologySpecKey, annotation.VolcanoTopologyPolicy, own, policy))
	}
	r.Topology = topologyPolicy(policy)
	if r.Topology == hint.None {
		return why.Reason{}, ""
	}
	r.Volcano, r.SamePolicy = r.Topology, args.VolcanoStrictPolicyMatch
	return pinnedWhole(pod, pod.Annotations[annotation.VolcanoTopologyPolicy])
}

// pinnedWhole refuses pods that a kubelet would not pin as a whole: some container asks for no whole CPU, or the pod is
// not Guaranteed.
func pinnedWhole(pod *corev1.Pod, policy string) (why.Reason, string) {
	for field, c := range containers(pod) {
		if milli := requestOf(&c.Resources); milli <= 0 || milli%1000 != 0 {
			return why.Reason{
				Code: why.CPURequestNotInteger, Resource: why.CPU, Unit: why.MilliCPU, Asked: milli,
				Free: milli / 1000 * 1000,
			}, fmt.Sprintf("the cpu request isn't an integer in %s[%d]", strings.TrimSuffix(field.list, "s"), field.i)
		}
	}
	if kubeClass(pod) == qos.Guaranteed {
		return why.Reason{}, ""
	}
	field, found := Unequal(pod)
	if !found {
		field = "spec.containers" // a limit of cpu or memory is missing
	}
	return why.Reason{Code: why.RequestLimitMismatch},
		fmt.Sprintf(
			"%s: %s %s needs a Guaranteed pod: every container with requests and limits of cpu and memory that are "+
				"equal",
			field, annotation.VolcanoTopologyPolicy, policy)
}
