package webhook_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/webhook"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/test/badquota"
)

const quotaKeys = "quota.scheduling.koordinator.sh/"

// parseQuota is badquota.Object.
func parseQuota(t *testing.T, text string) map[string]any {
	t.Helper()
	o, err := badquota.Object(text)
	testkit.Check(t, err)
	return o
}

func typedQuota(t *testing.T, text string) *v1alpha1.ElasticQuota {
	t.Helper()
	raw, err := json.Marshal(parseQuota(t, text))
	testkit.Check(t, err)
	q := &v1alpha1.ElasticQuota{}
	if err := json.Unmarshal(raw, q); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return q
}

// quotaServer answers about the quotas and pods of a store.
type quotaServer struct {
	mux
	store *kube.Quotas
}

// serveQuotas serves quotas and pods (namespace/quota). What a quota uses is held by a pod.
func serveQuotas(t *testing.T, relax bool, pods []string, quotas ...string) quotaServer {
	t.Helper()
	s := quotaServer{mux{}, kube.NewQuotas(time.Now)}
	put := func(namespace, named string, holds corev1.ResourceList) {
		p := testobject.Pod(namespace+"/", testobject.Label(annotation.QuotaName, named))
		s.store.Read(func(a *quota.Account) { p.UID = types.UID(fmt.Sprint(len(a.Counts()), named, namespace)) })
		if holds != nil {
			p.Spec.NodeName = "n0"
			p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: holds}}}
		}
		s.store.PutPod(p)
	}
	for _, text := range quotas {
		q := typedQuota(t, text)
		s.store.PutQuota(q)
		if len(q.Status.Used) > 0 {
			put("n", q.Name, q.Status.Used)
		}
	}
	for _, pod := range pods {
		namespace, named, _ := strings.Cut(pod, "/")
		put(namespace, named, nil)
	}
	q := webhook.NewQuotas(s.store, func() bool { return true })
	q.RelaxResourceKeys = relax
	scheme := runtime.NewScheme()
	testkit.Check(t, corev1.AddToScheme(scheme))
	webhook.Register(s.mux, ctrl.NewDecoder(scheme), webhook.Rules{
		Schedulers: []string{scheduler}, Quotas: q, Kinds: func() device.Kinds { return nil },
	}, webhook.NewMetrics())
	return s
}

// request is what a user asks of the API server.
type request struct {
	operation admissionv1.Operation // Create, Update with the quota of the same name as old, or Delete
	user      string
	dryRun    bool
	object    map[string]any
	old       map[string]any
}

func (s quotaServer) ask(t *testing.T, path string, r request) *admissionv1.AdmissionResponse {
	t.Helper()
	raw := func(o map[string]any) (out runtime.RawExtension) {
		if o != nil {
			var err error
			if out.Raw, err = json.Marshal(o); err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	return send(t, s.mux[path], &admissionv1.AdmissionRequest{
		Operation: r.operation, Object: raw(r.object), OldObject: raw(r.old), DryRun: &r.dryRun,
		UserInfo: userOf(r.user),
	})
}

const p100, a50 = badquota.Parent, badquota.Child

func TestBadQuotasAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range badquota.Cases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveQuotas(t, false, test.Pods, test.World...)
			r := request{operation: admissionv1.Operation(test.Operation), object: parseQuota(t, test.Object)}
			for _, text := range test.World {
				if w := parseQuota(t, text); test.Operation == badquota.Update && nameOf(w) == nameOf(r.object) {
					r.old = w
				}
			}
			if test.Operation == badquota.Delete {
				r.object, r.old = nil, r.object
			}
			got := s.ask(t, "/validate-elasticquota", r)
			if got.Allowed || got.Result.Code != http.StatusUnprocessableEntity {
				t.Fatalf("answer %+v, want 422", got)
			}
			for _, want := range test.Refusal {
				if !strings.Contains(got.Result.Message, want) {
					t.Errorf("message\n got %s\nwant %s", got.Result.Message, want)
				}
			}
			rule, _, _ := strings.Cut(name, " ")
			for _, c := range got.Result.Details.Causes {
				if !strings.HasSuffix(c.Message, "("+rule+")") {
					t.Errorf("cause %q breaks another rule than %s", c.Message, rule)
				}
			}
		})
	}
}

func nameOf(o map[string]any) any { return o["metadata"].(map[string]any)["name"] }

