package kube_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/reservation"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	podtest "github.com/tenon-project/tenon/internal/testkit/object"
)

// written are requests, each as method, path and body.
type written []string

func (w *written) RoundTrip(r *http.Request) (*http.Response, error) {
	if pod, found := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/default/pods/"); found { // it has no node
		return answer(r, http.StatusOK, fmt.Sprintf(`{"metadata":{"uid":%q}}`, pod)), nil
	}
	body, err := io.ReadAll(r.Body)
	*w = append(*w, fmt.Sprintf("%s %s %s", r.Method, strings.TrimPrefix(r.URL.Path,
		"/apis/scheduling.koordinator.sh/v1alpha1/reservations/"), body))
	return answer(r, http.StatusOK, "{}"), err
}

func answer(r *http.Request, code int, text string) *http.Response {
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(text)), Request: r}
}

// live answers reads of a pod, and passes other requests on.
type live struct {
	*written
	code int
	pod  string
}

func (l *live) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return answer(r, l.code, l.pod), nil
	}
	return l.written.RoundTrip(r)
}

// reservations are an account at a time, with what it writes and the reserve pods that it shows.
func reservations(t *testing.T, now *time.Time) (
	s *kube.Reservations, requests *written, pods map[types.UID]*corev1.Pod,
) {
	t.Helper()
	requests, pods = &written{}, map[types.UID]*corev1.Pod{}
	s = kube.NewReservations(clientOf(t, requests), func() time.Time { return *now })
	s.Profile = "tenon-scheduler"
	s.Deliver(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { pods[o.(*corev1.Pod).UID] = o.(*corev1.Pod) },
		UpdateFunc: func(_, o any) { pods[o.(*corev1.Pod).UID] = o.(*corev1.Pod) },
		DeleteFunc: func(o any) { delete(pods, o.(*corev1.Pod).UID) },
	})
	return s, requests, pods
}

func clientOf(t *testing.T, transport http.RoundTripper) rest.Interface {
	t.Helper()
	client, err := kube.NewClient(&rest.Config{Host: "http://test.invalid", Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

var early = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newReservation(node string, change ...func(*v1alpha1.Reservation)) *v1alpha1.Reservation {
	r := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{
		Name: "r", UID: "u", CreationTimestamp: metav1.NewTime(early), ResourceVersion: "1",
	}}
	r.Spec.TTL = &metav1.Duration{Duration: time.Hour}
	app := metav1.SetAsLabelSelector(map[string]string{"app": "a"})
	r.Spec.Owners = []v1alpha1.ReservationOwner{{LabelSelector: app}}
	template := podtest.Pod("t", podtest.Class("LSR"), podtest.Both("cpu", "4"))
	r.Spec.Template = &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
		Labels:      template.Labels,
		Annotations: map[string]string{annotation.ResourceStatusKey: `{"cpuset":"60-63"}`},
	}, Spec: template.Spec}
	if r.Status.NodeName = node; node != "" {
		r.Status.Phase = v1alpha1.ReservationAvailable
		r.Annotations = map[string]string{annotation.ResourceStatusKey: `{"cpuset":"0-3"}`}
	}
	for _, c := range change {
		c(r)
	}
	return r
}

func forMany(r *v1alpha1.Reservation) { r.Spec.AllocateOnce = new(bool) }

func owner(name, cpu string) *corev1.Pod {
	p := podtest.Pod(name, podtest.Both("cpu", cpu))
	p.UID, p.Spec.NodeName = types.UID(name), "n"
	p.Annotations = map[string]string{annotation.ReservationAllocatedKey: `{"name":"r","uid":"u"}`}
	return p
}

