package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/control/webhook"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/testkit"
)

const scheduler = "system:serviceaccount:tenon-system:tenon-scheduler"

// mux is a registrar without a server.
type mux map[string]http.Handler

func (m mux) Register(path string, h http.Handler) { m[path] = h }

// byName finds the gangs of pods by their names.
type byName struct{}

func (byName) Mark(_ context.Context, p *corev1.Pod) (name, rule string, err error) {
	switch p.Name {
	case "unknown":
		return "", "", errors.New("the owner does not answer")
	case "alone":
		return "", "", nil
	}
	return p.Namespace + "-gang", "ray.io/RayCluster", nil
}

// hourly finds a Job of one hour above pods with a controller.
type hourly struct{}

func (hourly) JobOf(_ context.Context, p *corev1.Pod) *batchv1.Job {
	if metav1.GetControllerOf(p) == nil || p.Namespace != "default" {
		return nil
	}
	return &batchv1.Job{Spec: batchv1.JobSpec{ActiveDeadlineSeconds: new(int64(3600))}}
}

func serve(t *testing.T) (mux, *prometheus.Registry) {
	t.Helper()
	scheme := runtime.NewScheme()
	testkit.Check(t, corev1.AddToScheme(scheme))
	registry := prometheus.NewRegistry()
	metrics := webhook.NewMetrics()
	registry.MustRegister(metrics.Collectors()...)
	m := mux{}
	known := map[string]*corev1.Pod{
		"default/gpu": with("nvidia.com/gpu"), "default/plain": with("cpu"), "default/dpu": with("example.com/dpu"),
	}
	webhook.Register(m, ctrl.NewDecoder(scheme), webhook.Rules{
		Schedulers: []string{scheduler}, SchedulerName: "batch-scheduler", RequireNRIPlugin: true,
		Gangs: byName{}, Jobs: hourly{},
		Pod:   func(namespace, name string) *corev1.Pod { return known[namespace+"/"+name] },
		Kinds: func() device.Kinds { return device.Kinds{{Type: "dpu", Resource: "example.com/dpu", Unit: 4}} },
	}, metrics)
	return m, registry
}

// ask sends one review as the API server does.
func ask(t *testing.T, h http.Handler, operation admissionv1.Operation, user string, object,
	old runtime.Object,
) *admissionv1.AdmissionResponse {
	t.Helper()
	raw := func(o runtime.Object) runtime.RawExtension {
		if o == nil {
			return runtime.RawExtension{}
		}
		text, err := json.Marshal(o)
		testkit.Check(t, err)
		return runtime.RawExtension{Raw: text}
	}
	return send(t, h, &admissionv1.AdmissionRequest{
		Operation: operation, Object: raw(object), OldObject: raw(old), UserInfo: userOf(user),
	})
}

func userOf(name string) authenticationv1.UserInfo { return authenticationv1.UserInfo{Username: name} }

func send(t *testing.T, h http.Handler, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	request.UID = "review"
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request,
	})
	testkit.Check(t, err)
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(rec.Body.Bytes(), &review); err != nil || review.Response == nil {
		t.Fatalf("answer %s: %v", rec.Body, err)
	}
	return review.Response
}

func typed(p *corev1.Pod) *corev1.Pod {
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	return p
}

func TestARefusalNamesEveryField(t *testing.T) {
	t.Parallel()
	m, _ := serve(t)
	p := typed(pod(map[string]string{annotation.QoSClass: "GOLD", annotation.Priority: "x"}, nil))
	got := ask(t, m["/validate-pod"], admissionv1.Create, "someone", p, nil)
	if got.Allowed || got.Result.Code != http.StatusUnprocessableEntity ||
		got.Result.Reason != metav1.StatusReasonInvalid {
		t.Fatalf("answer %+v, want 422 Invalid", got.Result)
	}
	want := `metadata.labels[koordinator.sh/qosClass]: Unsupported value "GOLD": supported LSE, LSR, LS, BE, SYSTEM; ` +
		`metadata.labels[koordinator.sh/priority]: Invalid value "x": must be a whole number from -2147483648 to ` +
		`2147483647`
	if got.Result.Message != want {
		t.Errorf("message\n got %s\nwant %s", got.Result.Message, want)
	}
	var fields []string
	for _, c := range got.Result.Details.Causes {
		fields = append(fields, c.Field)
	}
	if diff := cmp.Diff([]string{
		"metadata.labels[koordinator.sh/qosClass]",
		"metadata.labels[koordinator.sh/priority]",
	}, fields); diff != "" {
		t.Errorf("causes (-want +got):\n%s", diff)
	}
}

