package admission_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

type podOption = object.PodOption

// newPod is a pod of one container with one CPU and 1 GiB, requests equal to limits.
func newPod(options ...podOption) *corev1.Pod {
	return object.Pod("p", append([]podOption{
		object.UID(""), object.Container("", ""), object.Both("cpu", "1", "memory", "1Gi"),
	}, options...)...)
}

func amounts(pairs ...string) corev1.ResourceList { return object.List(pairs...) }

func label(key, value string) podOption { return func(p *corev1.Pod) { p.Labels[key] = value } }
func class(c string) podOption          { return label(annotation.QoSClass, c) }
func band(b string) podOption           { return label(annotation.PriorityClass, b) }
func annot(key, value string) podOption { return func(p *corev1.Pod) { p.Annotations[key] = value } }
func spec(json string) podOption        { return annot(annotation.ResourceSpecKey, json) }
func onNode(p *corev1.Pod)              { p.Spec.NodeName = "n" }
func priority(v int32) podOption        { return func(p *corev1.Pod) { p.Spec.Priority = &v } }

func requests(pairs ...string) podOption {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = amounts(pairs...) }
}

func limits(pairs ...string) podOption {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = amounts(pairs...) }
}

func cpu(request string) podOption {
	return func(p *corev1.Pod) {
		requests("cpu", request, "memory", "1Gi")(p)
		limits("cpu", request, "memory", "1Gi")(p)
	}
}

func sidecar(cpu string) podOption {
	return func(p *corev1.Pod) {
		always := corev1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []corev1.Container{{RestartPolicy: &always, Resources: corev1.ResourceRequirements{
			Requests: amounts("cpu", cpu), Limits: amounts("cpu", cpu),
		}}}
	}
}

func podLevel(cpu string) podOption {
	return func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("cpu", cpu), Limits: amounts("cpu", cpu)}
	}
}

func arm64(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelArchStable: "arm64"} }

func requiredArchs(terms ...[]string) podOption {
	return func(p *corev1.Pod) {
		selector := &corev1.NodeSelector{}
		for _, values := range terms {
			selector.NodeSelectorTerms = append(selector.NodeSelectorTerms,
				corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: values},
				}})
		}
		p.Spec.Affinity = &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selector},
		}
	}
}

const (
	specField      = "metadata.annotations[scheduling.koordinator.sh/resource-spec]: "
	topologyField  = "metadata.annotations[scheduling.koordinator.sh/numa-topology-spec]: "
	statusField    = "metadata.annotations[scheduling.koordinator.sh/resource-status]: "
	classField     = "metadata.labels[koordinator.sh/qosClass]: "
	isolationField = "metadata.annotations[tenon.sh/isolated-cpus]: "
)

