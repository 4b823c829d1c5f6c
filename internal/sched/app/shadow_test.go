package app

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/comparison"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/diag/whatif"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// others is a pod that another scheduler has bound: what its annotations say does not count.
func others(name, node, cpus string, more ...object.PodOption) *corev1.Pod {
	return exclusive(name, cpus, append([]object.PodOption{object.On(node), object.Scheduler("stock")}, more...)...)
}

func (a *asked) compare(pod *corev1.Pod, before func(uid string) bool) (view.ShadowPod, error) {
	return a.whatIf.Compare(a.t.Context(), pod, whatif.Past{
		Scheduler: SchedulerName, Before: before, Devices: map[string]ledger.Entry{},
	})
}

func TestShadow(t *testing.T) {
	all := func(string) bool { return true }
	for name, tt := range map[string]struct {
		pods    []*corev1.Pod
		pod     *corev1.Pod
		settled func(uid string) bool
		outcome comparison.Outcome
		node    string // Tenon's
		numa    [2]int // there, and with Tenon
		refused why.Code
		later   int
	}{
		"the same node": {
			[]*corev1.Pod{bound("full", "b", list(0, 30))},
			others("p", "a", "4"), all, comparison.Same, "a",
			[2]int{1, 1},
			0, 0,
		},
		"a node on which the pod would be on two NUMA nodes": {
			[]*corev1.Pod{
				bound("n0", "a", list(0, 6)), bound("n1", "a", list(4, 6)), bound("n2", "a", list(8, 6)),
				bound("n3", "a", list(12, 4)),
			},
			others("p", "a", "8"), all, comparison.Better, "b",
			[2]int{3, 1},
			0, 0,
		},
		"a node that is full": {
			[]*corev1.Pod{bound("full", "a", list(0, 30))},
			others("p", "a", "4"), all, comparison.Refused, "b",
			[2]int{0, 1},
			why.InsufficientCPU, 0,
		},
		"no node": {
			[]*corev1.Pod{bound("on-a", "a", list(0, 30)), bound("on-b", "b", list(0, 30))},
			others("p", "a", "4"), all,
			comparison.Nowhere, "",
			[2]int{0, 0},
			why.InsufficientCPU, 0,
		},
		"pods that were bound later do not count": {
			[]*corev1.Pod{bound("full", "b", list(0, 30)), bound("later", "a", list(0, 30))},
			others("p", "a", "4"),
			func(uid string) bool { return uid != "u-later" }, comparison.Same, "a",
			[2]int{1, 1},
			0, 1,
		},
		"an odd number of CPUs of whole cores": {
			nil, others("p", "a", "3", object.Annotation("scheduling.koordinator.sh/resource-spec",
				`{"requiredCPUBindPolicy":"FullPCPUs"}`)), all, comparison.Nowhere, "",
			[2]int{0, 0},
			why.SMTAlignment, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAsked(t, "a", "b").add(tt.pods...).add(tt.pod)
			versions := a.versions()
			got, err := a.compare(tt.pod, func(uid string) bool {
				return uid != string(tt.pod.UID) && tt.settled(uid)
			})
			testkit.Check(t, err)
			if diff := cmp.Diff(versions, a.versions()); diff != "" {
				t.Errorf("the comparison changed accounts (-before +after):\n%s", diff)
			}
			node, numa := "", [2]int{got.Bound.NUMA}
			if got.Tenon != nil {
				node, numa[1] = got.Tenon.Node, got.Tenon.NUMA
			}
			if got.Outcome != tt.outcome || node != tt.node || numa != tt.numa || got.Later != tt.later {
				t.Errorf("outcome %s, node %q, NUMA nodes %v, later %d; want %s, %q, %v, %d\n%+v", got.Outcome, node,
					numa, got.Later, tt.outcome, tt.node, tt.numa, tt.later, got)
			}
			var refused why.Code
			if len(got.Bound.Refusals) > 0 {
				refused = got.Bound.Refusals[0].Code
			}
			if refused != tt.refused || (got.RootCause != nil) != (tt.outcome == comparison.Nowhere) {
				t.Errorf("refused for %v, root cause %+v; want %v", refused, got.RootCause, tt.refused)
			}
		})
	}
}