func TestAWarningDoesNotRefuse(t *testing.T) {
	t.Parallel()
	m, _ := serve(t)
	p := typed(pod(nil, map[string]string{annotation.ResourceSpecKey: `{"x":1}`}))
	got := ask(t, m["/validate-pod"], admissionv1.Create, "someone", p, nil)
	if diff := cmp.Diff([]string{"metadata.annotations[scheduling.koordinator.sh/resource-spec]: x: unknown field"},
		got.Warnings); !got.Allowed || diff != "" {
		t.Errorf("allowed = %v, warnings (-want +got):\n%s", got.Allowed, diff)
	}
}

// TestPodsWithDevicesAreTenons: they get the scheduler that this installation serves, whatever its name.
func TestPodsWithDevicesAreTenons(t *testing.T) {
	t.Parallel()
	m, _ := serve(t)
	other := with("nvidia.com/gpu")
	other.Spec.SchedulerName = "volcano"
	const ours = `[{"op":"add","path":"/spec/schedulerName","value":"batch-scheduler"}]`
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"a GPU":              {with("nvidia.com/gpu"), ours},
		"a plain pod":        {with("cpu"), ""},
		"of another one":     {other, ""},
		"an FPGA by percent": {with("koordinator.sh/fpga"), ours},
	} {
		got := ask(t, m["/mutate-pod-scheduler"], admissionv1.Create, "someone", typed(tt.pod), nil)
		if !got.Allowed || string(got.Patch) != tt.want || (len(got.Warnings) > 0) != (tt.want != "") {
			t.Errorf("%s: allowed %t, patch %s, warnings %q", name, got.Allowed, got.Patch, got.Warnings)
		}
	}
}

// TestPodsOfOperatorsGetTheirGang: the label and the rule, and nothing else; where the answer must be known, no pod.
func TestPodsOfOperatorsGetTheirGang(t *testing.T) {
	t.Parallel()
	m, _ := serve(t)
	joined := []string{
		`{"op":"add","path":"/metadata/annotations","value":{"tenon.sh/gang-rule":"ray.io/RayCluster"}}`,
		`{"op":"add","path":"/metadata/labels","value":{"pod-group.scheduling.sigs.k8s.io":"default-gang"}}`,
	}
	for name, c := range map[string]struct {
		want []string
		code int32
	}{"member": {joined, 0}, "alone": {nil, 0}, "unknown": {nil, http.StatusServiceUnavailable}} {
		p := pod(nil, nil)
		p.Namespace, p.Name = "default", name
		got := ask(t, m["/mutate-pod-gang"], admissionv1.Create, "someone", typed(p), nil)
		var patch []json.RawMessage
		if len(got.Patch) > 0 {
			testkit.Check(t, json.Unmarshal(got.Patch, &patch))
		}
		var parts []string
		for _, part := range patch {
			parts = append(parts, string(part))
		}
		slices.Sort(parts)
		if got.Allowed != (c.code == 0) || !slices.Equal(parts, c.want) || !got.Allowed && got.Result.Code != c.code {
			t.Errorf("%s: allowed %t, patch %s, %v", name, got.Allowed, got.Patch, got.Result)
		}
	}
}

