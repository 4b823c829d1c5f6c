package sim

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// container is the container of pods whose amounts do not matter.
const container = "containers: [{name: c, image: i}]"

// TestObjectsAreCompletedAsTheAPIServerCompletesThem before they are validated: no manifest has what it allocates.
func TestObjectsAreCompletedAsTheAPIServerCompletesThem(t *testing.T) {
	t.Parallel()
	service := func(spec string) string {
		return "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 80}], " + spec + "}}"
	}
	const template = "template: {metadata: {labels: {a: b}}, spec: {" + container + "}}"
	for name, in := range map[string]string{
		"a headless Service":           service("clusterIP: None"),
		"a Service with an address":    service("clusterIP: 10.0.0.10"),
		"a Service with two addresses": service("clusterIP: 10.0.0.10, clusterIPs: [10.0.0.10, 'fd00::1']"),
		"a local load balancer":        service("type: LoadBalancer, externalTrafficPolicy: Local"),
		"a Service with a health port": service("type: LoadBalancer, externalTrafficPolicy: Local, " +
			"healthCheckNodePort: 30001"),
		"an external name": service("type: ExternalName, externalName: a.example.com"),
		"a Job that selects its own pods": "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: " +
			"{parallelism: 0, template: {spec: {restartPolicy: Never, " + container + "}}}}",
		"a DeviceClass": "{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: " +
			"{name: d.example.com}, spec: {}}",
		"a ReplicationController": "{apiVersion: v1, kind: ReplicationController, metadata: {name: r}, " +
			"spec: {replicas: 0, " + template + "}}",
	} {
		if _, warn := simulate(t, documents(cpuNode("n0", 8), in), "-"); warn != "" {
			t.Errorf("%s: warnings %q", name, warn)
		}
	}
	for want, in := range map[string]string{
		"spec.clusterIPs[0]: Invalid value":       service("clusterIP: none"),
		"spec.healthCheckNodePort: Invalid value": service("healthCheckNodePort: 30001"),
		"provisioner: Required value": "{apiVersion: storage.k8s.io/v1, kind: StorageClass, " +
			"metadata: {name: s}, provisioner: ''}",
		"metadata.name: Invalid value": "{apiVersion: policy/v1, kind: PodDisruptionBudget, " +
			"metadata: {name: a/b}, spec: {}}",
		"spec.template.spec.restartPolicy": "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, " +
			"spec: {template: {spec: {" + container + "}}}}",
		"spec.devices.requests[0].name": "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, " +
			"metadata: {name: c}, spec: {devices: {requests: [{}]}}}",
		"spec.spec.devices.requests[0].name": "{apiVersion: resource.k8s.io/v1, kind: " +
			"ResourceClaimTemplate, metadata: {name: c}, spec: {spec: {devices: {requests: [{}]}}}}",
	} {
		refusedInput(t, Input{Stdin: strings.NewReader(documents(cpuNode("n0", 8), in))}, want)
	}
}

