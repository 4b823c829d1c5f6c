package app

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/report"
)

// Reasons of Events about agents, the API server and the kubelet.
const (
	secondAgent          = "SecondAgent"
	agentRestarted       = "AgentRestarted"
	apiServerUnreachable = "APIServerUnreachable"
	kubeletRestarted     = "KubeletRestarted"
)

// lastWord is how long a refused agent waits for the API.
const lastWord = 5 * time.Second

// reportRefused sends the Event of an agent that is refused, and waits until it is sent: the process ends next. Each
// Node has at most one such Event: the refused agent is usually restarted again and again.
func (a *Agent) reportRefused(ctx context.Context, why error) error {
	if a.o.Recorder == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lastWord)
	defer cancel()
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: a.o.Node}
	if node, err := a.o.Client.CoreV1().Nodes().Get(ctx, a.o.Node, metav1.GetOptions{}); err == nil {
		about.UID = node.UID
	}
	const suffix = ".tenon-second-agent"
	_, err := a.o.Client.EventsV1().Events(metav1.NamespaceDefault).Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault,
			Name:      a.o.Node[:min(len(a.o.Node), maxName-len(suffix))] + suffix,
		},
		EventTime: metav1.NewMicroTime(a.o.Clock.Now()), Regarding: about, Type: corev1.EventTypeWarning,
		Reason: secondAgent, Action: "Start", Note: shorten("an agent was refused: %v", why),
		ReportingController: eventController, ReportingInstance: instanceOf(a.o.Node),
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create an Event on the Node: %w", err)
	}
	return nil
}

// maxName is the API's limit for the name of an Event.
const maxName = 253

// reportUncleanEnd sends an Event when the previous agent was not stopped.
func (a *Agent) reportUncleanEnd() {
	if !a.held.unclean {
		return
	}
	now := a.o.Clock.Now()
	a.emitNode(report.Event{Warning: true, Reason: agentRestarted, Note: fmt.Sprintf(
		"the agent ended without being stopped: it was last known to work at %s, and is back at %s, at most %v "+
			"later; containers kept the CPUs that they had",
		moment(a.held.alive), moment(now), max(now.Sub(a.held.alive), 0).Round(time.Second))})
}

// reportOutage sends an Event about an outage of the API server that is over.
func (a *Agent) reportOutage(from, to time.Time) {
	a.emitNode(report.Event{Warning: true, Reason: apiServerUnreachable, Note: fmt.Sprintf(
		"the API server did not answer the agent from %s to %s, for %v: what was bound, changed or deleted meanwhile "+
			"takes effect from now on",
		moment(from), moment(to), to.Sub(from).Round(time.Second))})
}

// detectKubeletRestart sends an Event when the kubelet has restarted while the agent ran.
func (a *Agent) detectKubeletRestart() {
	if !a.o.Switches.QueryKubelet {
		return
	}
	now, found := host.PodResourcesSocket(a.o.Root)
	if !found {
		return // it is on its way, or does not serve it
	}
	a.mu.Lock()
	before := a.socket
	a.socket = now
	a.mu.Unlock()
	if before == now || before == (host.Socket{}) {
		return
	}
	a.o.Shared.Metrics.kubeletStarts.Inc()
	a.emitNode(report.Event{Reason: kubeletRestarted, Note: fmt.Sprintf(
		"the kubelet has started anew: it made its PodResources socket at %s, the one before was of %s",
		moment(now.Made), moment(before.Made))})
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }
