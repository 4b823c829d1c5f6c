package elasticquota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	basemetrics "k8s.io/component-base/metrics"

	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// gathered are the values of the gauge, by labels in the order of their names.
func gathered(t *testing.T, quotas *kube.Quotas) map[string]float64 {
	t.Helper()
	registry := basemetrics.NewKubeRegistry()
	testkit.Check(t, registry.CustomRegister(NewResources(quotas)))
	families, err := registry.Gather()
	testkit.Check(t, err)
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			out[f.GetName()+" "+strings.Join(labels, " ")] = m.GetGauge().GetValue()
		}
	}
	return out
}

func TestTheGaugeOfQuotas(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.tree()
	f.put(t, "a", "train", "n", 5, 0)
	f.put(t, "b", "train", "", 2, 0)
	got := gathered(t, f.quotas)
	for kind, want := range map[string]float64{"min": 4, "max": 10, "runtime": 7, "request": 7, "used": 5} {
		key := "tenon_quota_resource kind=" + kind + " quota=train resource=cpu tree="
		if n, ok := got[key]; !ok || n != want {
			t.Errorf("%s is %v, want %v", key, n, want)
		}
	}
}

func TestTheGaugeOfQuotasIsBounded(t *testing.T) {
	t.Parallel()
	quotas := kube.NewQuotas(time.Now)
	for i := range quotasShown + 50 {
		quotas.PutQuota(object.Quota(fmt.Sprintf("n/q%04d", i), nil, object.List("cpu", "500m")))
	}
	got := gathered(t, quotas)
	names := map[string]bool{}
	for key := range got {
		_, rest, _ := strings.Cut(key, "quota=")
		name, _, _ := strings.Cut(rest, " ")
		names[name] = true
	}
	// The default, root and system quotas come first by name, and have no amounts here.
	if len(names) != quotasShown-2 || !names["other"] || !names["q0996"] || names["q0997"] {
		t.Errorf("%d names, the last of them %v", len(names), slices.Sorted(maps.Keys(names))[len(names)-3:])
	}
	if n := got["tenon_quota_resource kind=max quota=other resource=cpu tree="]; n != 26.5 {
		t.Errorf("53 quotas of 500m are %v together", n)
	}
}
