package cli

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		testkit.Check(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	testkit.Check(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// shape describes a machine whose CPU c and c+cores are threads of one core.
type shape struct{ sockets, numa, cores, threads int }

func topology(t *testing.T, name string, s shape, annotations map[string]string) v1alpha2.NodeResourceTopology {
	t.Helper()
	m := grid.Machine{
		Arch: "amd64", Sockets: s.sockets, Nodes: s.numa, Cores: s.cores, Threads: s.threads, CoresL3: 4,
	}.Build(t)
	out := *object.Topology(name, m, annotations)
	out.TypeMeta = metav1.TypeMeta{APIVersion: "topology.node.k8s.io/v1alpha2", Kind: "NodeResourceTopology"}
	out.Labels, out.Zones = nil, v1alpha2.ZoneList{}
	for n := range s.sockets * s.numa {
		memory := resource.MustParse("64Gi")
		out.Zones = append(out.Zones, v1alpha2.Zone{
			Name: fmt.Sprintf("node-%d", n), Type: "Node",
			Resources: v1alpha2.ResourceInfoList{
				{Name: "memory", Capacity: memory, Allocatable: memory, Available: memory},
			},
		})
	}
	return out
}

func node(name, cpus string, labels map[string]string) corev1.Node {
	return *object.Node(name, labels, "cpu", cpus, "memory", "256Gi", "pods", "110")
}

// born is when every pod of the tests was created.
var born = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func pod(name, class, cpus, on, status string) corev1.Pod {
	p := *object.Pod(name, object.UID("uid-"+name), object.Created(born), object.Scheduler("tenon-scheduler"),
		object.On(on), object.Class(class), object.Annotation(annotation.ResourceStatusKey, status),
		object.Container("app", "app:1"))
	if cpus != "" {
		object.Both("cpu", cpus, "memory", "1Gi")(&p)
	}
	if on != "" {
		p.Status.Phase = corev1.PodRunning
	}
	return p
}

// example is a cluster with a pod of each class, a fault, a node whose kubelet pins CPUs, and one without topology.
func example(t *testing.T) ([]corev1.Node, []corev1.Pod, []v1alpha2.NodeResourceTopology) {
	t.Helper()
	nodes := []corev1.Node{
		node("epyc", "64", map[string]string{annotation.NodeNUMATopologyPolicy: "Restricted"}),
		node("static", "16", map[string]string{annotation.NodeCPUBindPolicy: "FullPCPUsOnly"}),
		node("bare", "8", nil),
	}
	topologies := []v1alpha2.NodeResourceTopology{
		topology(t, "epyc", shape{2, 2, 8, 2}, nil),
		topology(t, "static", shape{1, 1, 8, 2}, map[string]string{
			annotation.KubeletCPUManagerPolicy: `{"policy":"static","options":{"full-pcpus-only":"true"},` +
				`"reservedCPUs":"0,8"}`,
			annotation.PodCPUAllocsKey: `[{"namespace":"default","name":"pinned","uid":"uid-pinned",` +
				`"cpuset":"1,9","managedByKubelet":true}]`,
		}),
	}
	pods := []corev1.Pod{
		pod("lse", "LSE", "4", "epyc", `{"cpuset":"0-1,32-33"}`),
		pod("lsr", "LSR", "2", "epyc", `{"cpuset":"8-9"}`),
		pod("twin", "LSR", "1", "epyc", `{"cpuset":"9"}`),
		pod("burst", "LS", "1500m", "epyc",
			`{"cpuSharedPools":[{"socket":1,"node":2}],"numaNodeResources":[{"node":2,"resources":{"cpu":"1500m"}}]}`),
		pod("web", "LS", "500m", "epyc", ""),
		pod("batch", "BE", "", "epyc", ""),
		pod("pinned", "", "2", "static", ""),
		pod("plain", "", "", "bare", ""),
	}
	return nodes, pods, topologies
}

// pictures draws every machine.
func pictures(a *account, p paint) string {
	var drawn []string
	for _, n := range a.nodes {
		drawn = append(drawn, drawMachine(a.node(n.Name), p, 0))
	}
	return strings.Join(drawn, "\n")
}

func TestTopologyAsGolden(t *testing.T) {
	a := newAccount(example(t))
	for name, p := range map[string]paint{
		"topology.txt": {}, "topology-colour.txt": {on: true}, "topology-ascii.txt": {ascii: true},
	} {
		golden(t, name, pictures(a, p))
	}
	for name, format := range map[string]string{
		"topology-nodes.txt": "table", "topology-wide.txt": wide, "topology-list.json": "json", "topology.yaml": "yaml",
	} {
		var out strings.Builder
		testkit.Check(t, printTopology(&out, a, "", format, paint{}, 0))
		golden(t, name, out.String())
	}
	nodes, pods, topologies := example(t)
	var out strings.Builder
	testkit.Check(t, printTopology(&out, newAccount(nodes[1:2], pods, topologies), "static", "json", paint{}, 0))
	golden(t, "topology.json", out.String())
}

func TestNoPictureIsWiderThanTheTerminal(t *testing.T) {
	machines := map[string]shape{
		"epyc-256": {2, 4, 16, 2}, "arm64": {1, 1, 64, 1}, "many NUMA nodes": {2, 16, 2, 2},
		"four threads": {1, 2, 24, 4},
	}
	for name, s := range machines {
		cpus := s.sockets * s.numa * s.cores * s.threads
		var pods []corev1.Pod
		for i := range min(60, cpus/4) { // scattered: long lists of pools
			pods = append(pods, pod(fmt.Sprintf("p%02d", i), "LSR", "1", "a-node-with-a-long-name.example.com",
				fmt.Sprintf(`{"cpuset":"%d"}`, 4*i)))
		}
		a := newAccount([]corev1.Node{node("a-node-with-a-long-name.example.com", fmt.Sprint(cpus),
			map[string]string{annotation.NodeCPUBindPolicy: "Nonsense"})},
			pods, []v1alpha2.NodeResourceTopology{topology(t, "a-node-with-a-long-name.example.com", s, nil)})
		for _, width := range []int{60, 80, 100, 200} {
			for _, ascii := range []bool{false, true} {
				picture := drawMachine(a.node("a-node-with-a-long-name.example.com"), paint{ascii: ascii},
					width)
				for _, line := range strings.Split(picture, "\n") {
					if n := utf8.RuneCountInString(line); n > width {
						t.Errorf("%s at %d columns: a line has %d: %s", name, width, n, line)
					}
				}
			}
		}
	}
}

func TestTheMapMarksIsolatedCPUs(t *testing.T) {
	t.Parallel()
	a := newAccount([]corev1.Node{node("n", "8", nil)}, []corev1.Pod{pod("p", "LSE", "1", "n", `{"cpuset":"4"}`)},
		[]v1alpha2.NodeResourceTopology{topology(t, "n", shape{1, 1, 8, 1}, map[string]string{
			annotation.IsolatedCPUsKey: `{"isolated":"4-6"}`,
		})})
	for _, width := range []int{0, 60} {
		picture := drawMachine(a.node("n"), paint{}, width)
		for _, want := range []string{
			"· · · · │ A x x ·", "LS pool 0-3,7", "\n    isolated 4-6\n",
			"x  isolated by the boot, for pods that ask for it",
		} {
			if !strings.Contains(picture, want) {
				t.Errorf("the map of %d columns has no %q:\n%s", width, want, picture)
			}
		}
	}
}

func TestMoreThan26PodsGetTwoColumns(t *testing.T) {
	var pods []corev1.Pod
	for i := range 60 {
		pods = append(pods, pod(fmt.Sprintf("p%02d", i), []string{"LSE", "LSR"}[i%2], "4", "big",
			fmt.Sprintf(`{"cpuset":"%d-%d,%d-%d"}`, 2*i, 2*i+1, 128+2*i, 128+2*i+1)))
	}
	a := newAccount([]corev1.Node{node("big", "256", nil)}, pods,
		[]v1alpha2.NodeResourceTopology{topology(t, "big", shape{2, 4, 16, 2}, nil)})
	var out strings.Builder
	testkit.Check(t, printTopology(&out, a, "big", "table", paint{}, 0))
	golden(t, "topology-256.txt", out.String())
}

func TestTopAsGolden(t *testing.T) {
	a := newAccount(example(t))
	for name, c := range map[string]struct{ what, format string }{
		"top.txt": {"cpu", "table"}, "top.json": {"cpu", "json"}, "top-numa.txt": {"numa", "table"},
		"top-numa.json": {"numa", "json"},
	} {
		var out strings.Builder
		testkit.Check(t, printTop(&out, a, c.what, c.format, 0))
		golden(t, name, out.String())
	}
}

// -o wide says which quotas and gangs have a node, and how far its free CPUs are scattered.
func TestTopSaysWhoHasANode(t *testing.T) {
	nodes, pods, topologies := example(t)
	for i, p := range []struct{ quota, gang string }{{"team", "g"}, {"team", "g"}, {"other", ""}, {"", "h"}} {
		pods[i].Labels = map[string]string{annotation.QuotaName: p.quota, annotation.PodGroup: p.gang}
	}
	for i, c := range [][2]string{{"lse", "Succeeded"}, {"web", ""}} {
		ended := pod(c[0]+"-ended", "LS", "1", []string{"epyc", ""}[i], "")
		ended.Status.Phase, ended.Labels = corev1.PodPhase(c[1]), pods[0].Labels
		pods = append(pods, ended)
	}
	nodes = append(nodes, node("scattered", "64", nil)) // half of each of its NUMA nodes is free
	topologies = append(topologies, topology(t, "scattered", shape{2, 2, 8, 2}, nil))
	pods = append(pods, pod("holes", "LSR", "32", "scattered",
		`{"cpuset":"0-3,8-11,16-19,24-27,32-35,40-43,48-51,56-59"}`))
	a := newAccount(nodes, pods, topologies)
	var without, out strings.Builder
	testkit.Check(t, printTop(&without, a, "cpu", wide, 0))
	a.quotas = kube.NewQuotas(time.Now)
	for _, name := range []string{"team", "other"} {
		a.quotas.PutQuota(elastic(name, "", "cpu=8", "cpu=16"))
	}
	testkit.Check(t, printTop(&out, a, "cpu", wide, 0))
	golden(t, "top-wide.txt", out.String())
	if text := without.String(); strings.Contains(text, "team") || !strings.Contains(text, "default/g 2, default/h 1") {
		t.Errorf("without ElasticQuotas:\n%s", text)
	}
}

func waiting(t *testing.T) (corev1.Pod, view.Pod) {
	t.Helper()
	p := pod("train", "LSR", "8", "", "")
	exclusive := func(node string, free int64, numa int32) why.Finding {
		return why.Finding{
			Reason: why.Reason{
				Code: why.InsufficientExclusiveCPU, Resource: why.CPU, Unit: why.CPUs, Asked: 8, Free: free,
				Where: why.Where{Scope: why.NUMA, Index: numa},
			},
			Plugin: "NodeNUMAResource", Phase: why.Filter, Object: node,
		}
	}
	findings := []why.Finding{exclusive("gpu-01", 7, 1), exclusive("gpu-02", 3, 0)}
	for i := range 14 {
		findings = append(findings, exclusive(fmt.Sprintf("small-%02d", i), 0, 0), why.Finding{
			Reason: why.Reason{
				Code: why.InsufficientCPU, Resource: why.CPU, Unit: why.MilliCPU, Asked: 8000,
				Free: int64(100 * i),
			},
			Plugin: "NodeResourcesFit", Phase: why.Filter, Object: fmt.Sprintf("small-%02d", i),
		})
	}
	for i := range 96 {
		findings = append(findings, why.Finding{
			Reason: why.Reason{Code: why.NodeAffinity}, Plugin: "NodeAffinity", Phase: why.Filter,
			Object: fmt.Sprintf("cpu-%02d", i),
			Detail: "node(s) didn't match Pod's node affinity/selector",
		})
	}
	last := born.Add(4 * time.Minute)
	verdict := view.Verdict{Served: true, Findings: findings, Nodes: 112, Generation: 4211}
	answer := view.Explain(describe.Pod(&p), verdict,
		&view.Queue{Place: "unschedulable", Attempts: 6, LastAttempt: &last})
	answer.Data.Ages = map[string]float64{"topology": 3}
	return p, answer
}

func placed() view.Pod {
	return view.Pod{
		Pod: "default/lse", UID: "uid-lse", State: view.Bound, Since: &born, Scheduler: "tenon-scheduler",
		QoS: "LSE", Nodes: 14,
		Placement: &view.Placement{Node: "epyc", CPUSet: "0-2,32-33", NUMA: []view.Part{{
			Node: 0, CPUSet: "0-2,32-33", Cores: []view.CorePart{
				{Core: 0, CPUSet: "0,32", Whole: true}, {Core: 1, CPUSet: "1,33", Whole: true}, {Core: 2, CPUSet: "2"},
			},
		}}},
		Decision: &view.Decision{
			Pod: "default/lse", Node: "epyc", Feasible: 12, Of: 14,
			Scores: []view.Score{
				{Node: "epyc", Total: 385, Plugins: []view.PluginScore{
					{Name: "NodeNUMAResource", Score: 90, Normalized: 90, Weight: 1, Raw: ptr.To[int64](18)},
					{Name: "NodeResourcesFit", Score: 295, Normalized: 59, Weight: 5, Raw: ptr.To[int64](59)},
					{Name: "Reservation", Weight: 5000},
				}},
				{Node: "xeon", Total: 370, Plugins: []view.PluginScore{
					{Name: "NodeNUMAResource", Score: 80, Normalized: 80, Weight: 1, Raw: ptr.To[int64](16)},
					{Name: "NodeResourcesFit", Score: 290, Normalized: 58, Weight: 5, Raw: ptr.To[int64](58)},
					{Name: "Reservation", Weight: 5000},
				}},
			},
		},
		Data: view.Data{Source: "scheduler", Ages: map[string]float64{"topology": 75}},
	}
}

// followed is a pod on a node whose kubelet chooses its CPUs; differs are the ways in which its choice differs
// from the prediction.
func followed(differs ...string) view.Pod {
	gave := func(cpus string, numa int, preferred bool) view.Containers {
		at := strconv.Itoa(numa)
		return view.Containers{
			"main": {
				Mask: []int{numa}, Preferred: preferred, CPUs: cpus,
				Memory:    map[string]string{at: "4Gi"},
				Hugepages: map[string]map[string]string{"hugepages-2Mi": {"0-1": "1Gi"}},
				Devices: map[string]view.Devices{
					"nvidia.com/gpu": {Mask: []int{numa}, Count: 2}, "x.io/any": {Mask: []int{}, Count: 1},
				},
			},
			"proxy": {}, "side": {CPUs: "14"},
		}
	}
	p := view.Pod{
		Pod: "default/follow", UID: "uid-follow", State: view.Bound, Since: &born, Scheduler: "tenon-scheduler",
		QoS: "LSR", Nodes: 14,
		Placement: &view.Placement{
			Node: "epyc", Pool: view.PoolKubelet, PoolCPUs: "2-5",
			NUMA: []view.Part{{CPUSet: "2-5"}}, Predicted: gave("2-5", 0, true),
		},
		Data: view.Data{Source: "scheduler"},
	}
	p.Placement.Actual = p.Placement.Predicted
	if len(differs) > 0 {
		p.Placement.Predicted = gave("2-5", 0, true)
		p.Placement.Predicted["side"] = view.Container{
			CPUs: "14", Uncertain: true, Devices: map[string]view.Devices{"x.io/any": {Count: 1, Open: true}},
		}
		p.Placement.Actual, p.Placement.Differs = gave("8-11", 1, false), differs
		p.Placement.Assumed = []string{"kubelet 1.38 is newer than the newest model, 1.37"}
	}
	return p
}

// turnedDown is a pod that its kubelet rejected.
func turnedDown() view.Pod {
	p := followed()
	p.State, p.Placement.Actual, p.Placement.Pool, p.Placement.PoolCPUs, p.Placement.NUMA = view.Finished, nil, "",
		"", nil
	p.Rejection = &view.Rejection{
		Node: "epyc", Reason: "TopologyAffinityError", Message: "Resources cannot be allocated with Topology locality",
		BackoffSeconds: 25,
	}
	return p
}

// TestScoresFitATerminal: numbers are whole at 80 columns, and plugins with equal scores for all nodes have no column.
func TestScoresFitATerminal(t *testing.T) {
	t.Parallel()
	scores := func(node string, total, a, b, c int64) view.Score {
		return view.Score{Node: node, Total: total, Plugins: []view.PluginScore{
			{Name: "NodeResourcesBalancedAllocation", Score: a},
			{Name: "InterPodAffinityOfPodsOfTheService", Score: b},
			{Name: "ImageLocality", Score: 0},
			{Name: "NodeResourcesFitOfAllTheResources", Score: c},
		}}
	}
	answer := scored{Decision: view.Decision{Pod: "default/p", Scores: []view.Score{
		scores("n0", 123456, 1, 200, 3), scores("n1", 99, 4, 5, 6),
	}}}
	e := explanation{explainOptions: &explainOptions{}, render: renderer{width: 80}}
	want := `NODE   SCORE  NodeResourcesBalancedAllocation
n0    123456                                1
n1        99                                4

NODE  InterPodAffinityOfPodsOfTheService  NodeResourcesFitOfAllTheResources
n0                                   200                                  3
n1                                     5                                  6
equal for these nodes: ImageLocality 0
`
	if d := cmp.Diff(want, e.scoreTable(answer)); d != "" {
		t.Errorf("at 80 columns (-want +got):\n%s", d)
	}
	e.render.width = 0
	if got := e.scoreTable(answer); !strings.HasPrefix(got, "| # | Pod | Node |") {
		t.Errorf("without a terminal: %s", got)
	}
}

func TestADecisionWithoutScoresNamesItsCause(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]view.Decision{
		"only n of 7 nodes fits the pod": {Node: "n", Of: 7},
		"n was the only node considered": {Node: "n", Of: 1},
		"n was the only node considered: the cluster has no other": {
			Node: "n", Of: 1, Only: "the cluster has no other",
		},
	} {
		if got := whyUnscored(d); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestExplanationsAsGolden(t *testing.T) {
	_, pending := waiting(t)
	bound := placed()
	r := renderer{now: born.Add(4*time.Minute + 12*time.Second)}
	golden(t, "explain-pending.txt", r.pod(explained{Pod: pending}, corev1.PodPending))
	golden(t, "explain-bound.txt", r.pod(explained{Pod: bound, Actual: kept()}, corev1.PodRunning))
	resized := placed()
	resized.Placement.Overcommitted = []string{"NUMA node 0: pods hold 140Gi of memory, it has 128Gi"}
	var planned renderer
	planned.decision(view.Decision{Node: "epyc", Feasible: 1, Of: 1})
	if text := planned.out.String(); !strings.Contains(text, "considered no other node") {
		t.Errorf("a decision about one node: %q", text)
	}
	golden(t, "explain-overcommitted.txt", r.pod(explained{Pod: resized}, corev1.PodRunning))
	claiming := placed()
	claiming.Placement.Claims = []view.HeldClaim{
		{Name: "cards", Devices: []view.ClaimedDevice{
			{Name: "gpu.example.com/epyc/gpu-0", NUMANodes: []int{0}}, {Name: "gpu.example.com/epyc/gpu-1"},
		}},
		{Name: "nic", Devices: []view.ClaimedDevice{{Name: "nic.example.com/epyc/eth0", NUMANodes: []int{0, 1}}}},
	}
	golden(t, "explain-claims.txt", r.pod(explained{Pod: claiming}, corev1.PodRunning))
	golden(t, "explain-drifted.txt", r.pod(explained{Pod: bound, Actual: drifted()}, corev1.PodRunning))
	golden(t, "explain-followed.txt", r.pod(explained{Pod: followed()}, corev1.PodRunning))
	golden(t, "explain-mispredicted.txt", r.pod(explained{Pod: followed("mask", "device")}, corev1.PodRunning))
	golden(t, "explain-rejected.txt", r.pod(explained{Pod: turnedDown()}, corev1.PodFailed))
	r.width, r.ascii = 60, true
	golden(t, "explain-narrow.txt", r.pod(explained{Pod: pending}, corev1.PodPending))
	for _, line := range strings.Split(r.pod(explained{Pod: pending}, corev1.PodPending), "\n") {
		if len([]rune(line)) > 60 {
			t.Errorf("wider than the terminal: %s", line)
		}
	}
	for name, answer := range map[string]explained{
		"explain-pending.json": {Pod: pending}, "explain-bound.json": {Pod: bound, Actual: kept()},
		"explain-rejected.json": {Pod: turnedDown()},
	} {
		var out strings.Builder
		testkit.Check(t, printAnswer(&out, "json", answer, nil))
		golden(t, name, out.String())
	}
}

// apiServer answers lists and gets of a few kinds, with field selectors.
func apiServer(t *testing.T, nodes []corev1.Node, pods []corev1.Pod,
	topologies []v1alpha2.NodeResourceTopology,
) *httptest.Server {
	t.Helper()
	answer := func(w http.ResponseWriter, status int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(body); err != nil {
			t.Error(err)
		}
	}
	matching := func(r *http.Request, namespace string) []corev1.Pod {
		selector, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
		if err != nil {
			t.Error(err)
		}
		return slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool {
			return namespace != "" && p.Namespace != namespace ||
				!selector.Matches(fields.Set{"metadata.name": p.Name, "spec.nodeName": p.Spec.NodeName})
		})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/nodes", func(w http.ResponseWriter,
		_ *http.Request,
	) {
		answer(w, 200, corev1.NodeList{Items: nodes})
	})
	mux.HandleFunc("GET /api/v1/pods", func(w http.ResponseWriter,
		r *http.Request,
	) {
		answer(w, 200, corev1.PodList{Items: matching(r, "")})
	})
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("namespace")
		if len(matching(r, name)) > 0 || name == "default" || name == "locked" {
			answer(w, 200, corev1.Namespace{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
				ObjectMeta: metav1.ObjectMeta{Name: name},
			})
			return
		}
		answer(w, 404, metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure",
			Reason: metav1.StatusReasonNotFound, Code: 404,
		})
	})
	mux.HandleFunc("GET /api/v1/namespaces", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, corev1.NamespaceList{Items: []corev1.Namespace{
			{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, {ObjectMeta: metav1.ObjectMeta{Name: "ml"}},
		}})
	})
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/pods", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("namespace") == "locked" {
			answer(w, 403, metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure",
				Reason: metav1.StatusReasonForbidden, Code: 403, Message: "pods is forbidden: cannot list pods",
			})
			return
		}
		answer(w, 200, corev1.PodList{Items: matching(r, r.PathValue("namespace"))})
	})
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/pods/{name}", func(w http.ResponseWriter, r *http.Request) {
		for _, p := range pods {
			if p.Namespace == r.PathValue("namespace") && p.Name == r.PathValue("name") {
				p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
				answer(w, 200, p)
				return
			}
		}
		answer(w, 404, metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure",
			Reason: metav1.StatusReasonNotFound, Code: 404,
		})
	})
	kubelet := simulatedKubelet(t)
	mux.HandleFunc("GET /api/v1/nodes/{name}", func(w http.ResponseWriter, r *http.Request) {
		n := node(r.PathValue("name"), "64", nil)
		n.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
		if n.Name == "epyc" {
			n.Status.Addresses = []corev1.NodeAddress{
				{Type: corev1.NodeHostName, Address: "epyc"},
				{Type: corev1.NodeInternalIP, Address: kubelet.IP.String()},
			}
			n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(kubelet.Port)
		}
		answer(w, 200, n)
	})
	mux.HandleFunc("GET /apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies",
		func(w http.ResponseWriter, _ *http.Request) {
			answer(w, 200, v1alpha2.NodeResourceTopologyList{
				TypeMeta: metav1.TypeMeta{
					APIVersion: "topology.node.k8s.io/v1alpha2",
					Kind:       "NodeResourceTopologyList",
				},
				Items: topologies,
			})
		})
	s := httptest.NewTLSServer(mux)
	t.Cleanup(s.Close)
	return s
}

