package badinput

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/internal/control/webhook"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/testkit"
)

const (
	class    = "metadata.labels[koordinator.sh/qosClass]"
	spec     = "metadata.annotations[scheduling.koordinator.sh/resource-spec]"
	numaSpec = "metadata.annotations[scheduling.koordinator.sh/numa-topology-spec]"
	status   = "metadata.annotations[scheduling.koordinator.sh/resource-status]"
)

// pod is a manifest; cpu is request and limit.
func pod(meta, cpu string) string { return podOf(meta, "{cpu: "+cpu+"}", "{cpu: "+cpu+"}", "") }

func podOf(meta, requests, limits, rest string) string {
	return "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default, " + meta + "}, spec: {containers: " +
		"[{name: c, image: i, resources: {requests: " + requests + ", limits: " + limits + "}}]" + rest + "}}"
}

func lsr(meta string) string { return "labels: {koordinator.sh/qosClass: LSR}" + meta }

func resourceSpec(json string) string {
	return ", annotations: {scheduling.koordinator.sh/resource-spec: '" + json + "'}"
}

func webhookCases() []bad {
	create := func(manifest string) func(*testing.T) string { return refused("/validate-pod", manifest, "") }
	update := func(now, was string) func(*testing.T) string { return refused("/validate-pod", now, was) }
	node := func(manifest string) func(*testing.T) string { return warned("/validate-node", manifest) }
	bound := podOf(lsr(""), "{cpu: 4}", "{cpu: 4}", ", nodeName: n0")
	return []bad{
		{
			"webhook: an unknown QoS class", create(pod("labels: {koordinator.sh/qosClass: GOLD}", "1")),
			[]string{class, `Unsupported value "GOLD"`, "supported LSE, LSR, LS, BE, SYSTEM"},
		},
		{
			"webhook: an unknown priority class", create(pod("labels: {koordinator.sh/priority-class: gold}", "1")),
			[]string{
				"metadata.labels[koordinator.sh/priority-class]", `Unsupported value "gold"`,
				"koord-prod, koord-mid, koord-batch, koord-free",
			},
		},
		{
			"webhook: a sub-priority that is not a number", create(pod("labels: {koordinator.sh/priority: high}", "1")),
			[]string{"metadata.labels[koordinator.sh/priority]", `Invalid value "high"`, "must be a whole number"},
		},
		{
			"webhook: an LSR pod of a batch priority",
			create(pod("labels: {koordinator.sh/qosClass: LSR, koordinator.sh/priority-class: koord-batch}", "1")),
			[]string{class, "cannot be used in combination", "LSR allows koord-prod"},
		},
		{
			"webhook: an LSE pod without a CPU request",
			create(podOf("labels: {koordinator.sh/qosClass: LSE}", "{}", "{}", "")),
			[]string{"requests[cpu]", "LSE Pod must declare the requested CPUs"},
		},
		{
			"webhook: an LSR pod of one and a half CPUs", create(pod(lsr(""), "1500m")),
			[]string{"requests[cpu]", "the requested CPUs of LSR Pod must be integer", "multiples of 1000m"},
		},
		{
			"webhook: an LSR pod with a limit above its request", create(podOf(lsr(""), "{cpu: 1}", "{cpu: 2}", "")),
			[]string{"spec.containers[0].resources.limits[cpu]", "requests must equal limits for LSR Pod"},
		},
		{
			"webhook: batch CPUs without class BE",
			create(podOf("labels: {koordinator.sh/qosClass: LS}", "{kubernetes.io/batch-cpu: 1000}",
				"{kubernetes.io/batch-cpu: 1000}", "")),
			[]string{"spec.containers[0].resources[kubernetes.io/batch-cpu]", "must specify koordinator QoS BE"},
		},
		{"webhook: a resource-spec that is not JSON", create(pod(lsr(resourceSpec("{")), "2")), []string{spec, "byte"}},
		{
			"webhook: a resource-spec with a number for a policy",
			create(pod(lsr(resourceSpec(`{"requiredCPUBindPolicy":7}`)), "2")),
			[]string{spec, "byte", "requiredCPUBindPolicy"},
		},
		{
			"webhook: a bind policy that does not exist",
			create(pod(lsr(resourceSpec(`{"requiredCPUBindPolicy":"FullPCPUz"}`)), "2")),
			[]string{
				spec, "byte 25", `Unsupported value "FullPCPUz"`,
				"supported Default, FullPCPUs, SpreadByPCPUs, ConstrainedBurst",
			},
		},
		{
			"webhook: an exclusive policy that does not exist",
			create(pod(lsr(resourceSpec(`{"preferredCPUExclusivePolicy":"Machine"}`)), "2")),
			[]string{spec, `Unsupported value "Machine"`, "PCPULevel, NUMANodeLevel"},
		},
		{
			"webhook: a burst that is required",
			create(pod("labels: {koordinator.sh/qosClass: LS}"+
				resourceSpec(`{"requiredCPUBindPolicy":"ConstrainedBurst"}`), "2")),
			[]string{spec, "ConstrainedBurst can only be preferred"},
		},
		{
			"webhook: a burst of an LSR pod", create(
				pod(lsr(resourceSpec(`{"preferredCPUBindPolicy":"ConstrainedBurst"}`)), "2")),
			[]string{spec, "ConstrainedBurst needs QoS LS or Burstable and a cpu limit"},
		},
		{
			"webhook: a required spread on arm64",
			create(podOf(lsr(resourceSpec(`{"requiredCPUBindPolicy":"SpreadByPCPUs"}`)), "{cpu: 2}", "{cpu: 2}",
				", nodeSelector: {kubernetes.io/arch: arm64}")),
			[]string{spec, `Unsupported value "SpreadByPCPUs"`, "supported Default, FullPCPUs on arm64"},
		},
		{
			"webhook: a NUMA policy that does not exist",
			create(
				pod(
					lsr(
						`, annotations: {scheduling.koordinator.sh/numa-topology-spec: `+
							`'{"numaTopologyPolicy":"Strict"}'}`), "2")),
			[]string{numaSpec, `Unsupported value "Strict"`, "BestEffort, Restricted, SingleNUMANode"},
		},
		{
			"webhook: a class that is changed later",
			update(pod("labels: {koordinator.sh/qosClass: LS}", "4"), pod(lsr(""), "4")),
			[]string{class, "field is immutable"},
		},
		{
			"webhook: an allocation that a user writes",
			update(pod(lsr(`, annotations: {scheduling.koordinator.sh/resource-status: '{"cpuset":"0-3"}'}`), "4"),
				pod(lsr(""), "4")),
			[]string{status, "is set by the scheduler"},
		},
		{
			"webhook: a bind policy that is changed after binding",
			update(podOf(lsr(resourceSpec(`{"preferredCPUBindPolicy":"SpreadByPCPUs"}`)), "{cpu: 4}", "{cpu: 4}",
				", nodeName: n0"), bound),
			[]string{spec, "immutable once the pod is bound"},
		},
		{
			"webhook: more CPUs for a pod that holds some",
			refused("/validate-pod-resize", podOf(lsr(""), "{cpu: 6}", "{cpu: 6}", ", nodeName: n0"), bound),
			[]string{"spec.containers[0].resources", "cpu of a bound pod cannot be resized"},
		},
		{
			"webhook: a node label with a value that does not exist",
			node(
				"{apiVersion: v1, kind: Node, metadata: {name: n0, labels: {node.koordinator.sh/cpu-bind-policy: " +
					"Bogus}}}"),
			[]string{
				"metadata.labels[node.koordinator.sh/cpu-bind-policy]", `Unsupported value "Bogus"`,
				"supported None, FullPCPUsOnly, SpreadByPCPUs", "the label is ignored",
			},
		},
		{
			"webhook: a node reservation of a list that is none",
			node(
				`{apiVersion: v1, kind: Node, metadata: {name: n0, annotations: {node.koordinator.sh/reservation: ` +
					`'{"reservedCPUs":"3-1"}'}}}`),
			[]string{"metadata.annotations[node.koordinator.sh/reservation]", "3-1", "the annotation is ignored"},
		},
		{
			"webhook: a node label and its alias that differ",
			node(
				"{apiVersion: v1, kind: Node, metadata: {name: n0, labels: " +
					"{node.koordinator.sh/numa-topology-policy: Restricted, " +
					"node.koordinator.sh/numa-topology-alignment-policy: BestEffort}}}"),
			[]string{
				"conflicting values", "node.koordinator.sh/numa-topology-alignment-policy",
				"the alias is ignored",
			},
		},
	}
}

