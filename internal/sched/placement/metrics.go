package placement

import (
	"time"

	"k8s.io/component-base/metrics"
)

// Metrics of the decisions, shared by all profiles.
type Metrics struct {
	memo       memo
	mismatches *metrics.Counter
	commits    *metrics.CounterVec
	place      *metrics.HistogramVec
	decisions  *metrics.CounterVec
}

// Results of a commit.
const (
	committedOK      = "ok"
	committedExpired = "expired"
	committedRefused = "refused"
)

// NewMetrics returns the metrics, registered by register.
func NewMetrics(register func(...metrics.Registerable)) *Metrics {
	m := &Metrics{
		memo: newMemo(register),
		mismatches: metrics.NewCounter(&metrics.CounterOpts{
			Name:           "tenon_cpu_filter_reserve_mismatch_total",
			Help:           "Nodes whose summary accepted a pod that the exact allocation then refused. Always 0.",
			StabilityLevel: metrics.ALPHA,
		}),
		commits: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "tenon_ledger_commits_total",
			Help: "Offers brought to a node's account, by result: ok, expired (the account had moved), " +
				"refused.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"result"}),
		place: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Name:           "tenon_place_seconds",
			Help:           "Time to compute and commit an exact allocation, by phase.",
			Buckets:        metrics.ExponentialBuckets(1e-6, 4, 10),
			StabilityLevel: metrics.ALPHA,
		}, []string{"phase"}),
		decisions: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "tenon_decisions_total",
			Help: "Attempts that a plugin decided, by plugin and result: granted (CPUs reserved), refused " +
				"(root cause).",
			StabilityLevel: metrics.ALPHA,
		}, []string{"plugin", "result"}),
	}
	register(m.mismatches, m.commits, m.place, m.decisions)
	return m
}

// Decided counts an attempt for the plugin that decided it.
func (m *Metrics) Decided(plugin, result string) { m.decisions.WithLabelValues(plugin, result).Inc() }

func (m *Metrics) mismatch()            { m.mismatches.Inc() }
func (m *Metrics) commit(result string) { m.commits.WithLabelValues(result).Inc() }

func (m *Metrics) observePlace(phase string, d time.Duration) {
	m.place.WithLabelValues(phase).Observe(d.Seconds())
}
