package coscheduling_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tenon-project/tenon/internal/view"
)

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
