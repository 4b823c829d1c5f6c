package placement

import (
	"k8s.io/component-base/metrics"
)

// Metrics of the decisions, shared by all profiles.
type Metrics struct {
	hit, miss  metrics.CounterMetric // of questions to a node's account
	mismatches *metrics.Counter
	commits    *metrics.CounterVec
	place      *metrics.HistogramVec
	decisions  *metrics.CounterVec
}

// NewMetrics returns the metrics, registered by register.
func NewMetrics(register func(...metrics.Registerable)) *Metrics {
	memo := metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "tenon_place_memo_total",
		Help: "Questions of Filter to a node's account, by result: hit (an equal pod has asked since the " +
			"account changed), miss.",
	}, []string{"result"})
	m := &Metrics{
		mismatches: metrics.NewCounter(&metrics.CounterOpts{
			Name: "tenon_cpu_filter_reserve_mismatch_total",
			Help: "Nodes whose summary accepted a pod that the exact allocation then refused. Always 0.",
		}),
		commits: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "tenon_ledger_commits_total",
			Help: "Offers brought to a node's account, by result: ok, expired (the account had moved), refused.",
		}, []string{"result"}),
		place: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Name:    "tenon_place_seconds",
			Help:    "Time to compute and commit an exact allocation, by phase.",
			Buckets: metrics.ExponentialBuckets(1e-6, 4, 10),
		}, []string{"phase"}),
		decisions: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "tenon_decisions_total",
			Help: "Attempts that a plugin decided, by plugin and result: granted (CPUs reserved), refused " +
				"(root cause).",
		}, []string{"plugin", "result"}),
	}
	register(memo, m.mismatches, m.commits, m.place, m.decisions)
	m.hit, m.miss = memo.WithLabelValues("hit"), memo.WithLabelValues("miss")
	return m
}

// Decided counts an attempt for the plugin that decided it.
func (m *Metrics) Decided(plugin, result string) { m.decisions.WithLabelValues(plugin, result).Inc() }

func (m *Metrics) commit(result string) { m.commits.WithLabelValues(result).Inc() }
