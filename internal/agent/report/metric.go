package report

import (
	"context"
	"fmt"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
)

const (
	// defaultInterval is reportIntervalSeconds of a NodeMetric that does not say it.
	defaultInterval = time.Minute
	// metricChange is by how many percent of the node's CPUs or memory the average must change to be reported before
	// the interval is over.
	metricChange = 5
	// liveMetricWriter is how long after its last write another writer of the status counts as alive.
	liveMetricWriter = 10 * time.Minute
)

// Use is what a node uses and has: of CPU in thousandths, of memory in bytes.
type Use struct{ MilliCPU, MemoryBytes int64 }

// differs reports whether two uses of a node differ by more than metricChange percent of what it has.
func (u Use) differs(other, capacity Use) bool {
	far := func(a, b, all int64) bool { return all > 0 && max(a-b, b-a) > all/100*metricChange }
	return far(u.MilliCPU, other.MilliCPU, capacity.MilliCPU) ||
		far(u.MemoryBytes, other.MemoryBytes, capacity.MemoryBytes)
}

// MetricReporter writes the status of a node's NodeMetric: when the interval of its spec is over, or the use has
// changed much. It creates no object, and leaves a status alone that another program writes.
type MetricReporter struct {
	*loop
	source func(*slo.NodeMetricCollectPolicy) *slo.NodeMetricStatus

	use sync.Mutex // guards the fields below
	// next is when to report again; zero for at once. last is the use of the last report, now that of the last Tick.
	next      time.Time
	last, now Use
	// due: it became time to report, or the policy changed, and no report was made since.
	due bool
	// policy is that of the last report.
	policy *slo.NodeMetricCollectPolicy
}

// NewMetric returns a MetricReporter. source returns the status to report under a policy, nil while it is not known.
func NewMetric(t Target, source func(*slo.NodeMetricCollectPolicy) *slo.NodeMetricStatus) *MetricReporter {
	r := &MetricReporter{source: source}
	r.loop = newLoop(t, slo.NodeMetricKind, r.publish)
	return r
}

// Tick takes the averages of now, and reports if it is time to.
func (r *MetricReporter) Tick(at time.Time, average, capacity Use) {
	r.use.Lock()
	r.now = average
	r.due = r.due || !at.Before(r.next) || average.differs(r.last, capacity)
	due := r.due
	r.use.Unlock()
	if due {
		r.Changed()
	}
}

func (r *MetricReporter) publish(ctx context.Context, object *unstructured.Unstructured) error {
	metric, interval := &slo.NodeMetric{}, defaultInterval
	if object != nil {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, metric); err != nil {
			metric.Spec = slo.NodeMetricSpec{} // the defaults count
		}
	}
	policy := metric.Spec.CollectPolicy
	if policy != nil {
		if seconds := ptr.Deref(policy.ReportIntervalSeconds, 0); seconds > 0 {
			interval = time.Duration(min(seconds, 86400)) * time.Second
		}
	}
	r.pace.most = max(perMinute, int(time.Minute/interval))
	use, due := r.dueUse(policy)
	if !due {
		return nil
	}
	status := r.source(policy)
	if status == nil {
		return nil // it is still due
	}
	if err := r.report(ctx, status, object); err != nil {
		return err // it is still due
	}
	r.use.Lock()
	defer r.use.Unlock()
	r.next, r.last, r.due, r.policy = r.Clock.Now().Add(interval), use, false, policy
	return nil
}

// dueUse returns the use of the last Tick, and whether to report now: a changed object is reported on only if its
// policy changed. A report stays due until it is made.
func (r *MetricReporter) dueUse(policy *slo.NodeMetricCollectPolicy) (Use, bool) {
	r.use.Lock()
	defer r.use.Unlock()
	r.due = r.due || !apiequality.Semantic.DeepEqual(policy, r.policy)
	return r.now, r.due
}

// report writes the status, if there is an object, and no other program writes it.
func (r *MetricReporter) report(ctx context.Context, status *slo.NodeMetricStatus,
	object *unstructured.Unstructured,
) error {
	if object == nil {
		return nil
	}
	if w, found := statusWriter(object); found && w.last.Add(liveMetricWriter).After(r.Clock.Now()) {
		return r.SetConflict(ctx, true, "ForeignWriter", fmt.Sprintf(
			"the status of NodeMetric %s was written by %q at %s: tenon-agent does not write it. Stop that program on "+
				"this node", r.Node, w.name, w.last.UTC().Format(time.RFC3339)))
	}
	if err := r.write(ctx, status, object); err != nil {
		return err
	}
	return r.clearConflict(ctx)
}

func (r *MetricReporter) write(ctx context.Context, status *slo.NodeMetricStatus,
	seen *unstructured.Unstructured,
) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return fmt.Errorf("encode the status of NodeMetric %s: %w", r.Node, err)
	}
	next := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	next.SetGroupVersionKind(slo.GroupVersion().WithKind(slo.NodeMetricKind))
	next.SetName(r.Node)
	next.SetResourceVersion(seen.GetResourceVersion())
	got, err := r.Objects.Apply(ctx, r.Node, next, metav1.ApplyOptions{FieldManager: Manager, Force: true}, "status")
	if err != nil {
		return fmt.Errorf("apply the status of NodeMetric %s: %w", r.Node, err)
	}
	r.wrote(got)
	klog.FromContext(ctx).V(2).Info("Reported the node's use", "node", r.Node, "pods", len(status.PodsMetric))
	return nil
}