// kubeconfig writes one for a server; without replicas of the scheduler it leaves the extension out.
func kubeconfig(t *testing.T, server string, replicas ...string) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["here"] = &clientcmdapi.Cluster{Server: server, InsecureSkipTLSVerify: true}
	if len(replicas) > 0 {
		extension, err := json.Marshal(map[string]any{
			"diagnostics": replicas[0], "standby": replicas[1:], "descheduler": replicas[0],
		})
		testkit.Check(t, err)
		c.Clusters["here"].Extensions = map[string]runtime.Object{extensionName: &runtime.Unknown{
			Raw: extension, ContentType: runtime.ContentTypeJSON,
		}}
	}
	c.AuthInfos["me"] = &clientcmdapi.AuthInfo{}
	c.Contexts["tenon"] = &clientcmdapi.Context{Cluster: "here", AuthInfo: "me"}
	c.CurrentContext = "tenon"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	testkit.Check(t, clientcmd.WriteToFile(*c, path))
	return path
}

func run(t *testing.T, name string, args ...string) (code int, out, errOut string) {
	t.Helper()
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	code = Run(t.Context(), NewRoot(name, streams, doctors), args, stderr)
	return code, stdout.String(), stderr.String()
}

func TestVerbsAgainstAServer(t *testing.T) {
	nodes, pods, topologies := example(t)
	blocked, pending := waiting(t)
	blocked.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable",
		Message: `InsufficientExclusiveCPU: 0/112 nodes are available: 2 not enough cpus available to satisfy ` +
			`request. {"code":"InsufficientExclusiveCPU","nodes":2,"asked":8,"free":7}`,
	}}
	other := pod("elsewhere", "", "", "epyc", "")
	other.Namespace = "ml"
	member := pod("member", "LS", "1", "epyc", "")
	member.Annotations["scheduling.k8s.io/group-name"] = "g"
	member.Annotations[annotation.ResourceSpecKey] = `{"preferredCPUBindPolicy":"FullPCPUs"}`
	member.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerError", Message: "no daemon of MPS runs"},
	}}}
	pods = append(pods, blocked, other, member, pod("lost", "LSR", "2", "gone", ""))
	api := apiServer(t, nodes, pods, topologies)
	diagnostics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers := map[string]view.Pod{
			"/apis/v1/explain/pods/default/train": pending,
			"/apis/v1/explain/pods/default/lse":   placed(),
		}
		answer, ok := answers[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"message": "the instance is not leader"}`))
			return
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(diagnostics.Close)
	waits := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"message": "the instance is not leader"}`))
	}))
	t.Cleanup(waits.Close)
	replicas := kubeconfig(t, api.URL, waits.URL, "http://127.0.0.1:1", diagnostics.URL)
	with, without := kubeconfig(t, api.URL, diagnostics.URL), kubeconfig(t, api.URL)
	down := kubeconfig(t, "http://127.0.0.1:1")

	for name, c := range map[string]struct {
		args     []string
		code     int
		out, err []string
	}{
		"a pod that waits": {
			[]string{"explain", "train", "--kubeconfig", with},
			ExitOK,
			[]string{
				"pod default/train   Pending", "InsufficientExclusiveCPU   (NodeNUMAResource, Filter, 16 nodes)",
				"gpu-01", "7/8 CPUs on numa 1", "and 102 more nodes (--all shows them)",
			},
			nil,
		},
		"its alias, and the gate for pipelines": {
			[]string{"why", "pod/train", "--kubeconfig", with, "--exit-code"},
			ExitNegative,
			[]string{"root cause"},
			nil,
		},
		"all the nodes that refuse it": {
			[]string{"explain", "train", "--kubeconfig", with, "--all"},
			ExitOK,
			[]string{"96 nodes like cpu-00"},
			nil,
		},
		"a pod that runs": {
			[]string{"explain", "pods", "lse", "--kubeconfig", with},
			ExitOK,
			[]string{
				"Running", "exclusive CPUs 0-2,32-33", "cpuset.cpus 0-2,32-33, as wanted", "why here",
				"score 385 against 370 of xeon",
			},
			nil,
		},
		"the scores of a pod that runs": {
			[]string{"explain", "lse", "--kubeconfig", with, "--scores"},
			ExitOK,
			[]string{
				"| # | Pod | Node | Score | NodeNUMAResource | NodeResourcesFit | Reservation |\n" +
					"| --- | --- | --- | ---:| ---:| ---:| ---:|\n" +
					"| 0 | default/lse | epyc | 385 | 90 | 295 | 0 |\n" +
					"| 1 | default/lse | xeon | 370 | 80 | 290 | 0 |\n",
			},
			[]string{"scores of the best 2 of 12 feasible nodes; PUT /debug/flags/s keeps more"},
		},
		"the best score, and how it came about": {
			[]string{"explain", "lse", "--kubeconfig", with, "--scores=2", "-o", "wide"},
			ExitOK,
			[]string{
				"NODE  PLUGIN            RAW  NORMALIZED  WEIGHT  SCORE",
				"epyc  NodeNUMAResource  18   90          1       90\n",
				"      NodeResourcesFit  59   59          5       295",
				"      Reservation       -    0           5000    0      no effect among these nodes",
			},
			nil,
		},
		"scores as JSON": {
			[]string{"explain", "lse", "--kubeconfig", with, "--scores=1", "-o", "json"},
			ExitOK,
			[]string{`"raw": 18`, `"normalized": 59`, `"weight": 5000`},
			nil,
		},
		"scores of a pod without a node": {
			[]string{"explain", "train", "--kubeconfig", with, "--scores"},
			ExitUsage, nil,
			[]string{"pod default/train has no node, so none was scored"},
		},
		"scores of a decision that is not known": {
			[]string{"explain", "lse", "--kubeconfig", without, "--scores"},
			ExitOK, nil,
			[]string{"the leading scheduler does not remember its decision: it keeps the last 256"},
		},
		"scores of no pod": {
			[]string{"explain", "--kubeconfig", with, "--scores"},
			ExitUsage, nil,
			[]string{"--scores needs a pod and excludes --hints"},
		},
		"no scores": {
			[]string{"explain", "lse", "--kubeconfig", with, "--scores=0"},
			ExitUsage, nil,
			[]string{"--scores=0 is not allowed: use 1 or more"},
		},
		"for programs": {
			[]string{"explain", "train", "--kubeconfig", with, "-o", "json"},
			ExitOK,
			[]string{`"rootCause": {`, `"code": "InsufficientExclusiveCPU"`},
			nil,
		},
		"a pod that waits, without a scheduler": {
			[]string{"explain", "train", "--kubeconfig", without},
			ExitOK,
			[]string{"InsufficientExclusiveCPU   (2 nodes)", "from API objects alone", "no scheduler was asked"},
			nil,
		},
		"a pod that runs, without a scheduler": {
			[]string{"explain", "lse", "--kubeconfig", without},
			ExitOK,
			[]string{
				"exclusive CPUs 0-1,32-33", "2 whole cores",
				"the values in the kernel are unknown: no agent runs on node epyc (namespace tenon-system, label " +
					"app.kubernetes.io/name=tenon-agent)",
			},
			nil,
		},
		"a pod with a key without effect": {
			[]string{"explain", "member", "--kubeconfig", without},
			ExitOK,
			[]string{
				"metadata.annotations[scheduling.k8s.io/group-name]: has no effect: gang scheduling: planned",
				"metadata.annotations[scheduling.koordinator.sh/resource-spec]: ignored: only LSE/LSR pods are bound",
			},
			nil,
		},
		"a pod whose container the node refuses": {
			[]string{"explain", "member", "--kubeconfig", without},
			ExitOK,
			[]string{"container app has not started: CreateContainerError: no daemon of MPS runs"},
			nil,
		},
		"a scheduler that does not answer": {
			[]string{"explain", "web", "--kubeconfig", with},
			ExitOK,
			[]string{"CPU shared pool", "the values in the kernel are unknown: error from the agent: no such pod here"},
			[]string{"waits for leadership: the instance is not leader; this is what the objects say"},
		},
		"everything that waits": {
			[]string{"explain", "--kubeconfig", without},
			ExitOK,
			[]string{"ROOT CAUSE", "InsufficientExclusiveCPU", "default/train"},
			nil,
		},
		"nothing waits": {
			[]string{"explain", "--kubeconfig", without, "-n", "ml"},
			ExitOK,
			[]string{"no pod is pending"},
			nil,
		},
		"a pod of another namespace": {
			[]string{"explain", "elsewhere", "--kubeconfig", without},
			ExitUsage,
			nil,
			[]string{`error: pod "elsewhere" not found in namespace "default"; it exists in namespace "ml" (try -n ` +
				`ml)`},
		},
		"a misspelt pod": {
			[]string{"explain", "trian", "--kubeconfig", without},
			ExitUsage, nil,
			[]string{`pod "trian" not found in namespace "default", did you mean "train"?`},
		},
		"an unknown kind": {
			[]string{"explain", "widget/g", "--kubeconfig", without},
			ExitUsage, nil,
			[]string{
				`unknown kind in "widget/g": use pod, quota, gang, reservation, deployment, replicaset, ` +
					`statefulset, daemonset, job`,
			},
		},
		"a forbidden namespace": {
			[]string{"explain", "-n", "locked", "--kubeconfig", without},
			ExitUnreachable, nil,
			[]string{"cannot list pods"},
		},
		"a cluster that is down": {
			[]string{"top", "--kubeconfig", down},
			ExitUnreachable, nil,
			[]string{"error: list nodes:", "(is the cluster running? KUBECONFIG or --kubeconfig chooses it)"},
		},
		"the replica that leads is the third": {
			[]string{"explain", "train", "--kubeconfig", replicas},
			ExitOK,
			[]string{"snapshot 4211"},
			nil,
		},
		"a pod of a node that is gone": {
			[]string{"explain", "lost", "--kubeconfig", without},
			ExitOK,
			[]string{"placed          node gone", "node gone does not exist: no kubelet runs the pod"},
			nil,
		},
		"two machines at once": {
			[]string{"topology", "epyc", "static", "--kubeconfig", without},
			ExitUsage, nil,
			[]string{"too many arguments: specify one node, or none for all"},
		},
		"two pods at once": {
			[]string{"explain", "a", "b", "--kubeconfig", without},
			ExitUsage, nil,
			[]string{"too many arguments: specify one pod, or none for all"},
		},
		"no such kubeconfig": {
			[]string{"top", "--kubeconfig", "/nonexistent/kubeconfig"},
			ExitUnreachable, nil,
			[]string{"find the cluster"},
		},
		"one machine": {
			[]string{"topology", "node/epyc", "--kubeconfig", without},
			ExitOK,
			[]string{"node epyc", "socket 1", "default/lse"},
			nil,
		},
		"a misspelt node": {
			[]string{"topology", "epic", "--kubeconfig", without},
			ExitUsage, nil,
			[]string{`node "epic" not found, did you mean "epyc"?`},
		},
		"a colour that is none": {
			[]string{"topology", "--color", "red", "--kubeconfig", without},
			ExitUsage, nil,
			[]string{"--color red is not allowed: use auto, always, never"},
		},
		"colour on demand": {[]string{
			"topology", "epyc", "--color", "always", "--kubeconfig",
			without,
		}, ExitOK, []string{"\x1b["}, nil},
		"a line for each machine": {
			[]string{"topology", "--kubeconfig", without},
			ExitOK,
			[]string{"NODE    CPUS", "static    16"},
			nil,
		},
		"machines with a label": {[]string{
			"topology", "-l", annotation.NodeCPUBindPolicy, "-o", "wide",
			"--kubeconfig", without,
		}, ExitOK, []string{"static", "FullPCPUsOnly"}, nil},
		"a selector that is none": {
			[]string{"top", "-l", "a in b", "--kubeconfig", without},
			ExitUsage,
			nil,
			[]string{"-l a in b is not a label selector"},
		},
		"a selector and a name": {
			[]string{"topology", "epyc", "-l", "a=b", "--kubeconfig", without},
			ExitUsage, nil,
			[]string{"-l and a name exclude each other"},
		},
		"names to complete": {
			[]string{"__complete", "topology", "--kubeconfig", without, ""},
			ExitOK,
			[]string{"epyc\nstatic\n"},
			[]string{"ShellCompDirectiveNoFileComp"},
		},
		"pods to complete": {[]string{
			"__complete", "explain", "--kubeconfig", without, "-n", "ml",
			"",
		}, ExitOK, []string{"elsewhere\n"}, []string{"ShellCompDirectiveNoFileComp"}},
		"NUMA nodes": {
			[]string{"top", "numa", "--kubeconfig", without},
			ExitOK,
			[]string{"FREE CORES"},
			nil,
		},
		"an unknown subject": {
			[]string{"top", "num", "--kubeconfig", without},
			ExitUsage, nil,
			[]string{`cannot show "num", did you mean "numa"?: use cpu, numa, gpu, nodes or pods`},
		},
		"an unknown format": {
			[]string{"top", "-o", "xml", "--kubeconfig", without},
			ExitUsage, nil,
			[]string{"-o xml is not allowed: use table, wide, name, json, yaml, jsonpath=TEMPLATE"},
		},
		"a node that wants an agent": {
			[]string{"doctor", "--node", "epyc", "--kubeconfig", without},
			ExitOK,
			[]string{"node epyc", "warn    agent", "no pod of tenon-agent on this node", "0 fail"},
			nil,
		},
		"a node without a topology": {[]string{
			"doctor", "--node", "bare", "--kubeconfig", without, "-o",
			"json",
		}, ExitUnhealthy, []string{`"kind": "Diagnosis"`, `"check": "topology"`, `"status": "fail"`}, nil},
		"a node of a local cluster": {
			[]string{"doctor", "--node", "epyc", "--kubeconfig", with},
			ExitOK,
			[]string{"unknown agent", "the simulated node runs it itself"},
			nil,
		},
		"a misspelt node to check": {
			[]string{"doctor", "--node", "epic", "--kubeconfig", without},
			ExitUsage, nil,
			[]string{`node "epic" not found, did you mean "epyc"?`},
		},
		"a machine of files": {
			[]string{"doctor", "--root", "testdata"},
			ExitUnhealthy,
			[]string{"machine testdata", "fail    cgroup"},
			nil,
		},
		"the cards of a machine that has none": {
			[]string{"doctor", "gpu", "--root", "testdata"},
			ExitOK,
			[]string{"GPUs of machine testdata", "unknown driver"},
			nil,
		},
		"cards of a machine that is none": {
			[]string{"doctor", "gpu", "--root", "/nonexistent"},
			ExitUsage, nil,
			[]string{"--root: look at the machine: stat /nonexistent"},
		},
		"a machine that is none": {
			[]string{"doctor", "--root", "/nonexistent"},
			ExitUsage, nil,
			[]string{"--root: look at the machine: stat /nonexistent"},
		},
		"files and a node at once": {
			[]string{"doctor", "--root", ".", "--node", "epyc"},
			ExitUsage, nil,
			[]string{"--root and --node exclude each other"},
		},
		"an unknown verb": {
			[]string{"explian"},
			ExitUsage, nil,
			[]string{`unknown command "explian", did you mean "explain"?`},
		},
		"an unknown flag": {
			[]string{"top", "--nope"},
			ExitUsage, nil,
			[]string{"unknown flag: --nope"},
		},
		"a bad diagnostics address": {[]string{
			"explain", "train", "--kubeconfig", with, "--diagnostics",
			"nonsense",
		}, ExitUsage, nil, []string{`diagnostics address "nonsense" is not allowed`}},
		"a diagnostics address by flag": {[]string{
			"explain", "train", "--kubeconfig", without, "--diagnostics",
			diagnostics.URL,
		}, ExitOK, []string{"snapshot 4211"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := run(t, "tenon", c.args...)
			if code != c.code {
				t.Errorf("exit code: got %d, want %d\nstdout: %s\nstderr: %s", code, c.code, out, errOut)
			}
			for _, want := range c.out {
				if !strings.Contains(out, want) {
					t.Errorf("stdout has no %q:\n%s", want, out)
				}
			}
			for _, want := range c.err {
				if !strings.Contains(errOut, want) {
					t.Errorf("stderr has no %q:\n%s", want, errOut)
				}
			}
			named, rest, _ := strings.Cut(errOut, "\n")
			if strings.HasPrefix(named, "cluster https://") { // not one of tenon up, see NameCluster
				errOut = rest
			}
			if len(c.err) == 0 && errOut != "" {
				t.Errorf("stderr: %s", errOut)
			}
			if strings.Contains(out, "\x1b[") && name != "colour on demand" {
				t.Errorf("colour off a terminal: %q", out)
			}
		})
	}
}

