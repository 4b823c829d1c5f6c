package app

import (
	"context"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
)

// eventSink sends Events that say which node's agent they are from: the admission policy of agents wants it, as an
// Event about a pod does not show where that runs.
type eventSink struct {
	events.EventSinkImpl
	instance string
}

// eventController is the reportingController of all agents.
const eventController = "tenon-agent"

// maxInstance is the API's limit for reportingInstance.
const maxInstance = 128

func newEventSink(client kubernetes.Interface, node string) *eventSink {
	return &eventSink{events.EventSinkImpl{Interface: client.EventsV1()}, instanceOf(node)}
}

// instanceOf is the reportingInstance of a node's agent.
func instanceOf(node string) string {
	instance := eventController + "-" + node
	return instance[:min(len(instance), maxInstance)]
}

// Create implements events.EventSink.
func (s *eventSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	e = e.DeepCopy()
	e.ReportingInstance = s.instance
	return s.EventSinkImpl.Create(ctx, e)
}