func check(t *testing.T, got admission.Answer, refusals, warnings []string) {
	t.Helper()
	var texts []string
	for _, r := range got.Refusals {
		if r.Code.String() == "" {
			t.Errorf("refusal %q has no code", r)
		}
		texts = append(texts, r.String())
	}
	if diff := cmp.Diff(refusals, texts); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(warnings, got.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if got.Allowed() != (len(refusals) == 0) {
		t.Errorf("Allowed() = %v with refusals %v", got.Allowed(), texts)
	}
}

// runTimeRule is the refusal of a run time.
func runTimeRule(value string) string {
	return "metadata.annotations[tenon.sh/expected-runtime]: byte 0: Invalid value " + value +
		": must be a Go duration from 1s to 8760h, such as 90s, 1h30m or 48h"
}

func TestCreate(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pod      *corev1.Pod
		refusals []string
		warnings []string
	}{
		"a plain pod": {pod: newPod()},
		"a run time":  {pod: newPod(annot(annotation.ExpectedRuntime, "1h30m"))},
		"a run time of no unit": {
			pod: newPod(annot(annotation.ExpectedRuntime, "90")), refusals: []string{runTimeRule(`"90"`)},
		},
		"a negative run time": {
			pod: newPod(annot(annotation.ExpectedRuntime, "-1h")), refusals: []string{runTimeRule(`"-1h"`)},
		},
		"a run time of more than a year": {
			pod: newPod(annot(annotation.ExpectedRuntime, "8760h1s")), refusals: []string{runTimeRule(`"8760h1s"`)},
		},
		"an LSR pod of whole CPUs":   {pod: newPod(class("LSR"), cpu("2"), priority(9500))},
		"a BE pod of class batch":    {pod: newPod(class("BE"), band("koord-batch"))},
		"an LS pod of any class":     {pod: newPod(class("LS"), band("koord-mid"))},
		"limits alone are completed": {pod: newPod(class("LSE"), requests())},
		"batch amounts of a BE pod": {pod: newPod(class("BE"), requests("kubernetes.io/batch-cpu", "1000"),
			limits("kubernetes.io/batch-cpu", "2000"))},
		"constrained burst": {pod: newPod(class("LS"), limits("cpu", "4"),
			spec(`{"preferredCPUBindPolicy":"ConstrainedBurst"}`))},
		"required and preferred differ": {pod: newPod(class("LSR"),
			spec(`{"requiredCPUBindPolicy":"FullPCPUs","preferredCPUBindPolicy":"SpreadByPCPUs"}`))},

		"an affinity to reservations that requires nothing": {
			pod: newPod(annot(annotation.ReservationAffinityKey,
				`{"requiredDuringSchedulingIgnoredDuringExecution":{"reservationSelectorTerms":[]}}`)),
			refusals: []string{"metadata.annotations[scheduling.koordinator.sh/reservation-affinity]: byte 50: " +
				"requiredDuringSchedulingIgnoredDuringExecution: must have at least one of reservationSelectorTerms"},
		},
		"the mark of a reservation on a pod": {
			pod: newPod(annot(annotation.ReservePodKey, "true")),
			refusals: []string{"metadata.annotations[scheduling.koordinator.sh/reserve-pod]: " +
				"cannot set in annotations"},
		},
		"a pod that keeps its room for another one": {
			pod: newPod(label(annotation.OperatingMode, "Reservation"), annot(annotation.ReservationOwnersKey,
				`[{"controller":{"kind":"ReplicaSet","name":"web"}}]`)),
		},
		"a pod that keeps its room for no pod": {
			pod: newPod(label(annotation.OperatingMode, "Reservation")),
			refusals: []string{"metadata.annotations[scheduling.koordinator.sh/reservation-owners]: must be set " +
				"for a pod with the label scheduling.koordinator.sh/operating-mode=Reservation: it says which pod " +
				"may use the room"},
		},
		"a pod that keeps its room for every pod": {
			pod: newPod(label(annotation.OperatingMode, "Reservation"),
				annot(annotation.ReservationOwnersKey, `[{"labelSelector":{}}]`)),
			refusals: []string{"metadata.annotations[scheduling.koordinator.sh/reservation-owners][0].labelSelector: " +
				"must not be empty: it would match every pod of the cluster"},
		},
		"owners without an entry": {
			pod: newPod(label(annotation.OperatingMode, "Reservation"), annot(annotation.ReservationOwnersKey, `[]`)),
			refusals: []string{"metadata.annotations[scheduling.koordinator.sh/reservation-owners]: " +
				"byte 0: must have at least one entry"},
		},
		"a pod of another mode": {
			pod: newPod(label(annotation.OperatingMode, "Reserve")),
			refusals: []string{"metadata.labels[scheduling.koordinator.sh/operating-mode]: " +
				`Unsupported value "Reserve": supported Runnable, Reservation`},
		},
		"reservations ignored in another word": {
			pod: newPod(label(annotation.ReservationIgnored, "yes")),
			refusals: []string{"metadata.labels[scheduling.koordinator.sh/reservation-ignored]: " +
				`Unsupported value "yes": supported true, false`},
		},
		"an unknown class": {pod: newPod(class("GOLD")), refusals: []string{
			classField + `Unsupported value "GOLD": supported LSE, LSR, LS, BE, SYSTEM`,
		}},
		"a class in another case": {pod: newPod(class("ls")), warnings: []string{
			classField + `"ls" is read as "LS": values are case-sensitive on output`,
		}},
		"an unknown priority class": {pod: newPod(band("gold")), refusals: []string{
			`metadata.labels[koordinator.sh/priority-class]: Unsupported value "gold": supported koord-prod, ` +
				`koord-mid, koord-batch, koord-free`,
		}},
		"a priority class in another case": {pod: newPod(band("Koord-Prod")), warnings: []string{
			`metadata.labels[koordinator.sh/priority-class]: "Koord-Prod" is read as "koord-prod": values are ` +
				`case-sensitive on output`,
		}},
		"a sub-priority that is not a number": {pod: newPod(label(annotation.Priority, "high")), refusals: []string{
			`metadata.labels[koordinator.sh/priority]: Invalid value "high": must be a whole number from -2147483648 ` +
				`to 2147483647`,
		}},
		"LSR of class batch": {pod: newPod(class("LSR"), band("koord-batch")), refusals: []string{
			classField +
				"koordinator.sh/qosClass=LSR and priorityClass=koord-batch cannot be used in combination: LSR allows " +
				"koord-prod",
		}},
		"LSE of a free priority": {pod: newPod(class("LSE"), priority(3500)), refusals: []string{
			classField +
				"koordinator.sh/qosClass=LSE and priorityClass=koord-free cannot be used in combination: LSE allows " +
				"koord-prod",
		}},
		"LSE of a class that has no number yet": {pod: newPod(class("LSE"),
			func(p *corev1.Pod) { p.Spec.PriorityClassName = "koord-mid" }), refusals: []string{
			classField +
				"koordinator.sh/qosClass=LSE and priorityClass=koord-mid cannot be used in combination: LSE allows " +
				"koord-prod",
		}},
		"BE of class prod": {pod: newPod(class("BE"), priority(9000)), refusals: []string{
			classField +
				"koordinator.sh/qosClass=BE and priorityClass=koord-prod cannot be used in combination: BE allows " +
				"koord-mid, koord-batch, koord-free",
		}},
		"LSR without CPU": {pod: newPod(class("LSR"), requests(), limits()), refusals: []string{
			"spec.containers[*].resources.requests[cpu]: LSR Pod must declare the requested CPUs",
		}},
		"LSE with a fraction of a CPU": {pod: newPod(class("LSE"), cpu("1500m")), refusals: []string{
			"spec.containers[*].resources.requests[cpu]: the requested CPUs of LSE Pod must be integer: the " +
				"containers request 1500m, allowed are multiples of 1000m",
		}},
		"LSR with a fraction of a CPU as pod overhead": {
			pod: newPod(class("LSR"), cpu("3"), func(p *corev1.Pod) { p.Spec.Overhead = amounts("cpu", "250m") }),
			refusals: []string{
				"spec.overhead[cpu]: the requested CPUs of LSR Pod must be integer: the containers request 3000m, " +
					"pod overhead 250m, allowed are multiples of 1000m",
			},
		},
		"LSR with a fraction of a CPU in the pod's own request": {
			pod: newPod(class("LSR"), cpu("1"), func(p *corev1.Pod) {
				list := amounts("cpu", "1500m", "memory", "1Gi")
				p.Spec.Resources = &corev1.ResourceRequirements{Requests: list, Limits: list}
			}),
			refusals: []string{
				"spec.resources.requests[cpu]: the requested CPUs of LSR Pod must be integer: the pod's own request " +
					"is 1500m, allowed are multiples of 1000m",
			},
		},
		"LSR that may burst": {pod: newPod(class("LSR"), limits("cpu", "2", "memory", "1Gi")), refusals: []string{
			"spec.containers[0].resources.limits[cpu]: requests must equal limits for LSR Pod",
		}},
		"LSE without memory limit": {pod: newPod(class("LSE"), limits("cpu", "1")), refusals: []string{
			"spec.containers[0].resources.limits[memory]: requests must equal limits for LSE Pod",
		}},
		"all errors are reported at once": {pod: newPod(class("LSR"), cpu("100m"), limits("cpu", "1"),
			band("koord-free"), spec("{")), refusals: []string{
			classField +
				"koordinator.sh/qosClass=LSR and priorityClass=koord-free cannot be used in combination: LSR allows " +
				"koord-prod",
			"spec.containers[*].resources.requests[cpu]: the requested CPUs of LSR Pod must be integer: the " +
				"containers request 100m, allowed are multiples of 1000m",
			"spec.containers[0].resources.limits[cpu]: requests must equal limits for LSR Pod",
			specField + "byte 1: unexpected end of JSON input",
		}},
		"batch amounts without BE": {pod: newPod(requests("kubernetes.io/batch-cpu", "1000")), refusals: []string{
			"spec.containers[0].resources[kubernetes.io/batch-cpu]: must specify koordinator QoS BE with koordinator " +
				"colocation resources",
		}},
		"batch amounts of an init container": {
			pod: newPod(class("LS"), sidecar("1"), func(p *corev1.Pod) {
				p.Spec.InitContainers[0].Resources.Requests = amounts("kubernetes.io/batch-memory", "1Gi")
			}),
			refusals: []string{
				"spec.initContainers[0].resources[kubernetes.io/batch-memory]: must specify koordinator QoS BE with " +
					"koordinator colocation resources",
			},
		},
		"batch amounts under the old name on LS": {pod: newPod(class("LS"),
			limits("koordinator.sh/batch-memory", "1Gi")), refusals: []string{
			"spec.containers[0].resources[koordinator.sh/batch-memory]: must specify koordinator QoS BE with " +
				"koordinator colocation resources",
		}},

		"a spec that is not JSON": {pod: newPod(spec("FullPCPUs")), refusals: []string{
			specField + "byte 1: invalid character 'F' looking for beginning of value",
		}},
		"a policy of the wrong type": {
			pod: newPod(class("LSR"), spec(`{"preferredCPUBindPolicy":true}`)),
			refusals: []string{
				specField + "byte 30: preferredCPUBindPolicy: want a string, got bool",
			},
		},
		"an unknown bind policy": {
			pod: newPod(class("LSR"), spec(`{"preferredCPUBindPolicy":"Pack"}`)),
			refusals: []string{
				specField +
					`byte 26: preferredCPUBindPolicy: Unsupported value "Pack": supported Default, FullPCPUs, ` +
					`SpreadByPCPUs, ConstrainedBurst`,
			},
		},
		"an unknown exclusive policy": {
			pod: newPod(class("LSR"), spec(`{"preferredCPUExclusivePolicy":"Socket"}`)),
			refusals: []string{
				specField +
					`byte 31: preferredCPUExclusivePolicy: Unsupported value "Socket": supported None, PCPULevel, ` +
					`NUMANodeLevel`,
			},
		},
		"a required burst": {
			pod: newPod(class("LS"), spec(`{"requiredCPUBindPolicy":"ConstrainedBurst"}`)),
			refusals: []string{
				specField + "byte 25: requiredCPUBindPolicy: ConstrainedBurst can only be preferred",
			},
		},
		"constrained burst on LSR": {
			pod: newPod(class("LSR"), spec(`{"preferredCPUBindPolicy":"ConstrainedBurst"}`)),
			refusals: []string{
				specField + "ConstrainedBurst needs QoS LS or Burstable and a cpu limit",
			},
		},
		"constrained burst without a limit": {pod: newPod(class("LS"), limits(),
			spec(`{"preferredCPUBindPolicy":"ConstrainedBurst"}`)), refusals: []string{
			specField + "ConstrainedBurst needs QoS LS or Burstable and a cpu limit",
		}},
		"a misspelt field": {
			pod: newPod(class("LSR"), spec(`{"preferredCPUBindPolcy":"FullPCPUs"}`)),
			warnings: []string{
				specField + `preferredCPUBindPolcy: unknown field, did you mean "preferredCPUBindPolicy"?`,
			},
		},
		"a bind policy of a pod that is not bound": {pod: newPod(class("LS"),
			spec(`{"preferredCPUBindPolicy":"FullPCPUs"}`)), warnings: []string{
			specField + "ignored: only LSE/LSR pods are bound",
		}},
		"a burst": {pod: newPod(class("LS"), limits("cpu", "1"),
			annot(annotation.CPUBurstKey, `{"policy":"cpuBurstOnly","cpuBurstPercent":100}`))},
		"a burst by scaling quotas": {
			pod: newPod(class("LS"), limits("cpu", "1"),
				annot(annotation.CPUBurstKey, `{"policy":"auto","cfsQuotaBurstPercent":300}`)),
			warnings: []string{
				"metadata.annotations[koordinator.sh/cpuBurst]: no effect: cfsQuotaBurstPercent",
				"metadata.annotations[koordinator.sh/cpuBurst]: no effect: policy: quota scaling of auto",
			},
		},
		"a burst of a batch pod": {
			pod: newPod(class("BE"), requests(), annot(annotation.CPUBurstKey, `{"policy":"cpuBurstOnly"}`)),
			warnings: []string{
				"metadata.annotations[koordinator.sh/cpuBurst]: no effect on a batch pod, which keeps within its " +
					"limits",
			},
		},
		"a burst of a pod with CPUs of its own": {
			pod: newPod(class("LSR"), cpu("1"), annot(annotation.CPUBurstKey, `{"policy":"cpuBurstOnly"}`)),
			warnings: []string{
				"metadata.annotations[koordinator.sh/cpuBurst]: no effect on a pod of class LSR: a pod with " +
					"exclusive CPUs has no CPU quota",
			},
		},
		"a burst that is not JSON": {
			pod: newPod(class("LS"), annot(annotation.CPUBurstKey, `{"policy":`)), refusals: []string{
				"metadata.annotations[koordinator.sh/cpuBurst]: byte 10: unexpected end of JSON input",
			},
		},
		"a negative burst": {
			pod: newPod(class("LS"), annot(annotation.CPUBurstKey, `{"cpuBurstPercent":-5}`)), refusals: []string{
				"metadata.annotations[koordinator.sh/cpuBurst]: byte 19: cpuBurstPercent: must be 0…10000 percent of " +
					"the CPU limit",
			},
		},
		"interrupts and sleep of exclusive CPUs": {pod: newPod(class("LSE"), cpu("1"),
			annot(annotation.InterruptsKey, "disable"), annot(annotation.SleepKey, "max_latency:10"))},
		"interrupts: a value of another program": {
			pod: newPod(class("LSE"), cpu("1"), annot(annotation.InterruptsKey, "true")), warnings: []string{
				"metadata.annotations[irq-load-balancing.crio.io]: byte 0: Unsupported value \"true\": supported " +
					"disable, enable; the annotation is ignored",
			},
		},
		"interrupts of a pod without CPUs of its own": {
			pod: newPod(class("BE"), requests(), annot(annotation.InterruptsKey, "disable")), warnings: []string{
				"metadata.annotations[irq-load-balancing.crio.io]: Tenon follows it for pods of the classes LSE " +
					"and LSR alone",
			},
		},
		"sleep: more than the kernel takes": {
			pod: newPod(class("LSR"), cpu("1"), annot(annotation.SleepKey, "max_latency:2147483647")),
			warnings: []string{
				"metadata.annotations[cpu-c-states.crio.io]: byte 0: Invalid value \"max_latency:2147483647\": " +
					"max_latency must be 0…2147483646 microseconds; the annotation is ignored",
			},
		},
		"sleep: another case": {
			pod: newPod(class("LSR"), cpu("1"), annot(annotation.SleepKey, "Disable")), warnings: []string{
				"metadata.annotations[cpu-c-states.crio.io]: \"Disable\" is read as \"disable\": values are " +
					"case-sensitive on output",
			},
		},
		"isolated CPUs": {pod: newPod(class("LSE"), cpu("1"), annot(annotation.IsolationKey, "require"))},
		"isolated CPUs: a value that there is not": {
			pod: newPod(class("LSE"), cpu("1"), annot(annotation.IsolationKey, "required")), refusals: []string{
				isolationField + `byte 0: Unsupported value "required": supported prefer, require, avoid`,
			},
		},
		"isolated CPUs: no value": {
			pod: newPod(class("LSE"), cpu("1"), annot(annotation.IsolationKey, "")), refusals: []string{
				isolationField + `byte 0: Unsupported value "": supported prefer, require, avoid`,
			},
		},
		"isolated CPUs: another case": {
			pod: newPod(class("LSR"), cpu("1"), annot(annotation.IsolationKey, "Prefer")), warnings: []string{
				isolationField + `"Prefer" is read as "prefer": values are case-sensitive on output`,
			},
		},
		"isolated CPUs of several threads": {
			pod: newPod(class("LSR"), cpu("2"), annot(annotation.IsolationKey, "prefer")), warnings: []string{
				isolationField + "the kernel moves no thread between isolated CPUs: the containers must pin their " +
					"threads to the pod's 2 CPUs themselves",
			},
		},
		"isolated CPUs of a pod that shares its CPUs": {
			pod: newPod(class("LS"), annot(annotation.IsolationKey, "require")), warnings: []string{
				isolationField + "ignored: only LSE/LSR pods have exclusive CPUs",
			},
		},
		"isolated CPUs of a pod without a class": {
			pod: newPod(annot(annotation.IsolationKey, "prefer")), warnings: []string{
				isolationField + "ignored: only LSE/LSR pods have exclusive CPUs",
			},
		},
		"isolated CPUs, avoided": {pod: newPod(class("BE"), requests(), annot(annotation.IsolationKey, "avoid"))},
		"isolated CPUs by the key of nodes": {
			pod: newPod(class("LSE"), cpu("1"), annot(annotation.IsolatedCPUsKey, "prefer")), warnings: []string{
				"metadata.annotations[node.tenon.sh/isolated-cpus]: has no effect here: it is a NodeResourceTopology " +
					"annotation",
			},
		},
		"an unknown topology policy": {pod: newPod(annot(annotation.NUMATopologySpecKey,
			`{"numaTopologyPolicy":"Socket"}`)), refusals: []string{
			topologyField +
				`byte 22: numaTopologyPolicy: Unsupported value "Socket": supported BestEffort, Restricted, ` +
				`SingleNUMANode`,
		}},
		"an unknown exclusiveness": {pod: newPod(annot(annotation.NUMATopologySpecKey,
			`{"singleNUMANodeExclusive":"Always"}`)), refusals: []string{
			topologyField +
				`byte 27: singleNUMANodeExclusive: Unsupported value "Always": supported Preferred, Required`,
		}},
		"how a simulated pod runs, misspelt": {
			pod: newPod(annot(annotation.SimulateKey, `{"runFor":"5 s"}`)),
			refusals: []string{
				`metadata.annotations[tenon.sh/simulate]: byte 10: runFor: time: unknown unit " s" in duration "5 s"`,
			},
		},

		"SpreadByPCPUs required on arm64": {pod: newPod(class("LSR"), arm64,
			spec(`{"requiredCPUBindPolicy":"SpreadByPCPUs"}`)), refusals: []string{
			"metadata.annotations[scheduling.koordinator.sh/resource-spec].requiredCPUBindPolicy: " +
				`Unsupported value "SpreadByPCPUs": supported Default, FullPCPUs on arm64`,
		}},
		"SpreadByPCPUs required where every alternative is arm64": {
			pod: newPod(class("LSR"), requiredArchs([]string{"arm64"}, []string{"arm64"}),
				spec(`{"requiredCPUBindPolicy":"SpreadByPCPUs"}`)), refusals: []string{
				"metadata.annotations[scheduling.koordinator.sh/resource-spec].requiredCPUBindPolicy: " +
					`Unsupported value "SpreadByPCPUs": supported Default, FullPCPUs on arm64`,
			},
		},
		"SpreadByPCPUs required where arm64 is one of two": {
			pod: newPod(class("LSR"), requiredArchs([]string{"arm64", "amd64"}),
				spec(`{"requiredCPUBindPolicy":"SpreadByPCPUs"}`)),
		},
		"preferences that arm64 does not know": {
			pod: newPod(class("LSR"), arm64, spec(
				`{"preferredCPUBindPolicy":"SpreadByPCPUs","preferredCPUExclusivePolicy":"PCPULevel"}`)),
			warnings: []string{
				specField + "preferredCPUBindPolicy SpreadByPCPUs is FullPCPUs on arm64",
				specField + "preferredCPUExclusivePolicy PCPULevel is None on arm64",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, admission.Create(tt.pod, nil), tt.refusals, tt.warnings)
		})
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	status := annot(annotation.ResourceStatusKey, `{"cpuset":"0"}`)
	tests := map[string]struct {
		pod, old *corev1.Pod
		author   admission.Author
		refusals []string
		warnings []string
	}{
		"a bad pod may still lose a finalizer": {
			old: newPod(class("LSR"), cpu("100m"), func(p *corev1.Pod) { p.Finalizers = []string{"f"} }),
			pod: newPod(class("LSR"), cpu("100m")),
		},
		"a run time that changes while the pod runs": {
			old: newPod(onNode, annot(annotation.ExpectedRuntime, "1h")),
			pod: newPod(onNode, annot(annotation.ExpectedRuntime, "2h")),
		},
		"a run time that becomes a bad one": {
			old: newPod(annot(annotation.ExpectedRuntime, "1h")),
			pod: newPod(annot(annotation.ExpectedRuntime, "0s")), refusals: []string{runTimeRule(`"0s"`)},
		},
		"another class": {
			old: newPod(class("LS")), pod: newPod(class("LSR")),
			refusals: []string{classField + "field is immutable"},
		},
		"a class that was not there": {
			old: newPod(), pod: newPod(class("LSE")),
			refusals: []string{classField + "field is immutable"},
		},
		"a class that goes away": {
			old: newPod(class("BE")), pod: newPod(),
			refusals: []string{classField + "field is immutable"},
		},
		"another priority class": {old: newPod(band("koord-prod")), pod: newPod(band("koord-free")), refusals: []string{
			"metadata.labels[koordinator.sh/priority-class]: field is immutable",
		}},
		"another sub-priority": {
			old: newPod(label(annotation.Priority, "1")),
			pod: newPod(label(annotation.Priority, "2")), refusals: []string{
				"metadata.labels[koordinator.sh/priority]: field is immutable",
			},
		},
		"an allocation that a user writes": {old: newPod(), pod: newPod(status), refusals: []string{
			statusField + "scheduling.koordinator.sh/resource-status is set by the scheduler",
		}},
		"an allocation that a user changes": {
			old: newPod(annot(annotation.ResourceStatusKey, `{"cpuset":"1"}`)),
			pod: newPod(status), refusals: []string{
				statusField + "scheduling.koordinator.sh/resource-status is set by the scheduler",
			},
		},
		"an allocation that a user removes": {old: newPod(status), pod: newPod(), refusals: []string{
			statusField + "scheduling.koordinator.sh/resource-status is set by the scheduler",
		}},
		"any key of the scheduler": {
			old: newPod(),
			pod: newPod(annot("scheduling.koordinator.sh/bind-x", "1"), annot(annotation.DeviceAllocatedKey, "{}")),
			refusals: []string{
				"metadata.annotations[scheduling.koordinator.sh/bind-x]: scheduling.koordinator.sh/bind-x is set by " +
					"the " +
					"scheduler",
				"metadata.annotations[scheduling.koordinator.sh/device-allocated]: " +
					"scheduling.koordinator.sh/device-allocated is set by the scheduler",
			},
		},
		"an allocation that the scheduler writes": {old: newPod(), pod: newPod(status), author: admission.Scheduler},
		"not even the scheduler changes a class": {
			old: newPod(), pod: newPod(class("LS")), author: admission.Scheduler,
			refusals: []string{classField + "field is immutable"},
		},
		"wishes may change before the pod is bound": {
			old: newPod(class("LSR")), pod: newPod(class("LSR"), spec(`{"preferredCPUBindPolicy":"SpreadByPCPUs"}`)),
		},
		"wishes that are wrong": {old: newPod(class("LSR")), pod: newPod(class("LSR"), spec(`[]`)), refusals: []string{
			specField + "byte 1: want an object, got array",
		}},
		"wishes after the pod is bound": {
			old: newPod(class("LSR"), onNode),
			pod: newPod(class("LSR"), onNode, spec(`{}`)), refusals: []string{
				specField + "field is immutable once the pod is bound to a node",
			},
		},
		"isolated CPUs after the pod is bound": {
			old:      newPod(class("LSE"), onNode),
			pod:      newPod(class("LSE"), onNode, annot(annotation.IsolationKey, "require")),
			refusals: []string{isolationField + "field is immutable once the pod is bound to a node"},
		},
		"a topology policy that is wrong": {
			old: newPod(), pod: newPod(annot(annotation.NUMATopologySpecKey, "1")),
			refusals: []string{
				topologyField + "byte 1: want an object, got number",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, admission.Update(tt.pod, tt.old, tt.author), tt.refusals, tt.warnings)
		})
	}
}

