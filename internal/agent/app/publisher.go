package app

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/event"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/agent/report"
	"github.com/tenon-project/tenon/internal/agent/statedir"
	"github.com/tenon-project/tenon/internal/agent/status"
)

// reportFile has the generation of what was published last: it grows over a restart also when the object was deleted
// meanwhile.
const reportFile = "report.json"

// publisherOptions are what a publisher needs.
type publisherOptions struct {
	Node string
	// Boot is the kernel's boot id.
	Boot string
	// Version is that of NodeResourceTopology to use.
	Version schema.GroupVersion
	// Numatopology: the node's Numatopology is published too.
	Numatopology bool
	Source       source

	API     *apiServer
	Dynamic dynamic.Interface
	Dir     statedir.Dir
	Status  *status.Reporter
	Clock   clock.Clock
}

// source has what is published: it is the Agent.
type source interface {
	// fullInput returns what is known now, isSynced whether all of the node is.
	fullInput() probe.Input
	isSynced() bool
	// deviceObject returns the node's Device, given the one in the API; nil for none.
	deviceObject(in probe.Input, published *devicev1alpha1.Device) *devicev1alpha1.Device
	// reportUse returns what the node's NodeMetric reports under a policy; nil while it is not known.
	reportUse(*slo.NodeMetricCollectPolicy) *slo.NodeMetricStatus
}

// publisher publishes one node. It is safe for concurrent use.
type publisher struct {
	o          publisherOptions
	topologies cache.SharedIndexInformer
	reporter   *report.Reporter
	volcano    *report.NumatopologyReporter // nil unless it is asked for
	devices    *report.DeviceReporter
	use        *report.MetricReporter
}

// newPublisher returns a publisher whose parts do not run yet.
func newPublisher(ctx context.Context, o publisherOptions) (*publisher, error) {
	p := &publisher{o: o, topologies: o.API.object(o.Version.WithResource("noderesourcetopologies"))}
	last, err := p.last()
	if err != nil {
		klog.FromContext(ctx).Error(err, "The generation of the node's topology continues from that in the API", "node",
			o.Node)
	}
	p.reporter = report.New(report.Options{
		Target:  p.target("NodeResourceTopology", o.API.topologies(o.Version)),
		Version: o.Version, Boot: o.Boot,
		Source: owned(o.Source, probe.Topology),
		Last:   last, Keep: func(r annotation.Report) error { return o.Dir.Write(reportFile, annotation.Encode(r)) },
		Emit: o.Status.Event,
	})
	if o.Numatopology {
		p.volcano = report.NewNumatopology(p.target("Numatopology", o.Dynamic.Resource(nodeinfo.Resource())),
			owned(o.Source, probe.Numatopology))
	}
	p.devices = report.NewDevice(p.target("Device", o.Dynamic.Resource(devicev1alpha1.Resource())),
		func(published *devicev1alpha1.Device) *devicev1alpha1.Device {
			if in := o.Source.fullInput(); in.Node != nil {
				return o.Source.deviceObject(in, published)
			}
			return published
		})
	p.use = report.NewMetric(p.target(slo.NodeMetricKind, o.Dynamic.Resource(slo.NodeMetrics())), o.Source.reportUse)
	return p, handle(p.topologies, p.reporter.Observe,
		func(*unstructured.Unstructured) { p.reporter.Observe(nil) })
}

// owned returns an object of what a source knows; nil without the Node, as the object would have no owner.
func owned[T any](s source, object func(probe.Input) *T) func() *T {
	return func() *T {
		if in := s.fullInput(); in.Node != nil {
			return object(in)
		}
		return nil
	}
}

func (p *publisher) target(kind string, objects dynamic.ResourceInterface) report.Target {
	return report.Target{
		Objects: objects, Node: p.o.Node, SetConflict: p.o.Status.Condition(event.TopologyWriterConflict, kind),
		Clock: p.o.Clock,
	}
}

// last returns the report that was kept last; the zero Report when there is none that can be read.
func (p *publisher) last() (annotation.Report, error) {
	text, err := p.o.Dir.Read(reportFile)
	if err != nil || text == "" {
		return annotation.Report{}, err
	}
	r, _, err := annotation.ParseReport(text)
	if err != nil {
		return annotation.Report{}, fmt.Errorf("%s: %w", p.o.Dir.Path(reportFile), err)
	}
	return r, nil
}

// Parts are what runs until its context ends.
func (p *publisher) Parts() []func(context.Context) error {
	parts := []func(context.Context) error{
		func(ctx context.Context) error { p.topologies.RunWithContext(ctx); return nil },
		p.reporter.Run, p.o.API.waitOutdated,
		func(ctx context.Context) error { return p.run(ctx, devicev1alpha1.Resource(), p.devices) },
		func(ctx context.Context) error { return p.run(ctx, slo.NodeMetrics(), p.use) },
	}
	if p.volcano != nil {
		parts = append(parts, func(ctx context.Context) error {
			return p.run(ctx, nodeinfo.Resource(), p.volcano)
		})
	}
	return parts
}

// objectReporter keeps one object of the node in the API equal to its source.
type objectReporter interface {
	// Observe takes the object as the API has it after each change there; nil once there is none.
	Observe(object *unstructured.Unstructured)
	// Run works until ctx ends, and returns nil then.
	Run(ctx context.Context) error
}

// run waits until the API serves a resource, then keeps the node's object until ctx ends.
func (p *publisher) run(ctx context.Context, resource schema.GroupVersionResource, r objectReporter) error {
	if p.o.API.waitServed(ctx, resource) != nil || !cache.WaitForCacheSync(ctx.Done(), p.o.Source.isSynced) {
		return nil
	}
	inf := p.o.API.object(resource)
	err := handle(inf, r.Observe, func(*unstructured.Unstructured) { r.Observe(nil) })
	if err != nil {
		return err
	}
	watched := make(chan struct{})
	go func() { defer close(watched); inf.RunWithContext(ctx) }()
	defer func() { <-watched }()
	if !cache.WaitForCacheSync(ctx.Done(), inf.HasSynced) {
		return nil
	}
	if len(inf.GetStore().ListKeys()) == 0 {
		r.Observe(nil)
	}
	return r.Run(ctx)
}

// Synced reports whether the object in the API, or its absence, is known.
func (p *publisher) Synced() bool { return p.topologies.HasSynced() }

// Begin lets the first object be written where the API has none.
func (p *publisher) Begin() {
	if len(p.topologies.GetStore().ListKeys()) == 0 {
		p.reporter.Observe(nil)
	}
}

// Changed asks for a look whether there is something new.
func (p *publisher) Changed() {
	p.reporter.Changed()
	p.devices.Changed()
	if p.volcano != nil {
		p.volcano.Changed()
	}
}

// Age returns how long ago the published topology was last known to be up to date; false while it never was.
func (p *publisher) Age() (time.Duration, bool) { return p.reporter.Age() }

// Published returns an annotation of the object in the API.
func (p *publisher) Published(key string) string {
	obj, ok, err := p.topologies.GetStore().GetByKey(p.o.Node)
	if !ok || err != nil {
		return ""
	}
	return obj.(*unstructured.Unstructured).GetAnnotations()[key]
}
