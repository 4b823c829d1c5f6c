package elasticquota

import (
	"k8s.io/component-base/metrics"

	"github.com/tenon-project/tenon/internal/core/quota"
)

// Metrics of the plugin, shared by all profiles. No label has the name of a quota.
type Metrics struct {
	refusals *metrics.CounterVec
}

// NewMetrics returns the metrics, registered by register.
func NewMetrics(register func(...metrics.Registerable)) *Metrics {
	m := &Metrics{refusals: metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "tenon_quota_refusals_total",
		Help: "Attempts that quotas refused, by limit (runtime, max, min, missing: the quota does not exist) and " +
			"phase (PreFilter; Reserve: the quota changed during the attempt).",
	}, []string{"limit", "phase"})}
	register(m.refusals)
	return m
}

func (m *Metrics) refused(x *quota.Excess, phase string) {
	m.refusals.WithLabelValues(string(x.LimitKind), phase).Inc()
}