func TestResize(t *testing.T) {
	t.Parallel()
	const refusal = "spec.containers[0].resources: cpu of a bound pod cannot be resized"
	tests := map[string]struct {
		pod, old *corev1.Pod
		refusals []string
	}{
		"CPU of an LSR pod": {
			old: newPod(class("LSR"), onNode), pod: newPod(class("LSR"), onNode, cpu("2")),
			refusals: []string{refusal},
		},
		"CPU limit of an LSE pod": {
			old: newPod(class("LSE"), onNode),
			pod: newPod(class("LSE"), onNode, limits("cpu", "3", "memory", "1Gi")), refusals: []string{refusal},
		},
		"memory of an LSR pod": {
			old: newPod(class("LSR"), onNode),
			pod: newPod(class("LSR"), onNode, requests("cpu", "1", "memory", "2Gi")),
		},
		"CPU of an LS pod":   {old: newPod(class("LS"), onNode), pod: newPod(class("LS"), onNode, cpu("2"))},
		"CPU of a plain pod": {old: newPod(onNode), pod: newPod(onNode, cpu("2"))},
		"CPU of a plain pod with CPUs": {
			old: newPod(onNode, annot(annotation.ResourceStatusKey, `{"cpuset":"0"}`)),
			pod: newPod(onNode, cpu("2")), refusals: []string{refusal},
		},
		"CPU of a sidecar": {
			old: newPod(class("LSR"), onNode, sidecar("1")), pod: newPod(class("LSR"), onNode, sidecar("2")),
			refusals: []string{"spec.initContainers[0].resources: cpu of a bound pod cannot be resized"},
		},
		"CPU of the pod as a whole": {
			old: newPod(class("LSR"), onNode, podLevel("2")), pod: newPod(class("LSR"), onNode, podLevel("4")),
			refusals: []string{"spec.resources: cpu of a bound pod cannot be resized"},
		},
		"CPUs for the pod as a whole appear": {
			old: newPod(class("LSR"), onNode), pod: newPod(class("LSR"), onNode, podLevel("4")),
			refusals: []string{"spec.resources: cpu of a bound pod cannot be resized"},
		},
		"CPU of an LSR pod of class mid": {
			old: newPod(class("LSR"), band("koord-mid"), onNode),
			pod: newPod(class("LSR"), onNode, cpu("2")),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, admission.Resize(tt.pod, tt.old, admission.Room{}), tt.refusals, nil)
		})
	}
}