// TestPodsOfJobsGetTheirRunTime: the annotation, and nothing else. Only the request may have the namespace.
func TestPodsOfJobsGetTheirRunTime(t *testing.T) {
	t.Parallel()
	m, _ := serve(t)
	declares := owned("batch/v1", "Job")
	declares.Annotations = map[string]string{annotation.ExpectedRuntime: "5m"}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"of a Job": {
			owned("batch/v1", "Job"),
			`[{"op":"add","path":"/metadata/annotations","value":{"tenon.sh/expected-runtime":"1h0m0s"}}]`,
		},
		"of none":                     {pod(nil, nil), ""},
		"of a Job, with its run time": {declares, ""},
	} {
		c.pod.Namespace = ""
		raw, err := json.Marshal(typed(c.pod))
		testkit.Check(t, err)
		got := send(t, m["/mutate-pod-runtime"], &admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Namespace: "default", Object: runtime.RawExtension{Raw: raw},
		})
		if patch := strings.Trim(string(got.Patch), "[]"); !got.Allowed || patch != strings.Trim(c.want, "[]") {
			t.Errorf("%s: allowed %t, patch %s, %v", name, got.Allowed, got.Patch, got.Result)
		}
	}
}

func TestOnlyTenonBindsPodsWithDevices(t *testing.T) {
	t.Parallel()
	m, _ := serve(t)
	const invalid, later = http.StatusUnprocessableEntity, http.StatusServiceUnavailable
	for name, tt := range map[string]struct {
		user, pod string
		code      int32 // 0 where it is allowed
		text      string
	}{
		"Tenon":                  {scheduler, "gpu", 0, ""},
		"another one":            {"someone", "gpu", invalid, "only Tenon binds here: its spec.schedulerName"},
		"a type of its own":      {"someone", "dpu", invalid, "requests devices, which only Tenon binds here"},
		"a plain pod":            {"someone", "plain", 0, ""},
		"a pod that is not seen": {"someone", "new", later, "pod default/new is not known yet: try again"},
	} {
		got := send(t, m["/validate-binding"], &admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Namespace: "default", Name: tt.pod, UserInfo: userOf(tt.user),
			SubResource: "binding", Object: runtime.RawExtension{Raw: []byte(`{"kind":"Binding","apiVersion":"v1"}`)},
		})
		if got.Allowed != (tt.code == 0) {
			t.Errorf("%s: allowed = %t", name, got.Allowed)
		} else if tt.code != 0 && (got.Result.Code != tt.code || !strings.Contains(got.Result.Message, tt.text)) {
			t.Errorf("%s: answer %d %q, want %d with %q", name, got.Result.Code, got.Result.Message, tt.code, tt.text)
		}
	}
}

// A type of devices that only Device objects name is treated as those that are known: its pods are fenced, checked and
// made Tenon's. What no object lists is left alone.
func TestTypesThatDeviceObjectsListAreKnown(t *testing.T) {
	t.Parallel()
	m, _ := serve(t)
	asks := func(name corev1.ResourceName, amount string) *corev1.Pod {
		p := with(name)
		p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(amount)
		return typed(p)
	}
	for _, tt := range []struct {
		name    corev1.ResourceName
		amount  string
		fenced  bool
		refused string
	}{
		{"example.com/dpu", "3", true, ""},
		{"example.com/dpu", "8", true, ""},
		{"example.com/dpu", "6", false, "requests[example.com/dpu]: 6 must be at most 4, which one"},
		{"example.com/npu", "6", false, ""},
	} {
		p := asks(tt.name, tt.amount)
		mutated := ask(t, m["/mutate-pod"], admissionv1.Create, "someone", p, nil)
		if fenced := strings.Contains(string(mutated.Patch), "required-plugins"); fenced != tt.fenced ||
			!mutated.Allowed {
			t.Errorf("%s %s: patched by %s", tt.name, tt.amount, mutated.Patch)
		}
		checked := ask(t, m["/validate-pod"], admissionv1.Create, "someone", p, nil)
		if checked.Allowed != (tt.refused == "") ||
			!checked.Allowed && !strings.Contains(checked.Result.Message, tt.refused) {
			t.Errorf("%s %s: %+v, want %q", tt.name, tt.amount, checked.Result, tt.refused)
		}
		moved := ask(t, m["/mutate-pod-scheduler"], admissionv1.Create, "someone", p, nil)
		known := tt.name == "example.com/dpu"
		if ours := strings.Contains(string(moved.Patch), "batch-scheduler"); ours != known || !moved.Allowed {
			t.Errorf("%s %s: patched by %s", tt.name, tt.amount, moved.Patch)
		}
	}
}

