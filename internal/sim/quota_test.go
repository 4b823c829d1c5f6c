package sim

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
)

const gpu = "nvidia.com/gpu"

// elastic is an ElasticQuota of a group, with amounts as YAML in braces; labels begin with a comma.
func elastic(group, name, labels, floor, ceiling string) string {
	return fmt.Sprintf("\n{apiVersion: %s/v1alpha1, kind: ElasticQuota, metadata: {name: %s, labels: {a: b%s}}, "+
		"spec: {min: %s, max: %s}}\n---", group, name, labels, floor, ceiling)
}

const (
	koordinator = "scheduling.sigs.k8s.io"
	community   = "scheduling.x-k8s.io"
	below       = ", quota.scheduling.koordinator.sh/parent: "
	isParent    = `, quota.scheduling.koordinator.sh/is-parent: "true"`
)

// asking is a Deployment whose pods ask for so much of a resource from a quota.
func asking(quotaName, resource string, pods, each int) string {
	return fmt.Sprintf("\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s}, spec: {replicas: %[3]d, "+
		"selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: %[1]s, "+
		"quota.scheduling.koordinator.sh/name: %[1]s}}, spec: {containers: [{name: c, image: i, resources: "+
		"{requests: {%[2]s: %[4]d}, limits: {%[2]s: %[4]d}}}]}}}}\n---", quotaName, resource, pods, each)
}

// seedTree is the tree of seed 003: B, C and D ask for more than their min, and A lends.
func seedTree(resource string) string {
	amount := func(n int) string { return fmt.Sprintf("{%s: %d}", resource, n) }
	return elastic(koordinator, "d", "", amount(15), amount(80)) +
		elastic(koordinator, "a", "", amount(10), amount(40)) +
		elastic(community, "b", "", amount(15), amount(60)) + elastic(community, "c", "", amount(20), amount(50)) +
		asking("a", resource, 1, 5) + asking("b", resource, 2, 10) + asking("c", resource, 8, 5) +
		asking("d", resource, 14, 5)
}

func machineWith(resource string, n int) string {
	return fmt.Sprintf("\n{apiVersion: v1, kind: Node, metadata: {name: n0, labels: {kubernetes.io/hostname: n0}}, "+
		"status: {capacity: {cpu: 200, memory: 64Gi, pods: 200, %[1]s: %[2]d}, "+
		"allocatable: {cpu: 200, memory: 64Gi, pods: 200, %[1]s: %[2]d}}}\n---", resource, n)
}

func TestTheTreeOfTheSeedAsGolden(t *testing.T) {
	in := machineWith(gpu, 100) + seedTree(gpu)
	r, warn := simulate(t, in, "-")
	golden(t, "quota.json", printed(t, r, "json"))
	golden(t, "quota.txt", printed(t, r, "table"))
	if warn != "" {
		t.Errorf("warnings: %s", warn)
	}
	if again, _ := simulate(t, in, "-"); string(printed(t, again, "yaml")) != string(printed(t, r, "yaml")) {
		t.Error("the same input gives other bytes")
	}
	docs := strings.Split(in, "---")
	slices.Reverse(docs)
	turned, _ := simulate(t, strings.Join(docs, "\n---"), "-")
	if diff := cmp.Diff(r.Quotas, turned.Quotas); diff != "" {
		t.Errorf("the order of the input changes quotas (-want +got):\n%s", diff)
	}
}

func TestTheTreeOfTheSeedInCPUs(t *testing.T) {
	node := strings.ReplaceAll(machineWith("x.io/y", 0), "cpu: 200", "cpu: 100")
	r, _ := simulate(t, node+strings.NewReplacer("nvidia.com/gpu", "cpu").Replace(seedTree(gpu)), "-")
	want := map[string][2]string{"a": {"5", "5"}, "b": {"20", "20"}, "c": {"35385m", "35"}, "d": {"39615m", "35"}}
	got := map[string][2]string{}
	for _, q := range r.Quotas {
		got[q.Name] = [2]string{q.Runtime["cpu"], q.Used["cpu"]}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runtime and used (-want +got):\n%s", diff)
	}
}

