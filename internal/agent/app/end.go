package app

import (
	"time"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/report"
	"github.com/tenon-project/tenon/internal/agent/status"
)

// Reasons of Events about agents and the API server.
const (
	agentRestarted       = "AgentRestarted"
	apiServerUnreachable = "APIServerUnreachable"
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
	if !a.lock.Unclean {
		return
	}
	now := a.o.Clock.Now()
	a.status.Warn(agentRestarted,
		"the agent ended without being stopped: it was last known to work at %s, and is back at %s, at most %v "+
			"later; containers kept the CPUs that they had",
		moment(a.lock.Alive), moment(now), max(now.Sub(a.lock.Alive), 0).Round(time.Second))
}

// reportOutage sends an Event about an outage of the API server that is over.
func (a *Agent) reportOutage(from, to time.Time) {
	a.status.Warn(apiServerUnreachable,
		"the API server did not answer the agent from %s to %s, for %v: what was bound, changed or deleted meanwhile "+
			"takes effect from now on",
		moment(from), moment(to), to.Sub(from).Round(time.Second))
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }
