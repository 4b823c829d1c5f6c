package nodenumaresource

import (
	"time"

	"k8s.io/component-base/metrics"

	"github.com/tenon-project/tenon/internal/core/ledger"
)

// Metrics of the plugin, shared by all profiles.
type Metrics struct {
	memo       memo
	mismatches *metrics.Counter
	commits    *metrics.CounterVec
	place      *metrics.HistogramVec
	decisions  *metrics.CounterVec
	// predictions and mispredictions are about kubelets, rejections about pods that these refused.
	predictions, mispredictions, rejections *metrics.CounterVec
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
	m.predictions = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "tenon_topology_predictions_total",
		Help: "Pods reserved on a node whose kubelet is predicted, by mode of the node and model (kubelet " +
			"release).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"mode", "model"})
	m.mispredictions = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "tenon_topology_mispredict_total",
		Help: "Pods whose kubelet did something else than was predicted, by mode, model and kind: " +
			"rejected, mask, cpus, memory, device.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"mode", "model", "kind"})
	m.rejections = metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "tenon_kubelet_rejections_total",
		Help:           "Pods bound by this scheduler that their kubelet rejected, by the kubelet's reason.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"reason"})
	register(m.mismatches, m.commits, m.place, m.decisions, m.predictions, m.mispredictions, m.rejections)
	return m
}

// Decided counts an attempt for the plugin that decided it.
func (m *Metrics) Decided(plugin, result string) { m.decisions.WithLabelValues(plugin, result).Inc() }

func (m *Metrics) predicted(mode ledger.Mode, model string) {
	m.predictions.WithLabelValues(mode.String(), model).Inc()
}

func (m *Metrics) mispredicted(mode, model, kind string) {
	m.mispredictions.WithLabelValues(mode, model, kind).Inc()
}

func (m *Metrics) rejected(reason string) { m.rejections.WithLabelValues(reason).Inc() }

func (m *Metrics) mismatch()            { m.mismatches.Inc() }
func (m *Metrics) commit(result string) { m.commits.WithLabelValues(result).Inc() }

func (m *Metrics) observePlace(phase string, d time.Duration) {
	m.place.WithLabelValues(phase).Observe(d.Seconds())
}