func TestGoodQuotasAreAdmitted(t *testing.T) {
	t.Parallel()
	type ask struct {
		world     []string
		operation admissionv1.Operation
		user      string
		relax     bool
		object    string
	}
	for name, test := range map[string]ask{
		"the example of the seed": {
			world: []string{
				"{name: parentA, labels: {is-parent: 'true'}, min: {cpu: 100, memory: 200Gi}, max: {cpu: 100, " +
					"memory: 200Gi}}",
			},
			object: "{name: childA1, labels: {parent: parentA}, min: {cpu: 20, memory: 40Gi}, max: {cpu: 40, memory: " +
				"100Gi}}",
		},
		"the other group": {object: badquota.One("group: scheduling.x-k8s.io")},
		"a child in the other group": {
			world:  []string{p100},
			object: "{name: a, group: scheduling.x-k8s.io, labels: {parent: p}, max: {cpu: 5, memory: 5Gi}}",
		},
		"Koordinator's unlimited default quota": {
			object: "{name: koordinator-default-quota, max: {cpu: 1844674407370955161, memory: 1844674407370955161}}",
			world:  []string{"{name: koordinator-default-quota, max: {cpu: 1}}"}, operation: admissionv1.Update,
		},
		"fewer resources, relaxed": {
			world: []string{p100}, relax: true, object: "{name: a, labels: {parent: p}, max: {cpu: 5}}",
		},
		"forced": {
			world: []string{p100, a50}, operation: admissionv1.Update,
			object: "{name: p, labels: {is-parent: 'true', allow-force-update: 'true'}, min: {cpu: 1, memory: 9Gi}, " +
				"max: {cpu: 100, memory: 100Gi}}",
		},
		"a leaf goes": {world: []string{p100, a50}, operation: admissionv1.Delete, object: a50},
		"the max of the default quota": {
			world: []string{"{name: koordinator-default-quota, max: {cpu: 1}}"}, operation: admissionv1.Update,
			object: "{name: koordinator-default-quota, max: {cpu: 2}}",
		},
		"a scheduler creates the system quota": {
			user:   scheduler,
			object: "{name: koordinator-system-quota, max: {cpu: 1}}",
		},
		"an old fault remains": {
			world:     []string{"{name: q, labels: {parent: gone, is-parent: 'yes'}, max: {cpu: 1}}"},
			operation: admissionv1.Update,
			object: "{name: q, labels: {parent: gone, is-parent: 'yes', allow-lent-resource: 'false'}, max: {cpu: " +
				"1}}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveQuotas(t, test.relax, nil, test.world...)
			r := request{operation: test.operation, user: test.user, object: parseQuota(t, test.object)}
			switch test.operation {
			case "":
				r.operation = admissionv1.Create
			case admissionv1.Update:
				r.old = parseQuota(t, test.world[0])
			case admissionv1.Delete:
				r.object, r.old = nil, r.object
			}
			if got := s.ask(t, "/validate-elasticquota", r); !got.Allowed || len(got.Patch) > 0 {
				t.Errorf("answer %+v", got)
			}
		})
	}
}

func TestAParentThatListsNamespacesIsWarnedAbout(t *testing.T) {
	t.Parallel()
	s := serveQuotas(t, false, nil)
	got := s.ask(t, "/validate-elasticquota", request{
		operation: admissionv1.Create,
		object:    parseQuota(t, badquota.One(`labels: {is-parent: 'true'}, annotations: {namespaces: '["x"]'}`)),
	})
	if !got.Allowed || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "namespaces]: q is a parent") {
		t.Errorf("answer %+v", got)
	}
}

func TestAQuotaIsCreatedInTheTreeOfItsParent(t *testing.T) {
	t.Parallel()
	s := serveQuotas(t, false, nil,
		"{name: t, labels: {is-root: 'true', is-parent: 'true', tree-id: blue}, max: {cpu: 1}}", p100)
	for object, want := range map[string]string{
		"{name: q, labels: {parent: t}}": `[{"op":"add","path":"/metadata/labels/` +
			strings.ReplaceAll(quotaKeys, "/", "~1") + `tree-id","value":"blue"}]`,
		"{name: q, labels: {parent: p}}":               "",
		"{name: q, labels: {parent: gone}}":            "",
		"{name: q, labels: {parent: t, tree-id: red}}": "",
	} {
		got := s.ask(t, "/mutate-elasticquota", request{operation: admissionv1.Create, object: parseQuota(t, object)})
		if !got.Allowed || string(got.Patch) != want {
			t.Errorf("%s: answer %+v with patch %s, want %s", object, got, got.Patch, want)
		}
	}
}

