package convert

import (
	"maps"
	"regexp"
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
		return key == annotation.VolcanoTopologyPolicy || domain == annotation.RequiredPlugins || isOwnDomain(domain)
	})
	return rest
}

func isOwnDomain(domain string) bool {
	return slices.ContainsFunc([]string{"koordinator.sh", "tenon.sh"}, func(own string) bool {
		return domain == own || strings.HasSuffix(domain, "."+own)
	})
}

// unservedResource are the resources that only Tenon allocates: without it no part of a device is a container's, and no
// limit is set on batch amounts.
var unservedResource = regexp.MustCompile(`^(koordinator\.sh|kubernetes\.io)/(batch-|mid-|gpu|rdma|fpga)`)

// Unserved returns the fields by which a pod asks for features of Tenon, sorted: without a scheduler of Tenon they have
// no effect. A PodGroup may be another scheduler's: its label counts where the pod
// has the default scheduler, which reads none.
func Unserved(pod *corev1.Pod) (fields []string) {
	isDefault := pod.Spec.SchedulerName == "" || pod.Spec.SchedulerName == corev1.DefaultSchedulerName
	groups := []string{annotation.PodGroup, annotation.CommunityPodGroup}
	unread := []string{annotation.SimulateKey, annotation.ScaleHelper} // no scheduler reads them
	for field, keys := range map[string]map[string]string{
		"metadata.labels": pod.Labels, "metadata.annotations": pod.Annotations,
	} {
		for key := range keys {
			domain, _, _ := strings.Cut(key, "/")
			if isOwnDomain(domain) && !slices.Contains(unread, key) || isDefault && slices.Contains(groups, key) {
				fields = append(fields, field+"["+key+"]")
			}
		}
	}
	for _, c := range containers(pod) {
		for _, amounts := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			for name := range amounts {
				if unservedResource.MatchString(string(name)) {
					fields = append(fields, "spec.containers[*].resources["+string(name)+"]")
				}
			}
		}
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}