func TestAnAllocationIsPatchedAway(t *testing.T) {
	t.Parallel()
	m, _ := serve(t)
	p := typed(pod(nil, map[string]string{annotation.ResourceStatusKey: `{}`, "a": "b"}))
	got := ask(t, m["/mutate-pod"], admissionv1.Create, "someone", p, nil)
	const want = `[{"op":"remove","path":"/metadata/annotations/scheduling.koordinator.sh~1resource-status"}]`
	if !got.Allowed || string(got.Patch) != want || len(got.Warnings) != 1 {
		t.Errorf("allowed %v, patch %s, warnings %q; want patch %s and one warning", got.Allowed, got.Patch,
			got.Warnings, want)
	}
}

func TestLimitsOfAGuaranteedPodArePatchedIn(t *testing.T) {
	t.Parallel()
	m, _ := serve(t)
	p := typed(with("cpu"))
	p.Annotations = map[string]string{annotation.VolcanoTopologyPolicy: "restricted"}
	got := ask(t, m["/mutate-pod"], admissionv1.Create, "someone", p, nil)
	const want = `[{"op":"add","path":"/spec/containers/0/resources/limits","value":{"cpu":"1"}}]`
	if !got.Allowed || string(got.Patch) != want || len(got.Warnings) != 1 {
		t.Errorf("allowed %v, patch %s, warnings %q; want patch %s and one warning", got.Allowed, got.Patch,
			got.Warnings, want)
	}
}

func TestTheFenceIsPatchedIn(t *testing.T) {
	t.Parallel()
	m, _ := serve(t)
	bound := func(annotations map[string]string) *corev1.Pod {
		p := typed(with("cpu"))
		p.Labels, p.Annotations = map[string]string{annotation.QoSClass: "LSE"}, annotations
		return p
	}
	tests := map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"a pod without annotations": {
			bound(nil), `[{"op":"add","path":"/metadata/annotations",` +
				`"value":{"required-plugins.noderesource.dev":"[\"tenon-agent\"]"}}]`,
		},
		"a pod whose last annotation goes": {
			bound(map[string]string{annotation.ResourceStatusKey: "{}"}),
			`[{"op":"add","path":"/metadata/annotations/required-plugins.noderesource.dev",` +
				`"value":"[\"tenon-agent\"]"},` +
				`{"op":"remove","path":"/metadata/annotations/scheduling.koordinator.sh~1resource-status"}]`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ask(t, m["/mutate-pod"], admissionv1.Create, "someone", tt.pod, nil)
			var steps, want []map[string]any
			testkit.Check(t, json.Unmarshal(got.Patch, &steps))
			testkit.Check(t, json.Unmarshal([]byte(tt.want), &want))
			slices.SortFunc(steps, func(a, b map[string]any) int {
				return strings.Compare(a["path"].(string), b["path"].(string))
			})
			if !got.Allowed || !cmp.Equal(steps, want) {
				t.Errorf("allowed %v, patch\n got %s\nwant %s", got.Allowed, got.Patch, tt.want)
			}
		})
	}
	got := ask(t, m["/mutate-pod"], admissionv1.Create, "someone",
		bound(map[string]string{annotation.RequiredPlugins: "x"}), nil)
	if got.Allowed || got.Result.Code != http.StatusUnprocessableEntity ||
		got.Result.Details.Causes[0].Field != "metadata.annotations[required-plugins.noderesource.dev]" {
		t.Errorf("a list that is none: %+v, want 422 with its field", got)
	}
}