// refusedInput checks that an input is refused with a text.
func refusedInput(t *testing.T, in Input, want string) {
	t.Helper()
	in.Paths, in.Warn = []string{"-"}, io.Discard
	_, err := Run(t.Context(), in)
	if bad := (*InputError)(nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestPrivilegedPodsAreScheduled(t *testing.T) {
	t.Parallel()
	const privileged = "containers: [{name: c, image: i, securityContext: {privileged: true}}]"
	r, _ := simulate(t, documents(cpuNode("n0", 8), "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: "+
		"{"+privileged+"}}",
		"{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d}, spec: {selector: {matchLabels: {a: b}}, "+
			"template: {metadata: {labels: {a: b}}, spec: {hostNetwork: true, "+privileged+"}}}}"), "-")
	if diff := cmp.Diff(map[string]string{"a": "Scheduled n0", "d-0": "Scheduled n0"}, outcomes(r)); diff != "" {
		t.Error(diff)
	}
}

// TestSelectorsHaveTheValuesOfMatchLabelKeys, in pods and in templates: pods of another revision do not count.
func TestSelectorsHaveTheValuesOfMatchLabelKeys(t *testing.T) {
	t.Parallel()
	labelled := func(name, revision string) string {
		return "metadata: {" + name + "labels: {app: web, revision: " + revision + "}}, spec: {affinity: " +
			"{podAntiAffinity: {" +
			"requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: " +
			"{matchLabels: {app: web}}, matchLabelKeys: [revision]}]}}, " + container + "}}"
	}
	pod := func(name, revision string) string {
		return "{apiVersion: v1, kind: Pod, " + labelled("name: "+name+", ", revision)
	}
	set := "{apiVersion: v1, kind: ReplicationController, metadata: {name: set}, spec: {replicas: 2, template: {" +
		labelled("", "w") + "}}"
	r, _ := simulate(t, documents(cpuNode("n0", 8), pod("a", "x"), pod("b", "z"), pod("c", "z"), set), "-")
	got := outcomes(r)
	for name, want := range map[string]string{
		"a": "Scheduled n0", "b": "Scheduled n0", "c": "Unschedulable", "set-0": "Scheduled " +
			"n0", "set-1": "Unschedulable",
	} {
		if !strings.HasPrefix(got[name], want) {
			t.Errorf("pod %s: got %q, want %s", name, got[name], want)
		}
	}
}

// TestPodsOfJobsHaveTheLabelsOfTheAPIServer: pods of one Job avoid each other, and not those of the other Job.
func TestPodsOfJobsHaveTheLabelsOfTheAPIServer(t *testing.T) {
	t.Parallel()
	job := func(name string) string {
		return "{apiVersion: batch/v1, kind: Job, metadata: {name: " + name + "}, spec: {parallelism: 2, " +
			"template: {spec: {" +
			"restartPolicy: Never, affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: " +
			"[{topologyKey: " +
			"kubernetes.io/hostname, labelSelector: {matchLabels: {job-name: " + name + "}}}]}}, " +
			"" + container + "}}}}"
	}
	r, _ := simulate(t, documents(cpuNode("n0", 8), cpuNode("n1", 8), job("x"), job("z")), "-")
	scheduled := 0
	for _, p := range r.Pods {
		if p.State == Scheduled {
			scheduled++
		}
	}
	if scheduled != 4 || stateOf(r, "x-0").Node == stateOf(r, "x-1").Node {
		t.Errorf("got %v, want each Job on both nodes", outcomes(r))
	}
}

// TestNamesAreGenerated, the same in each simulation, and none that is taken.
func TestNamesAreGenerated(t *testing.T) {
	t.Parallel()
	pod := func(meta string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {" + meta + "}, spec: {" + container + "}}"
	}
	r, _ := simulate(t, documents(cpuNode("n0", 8), pod("name: a-00001"), pod("generateName: "+
		"a-"), pod("generateName: a-"),
		"{apiVersion: batch/v1, kind: Job, metadata: {generateName: j-}, spec: {parallelism: 2, template: {spec: {"+
			"restartPolicy: Never, "+container+"}}}}"), "-")
	want := map[string]string{}
	for _, name := range []string{"a-00000", "a-00001", "a-00002", "j-00000-0", "j-00000-1"} {
		want[name] = "Scheduled n0"
	}
	if diff := cmp.Diff(want, outcomes(r)); diff != "" {
		t.Error(diff)
	}
}

// TestAPodWhosePriorityIsWrongIsRefused, and no other pod: the API server's admission decides about each pod.
func TestAPodWhosePriorityIsWrongIsRefused(t *testing.T) {
	t.Parallel()
	pod := func(name, spec string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: " + name + "}, spec: {" + container + spec + "}}"
	}
	r, _ := simulate(t, documents(cpuNode("n0", 8), pod("a", ""), pod("b", ", priorityClassName: gold"),
		pod("c", ", priorityClassName: koord-prod, priority: 5"),
		"{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: d}, spec: {selector: {matchLabels: {a: b}}, "+
			"template: {"+
			"metadata: {labels: {a: b}}, spec: {priorityClassName: gold, "+container+"}}}}"), "-")
	got := outcomes(r)
	for name, want := range map[string]string{
		"a": "Scheduled n0", "b": `Refused: spec.priorityClassName: Not found: "gold"`,
		"c":   "Refused: spec.priority: Invalid value: 5: PriorityClass koord-prod has 9000",
		"d-0": `Refused: spec.priorityClassName: Not found: "gold"`,
	} {
		if text := got[name]; !strings.HasPrefix(text, want) {
			t.Errorf("pod %s: got %q, want %q", name, text, want)
		}
	}
}

// TestAProfileWithAnUnknownPriorityClassRefusesItsPods, and no other pod.
func TestAProfileWithAnUnknownPriorityClassRefusesItsPods(t *testing.T) {
	t.Parallel()
	r, _ := simulate(t, halfUsed+strings.Replace(batchProfile, "koord-batch", "gold", 1)+
		cpuPod("a", 1, nightly, "")+cpuPod("b", 1, "", ""), "-")
	const want = "Refused: changed by ClusterColocationProfiles: spec.priorityClassName: Not found"
	if got := outcomes(r); !strings.HasPrefix(got["a"], want) || strings.HasPrefix(got["b"], "Refused") {
		t.Errorf("got %v, want a refused", got)
	}
}