func TestAReservePodHoldsWhatItsUsersLeave(t *testing.T) {
	t.Parallel()
	now := early
	s, _, pods := reservations(t, &now)
	cpu := func() string {
		if pods["u"] == nil {
			return "none"
		}
		return pods["u"].Spec.NodeName + " " + pods["u"].Spec.Containers[0].Resources.Requests.Cpu().String()
	}
	s.Put(newReservation(""))
	if p := pods["u"]; p.Spec.SchedulerName != "tenon-scheduler" || p.Annotations[annotation.ResourceStatusKey] != "" ||
		!convert.IsReservePod(p) {
		t.Fatalf("the pod that is scheduled is %+v", p)
	}
	s.Put(newReservation("n", forMany))
	if got := pods["u"].Annotations[annotation.ResourceStatusKey]; cpu() != "n 4" || got != `{"cpuset":"0-3"}` {
		t.Errorf("the reservation holds %s, %s, want 4 CPUs of n, 0-3", cpu(), got)
	}
	if e := convert.ReadPod(pods["u"]).Entry; e.Namespace+"/"+e.Name != "reservation/r" {
		t.Errorf("the holder of the CPUs is shown as %s/%s", e.Namespace, e.Name)
	}
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"a pod is reserved", func() {
			p := owner("a", "1")
			p.Spec.NodeName, p.Annotations = "", nil
			if err := s.Use(p, "u"); err != nil {
				t.Error(err)
			}
			s.PutPod(p) // its status changes before it is bound
		}, "n 3"},
		{"it is bound", func() { s.PutPod(owner("a", "1")) }, "n 3"},
		{"another one, known by its annotation alone", func() { s.PutPod(owner("b", "2")) }, "n 1"},
		{"a third one wants more than is left", func() { s.PutPod(owner("c", "2")) }, "none"},
		{"it ends", func() {
			p := owner("c", "2")
			p.Status.Phase = corev1.PodSucceeded
			s.PutPod(p)
		}, "n 1"},
		{"one is deleted", func() { s.RemovePod(owner("a", "1")) }, "n 2"},
		{"the reservation is for one pod now", func() { s.Put(newReservation("n")) }, "none"},
		{"it is deleted", func() { s.Remove(newReservation("n")) }, "none"},
	} {
		if step.do(); cpu() != step.want {
			t.Errorf("%s: the reservation holds %s, want %s", step.what, cpu(), step.want)
		}
	}
}

