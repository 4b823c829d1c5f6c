package makeroom_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"

	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/desched/makeroom"
	"github.com/tenon-project/tenon/internal/desched/scheduler"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// planner knows a Deployment of two pods, a bare pod, and a gang of which two members have no node.
func planner(t *testing.T, whatIf func(*view.WhatIf) (*view.WhatIfAnswer, error)) *makeroom.Planner {
	t.Helper()
	policy := &evict.Policy{
		MaxMigratingPerNode: 2, EvictInterval: 100 * time.Millisecond, EvictBurst: 1, MinPodAge: 5 * time.Minute,
	}
	s := evict.NewState()
	key := evict.Key("default", "Deployment", "web")
	s.SetWorkload(evict.Workload{
		Key: key, Kind: evict.Deployment, Replicas: 2, StatusReplicas: 2, Updated: 2, Ready: 2,
	})
	old := now.Add(-time.Hour)
	for _, p := range []evict.Pod{
		{UID: "w0", Name: "web-0", Node: "n0", Workload: key, Ready: true, EvictionCost: 7},
		{UID: "w1", Name: "web-1", Node: "n1", Workload: key, Ready: true},
		{UID: "bare", Name: "bare", Node: "n1", Ready: true},
		{UID: "done", Name: "done", Node: "n1", Succeeded: true},
		{UID: "t1", Name: "train-1", Gang: "default/train"},
		{UID: "t0", Name: "train-0", Gang: "default/train"},
		{UID: "t2", Name: "train-2", Gang: "default/train", Node: "n0", Ready: true},
		{UID: "t3", Name: "train-3", Gang: "default/train", Terminating: true},
	} {
		p.Namespace, p.Created = "default", old
		s.SetNode("n0", nil)
		s.SetNode("n1", nil)
		s.SetPod(p)
	}
	w := world{s, whatIf}
	return &makeroom.Planner{
		Cluster: w, Policy: policy, Scheduler: w, Rounds: w, Clock: testclock.NewFakePassiveClock(now),
	}
}

// world is a cluster with the scheduler that answers, and one round of plugins.
type world struct {
	state  *evict.State
	whatIf func(*view.WhatIf) (*view.WhatIfAnswer, error)
}

func (w world) Read(f func(*evict.State)) { f(w.state) }
func (w world) Last() *view.Round         { return &view.Round{Time: now, Accepted: 7} }

func (w world) WhatIf(_ context.Context, q *view.WhatIf) (*view.WhatIfAnswer, error) {
	return w.whatIf(q)
}

func TestThePlannerOffersThePodsThatMayMove(t *testing.T) {
	t.Parallel()
	var asked view.WhatIf
	p := planner(t, func(q *view.WhatIf) (*view.WhatIfAnswer, error) {
		asked = *q
		moves := []view.RoomMove{{Pod: "default/web-1"}, {Pod: "default/web-0"}}
		return &view.WhatIfAnswer{Room: &view.RoomPlan{Found: true, Moves: moves}}, nil
	})
	got, err := p.Plan(t.Context(), &view.RoomRequest{Gang: "default/train", MaxMoves: 3})
	testkit.Check(t, err)
	want := view.WhatIf{Ask: view.Ask{
		Mode: view.MakeRoom, MaxMoves: 3, Pods: []string{"default/train-0", "default/train-1"},
		Movable: []view.Movable{{UID: "w0", Cost: 7}, {UID: "w1"}},
	}}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("question (-want +got):\n%s", diff)
	}
	kept := map[string]string{}
	for _, k := range got.Kept {
		kept[k.Pod] = k.Reasons[0].Code
	}
	if kept["default/bare"] != string(evict.BarePod) || kept["default/train-2"] == "" || len(kept) != 2 {
		t.Errorf("kept pods %v, want the bare one and the member of the gang", kept)
	}
	if !got.Found || got.Movable != 2 || got.Moves[0].Pod != "default/web-0" || got.Moves[1].Pod != "default/web-1" {
		t.Errorf("got %+v, want the moves by name", got)
	}
}

func TestTheHandlerAnswers(t *testing.T) {
	t.Parallel()
	var answer *view.WhatIfAnswer
	var failure error
	h := planner(t, func(*view.WhatIf) (*view.WhatIfAnswer, error) { return answer, failure })
	ask := func(method, body string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, makeroom.Path, strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
	for _, c := range []struct {
		name, method, body string
		answer             *view.WhatIfAnswer
		failure            error
		status             int
		want               string
	}{
		{
			"a plan", "POST", `{"pods":["default/x"]}`, &view.WhatIfAnswer{Room: &view.RoomPlan{Looked: 9}}, nil, 200,
			`"looked":9`,
		},
		{"reading", "GET", "", nil, nil, 405, "use POST"},
		{"an unknown field", "POST", `{"pod":"x"}`, nil, nil, 400, `unknown field`},
		{"nothing", "POST", `{}`, nil, nil, 400, "name pods, or one gang"},
		{"a pod with a node", "POST", `{"pods":["default/web-0"]}`, nil, nil, 400, "web-0 is on node n0 already"},
		{"both", "POST", `{"pods":["a/b"],"gang":"a/g"}`, nil, nil, 400, "name pods, or one gang"},
		{"a gang without pending pods", "POST", `{"gang":"a/g"}`, nil, nil, 400, "gang a/g has no pod without a node"},
		{
			"a question that the scheduler refuses", "POST", `{"pods":["a/b"]}`, nil,
			&scheduler.Refused{Text: "pod a/b does not exist"}, 400, "pod a/b does not exist",
		},
		{"no scheduler", "POST", `{"pods":["a/b"]}`, nil, errors.New("connection refused"), 502, "connection refused"},
		{"an old scheduler", "POST", `{"pods":["a/b"]}`, &view.WhatIfAnswer{}, nil, 502, "does not know mode makeRoom"},
	} {
		answer, failure = c.answer, c.failure
		if status, body := ask(c.method, c.body); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s: got %d %s, want %d with %q", c.name, status, body, c.status, c.want)
		}
	}
}