// TestUnknownFieldsOfCustomResourcesArePruned as the API server prunes them; --strict refuses them.
func TestUnknownFieldsOfCustomResourcesArePruned(t *testing.T) {
	t.Parallel()
	for field, in := range map[string]string{
		"spec.template.namespace": "{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: Reservation, " +
			"metadata: {name: r}, spec: {" +
			"template: {namespace: default, spec: {" + container + "}}, owners: [{object: {name: a}}]}}",
		"spec.maxx": "{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: ElasticQuota, metadata: {name: " +
			"q}, spec: {maxx: {}, max: {cpu: 1}}}",
		"spec.qosclass": "{apiVersion: config.koordinator.sh/v1alpha1, kind: ClusterColocationProfile, " +
			"metadata: {name: p}, spec: {qosclass: BE}}",
		"spec.a": "{apiVersion: slo.koordinator.sh/v1alpha1, kind: NodeSLO, metadata: {name: n0}, spec: " +
			"{a: 1}}",
		"spec.modus": moving("m", "a", ", modus: x"),
	} {
		in = documents(cpuNode("n0", 8), "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: "+
			"{"+container+"}}", in)
		_, warn := simulate(t, in, "-")
		if !strings.Contains(warn, "document "+
			"3") || !strings.Contains(warn, `unknown field "`+field+`": it has no effect`) {
			t.Errorf("%s: warnings %q", field, warn)
		}
		refusedInput(t, Input{Stdin: strings.NewReader(in), Strict: true}, `unknown field "`+field+`"`)
	}
	refusedInput(t, Input{Stdin: strings.NewReader("{apiVersion: v1, kind: Node, metadata: {name: a}, spec: {b: " +
		"c}}")},
		`unknown field "spec.b"`)
}

// TestStoredObjectsAreNotValidatedAsIfTheyWereCreated: an API server has taken them, and changed some since.
func TestStoredObjectsAreNotValidatedAsIfTheyWereCreated(t *testing.T) {
	t.Parallel()
	stored := func(name, meta, spec string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: " + name + ", uid: " + name + meta + "}, spec: " +
			"{" + container + spec + "}}"
	}
	r, warn := simulate(t, documents(cpuNode("n0", 8),
		stored("debugged", "", ", ephemeralContainers: [{name: e, image: i}]"),
		stored("deleted-class", "", ", priorityClassName: gone, priority: 7"),
		stored("changed-class", "", ", runtimeClassName: kata, overhead: {cpu: 1}"),
		"{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: kata}, handler: k, overhead: "+
			"{podFixed: {cpu: 2}}}",
		stored("newer-field", "", ", fieldOfTheNextRelease: 1"),
		stored("refused-today", ", labels: {koordinator.sh/qosClass: gold}", ""),
		"{apiVersion: v1, kind: Service, metadata: {name: s, uid: s}, spec: {clusterIP: 10.0.0.1, ports: "+
			"[{port: 80}]}}",
	), "-")
	if warn != "" {
		t.Errorf("warnings %q", warn)
	}
	want := map[string]string{"refused-today": "Unschedulable: invalid field: " +
		"metadata.labels[koordinator.sh/qosClass]: " +
		`Unsupported value "gold": supported LSE, LSR, LS, BE, SYSTEM`} // the scheduler's answer
	for _, name := range []string{"debugged", "deleted-class", "changed-class", "newer-field"} {
		want[name] = "Scheduled n0"
	}
	if diff := cmp.Diff(want, outcomes(r)); diff != "" {
		t.Error(diff)
	}
}