func TestTheNodeOfAReservationIsWrittenAfterItsCPUs(t *testing.T) {
	t.Parallel()
	now := early
	s, requests, _ := reservations(t, &now)
	s.Put(newReservation(""))
	record := map[string]string{annotation.ResourceStatusKey: `{"cpuset":"0-3"}`}
	if err := s.Bind(t.Context(), "u", "n", record); err != nil {
		t.Fatal(err)
	}
	const set = `"lastProbeTime":"2026-01-02T03:04:05Z","lastTransitionTime":"2026-01-02T03:04:05Z",`
	want := written{
		`PATCH r {"metadata":{"annotations":{"scheduling.koordinator.sh/resource-status":"{\"cpuset\":\"0-3\"}"},` +
			`"resourceVersion":"1","uid":"u"}}`,
		`PATCH r/status {"metadata":{"resourceVersion":"1","uid":"u"},"status":{"allocatable":{"cpu":"4"},` +
			`"allocated":null,"conditions":[{` + set +
			`"reason":"Scheduled","status":"True","type":"Scheduled"},{` + set +
			`"reason":"Available","status":"True","type":"Ready"}],"currentOwners":null,"nodeName":"n",` +
			`"phase":"Available"}}`,
	}
	if diff := cmp.Diff(want, *requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// stored is the Reservation of an API server, which refuses changes of older versions.
type stored struct {
	t      *testing.T
	object *v1alpha1.Reservation
	// before runs before the request with its number is carried out, and may send others; requests counts them.
	before   map[int]func()
	requests int
}

func (s *stored) RoundTrip(r *http.Request) (*http.Response, error) {
	s.requests++
	if f := s.before[s.requests]; f != nil {
		f()
	}
	text, err := json.Marshal(s.object)
	testkit.Check(s.t, err)
	if r.Method == http.MethodGet {
		return answer(r, http.StatusOK, string(text)), nil
	}
	object, change := map[string]any{}, map[string]any{}
	testkit.Check(s.t, json.Unmarshal(text, &object))
	testkit.Check(s.t, json.NewDecoder(r.Body).Decode(&change))
	merge(object, change)
	text, err = json.Marshal(object)
	testkit.Check(s.t, err)
	next, err := kube.ReadReservation(text)
	testkit.Check(s.t, err)
	if next.ResourceVersion != s.object.ResourceVersion {
		conflict := `{"kind":"Status","status":"Failure","reason":"Conflict","code":409}`
		return answer(r, http.StatusConflict, conflict), nil
	}
	s.change(func(r *v1alpha1.Reservation) { *r = *next })
	text, err = json.Marshal(s.object)
	return answer(r, http.StatusOK, string(text)), err
}

// merge changes a JSON object by a merge patch (RFC 7386).
func merge(object, change map[string]any) {
	for key, value := range change {
		part, nested := value.(map[string]any)
		was, merges := object[key].(map[string]any)
		switch {
		case value == nil:
			delete(object, key)
		case nested && merges:
			merge(was, part)
		default:
			object[key] = value
		}
	}
}

// change makes another version.
func (s *stored) change(f func(*v1alpha1.Reservation)) {
	next := s.object.DeepCopy()
	f(next)
	next.ResourceVersion += "1"
	s.object = next
}

// A process that has led may still write when the next one decides. The node of a Reservation has the CPUs of the same
// decision, whenever the second process writes, and one of the two learns that the other one was first.
func TestANodeOfAReservationHasTheCPUsOfTheSameDecision(t *testing.T) {
	t.Parallel()
	cpus := map[string]string{"first": `{"cpuset":"0-3"}`, "second": `{"cpuset":"4-7"}`} // by node
	for at := 1; at <= 3; at++ {
		server := &stored{t: t, object: newReservation("")}
		bind := func(node string) error {
			s := kube.NewReservations(clientOf(t, server), func() time.Time { return early })
			s.Put(newReservation("")) // no event has come since
			return s.Bind(t.Context(), "u", node, map[string]string{annotation.ResourceStatusKey: cpus[node]})
		}
		var second error
		if at < 3 {
			server.before = map[int]func(){at: func() { second = bind("second") }}
		}
		first := bind("first")
		if at == 3 {
			second = bind("second")
		}
		node, got := server.object.Status.NodeName, server.object.Annotations[annotation.ResourceStatusKey]
		if got != cpus[node] || (first == nil) != (node == "first") || (first == nil) == (second == nil) {
			t.Errorf("a second process before request %d: node %q has CPUs %s; the errors are %v and %v", at, node, got,
				first, second)
		}
	}
}

func TestAReservationIsBoundThoughOthersChangeIt(t *testing.T) {
	t.Parallel()
	server := &stored{t: t, object: newReservation("")}
	label := func() {
		server.change(func(r *v1alpha1.Reservation) {
			r.Labels = map[string]string{"a": fmt.Sprint(server.requests)}
		})
	}
	server.before = map[int]func(){1: label, 4: label}
	s := kube.NewReservations(clientOf(t, server), func() time.Time { return early })
	s.Put(server.object)
	record := map[string]string{annotation.ResourceStatusKey: `{"cpuset":"0-3"}`}
	testkit.Check(t, s.Bind(t.Context(), "u", "n", record))
	if got := server.object; got.Status.NodeName != "n" || got.Labels["a"] != "4" {
		t.Errorf("got node %q and labels %v", got.Status.NodeName, got.Labels)
	}
	for at := range 20 { // another writer changes it before each request
		server.before[at] = label
	}
	server.requests, server.object = 0, newReservation("")
	s = kube.NewReservations(clientOf(t, server), func() time.Time { return early })
	s.Put(server.object)
	if err := s.Bind(t.Context(), "u", "n", nil); err == nil || !strings.Contains(err.Error(), "5 times") {
		t.Errorf("got %v, want that others have changed it", err)
	}
}

// answers answers each write with the object that it makes.
type answers struct{ objects []*v1alpha1.Reservation }

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	text, err := json.Marshal(a.objects[0])
	a.objects = a.objects[1:]
	return answer(r, http.StatusOK, string(text)), err
}

// The successor of a pod that was evicted for a Reservation can come before the event of the Reservation's node.
func TestAPodUsesAReservationWhoseBindingIsNotAnEventYet(t *testing.T) {
	t.Parallel()
	recorded := newReservation("", func(r *v1alpha1.Reservation) { r.ResourceVersion = "9" })
	recorded.Annotations = map[string]string{annotation.ResourceStatusKey: `{"cpuset":"0-3"}`}
	bound := newReservation("n", func(r *v1alpha1.Reservation) { r.ResourceVersion = "10" })
	s := kube.NewReservations(clientOf(t, &answers{[]*v1alpha1.Reservation{recorded, bound}}),
		func() time.Time { return early })
	s.Put(newReservation(""))
	record := map[string]string{annotation.ResourceStatusKey: `{"cpuset":"0-3"}`}
	if err := s.Bind(t.Context(), "u", "n", record); err != nil {
		t.Fatal(err)
	}
	asked, err := convert.ReservationPod(podtest.Pod("p", podtest.Label("app", "a"), podtest.Both("cpu", "4")))
	if err != nil {
		t.Fatal(err)
	}
	for _, late := range []*v1alpha1.Reservation{nil, recorded, bound} {
		if late != nil {
			s.Put(late)
		}
		if found := s.Matching(&asked); len(found["n"]) != 1 {
			t.Errorf("after the event of %+v: the pod may use %+v", late, found)
		}
	}
	s.Remove(bound)
	if found := s.Matching(&asked); len(found) > 0 {
		t.Errorf("the pod may use %+v, which is gone", found)
	}
}

// reconciled returns what is written of a Reservation, and when the next look is due.
func reconciled(t *testing.T, s *kube.Reservations, requests *written, gone bool) (written, time.Time) {
	t.Helper()
	*requests = nil
	again, err := s.Reconcile(t.Context(), "u", 24*time.Hour, func(string) bool { return gone })
	if err != nil {
		t.Fatal(err)
	}
	return *requests, again
}

func TestTheStatusOfAReservationFollowsItsPods(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from func(s *kube.Reservations)
		at   time.Time
		gone bool
		want []string // in what is written
		held bool     // it still holds room
	}{
		"it waits": {func(s *kube.Reservations) {
			s.Put(newReservation(""))
			s.Refuse("u", "0/1 nodes are available", "")
		}, early, false, []string{`"phase":"Pending"`, `"reason":"Unschedulable"`, "0/1 nodes"}, true},
		"pods use it": {func(s *kube.Reservations) {
			s.Put(newReservation("n", forMany))
			s.PutPod(owner("a", "1"))
		}, early, false, []string{`"phase":"Available"`, `"allocated":{"cpu":"1"}`, `"name":"a"`}, true},
		"the one pod uses it": {func(s *kube.Reservations) {
			s.Put(newReservation("n"))
			s.PutPod(owner("a", "1"))
		}, early.Add(2 * time.Hour), false, []string{
			`"phase":"Succeeded"`, `"allocated":{"cpu":"1"}`, `"name":"a"`,
		}, false},
		"its status has devices under other names": {func(s *kube.Reservations) {
			s.Put(newReservation("n", func(r *v1alpha1.Reservation) {
				gpu := corev1.ResourceList{"koordinator.sh/gpu": resource.MustParse("60")}
				r.Spec.Template.Spec.Containers[0].Resources.Requests, r.Status.Allocatable = gpu, gpu
			}))
		}, early, false, []string{
			`"koordinator.sh/gpu":null`, `"koordinator.sh/gpu-core":"60"`, `"koordinator.sh/gpu-memory-ratio":"60"`,
		}, true},
		"it expires": {func(s *kube.Reservations) {
			s.Put(newReservation("n"))
		}, early.Add(time.Hour), false, []string{`"phase":"Failed"`, "expired at 2026-01-02T04:04:05Z"}, false},
		"its node goes": {func(s *kube.Reservations) {
			s.Put(newReservation("n"))
		}, early, true, []string{`"phase":"Failed"`, "node n was deleted"}, false},
	} {
		now := c.at
		s, requests, pods := reservations(t, &now)
		c.from(s)
		got, _ := reconciled(t, s, requests, c.gone)
		for _, part := range c.want {
			if !strings.Contains(strings.Join(got, "\n"), part) {
				t.Errorf("%s: wrote %s, want %s in it", name, got, part)
			}
		}
		if held := pods["u"] != nil; held != c.held {
			t.Errorf("%s: holds room: %v, want %v", name, held, c.held)
		}
	}
}

