package coscheduling_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

func TestAGangSaysHowItsLastPlanEnded(t *testing.T) {
	t.Parallel()
	p, gangs := newPlugin(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		m := member(name, "g", "3")
		if name == "d" {
			m = member(name, "h", "2")
			m.Annotations[annotation.GangMode] = "NonStrict"
		}
		m.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: object.List("cpu", "1500m", "example.com/x", "2"),
		}}}
		gangs.PutPod(m)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.SetPathValue("namespace", "ns")
	ask := func(name string) *view.Gang {
		r.SetPathValue("name", name)
		g, _ := p.Diagnostics().Endpoints[0].Answer(r, func(string) bool { return true }).(*view.Gang)
		return g
	}
	if g := ask("g"); g == nil || g.LastPlan != nil || g.Held != nil {
		t.Errorf("before a plan: %+v", g)
	}
	at := time.Unix(1e9, 0)
	conclude(gangs, []string{"uid-a", "uid-b", "uid-c"}, []string{"uid-a", "uid-b"}, gang.Failure{UID: "uid-c"}, at)
	if diff := cmp.Diff(&view.Plan{At: at, Gang: "ns/g", Placed: 2, Needed: 3}, ask("g").LastPlan); diff != "" {
		t.Errorf("after a plan that failed (-want +got):\n%s", diff)
	}
	gangs.PutPod(member("e", "h", "2"))
	conclude(gangs, []string{"uid-d"}, []string{"uid-d"}, gang.Failure{}, at)
	if diff := cmp.Diff(map[string]string{"cpu": "1500m", "example.com/x": "2"}, ask("h").Held); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&view.Plan{At: at, Gang: "ns/h", Placed: 1, Needed: 2}, ask("h").LastPlan); diff != "" {
		t.Errorf("after a member of a NonStrict gang was reserved (-want +got):\n%s", diff)
	}
	later := at.Add(time.Second)
	gangs.Update(func(s *gang.State) gang.Effects { return s.Fail("uid-e", why.Finding{}, later) })
	if diff := cmp.Diff(&view.Plan{At: later, Gang: "ns/h", Placed: 1, Needed: 2}, ask("h").LastPlan); diff != "" {
		t.Errorf("after another one did not fit (-want +got):\n%s", diff)
	}
	conclude(gangs, []string{"uid-a", "uid-b", "uid-c"}, []string{"uid-a", "uid-b", "uid-c"}, gang.Failure{}, at)
	if diff := cmp.Diff(&view.Plan{At: at, Placed: 3, Needed: 3}, ask("g").LastPlan); diff != "" {
		t.Errorf("after one that did not (-want +got):\n%s", diff)
	}
}

func TestACallerSeesTheGangsOfItsNamespaces(t *testing.T) {
	t.Parallel()
	p, gangs := newPlugin(t)
	gangs.PutPod(member("a", "g", "2"))
	elsewhere := member("b", "h", "1")
	elsewhere.Namespace = "other"
	gangs.PutPod(elsewhere)
	endpoints := p.Diagnostics().Endpoints
	one, all := endpoints[0], endpoints[1]
	for namespace, want := range map[string]int{"ns": 1, "other": 1, "none": 0, "": 2} {
		may := func(n string) bool { return n == namespace }
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if got := all.Answer(r, may).(map[string]*view.Gang); len(got) != want {
			t.Errorf("who may read %q sees %d gangs, want %d", namespace, len(got), want)
		}
		r.SetPathValue("namespace", "ns")
		r.SetPathValue("name", "g")
		got := one.Answer(r, may)
		if sees := namespace == "ns" || namespace == ""; (got != nil) != sees {
			t.Errorf("who may read %q sees the gang: %v", namespace, got)
		}
	}
}
