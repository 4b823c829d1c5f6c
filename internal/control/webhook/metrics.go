package webhook

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Metrics count what the webhooks answer. Their labels are bounded.
type Metrics struct {
	answers  *prometheus.CounterVec
	warnings *prometheus.CounterVec
}

// NewMetrics returns metrics that are not registered, and begin at zero.
func NewMetrics() *Metrics {
	return &Metrics{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenon_admission_answers_total",
			Help: "Answers of the webhooks by webhook, operation and outcome (allowed, refused, error).",
		}, []string{"webhook", "operation", "outcome"}),
		warnings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenon_admission_warnings_total",
			Help: "Warnings that the webhooks gave.",
		}, []string{"webhook"}),
	}
}

// Collectors returns all metrics.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.answers, m.warnings}
}

func (m *Metrics) observe(name string, handle ctrl.HandlerFunc) ctrl.HandlerFunc {
	return func(ctx context.Context, req ctrl.Request) ctrl.Response {
		response := handle(ctx, req)
		outcome := "allowed"
		switch {
		case response.Allowed:
		case response.Result != nil && response.Result.Details != nil:
			outcome = "refused"
		default:
			outcome = "error"
		}
		m.answers.WithLabelValues(name, string(req.Operation), outcome).Inc()
		m.warnings.WithLabelValues(name).Add(float64(len(response.Warnings)))
		return response
	}
}
