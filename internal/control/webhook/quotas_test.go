package webhook_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	ctrl "sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/webhook"
)

const quotaKeys = "quota.scheduling.koordinator.sh/"

// parseQuota reads YAML in which keys of elastic quotas have no prefix, and the group is Koordinator's unless it is
// named: {group, name, namespace, labels, annotations, min, max, used}. It stays untyped, so that it can be wrong.
func parseQuota(t *testing.T, text string) map[string]any {
	t.Helper()
	var in struct {
		Group, Name, Namespace string
		Labels, Annotations    map[string]string
		Min, Max, Used         any
	}
	if err := yaml.UnmarshalStrict([]byte(text), &in); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	prefixed := func(m map[string]string) map[string]any {
		out := map[string]any{}
		for key, value := range m {
			out[quotaKeys+key] = value
		}
		return out
	}
	if in.Group == "" {
		in.Group = v1alpha1.GroupName
	}
	if in.Namespace == "" {
		in.Namespace = "n"
	}
	o := map[string]any{
		"apiVersion": in.Group + "/v1alpha1", "kind": "ElasticQuota",
		"metadata": map[string]any{
			"name": in.Name, "namespace": in.Namespace, "resourceVersion": "10",
			"labels": prefixed(in.Labels), "annotations": prefixed(in.Annotations),
		},
		"spec": map[string]any{"min": in.Min, "max": in.Max}, "status": map[string]any{"used": in.Used},
	}
	return o
}

func typedQuota(t *testing.T, text string) *v1alpha1.ElasticQuota {
	t.Helper()
	raw, err := json.Marshal(parseQuota(t, text))
	if err != nil {
		t.Fatal(err)
	}
	q := &v1alpha1.ElasticQuota{}
	if err := json.Unmarshal(raw, q); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return q
}

// quotaServer answers about quotas that informers have shown.
type quotaServer struct {
	mux
	quotas, pods *fcache.FakeControllerSource
}

func serveQuotas(t *testing.T, relax bool, pods []string, quotas ...string) quotaServer {
	t.Helper()
	s := quotaServer{mux{}, fcache.NewFakeControllerSource(), fcache.NewFakeControllerSource()}
	for _, text := range quotas {
		s.quotas.Add(typedQuota(t, text))
	}
	for i, pod := range pods {
		namespace, named, _ := strings.Cut(pod, "/")
		p := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint(i)}}
		if named != "" {
			p.Labels = map[string]string{annotation.QuotaName: named}
		}
		s.pods.Add(p)
	}
	q, err := webhook.NewQuotas(
		cache.NewSharedIndexInformer(s.pods, &metav1.PartialObjectMetadata{}, 0, cache.Indexers{}),
		cache.NewSharedIndexInformer(s.quotas, &v1alpha1.ElasticQuota{}, 0, cache.Indexers{}))
	if err != nil {
		t.Fatal(err)
	}
	q.RelaxResourceKeys = relax
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	metrics, err := webhook.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	webhook.Register(s.mux, ctrl.NewDecoder(scheme), webhook.Rules{Schedulers: []string{scheduler}, Quotas: q}, metrics)
	ended := make(chan error, 1)
	go func() { ended <- q.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.quotas.Shutdown()
		s.pods.Shutdown()
	})
	for !q.HasSynced() {
		<-time.After(time.Millisecond)
	}
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

const (
	p100 = "{name: p, labels: {is-parent: 'true'}, min: {cpu: 25, memory: 25Gi}, max: {cpu: 100, memory: 100Gi}}"
	a50  = "{name: a, labels: {parent: p}, min: {cpu: 15, memory: 10Gi}, max: {cpu: 50, memory: 50Gi}}"
)

// one is a quota of one CPU with more fields.
func one(fields string) string { return "{name: q, max: {cpu: 1}, " + fields + "}" }