func TestPodsAndTheirQuotas(t *testing.T) {
	t.Parallel()
	const (
		name        = "metadata.labels[" + annotation.QuotaName + "]: "
		preemptible = "metadata.labels[" + annotation.QuotaPreemptible + "]: "
	)
	labelled := func(namespace string, pairs ...string) *corev1.Pod {
		p := typed(pod(map[string]string{}, nil))
		p.Namespace = namespace
		for i := 0; i < len(pairs); i += 2 {
			p.Labels[pairs[i]] = pairs[i+1]
		}
		return p
	}
	s := serveQuotas(t, false, nil, p100, a50, "{name: m, namespace: m, labels: {is-parent: 'true'}, max: {cpu: 1}}",
		`{name: l, labels: {is-parent: 'true'}, max: {cpu: 1}, annotations: {namespaces: '["listed"]'}}`)
	for title, test := range map[string]struct {
		pod, old *corev1.Pod
		want     string
	}{
		"a leaf":                    {labelled("n", annotation.QuotaName, "a"), nil, ""},
		"a quota that is not there": {labelled("n", annotation.QuotaName, "later"), nil, ""},
		"no quota":                  {labelled("n"), nil, ""},
		"a pod that is preemptible": {labelled("n", annotation.QuotaPreemptible, "true"), nil, ""},
		"V12 a parent": {
			labelled("n", annotation.QuotaName, "p"), nil,
			name + "pods of namespace n are in quota p, which is a parent: only leaves have pods (V12)",
		},
		"V12 the parent of the namespace": {
			labelled("m", annotation.QuotaPreemptible, "true"), nil,
			name + "pods of namespace m are in quota m, which is a parent: only leaves have pods (V12)",
		},
		"V12 the parent of the namespace, for a pod without labels": {
			labelled("m"), nil,
			name + "pods of namespace m are in quota m, which is a parent: only leaves have pods (V12)",
		},
		"V12 a parent that lists the namespace": {
			labelled("listed"), nil,
			name + "pods of namespace listed are in quota l, which is a parent: only leaves have pods (V12)",
		},
		"V12 a pod moves to a parent": {
			labelled("n", annotation.QuotaName, "p"), labelled("n", annotation.QuotaName, "a"),
			name + "pods of namespace n are in quota p, which is a parent: only leaves have pods (V12)",
		},
		"a pod that was in a parent before": {
			labelled("n", annotation.QuotaName, "p"), labelled("n", annotation.QuotaName, "p"), "",
		},
		"V1 a preemptible that is not a boolean": {
			labelled("n", annotation.QuotaPreemptible, "no"), nil,
			preemptible + `Unsupported value "no": supported true, false (V1)`,
		},
		"V12 preemptible changes": {
			labelled("n", annotation.QuotaPreemptible, "false"), labelled("n", annotation.QuotaPreemptible, "true"),
			preemptible + "field is immutable (V12)",
		},
		"V12 preemptible goes": {
			labelled("n"), labelled("n", annotation.QuotaPreemptible, "false"), preemptible +
				"field is immutable (V12)",
		},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			operation, old := admissionv1.Create, runtime.Object(nil)
			if test.old != nil {
				operation, old = admissionv1.Update, test.old
			}
			got := ask(t, s.mux["/validate-pod"], operation, "someone", test.pod, old)
			if got.Allowed != (test.want == "") || !got.Allowed && got.Result.Message != test.want {
				t.Errorf("answer %+v, want %q", got.Result, test.want)
			}
		})
	}
}