// TestAReservationThatCannotBeReadIsLeftAlone: nothing is written of it even after its time, nor of one that is gone.
func TestAReservationThatCannotBeReadIsLeftAlone(t *testing.T) {
	t.Parallel()
	now := early.Add(2 * time.Hour)
	s, requests, _ := reservations(t, &now)
	if got, again := reconciled(t, s, requests, false); len(got) > 0 || !again.IsZero() {
		t.Errorf("wrote %s, next look %s, for a Reservation that is gone", got, again)
	}
	s.Put(newReservation("n", func(r *v1alpha1.Reservation) {
		r.Unread = map[string]string{"spec.owners": "not a list"}
	}))
	if got, again := reconciled(t, s, requests, false); len(got) > 0 || !again.IsZero() {
		t.Errorf("wrote %s, next look %s, for a Reservation that cannot be read", got, again)
	}
}

// TestAReservationSaysWhatItsNodeLacks: the node has 8 CPUs, the Reservation keeps 4 of them, and a pod that requests 4
// grows while no webhook answers.
func TestAReservationSaysWhatItsNodeLacks(t *testing.T) {
	t.Parallel()
	const taken = "keeps 4 cpu for owners, and its node n has 2 beside its pods and older Reservations"
	roomTaken := func(r *v1alpha1.Reservation) {
		r.Status.Conditions = []v1alpha1.ReservationCondition{{
			Type: "Ready", Status: "False", Reason: "RoomTaken", Message: taken,
		}}
	}
	other := func(cpu string, options ...podtest.PodOption) *corev1.Pod {
		return podtest.Pod("other", append(options, podtest.UID("other"), podtest.On("n"),
			podtest.Requests("cpu", cpu))...)
	}
	gone := other("6")
	gone.Spec.NodeName = "" // as an informer that was away has it
	for name, c := range map[string]struct {
		first, then func(s *kube.Reservations)
		want        string // of the written condition
		left        int64  // milli-CPUs
		event       string
	}{
		"the pod grows": {
			func(s *kube.Reservations) { s.Put(newReservation("n", forMany)) },
			func(s *kube.Reservations) { s.PutPod(other("6")) }, taken, 2000, taken,
		},
		"the pod is placed by another scheduler": {
			func(s *kube.Reservations) { s.Put(newReservation("n", forMany)); s.RemovePod(other("4")) },
			func(s *kube.Reservations) { s.PutPod(other("6")) }, taken, 2000, taken,
		},
		"the node shrinks": {
			func(s *kube.Reservations) { s.Put(newReservation("n", forMany)) },
			func(s *kube.Reservations) { s.PutNode(podtest.Node("n", nil, "cpu", "6")) }, taken, 2000, taken,
		},
		"it lacks still more": {
			func(s *kube.Reservations) { s.Put(newReservation("n", forMany, roomTaken)) },
			func(s *kube.Reservations) { s.PutPod(other("7")) }, "has 1 beside", 1000, "",
		},
		"the pod shrinks again": {
			func(s *kube.Reservations) { s.Put(newReservation("n", forMany, roomTaken)); s.PutPod(other("6")) },
			func(s *kube.Reservations) { s.PutPod(other("4")) }, `"reason":"Available"`, 4000, "",
		},
		"the pod ends": {
			func(s *kube.Reservations) { s.Put(newReservation("n", forMany, roomTaken)); s.PutPod(other("6")) },
			func(s *kube.Reservations) { s.PutPod(other("6", podtest.Phase(corev1.PodSucceeded))) },
			`"reason":"Available"`, 4000, "",
		},
		"the pod is deleted": {
			func(s *kube.Reservations) { s.Put(newReservation("n", forMany, roomTaken)); s.PutPod(other("6")) },
			func(s *kube.Reservations) { s.RemovePod(gone) }, `"reason":"Available"`, 4000, "",
		},
		"an owner has a part": {
			func(s *kube.Reservations) { s.Put(newReservation("n", forMany)); s.PutPod(other("6")) },
			func(s *kube.Reservations) { s.PutPod(owner("a", "2")) }, "keeps 2 cpu for owners", 0,
			"keeps 2 cpu for owners, and its node n has 0 beside its pods and older Reservations",
		},
	} {
		now := early
		s, requests, pods := reservations(t, &now)
		s.PutNode(podtest.Node("n", nil, "cpu", "8"))
		s.PutPod(other("4"))
		c.first(s)
		looked, sent := 0, ""
		s.OnChange(func(types.UID) { looked++ })
		s.Inform = func(r *v1alpha1.Reservation, reason event.Reason, message string) {
			sent += fmt.Sprint(r.Name, " ", reason, " ", message)
		}
		c.then(s)
		got, _ := reconciled(t, s, requests, false)
		if looked == 0 || !strings.Contains(strings.Join(got, "\n"), c.want) {
			t.Errorf("%s: looked %d times and wrote %s, want %s in it", name, looked, got, c.want)
		}
		if left := s.Available("u")["cpu"]; left != c.left {
			t.Errorf("%s: %d milli-CPUs are left, want %d", name, left, c.left)
		}
		if want := "r ReservationRoomTaken " + c.event; c.event != "" && sent != want || c.event == "" && sent != "" {
			t.Errorf("%s: the Event is %q, want %q", name, sent, c.event)
		}
		if held := s.Left("u"); pods["u"].Spec.Containers[0].Resources.Requests.Cpu().MilliValue() != held["cpu"] {
			t.Errorf("%s: the reserve pod is %+v, want it to hold %v", name, pods["u"].Spec, held)
		}
	}
}