func TestOnlyASchedulerWritesAllocations(t *testing.T) {
	t.Parallel()
	m, _ := serve(t)
	old := typed(pod(nil, nil))
	p := typed(pod(nil, map[string]string{annotation.ResourceStatusKey: `{"cpuset":"0"}`}))
	if got := ask(t, m["/validate-pod"], admissionv1.Update, scheduler, p, old); !got.Allowed {
		t.Errorf("the scheduler was refused: %s", got.Result.Message)
	}
	got := ask(t, m["/validate-pod"], admissionv1.Update, "someone", p, old)
	if got.Allowed || !strings.HasSuffix(got.Result.Message, "resource-status is set by the scheduler") {
		t.Errorf("anyone else got %+v", got.Result)
	}
}

func TestResizeAndNode(t *testing.T) {
	t.Parallel()
	m, _ := serve(t)
	before, after := typed(with("cpu")), typed(with("cpu"))
	before.Labels = map[string]string{annotation.QoSClass: "LSR"}
	after.Spec.Containers[0].Resources.Requests = nil
	if got := ask(t, m["/validate-pod-resize"], admissionv1.Update, "someone", after, before); got.Allowed ||
		got.Result.Message != "spec.containers[0].resources: cpu of a bound pod cannot be resized" {
		t.Errorf("resize: %+v", got)
	}
	node := &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{annotation.NodeCPUBindPolicy: "x"}},
	}
	if got := ask(t, m["/validate-node"], admissionv1.Create, "someone", node, nil); !got.Allowed ||
		len(got.Warnings) != 1 {
		t.Errorf("node: %+v, want one warning", got)
	}
}