func TestTheSchedulerIsAskedAgainWhileItIsBusy(t *testing.T) {
	t.Parallel()
	answers := []struct {
		status int
		body   string
	}{
		{503, `{"message":"the instance is not leader"}`},
		{200, `{"snapshotGeneration":4}`},
		{400, `{"message":"odd"}`},
		{500, "x"},
		{200, `{"placements":[{"pod":"default/web","node":"n1"}]}`},
		{200, "{}"},
	}
	asked := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/apis/v1/whatif" || r.Header.Get("Authorization") != "" {
			t.Errorf("got %s %s with credentials %q", r.Method, r.URL.Path, r.Header.Get("Authorization"))
		}
		body, _ := io.ReadAll(r.Body)
		asked = string(body)
		w.WriteHeader(answers[0].status)
		_, _ = w.Write([]byte(answers[0].body))
		answers = answers[1:]
	}))
	t.Cleanup(server.Close)
	c, err := scheduler.New(&rest.Config{BearerToken: "mine"}, server.URL, "")
	testkit.Check(t, err)
	if got, err := c.WhatIf(t.Context(), &view.WhatIf{}); err != nil || got.SnapshotGeneration != 4 {
		t.Errorf("got %+v, %v; want snapshot 4", got, err)
	}
	var refused *scheduler.Refused
	if _, err := c.WhatIf(t.Context(), &view.WhatIf{}); !errors.As(err, &refused) || refused.Text != "odd" {
		t.Errorf("got %v, want a refusal", err)
	}
	_, err = c.WhatIf(t.Context(), &view.WhatIf{})
	if err == nil || err.Error() != "error from the scheduler: 500 Internal Server Error" {
		t.Errorf("got %v, want the status", err)
	}
	pod := object.Pod("web", object.On("n0"))
	c.Reserving = true
	for _, want := range []string{"n1", ""} {
		if got, err := c.Fit(t.Context(), pod, []string{"n1", "n2"}); err != nil || got != want {
			t.Errorf("fits on %q, %v; want %q", got, err, want)
		}
	}
	const want = `{"changes":[{"removePod":"default/web"}],"ask":{"pods":["default/web"],"nodes":["n1","n2"],` +
		`"reserve":true}}`
	if asked != want {
		t.Errorf("asked %s, want %s", asked, want)
	}
	if got, err := c.Fit(t.Context(), pod, nil); got != "" || err != nil {
		t.Errorf("among no nodes: got %q, %v", got, err)
	}
	for address, want := range map[string]string{
		"http://10.0.0.1:1": "is plain and not on 127.0.0.1: use https", "tenon": "use https://HOST:PORT",
	} {
		if _, err := scheduler.New(&rest.Config{}, address, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", address, err, want)
		}
	}
}

func TestTheLimitsAreServed(t *testing.T) {
	t.Parallel()
	p := planner(t, nil)
	ask := func(method string) (int, string) {
		w := httptest.NewRecorder()
		p.ServeEvictions(w, httptest.NewRequest(method, makeroom.EvictionsPath, nil))
		return w.Code, w.Body.String()
	}
	if code, text := ask("GET"); code != http.StatusMethodNotAllowed || !strings.Contains(text, "use POST") {
		t.Errorf("GET answers %d: %s", code, text)
	}
	code, text := ask("POST")
	for _, want := range []string{
		`"limits":[]`, `"movable":2`, `"pod":"default/bare"`, `"code":"BarePod"`, `"accepted":7`,
	} {
		if code != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("POST answers %d without %s:\n%s", code, want, text)
		}
	}
	if strings.Contains(text, "default/done") || strings.Contains(text, "default/train-0") {
		t.Errorf("a pod that has ended or has no node is kept:\n%s", text)
	}
}

func TestTheSchedulerFindsMovesThatDefragment(t *testing.T) {
	t.Parallel()
	var asked view.WhatIf
	p := planner(t, func(q *view.WhatIf) (*view.WhatIfAnswer, error) {
		asked = *q
		return &view.WhatIfAnswer{Room: &view.RoomPlan{Moves: []view.RoomMove{{UID: "w1", Fall: 60}}}}, nil
	})
	keep := func(pod *evict.Pod) (refused []evict.Refusal) {
		if pod.Name != "web-1" {
			refused = append(refused, evict.Refusal{Code: evict.Protected})
		}
		return refused
	}
	got, err := p.Defragment(t.Context(), 3, 50, keep)
	if err != nil || len(got.Moves) != 1 {
		t.Fatalf("got %+v, %v", got, err)
	}
	want := view.WhatIf{Ask: view.Ask{
		Mode: view.Defragment, MaxMoves: 3, MinFall: 50, Movable: []view.Movable{{UID: "w1"}},
	}}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("question (-want +got):\n%s", diff)
	}
}