// TestAStoredDeviceWithADoubledIDIsOneDevice: the first device of the id counts, as in the scheduler; the other devices
// and nodes are as they are, and one warning names the object.
func TestAStoredDeviceWithADoubledIDIsOneDevice(t *testing.T) {
	t.Parallel()
	const doubled = "{type: gpu, id: GPU-a, minor: 2, health: true, resources: {koordinator.sh/gpu-core: 100, " +
		"koordinator.sh/gpu-memory: 8Gi}}, "
	pod := func(name, gpus string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: " + name + "}, spec: {containers: [{name: c, image: i, " +
			"resources: {limits: {koordinator.sh/gpu: '" + gpus + "'}, requests: {koordinator.sh/gpu: '" + gpus +
			"'}}}]}}"
	}
	device := strings.Replace(deviceOf("n0", twoGPUs+", "+strings.TrimSuffix(doubled, ", ")), "{name: n0,",
		"{name: n0, uid: d,", 1)
	in := documents(cpuNode("n0", 8), device, pod("a", "200"), pod("b", "100"))
	r, warn := simulate(t, in, "-")
	for _, p := range r.Pods {
		if want := map[string]string{"a": "Scheduled", "b": "Unschedulable"}[p.Name]; p.State != want {
			t.Errorf("pod %s is %s, want %s: %+v", p.Name, p.State, want, p.Reasons)
		}
	}
	const says = `"GPU-a" is also the id of spec.devices[0]: must be unique`
	if strings.Count(warn, says) != 1 || strings.Count(warn, "Device") != 1 {
		t.Errorf("warnings %q, want one with %s", warn, says)
	}
	refusedInput(t, Input{Stdin: strings.NewReader(strings.Replace(in, ", uid: d", "", 1))}, says)
}

// TestAStoredObjectThatCannotBeReadIsNamedOnce: it and the pods that need it are undecided; the rest is answered.
func TestAStoredObjectThatCannotBeReadIsNamedOnce(t *testing.T) {
	t.Parallel()
	pod := func(name, labels string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: " + name + ", labels: {" + labels + "}}, spec: " +
			"{" + container + "}}"
	}
	const group = "{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: PodGroup, metadata: {name: g, uid: g}, " +
		"spec: {minMember: x}}"
	in := documents(cpuNode("n0", 8), group,
		"{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: ElasticQuota, metadata: {name: q, uid: q}, spec: "+
			"{max: {cpu: 1x}}}",
		"{apiVersion: v1, kind: Pod, metadata: {name: odd, uid: odd}, spec: {priority: high}}",
		deviceOf("n0", twoGPUs), pod("free", ""), pod("in-gang", "pod-group.scheduling.sigs.k8s.io: g"),
		pod("in-quota", "quota.scheduling.koordinator.sh/name: q"))
	r, warn := simulate(t, in, "-")
	want := map[string]string{
		"free":     "Scheduled n0",
		"in-gang":  "Unschedulable: cannot be decided: PodGroup default/g cannot be read",
		"in-quota": "Unschedulable: cannot be decided: ElasticQuota default/q cannot be read",
	}
	if diff := cmp.Diff(want, outcomes(r)); diff != "" {
		t.Error(diff)
	}
	for _, object := range []string{"(PodGroup g)", "(ElasticQuota q)", "(Pod odd)"} {
		if strings.Count(warn, object) != 1 || !strings.Contains(warn, "what cannot be read is left out") {
			t.Errorf("%s: warnings %q, want one", object, warn)
		}
	}
	refusedInput(t, Input{Stdin: strings.NewReader(strings.Replace(in, ", uid: g}", "}", 1))}, "spec.minMember")
}

// TestKindsThatCannotMatterNeverAbort, in whatever version Kubernetes has them, also with --strict.
func TestKindsThatCannotMatterNeverAbort(t *testing.T) {
	t.Parallel()
	in := cpuNode("n0", 8)
	for _, kind := range []string{
		"admissionregistration.k8s.io/v1 MutatingAdmissionPolicy", "admissionregistration.k8s.io/v1 " +
			"ValidatingAdmissionPolicy",
		"networking.k8s.io/v1 ServiceCIDR", "networking.k8s.io/v1 IPAddress", "storage.k8s.io/v1 " +
			"VolumeAttributesClass",
		"autoscaling/v2 HorizontalPodAutoscaler", "v1 PodTemplate", "certificates.k8s.io/v1beta1 ClusterTrustBundle",
		"apiextensions.k8s.io/v1 CustomResourceDefinition", "apiregistration.k8s.io/v1 APIService", "v1 ConfigMap",
		"flowcontrol.apiserver.k8s.io/v1 FlowSchema", "events.k8s.io/v1 Event", "coordination.k8s.io/v1 Lease",
	} {
		version, name, _ := strings.Cut(kind, " ")
		in = documents(in, "{apiVersion: "+version+", kind: "+name+", metadata: {name: a}, unread: true}")
	}
	var warn strings.Builder
	_, err := Run(t.Context(), Input{Paths: []string{"-"}, Stdin: strings.NewReader(in), Warn: &warn, Strict: true})
	if err != nil || !strings.Contains(warn.String(), "MutatingAdmissionPolicy (1)") {
		t.Errorf("got %v, with the warnings %q", err, warn.String())
	}
}
