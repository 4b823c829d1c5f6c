package report_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/report"
	"github.com/tenon-project/tenon/internal/testkit"
)

// metricServer is an API server for NodeMetrics that notes which subresource was applied.
type metricServer struct {
	*server
	subresource string
}

func (s *metricServer) Apply(ctx context.Context, name string, applied *unstructured.Unstructured,
	o metav1.ApplyOptions, sub ...string,
) (*unstructured.Unstructured, error) {
	s.subresource = strings.Join(sub, "/")
	return s.server.Apply(ctx, name, applied, o, sub...)
}

// TestTheNodesUseIsReported follows a NodeMetric from before it exists, over its spec, to another writer of its status.
func TestTheNodesUseIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gv := slo.GroupVersion()
		fields, err := managedfields.NewDefaultCRDFieldManager(managedfields.NewDeducedTypeConverter(), converter{},
			plain{}, plain{}, gv.WithKind(slo.NodeMetricKind), gv, "", nil)
		testkit.Check(t, err)
		api := &metricServer{server: &server{fields: fields, gv: gv, kind: slo.NodeMetricKind}}
		var mu sync.Mutex
		var policy *slo.NodeMetricCollectPolicy
		condition, known := "", true
		var now report.Use
		r := report.NewMetric(report.Target{
			Objects: api, Node: "n0", Clock: clock.RealClock{},
			SetConflict: func(_ context.Context, holds bool, reason, message string) error {
				mu.Lock()
				defer mu.Unlock()
				if condition = ""; holds {
					condition = reason + ": " + message
				}
				return nil
			},
		}, func(p *slo.NodeMetricCollectPolicy) *slo.NodeMetricStatus {
			mu.Lock()
			defer mu.Unlock()
			policy = p
			if !known {
				return nil
			}
			return &slo.NodeMetricStatus{NodeMetric: &slo.NodeMetricInfo{NodeUsage: slo.ResourceMap{
				Resources: corev1.ResourceList{"cpu": *resource.NewMilliQuantity(now.MilliCPU, resource.DecimalSI)},
			}}}
		})
		api.onWrite = r.Observe
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		// pass lets seconds pass, with a tick in each.
		pass := func(seconds int) {
			for range seconds {
				later(time.Second)
				mu.Lock()
				use := now
				mu.Unlock()
				r.Tick(time.Now(), use, report.Use{MilliCPU: 10000, MemoryBytes: 1 << 30})
			}
			later(0)
		}
		uses := func(milli, bytes int64) {
			mu.Lock()
			now = report.Use{MilliCPU: milli, MemoryBytes: bytes}
			mu.Unlock()
		}
		want := func(what, cpu string, writes int) {
			t.Helper()
			object, n := api.state()
			got := "no object"
			if object != nil {
				path := strings.Split("status nodeMetric nodeUsage resources cpu", " ")
				got, _, _ = unstructured.NestedString(object.Object, path...)
			}
			if got != cpu || n != writes {
				t.Errorf("%s: %q after %d writes, want %q after %d", what, got, n, cpu, writes)
			}
		}
		uses(1000, 0)
		r.Observe(nil)
		pass(130)
		want("without an object nothing is written, and none is created", "no object", 0)
		r.Observe(api.change("tenon-manager", func(u *unstructured.Unstructured) {
			u.Object["spec"] = map[string]any{"metricCollectPolicy": map[string]any{"reportIntervalSeconds": int64(20)}}
		}))
		pass(5)
		want("the manager has made one", "1", 1)
		if api.subresource != "status" {
			t.Errorf("applied %q, want the status alone", api.subresource)
		}
		mu.Lock()
		if policy == nil || ptr.Deref(policy.ReportIntervalSeconds, 0) != 20 {
			t.Errorf("the source was asked under %+v, want an interval of 20 s", policy)
		}
		mu.Unlock()
		uses(1400, 0)
		pass(10)
		want("a change of 4 % before the interval is over", "1", 1)
		pass(10)
		want("the interval is over", "1400m", 2)
		uses(2000, 0)
		pass(3)
		want("a change of 6 % of the CPUs", "2", 3)
		uses(2000, 1<<30/10)
		pass(3)
		want("a change of 10 % of the memory", "2", 4)
		mu.Lock()
		known = false
		mu.Unlock()
		uses(9000, 0)
		pass(60)
		want("the use is not known any more", "2", 4)
		mu.Lock()
		known = true
		mu.Unlock()
		r.Observe(api.change("koordlet", func(u *unstructured.Unstructured) {
			u.Object["status"] = map[string]any{"nodeMetric": map[string]any{"nodeUsage": map[string]any{
				"resources": map[string]any{"cpu": "7"},
			}}}
		}))
		pass(120)
		want("another program writes the status", "7", 4)
		mu.Lock()
		if !strings.HasPrefix(condition, `ForeignWriter: the status of NodeMetric n0 was written by "koordlet"`) {
			t.Errorf("condition %q", condition)
		}
		mu.Unlock()
		pass(600)
		mu.Lock()
		if condition != "" {
			t.Errorf("after ten minutes without a write: condition %q", condition)
		}
		mu.Unlock()
		if object, _ := api.state(); object.Object["status"] == nil {
			t.Error("the status is gone")
		}
		_, n := api.state()
		r.Observe(api.change("kubectl-edit", func(u *unstructured.Unstructured) {
			u.Object["spec"] = "everything"
			u.Object["status"] = []any{}
		}))
		pass(70)
		want("an object that cannot be read is written under the defaults", "9", n+2)
		api.remove()
		r.Observe(nil)
		pass(70)
		want("it is gone", "no object", n+2)
		every := func(seconds int64) {
			r.Observe(api.change("tenon-manager", func(u *unstructured.Unstructured) {
				policy := map[string]any{"reportIntervalSeconds": seconds}
				u.Object["spec"] = map[string]any{"metricCollectPolicy": policy}
			}))
		}
		every(600)
		pass(5)
		want("there is one again", "9", n+3)
		mu.Lock()
		known = false
		mu.Unlock()
		every(1)
		pass(3)
		mu.Lock()
		known = true
		mu.Unlock()
		pass(3)
		_, before := api.state()
		if before == n+3 {
			t.Error("a report that was due while the use was not known was not made later")
		}
		pass(60)
		if _, after := api.state(); after < before+20 {
			t.Errorf("%d reports in a minute at an interval of 1 s, want 20 or more", after-before)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
