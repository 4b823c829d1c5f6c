package admission_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/control/admission"
)

func volcano(policy string) podOption { return annot(annotation.VolcanoTopologyPolicy, policy) }

func initContainer(requested, limited corev1.ResourceList) podOption {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{
			Name: "init", Resources: corev1.ResourceRequirements{Requests: requested, Limits: limited},
		})
	}
}

func TestVolcanoPolicyNeedsAGuaranteedPod(t *testing.T) {
	t.Parallel()
	const key = "metadata.annotations[volcano.sh/numa-topology-policy]: "
	tests := map[string]struct {
		pod  *corev1.Pod
		want []string
	}{
		"whole CPUs and equal limits": {newPod(volcano("restricted")), nil},
		"none asks for nothing":       {newPod(volcano("none"), requests("cpu", "100m"), limits()), nil},
		"a policy that does not exist": {
			newPod(volcano("strict")),
			[]string{key +
				`byte 0: Unsupported value "strict": supported none, best-effort, restricted, single-numa-node`},
		},
		"a part of a CPU": {
			newPod(volcano("best-effort"), cpu("1500m")),
			[]string{"spec.containers[0].resources.requests[cpu]: volcano.sh/numa-topology-policy best-effort needs " +
				"a whole number of CPUs in every container, 1 or more: it is 1500m"},
		},
		"no CPU": {
			newPod(volcano("restricted"), requests("memory", "1Gi"),
				limits("memory", "1Gi")),
			[]string{"spec.containers[0].resources.requests[cpu]: volcano.sh/numa-topology-policy restricted needs a " +
				"whole number of CPUs in every container, 1 or more: it is 0m"},
		},
		"a limit above the request": {
			newPod(volcano("restricted"), limits("cpu", "1", "memory", "2Gi")),
			[]string{"spec.containers[0].resources.limits[memory]: volcano.sh/numa-topology-policy restricted needs " +
				"a Guaranteed pod: the request 1Gi must equal the limit 2Gi"},
		},
		"no memory at all": {
			newPod(volcano("restricted"), requests("cpu", "1"), limits("cpu", "1")),
			[]string{"spec.containers[0].resources.limits[memory]: volcano.sh/numa-topology-policy restricted needs " +
				"a Guaranteed pod: state a memory limit"},
		},
		"an init container counts": {
			newPod(volcano("single-numa-node"),
				initContainer(amounts("cpu", "200m", "memory", "1Gi"), amounts("cpu", "200m", "memory", "1Gi"))),
			[]string{"spec.initContainers[0].resources.requests[cpu]: volcano.sh/numa-topology-policy " +
				"single-numa-node needs a whole number of CPUs in every container, 1 or more: it is 200m"},
		},
		"the same policy in both spellings": {newPod(volcano("restricted"),
			annot(annotation.NUMATopologySpecKey, `{"numaTopologyPolicy":"Restricted"}`)), nil},
		"two policies that differ": {
			newPod(volcano("restricted"),
				annot(annotation.NUMATopologySpecKey, `{"numaTopologyPolicy":"SingleNUMANode"}`)),
			[]string{key +
				"conflicting values for scheduling.koordinator.sh/numa-topology-spec and its alias " +
				"volcano.sh/numa-topology-policy: SingleNUMANode and Restricted"},
		},
		"an empty policy of the other": {newPod(volcano("restricted"),
			annot(annotation.NUMATopologySpecKey, `{}`)), nil},
		"a limit alone is the request's twin": {newPod(volcano("restricted"), requests()), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := admission.Create(tt.pod, nil)
			var got []string
			for _, r := range a.Refusals {
				got = append(got, r.String())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("refusals:\n got %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestVolcanoPolicyGetsMissingLimits(t *testing.T) {
	t.Parallel()
	pod := newPod(volcano("restricted"), requests("cpu", "2", "memory", "1Gi"), limits("cpu", "2"),
		initContainer(amounts("cpu", "1", "memory", "64Mi"), nil))
	if a := admission.Create(pod, nil); !a.Allowed() {
		t.Fatalf("a missing limit alone is refused: %v", a.Refusals)
	}
	changed, answer := admission.Mutate(pod)
	if len(pod.Spec.InitContainers[0].Resources.Limits) != 0 {
		t.Fatal("Mutate changed the pod")
	}
	pod = changed
	if got := pod.Spec.InitContainers[0].Resources.Limits; !got.Cpu().Equal(
		*pod.Spec.InitContainers[0].Resources.Requests.Cpu()) || got.Memory().String() != "64Mi" {
		t.Errorf("limits of the init container are %v, want its requests", got)
	}
	if got := pod.Spec.Containers[0].Resources.Limits.Memory().String(); got != "1Gi" {
		t.Errorf("memory limit is %s, want 1Gi", got)
	}
	if len(answer.Warnings) != 3 || !strings.Contains(answer.Warnings[2],
		"spec.containers[0].resources.limits[memory]: set to the request 1Gi") {
		t.Errorf("warnings = %q, want three, the last of the container's memory", answer.Warnings)
	}
	for _, policy := range []string{"none", "bogus"} {
		pod := newPod(volcano(policy), limits())
		if changed, _ := admission.Mutate(pod); !cmp.Equal(pod, changed) {
			t.Errorf("%s: %s, want no change", policy, cmp.Diff(pod, changed))
		}
	}
}

func TestVolcanoPolicyOnUpdate(t *testing.T) {
	t.Parallel()
	old := newPod()
	for name, tt := range map[string]struct {
		pod     *corev1.Pod
		allowed bool
	}{
		"set to a good one before the bind": {newPod(volcano("restricted")), true},
		"set to a bad one":                  {newPod(volcano("x")), false},
		"set on a bound pod":                {newPod(volcano("restricted"), onNode), false},
	} {
		was := old.DeepCopy()
		was.Spec.NodeName = tt.pod.Spec.NodeName
		if a := admission.Update(tt.pod, was, admission.Anyone); a.Allowed() != tt.allowed {
			t.Errorf("%s: allowed = %v, refusals %v", name, a.Allowed(), a.Refusals)
		}
	}
}
