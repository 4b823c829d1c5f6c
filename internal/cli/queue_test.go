package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/core/forecast"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/view"
)

// queueWorld is a scheduler with a queue of a pod and a gang. One that is old knows no forecasts.
type queueWorld struct {
	t          *testing.T
	old, empty bool
}

func (w queueWorld) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/api/v1/namespaces/ml" {
		_, _ = io.WriteString(rw, `{"kind":"Namespace","apiVersion":"v1"}`)
		return
	}
	body, _ := io.ReadAll(r.Body)
	if r.Method+" "+r.URL.Path != "POST /apis/v1/whatif" || !strings.Contains(string(body), `"mode":"forecast"`) {
		w.t.Errorf("unexpected request %s %s %s", r.Method, r.URL, body)
	}
	at := time.Date(2026, 3, 4, 12, 0, 0, 0, time.Local)
	promised := at.Add(2 * time.Hour)
	early, late := at.Add(time.Hour), at.Add(90*time.Minute)
	refusal := lack(why.InsufficientDevices, "gpu", 0, 2, "a", 5).Wire
	answer := view.WhatIfAnswer{Forecast: &view.Forecast{At: at, Queue: []view.WaitingUnit{
		{
			Position: 1, Name: "gang/ml/train", Pods: []string{"ml/train-0", "ml/train-1"}, Priority: 7,
			QuotaPath: []string{"org", "team"}, Since: at.Add(-time.Hour), Waits: &refusal,
			RunTime: &view.RunTime{Likely: "1h0m0s", Late: "2h0m0s", Source: forecast.Learned},
			Start: &view.ExpectedStart{
				State: view.StartsAfter, Earliest: &early, Latest: &late, After: []string{"job/ml/sweep"},
			},
			Hold: &view.Hold{
				Nodes: []string{"n0", "n1"}, Since: at.Add(-3 * time.Minute), Start: &promised,
				Users: "pods that end by then",
			},
		},
		{
			Position: 2, Name: "pod/ml/small", Pods: []string{"ml/small"}, Since: at.Add(-time.Minute),
			HeldBack: &view.HeldBack{Node: "n1", For: "gang/ml/train", Until: &promised},
		},
		{
			Position: 3, Name: "pod/ml/other", Pods: []string{"ml/other"}, Since: at, QuotaPath: []string{"org"},
			RunTime: &view.RunTime{Likely: "5m0s", Late: "5m0s", Source: forecast.Annotated},
			Start:   &view.ExpectedStart{State: view.StartsNow},
		},
	}, Hidden: 1, Bound: "1.5s", Notes: []string{"run times that Jobs declare are not known: forbidden"}}}
	if w.old {
		answer.Forecast = nil
	}
	if w.empty {
		answer.Forecast = &view.Forecast{Queue: []view.WaitingUnit{}}
	}
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(answer)
}

func TestQueue(t *testing.T) {
	for name, c := range map[string]struct {
		world queueWorld
		args  []string
		code  int
		want  []string
		not   string
	}{
		"all": {args: nil, want: []string{
			"1 of 4", "gang/ml/train", "2", "team", "7", "60m", "1h0m0s to 2h0m0s (learned)", "InsufficientDevices",
			"13:00 to 13:30, after job/ml/sweep", "2 of 4", "unknown", "its first attempt", "not estimated", "5m0s",
			"hold: gang/ml/train, since 3m: n0, n1 until it starts, at the latest at 14:00 by declared run times",
			"held node n1",
			"held back: pod/ml/small: node n1 is held for gang/ml/train until about 14:00; this one declares no",
			"note: the forecast ended after 1.5s", "note: 1 more that you may not read",
			"note: run times that Jobs declare are not known: forbidden",
		}},
		"of a gang": {args: []string{"gang/train"}, want: []string{"gang/ml/train"}, not: "pod/ml/small"},
		"of a member": {
			args: []string{"pod/train-1"}, want: []string{"gang/ml/train"}, not: "pod/ml/small",
		},
		"of a quota": {
			args: []string{"--quota", "team"}, want: []string{"gang/ml/train"}, not: "pod/ml/other",
		},
		"of a quota above": {
			args: []string{"--quota", "org"}, want: []string{"train", "pod/ml/other"}, not: "pod/ml/small",
		},
		"of a quota with none": {
			args: []string{"--quota", "x"}, want: []string{"no pod of this quota waits (length of the queue: 3)"},
		},
		"nothing waits": {world: queueWorld{empty: true}, want: []string{"no pod waits"}},
		"a pod that does not wait": {
			args: []string{"pod/x"}, code: ExitUsage, want: []string{"pod/ml/x is not in the queue: it has a node"},
		},
		"a gang that does not wait": {args: []string{"gang/x"}, code: ExitUsage, want: []string{"gang/ml/x is not in"}},
		"another kind": {
			args: []string{"node/x"}, code: ExitUsage, want: []string{`unknown kind in "node/x": use pod, gang`},
		},
		"a name and a quota": {
			args: []string{"pod/x", "--quota", "q"}, code: ExitUsage,
			want: []string{"--quota and a name exclude each other"},
		},
		"an old scheduler": {
			world: queueWorld{old: true}, code: ExitUnexpected, want: []string{"older than this command"},
		},
		"for programs": {
			args: []string{"-o", "json", "gang/train"},
			want: []string{`"kind": "Forecast"`, `"position": 1`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.world.t = t
			server := httptest.NewServer(c.world)
			defer server.Close()
			out, errOut, code := runWithMachines(t, "queue", server.URL, "", c.args...)
			got := out + errOut
			if code != c.code || c.not != "" && strings.Contains(got, c.not) {
				t.Errorf("code %d, want %d without %q:\n%s", code, c.code, c.not, got)
			}
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("got\n%s\nwant %q", got, want)
				}
			}
		})
	}
}

// TestExplainShowsAStartThatIsKnown: what else a forecast answers is in tenon queue.
func TestExplainShowsAStartThatIsKnown(t *testing.T) {
	t.Parallel()
	start := born.Add(time.Hour)
	for state, shown := range map[string]bool{
		view.StartsAfter: true, view.StartsNow: false, view.StartUnknown: false, view.StartIncomplete: false,
		view.StartsNever: false,
	} {
		p := view.Pod{Place: "1 of 2", Expected: &view.ExpectedStart{
			State: state, Earliest: &start, Latest: &start, After: []string{"pod/default/long"},
		}}
		text := (&renderer{now: born}).body(explained{Pod: p})
		if got := strings.Contains(text, "after pod/default/long (place 1 of 2)\n"); got != shown {
			t.Errorf("%s: got\n%s", state, text)
		}
	}
	if text := (&renderer{now: born}).body(explained{}); strings.Contains(text, "expected start") {
		t.Errorf("without a forecast: got\n%s", text)
	}
}
