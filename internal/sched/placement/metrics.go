package placement

import (
	"strconv"

	"k8s.io/component-base/metrics"

	"github.com/tenon-project/tenon/internal/core/device"
)

// Metrics of the decisions, shared by all profiles.
type Metrics struct {
	hit, miss metrics.CounterMetric // of questions to a node's account
	// mismatches counts nodes that Filter accepted and Reserve refused on the same account, which must not happen.
	mismatches *metrics.Counter
	// commits counts offers by their end.
	commits *metrics.CounterVec
	// place has the time that an exact allocation takes.
	place *metrics.HistogramVec
	// decisions counts attempts by plugin and result.
	decisions *metrics.CounterVec
	// regret is what the GPUs that pods get together miss to the best links that the node has.
	regret *metrics.HistogramVec
}

// NewMetrics returns the metrics, registered by register.
func NewMetrics(register func(...metrics.Registerable)) *Metrics {
	memo := metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "tenon_place_memo_total",
		Help: "Lookups of Filter in a node's account, by result: hit (an equal pod was tried since the account " +
			"changed), miss.",
	}, []string{"result"})
	m := &Metrics{
		mismatches: metrics.NewCounter(&metrics.CounterOpts{
			Name: "tenon_cpu_filter_reserve_mismatch_total",
			Help: "Nodes whose summary accepted a pod that the exact allocation then refused. Always 0.",
		}),
		commits: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "tenon_ledger_commits_total",
			Help: "Offers committed to a node's account, by result: ok, expired (the account had changed), refused.",
		}, []string{"result"}),
		place: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Name:    "tenon_place_seconds",
			Help:    "Time to compute and commit an exact allocation, by phase.",
			Buckets: metrics.ExponentialBuckets(1e-6, 4, 10),
		}, []string{"phase"}),
		decisions: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "tenon_decisions_total",
			Help: "Attempts that a plugin decided, by plugin and result: granted (CPUs reserved) or refused (root " +
				"cause).",
		}, []string{"plugin", "result"}),
		regret: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Name: "tenon_device_link_regret",
			Help: "Links that a pod with several GPUs misses: the weight of the best set of as many on the node " +
				"without pods, minus that of the set that the pod got, by model and number of GPUs (k). A lane " +
				"weighs 100, closeness on the PCI tree 10 to 60 for each pair.",
			Buckets: []float64{0, 10, 100, 300, 1000, 3000, 10_000, 30_000, 100_000},
		}, []string{"model", "k"}),
	}
	register(memo, m.mismatches, m.commits, m.place, m.decisions, m.regret)
	m.hit, m.miss = memo.WithLabelValues("hit"), memo.WithLabelValues("miss")
	return m
}

// Decided counts an attempt for the plugin that decided it.
func (m *Metrics) Decided(plugin, result string) { m.decisions.WithLabelValues(plugin, result).Inc() }

// granted counts the links of the devices that a pod got on an account.
func (m *Metrics) granted(v *device.View, grants []device.Grant) {
	if len(grants) == 0 {
		return
	}
	if model, k, regret := v.LinkRegret(grants); k > 0 {
		m.regret.WithLabelValues(model, strconv.Itoa(k)).Observe(float64(regret))
	}
}

// commit counts an offer that was brought to an account.
func (m *Metrics) commit(result string) { m.commits.WithLabelValues(result).Inc() }
