package quotarevoke

import (
	"cmp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// The annotation, and the label of the old lightweight form, by which a member says how many its gang needs.
const (
	minAvailable            = "gang.scheduling.koordinator.sh/min-available"
	lightweightMinAvailable = "pod-group.scheduling.sigs.k8s.io/min-available"
)

// gangOf returns a gang of a namespace, with its members in all quotas. Where no member says how many it needs, that is
// all of them.
func (s *snapshot) gangOf(namespace, name string) *quota.Gang {
	if name == "" {
		return nil
	}
	if g := s.gangs[name]; g != nil {
		return g
	}
	pods, err := s.Pods.Pods(namespace).List(labels.Everything())
	s.err = cmp.Or(s.err, err)
	g := &quota.Gang{Name: name}
	for _, pod := range pods {
		if convert.GangOf(pod) != name {
			continue
		}
		least, err := strconv.Atoi(cmp.Or(pod.Annotations[minAvailable], pod.Labels[lightweightMinAvailable]))
		if err == nil {
			g.Min = max(g.Min, least)
		}
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if pod.Spec.NodeName != "" && !ended && pod.DeletionTimestamp == nil {
			g.Bound++
		}
	}
	if g.Min == 0 {
		g.Min = g.Bound
	}
	s.gangs[name] = g
	return g
}
