package status

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"

	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/inject"
)

// Event sends an Event about the Node.
func (r *Reporter) Event(reason event.Reason, note string, args ...any) {
	r.send(r.node(), reason, "Publish", note, args...)
}

func (r *Reporter) node() *corev1.ObjectReference {
	ref := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: r.o.Node}
	if node := r.o.Agent.CurrentNode(); node != nil {
		ref.UID = node.UID
	}
	return ref
}

// Record reports what the engine found in a file of the cgroup tree, or did to it.
func (r *Reporter) Record(c apply.Record) {
	kind := c.Kind.String()
	reason, _ := event.Parse(kind) // a test holds that each kind is listed
	send := func(note string, args ...any) {
		if c.Name != "" { // else a group of an unknown pod
			r.send(podObject(c.Namespace, c.Name, types.UID(c.UID)), reason, "Enforce", note, args...)
		}
	}
	switch c.Kind {
	case apply.Drifted, apply.EffectiveWiderThanDesired:
		r.o.Metrics.Drift.WithLabelValues(kind).Inc()
		send("container %q: %s of %s is %q, want %q", c.Container, c.File, c.Group, c.Got, c.Want)
	case apply.DriftRepaired:
		send("container %q: %s of %s is %q again (want %q)", c.Container, c.File, c.Group, c.Got, c.Want)
	case apply.EnforcementFailed:
		r.o.Metrics.Failures.WithLabelValues(kind).Inc()
		send("container %q: %s of %s cannot be set to %q: %v", c.Container, c.File, c.Group, c.Want, c.Err)
	case apply.AllocationRefused:
		r.o.Metrics.Failures.WithLabelValues(kind).Inc()
		send("the pod keeps CPUs %s; they are not changed to %q while it runs", c.Got, c.Want)
	case apply.CheckpointLost:
		r.o.Metrics.Failures.WithLabelValues(kind).Inc()
		r.Event(reason, "the record of granted CPUs cannot be used; it is rebuilt from the cgroup tree: %v", c.Err)
	case apply.OrphanHeld:
		r.Event(reason, "cgroup %s of a pod that is not in the API holds CPUs %s until it is empty", c.Group, c.Got)
	}
}

// Blocked reports a container that was held back, or should have been.
func (r *Reporter) Blocked(t hook.Trouble) {
	code := t.Err.Cause.Error()
	reason, _ := event.Parse(code) // a test holds that each cause is listed
	note, count := "container %q does not start: %s", r.o.Metrics.Failures
	switch {
	case errors.Is(t.Err, inject.ErrMismatch):
		note, count = "container %q runs: %s", r.o.Metrics.Drift
		r.o.Metrics.Mismatch.WithLabelValues(r.o.Node, SourceKernel).Inc()
	case t.LetPass:
		note = "container %q starts all the same, as its pod uses nothing of Tenon: %s"
	}
	count.WithLabelValues(code).Inc()
	r.send(podObject(t.Namespace, t.Name, types.UID(t.UID)), reason, "Start", note, t.Container, t.Err.Detail)
}

// Timed counts a pass over the cgroup tree.
func (r *Reporter) Timed(d time.Duration) {
	r.o.Metrics.Apply.WithLabelValues(PathReconcile).Observe(d.Seconds())
}

// Overridden counts an update of a container that was answered with other values.
func (r *Reporter) Overridden() { r.o.Metrics.Overridden.Inc() }

// Injected counts an answer about the devices of a container.
func (r *Reporter) Injected(d time.Duration) {
	r.o.Metrics.Injection.WithLabelValues(r.o.Node).Observe(d.Seconds())
}

// Caught counts a container that was about to be created with other devices than its own.
func (r *Reporter) Caught() { r.o.Metrics.Caught.WithLabelValues(r.o.Node).Inc() }

// MemoryExceeded reports that the processes of a pod use more bytes of a GPU's memory than were allocated.
func (r *Reporter) MemoryExceeded(pod *corev1.Pod, gpu string, used, allocated int64) {
	r.o.Metrics.Mismatch.WithLabelValues(r.o.Node, SourceNVML).Inc()
	r.send(podObject(pod.Namespace, pod.Name, pod.UID), event.DeviceMemoryExceeded, "Compare",
		"its processes use %d MiB of the memory of %s, and %d MiB are allocated", used>>20, gpu, allocated>>20)
}

// lastWord is how long a refused agent waits for the API.
const lastWord = 5 * time.Second

// Refused sends the Event of an agent that is refused, and waits until it is sent: the process ends next. Each Node has
// at most one such Event: the refused agent is usually restarted again and again.
func (r *Reporter) Refused(ctx context.Context, why error) error {
	if r.o.Recorder == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lastWord)
	defer cancel()
	about := *r.node()
	if node, err := r.o.Client.CoreV1().Nodes().Get(ctx, r.o.Node, metav1.GetOptions{}); err == nil {
		about.UID = node.UID
	}
	const suffix = ".tenon-second-agent"
	_, err := r.o.Client.EventsV1().Events(metav1.NamespaceDefault).Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault,
			Name:      r.o.Node[:min(len(r.o.Node), maxName-len(suffix))] + suffix,
		},
		EventTime: metav1.NewMicroTime(r.o.Clock.Now()), Regarding: about, Type: event.SecondAgent.Type(),
		Reason: event.SecondAgent.String(), Action: "Start", Note: shorten("an agent was refused: %v", why),
		ReportingController: Controller, ReportingInstance: instanceOf(r.o.Node),
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create an Event on the Node: %w", err)
	}
	return nil
}

// Restarted reports that the previous agent was not stopped, and was last known to work at a time.
func (r *Reporter) Restarted(alive time.Time) {
	now := r.o.Clock.Now()
	r.Event(event.AgentRestarted,
		"the agent ended without being stopped: it was last known to work at %s, and is back at %s, at most %v "+
			"later; containers kept the CPUs that they had",
		Moment(alive), Moment(now), max(now.Sub(alive), 0).Round(time.Second))
}

// Outage reports an outage of the API server that is over.
func (r *Reporter) Outage(from, to time.Time) {
	r.Event(event.APIServerUnreachable,
		"the API server did not answer the agent from %s to %s, for %v: what was bound, changed or deleted meanwhile "+
			"takes effect from now on", Moment(from), Moment(to), to.Sub(from).Round(time.Second))
}

// Moment writes a time as Events have it.
func Moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// maxName is the API's limit for the name of an Event, maxNote that for its text.
const (
	maxName = 253
	maxNote = 1024
)

func (r *Reporter) send(about *corev1.ObjectReference, reason event.Reason, action, note string, args ...any) {
	if r.o.Recorder != nil {
		r.o.Recorder.Eventf(about, nil, reason.Type(), reason.String(), action, "%s", shorten(note, args...))
	}
}

func shorten(note string, args ...any) string {
	text := fmt.Sprintf(note, args...)
	if len(text) > maxNote {
		return strings.ToValidUTF8(text[:maxNote-len("…")], "") + "…"
	}
	return text
}

func podObject(namespace, name string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: uid}
}

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
