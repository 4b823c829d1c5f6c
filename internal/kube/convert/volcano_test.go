package convert_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

func volcano(policy string) podOption { return annot(annotation.VolcanoTopologyPolicy, policy) }

func alignment(policy string) podOption {
	return annot(annotation.NUMATopologySpecKey, `{"numaTopologyPolicy":"`+policy+`"}`)
}

func TestVolcanosPolicyIsAnAlias(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		strict bool
		// topology and volcano are what the request gets.
		topology, volcano hint.Policy
	}{
		"absent":               {pod: newPod(container("2"))},
		"none filters nothing": {pod: newPod(container("500m"), volcano("none"))},
		"best-effort": {
			pod: newPod(container("2"), volcano("best-effort")), topology: hint.BestEffort,
			volcano: hint.BestEffort,
		},
		"restricted": {
			pod: newPod(container("2"), volcano("restricted")), topology: hint.Restricted,
			volcano: hint.Restricted,
		},
		"single-numa-node": {
			pod:      newPod(container("2"), volcano("single-numa-node")),
			topology: hint.SingleNUMANode, volcano: hint.SingleNUMANode,
		},
		"strict match is passed on": {
			pod: newPod(container("2"), volcano("restricted")), strict: true,
			topology: hint.Restricted, volcano: hint.Restricted,
		},
		"both say the same": {
			pod:      newPod(container("2"), volcano("restricted"), alignment("Restricted")),
			topology: hint.Restricted, volcano: hint.Restricted,
		},
		"the other one names none": {
			pod: newPod(container("2"), volcano("restricted"),
				annot(annotation.NUMATopologySpecKey, `{"singleNUMANodeExclusive":"Preferred"}`)),
			topology: hint.Restricted, volcano: hint.Restricted,
		},
		"sidecars and init containers have whole CPUs": {
			pod: newPod(container("2"), initContainer("1", true), initContainer("3", false),
				volcano("restricted")),
			topology: hint.Restricted, volcano: hint.Restricted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := convert.DefaultArgs()
			args.VolcanoStrictPolicyMatch = c.strict
			r, reason, detail := convert.Request(c.pod, args)
			if !reason.OK() {
				t.Fatalf("refused: %s: %s", reason.Code, detail)
			}
			if r.Topology != c.topology || r.Volcano != c.volcano || r.SamePolicy != c.strict {
				t.Errorf("Topology %s, Volcano %s, SamePolicy %v; want %s, %s, %v", r.Topology, r.Volcano, r.SamePolicy,
					c.topology, c.volcano, c.strict)
			}
		})
	}
}

func TestVolcanosPodsThatCanNeverWork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		code   why.Code
		detail string
	}{
		"an unknown policy": {
			newPod(container("2"), volcano("strict")), why.BadAnnotation,
			`Unsupported value "strict": supported none, best-effort, restricted, single-numa-node`,
		},
		"two policies": {
			newPod(container("2"), volcano("restricted"), alignment("SingleNUMANode")), why.BadAnnotation,
			"conflicting values for scheduling.koordinator.sh/numa-topology-spec and its alias " +
				"volcano.sh/numa-topology-policy: SingleNUMANode and Restricted",
		},
		"none beside a policy": {
			newPod(container("2"), volcano("none"), alignment("BestEffort")), why.BadAnnotation, "BestEffort and None",
		},
		"a part of a CPU": {
			newPod(container("1"), container("1500m"), volcano("best-effort")), why.CPURequestNotInteger,
			"the cpu request isn't an integer in container[1]",
		},
		"no CPU at all": {
			newPod(container("0"), volcano("restricted")), why.CPURequestNotInteger,
			"the cpu request isn't an integer in container[0]",
		},
		"a part of a CPU before the rest starts": {
			newPod(container("1"), initContainer("200m", false), volcano("restricted")), why.CPURequestNotInteger,
			"the cpu request isn't an integer in initContainer[0]",
		},
		"a pod that may use more than it asks for": {
			newPod(bounded("1", "2"), volcano("restricted")), why.RequestLimitMismatch,
			"spec.containers[0].resources.limits[cpu]: volcano.sh/numa-topology-policy restricted needs a Guaranteed " +
				"pod",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, reason, detail := convert.Request(c.pod, convert.DefaultArgs())
			if r != nil || reason.Code != c.code || !strings.Contains(detail, c.detail) {
				t.Errorf("Request = %v, %s, %q; want %s with %q", r, reason.Code, detail, c.code, c.detail)
			}
		})
	}
}
