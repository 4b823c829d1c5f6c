package whatif

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// podsOn calls f with each of the first candidates and the pods of the cluster on it, until f finds a fix.
func (x *fixing) podsOn(f func(c *view.Candidate, pods []*corev1.Pod) (works bool, err error)) error {
	for i := range x.said.Candidates[:min(len(x.said.Candidates), nodesTried)] {
		c := &x.said.Candidates[i]
		info, err := x.nodes.Nodes.NodeInfos().Get(c.Node)
		if err != nil {
			continue
		}
		var pods []*corev1.Pod
		for _, p := range info.GetPods() {
			if pod := x.Pod(p.GetPod().Namespace, p.GetPod().Name); pod != nil && pod.UID == p.GetPod().UID {
				pods = append(pods, pod)
			}
		}
		slices.SortFunc(pods, func(a, b *corev1.Pod) int {
			return cmp.Or(kube.VictimOf(a).Compare(kube.VictimOf(b)), cmp.Compare(nameOf(a), nameOf(b)))
		})
		if works, err := f(c, pods); works || err != nil || x.runs.Exhausted {
			return err
		}
	}
	return nil
}

// nameOf returns namespace/name of a pod.
func nameOf(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// terminating waits for the pods of a node that are being deleted.
func (x *fixing) terminating() error {
	return x.podsOn(func(c *view.Candidate, pods []*corev1.Pod) (bool, error) {
		var gone []view.Change
		var names []string
		for _, pod := range pods {
			if pod.DeletionTimestamp != nil {
				gone, names = append(gone, view.Change{RemovePod: nameOf(pod)}), append(names, nameOf(pod))
			}
		}
		if len(gone) == 0 {
			return false, nil
		}
		message := fmt.Sprintf("wait until %s on node %s has ended", strings.Join(names, ", "), c.Node)
		return x.offer(view.FixWait, message, gone...)
	})
}

// evict deletes one pod whose priority is not higher. It respects PodDisruptionBudgets, gangs and what runs on each
// node.
func (x *fixing) evict() error {
	f, err := x.profile(x.pod)
	if err != nil {
		return err
	}
	chooser := x.Preemption(f)
	if chooser == nil { // no budgets are known
		return nil
	}
	all, err := chooser.Budgets()
	if err != nil {
		return fmt.Errorf("list PodDisruptionBudgets: %w", err)
	}
	budgets := kube.NewBudgets(all)
	protected := func(pod *corev1.Pod) bool {
		counting := budgets.Of(pod) // the Eviction API refuses a pod that several budgets count
		return len(counting) > 1 || len(counting) == 1 && counting[0].Allowed <= 0
	}
	return x.podsOn(func(c *view.Candidate, pods []*corev1.Pod) (bool, error) {
		if slices.ContainsFunc(c.Reasons, func(r view.Refusal) bool {
			return r.Code.Class() != why.Capacity && r.Code.Class() != why.Placement
		}) {
			return false, nil
		}
		for _, pod := range pods {
			owner, priority := metav1.GetControllerOfNoCopy(pod), corev1helpers.PodPriority(pod)
			ofNode := owner != nil && (owner.Kind == "DaemonSet" || owner.Kind == "Node")
			_, member := convert.GangPod(pod)
			if member || ofNode || pod.DeletionTimestamp != nil || priority > corev1helpers.PodPriority(x.pod) ||
				protected(pod) {
				continue
			}
			message := fmt.Sprintf("delete pod %s (priority %d) on node %s", nameOf(pod), priority, c.Node)
			works, err := x.offer(view.FixEvict, message, view.Change{RemovePod: nameOf(pod)})
			if works || err != nil || x.runs.Exhausted {
				return works, err
			}
		}
		return false, nil
	})
}
