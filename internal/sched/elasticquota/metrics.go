package elasticquota

import (
	"k8s.io/component-base/metrics"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
)

// Metrics of the plugin, shared by all profiles. No label has the name of a quota.
type Metrics struct {
	// refusals counts attempts that a quota refused, by limit and phase.
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

// refused counts one refused attempt.
func (m *Metrics) refused(x *quota.Excess, phase string) {
	m.refusals.WithLabelValues(string(x.LimitKind), phase).Inc()
}

// quotasShown is how many quotas have a value of their own in the label of a metric; the others are added up as
// "other".
const quotasShown = 1000

// resources exports the amounts of quotas as they are at each scrape.
type resources struct {
	metrics.BaseStableCollector
	// quotas is the account that is read at each scrape. Nothing is counted between scrapes.
	quotas *kube.Quotas
	// desc describes the one gauge: by quota, resource and kind of amount.
	desc *metrics.Desc
}

// NewResources returns the gauge of what quotas have.
func NewResources(quotas *kube.Quotas) metrics.StableCollector {
	return &resources{quotas: quotas, desc: metrics.NewDesc("tenon_quota_resource",
		"Amounts of quotas in cores, bytes or pieces, by kind: min, max, runtime, request, used. Quotas beyond the "+
			"first 1,000 by name are added up as other.",
		[]string{"tree", "quota", "resource", "kind"}, nil, metrics.ALPHA, "")}
}

// DescribeWithStability describes the one metric.
func (c *resources) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- c.desc }

// CollectWithStability reads the quotas at this scrape. CPUs are exported as cores.
func (c *resources) CollectWithStability(ch chan<- metrics.Metric) {
	type labels struct{ tree, quota, resource, kind string }
	values := map[labels]float64{}
	for i, r := range c.quotas.Reports() {
		name := r.Name
		if i >= quotasShown {
			name = "other"
		}
		for kind, amounts := range map[string]amount.List{
			"min": r.Min, "max": r.Max, "runtime": r.Runtime, "request": r.Request, "used": r.Used,
		} {
			for resource, n := range amounts {
				amount := float64(n)
				if resource == string(why.CPU) {
					amount /= 1000
				}
				values[labels{r.Tree, name, resource, kind}] += amount
			}
		}
	}
	for l, n := range values {
		ch <- metrics.NewLazyConstMetric(c.desc, metrics.GaugeValue, n, l.tree, l.quota, l.resource, l.kind)
	}
}