// A Binding may fail: until the API server has it, the Reservation for one pod has not Succeeded, which is final.
func TestAReservedPodHasNotUsedAReservationYet(t *testing.T) {
	t.Parallel()
	now := early
	s, requests, pods := reservations(t, &now)
	s.Put(newReservation("n"))
	if err := s.Use(owner("a", "1"), "u"); err != nil { // with its node, as the scheduler assumes it
		t.Fatal(err)
	}
	if got, _ := reconciled(t, s, requests, false); strings.Contains(fmt.Sprint(got), "Succeeded") {
		t.Errorf("before the Binding: wrote %s", got)
	}
	s.RemovePod(owner("a", "1"))
	if pods["u"] == nil {
		t.Error("the Binding fails: the Reservation holds no room any more")
	}
	s.PutPod(owner("b", "1"))
	if got, _ := reconciled(t, s, requests, false); !strings.Contains(fmt.Sprint(got), `"phase":"Succeeded"`) {
		t.Errorf("after a Binding: wrote %s, want Succeeded", got)
	}
}

// A Reservation for one pod says which before the pod is bound, and the announcement outlives the pod.
func TestAnAnnouncedOwnerKeepsAReservationFromOthers(t *testing.T) {
	t.Parallel()
	announced := func(r *v1alpha1.Reservation) {
		r.Status.CurrentOwners = []corev1.ObjectReference{{Namespace: "default", Name: "a", UID: "a"}}
	}
	waiting := owner("a", "1")
	waiting.Spec.NodeName, waiting.Annotations = "", nil
	elsewhere := waiting.DeepCopy()
	elsewhere.Spec.NodeName = "m"
	put := func(s *kube.Reservations) { s.Put(newReservation("n", announced)) }
	wait := func(s *kube.Reservations) { s.PutPod(waiting) }
	for name, c := range map[string]struct {
		events []func(*kube.Reservations)
		want   string // in what is written
		held   bool   // room is held
	}{
		"it is reserved": {[]func(*kube.Reservations){
			func(s *kube.Reservations) { s.Put(newReservation("n")) }, wait,
			func(s *kube.Reservations) {
				if err := s.Use(waiting, "u"); err != nil {
					t.Error(err)
				}
			}, put,
		}, `"currentOwners":[{"name":"a","namespace":"default","uid":"a"}],"nodeName":"n","phase":"Available"`, false},
		"it has no node": {[]func(*kube.Reservations){wait, put}, `"currentOwners":null`, true},
		"it has no node, and comes after the Reservation": {
			[]func(*kube.Reservations){put, wait}, `"currentOwners":null`, true,
		},
		"it is bound": {
			[]func(*kube.Reservations){put, func(s *kube.Reservations) { s.PutPod(owner("a", "1")) }},
			`"phase":"Succeeded"`, false,
		},
		"it is gone": {[]func(*kube.Reservations){put}, `"name":"a","namespace":"default","uid":"a"`, false},
		"it was deleted before it had a node": {[]func(*kube.Reservations){
			put, wait, func(s *kube.Reservations) { s.RemovePod(waiting) },
		}, `"phase":"Succeeded"`, false},
		"it was deleted after it was bound": {[]func(*kube.Reservations){
			put, func(s *kube.Reservations) { s.PutPod(owner("a", "1")) },
			func(s *kube.Reservations) { s.RemovePod(owner("a", "1")) },
		}, `"phase":"Succeeded"`, false},
		"it is bound elsewhere": {[]func(*kube.Reservations){
			put, wait, func(s *kube.Reservations) { s.PutPod(elsewhere) },
		}, `"phase":"Succeeded"`, false},
	} {
		now := early
		s, requests, pods := reservations(t, &now)
		for _, event := range c.events {
			event(s)
		}
		if err := s.Use(owner("b", "1"), "u"); !errors.Is(err, reservation.ErrUsed) {
			t.Errorf("%s: another pod may use the Reservation: %v", name, err)
		}
		if held := pods["u"] != nil; held != c.held {
			t.Errorf("%s: room is held: %v, want %v", name, held, c.held)
		}
		got, _ := reconciled(t, s, requests, false)
		text := strings.Join(got, "\n")
		if !strings.Contains(text, c.want) || !strings.Contains(text, `"resourceVersion":"1"`) {
			t.Errorf("%s: wrote %q, want %s in it, for version 1", name, text, c.want)
		}
		if s.Put(newReservation("n")); c.held && s.Use(waiting, "u") != nil {
			t.Errorf("%s: once the announcement is withdrawn, the pod may not use the Reservation", name)
		}
	}
}