func TestAnObjectThatIsNoneIsAnError(t *testing.T) {
	t.Parallel()
	m, registry := serve(t)
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	for _, path := range []string{"/mutate-pod", "/validate-pod", "/validate-pod-resize"} {
		if got := ask(t, m[path], admissionv1.Update, "someone", node, node); got.Allowed ||
			got.Result.Code != http.StatusBadRequest {
			t.Errorf("%s: %+v, want 400", path, got)
		}
	}
	const want = `
# HELP tenon_admission_answers_total Answers of the webhooks by webhook, operation and outcome (allowed, refused, error).
# TYPE tenon_admission_answers_total counter
tenon_admission_answers_total{operation="UPDATE",outcome="error",webhook="mutate-pod"} 1
tenon_admission_answers_total{operation="UPDATE",outcome="error",webhook="validate-pod"} 1
tenon_admission_answers_total{operation="UPDATE",outcome="error",webhook="validate-pod-resize"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		"tenon_admission_answers_total"); err != nil {
		t.Error(err)
	}
}

// TestWhatAReservationSays is checked when it says it, and not again.
func TestWhatAReservationSays(t *testing.T) {
	t.Parallel()
	m, _ := serve(t)
	const template = `"template":{"spec":{"containers":[{"name":"c"}]}}`
	const owners = `"owners":[{"labelSelector":{"matchLabels":{"app":"a"}}}]`
	object := func(metadata, spec, status string) runtime.RawExtension {
		return runtime.RawExtension{Raw: []byte(`{"apiVersion":"scheduling.koordinator.sh/v1alpha1",` +
			`"kind":"Reservation","metadata":{"name":"r"` + metadata + `},"spec":{` + spec + `},"status":{` + status +
			`}}`)}
	}
	bound := `"phase":"Available","nodeName":"n"`
	for name, c := range map[string]struct {
		now, was runtime.RawExtension
		want     string // empty for what is admitted
	}{
		"all settings": {now: object(`,"labels":{"scheduling.koordinator.sh/reservation-order":"7"}`,
			template+`,`+owners+`,"ttl":"1h","allocateOnce":false,"taints":[{"key":"k","effect":"NoSchedule"}]`, "")},
		"no containers": {
			now:  object("", `"template":{},`+owners, ""),
			want: "spec.template.spec.containers: must have at least one container",
		},
		"a template that is a word": {
			now: object("", `"template":"gpu",`+owners, ""), want: "spec: byte",
		},
		"a quantity that takes seconds to read": {
			now: object("", `"template":{"spec":{"containers":[{"name":"c","resources":{"requests":`+
				`{"cpu":"1e-9999999"}}}]}},`+owners, ""),
			want: "spec: has a quantity that is out of range",
		},
		"half a CPU for class LSR": {
			now: object("", `"template":{"metadata":{"labels":{"koordinator.sh/qosClass":"LSR"}},"spec":{"containers":`+
				`[{"name":"c","resources":{"requests":{"cpu":"500m"},"limits":{"cpu":"500m"}}}]}},`+owners, ""),
			want: "spec.template.spec.containers[*].resources.requests[cpu]: the requested CPUs of LSR Pod must be",
		},
		"an owner that matches every pod": {
			now:  object("", template+`,"owners":[{"labelSelector":{}}]`, ""),
			want: "spec.owners[0].labelSelector: must not be empty: it would match every pod of the cluster",
		},
		"a selector with an unknown operator": {
			now: object("", template+`,"owners":[{"labelSelector":{"matchExpressions":`+
				`[{"key":"a","operator":"Like"}]}}]`, ""),
			want: "spec.owners[0].labelSelector: ",
		},
		"a taint of another effect": {
			now:  object("", template+`,`+owners+`,"taints":[{"key":"k","effect":"Evict"}]`, ""),
			want: `spec.taints[0].effect: Unsupported value "Evict": supported NoSchedule, PreferNoSchedule, NoExecute`,
		},
		"the room of running pods": {now: object(
			`,"labels":{"scheduling.koordinator.sh/pre-allocation-required":"true"}`,
			template+`,`+owners+`,"preAllocation":true,"preAllocationPolicy":{"enableMultiple":true}`, "")},
		"the room of running pods of any owner": {
			now: object("", template+`,`+owners+`,"preAllocation":true,"preAllocationPolicy":{"mode":"Cluster"}`, ""),
		},
		"an unknown mode of pre-allocation": {
			now:  object("", template+`,`+owners+`,"preAllocation":true,"preAllocationPolicy":{"mode":"Node"}`, ""),
			want: `spec.preAllocationPolicy.mode: Unsupported value "Node": supported Default, Cluster`,
		},
		"exclusive CPUs in the room of running pods": {
			now: object("", `"template":{"metadata":{"labels":{"koordinator.sh/qosClass":"LSR"}},"spec":{"containers":`+
				`[{"name":"c","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"2"}}}]}},"preAllocation":true,`+
				owners, ""),
			want: "spec.preAllocation: must be false for a template that requests exclusive CPUs or devices",
		},
		"pre-allocation that is required in words": {
			now: object(`,"labels":{"scheduling.koordinator.sh/pre-allocation-required":"always"}`,
				template+`,`+owners+`,"preAllocation":true`, ""),
			want: `metadata.labels[scheduling.koordinator.sh/pre-allocation-required]: Unsupported value "always": ` +
				`supported true, false`,
		},
		"an order in words": {
			now:  object(`,"labels":{"scheduling.koordinator.sh/reservation-order":"first"}`, template+`,`+owners, ""),
			want: "metadata.labels[scheduling.koordinator.sh/reservation-order]: ",
		},
		"claims for devices": {
			now: object("", `"template":{"spec":{"resourceClaims":[{"name":"g","resourceClaimName":"g"}],"containers":`+
				`[{"name":"c"}]}},`+owners, ""),
			want: "spec.template.spec.resourceClaims: must be empty: a Reservation cannot hold devices of " +
				"ResourceClaims",
		},
		"another template on a node": {
			now:  object("", `"template":{"spec":{"containers":[{"name":"d"}]}},`+owners, bound),
			was:  object("", template+`,`+owners, bound),
			want: "spec.template: field is immutable once the reservation is on a node",
		},
		"what it said before": {
			now: object("", `"template":{},"unschedulable":true,`+owners, ""),
			was: object("", `"template":{},`+owners, ""),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkAnswer(t, m["/validate-reservation"], c.now, c.was, c.want)
		})
	}
}

