package webhook

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Metrics count what the webhooks answer. Their labels are bounded.
type Metrics struct {
	answers  *prometheus.CounterVec
	warnings *prometheus.CounterVec
}

// NewMetrics registers the webhooks' metrics; a registry that has them already, of a server that ran before in this
// process, goes on counting.
func NewMetrics(to prometheus.Registerer) (*Metrics, error) {
	answers, err := register(to, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tenon_admission_answers_total",
		Help: "Answers of the webhooks by webhook, operation and outcome (allowed, refused, error).",
	}, []string{"webhook", "operation", "outcome"}))
	if err != nil {
		return nil, err
	}
	warnings, err := register(to, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tenon_admission_warnings_total",
		Help: "Warnings that the webhooks gave.",
	}, []string{"webhook"}))
	if err != nil {
		return nil, err
	}
	return &Metrics{answers: answers, warnings: warnings}, nil
}

func register(to prometheus.Registerer, c *prometheus.CounterVec) (*prometheus.CounterVec, error) {
	err := to.Register(c)
	if known := (prometheus.AlreadyRegisteredError{}); errors.As(err, &known) {
		if c, ok := known.ExistingCollector.(*prometheus.CounterVec); ok {
			return c, nil
		}
	}
	return c, err
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
