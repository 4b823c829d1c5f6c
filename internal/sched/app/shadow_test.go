package app

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// others is a pod that another scheduler has bound: what its annotations say does not count.
func others(name, node, cpus string, more ...object.PodOption) *corev1.Pod {
	return exclusive(name, cpus, append([]object.PodOption{object.On(node), object.Scheduler("stock")}, more...)...)
}

func TestShadow(t *testing.T) {
	all := func(string) bool { return true }
	for name, tt := range map[string]struct {
		pods    []*corev1.Pod
		pod     *corev1.Pod
		settled func(uid string) bool
		outcome string
		node    string // Tenon's
		numa    [2]int // there, and with Tenon
		refused why.Code
		later   int
	}{
		"the same node": {
			[]*corev1.Pod{bound("full", "b", list(0, 30))},
			others("p", "a", "4"), all, view.ShadowSame, "a",
			[2]int{1, 1},
			0, 0,
		},
		"a node on which the pod would be on two NUMA nodes": {
			[]*corev1.Pod{
				bound("n0", "a", list(0, 6)), bound("n1", "a", list(4, 6)), bound("n2", "a", list(8, 6)),
				bound("n3", "a", list(12, 4)),
			},
			others("p", "a", "8"), all, view.ShadowBetter, "b",
			[2]int{3, 1},
			0, 0,
		},
		"a node that is full": {
			[]*corev1.Pod{bound("full", "a", list(0, 30))},
			others("p", "a", "4"), all, view.ShadowRefused, "b",
			[2]int{0, 1},
			why.InsufficientCPU, 0,
		},
		"no node": {
			[]*corev1.Pod{bound("on-a", "a", list(0, 30)), bound("on-b", "b", list(0, 30))},
			others("p", "a", "4"), all,
			view.ShadowNowhere, "",
			[2]int{0, 0},
			why.InsufficientCPU, 0,
		},
		"pods that were bound later do not count": {
			[]*corev1.Pod{bound("full", "b", list(0, 30)), bound("later", "a", list(0, 30))},
			others("p", "a", "4"),
			func(uid string) bool { return uid != "u-later" }, view.ShadowSame, "a",
			[2]int{1, 1},
			0, 1,
		},
		"an odd number of CPUs of whole cores": {
			nil, others("p", "a", "3", object.Annotation("scheduling.koordinator.sh/resource-spec",
				`{"requiredCPUBindPolicy":"FullPCPUs"}`)), all, view.ShadowNowhere, "",
			[2]int{0, 0},
			why.SMTAlignment, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAsked(t, "a", "b").add(tt.pods...).add(tt.pod)
			versions := a.versions()
			got, err := a.whatIf.Compare(t.Context(), tt.pod, SchedulerName, func(uid string) bool {
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
			if refused != tt.refused || (got.RootCause != nil) != (tt.outcome == view.ShadowNowhere) {
				t.Errorf("refused for %v, root cause %+v; want %v", refused, got.RootCause, tt.refused)
			}
		})
	}
}

// A shadow keeps what it needs for pods that wait for their comparison or were compared, and nothing of other pods.
func TestAShadowForgetsPods(t *testing.T) {
	a := newAsked(t, "a", "b")
	s := &Shadow{
		Scheduler: a.Scheduler, settled: map[string]bool{}, wake: make(chan struct{}, 1), rejected: map[string]string{},
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
		s.markSettled(pod.Pod)
	}
	s.reject(rejected("gone"))
	want := map[string]string{"u-waiting": "TopologyAffinityError", "u-gone": "TopologyAffinityError"}
	if diff := cmp.Diff(want, s.rejected); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"u-waiting": true}, s.settled); diff != "" {
		t.Errorf("pods that count (-want +got):\n%s", diff)
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
		want, err := a.whatIf.Compare(t.Context(), pod, SchedulerName, settled)
		testkit.Check(t, err)
		got, err := a.add(later...).whatIf.Compare(t.Context(), pod, SchedulerName, settled)
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
