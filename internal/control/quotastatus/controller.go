package quotastatus

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/quota"
)

const (
	// scanInterval is the time between two looks at all quotas, writeInterval between two writes.
	scanInterval  = time.Second
	writeInterval = time.Second / 20
	// laterShare: of so many writes one is left to annotations that take a write of their own.
	laterShare = 10
)

// Options are what a controller reads and writes.
type Options struct {
	// Quotas describes all quotas, and Problems what is wrong with the objects of one.
	Quotas   func() []quota.Report
	Problems func(name string) []string
	// Object returns an ElasticQuota as it was shown last; nil where there is none.
	Object func(group, namespace, name string) *v1alpha1.ElasticQuota
	Client dynamic.Interface
	Events events.EventRecorder
	Writes *prometheus.CounterVec // by outcome: written or failed
}

// Controller writes. One at a time may run: the leader's.
type Controller struct {
	Options
	records map[object]*record
	// now is the queue of writes with status, later that of annotations where they take a write of their own; in each
	// those come first that have waited longest.
	now, later []job
	writes     int
	// apart are the groups whose API ignores status in a write of the object.
	apart map[string]bool
}

// object identifies an ElasticQuota.
type object struct{ group, namespace, name string }

// record is one object.
type record struct {
	object
	report  quota.Report           // of the last scan
	shown   *v1alpha1.ElasticQuota // by the last scan; nil to compare again
	wrote   string                 // the resource version of the last write
	waiting part                   // in a queue
	sent    []string               // the problems that Events were sent about
}

// job is parts of an object that wait for one write.
type job struct {
	*record
	parts part
}

// New returns a controller that does not run.
func New(o Options) *Controller {
	return &Controller{Options: o, records: map[object]*record{}, apart: map[string]bool{}}
}

// Start writes until ctx ends.
func (c *Controller) Start(ctx context.Context) error {
	tick := time.NewTicker(writeInterval)
	defer tick.Stop()
	var scanned time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if now.Sub(scanned) >= scanInterval {
				scanned = now
				c.scan()
			}
			if err := c.writeNext(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Quota status not written")
			}
		}
	}
}

// scan queues the objects that do not say what their quota is.
func (c *Controller) scan() {
	known := c.records
	c.records = make(map[object]*record, len(known))
	for _, report := range c.Quotas() {
		o := object{report.Group, report.Namespace, report.Name}
		shown := c.Object(o.group, o.namespace, o.name)
		if shown == nil { // a quota without object
			continue
		}
		r := known[o]
		if r == nil {
			r = &record{object: o}
		}
		c.records[o] = r
		c.report(r, shown)
		if r.shown == shown && reflect.DeepEqual(r.report, report) || isOlder(shown.ResourceVersion, r.wrote) {
			continue
		}
		r.report, r.shown = report, shown
		c.queue(r)
	}
}

// queue makes an object wait for the writes that it may need and does not wait for.
func (c *Controller) queue(r *record) {
	if !c.apart[r.group] {
		c.now = r.enqueue(c.now, used|annotations)
		return
	}
	c.now = r.enqueue(c.now, used)
	c.later = r.enqueue(c.later, annotations)
}

func (r *record) enqueue(queue []job, parts part) []job {
	if r.waiting&parts != 0 {
		return queue
	}
	r.waiting |= parts
	return append(queue, job{r, parts})
}

// isOlder reports whether a version of an object came before the one that a write made.
func isOlder(version, wrote string) bool {
	order, err := resourceversion.CompareResourceVersion(version, wrote)
	return wrote != "" && err == nil && order < 0
}

// report sends an Event about each problem of an object that is new.
func (c *Controller) report(r *record, shown *v1alpha1.ElasticQuota) {
	problems := c.Problems(r.name)
	for _, text := range problems {
		if !slices.Contains(r.sent, text) {
			e := event.QuotaNotFollowed
			c.Events.Eventf(shown, nil, e.Type(), e.String(), "Follow", "%s", text)
		}
	}
	r.sent = problems
}

// writeNext writes the newest values of the object that has waited longest.
func (c *Controller) writeNext(ctx context.Context) error {
	for len(c.now)+len(c.later) > 0 {
		from := &c.now
		if len(c.now) == 0 || c.writes%laterShare == 0 && len(c.later) > 0 {
			from = &c.later
		}
		j := (*from)[0]
		*from = (*from)[1:]
		j.waiting &^= j.parts
		switch {
		case c.records[j.object] != j.record || j.shown == nil: // it is gone, or compared again by the next scan
		case j.parts == used|annotations && c.apart[j.group]:
			c.queue(j.record)
		default:
			says := newStatement(&j.report)
			if body := says.patch(j.shown, j.parts); body != nil {
				c.writes++
				return c.write(ctx, j, says, body)
			}
		}
	}
	return nil
}

// write changes parts of an object, and nothing else of it.
func (c *Controller) write(ctx context.Context, j job, says statement, body []byte) error {
	var subresources []string
	if j.parts == used {
		subresources = []string{"status"}
	}
	got, err := c.Client.Resource(v1alpha1.Resource(j.group)).Namespace(j.namespace).Patch(ctx, j.name,
		types.MergePatchType, body, metav1.PatchOptions{FieldManager: "tenon-manager"}, subresources...)
	switch {
	case apierrors.IsNotFound(err): // so will be its quota
		return nil
	case err != nil:
		j.shown = nil // the next scan queues it again
		c.Writes.WithLabelValues("failed").Inc()
		return fmt.Errorf("write quota %s/%s: %w", j.namespace, j.name, err)
	}
	c.Writes.WithLabelValues("written").Inc()
	j.wrote = got.GetResourceVersion()
	if j.parts == used|annotations && !says.isUsed(got) {
		c.apart[j.group] = true
		c.now = j.enqueue(c.now, used)
	}
	return nil
}