// TestAPodIsWarnedOfTwoQuotas: Kueue counts it, and an ElasticQuota other than the default one.
func TestAPodIsWarnedOfTwoQuotas(t *testing.T) {
	t.Parallel()
	s := serveQuotas(t, false, nil, p100, a50)
	for name, c := range map[string]struct {
		labels, annotations map[string]string
		gate                string
		update, warns       bool
	}{
		"an ElasticQuota alone": {labels: map[string]string{annotation.QuotaName: "a"}},
		"Kueue alone":           {labels: map[string]string{"kueue.x-k8s.io/managed": "true"}},
		"a plain pod of Kueue": {
			labels: map[string]string{annotation.QuotaName: "a", "kueue.x-k8s.io/managed": "true"}, warns: true,
		},
		"a pod that names a queue": {
			labels: map[string]string{annotation.QuotaName: "a", "kueue.x-k8s.io/queue-name": "q"}, warns: true,
		},
		"a pod of an admitted Job": {
			labels: map[string]string{annotation.QuotaName: "a", "kueue.x-k8s.io/podset": "main"}, warns: true,
		},
		"a pod of a Workload": {
			labels:      map[string]string{annotation.QuotaName: "a"},
			annotations: map[string]string{"kueue.x-k8s.io/workload": "w"}, warns: true,
		},
		"a gated pod": {
			labels: map[string]string{annotation.QuotaName: "a"}, gate: "kueue.x-k8s.io/topology", warns: true,
		},
		"another gate": {labels: map[string]string{annotation.QuotaName: "a"}, gate: "example.com/gate"},
		"the default quota": {
			labels: map[string]string{annotation.QuotaName: quota.Default, "kueue.x-k8s.io/podset": "m"},
		},
		"a pod that changes": {
			labels: map[string]string{annotation.QuotaName: "a", "kueue.x-k8s.io/podset": "m"}, update: true,
		},
	} {
		p := typed(pod(c.labels, c.annotations))
		if c.gate != "" {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: c.gate}}
		}
		operation, old := admissionv1.Create, runtime.Object(nil)
		if c.update {
			operation, old = admissionv1.Update, p
		}
		got := ask(t, s.mux["/validate-pod"], operation, "someone", p, old)
		text := strings.Join(got.Warnings, "\n")
		if warns := strings.Contains(text, `in ElasticQuota "a"`); !got.Allowed || warns != c.warns {
			t.Errorf("%s: warnings %q, want one %t", name, text, c.warns)
		}
	}
}

func TestAdmittedChangesCountBeforeTheyAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveQuotas(t, false, nil, p100)
		answer := func(dryRun bool, operation admissionv1.Operation, object, old string) string {
			t.Helper()
			r := request{operation: operation, dryRun: dryRun}
			if object != "" {
				r.object = parseQuota(t, object)
			}
			if old != "" {
				r.old = parseQuota(t, old)
			}
			if got := s.ask(t, "/validate-elasticquota", r); !got.Allowed {
				return got.Result.Message
			}
			return ""
		}
		b50 := strings.ReplaceAll(a50, "name: a", "name: b")
		sum := "spec.min[cpu]: the children's min exceeds the parent's: " +
			"all brothers' MinQuota > parent MinQuota, parent: p; cpu: 30 > 25 (V5)"
		if got := answer(true, admissionv1.Create, b50, ""); got != "" {
			t.Fatalf("a dry run is refused: %s", got)
		}
		if got := answer(false, admissionv1.Create, a50, ""); got != "" {
			t.Fatalf("the first child is refused: %s", got)
		}
		if got := answer(false, admissionv1.Create, b50, ""); got != sum {
			t.Fatalf("a second child that does not fit beside the first: %q", got)
		}
		if got := answer(false, admissionv1.Delete, "", p100); !strings.Contains(got, "such as a (V9)") {
			t.Fatalf("the parent of a child that no informer has shown: %q", got)
		}
		<-time.After(11 * time.Second) // the API server dropped the first
		if got := answer(false, admissionv1.Create, b50, ""); got != "" {
			t.Fatalf("the second child after the first was dropped: %s", got)
		}
		seen := typedQuota(t, b50)
		s.store.PutQuota(seen)
		if got := answer(false, admissionv1.Create, a50, ""); got != sum {
			t.Fatalf("a child beside the one that was shown: %q", got)
		}
		if got := answer(false, admissionv1.Delete, "", b50); got != "" {
			t.Fatalf("a deletion is refused: %s", got)
		}
		if got := answer(false, admissionv1.Create, a50, ""); got != "" {
			t.Fatalf("a child after the deletion: %s", got)
		}
		s.store.RemoveQuota(seen)
		if got := answer(false, admissionv1.Create, b50, ""); got != sum {
			t.Fatalf("the first child must still count: %q", got)
		}
	})
}

// A quota that is deleted and created again counts, although the event of the deletion comes last.
func TestADeletionDoesNotEndALaterCreation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveQuotas(t, false, nil, p100, a50)
		for _, r := range []request{
			{operation: admissionv1.Delete, old: parseQuota(t, a50)},
			{operation: admissionv1.Create, object: parseQuota(t, a50)},
		} {
			if got := s.ask(t, "/validate-elasticquota", r); !got.Allowed {
				t.Fatalf("%s: %s", r.operation, got.Result.Message)
			}
		}
		s.store.RemoveQuota(typedQuota(t, a50))
		r := request{operation: admissionv1.Delete, old: parseQuota(t, p100)}
		if got := s.ask(t, "/validate-elasticquota", r); got.Allowed {
			t.Error("the parent of the new quota may be deleted")
		}
	})
}