func TestBadQuotasAreRefused(t *testing.T) {
	t.Parallel()
	const (
		create = admissionv1.Create
		update = admissionv1.Update
		remove = admissionv1.Delete
		label  = "metadata.labels[" + quotaKeys
		annot  = "metadata.annotations[" + quotaKeys
	)
	for name, test := range map[string]struct {
		world     []string
		pods      []string // namespace/quota
		operation admissionv1.Operation
		object    string // for a deletion what is deleted
		want      []string
	}{
		"V1 a negative min": {nil, nil, create, one("min: {cpu: -1}"), []string{
			"spec.min: q quota.Spec.Min's value < 0, in dimensions: [cpu] (V1)",
		}},
		"V1 a negative max": {nil, nil, create, "{name: q, max: {cpu: -1}}", []string{
			"spec.max: q quota.Spec.Max's value < 0, in dimensions: [cpu] (V1)",
		}},
		"V1 a negative weight": {nil, nil, create, one(`annotations: {shared-weight: '{"cpu":-1}'}`), []string{
			annot + "shared-weight]: byte 7: cpu: must not be negative (V1)",
		}},
		"V1 a negative total": {nil, nil, create, one(`annotations: {total-resource: '{"cpu":"-2"}'}`), []string{
			annot + "total-resource]: byte 7: cpu: must not be negative (V1)",
		}},
		"V1 a weight that is cut off": {nil, nil, create, one(`annotations: {shared-weight: '{"cpu":1'}`), []string{
			annot + "shared-weight]: byte 8: unexpected end of JSON input (V1)",
		}},
		"V1 a weight that is a number": {nil, nil, create, one(`annotations: {shared-weight: '60'}`), []string{
			annot + "shared-weight]: byte 2: want an object, got number (V1)",
		}},
		"V1 a weight that is a word": {
			nil, nil, create, one(`annotations: {shared-weight: '{"cpu":"high"}'}`),
			[]string{
				annot + "shared-weight]: byte 7: cpu: quantities must match", "(V1)",
			},
		},
		"V1 unschedulable resources that are a list": {
			nil, nil, create, one(`annotations: {unschedulable-resource: '[]'}`),
			[]string{annot + "unschedulable-resource]: byte 1: want an object, got array (V1)"},
		},
		"V1 an admission that is text": {nil, nil, create, one(`annotations: {admission: 'yes'}`), []string{
			annot + "admission]: byte 1: invalid character", "(V1)",
		}},
		"V1 namespaces that are not JSON": {nil, nil, create, one(`annotations: {namespaces: 'a,b'}`), []string{
			annot + "namespaces]: byte 1: invalid character 'a' looking for beginning of value (V1)",
		}},
		"V1 a namespace in capitals": {nil, nil, create, one(`annotations: {namespaces: '["A"]'}`), []string{
			annot + `namespaces]: byte 0: [0]: Invalid value "A": a lowercase RFC 1123 label must consist of`, "(V1)",
		}},
		"V1 strict keys that are no list": {
			nil, nil, create, one(`annotations: {max-strict-check-resource-keys: 'cpu'}`),
			[]string{annot + "max-strict-check-resource-keys]: byte 1: invalid character 'c'", "(V1)"},
		},
		"V1 a resource key with a space": {nil, nil, create, one(`annotations: {resource-keys: '["a b"]'}`), []string{
			annot + `resource-keys]: byte 0: [0]: Invalid value "a b": name part must consist of`, "(V1)",
		}},
		"V1 is-parent: yes": {nil, nil, create, one(`labels: {is-parent: 'yes'}`), []string{
			label + `is-parent]: Unsupported value "yes": supported true, false (V1)`,
		}},
		"V1 allow-lent-resource: False": {nil, nil, create, one(`labels: {allow-lent-resource: 'False'}`), []string{
			label + `allow-lent-resource]: Unsupported value "False": supported true, false (V1)`,
		}},
		"V1 is-root: 1": {nil, nil, create, one(`labels: {is-root: '1'}`), []string{
			label + `is-root]: Unsupported value "1": supported true, false (V1)`,
		}},
		"V1 ignore-default-tree without a value": {nil, nil, create, one(`labels: {ignore-default-tree: ''}`), []string{
			label + `ignore-default-tree]: Unsupported value "": supported true, false (V1)`,
		}},
		"V1 allow-force-update: TRUE": {nil, nil, create, one(`labels: {allow-force-update: 'TRUE'}`), []string{
			label + `allow-force-update]: Unsupported value "TRUE": supported true, false (V1)`,
		}},
		"V1 a min that is a word": {nil, nil, create, one("min: {cpu: many}"), []string{
			"spec: spec.min: byte 7: cpu: quantities must match", "(V1)",
		}},
		"V1 a max that is a list": {nil, nil, create, "{name: q, max: [cpu]}", []string{
			"spec: spec.max: byte 1: want an object, got array (V1)",
		}},
		"V1 a min that takes seconds to read": {nil, nil, create, one("min: {cpu: '1e-9999999'}"), []string{
			"spec: spec.min: byte 7: cpu: quantity \"1e-9999999\" is out of range (V1)",
		}},
		"V2 min above max": {nil, nil, create, "{name: q, min: {cpu: 5}, max: {cpu: 3}}", []string{
			"spec.min[cpu]: resourceKey cpu of quota q min 5 > max 3 (V2)",
		}},
		"V2 min without max": {nil, nil, create, one("min: {memory: 1Gi}"), []string{
			"spec.min[memory]: resourceKey memory of quota q is included in min, which is not included in max (V2)",
		}},
		"V3 no such parent": {nil, nil, create, one("labels: {parent: p}"), []string{
			label + "parent]: q has parentName p but not find parentInfo (V3)",
		}},
		"V3 a parent that is a leaf": {
			[]string{"{name: p, max: {cpu: 1}}"},
			nil, create,
			one("labels: {parent: p}"),
			[]string{
				label + "parent]: q has parentName p but the parentQuotaInfo's IsParent is false (V3)",
			},
		},
		"V4 a parent becomes a leaf": {
			[]string{p100, a50},
			nil, update, "{name: p, min: {cpu: 25, memory: 25Gi}, max: {cpu: 100, memory: 100Gi}}",
			[]string{label + "is-parent]: quota has children, isParent is forbidden to modify as false: p has 1, " +
				"such as a (V4)"},
		},
		"V4 a leaf with pods becomes a parent": {
			[]string{one("")},
			[]string{"x/q", "y/q"},
			update, one("labels: {is-parent: 'true'}"),
			[]string{
				label + "is-parent]: quota has bound pods, isParent is forbidden to modify as true: q has 2 pods, " +
					"such as " +
					"those of namespace x (V4)",
			},
		},
		"V4 a leaf with the pods of a listed namespace becomes a parent": {
			[]string{one(`annotations: {namespaces: '["x"]'}`)},
			[]string{"x/"},
			update,
			one(`labels: {is-parent: 'true'}, annotations: {namespaces: '["x"]'}`),
			[]string{"is-parent]: quota has bound pods, isParent is forbidden to modify as true: q has 1 pods", "(V4)"},
		},
		"V5 children with more min than their parent": {
			[]string{p100, a50},
			nil, create,
			"{name: b, labels: {parent: p}, min: {cpu: 11, memory: 15Gi}, max: {cpu: 50, memory: 50Gi}}",
			[]string{"spec.min[cpu]: all brothers' MinQuota > parent MinQuota, parent: p; cpu: 26 > 25 (V5)"},
		},
		"V5 a parent with less min than its children": {
			[]string{p100, a50},
			nil, update,
			"{name: p, labels: {is-parent: 'true'}, min: {cpu: 25, memory: 9Gi}, max: {cpu: 100, memory: 100Gi}}",
			[]string{
				"spec.min[memory]: all children's MinQuota > current MinQuota, current: p; memory: 10Gi > 9Gi (V5)",
			},
		},
		"V6 the tree changes": {
			[]string{one("labels: {tree-id: a}")},
			nil, update, one("labels: {tree-id: b}"),
			[]string{label + "tree-id]: q tree id changed [a] vs [b] (V6)"},
		},
		"V6 another tree than the parent's": {
			[]string{p100},
			nil, create,
			"{name: a, labels: {parent: p, tree-id: t}, max: {cpu: 50, memory: 50Gi}}",
			[]string{label + "tree-id]: a tree id is different from parent p, [t] vs [] (V6)"},
		},
		"V7 a child without a resource of its parent": {
			[]string{p100},
			nil, create, "{name: a, labels: {parent: p}, max: {cpu: 50}}",
			[]string{"spec.max: a's max keys [cpu] are not the same with p's [cpu memory] (V7)"},
		},
		"V7 a child with a min that its parent lacks": {
			[]string{"{name: p, labels: {is-parent: 'true'}, max: {cpu: 9}}"},
			nil, create,
			"{name: a, labels: {parent: p}, min: {cpu: 0}, max: {cpu: 9}}",
			[]string{"spec.min: a's min keys [cpu] are not all included in p's [] (V7)"},
		},
		"V8 max below used": {
			[]string{"{name: q, max: {nvidia.com/gpu: 8}, used: {nvidia.com/gpu: 6}}"},
			nil, update,
			`{name: q, max: {nvidia.com/gpu: 5}, annotations: {max-strict-check-resource-keys: '["nvidia.com/gpu"]'}}`,
			[]string{"spec.max[nvidia.com/gpu]: resourceKey nvidia.com/gpu of quota q max 5 < used 6 (V8)"},
		},
		"V9 a parent with children": {[]string{p100, a50}, nil, remove, p100, []string{
			"metadata.name: delete quota failed, quota p has 1 child quotas, such as a (V9)",
		}},
		"V9 a quota with pods that name it": {[]string{one("")}, []string{"x/q"}, remove, one(""), []string{
			"metadata.name: delete quota failed, quota q has 1 pods, such as those of namespace x (V9)",
		}},
		"V9 a quota with the pods of its namespace": {
			[]string{"{name: q, namespace: q, max: {cpu: 1}}"},
			[]string{"q/"},
			remove, "{name: q, namespace: q, max: {cpu: 1}}",
			[]string{"metadata.name: delete quota failed, quota q has 1 pods, such as those of namespace q (V9)"},
		},
		"V9 the default quota": {
			[]string{"{name: koordinator-default-quota, max: {cpu: 1}}"},
			nil, remove,
			"{name: koordinator-default-quota, max: {cpu: 1}}",
			[]string{"metadata.name: delete quota failed, quota koordinator-default-quota is reserved (V9)"},
		},
		"V10 the name in another namespace": {[]string{one("")}, nil, create, one("namespace: other"), []string{
			"metadata.name: n/q of scheduling.sigs.k8s.io exists already: names are unique in the cluster (V10)",
		}},
		"V10 the name in the other group": {[]string{one("")}, nil, create, one("group: scheduling.x-k8s.io"), []string{
			"metadata.name: n/q of scheduling.sigs.k8s.io exists already: names are unique in the cluster (V10)",
		}},
		"V11 a namespace in two lists": {
			[]string{`{name: a, max: {cpu: 1}, annotations: {namespaces: '["x"]'}}`},
			nil, create,
			one(`namespace: m, annotations: {namespaces: '["w","x"]'}`),
			[]string{annot + "namespaces]: namespace x is listed by q and by a (V11)"},
		},
		"V11 a list against the quota of a namespace": {
			[]string{"{name: x, namespace: x, max: {cpu: 1}}"},
			nil, create, one(`annotations: {namespaces: '["x"]'}`),
			[]string{annot + "namespaces]: namespace x is listed by q and has its own quota x (V11)"},
		},
		"V11 the only quota of a listed namespace": {
			[]string{`{name: a, max: {cpu: 1}, annotations: {namespaces: '["x"]'}}`},
			nil, create, one("namespace: x"),
			[]string{"metadata.name: namespace x has its own quota q and is listed by a (V11)"},
		},
		"V13 its own parent": {
			[]string{p100},
			nil, update,
			"{name: p, labels: {is-parent: 'true', parent: p}, min: {cpu: 25, memory: 25Gi}, max: {cpu: 100, memory: " +
				"100Gi}}",
			[]string{label + "parent]: parent p is p or below it: p -> p (V13)"},
		},
		"V13 below its own child": {
			[]string{
				"{name: p, labels: {is-parent: 'true'}, max: {cpu: 1}}",
				"{name: c, labels: {is-parent: 'true', parent: p}, max: {cpu: 1}}",
			},
			nil, update, "{name: p, labels: {is-parent: 'true', parent: c}, max: {cpu: 1}}",
			[]string{label + "parent]: parent c is p or below it: p -> c -> p (V13)"},
		},
		"V13 a path of 17": {deep(16), nil, create, "{name: q, labels: {parent: d16}, max: {cpu: 1}}", []string{
			label + "parent]: q with parentName d16 is on a path of more than 16 quotas (V13)",
		}},
		"V14 a weight without max": {nil, nil, create, one(`annotations: {shared-weight: '{"gpu":1}'}`), []string{
			annot + "shared-weight][gpu]: resourceKey gpu of quota q is included in shared-weight, which is not " +
				"included in " +
				"max (V14)",
		}},
		"V15 max overflows": {
			[]string{"{name: a, max: {memory: 8191Pi}}"},
			nil, create, "{name: q, max: {memory: 1Pi}}",
			[]string{"spec.max[memory]: the sum over siblings overflows int64: q 1Pi, a 8191Pi (V15)"},
		},
		"V15 min overflows": {
			[]string{"{name: a, min: {memory: 8191Pi}, max: {memory: 8191Pi}}"},
			nil, create,
			"{name: q, min: {memory: 1Pi}, max: {memory: 1Pi}}",
			[]string{"spec.min[memory]: the sum over siblings overflows int64: q 1Pi, a 8191Pi (V15)"},
		},
		"V15 weight overflows": {
			[]string{`{name: a, max: {cpu: 1}, annotations: {shared-weight: '{"cpu":"9223372036854775"}'}}`},
			nil, create,
			one(""),
			[]string{
				annot + "shared-weight][cpu]: the sum over siblings overflows int64: q 1, a 9223372036854775 (V15)",
			},
		},
		"V16 two roots of a tree": {
			[]string{"{name: a, labels: {is-root: 'true', is-parent: 'true', tree-id: t}, max: {cpu: 1}}"},
			nil, create,
			one("labels: {is-root: 'true', tree-id: t}"),
			[]string{label + "is-root]: q and a are both the root of tree [t] (V16)"},
		},
		"V16 a root without a tree": {nil, nil, create, one("labels: {is-root: 'true'}"), []string{
			label + "is-root]: q is the root of a tree and has no tree id (V16)",
		}},
		"V17 the root is edited": {
			[]string{"{name: koordinator-root-quota, max: {cpu: 1}}"},
			nil, update,
			"{name: koordinator-root-quota, max: {cpu: 2}}",
			[]string{
				"metadata.name: quota koordinator-root-quota is reserved: it cannot be created or edited; ",
				"(V17)",
			},
		},
		"V17 the system quota is created": {
			nil, nil, create, "{name: koordinator-system-quota, max: {cpu: 2}}",
			[]string{
				"metadata.name: quota koordinator-system-quota is reserved: it cannot be created or edited; ",
				"(V17)",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveQuotas(t, false, test.pods, test.world...)
			r := request{operation: test.operation, object: parseQuota(t, test.object)}
			for _, text := range test.world {
				if w := parseQuota(t, text); test.operation == update && nameOf(w) == nameOf(r.object) {
					r.old = w
				}
			}
			if test.operation == remove {
				r.object, r.old = nil, r.object
			}
			got := s.ask(t, "/validate-elasticquota", r)
			if got.Allowed || got.Result.Code != http.StatusUnprocessableEntity {
				t.Fatalf("answer %+v, want 422", got)
			}
			for _, want := range test.want {
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

// deep is a path of n quotas, d1 on top.
func deep(n int) (world []string) {
	above := ""
	for i := range n {
		name := fmt.Sprintf("d%d", i+1)
		world = append(world, fmt.Sprintf("{name: %s, labels: {is-parent: 'true', parent: '%s'}, max: {cpu: 1}}",
			name, above))
		above = name
	}
	return world
}

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
		"the other group": {object: one("group: scheduling.x-k8s.io")},
		"a child in the other group": {
			world:  []string{p100},
			object: "{name: a, group: scheduling.x-k8s.io, labels: {parent: p}, max: {cpu: 5, memory: 5Gi}}",
		},
		"an unlimited quota of Koordinator": {object: "{name: q, max: {cpu: 1844674407370955161, memory: 1Gi}}"},
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
		object:    parseQuota(t, one(`labels: {is-parent: 'true'}, annotations: {namespaces: '["x"]'}`)),
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
	s := serveQuotas(t, false, nil, p100, a50, "{name: m, namespace: m, labels: {is-parent: 'true'}, max: {cpu: 1}}")
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
		sum := "spec.min[cpu]: all brothers' MinQuota > parent MinQuota, parent: p; cpu: 30 > 25 (V5)"
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
		s.quotas.Add(seen)
		synctest.Wait()
		if got := answer(false, admissionv1.Create, a50, ""); got != sum {
			t.Fatalf("a child beside the one that was shown: %q", got)
		}
		if got := answer(false, admissionv1.Delete, "", b50); got != "" {
			t.Fatalf("a deletion is refused: %s", got)
		}
		if got := answer(false, admissionv1.Create, a50, ""); got != "" {
			t.Fatalf("a child after the deletion: %s", got)
		}
		s.quotas.Delete(seen)
		synctest.Wait()
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
		s.quotas.Delete(typedQuota(t, a50))
		synctest.Wait()
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
		s.quotas.Modify(typedQuota(t, a50)) // a resource version far below 99
		synctest.Wait()
		if got := s.ask(t, "/validate-elasticquota", one); got.Allowed {
			t.Error("an older event ended the decision")
		}
	})
}