// The process that led before may have sent a Binding whose answer was lost. While the API server may still carry it
// out, or has done so without the informers knowing, no other pod may use the Reservation.
func TestAnAnnouncementIsNotWithdrawnWhileABindingMayArrive(t *testing.T) {
	t.Parallel()
	announced := func(r *v1alpha1.Reservation) {
		r.Status.CurrentOwners = []corev1.ObjectReference{{Namespace: "default", Name: "a", UID: "a"}}
	}
	const pending = `{"metadata":{"uid":"a"}}`
	for name, c := range map[string]struct {
		led       time.Duration // how long this process has led
		code      int
		pod       string
		withdrawn bool
		again     time.Duration // when the next look is due, from now on
		fails     bool
	}{
		"one nanosecond before the time is over": {kube.LateWrite - 1, 200, pending, false, 1, false},
		"the time is over":                       {kube.LateWrite, 200, pending, true, 0, false},
		"the pod was bound": {
			kube.LateWrite, 200, `{"metadata":{"uid":"a"},"spec":{"nodeName":"n"}}`, false, time.Second, false,
		},
		"another pod has its name":        {kube.LateWrite, 200, `{"metadata":{"uid":"b"}}`, false, time.Second, false},
		"the pod is gone":                 {kube.LateWrite, 404, "{}", false, time.Second, false},
		"the API server fails":            {kube.LateWrite, 500, "{}", false, time.Second, true},
		"the answer is not that of a pod": {kube.LateWrite, 200, "[]", false, time.Second, true},
		"of a reserving pod, not yet":     {kube.LateWrite - 1, 200, pending, false, 1, false},
		"of a reserving pod":              {kube.LateWrite, 200, pending, true, 0, false},
		"of a reserving pod, bound": {
			kube.LateWrite, 200, `{"metadata":{"uid":"a"},"spec":{"nodeName":"n"}}`, false, time.Second, false,
		},
	} {
		now, requests := early, &written{}
		s := kube.NewReservations(clientOf(t, &live{requests, c.code, c.pod}), func() time.Time { return now })
		withdrawal := `"currentOwners":null`
		if strings.Contains(name, "reserving pod") {
			s.PutPod(reservingPod(annotation.ReservationCurrentOwnerKey,
				`{"namespace":"default","name":"a","uid":"a"}`))
			withdrawal = `PATCH /api/v1/namespaces/other/pods/r {"metadata":{"annotations":{` +
				`"scheduling.koordinator.sh/reservation-current-owner":null},"resourceVersion":"1","uid":"u"}}`
		} else {
			s.Put(newReservation("n", announced))
		}
		waiting := owner("a", "1")
		waiting.Spec.NodeName, waiting.Annotations = "", nil
		s.PutPod(waiting)
		s.Lead()
		now = early.Add(c.led)
		again, err := s.Reconcile(t.Context(), "u", 0, func(string) bool { return false })
		if (err != nil) != c.fails {
			t.Errorf("%s: %v, want a failure: %v", name, err, c.fails)
		}
		if got := strings.Contains(fmt.Sprint(*requests), withdrawal); got != c.withdrawn {
			t.Errorf("%s: withdrawn: %v, want %v: %s", name, got, c.withdrawn, *requests)
		}
		if c.again > 0 && again.Sub(now) != c.again {
			t.Errorf("%s: the next look is in %s, want %s", name, again.Sub(now), c.again)
		}
		if err := s.Use(owner("b", "1"), "u"); !errors.Is(err, reservation.ErrUsed) {
			t.Errorf("%s: another pod may use the Reservation: %v", name, err)
		}
	}
}