// checkAnswer asks about an object that is created, or changed if it was another. want is empty for what is admitted.
func checkAnswer(t *testing.T, h http.Handler, now, was runtime.RawExtension, want string) {
	t.Helper()
	operation := admissionv1.Create
	if was.Raw != nil {
		operation = admissionv1.Update
	}
	got := send(t, h, &admissionv1.AdmissionRequest{Operation: operation, Object: now, OldObject: was})
	text := ""
	if got.Result != nil {
		text = got.Result.Message
	}
	if got.Allowed != (want == "") || !strings.HasPrefix(text, want) {
		t.Errorf("got %v %q, want %q", got.Allowed, text, want)
	}
}

func TestWhatAPodMigrationJobSays(t *testing.T) {
	t.Parallel()
	m, _ := serve(t)
	object := func(spec string) runtime.RawExtension {
		return runtime.RawExtension{Raw: []byte(`{"apiVersion":"scheduling.koordinator.sh/v1alpha1",` +
			`"kind":"PodMigrationJob","metadata":{"name":"j"},"spec":{` + spec + `}}`)}
	}
	const pod = `"podRef":{"namespace":"default","name":"a"}`
	template := func(spec string) runtime.RawExtension {
		return object(pod + `,"reservationOptions":{"template":` + spec + `}`)
	}
	for name, c := range map[string]struct {
		now, was runtime.RawExtension
		want     string // empty for what is admitted
	}{
		"a pod by its name": {now: object(pod)},
		"all settings": {now: object(`"paused":true,"ttl":"0","mode":"ReservationFirst","podRef":{"apiVersion":"v1",` +
			`"kind":"Pod","namespace":"default","name":"a","uid":"u"},"deleteOptions":{"gracePeriodSeconds":0,` +
			`"propagationPolicy":"Foreground"},"reservationOptions":{"reservationRef":{"name":"r"},` +
			`"preemptionOptions":{}}`)},
		"no pod":       {now: object(`"ttl":"5m"`), want: "spec.podRef: must be set: the namespace and name of a pod"},
		"no namespace": {now: object(`"podRef":{"name":"a"}`), want: "spec.podRef.namespace: must be set"},
		"no name":      {now: object(`"podRef":{"namespace":"a"}`), want: "spec.podRef.name: must be set"},
		"another kind": {
			now:  object(`"podRef":{"kind":"Job","namespace":"a","name":"b"}`),
			want: `spec.podRef.kind: Unsupported value "Job": supported Pod`,
		},
		"negative ttl": {now: object(pod + `,"ttl":"-5m"`), want: "spec.ttl: must be 0 or more: it is -5m0s"},
		"ttl in words": {now: object(pod + `,"ttl":"soon"`), want: "time: invalid duration"},
		"another mode": {
			now:  object(pod + `,"mode":"Delete"`),
			want: `spec.mode: Unsupported value "Delete": supported ReservationFirst, EvictDirectly`,
		},
		"negative wait": {
			now:  object(pod + `,"deleteOptions":{"gracePeriodSeconds":-1}`),
			want: "spec.deleteOptions.gracePeriodSeconds: must be 0 or more: it is -1",
		},
		"a dry run": {
			now:  object(pod + `,"deleteOptions":{"dryRun":["All"]}`),
			want: "spec.deleteOptions.dryRun: must be empty",
		},
		"an unknown propagation": {
			now: object(pod + `,"deleteOptions":{"propagationPolicy":"Deep"}`),
			want: `spec.deleteOptions.propagationPolicy: Unsupported value "Deep": supported Orphan, Background, ` +
				"Foreground",
		},
		"room for a pod that is evicted directly": {
			now:  object(pod + `,"mode":"EvictDirectly","reservationOptions":{"reservationRef":{"name":"r"}}`),
			want: "spec.reservationOptions: must not be set with mode EvictDirectly",
		},
		"a Reservation without name": {
			now:  object(pod + `,"reservationOptions":{"reservationRef":{"uid":"u"}}`),
			want: "spec.reservationOptions.reservationRef.name: must be set",
		},
		"a template that the pod completes": {
			now: template(`{"metadata":{"labels":{"a":"b"}},"spec":{"ttl":"1h"}}`),
		},
		"a template for every pod": {
			now:  template(`{"spec":{"owners":[{"labelSelector":{}}]}}`),
			want: "spec.reservationOptions.template.spec.owners[0].labelSelector: must not be empty",
		},
		"a template that is a word": {
			now: object(pod + `,"reservationOptions":{"template":"r"}`), want: "spec.reservationOptions.template: json",
		},
		"a template for several pods": {
			now:  template(`{"spec":{"allocateOnce":false}}`),
			want: "spec.reservationOptions.template.spec.allocateOnce: must be true: the room is for one pod",
		},
		"the uid is added": {
			now: object(`"podRef":{"namespace":"default","name":"a","uid":"u"},"mode":"EvictDirectly"`),
			was: object(pod),
		},
		"another uid": {
			now: object(pod), was: object(`"podRef":{"namespace":"default","name":"a","uid":"u"}`),
			want: "spec.podRef: field is immutable: create another job",
		},
		"another pod": {
			now: object(pod), was: object(`"podRef":{"namespace":"default","name":"b"}`),
			want: "spec.podRef: field is immutable: create another job",
		},
		"a mode that changes": {
			now: object(pod + `,"mode":"EvictDirectly"`), was: object(pod + `,"mode":"ReservationFirst"`),
			want: "spec.mode: field is immutable once it is set",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkAnswer(t, m["/validate-podmigrationjob"], c.now, c.was, c.want)
		})
	}
}