// The event of an older version must not end a decision on a newer one.
func TestOldEventsDoNotEndADecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveQuotas(t, false, nil, p100, a50)
		old, now := parseQuota(t, a50), parseQuota(t, strings.ReplaceAll(a50, "cpu: 15", "cpu: 25"))
		setVersion := func(o map[string]any,
			version string,
		) {
			o["metadata"].(map[string]any)["resourceVersion"] = version
		}
		setVersion(old, "99")
		if got := s.ask(t, "/validate-elasticquota", request{
			operation: admissionv1.Update, object: now,
			old: old,
		}); !got.Allowed {
			t.Fatalf("answer %+v", got)
		}
		one := request{operation: admissionv1.Create, object: parseQuota(t,
			"{name: b, labels: {parent: p}, min: {cpu: 1, memory: 1Gi}, max: {cpu: 1, memory: 1Gi}}"), dryRun: true}
		s.store.PutQuota(typedQuota(t, a50)) // a resource version far below 99
		if got := s.ask(t, "/validate-elasticquota", one); got.Allowed {
			t.Error("an older event ended the decision")
		}
	})
}

// TestABoundPodUsesNoMoreThanItsQuotaAllows: after a resize, and after it moves to another quota. Of full, which may
// use 4 CPUs, a pod uses 3; of empty none.
func TestABoundPodUsesNoMoreThanItsQuotaAllows(t *testing.T) {
	t.Parallel()
	s := serveQuotas(t, false, nil,
		"{name: full, min: {cpu: 4}, max: {cpu: 4}}", "{name: empty, min: {cpu: 4}, max: {cpu: 4}}")
	node := testobject.Node("n0", nil, "cpu", "100")
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	s.store.PutNode(node)
	bound := func(name, quota, cpu string) *corev1.Pod {
		return testobject.Pod("n/"+name, testobject.Label(annotation.QuotaName, quota), testobject.On("n0"),
			testobject.Container("c", ""), testobject.Requests("cpu", cpu))
	}
	s.store.PutPod(bound("a", "full", "3"))
	s.store.PutPod(bound("out", "", "3"))
	pending := bound("pending", "empty", "9")
	pending.Spec.NodeName = ""
	moved := pending.DeepCopy()
	moved.Labels[annotation.QuotaName] = "absent"
	for name, c := range map[string]struct {
		path     string
		pod, old *corev1.Pod
		want     string
	}{
		"a resize within": {"/validate-pod-resize", bound("a", "full", "4"), bound("a", "full", "3"), ""},
		"a resize beyond": {
			"/validate-pod-resize", bound("a", "full", "4100m"), bound("a", "full", "3"),
			`spec: quota "full" has too little left (cpu: runtime 4, used by others 0, the pod would use 4100m)`,
		},
		"to a quota with room": {"/validate-pod", bound("a", "empty", "3"), bound("a", "full", "3"), ""},
		"to a full quota": {
			"/validate-pod", bound("out", "full", "3"), bound("out", "", "3"),
			"metadata.labels[" + annotation.QuotaName +
				`]: quota "full" has too little left (cpu: runtime 4, used by others 3, the pod would use 3)`,
		},
		"to a quota that does not exist": {
			"/validate-pod", bound("a", "absent", "3"), bound("a", "full", "3"),
			"metadata.labels[" + annotation.QuotaName +
				`]: quota "absent" does not exist: a bound pod moves to an existing quota alone`,
		},
		"out of all quotas": {
			"/validate-pod", bound("a", "", "3"), bound("a", "full", "3"),
			"metadata.labels[" + annotation.QuotaName +
				`]: the bound pod uses quota "full": it can move to another quota, and not to none`,
		},
		"a pending pod, which is admitted later": {"/validate-pod", moved, pending, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ask(t, s.mux[c.path], admissionv1.Update, "someone", c.pod, c.old)
			if got.Allowed != (c.want == "") || !got.Allowed && got.Result.Message != c.want {
				t.Errorf("answer %+v, want %q", got.Result, c.want)
			}
		})
	}
}
