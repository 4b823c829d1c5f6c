package convert

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
)

// Schedulers are the names of the schedulers whose pods count as Tenon's: those that the installation serves, and
// others whose allocations it trusts. The labels and annotations of Tenon on another pod mean nothing: no webhook
// checks them, so that anyone may have written them. A nil Schedulers trusts every scheduler. It is not changed.
type Schedulers struct{ names []string }

// NewSchedulers returns the schedulers with the names; nil, which trusts every one, without a name.
func NewSchedulers(names ...string) *Schedulers {
	if len(names) == 0 {
		return nil
	}
	return &Schedulers{slices.Clone(names)}
}

// Trusts reports whether what the labels and annotations of a pod say counts.
func (s *Schedulers) Trusts(pod *corev1.Pod) bool {
	name := pod.Spec.SchedulerName
	if name == "" {
		name = corev1.DefaultSchedulerName
	}
	return s == nil || slices.Contains(s.names, name)
}

// Trusted returns a pod without the labels and annotations that do not count: the pod itself where all do, else a copy
// that shares the rest.
func (s *Schedulers) Trusted(pod *corev1.Pod) *corev1.Pod {
	if s.Trusts(pod) {
		return pod
	}
	plain := *pod
	plain.Labels, plain.Annotations = WithoutKeys(pod.Labels), WithoutKeys(pod.Annotations)
	return &plain
}

// WithoutKeys returns labels or annotations without those that Tenon reads. It does not change m.
func WithoutKeys(m map[string]string) map[string]string {
	rest := maps.Clone(m)
	maps.DeleteFunc(rest, func(key, _ string) bool {
		domain, _, _ := strings.Cut(key, "/")
		return key == annotation.VolcanoTopologyPolicy || domain == annotation.RequiredPlugins ||
			slices.ContainsFunc([]string{"koordinator.sh", "tenon.sh"}, func(own string) bool {
				return domain == own || strings.HasSuffix(domain, "."+own)
			})
	})
	return rest
}
