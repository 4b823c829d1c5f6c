package quotastatus

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/quota"
)

const (
	// scanInterval is the time between two looks at all quotas, writeInterval between two writes.
	scanInterval  = time.Second
	writeInterval = time.Second / 20
	// resyncInterval is the time between two lists of all objects, which find what other writers changed.
	resyncInterval = 5 * time.Minute
)

// Quotas are the quotas of the cluster.
type Quotas interface {
	Reports() []quota.Report
	Read(f func(*quota.Account))
}

// Controller writes. One at a time may run: the leader's.
type Controller struct {
	quotas Quotas
	client dynamic.Interface

	records map[object]*record
	queue   []*record // those to be written, first those whose values changed first
	// apart are the groups whose API ignores status in a write of the object.
	apart map[string]bool
}

// object identifies an ElasticQuota.
type object struct{ group, namespace, name string }

// record is one object.
type record struct {
	object
	says   statement    // as it was last read or written
	report quota.Report // of the last scan
	queued bool
}

// New returns a controller that does not run.
func New(quotas Quotas, client dynamic.Interface) *Controller {
	return &Controller{quotas: quotas, client: client, records: map[object]*record{}, apart: map[string]bool{}}
}

// Start writes until ctx ends.
func (c *Controller) Start(ctx context.Context) error {
	tick := time.NewTicker(writeInterval)
	defer tick.Stop()
	var listed, scanned time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if now.Sub(scanned) >= scanInterval {
				scanned = now
				if now.Sub(listed) >= resyncInterval {
					if err := c.list(ctx); err != nil {
						klog.FromContext(ctx).Error(err, "Quota objects not listed")
						continue
					}
					listed = now
				}
				c.scan()
			}
			if err := c.writeNext(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Quota status not written")
			}
		}
	}
}

// list reads what all objects say. A group that the API server does not have has none.
func (c *Controller) list(ctx context.Context) error {
	for _, group := range v1alpha1.Groups() {
		list, err := c.client.Resource(v1alpha1.Resource(group)).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("list quotas of %s: %w", group, err)
		}
		for i := range list.Items {
			o := object{group, list.Items[i].GetNamespace(), list.Items[i].GetName()}
			r := c.record(o)
			r.says, r.report = readStatement(&list.Items[i]), quota.Report{}
		}
	}
	return nil
}

func (c *Controller) record(o object) *record {
	r := c.records[o]
	if r == nil {
		r = &record{object: o}
		c.records[o] = r
	}
	return r
}

// scan queues the objects that do not say what their quota is.
func (c *Controller) scan() {
	reports := c.quotas.Reports()
	objects := make([]object, len(reports))
	c.quotas.Read(func(a *quota.Account) {
		for i := range reports {
			if q := a.Forest().Find(reports[i].Name); q != nil {
				objects[i] = object{q.Spec().Group, q.Spec().Namespace, q.Name()}
			}
		}
	})
	known := c.records
	c.records = make(map[object]*record, len(known))
	for i, o := range objects {
		if o.group == "" { // a quota without object
			continue
		}
		if r := known[o]; r != nil {
			c.records[o] = r
		}
		r := c.record(o)
		if reflect.DeepEqual(r.report, reports[i]) {
			continue
		}
		r.report = reports[i]
		if !r.queued && !r.says.equals(newStatement(&r.report)) {
			r.queued = true
			c.queue = append(c.queue, r)
		}
	}
}

// writeNext writes the newest values of the object that has waited longest.
func (c *Controller) writeNext(ctx context.Context) error {
	for len(c.queue) > 0 {
		r := c.queue[0]
		c.queue = c.queue[1:]
		r.queued = false
		if is := newStatement(&r.report); c.records[r.object] == r && !r.says.equals(is) {
			return c.write(ctx, r, is)
		}
	}
	return nil
}

// write makes an object say what a statement does, and changes nothing else of it. Where status is apart, that is the
// next write.
func (c *Controller) write(ctx context.Context, r *record, is statement) error {
	body, subresources := r.says.patchTo(is), []string(nil)
	if c.apart[r.group] && r.says.annotationsEqual(is) {
		body, subresources = r.says.patchTo(statement{used: is.used}), []string{"status"}
	}
	got, err := c.client.Resource(v1alpha1.Resource(r.group)).Namespace(r.namespace).Patch(ctx, r.name,
		types.MergePatchType, body, metav1.PatchOptions{FieldManager: "tenon-manager"}, subresources...)
	if apierrors.IsNotFound(err) {
		return nil // so will be its quota
	}
	if err != nil {
		r.report = quota.Report{} // the next scan queues it again
		return fmt.Errorf("write quota %s/%s: %w", r.namespace, r.name, err)
	}
	if r.says = readStatement(got); subresources == nil && !equality.Semantic.DeepEqual(r.says.used, is.used) {
		c.apart[r.group], r.queued = true, true
		c.queue = append([]*record{r}, c.queue...)
	}
	return nil
}