// doors are the webhooks' handlers by path.
type doors map[string]http.Handler

func (d doors) Register(path string, h http.Handler) { d[path] = h }

// review sends objects as the API server does. A patch would be a change: the test fails for one.
func review(t *testing.T, path, manifest, old string) *admissionv1.AdmissionResponse {
	t.Helper()
	scheme := runtime.NewScheme()
	testkit.Check(t, corev1.AddToScheme(scheme))
	d := doors{}
	webhook.Register(d, ctrl.NewDecoder(scheme), webhook.Rules{
		RequireNRIPlugin: true, Kinds: func() device.Kinds { return nil },
	}, webhook.NewMetrics())
	request := &admissionv1.AdmissionRequest{UID: "review", Operation: admissionv1.Create, Object: raw(t, manifest)}
	if old != "" {
		request.Operation, request.OldObject = admissionv1.Update, raw(t, old)
	}
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request,
	})
	testkit.Check(t, err)
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	d[path].ServeHTTP(w, r)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Response == nil {
		t.Fatalf("answer %q: %v", w.Body, err)
	}
	if len(answer.Response.Patch) > 0 {
		t.Errorf("the object is changed: %s", answer.Response.Patch)
	}
	return answer.Response
}

func raw(t *testing.T, manifest string) runtime.RawExtension {
	t.Helper()
	text, err := yaml.YAMLToJSONStrict([]byte(manifest))
	testkit.Check(t, err)
	return runtime.RawExtension{Raw: text}
}

// refused wants the API server to reject, with a text like that of its own rules.
func refused(path, manifest, old string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		r := review(t, path, manifest, old)
		if r.Allowed || r.Result == nil {
			t.Fatalf("admitted: %+v", r)
		}
		if r.Result.Code != http.StatusUnprocessableEntity || len(r.Result.Details.Causes) == 0 {
			t.Errorf("got status %d with details %+v, want 422 with a cause for each field", r.Result.Code,
				r.Result.Details)
		}
		return r.Result.Message
	}
}

// warned wants a node to be let in, with a text.
func warned(path, manifest string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		r := review(t, path, manifest, "")
		if !r.Allowed {
			t.Errorf("a node must be able to register: %+v", r.Result)
		}
		return strings.Join(r.Warnings, "\n")
	}
}
