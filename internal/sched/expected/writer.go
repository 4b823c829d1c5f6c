package expected

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/forecast"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// manager owns the condition among the fields of a PodGroup.
const manager = "tenon-scheduler-forecast"

// clearInterval is the time between two attempts to remove the conditions that an earlier scheduler has written.
const clearInterval = 10 * time.Second

// Options are what a writer reads and writes. All fields are required.
type Options struct {
	// Interval is the time between two forecasts: at most one write for each gang. With 0 no forecast is made, and the
	// conditions that exist are removed once.
	Interval time.Duration
	Cluster  Cluster
	Client   rest.Interface
	Synced   <-chan struct{}       // closed once all pods are known
	Errors   *metrics.HistogramVec // see NewErrors
}

// Cluster is what a writer reads.
type Cluster interface {
	// Leads reports whether this scheduler leads: no other one writes.
	Leads() bool
	// Waits reports whether any pod waits: otherwise no forecast is made.
	Waits() bool
	// Forecast makes a forecast. It is called beside the scheduling loop and bounds its own time.
	Forecast(context.Context) (*view.Forecast, error)
	// Groups returns all PodGroups, Pod a pod, nil for one that does not exist.
	Groups() []*v1alpha1.PodGroup
	Pod(namespace, name string) *corev1.Pod
	// Warn sends an Event about a pod that runs for longer than it declares.
	Warn(pod *corev1.Pod, message string)
}

// NewErrors returns the metric of errors, by what the estimate was based on and the direction.
func NewErrors() *metrics.HistogramVec {
	return metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: "tenon_expected_start_error_seconds",
		Help: "By how much the first estimate of when a pod or gang starts was wrong, by what it was based on " +
			"(declared or learned run times) and whether the start was early or late. 0 within the estimated range.",
		Buckets: metrics.ExponentialBuckets(1, 4, 9),
	}, []string{"basis", "start"})
}

// Writer publishes forecasts.
type Writer struct {
	Options
	promises forecast.Promises
	pods     map[string][]string             // of the units that waited at the last forecast
	said     map[types.UID]*metav1.Condition // of PodGroups; nil for one that was removed
	warned   map[types.UID]bool              // pods that ran for too long at the last forecast
}

// New returns a writer that does not run.
func New(o Options) *Writer {
	return &Writer{Options: o, pods: map[string][]string{}, said: map[types.UID]*metav1.Condition{}}
}

// Run publishes until ctx ends. A write that fails is made again after the next forecast.
func (w *Writer) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-w.Synced:
	}
	for {
		if w.Cluster.Leads() {
			err := w.publish(ctx)
			if err == nil && w.Interval == 0 {
				return
			}
			if err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Expected starts not published")
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(cmp.Or(w.Interval, clearInterval)):
		}
	}
}

// publish makes a forecast, measures what has started since the last one, and writes the conditions that changed.
func (w *Writer) publish(ctx context.Context) error {
	f := &view.Forecast{At: time.Now()}
	if w.Interval > 0 && w.Cluster.Waits() {
		var err error
		if f, err = w.Cluster.Forecast(ctx); err != nil {
			return fmt.Errorf("forecast: %w", err)
		}
	}
	waiting := map[string]*view.WaitingUnit{}
	for i := range f.Queue {
		waiting[f.Queue[i].Name] = &f.Queue[i]
	}
	w.measure(waiting)
	w.warn(f.Overdue)
	var failed []error
	exist := map[types.UID]bool{}
	for _, g := range w.Cluster.Groups() {
		exist[g.UID] = true
		unit := waiting["gang/"+g.Namespace+"/"+g.Name]
		if err := w.say(ctx, g, w.condition(g, unit, f.At)); err != nil {
			failed = append(failed, fmt.Errorf("PodGroup %s/%s: %w", g.Namespace, g.Name, err))
		}
	}
	for uid := range w.said {
		if !exist[uid] {
			delete(w.said, uid)
		}
	}
	return errors.Join(failed...)
}

// measure compares what has started with the first estimates, and notes those of the others.
func (w *Writer) measure(waiting map[string]*view.WaitingUnit) {
	for name, p := range w.promises.Gone(func(unit string) bool { return waiting[unit] != nil }) {
		started := w.started(w.pods[name])
		if started.IsZero() {
			continue // it was deleted
		}
		basis, direction, off := "declared", "late", p.Off(started)
		if p.Learned {
			basis = "learned"
		}
		if off < 0 {
			direction = "early"
		}
		w.Errors.WithLabelValues(basis, direction).Observe(off.Abs().Seconds())
	}
	clear(w.pods)
	for name, u := range waiting {
		w.pods[name] = u.Pods
		if s := u.Start; s != nil && s.State == view.StartsAfter {
			p := forecast.Promise{Early: *s.Earliest, Learned: s.Learned}
			if s.Latest != nil {
				p.Late = *s.Latest
			}
			w.promises.Note(name, p)
		}
	}
}