func TestPendingPodsAreGroupedByRootCause(t *testing.T) {
	var pods []corev1.Pod
	for i, message := range []string{
		`SMTAlignment: 0/2 nodes are available. {"code":"SMTAlignment","nodes":2}`, "",
		`SMTAlignment: 0/2 nodes are available. {"code":"SMTAlignment","nodes":2}`,
	} {
		p := pod(fmt.Sprintf("p%d", i), "", "", "", "")
		p.CreationTimestamp = metav1.NewTime(born.Add(-time.Duration(i) * time.Hour))
		if message != "" {
			p.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
				Message: message,
			}}
		}
		pods = append(pods, p)
	}
	gated := pod("gated", "", "", "", "")
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x"}}
	done := pod("done", "", "", "", "")
	done.Status.Phase = corev1.PodFailed
	var answers []view.Pod
	for _, p := range append(pods, gated, done) {
		answers = append(answers, view.FromObject(describe.Pod(&p)))
	}
	groups := groupPending(answers)
	var out strings.Builder
	golden(t, "pending.txt", (&renderer{now: born.Add(time.Hour)}).pending(groups))
	testkit.Check(t, printAnswer(&out, "json", newList("PendingList", groups), nil))
	golden(t, "pending.json", out.String())
}

// TestWhatAPodAsksForNamesItsOverhead, which its CPUs contain.
func TestWhatAPodAsksForNamesItsOverhead(t *testing.T) {
	t.Parallel()
	p := pod("a", "", "", "", "")
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
	}}}
	p.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}
	if got, want := describe.Pod(&p).Head.Asked, "2250m CPU, with pod overhead 250m CPU"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestAGroupOfPendingPodsShowsOnePodWithItsMessage, that of the pod that waits longest, in whatever order pods come.
