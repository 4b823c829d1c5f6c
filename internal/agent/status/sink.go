package status

import (
	"context"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
)

// sink sends Events that say which node's agent they are from: the admission policy of agents wants it, as an
// Event about a pod does not show where that runs.
type sink struct {
	events.EventSinkImpl
	instance string
}

// Controller is the reportingController of all agents.
const Controller = "tenon-agent"

// NewSink returns a sink for the Events of one node's agent.
func NewSink(client kubernetes.Interface, node string) events.EventSink {
	return &sink{events.EventSinkImpl{Interface: client.EventsV1()}, instanceOf(node)}
}

// instanceOf is the reportingInstance of a node's agent.
func instanceOf(node string) string {
	instance := Controller + "-" + node
	return instance[:min(len(instance), 128)] // the API's limit
}

// Create implements events.EventSink.
func (s *sink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	e = e.DeepCopy()
	e.ReportingInstance = s.instance
	return s.EventSinkImpl.Create(ctx, e)
}