// reservingPod is a pod of mode Reservation for pods with the label app.
func reservingPod(annotations ...string) *corev1.Pod {
	p := podtest.Pod("other/r", podtest.Class("LSR"), podtest.Both("cpu", "4"), podtest.On("n"))
	p.UID, p.ResourceVersion = "u", "1"
	metav1.SetMetaDataLabel(&p.ObjectMeta, annotation.OperatingMode, annotation.OperatingReservation)
	podtest.Annotate(p, annotation.ReservationOwnersKey, `[{"labelSelector":{"matchLabels":{"app":"a"}}}]`)
	podtest.Annotate(p, annotations...)
	return p
}

// stopping answers a DELETE, and reads of the pod until it is gone.
type stopping struct {
	*written
	reads int // until the pod is gone
}

func (s *stopping) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case r.Method != http.MethodGet:
		return s.written.RoundTrip(r)
	case s.reads == 0:
		return answer(r, http.StatusNotFound, "{}"), nil
	}
	s.reads--
	return answer(r, http.StatusOK, `{"metadata":{"uid":"u"}}`), nil
}

func TestAReservingPodEndsBeforeItsUserIsBound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reads int
		took  time.Duration
		want  string
	}{
		"it is gone at once":  {},
		"it takes 30 seconds": {30, 30 * time.Second, ""},
		"it runs on": {
			1000, 2 * time.Minute, "pod other/r, which keeps the room, did not end within 2m0s",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			requests := &written{}
			s := kube.NewReservations(clientOf(t, &stopping{requests, c.reads}), time.Now)
			user := owner("a", "1")
			if err := s.Vacate(t.Context(), user); err != nil || len(*requests) > 0 {
				t.Errorf("%s: a pod that uses nothing: %v, %v", name, err, *requests)
			}
			s.PutPod(reservingPod())
			if err := s.Use(user, "u"); err != nil {
				t.Fatal(err)
			}
			start, text := time.Now(), ""
			if err := s.Vacate(t.Context(), user); err != nil {
				text = err.Error()
			}
			if took := time.Since(start); text != c.want || took != c.took {
				t.Errorf("%s: %q after %v, want %q after %v", name, text, took, c.want, c.took)
			}
			want := written{`DELETE /api/v1/namespaces/other/pods/r {"kind":"DeleteOptions","apiVersion":"v1",` +
				`"preconditions":{"uid":"u"}}`}
			if diff := cmp.Diff(want, *requests); diff != "" {
				t.Errorf("%s: requests (-want +got):\n%s", name, diff)
			}
		})
	}
}

