package app_test

import (
	gojson "encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

// inspected asks an agent over HTTP.
func inspected(t *testing.T, a *app.Agent, namespace, name string) (int, view.Cgroups) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("GET "+view.CgroupsPattern, app.InspectHandler(func() []*app.Agent { return []*app.Agent{a} }))
	w := httptest.NewRecorder()
	path := view.CgroupsPath(namespace, name)
	mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	var p view.Cgroups
	if err := gojson.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%s: %v", w.Body, err)
	}
	return w.Code, p
}

func TestWhatTheKernelHasIsServed(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		idle, err := app.New(w.options)
		testkit.Check(t, err)
		if code, _ := inspected(t, idle, "default", "lsr"); code != http.StatusNotFound {
			t.Errorf("an agent that has not begun answers %d", code)
		}
		w.run(func(a *app.Agent) {
			p := pod("lsr", "LSR", "4", "0-3")
			w.create(p)
			if _, got := inspected(t, a, "default", "lsr"); len(got.Groups) != 0 {
				t.Errorf("groups before there is any: %+v", got.Groups)
			}
			c, err := w.start(a, p)
			testkit.Check(t, err)
			leaf := func() view.Cgroup {
				t.Helper()
				code, got := inspected(t, a, "default", "lsr")
				if code != http.StatusOK || got.UID != string(p.UID) || got.Node != nodeName || got.Mode != "Own" ||
					got.Cgroup != "v2" {
					t.Fatalf("answer %d %+v", code, got)
				}
				for _, g := range got.Groups {
					if g.Path == w.root.Cgroup(c.Cgroup) {
						return g
					}
				}
				t.Fatalf("no group %s in %+v", w.root.Cgroup(c.Cgroup), got.Groups)
				return view.Cgroup{}
			}
			value := func(got, state string) view.CgroupValue {
				return view.CgroupValue{
					File: desired.CPUs, Want: "0-3", Got: got, Effective: got, State: state,
					Cause: "CPUs of the pod's allocation",
				}
			}
			check := func(want view.CgroupValue) view.Cgroup {
				t.Helper()
				g := leaf()
				if diff := cmp.Diff(want, g.Values[len(g.Values)-1]); diff != "" {
					t.Errorf("value (-want +got):\n%s", diff)
				}
				return g
			}
			check(value("0-3", view.Matches))
			testkit.Check(t, w.tree.Write(c.Cgroup, desired.CPUs, "0-63"))
			if g := check(value("0-63", view.Differs)); g.Drift != nil {
				t.Errorf("drift before the agent looked: %+v", g.Drift)
			}
			later(15 * time.Second)
			if g := check(value("0-3", view.Matches)); g.Drift == nil || g.Drift.Got != "0-63" ||
				g.Drift.Repaired == nil {
				t.Errorf("drift after the repair: %+v", g.Drift)
			}
			if code, _ := inspected(t, a, "default", "missing"); code != http.StatusNotFound {
				t.Errorf("an unknown pod: %d", code)
			}
		})
	})
}

func TestAnAgentThatDoesNotWriteSaysSo(t *testing.T) {
	inWorld(t, "arm64-1s@static", func(t *testing.T, w *world) {
		w.options.Switches = probe.Switches{QueryKubelet: true}
		w.run(func(a *app.Agent) {
			w.create(pod("lsr", "LSR", "4", ""))
			code, got := inspected(t, a, "default", "lsr")
			if code != http.StatusOK || len(got.Groups) != 0 || len(got.Notes) != 1 ||
				got.Notes[0] != "the agent writes no cpusets here (mode Follow): the kubelet chooses" {
				t.Errorf("answer %d %+v", code, got)
			}
		})
	})
}