// TestAResizeGrowsNoFurtherThanTheNodeAndItsNUMANodesHave: pod a has 4 CPUs and 20Gi on NUMA node 0 of 8 CPUs and 64Gi,
// pod b 2 CPUs and 40Gi beside it.
func TestAResizeGrowsNoFurtherThanTheNodeAndItsNUMANodesHave(t *testing.T) {
	t.Parallel()
	confined := func(name, cpu, memory string) *corev1.Pod {
		p := newPod(class("LS"), onNode, requests("cpu", cpu, "memory", memory), annot(annotation.ResourceStatusKey,
			`{"numaNodeResources":[{"node":0,"resources":{"cpu":"4","memory":"20Gi"}}]}`))
		p.UID = types.UID(name)
		return p
	}
	facts := ledger.Facts{Machine: grid.Worked().Build(t)}
	for id := range 4 {
		facts.Amounts = append(facts.Amounts, align.Amount{NUMAID: id, Resource: "memory", N: 64 << 30})
	}
	a, b := confined("a", "4", "20Gi"), confined("b", "2", "40Gi")
	entryOf := func(p *corev1.Pod) ledger.Entry {
		e, _ := convert.EntryUnder(convert.Args{}, p)
		return e
	}
	account := ledger.New(facts, entryOf(a), entryOf(b)).View()
	left := account.Summary().Room(1) + 4000 // CPU for a, in thousandths
	amount := func(cpu, memory string) corev1.ResourceList { return amounts("cpu", cpu, "memory", memory) }
	wide := admission.Room{Account: account, Has: amount("100", "1000Gi"), Others: amount("2", "40Gi")}
	most := func(milli int64) string { return resource.NewMilliQuantity(milli, resource.DecimalSI).String() }
	for name, c := range map[string]struct {
		room        admission.Room
		cpu, memory string
		refusals    []string
	}{
		"all that there is on the NUMA node": {wide, most(left), "24Gi", nil},
		"more memory than the NUMA node has": {wide, "4", "25Gi", []string{
			"spec: memory of the pod would be 25Gi, and NUMA node 0, which the pod is confined to, has 24Gi beside " +
				"other pods",
		}},
		"more CPU than the NUMA node has": {wide, most(left + 1), "20Gi", []string{
			"spec: cpu of the pod would be " + most(left+1) + ", and NUMA node 0, which the pod is confined to, has " +
				most(left) + " beside other pods",
		}},
		"more memory than the node has": {
			admission.Room{Has: amount("100", "64Gi"), Others: amount("2", "40Gi")}, "4", "25Gi", []string{
				"spec: memory of the pod would be 25Gi, and its node has 24Gi beside other pods",
			},
		},
		"less, where pods have more than there is": {
			admission.Room{Account: account, Has: amount("1", "1Gi"), Others: amount("2", "40Gi")}, "3", "19Gi", nil,
		},
		"nothing is known of the node": {admission.Room{}, "99", "99Gi", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, admission.Resize(confined("a", c.cpu, c.memory), a, c.room), c.refusals, nil)
		})
	}
}

