package policy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/move"
)

// refusals returns why the evictors of the profile refuse the move of a pod, to the target where one is named, and the
// job that the pod would have. Every profile has the MigrationController.
func (n *round) refusals(pod *corev1.Pod, target string) (refused []evict.Refusal, job move.Job) {
	asked := n.migrationController(pod, target)
	if n.profile.evictor != nil {
		asked = append(asked, n.defaultEvictor(pod)...)
	}
	for _, r := range asked {
		if !slices.ContainsFunc(refused, func(o evict.Refusal) bool { return o.Code == r.Code }) {
			refused = append(refused, r)
		}
	}
	n.Cluster.Read(func(s *evict.State) { job = s.Propose(string(pod.UID), target, n.began) })
	return refused, job
}

// check asks core/evict about a move, with all jobs of the round under way.
func (n *round) check(p *evict.Policy, pod *corev1.Pod, target string) (refused []evict.Refusal) {
	n.Cluster.Read(func(s *evict.State) {
		for _, j := range n.accepted {
			before, known := s.Job(j.UID)
			if known && !before.IsWaiting() {
				// The API server's time may be earlier, and is in whole seconds.
				j, j.Created = before, n.began
			}
			s.SetJob(j)
			defer func() {
				if s.DeleteJob(j.UID); known {
					s.SetJob(before)
				}
			}()
		}
		refused = s.CheckMove(p, evict.Move{PodUID: string(pod.UID), Target: target, Round: n.began}, n.Clock.Now())
	})
	return refused
}

// migrationController refuses by the limits of every move. The rate counts when the pod is evicted.
func (n *round) migrationController(pod *corev1.Pod, target string) []evict.Refusal {
	refused := slices.DeleteFunc(n.check(n.Policy, pod, target),
		func(r evict.Refusal) bool { return r.Code == evict.RateLimited })
	if reason := n.foreign(pod); reason != "" {
		refused = append(refused, evict.Refusal{Code: evict.Protected, Subject: reason})
	}
	if has(pod, annotation.EvictionInProgress) {
		refused = append(refused, evict.Refusal{
			Code: evict.AlreadyEvicting, Subject: "pod " + pod.Namespace + "/" + pod.Name, Have: 1,
		})
	}
	if has(pod, annotation.RequestEvictOnly) && n.Settings.Migration.EvictionPolicy != "Eviction" {
		refused = append(refused, evict.Refusal{
			Code:    evict.Protected,
			Subject: "its annotation " + annotation.RequestEvictOnly + " needs evictionPolicy Eviction",
		})
	}
	return refused
}

// defaultEvictor refuses by the predicates of the profile.
func (n *round) defaultEvictor(pod *corev1.Pod) []evict.Refusal {
	a := n.profile.Evictor
	predicates := []evict.Code{
		evict.BarePod, evict.SystemCritical, evict.PriorityThreshold, evict.LabelSelector, evict.LocalStorage,
		evict.PVC, evict.MinAge,
	}
	refused := slices.DeleteFunc(n.check(n.profile.evictor, pod, ""), func(r evict.Refusal) bool {
		return !slices.Contains(predicates, r.Code)
	})
	if has(pod, annotation.Evictable) {
		return refused
	}
	protect := func(refuses bool, why string) {
		if refuses {
			refused = append(refused, evict.Refusal{Code: evict.Protected, Subject: why})
		}
	}
	protect(a.NoEvictionPolicy == "Mandatory" && has(pod, annotation.PreferNoEviction),
		"it has the annotation "+annotation.PreferNoEviction)
	protect(slices.Contains(a.PodProtections.ExtraEnabled, "PodsWithResourceClaims") &&
		len(pod.Spec.ResourceClaims) > 0,
		"it uses ResourceClaims")
	if a.IgnorePodsWithoutPDB {
		n.Cluster.Read(func(s *evict.State) {
			known, _ := s.Pod(string(pod.UID))
			protect(len(known.Budgets) == 0, "no PodDisruptionBudget selects it")
		})
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner != nil && !ended(pod) && a.MinReplicas > 1 && n.replicas[owner.UID] < int(a.MinReplicas) {
		refused = append(refused, evict.Refusal{
			Code: evict.ExpectedReplicas, Subject: evict.Key(pod.Namespace, owner.Kind, owner.Name),
			Have: n.replicas[owner.UID], Limit: int(a.MinReplicas) - 1,
		})
	}
	return refused
}