func TestParentsOfQuotasAreShown(t *testing.T) {
	amount := func(n int) string { return fmt.Sprintf("{cpu: %d, memory: %dGi}", n, n) }
	r, _ := simulate(t, plain("n0", 10)+elastic(koordinator, "leaf", below+"mid", amount(1), amount(8))+
		elastic(koordinator, "mid", below+"top"+isParent, amount(2), amount(9))+
		elastic(koordinator, "top", isParent, amount(3), amount(6))+
		shared("in", "4", ", labels: {quota.scheduling.koordinator.sh/name: leaf}", ", priority: 1")+
		shared("out", "4", ", labels: {quota.scheduling.koordinator.sh/name: leaf}", ""), "-")
	if len(r.Quotas) != 3 {
		t.Fatalf("got %d quotas, want all three", len(r.Quotas))
	}
	for _, q := range r.Quotas {
		if q.Used["cpu"] != "4" || q.Used["memory"] != "1Gi" || q.Request["cpu"] != "8" && q.Name != "top" ||
			q.Min["memory"] == "" || q.Runtime["memory"] == "" {
			t.Errorf("%s: %+v", q.Name, q)
		}
	}
	out := stateOf(r, "out")
	if out.State != Unschedulable || len(out.Reasons) != 1 || out.Reasons[0].Code != why.QuotaExceeded ||
		!strings.Contains(out.Reasons[0].Message, "quotaName: leaf, runtime: cpu:6, used: cpu:4") {
		t.Errorf("got %+v, want the binding quota", out)
	}
}