func TestAGroupOfPendingPodsShowsOnePodWithItsMessage(t *testing.T) {
	t.Parallel()
	waiting := func(name string, hours int) view.Pod {
		since := born.Add(-time.Duration(hours) * time.Hour)
		cause := &why.Wire{Code: why.SMTAlignment, Message: "about " + name}
		return view.Pod{Pod: name, Since: &since, RootCause: cause}
	}
	pods := []view.Pod{
		waiting("default/a", 0), waiting("default/d", 2), waiting("default/c", 2), waiting("default/b", 1),
	}
	for range pods {
		pods = append(pods[1:], pods[0])
		g := groupPending(pods)[0]
		if g.Example != "default/c" || g.Message != "about default/c" || !g.Oldest.Equal(born.Add(-2*time.Hour)) {
			t.Errorf("got the message %q of %s, which waits since %s", g.Message, g.Example, g.Oldest)
		}
		row := (&renderer{now: born}).pending([]*view.PendingGroup{g})
		if !strings.Contains(row, "default/c  about default/c") || !slices.Equal(g.Pods,
			[]string{"default/a", "default/b", "default/c", "default/d"}) {
			t.Errorf("got %v, as\n%s", g.Pods, row)
		}
	}
}

func TestEveryVerbHasThreeExamples(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	for _, verb := range NewRoot("tenon", streams, doctors).Commands() {
		if verb.Name() == "help" || verb.Name() == "completion" || verb.Name() == "version" {
			continue
		}
		if n := strings.Count(verb.Example, "\n  tenon "); n < 3 || verb.Short == "" {
			t.Errorf("%s has %d examples, want 3, and says %q", verb.Name(), n, verb.Short)
		}
	}
}

