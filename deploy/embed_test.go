package deploy_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/deploy"
	"github.com/tenon-project/tenon/internal/testkit"
)

func parse(t *testing.T, docs [][]byte) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for _, doc := range docs {
		u := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(doc, &u.Object); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if u.GetKind() == "" || u.GetName() == "" {
			t.Fatalf("no object:\n%s", doc)
		}
		objects = append(objects, u)
	}
	return objects
}

func TestTheCRDsServeAndStoreTheirVersions(t *testing.T) {
	t.Parallel()
	want := map[string]map[string]bool{ // version to whether it is stored
		"noderesourcetopologies.topology.node.k8s.io":        {"v1alpha1": false, "v1alpha2": true},
		"numatopologies.nodeinfo.volcano.sh":                 {"v1alpha1": true},
		"elasticquotas.scheduling.sigs.k8s.io":               {"v1alpha1": true},
		"elasticquotas.scheduling.x-k8s.io":                  {"v1alpha1": true},
		"podgroups.scheduling.sigs.k8s.io":                   {"v1alpha1": true},
		"clusternetworktopologies.scheduling.koordinator.sh": {"v1alpha1": true},
		"podgroups.scheduling.x-k8s.io":                      {"v1alpha1": true},
		"clustercolocationprofiles.config.koordinator.sh":    {"v1alpha1": true},
		"elasticquotaprofiles.quota.koordinator.sh":          {"v1alpha1": true},
		"devices.scheduling.koordinator.sh":                  {"v1alpha1": true},
		"reservations.scheduling.koordinator.sh":             {"v1alpha1": true},
		"podmigrationjobs.scheduling.koordinator.sh":         {"v1alpha1": true},
		"scheduleexplanations.scheduling.koordinator.sh":     {"v1alpha1": true},
		"nodemetrics.slo.koordinator.sh":                     {"v1alpha1": true},
		"nodeslos.slo.koordinator.sh":                        {"v1alpha1": true},
	}
	got := map[string]map[string]bool{}
	for _, crd := range parse(t, deploy.CRDs()) {
		got[crd.GetName()] = map[string]bool{}
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		testkit.Check(t, err)
		for _, v := range versions {
			v := v.(map[string]any)
			if v["served"] != true {
				t.Errorf("%s: %v is not served", crd.GetName(), v["name"])
			}
			got[crd.GetName()][v["name"].(string)] = v["storage"].(bool)
		}
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		if strings.HasSuffix(group, ".k8s.io") && crd.GetAnnotations()["api-approved.kubernetes.io"] == "" {
			t.Errorf("%s: a group under k8s.io needs the annotation api-approved.kubernetes.io", crd.GetName())
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stored versions (-want +got):\n%s", diff)
	}
}

// TestColumnsShowWhatMatters prints an object of each kind as kubectl get does. Of ClusterNetworkTopology one object
// counts, and its layers are a list.
func TestColumnsShowWhatMatters(t *testing.T) {
	t.Parallel()
	kinds := map[string]struct{ object, want string }{
		"PodGroup": {
			`{spec: {minMember: 3}, status: {phase: Running, scheduled: 3, running: 2}}`,
			"Phase=Running Min=3 Scheduled=3 Running=2 Age",
		},
		"ElasticQuota": {
			`{metadata: {annotations: {quota.scheduling.koordinator.sh/runtime: '{"cpu":"6"}'}},
			  spec: {min: {cpu: 4}, max: {cpu: "8"}}, status: {used: {cpu: 500m}}}`,
			`Min={"cpu":4} Max={"cpu":"8"} Runtime={"cpu":"6"} Used={"cpu":"500m"} Age`,
		},
		"ElasticQuotaProfile": {`{spec: {quotaName: arm, resourceRatio: "0.9"}}`, "Quota=arm Ratio=0.9 Age"},
		"Reservation": {
			`{spec: {ttl: 24h, expires: "2026-01-02T03:04:05Z"}, status: {phase: Available, nodeName: n0}}`,
			"Phase=Available Age Node=n0 TTL=24h Expires=2026-01-02T03:04:05Z",
		},
		"PodMigrationJob": {
			`{spec: {ttl: 5m, podRef: {namespace: a, name: b}, reservationOptions: {reservationRef: {name: r}}},
			  status: {phase: Running, status: Eviction, nodeName: n0, podRef: {namespace: a, name: c}}}`,
			"Phase=Running Status=Eviction Age Node=n0 Reservation=r PodNamespace=a Pod=b NewPod=c TTL=5m",
		},
		"ScheduleExplanation": {
			`{spec: {questionObjectKey: a/b}, status: {schedulable: false, schedulableAfterPreemption: true,
			  failedMessage: "NoFit: no", lastUpdateTime: "2999-01-02T03:04:05Z"}}`,
			"Pod=a/b Schedulable=false Preemption=true Updated=<invalid> Why=NoFit: no",
		},
		"NodeMetric": {
			`{status: {updateTime: "2999-01-02T03:04:05Z",
			  nodeMetric: {nodeUsage: {resources: {cpu: 1500m, memory: 2Gi}}}}}`,
			"CPU=1500m Memory=2Gi Updated=<invalid> Age",
		},
		"NodeSLO": {
			`{spec: {resourceUsedThresholdWithBE: {enable: true, cpuSuppressThresholdPercent: 65,
			  cpuSuppressPolicy: cpuset}}}`, "Suppress=true CPU=65 Policy=cpuset Age",
		},
		"ClusterColocationProfile": {
			`{spec: {qosClass: BE, priorityClassName: koord-batch}}`, "QoS=BE Priority=koord-batch Age",
		},
		"Device":                 {`{metadata: {annotations: {node.tenon.sh/device-mode: Own}}}`, "Mode=Own Age"},
		"ClusterNetworkTopology": {`{}`, ""},
		"Numatopology": {
			`{spec: {policies: {CPUManagerPolicy: static, TopologyManagerPolicy: restricted}}}`,
			"CPUs=static Alignment=restricted Age",
		},
		"NodeResourceTopology v1alpha1": {
			`{topologyPolicies: [SingleNUMANodePodLevel]}`, "Policy=SingleNUMANodePodLevel Age",
		},
		"NodeResourceTopology v1alpha2": {
			`{attributes: [{name: topologyManagerScope, value: pod},` +
				` {name: topologyManagerPolicy, value: restricted}]}`,
			"Policy=restricted Scope=pod Age",
		},
	}
	for _, doc := range deploy.CRDs() {
		var crd apiextensions.CustomResourceDefinition
		testkit.Check(t, yaml.UnmarshalStrict(doc, &crd))
		for _, v := range crd.Spec.Versions {
			kind := crd.Spec.Names.Kind
			if len(crd.Spec.Versions) > 1 {
				kind += " " + v.Name
			}
			o := &unstructured.Unstructured{}
			columns, err := tableconvertor.New(v.AdditionalPrinterColumns)
			if err = errors.Join(err, yaml.Unmarshal([]byte(kinds[kind].object), &o.Object)); err != nil {
				t.Fatal(err)
			}
			table, err := columns.ConvertToTable(t.Context(), o, nil)
			testkit.Check(t, err)
			var got []string
			for i, h := range table.ColumnDefinitions[1:] { // after the name
				text := h.Name
				if cell := table.Rows[0].Cells[i+1]; text != "Age" {
					text += fmt.Sprintf("=%v", cell)
				}
				got = append(got, text)
			}
			if got := strings.Join(got, " "); got != kinds[kind].want {
				t.Errorf("%s: %s, want %s", kind, got, kinds[kind].want)
			}
		}
	}
}

func TestNumatopologyHasVolcanosShape(t *testing.T) {
	t.Parallel()
	for _, doc := range deploy.CRDs() {
		var crd struct {
			Spec struct {
				Scope    string
				Names    struct{ ShortNames []string }
				Versions []struct {
					Schema struct{ OpenAPIV3Schema struct{ Required []string } }
				}
			}
		}
		testkit.Check(t, yaml.Unmarshal(doc, &crd))
		if len(crd.Spec.Names.ShortNames) != 1 || crd.Spec.Names.ShortNames[0] != "numatopo" {
			continue
		}
		if crd.Spec.Scope != "Cluster" || len(crd.Spec.Versions) != 1 ||
			len(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Required) > 0 {
			t.Errorf("%+v, want one version of cluster scope in which every field is optional", crd.Spec)
		}
		if bytes.Contains(doc, []byte("required:")) || bytes.Count(doc, []byte("minimum: 0")) != 4 {
			t.Errorf("want no required field and four numbers from 0 on:\n%s", doc)
		}
		return
	}
	t.Error("no CRD has the short name numatopo")
}

func TestPriorityClassesAreKoordinators(t *testing.T) {
	t.Parallel()
	want := map[string]int32{"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}
	docs := deploy.PriorityClasses()
	if len(docs) != len(want) {
		t.Errorf("%d classes, want %d", len(docs), len(want))
	}
	for _, doc := range docs {
		var c schedulingv1.PriorityClass
		testkit.Check(t, yaml.UnmarshalStrict(doc, &c))
		if c.Value != want[c.Name] || c.GlobalDefault {
			t.Errorf("%s = %d, global default %v; want %d, false", c.Name, c.Value, c.GlobalDefault, want[c.Name])
		}
	}
}

func TestEveryBindingNamesAServiceAccountThatExists(t *testing.T) {
	t.Parallel()
	accounts, bound := map[string]bool{}, map[string]bool{}
	for _, o := range parse(t, deploy.RBAC()) {
		if o.GetKind() == "ServiceAccount" {
			accounts[o.GetName()] = true
		}
		subjects, _, err := unstructured.NestedSlice(o.Object, "subjects")
		testkit.Check(t, err)
		for _, s := range subjects {
			s := s.(map[string]any)
			if s["namespace"] != "tenon-system" || !accounts[s["name"].(string)] {
				t.Errorf("%s binds %v, which is not defined before it", o.GetName(), s)
			}
			bound[s["name"].(string)] = true
		}
	}
	for name := range accounts {
		if !bound[name] {
			t.Errorf("service account %s has no rights", name)
		}
	}
}

func TestTheNamespaceComesFirst(t *testing.T) {
	t.Parallel()
	var first corev1.Namespace
	if err := yaml.UnmarshalStrict(deploy.RBAC()[0], &first); err != nil || first.Kind != "Namespace" ||
		first.Name != "tenon-system" {
		t.Errorf("first document: %+v, %v", first, err)
	}
}