// A pod of mode Reservation keeps its room until a pod uses it, and shows no reserve pod: it is one itself.
func TestAReservingPodIsItsOwnReservePod(t *testing.T) {
	t.Parallel()
	now := early
	s, _, shown := reservations(t, &now)
	s.PutPod(reservingPod())
	if _, reserve := s.Find("u"); reserve == nil || reserve.Name != "r" || len(shown) > 0 {
		t.Errorf("the reserve pod is %v, and %v are shown", reserve, shown)
	}
	if err := s.Use(owner("a", "1"), "u"); err != nil {
		t.Fatal(err)
	}
	if _, reserve := s.Find("u"); reserve != nil {
		t.Errorf("a used reserving pod keeps %v", reserve)
	}
	s.RemovePod(reservingPod())
	want := map[string]string{annotation.ReservationAllocatedKey: `{"name":"r","uid":"u"}`}
	if diff := cmp.Diff(want, s.Record(owner("a", "1"))); diff != "" || len(s.UIDs()) > 0 || len(shown) > 0 {
		t.Errorf("the record (-want +got):\n%s\n%v are known, and %v are shown", diff, s.UIDs(), shown)
	}
	for what, change := range map[string]func(*corev1.Pod){
		"without a node":     func(p *corev1.Pod) { p.Spec.NodeName = "" },
		"that has ended":     func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"of mode Runnable":   func(p *corev1.Pod) { p.Labels[annotation.OperatingMode] = "Runnable" },
		"for unknown owners": func(p *corev1.Pod) { podtest.Annotate(p, annotation.ReservationOwnersKey, "[") },
	} {
		p := reservingPod()
		s.PutPod(p)
		p = p.DeepCopy()
		change(p)
		if s.PutPod(p); len(s.UIDs()) > 0 {
			t.Errorf("a pod %s keeps room", what)
		}
	}
}

func TestAnOwnerIsAnnouncedOnceBeforeItsBinding(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(*v1alpha1.Reservation) // of the Reservation after the pod was reserved
		want    written
		refused bool
	}{
		"for one pod": {want: written{
			`PATCH r/status {"metadata":{"resourceVersion":"1","uid":"u"},"status":{"currentOwners":[` +
				`{"namespace":"default","name":"a","uid":"a"}]}}`,
		}},
		"for many": {change: forMany},
		"it is known": {change: func(r *v1alpha1.Reservation) {
			r.Status.CurrentOwners = []corev1.ObjectReference{{UID: "a"}}
		}},
		"another one was announced": {change: func(r *v1alpha1.Reservation) {
			r.Status.CurrentOwners = []corev1.ObjectReference{{UID: "b"}}
		}, refused: true},
		"the Reservation has expired": {change: func(r *v1alpha1.Reservation) {
			r.Status.Phase = v1alpha1.ReservationFailed
		}},
	} {
		now := early
		s, requests, _ := reservations(t, &now)
		s.Put(newReservation("n"))
		if err := s.Use(owner("a", "1"), "u"); err != nil {
			t.Fatal(err)
		}
		if c.change != nil {
			s.Put(newReservation("n", c.change))
		}
		err := s.Announce(t.Context(), owner("a", "1"))
		if diff := cmp.Diff(c.want, *requests); diff != "" && len(c.want)+len(*requests) > 0 ||
			errors.Is(err, reservation.ErrUsed) != c.refused || err != nil && !c.refused {
			t.Errorf("%s: %v; requests (-want +got):\n%s", name, err, diff)
		}
	}
}

// What is tried on a copy of the Reservations changes neither them nor another copy.
func TestATrialOfReservationsChangesNoOther(t *testing.T) {
	t.Parallel()
	now := early
	s, _, _ := reservations(t, &now)
	s.Put(newReservation("n", forMany))
	one := s.Try()
	two := one.Clone()
	if err := one.Use(owner("a", "1"), "u"); err != nil {
		t.Fatal(err)
	}
	left := func(trial *kube.ReservationTrial) string {
		cpu := trial.ReservePod("u").Spec.Containers[0].Resources.Requests.Cpu()
		return fmt.Sprint(trial.Left("u")["cpu"], " ", cpu)
	}
	got, want := fmt.Sprint(left(one), ", ", left(two), ", ", s.Left("u")["cpu"]), "3000 3, 4000 4, 4000"
	if got != want {
		t.Errorf("left %s, want %s", got, want)
	}
	if !one.Release(owner("a", "1")) || one.Release(owner("a", "1")) || left(one) != "4000 4" {
		t.Errorf("after a release, once: %s are left", left(one))
	}
}

func TestReservationsThatEndedAreDeletedInTheEnd(t *testing.T) {
	t.Parallel()
	now := early
	s, requests, _ := reservations(t, &now)
	s.Put(newReservation("n", func(r *v1alpha1.Reservation) {
		r.Status.Phase = v1alpha1.ReservationFailed
		r.Status.Conditions = []v1alpha1.ReservationCondition{{
			Type: v1alpha1.ReservationReady, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(early),
		}}
	}))
	day := early.Add(24 * time.Hour)
	if got, again := reconciled(t, s, requests, false); len(got) > 0 || !again.Equal(day) {
		t.Errorf("wrote %s, next look %s, want none before %s", got, again, day)
	}
	now = day
	got, _ := reconciled(t, s, requests, false)
	if len(got) != 1 || !strings.HasPrefix(got[0], "DELETE r ") ||
		!strings.Contains(got[0], `"preconditions":{"uid":"u"}`) {
		t.Errorf("wrote %s, want a deletion of this very reservation", got)
	}
}