// A shadow keeps what it needs for pods that wait for their comparison or were compared, and nothing of other pods.
func TestAShadowForgetsPods(t *testing.T) {
	a := newAsked(t, "a", "b")
	s := &Shadow{
		Scheduler: a.Scheduler, settled: map[string]bool{}, wake: make(chan struct{}, 1),
		report: view.NewShadowReport(time.Now()), most: 2,
		devices: map[string]ledger.Entry{"u-gone": {}, "u-waiting": {}},
	}
	rejected := func(name string) *corev1.Pod {
		p := others(name, "a", "4", object.Phase(corev1.PodFailed))
		p.Status.Reason = "TopologyAffinityError"
		return p
	}
	waiting, gone := others("waiting", "a", "4"), others("gone", "a", "4")
	a.add(waiting)
	for _, p := range []*corev1.Pod{waiting, gone} {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
		s.see(nil, p, false)
	}
	s.reject(rejected("never-seen"))
	s.reject(rejected("waiting"))
	s.forget(gone)
	for pod, has := s.next(); has; pod, has = s.next() {
		s.markCompared(&view.ShadowPod{UID: string(pod.UID)})
	}
	s.reject(rejected("gone"))
	s.reject(rejected("gone"))
	got := map[string]string{}
	for _, p := range s.report.Pods {
		got[p.UID] = p.Rejected
	}
	want := map[string]string{"u-waiting": "TopologyAffinityError", "u-gone": "TopologyAffinityError"}
	if diff := cmp.Diff(want, got); diff != "" || s.report.Summary.Rejected["TopologyAffinityError"] != 2 {
		t.Errorf("reasons %v (-want +got):\n%s", s.report.Summary.Rejected, diff)
	}
	if len(s.devices) != 1 {
		t.Errorf("the devices of %d pods are kept, want those of the one that is there", len(s.devices))
	}
	if diff := cmp.Diff(map[string]bool{"u-waiting": true}, s.settled); diff != "" {
		t.Errorf("pods that count (-want +got):\n%s", diff)
	}
}

// TestShadowGivesDevicesToPodsOfOthers: which GPUs the first two pods have is not known. They have on paper those that
// Tenon would have given them.
func TestShadowGivesDevicesToPodsOfOthers(t *testing.T) {
	a := newAsked(t)
	for _, node := range []string{"a", "b"} {
		a.equip(node, grid.Worked(), map[string]string{}, 3, 110)
	}
	gpus := func(name string, percent string) *corev1.Pod {
		return others(name, "a", "2", object.Both("cpu", "2", "memory", "1Gi", "koordinator.sh/gpu", percent))
	}
	a.add(gpus("first", "100"), gpus("second", "100"))
	past := whatif.Past{Scheduler: SchedulerName, Devices: map[string]ledger.Entry{}}
	for _, c := range []struct {
		name, percent string
		outcome       comparison.Outcome
		refused       why.Code
	}{
		{"third", "50", comparison.Same, why.None},
		{"fourth", "50", comparison.Same, why.None},
		{"fifth", "50", comparison.Refused, why.InsufficientDevices},
	} {
		pod := gpus(c.name, c.percent)
		a.add(pod)
		past.Before = func(uid string) bool { return uid != string(pod.UID) }
		got, err := a.whatIf.Compare(t.Context(), pod, past)
		testkit.Check(t, err)
		var refused why.Code
		if len(got.Bound.Refusals) > 0 {
			refused = got.Bound.Refusals[0].Code
		}
		if got.Outcome != c.outcome || refused != c.refused || got.Tenon == nil || len(got.Tenon.Devices["gpu"]) != 1 {
			t.Errorf("%s: %s, %v; want %s, %v and a GPU\n%+v", c.name, got.Outcome, refused, c.outcome, c.refused, got)
		}
	}
	if len(past.Devices) != 4 || len(past.Devices["u-first"].Devices) != 1 {
		t.Errorf("devices of other pods: %+v, want those of four", past.Devices)
	}
}