// TestWhatAPodGroupSays is checked when it says it, and not again.
func TestWhatAPodGroupSays(t *testing.T) {
	t.Parallel()
	m, _ := serve(t)
	object := func(metadata, spec string) runtime.RawExtension {
		return runtime.RawExtension{Raw: []byte(`{"apiVersion":"scheduling.sigs.k8s.io/v1alpha1",` +
			`"kind":"PodGroup","metadata":{"name":"train","namespace":"ml"` + metadata + `},"spec":{` +
			spec + `}}`)}
	}
	annotated := func(key, value string) string { return `,"annotations":{"` + key + `":"` + value + `"}` }
	const ofGang = "metadata.annotations[gang.scheduling.koordinator.sh/"
	for name, c := range map[string]struct {
		now, was runtime.RawExtension
		want     string // empty for what is admitted
	}{
		"all settings": {
			now: object(annotated(annotation.GangMode, "NonStrict"), `"minMember":3,"scheduleTimeoutSeconds":-1`),
		},
		"a negative minimum": {
			now: object("", `"minMember":-1`), want: "spec.minMember: must be 0 or more: it is -1",
		},
		"a minimum in words": {now: object("", `"minMember":"two"`), want: "spec.minMember: "},
		"an unknown mode": {
			now:  object(annotated(annotation.GangMode, "soft"), `"minMember":3`),
			want: ofGang + `mode]: byte 0: Unsupported value "soft": supported Strict, NonStrict`,
		},
		"a group without itself": {
			now:  object(annotated(annotation.GangGroups, `[\"ml/other\"]`), ""),
			want: ofGang + `groups]: must list its own gang, ml/train, with the others: it lists ml/other`,
		},
		"a group with itself": {now: object(annotated(annotation.GangGroups, `[\"ml/train\",\"ml/other\"]`), "")},
		"what it said before": {
			now: object(annotated(annotation.GangMode, "soft"), `"minMember":3`),
			was: object(annotated(annotation.GangMode, "soft"), `"minMember":2`),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			operation := admissionv1.Create
			if c.was.Raw != nil {
				operation = admissionv1.Update
			}
			got := send(t, m["/validate-podgroup"], &admissionv1.AdmissionRequest{
				Operation: operation, Object: c.now, OldObject: c.was,
			})
			text := ""
			if !got.Allowed {
				text = got.Result.Message
			}
			if got.Allowed != (c.want == "") || !strings.HasPrefix(text, c.want) {
				t.Errorf("allowed = %v, %q; want %q", got.Allowed, text, c.want)
			}
		})
	}
}