func TestAsAPluginOfKubectl(t *testing.T) {
	_, out, _ := run(t, "kubectl-tenon", "explain", "--help")
	for _, want := range []string{"kubectl tenon explain [POD | KIND/NAME]", "kubectl tenon explain pod/web-0"} {
		if !strings.Contains(out, want) {
			t.Errorf("help has no %q:\n%s", want, out)
		}
	}
}

func TestVersion(t *testing.T) {
	for verb, want := range map[string]string{"--version": "tenon version ", "version": "tenon       "} {
		if code, out, _ := run(t, "tenon", verb); code != ExitOK || !strings.HasPrefix(out, want) {
			t.Errorf("%s: got %d %q", verb, code, out)
		}
	}
	if v := builtFrom().Kubernetes; v != "unknown" && !strings.HasPrefix(v, "v1.") {
		t.Errorf("Kubernetes is %s, want the version of the release, not that of its modules", v)
	}
}

func TestColourFollowsFlagStreamAndEnvironment(t *testing.T) {
	env := func(pairs ...string) func(string) string {
		return func(key string) string {
			for i := 0; i+1 < len(pairs); i += 2 {
				if pairs[i] == key {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	for name, c := range map[string]struct {
		when string
		env  func(string) string
		want paint
	}{
		"a file gets none":           {colorAuto, env("LANG", "C.UTF-8"), paint{}},
		"unless it must":             {colorAlways, env("NO_COLOR", "1"), paint{on: true}},
		"never":                      {colorNever, env(), paint{}},
		"ASCII in an ASCII locale":   {colorNever, env("LC_ALL", "POSIX"), paint{ascii: true}},
		"the first variable decides": {colorNever, env("LC_ALL", "en_US.UTF-8", "LANG", "C"), paint{}},
	} {
		if got, err := newPaint(c.when, &strings.Builder{}, c.env); err != nil || got != c.want {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, c.want)
		}
	}
}

func TestSuggestions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		word  string
		known []string
		want  string
	}{
		"one letter off":    {"nod-1", []string{"node-1", "other"}, `, did you mean "node-1"?`},
		"transposed":        {"ndoe", []string{"node"}, `, did you mean "node"?`},
		"two equally close": {"node-x", []string{"node-1", "node-2"}, ""},
		"nothing similar":   {"zebra", []string{"node-1"}, ""},
		"nothing known":     {"a", nil, ""},
	} {
		if got := suggest(c.word, c.known); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