// TestAResizeOfAPlainPodIsLeftToTheKubelet: it may be deferred until the node has room, which no refusal may prevent.
func TestAResizeOfAPlainPodIsLeftToTheKubelet(t *testing.T) {
	t.Parallel()
	room := admission.Room{Has: amounts("cpu", "4"), Others: amounts("cpu", "3")}
	for name, tt := range map[string]struct {
		options []podOption
		refused bool
	}{
		"plain":         {nil, false},
		"with a class":  {[]podOption{class("LS")}, true},
		"with a quota":  {[]podOption{label(annotation.QuotaName, "q")}, true},
		"with a status": {[]podOption{annot(annotation.ResourceStatusKey, "{}")}, true},
	} {
		old := newPod(append(tt.options, onNode)...)
		answer := admission.Resize(newPod(append(tt.options, onNode, cpu("2"))...), old, room)
		if answer.Allowed() == tt.refused {
			t.Errorf("%s: refusals %v, want some: %t", name, answer.Refusals, tt.refused)
		}
	}
}

// TestAResizeTakesNoRoomOfAReservation: of 128 CPUs of the node, a pod has 10 and Reservations keep 100. A pod that
// uses a Reservation may grow into what is left of it.
func TestAResizeTakesNoRoomOfAReservation(t *testing.T) {
	t.Parallel()
	has := amounts("cpu", "128", "memory", "64Gi")
	none, hundred := amounts("cpu", "0"), amounts("cpu", "100")
	for name, c := range map[string]struct {
		options       []podOption
		reserved, own corev1.ResourceList
		others, to    string
		refusals      []string
	}{
		"what is free": {nil, hundred, none, "0", "28", nil},
		"more than what is free": {nil, hundred, none, "0", "29", []string{
			"spec: cpu of the pod would be 29, and its node has 28 beside other pods and 100 that Reservations keep",
		}},
		"with a class": {[]podOption{class("LS")}, hundred, none, "8", "21", []string{
			"spec: cpu of the pod would be 21, and its node has 20 beside other pods and 100 that Reservations keep",
		}},
		"no Reservation":                           {nil, none, none, "100", "60", nil},
		"all of its own Reservation, and more":     {nil, none, hundred, "0", "128", nil},
		"into its own Reservation, beside another": {nil, amounts("cpu", "90"), amounts("cpu", "20"), "0", "30", nil},
		"past its own Reservation, beside another": {
			nil, amounts("cpu", "90"), amounts("cpu", "20"), "0", "39", []string{
				"spec: cpu of the pod would be 39, and its node has 38 beside other pods and 90 that Reservations keep",
			},
		},
		"less": {nil, amounts("cpu", "128"), none, "0", "9", nil},
	} {
		old := newPod(append(c.options, onNode, cpu("10"))...)
		room := admission.Room{Has: has, Others: amounts("cpu", c.others), Reserved: c.reserved, Own: c.own}
		answer := admission.Resize(newPod(append(c.options, onNode, cpu(c.to))...), old, room)
		t.Log(name)
		check(t, answer, c.refusals, nil)
	}
}

