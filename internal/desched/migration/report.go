package migration

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/move"
)

// component is who evicts.
const component = "tenon-descheduler"

// Metrics count what the controller does.
type Metrics struct {
	ended, evictions *prometheus.CounterVec
	blocked          *prometheus.GaugeVec
}

// NewMetrics returns metrics that are not registered.
func NewMetrics() *Metrics {
	return &Metrics{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenon_descheduler_jobs_ended_total", Help: "PodMigrationJobs that have ended, by phase and reason.",
		}, []string{"phase", "reason"}),
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenon_descheduler_evictions_total",
			Help: "Requested evictions, by outcome: evicted, also by another program on request, refused by the " +
				"Eviction API, or failed.",
		}, []string{"outcome"}),
		blocked: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tenon_descheduler_jobs_blocked",
			Help: "PodMigrationJobs that wait for arbitration, by the code of the refusal.",
		}, []string{"code"}),
	}
}

// Collectors returns all metrics.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.ended, m.evictions, m.blocked}
}

func (m *Metrics) waiting(refused map[string]evict.Refusal) {
	m.blocked.Reset()
	for _, r := range refused {
		m.blocked.WithLabelValues(string(r.Code)).Inc()
	}
}

// report says what has become of a job when that was written.
func (c *Controller) report(ctx context.Context, j *v1alpha1.PodMigrationJob, was *v1alpha1.PodMigrationJobStatus) {
	s := &j.Status
	switch {
	case s.Phase == was.Phase:
		return
	case !s.Phase.IsFinal():
		c.event(j, event.MigrationStarted, "pod %s/%s is to move to another node", j.Spec.PodRef.Namespace,
			j.Spec.PodRef.Name)
		return
	case s.Phase == v1alpha1.PodMigrationJobSucceeded && s.PodRef != nil:
		c.event(j, event.PodMigrated, "pod %s/%s runs on node %s", s.PodRef.Namespace, s.PodRef.Name,
			s.NodeName)
	case s.Phase == v1alpha1.PodMigrationJobSucceeded:
		c.event(j, event.PodMigrated, "pod %s/%s was evicted", j.Spec.PodRef.Namespace, j.Spec.PodRef.Name)
	case strings.HasPrefix(s.Message, string(evict.GaveUp)):
		c.event(j, event.EvictionGivenUp, "%s", s.Message)
	default:
		how := strings.TrimSpace(string(s.Phase) + " " + s.Reason)
		c.event(j, event.MigrationFailed, "%s: %s", how, s.Message)
	}
	c.Metrics.ended.WithLabelValues(string(s.Phase), s.Reason).Inc()
	klog.FromContext(ctx).Info("Job ended", "podMigrationJob", j.Name, "phase", s.Phase, "reason", s.Reason,
		"message", s.Message)
}

// reportEviction says that a pod was evicted, or why not.
func (c *Controller) reportEviction(ctx context.Context, j *v1alpha1.PodMigrationJob, failure *move.Failure) {
	log, ref := klog.FromContext(ctx), j.Spec.PodRef
	if failure != nil {
		log.V(2).Info("Pod not evicted", "podMigrationJob", j.Name, "pod", klog.KRef(ref.Namespace, ref.Name),
			"reason", failure.Text)
		return
	}
	done := "evicted"
	if c.Args.EvictionPolicy == bySoft || c.requestsEviction(j) {
		done = "eviction requested"
	}
	log.Info("Pod is to leave its node", "by", done, "podMigrationJob", j.Name,
		"pod", klog.KRef(ref.Namespace, ref.Name), "target", j.Status.NodeName)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}}
	pod.APIVersion, pod.Kind = "v1", "Pod"
	if r := event.PodEvicted; j.Status.NodeName == "" {
		c.Events.Eventf(pod, nil, r.Type(), r.String(), "Evict", "%s by PodMigrationJob %s", done, j.Name)
	} else {
		c.Events.Eventf(pod, nil, r.Type(), r.String(), "Evict",
			"%s by PodMigrationJob %s: node %s has reserved room for its successor", done, j.Name, j.Status.NodeName)
	}
}

func (c *Controller) event(j *v1alpha1.PodMigrationJob, r event.Reason, format string, args ...any) {
	job := j.DeepCopy()
	job.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.Kind))
	c.Events.Eventf(job, nil, r.Type(), r.String(), "Migrate", format, args...)
}
