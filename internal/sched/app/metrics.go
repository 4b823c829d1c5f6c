package app

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/follow"
	"github.com/tenon-project/tenon/internal/sched/placement"
)

// metricSet is what the scheduler measures besides upstream's scheduler_ metrics.
type metricSet struct {
	placement *placement.Metrics
	follow    *follow.Metrics
	refusals  *metrics.CounterVec
	dropped   *metrics.CounterVec
	rebuild   *metrics.Histogram
	mismatch  *metrics.Counter
	config    *metrics.GaugeVec
}

// export makes metrics visible at /metrics. Of several schedulers in one process the first one's are.
func export(all ...metrics.Registerable) {
	for _, m := range all {
		if err := legacyregistry.Register(m); err != nil && !isKnown(err) {
			panic(err) // two metrics of one name
		}
	}
}

func newMetrics(register func(...metrics.Registerable)) *metricSet {
	m := &metricSet{
		placement: placement.NewMetrics(register), follow: follow.NewMetrics(register),
		refusals: metrics.NewCounterVec(&metrics.CounterOpts{
			Name:           "tenon_refusals_total",
			Help:           "Codes that refused a pod, counted once for each attempt, by plugin and code.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"plugin", "code"}),
		dropped: metrics.NewCounterVec(&metrics.CounterOpts{
			Name:           "tenon_events_dropped_total",
			Help:           "Events not sent because too many were due, by reason.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"reason"}),
		rebuild: metrics.NewHistogram(&metrics.HistogramOpts{
			Name:           "tenon_ledger_rebuild_seconds",
			Help:           "Time from start until every node's account was known.",
			Buckets:        metrics.ExponentialBuckets(0.05, 2, 12),
			StabilityLevel: metrics.ALPHA,
		}),
	}
	m.mismatch = metrics.NewCounter(&metrics.CounterOpts{
		Name: "tenon_ledger_mismatch_total",
		Help: "Pods about which an account and the API server's objects differed for a minute; each is " +
			"repaired. Always 0.",
		StabilityLevel: metrics.ALPHA,
	})
	m.config = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name:           "tenon_config_info",
		Help:           "1, with a hash of the configuration in force.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"component", "hash"})
	build := metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name:           "tenon_build_info",
		Help:           "1, with the version of the binary.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"component", "version"})
	register(m.refusals, m.dropped, m.rebuild, m.mismatch, m.config, build)
	build.WithLabelValues(component, version()).Set(1)
	return m
}

// configured exports the hash of the configuration in force: replicas that differ have different hashes.
func (m *metricSet) configured(c *config.KubeSchedulerConfiguration) {
	text, err := json.Marshal(c)
	if err != nil {
		return // arguments of a foreign type that cannot be marshaled; the metric is left out
	}
	sum := sha256.Sum256(text)
	m.config.WithLabelValues(component, hex.EncodeToString(sum[:6])).Set(1)
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// newUnschedulable exports the pods that are refused, by root cause, as count sees them at each scrape.
func newUnschedulable(count func() map[why.Code]int) *unschedulable {
	return &unschedulable{
		count: count,
		desc: metrics.NewDesc("tenon_unschedulable_pods", "Pods whose last attempt was refused, by root cause.",
			[]string{"code"}, nil, metrics.ALPHA, ""),
	}
}

type unschedulable struct {
	metrics.BaseStableCollector
	count func() map[why.Code]int
	desc  *metrics.Desc
}

func (u *unschedulable) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- u.desc }

func (u *unschedulable) CollectWithStability(ch chan<- metrics.Metric) {
	for code, n := range u.count() {
		ch <- metrics.NewLazyConstMetric(u.desc, metrics.GaugeValue, float64(n), code.String())
	}
}

func isKnown(err error) bool {
	var known prometheus.AlreadyRegisteredError
	return errors.As(err, &known)
}