func TestMutateTakesAllocationsAway(t *testing.T) {
	t.Parallel()
	pod := newPod(spec("{}"), annot(annotation.ResourceStatusKey, "{}"), annot("scheduling.koordinator.sh/bind-x", ""),
		annot(annotation.ReservationAllocatedKey, "{}"))
	changed, answer := admission.Mutate(pod)
	warnings := answer.Warnings
	if diff := cmp.Diff(map[string]string{annotation.ResourceSpecKey: "{}"}, changed.Annotations); diff != "" {
		t.Errorf("annotations that are left (-want +got):\n%s", diff)
	}
	if want := "metadata.annotations[scheduling.koordinator.sh/bind-x]: removed: it is set by the scheduler"; len(
		warnings) != 3 || warnings[0] != want {
		t.Errorf("warnings = %q, want three, the first %q", warnings, want)
	}
	if len(pod.Annotations) != 4 {
		t.Errorf("the pod was changed: %v", pod.Annotations)
	}
}

func TestNodeWarnsAndNeverRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		labels, annotations map[string]string
		want                []string
	}{
		"a node of others": {labels: map[string]string{"a": "b"}},
		"good policies": {
			labels:      map[string]string{annotation.NodeCPUBindPolicy: "FullPCPUsOnly"},
			annotations: map[string]string{annotation.NodeReservation: `{"reservedCPUs":"0-1"}`},
		},
		"an unknown policy": {labels: map[string]string{annotation.NodeCPUBindPolicy: "Full"}, want: []string{
			`metadata.labels[node.koordinator.sh/cpu-bind-policy]: Unsupported value "Full": supported None, ` +
				`FullPCPUsOnly, SpreadByPCPUs; the label is ignored`,
		}},
		"an unknown strategy": {labels: map[string]string{annotation.NodeNUMAAllocateStrategy: "x"}, want: []string{
			`metadata.labels[node.koordinator.sh/numa-allocate-strategy]: Unsupported value "x": supported ` +
				`MostAllocated, LeastAllocated, DistributeEvenly; the label is ignored`,
		}},
		"a policy in another case": {
			labels: map[string]string{annotation.NodeNUMATopologyPolicy: "RESTRICTED"},
			want: []string{
				`metadata.labels[node.koordinator.sh/numa-topology-policy]: "RESTRICTED" is read as "Restricted": ` +
					`values ` +
					`are case-sensitive on output`,
			},
		},
		"two spellings that differ": {labels: map[string]string{
			annotation.NodeNUMATopologyPolicy:      "None",
			annotation.NodeNUMATopologyPolicyAlias: "Restricted",
		}, want: []string{
			"metadata.labels[node.koordinator.sh/numa-topology-alignment-policy]: conflicting values for " +
				"node.koordinator.sh/numa-topology-policy " +
				"and its alias node.koordinator.sh/numa-topology-alignment-policy; the alias is ignored",
		}},
		"a CPU list that is none": {
			annotations: map[string]string{annotation.NodeSystemQoSResource: `{"cpuset":"0..3"}`},
			want: []string{
				`metadata.annotations[node.koordinator.sh/system-qos-resource]: cpu list item "0..3": want an id ` +
					`like 3 or a range like 0-3; the annotation is ignored`,
			},
		},
		"a reservation that is not JSON": {
			annotations: map[string]string{annotation.NodeReservation: `0-1`},
			want: []string{
				`metadata.annotations[node.koordinator.sh/reservation]: byte 2: invalid character '-' after ` +
					`top-level ` +
					`value; the annotation is ignored`,
			},
		},
		"a field that is unknown": {
			annotations: map[string]string{annotation.NodeReservation: `{"cpus":"0-1"}`},
			want: []string{
				`metadata.annotations[node.koordinator.sh/reservation]: cpus: unknown field`,
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: "n", Labels: tt.labels,
				Annotations: tt.annotations,
			}}
			check(t, admission.Node(node), nil, tt.want)
		})
	}
}