func TestPodsPreemptInsideTheirQuota(t *testing.T) {
	amount := "{cpu: 4}"
	pod := func(name, quota, tail string) string {
		return shared(name, "4", ", labels: {quota.scheduling.koordinator.sh/name: "+quota+"}", tail)
	}
	r, _ := simulate(t, plain("n0", 16)+elastic(koordinator, "q", "", amount, amount)+
		elastic(koordinator, "other", "", amount, amount)+
		pod("low", "q", ", priority: 1, nodeName: n0")+pod("outsider", "other", ", priority: 1, nodeName: n0")+
		pod("high", "q", ", priority: 9"), "-")
	want := map[string]string{"low": "Preempted n0", "outsider": "Existing n0", "high": "Scheduled n0"}
	if diff := cmp.Diff(want, placements(r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAPodOfAParentQuotaIsRefused(t *testing.T) {
	amount := "{cpu: 4}"
	r, _ := simulate(t, plain("n0", 16)+elastic(koordinator, "top", isParent, amount, amount)+
		shared("a", "1", ", labels: {quota.scheduling.koordinator.sh/name: top}", ""), "-")
	a := stateOf(r, "a")
	if a.State != Refused || len(a.Reasons) != 1 || a.Reasons[0].Code != why.InvalidField ||
		!strings.Contains(a.Reasons[0].Message, "(V12)") ||
		!strings.Contains(a.Reasons[0].Message, "quota.scheduling.koordinator.sh/name") {
		t.Errorf("got %+v, want the rule and the label", a)
	}
}

func TestAQuotaThatTheWebhookRefusesIsBadInput(t *testing.T) {
	amount := func(n int) string { return fmt.Sprintf("{cpu: %d}", n) }
	for name, c := range map[string]struct{ in, want string }{
		"min above max": {
			elastic(koordinator, "q", "", amount(5), amount(4)),
			"standard input: document 2 (ElasticQuota q): spec.min[cpu]: ",
		},
		"no parent": {
			elastic(community, "q", below+"absent", amount(1), amount(4)),
			"standard input: document 2 (ElasticQuota q): metadata.labels[quota.scheduling.koordinator.sh/parent]: ",
		},
		"more min than the parent": {
			elastic(koordinator, "a", below+"top", amount(3), amount(4)) +
				elastic(koordinator, "b", below+"top", amount(3), amount(4)) +
				elastic(koordinator, "top", isParent, amount(4), amount(4)),
			"(V5)",
		},
		"a cycle": {
			elastic(koordinator, "a", below+"b"+isParent, amount(1), amount(4)) +
				elastic(koordinator, "b", below+"a"+isParent, amount(1), amount(4)),
			"(V3)",
		},
		"one name in both groups": {
			elastic(koordinator, "q", "", amount(1), amount(4)) + elastic(community, "q", "", amount(1), amount(4)),
			`document 3 (ElasticQuota q): metadata.name: Duplicate value "q"`,
		},
		"one name in two namespaces": {
			elastic(koordinator, "q", "", amount(1), amount(4)) +
				elastic(koordinator, "q, namespace: other", "", amount(1), amount(4)),
			"(V10)",
		},
		"a label that is not a boolean": {
			elastic(koordinator, "q", ", quota.scheduling.koordinator.sh/is-parent: maybe", amount(1), amount(4)),
			"(V1)",
		},
		"a reserved name": {elastic(koordinator, "koordinator-root-quota", "", amount(1), amount(4)), "(V17)"},
		"a quantity that is none": {
			elastic(koordinator, "q", "", amount(1), "{cpu: 4x}"),
			`spec.max[cpu]: Invalid value: "4x"`,
		},
		"a profile without a quota": {
			"\n{apiVersion: quota.koordinator.sh/v1alpha1, kind: ElasticQuotaProfile, metadata: {name: q}, " +
				"spec: {nodeSelector: {}}}",
			"ElasticQuotaProfile q): spec.quotaName: Required value",
		},
		"a profile with a ratio that is none": {
			profileOf("top", "1/0"), `resourceRatio "1/0": must be a decimal number, 0 or more`,
		},
		"a profile of a quota that is there": {
			elastic(koordinator, "top", "", amount(1), amount(4)) + profileOf("top", "1"),
			`spec.quotaName: Invalid value: "top": an ElasticQuota of this name is in the input`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Run(
				t.Context(),
				Input{Paths: []string{"-"}, Stdin: strings.NewReader(plain("n0", 16) + c.in), Warn: &strings.Builder{}},
			)
			var bad *InputError
			if !errors.As(err, &bad) {
				t.Fatalf("got %v, want an InputError", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %s\nwant %s", err, c.want)
			}
		})
	}
}

// profileOf keeps a quota at the top of a tree of the nodes n0 and n1.
func profileOf(quota, ratio string) string {
	return fmt.Sprintf("\n{apiVersion: quota.koordinator.sh/v1alpha1, kind: ElasticQuotaProfile, metadata: "+
		"{name: pool, labels: {quota.scheduling.koordinator.sh/tree-id: pool}}, spec: {quotaName: %s, "+
		"resourceRatio: %q, nodeSelector: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, "+
		"values: [n0, n1]}]}}}\n---", quota, ratio)
}

// TestProfilesAreFollowed: the top of a profile's tree has what the manager would give it, whether or not the input has
// the quota that the manager keeps, and its children are held to it.
func TestProfilesAreFollowed(t *testing.T) {
	t.Parallel()
	const kept = `, quota.scheduling.koordinator.sh/profile: pool, quota.scheduling.koordinator.sh/tree-id: pool, ` +
		`quota.scheduling.koordinator.sh/is-root: "true"` + isParent
	for name, there := range map[string]string{
		"the quota is made":     "",
		"the quota was smaller": elastic(koordinator, "top", kept, "{cpu: 1}", "{cpu: 1, memory: 1Gi}"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := plain("n0", 16) + plain("n1", 16) + plain("n2", 16) + there + profileOf("top", "0.5") +
				elastic(koordinator, "team", below+"top, quota.scheduling.koordinator.sh/tree-id: pool",
					"{cpu: 0}", "{cpu: 100, memory: 1Ti}") + asking("team", "cpu", 9, 2)
			r, _ := simulate(t, in, "-")
			placed := 0
			for _, p := range r.Pods {
				if p.Node != "" {
					placed++
				}
			}
			if placed != 8 {
				t.Errorf("%d pods of 2 CPUs are placed in half of 32 CPUs, want 8: %+v", placed, r.Quotas)
			}
		})
	}
}

func TestTheDefaultQuotaCanBeLimited(t *testing.T) {
	r, _ := simulate(t, plain("n0", 16)+elastic(koordinator, "koordinator-default-quota", "", "{}", "{cpu: 3}")+
		shared("a", "2", "", ", priority: 1")+shared("b", "2", "", ""), "-")
	if diff := cmp.Diff(map[string]string{"a": "Scheduled n0", "b": "Unschedulable"}, placements(r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(r.Quotas) != 1 || r.Quotas[0].Used["cpu"] != "2" {
		t.Errorf("got %+v", r.Quotas)
	}
}

func TestAListOfQuotasNeedNotNameTheirKind(t *testing.T) {
	docs, err := readDocuments([]string{"-"}, strings.NewReader(plain("n0", 16)+
		"\n{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: ElasticQuotaList, metadata: {}, "+
		"items: [{metadata: {name: q}, spec: {max: {cpu: 1}}}]}"), io.Discard)
	testkit.Check(t, err)
	w, err := Input{Warn: io.Discard}.readWorld(docs)
	testkit.Check(t, err)
	if len(w.quotas) != 1 || w.quotas[0].Name != "q" || w.quotas[0].GroupVersionKind().Group != community {
		t.Errorf("got %+v", w.quotas)
	}
}

func TestAQuotaGetsTheTreeOfItsParent(t *testing.T) {
	amount := "{cpu: 4}"
	r, _ := simulate(t, plain("n0", 16)+elastic(koordinator, "child", below+"top", amount, amount)+
		elastic(koordinator, "top", isParent+", quota.scheduling.koordinator.sh/tree-id: t, "+
			`quota.scheduling.koordinator.sh/is-root: "true"`, amount, amount), "-")
	if len(r.Quotas) != 2 || r.Quotas[0].Tree != "t" || strings.Join(r.Quotas[0].Path, "/") != "top/child" {
		t.Errorf("got %+v", r.Quotas)
	}
}

func TestQuotasOfAClusterAreNotAskedAbout(t *testing.T) {
	wrong := []byte(`{"apiVersion":"scheduling.sigs.k8s.io/v1alpha1","kind":"ElasticQuota","metadata":{"name":"old"},` +
		`"spec":{"min":{"cpu":"5"},"max":{"cpu":"4"}}}`)
	there := document{origin{file: clusterName, document: 1}, wrong}
	r, err := Run(
		t.Context(),
		Input{
			Paths: []string{"-"},
			Stdin: strings.NewReader(plain("n0", 16)),
			Warn:  io.Discard,
			docs:  []document{there},
		},
	)
	if err != nil || len(r.Quotas) != 1 || r.Quotas[0].Min["cpu"] != "4" || len(r.Quotas[0].Problems) != 1 {
		t.Errorf("got %+v, %v; want the quota as the scheduler counts it, with what is wrong", r.Quotas, err)
	}
}

// TestAPodWaitsForPodsOutsideAllQuotasThatUseThePool: of 200 CPUs they use 160, so that a quota of 60 may use 40.
func TestAPodWaitsForPodsOutsideAllQuotasThatUseThePool(t *testing.T) {
	in := machineWith("example.com/x", 1) + elastic(koordinator, "a", "", "{cpu: 60}", "{cpu: 60}") +
		cpuPod("out", 160, ", namespace: other", ", nodeName: n0") +
		cpuPod("waits", 41, ", labels: {quota.scheduling.koordinator.sh/name: a}", "")
	r, _ := simulate(t, in, "-")
	p := stateOf(r, "waits")
	if len(p.Reasons) == 0 || p.Reasons[0].Code != why.QuotaPoolUsed ||
		!strings.Contains(p.Reasons[0].Message, "used outside: koordinator-default-quota cpu:160") {
		t.Errorf("reasons %+v, want QuotaPoolUsed first, which names the default quota and its use", p.Reasons)
	}
}
