package app

import (
	"time"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/report"
	"github.com/tenon-project/tenon/internal/agent/status"
)

// Reasons of Events about agents, the API server and the kubelet.
const (
	agentRestarted       = "AgentRestarted"
	apiServerUnreachable = "APIServerUnreachable"
	kubeletRestarted     = "KubeletRestarted"
)

// emit sends an Event of a reporter.
func (a *Agent) emit(e report.Event) {
	if e.Warning {
		a.status.Warn(e.Reason, "%s", e.Note)
	} else {
		a.status.Event(e.Reason, "%s", e.Note)
	}
}

// record takes what the engine found in a file of the cgroup tree, or did to it.
func (a *Agent) record(r apply.Record) {
	a.drifts.note(r, a.o.Clock.Now())
	a.status.Record(r)
}

// timed takes how long a pass of the engine took.
func (a *Agent) timed(d time.Duration) {
	a.passed.beat(a.o.Clock.Now())
	a.o.Shared.Metrics.Apply.WithLabelValues(status.PathReconcile).Observe(d.Seconds())
}

// reportUncleanEnd sends an Event when the previous agent was not stopped.
func (a *Agent) reportUncleanEnd() {
	if !a.held.unclean {
		return
	}
	now := a.o.Clock.Now()
	a.status.Warn(agentRestarted,
		"the agent ended without being stopped: it was last known to work at %s, and is back at %s, at most %v "+
			"later; containers kept the CPUs that they had",
		moment(a.held.alive), moment(now), max(now.Sub(a.held.alive), 0).Round(time.Second))
}

// reportOutage sends an Event about an outage of the API server that is over.
func (a *Agent) reportOutage(from, to time.Time) {
	a.status.Warn(apiServerUnreachable,
		"the API server did not answer the agent from %s to %s, for %v: what was bound, changed or deleted meanwhile "+
			"takes effect from now on",
		moment(from), moment(to), to.Sub(from).Round(time.Second))
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
	a.o.Shared.Metrics.KubeletStarts.Inc()
	a.status.Event(kubeletRestarted,
		"the kubelet has started anew: it made its PodResources socket at %s, the one before was of %s",
		moment(now.Made), moment(before.Made))
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }
