package elasticquota

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/view"
)

// TestAPodThatWaitsNamesWhatPodsInNoQuotaUse: of 20 CPUs they use 16, so that a quota with a min of 8 may use 4.
func TestAPodThatWaitsNamesWhatPodsInNoQuotaUse(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.tree()
	f.put(t, "out", "", "n", 16, 0)
	var out view.Pod
	f.Explain(f.put(t, "p", "train", "", 5, 0), &out, func(string) bool { return true })
	if out.Quota == nil || out.Quota.Shortages[0].Outside["koordinator-default-quota"] != "16" {
		t.Errorf("got %+v, want 16 CPUs of koordinator-default-quota outside", out.Quota)
	}
}

func TestAPodThatWaitsNamesTheBindingQuotaAndItsBorrowers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.tree()
	f.put(t, "a", "serve", "n", 7, 0)
	pending := f.put(t, "p", "train", "", 9, 0)
	all := func(string) bool { return true }
	var out view.Pod
	f.Explain(pending, &out, all)
	if out.Quota == nil || out.Quota.Quota != "train" || out.Quota.LimitKind != "runtime" ||
		strings.Join(out.Quota.Path, "/") != "eng/train" || len(out.Quota.Shortages) != 1 {
		t.Fatalf("got %+v", out.Quota)
	}
	if got := fmt.Sprintf("%+v", out.Quota.Shortages[0]); got !=
		"{Dimension:cpu Limit:6 Used:0 Request:9 Borrowers:[{Quota:serve Used:7 Min:4 Borrowed:3}] BorrowersHidden:0 "+
			"Outside:map[]}" {
		t.Errorf("got %s", got)
	}
	out = view.Pod{}
	f.Explain(pending, &out, func(namespace string) bool { return namespace == "x" })
	if s := out.Quota.Shortages[0]; len(s.Borrowers) != 0 || s.BorrowersHidden != 1 {
		t.Errorf("a caller who may not see the quotas gets %+v", s)
	}
	for name, pod := range map[string]*corev1.Pod{
		"admitted": f.put(t, "small", "train", "", 1, 0), "without a quota": f.put(t, "free", "", "", 1, 0),
	} {
		out = view.Pod{}
		if f.Explain(pod, &out, all); out.Quota != nil {
			t.Errorf("%s: %+v", name, out.Quota)
		}
	}
}

func TestDivisionsCanBeLeftOut(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.tree()
	f.put(t, "a", "train", "n", 5, 0)
	q := f.describe("train", newQuestion(httptest.NewRequest(http.MethodGet, "/?rounds=false", nil),
		func(string) bool { return true }))
	if q == nil || q.Trace != nil || q.ExactShare != nil || q.Runtime["cpu"] != "5" || q.Borrowed["cpu"] != "1" {
		t.Errorf("got %+v", q)
	}
}