// The accounts follow the pods of the API server by themselves. One may know a pod already that is not among those of
// the node as the comparison looks at it: that pod was bound later.
func TestShadowLeavesOutPodsThatOnlyAccountsKnow(t *testing.T) {
	a := newAsked(t)
	a.equip("a", grid.Worked(), map[string]string{}, 3, 110)
	gpu := func(name string) *corev1.Pod {
		return others(name, "a", "2", object.Both("cpu", "2", "memory", "1Gi", "koordinator.sh/gpu", "100"))
	}
	pod, later := gpu("pod"), gpu("later")
	a.add(pod)
	a.store.PutPod(later)
	past := whatif.Past{
		Scheduler: SchedulerName, Devices: map[string]ledger.Entry{},
		Before: func(uid string) bool { return uid == string(later.UID) },
	}
	got, err := a.whatIf.Compare(t.Context(), pod, past)
	testkit.Check(t, err)
	if got.Outcome != comparison.Same {
		t.Errorf("%s, %+v", got.Outcome, got.Bound.Refusals)
	}
}

// A comparison that comes late is that of the moment of the binding: pods that are bound later, wherever they are,
// change nothing of it. Its node is the one that the scheduler chooses when the pod waits.
func TestShadowGoesBackToTheBinding(t *testing.T) {
	random := rand.New(rand.NewPCG(39, 3))
	for round := range 60 {
		draw := func(name string) *corev1.Pod {
			node, core := string("abc"[random.IntN(3)]), 2*random.IntN(7)
			return bound(name, node, list(core, 2*(1+random.IntN(2))))
		}
		var before, later []*corev1.Pod
		for i := range random.IntN(6) {
			before = append(before, draw(fmt.Sprintf("before-%d", i)))
		}
		for i := range random.IntN(6) {
			later = append(later, draw(fmt.Sprintf("later-%d", i)))
		}
		pod := others("p", string("abc"[random.IntN(3)]), fmt.Sprint(2+2*random.IntN(10)))
		settled := func(uid string) bool { return strings.HasPrefix(uid, "u-before") }
		a := newAsked(t, "a", "b", "c").add(before...).add(pod)
		want, err := a.compare(pod, settled)
		testkit.Check(t, err)
		got, err := a.add(later...).compare(pod, settled)
		testkit.Check(t, err)
		// Lost is by the pods that have CPUs now, which are those that are expected.
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(view.ShadowPod{}, "Later"),
			cmpopts.IgnoreFields(view.ShadowNode{}, "Lost")); diff != "" {
			t.Fatalf("round %d: with %d later pods (-without +with):\n%s", round, len(later), diff)
		}
		if got.Later != len(later) {
			t.Fatalf("round %d: %d pods left out, want %d", round, got.Later, len(later))
		}
		waits := exclusive("p", pod.Spec.Containers[0].Resources.Requests.Cpu().String())
		answer, err := newAsked(t, "a", "b", "c").add(before...).add(waits).answer(`{"ask":{"pods":["default/p"]}}`)
		testkit.Check(t, err)
		node := ""
		if want.Tenon != nil {
			node = want.Tenon.Node
		}
		scheduled := ""
		for _, p := range answer.Placements {
			scheduled = p.Node
		}
		if scheduled != node {
			t.Fatalf("round %d: the comparison has node %q, the scheduler %q", round, node, scheduled)
		}
	}
}

// sent is a server that answers all with one status.
type sent struct {
	status int
	count  int
}

func (s *sent) RoundTrip(*http.Request) (*http.Response, error) {
	s.count++
	return &http.Response{StatusCode: s.status, Body: http.NoBody}, nil
}