// warn sends an Event about each pod that has outlived its run time, once.
func (w *Writer) warn(overdue []view.Overdue) {
	was := w.warned
	w.warned = map[types.UID]bool{}
	for _, o := range overdue {
		namespace, name, _ := strings.Cut(o.Pod, "/")
		pod := w.Cluster.Pod(namespace, name)
		if pod == nil {
			continue
		}
		if !was[pod.UID] {
			w.Cluster.Warn(pod, o.Text()+"; what waits for its end starts later")
		}
		w.warned[pod.UID] = true
	}
}

// started returns when the first of some pods started; zero where none has a node.
func (w *Writer) started(pods []string) (first time.Time) {
	for _, name := range pods {
		namespace, name, _ := strings.Cut(name, "/")
		pod := w.Cluster.Pod(namespace, name)
		if pod == nil || pod.Spec.NodeName == "" {
			continue
		}
		if at := convert.Started(pod); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// condition returns what a PodGroup is to say: nil for one whose gang does not wait. A text names minutes, so that it
// seldom changes, and only what is in the namespace of the PodGroup.
func (w *Writer) condition(g *v1alpha1.PodGroup, u *view.WaitingUnit, now time.Time) *metav1.Condition {
	if u == nil {
		return nil
	}
	c := &metav1.Condition{
		Type: annotation.ExpectedStart, Status: metav1.ConditionUnknown, Reason: "NotEstimated",
		LastTransitionTime: metav1.NewTime(now), ObservedGeneration: g.Generation,
	}
	own := u.Start
	if own != nil {
		start := *own
		start.After = slices.DeleteFunc(slices.Clone(start.After), func(name string) bool {
			return !strings.HasPrefix(name[strings.IndexByte(name, '/')+1:], g.Namespace+"/")
		})
		own, c.Reason = &start, start.State
	}
	switch c.Reason {
	case view.StartsNow, view.StartsAfter:
		c.Status = metav1.ConditionTrue
	case view.StartsNever:
		c.Status = metav1.ConditionFalse
	}
	c.Message = own.Text(time.Time{}.UTC()) // of no day, so that each time has its own
	return c
}

// say writes a condition, or removes it, unless the PodGroup says so already.
func (w *Writer) say(ctx context.Context, g *v1alpha1.PodGroup, c *metav1.Condition) error {
	was, known := w.said[g.UID]
	if !known {
		was = meta.FindStatusCondition(g.Status.Conditions, annotation.ExpectedStart)
	}
	switch {
	case c == nil && was == nil, c != nil && was != nil && c.Reason == was.Reason && c.Message == was.Message:
		return nil
	case c != nil && was != nil && c.Status == was.Status:
		c.LastTransitionTime = was.LastTransitionTime
	}
	err := w.apply(ctx, g, c)
	if err == nil {
		w.said[g.UID] = c
	}
	return err
}

// apply writes the condition alone: the manager writes the others. An object that has gone needs none.
func (w *Writer) apply(ctx context.Context, g *v1alpha1.PodGroup, c *metav1.Condition) error {
	conditions := []metav1.Condition{}
	if c != nil {
		conditions = append(conditions, *c)
	}
	kind := g.GroupVersionKind()
	body, err := json.Marshal(map[string]any{
		"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind,
		"metadata": map[string]any{"name": g.Name, "namespace": g.Namespace, "uid": g.UID},
		"status":   map[string]any{"conditions": conditions},
	})
	if err != nil {
		return err
	}
	path := []string{"apis", kind.Group, kind.Version, "namespaces", g.Namespace, "podgroups", g.Name}
	patch := func(path ...string) error {
		return w.Client.Patch(types.ApplyPatchType).AbsPath(path...).Param("fieldManager", manager).Body(body).Do(ctx).
			Error()
	}
	err = patch(append(slices.Clone(path), "status")...)
	if apierrors.IsNotFound(err) && kind.Group != v1alpha1.NativeGroupName { // its status is not apart
		err = patch(path...)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
