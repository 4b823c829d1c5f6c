package app

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/report"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// emitRecord sends the Event of what the engine did to a file of the cgroup tree.
func (a *Agent) emitRecord(r apply.Record) {
	a.drifts.note(r, a.o.Clock.Now())
	m := a.o.Shared.Metrics
	var note string
	warn := true
	switch r.Kind {
	case apply.Drifted, apply.EffectiveWiderThanDesired:
		m.drift.WithLabelValues(r.Kind.String()).Inc()
		note = "container %q: %s of %s is %q, want %q"
	case apply.DriftRepaired:
		note, warn = "container %q: %s of %s is %q again (want %q)", false
	case apply.EnforcementFailed:
		m.failures.WithLabelValues(r.Kind.String()).Inc()
		a.event(podRef(r), true, r.Kind.String(), "Enforce", "container %q: %s of %s cannot be set to %q: %v",
			r.Container, r.File, r.Group, r.Want, r.Err)
		return
	case apply.AllocationRefused:
		m.failures.WithLabelValues(r.Kind.String()).Inc()
		a.event(podRef(r), true, r.Kind.String(), "Enforce",
			"the pod keeps CPUs %s; they are not changed to %q while it runs",
			r.Got, r.Want)
		return
	case apply.CheckpointLost:
		m.failures.WithLabelValues(r.Kind.String()).Inc()
		a.emitNode(report.Event{
			Warning: true, Reason: r.Kind.String(),
			Note: fmt.Sprintf("the record of granted CPUs cannot be used; it is rebuilt from the cgroup tree: %v",
				r.Err),
		})
		return
	case apply.OrphanHeld:
		a.emitNode(report.Event{
			Reason: r.Kind.String(),
			Note: fmt.Sprintf("group %s of a pod that the API does not know keeps CPUs %s until it is empty", r.Group,
				r.Got),
		})
		return
	default:
		return
	}
	a.event(podRef(r), warn, r.Kind.String(), "Enforce", note, r.Container, r.File, r.Group, r.Got, r.Want)
}

// topologyChanged is the Event for a machine that became another one.
func topologyChanged(old, now *topo.Machine) report.Event {
	return report.Event{Warning: true, Reason: "TopologyChanged", Note: fmt.Sprintf(
		"the machine has CPUs %s on %d NUMA nodes, it had %s on %d: what pods hold of CPUs that are gone is left out",
		now.FormatList(now.Online()), now.NumNUMA(), old.FormatList(old.Online()), old.NumNUMA())}
}

// timed takes how long a pass of the engine took.
func (a *Agent) timed(d time.Duration) {
	a.passed.beat(a.o.Clock.Now())
	a.o.Shared.Metrics.apply.WithLabelValues(pathReconcile).Observe(d.Seconds())
}

func podRef(r apply.Record) *corev1.ObjectReference {
	if r.Name == "" {
		return nil // a group of an unknown pod
	}
	return podObject(r.Namespace, r.Name, types.UID(r.UID))
}

// emitNode sends an Event about the Node.
func (a *Agent) emitNode(e report.Event) {
	ref := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: a.o.Node}
	if node := a.currentNode(); node != nil {
		ref.UID = node.UID
	}
	a.event(ref, e.Warning, e.Reason, "Publish", "%s", e.Note)
}

// emitCondition sends the Event that goes with a condition that has come to hold.
func (a *Agent) emitCondition(c corev1.NodeCondition) {
	a.o.Shared.Metrics.writes.WithLabelValues(string(c.Type)).Inc()
	if c.Status == corev1.ConditionTrue {
		a.emitNode(report.Event{
			Warning: true, Reason: strings.TrimPrefix(string(c.Type), "tenon.sh/"),
			Note: c.Message,
		})
	}
}

// maxNote is the API's limit for the text of an Event.
const maxNote = 1024

func (a *Agent) event(about *corev1.ObjectReference, warn bool, reason, action, note string, args ...any) {
	if a.o.Recorder == nil || about == nil {
		return
	}
	kind := corev1.EventTypeNormal
	if warn {
		kind = corev1.EventTypeWarning
	}
	text := shorten(note, args...)
	a.o.Recorder.Eventf(about, nil, kind, reason, action, "%s", text)
}

func shorten(note string, args ...any) string {
	text := fmt.Sprintf(note, args...)
	if len(text) > maxNote {
		return strings.ToValidUTF8(text[:maxNote-len("…")], "") + "…"
	}
	return text
}