func TestReadOnlyClientSendsNothingThatWrites(t *testing.T) {
	const pods, pod = "/api/v1/namespaces/n/pods", "/api/v1/namespaces/n/pods/p"
	for request, allowed := range map[string]bool{
		"GET " + pods: true, "GET " + pod: true, "GET " + pods + "?watch=true": true, "GET /version": true,
		"GET /apis": true, "GET /apis/apps/v1": true, "GET /apis/apps/v1/deployments": true,
		"POST " + pods: false, "PUT " + pod: false, "PATCH " + pod: false, "DELETE " + pod: false,
		"DELETE " + pods:           false,
		"POST " + pod + "/binding": false, "POST " + pod + "/eviction": false, "PATCH " + pod + "/status": false,
		"GET " + pod + "/exec?command=x": false, "GET " + pod + "/attach": false, "GET " + pod + "/portforward": false,
		"GET " + pod + "/proxy/x": false, "GET /api/v1/nodes/a/proxy/run": false,
		"GET /api/v1/proxy/nodes/a/run": false,
		"OPTIONS " + pods:               false, "HEAD " + pods: false, "CONNECT /": false,
		"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews": false,
	} {
		t.Run(request, func(t *testing.T) {
			server := &sent{status: http.StatusOK}
			config := ReadOnly(&rest.Config{Host: "http://x.invalid", Transport: server}, func(error) {})
			transport, err := rest.TransportFor(config)
			testkit.Check(t, err)
			method, path, _ := strings.Cut(request, " ")
			q, err := http.NewRequestWithContext(t.Context(), method, "http://x.invalid"+path, nil)
			testkit.Check(t, err)
			answer, err := transport.RoundTrip(q)
			if err == nil {
				_ = answer.Body.Close()
			}
			if (err == nil) != allowed || server.count > 0 != allowed {
				t.Errorf("%v, %d requests sent; allowed %v", err, server.count, allowed)
			}
		})
	}
	var missing error
	config := ReadOnly(&rest.Config{Transport: &sent{status: http.StatusForbidden}},
		func(err error) { missing = err })
	transport, err := rest.TransportFor(config)
	testkit.Check(t, err)
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x.invalid/apis/apps/v1/replicasets",
		nil)
	testkit.Check(t, err)
	answer, err := transport.RoundTrip(q)
	testkit.Check(t, err)
	_ = answer.Body.Close()
	const want = "replicasets.apps is forbidden: the right to list them is missing"
	var status *apierrors.StatusError
	if !errors.As(missing, &status) || !apierrors.IsForbidden(missing) || missing.Error() != want {
		t.Errorf("the missing right is %v, want %s", missing, want)
	}
}

// TestShadowSaysWhatTheKubeletWouldDo also where Tenon refuses the node for another reason.
func TestShadowSaysWhatTheKubeletWouldDo(t *testing.T) {
	a := newAsked(t, "a")
	node := object.Node("a", map[string]string{corev1.LabelHostname: "a"}, "cpu", "32", "memory", "64Gi", "pods", "110")
	node.Status.NodeInfo.KubeletVersion = "v1.36.3"
	a.store.PutNode(node)
	a.store.PutTopology(object.Topology("a", grid.Worked().Build(t), map[string]string{
		annotation.KubeletKey: `{"cpu":{"policy":"static","reserved":"0"},"topology":{"policy":"single-numa-node"}}`,
	}))
	for name, pod := range map[string]*corev1.Pod{
		"as Tenon does": others("p", "a", "12"),
		"of a pod without a class": object.Pod("q", object.UID("u-q"), object.Scheduler("stock"), object.On("a"),
			object.Both("cpu", "12", "memory", "1Gi")),
	} {
		got, err := a.add(pod).compare(pod, func(uid string) bool { return uid != string(pod.UID) })
		testkit.Check(t, err)
		if got.Outcome != comparison.Nowhere || got.Bound.Kubelet == nil ||
			got.Bound.Kubelet.Code != why.KubeletTopologyAffinity {
			t.Errorf("%s: %s, the kubelet %+v; want that it rejects the pod\n%+v", name, got.Outcome,
				got.Bound.Kubelet, got)
		}
		a.store.RemovePod(pod)
		testkit.Check(t, a.core.Nodes.RemovePod(klog.Background(), pod))
	}
}
