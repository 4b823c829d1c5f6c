package gangstatus

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// statusOf returns what the pods of a PodGroup do: all that exist, ended ones too.
func statusOf(g *v1alpha1.PodGroup, pods []*corev1.Pod, now metav1.Time) v1alpha1.PodGroupStatus {
	status := v1alpha1.PodGroupStatus{
		OccupiedBy: g.Status.OccupiedBy, ScheduleStartTime: g.Status.ScheduleStartTime,
	}
	owners := map[string]bool{}
	active, bound, running := 0, int32(0), int32(0)
	was := g.Status.Phase
	if !was.IsUnderWay() {
		pods = withoutFormerSet(pods, was.IsFinal())
	}
	for _, p := range pods {
		if owner := metav1.GetControllerOf(p); owner != nil {
			owners[p.Namespace+"/"+owner.Name] = true
		}
		if p.Spec.NodeName != "" {
			status.Scheduled++
		}
		switch p.Status.Phase {
		case corev1.PodSucceeded:
			status.Succeeded++
		case corev1.PodFailed:
			status.Failed++
		default:
			active++
			if p.Spec.NodeName != "" {
				bound++
			}
			if p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
	}
	status.Running = running
	if len(owners) > 0 {
		status.OccupiedBy = strings.Join(slices.Sorted(maps.Keys(owners)), ",")
	}
	least := leastOf(g, pods)
	// A set of pods that has started stays so until no pod of it is left, or until another set follows its end.
	goesOn := was.IsUnderWay() && len(pods) > 0 || was.IsFinal() && (active == 0 || active < len(pods))
	switch started := goesOn || status.Scheduled >= least; {
	case !started && status.Scheduled > 0:
		status.Phase = v1alpha1.PodGroupScheduling
	case !started && active > 0:
		status.Phase = v1alpha1.PodGroupPreScheduling
	case !started:
		status.Phase = v1alpha1.PodGroupPending
	case active == 0 && status.Succeeded >= least:
		status.Phase = v1alpha1.PodGroupFinished
	case active == 0 && status.Failed > 0:
		status.Phase = v1alpha1.PodGroupFailed
	case active == 0 && was.IsFinal():
		status.Phase = was
	case active > 0 && running+status.Succeeded >= least:
		status.Phase = v1alpha1.PodGroupRunning
	case active > 0 && bound+status.Succeeded >= least:
		status.Phase = v1alpha1.PodGroupScheduled
	default:
		status.Phase = v1alpha1.PodGroupUnknown
	}
	if status.Scheduled > 0 && status.ScheduleStartTime == nil {
		status.ScheduleStartTime = &now
	}
	status.Conditions = conditionsOf(g, pods, status.Phase.IsStarted(), now)
	if g.GroupVersionKind().Group == v1alpha1.CommunityGroupName { // it has neither these phases nor the number
		status.Scheduled = 0
		switch status.Phase {
		case v1alpha1.PodGroupPreScheduling:
			status.Phase = v1alpha1.PodGroupPending
		case v1alpha1.PodGroupScheduled:
			status.Phase = v1alpha1.PodGroupScheduling
		}
	}
	return status
}

// withoutFormerSet returns the pods without those that have ended and whose controller has no others: a later set
// follows them. Pods without a controller that have ended count until all of their set have.
func withoutFormerSet(pods []*corev1.Pod, final bool) []*corev1.Pod {
	active := map[types.UID]bool{}
	for _, p := range pods {
		if !convert.Ended(p) {
			active[controllerOf(p)] = true
		}
	}
	if len(active) == 0 {
		return pods
	}
	return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool {
		owner := controllerOf(p)
		return convert.Ended(p) && (owner == "" && final || owner != "" && !active[owner])
	})
}

// controllerOf returns the UID of a pod's controller; empty without one.
func controllerOf(p *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOf(p); owner != nil {
		return owner.UID
	}
	return ""
}

// inPart is how long it may take to bind the members of a gang. Where it is in part for longer, some could not be
// bound.
const inPart = 15 * time.Second

// sinceWhen returns when the first of the pods that run or are to run got its node; zero where none says so.
func sinceWhen(pods []*corev1.Pod) (first time.Time) {
	for _, p := range pods {
		c := conditionOf(p, corev1.PodScheduled)
		if p.Spec.NodeName != "" && !convert.Ended(p) && c != nil && c.Status == corev1.ConditionTrue &&
			(first.IsZero() || c.LastTransitionTime.Time.Before(first)) {
			first = c.LastTransitionTime.Time
		}
	}
	return first
}

// conditionsOf returns the conditions with what the pods say: why they do not start, until as many as must have started
// once, and in Kubernetes' own PodGroup whether all are being evicted.
func conditionsOf(g *v1alpha1.PodGroup, pods []*corev1.Pod, started bool, now metav1.Time) []metav1.Condition {
	all := slices.Clone(g.Status.Conditions)
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&all, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: now,
			ObservedGeneration: g.Generation,
		})
	}
	kind := v1alpha1.ScheduledCondition(g.GroupVersionKind())
	switch obstacle := obstacleOf(pods); {
	case meta.IsStatusConditionTrue(all, kind):
	case started:
		set(kind, metav1.ConditionTrue, "Scheduled", "")
	case obstacle != nil:
		set(kind, metav1.ConditionFalse, obstacle.Reason, obstacle.Message)
	default:
		meta.RemoveStatusCondition(&all, kind)
	}
	placed, evicted := 0, 0
	for _, p := range pods {
		if p.Spec.NodeName == "" || convert.Ended(p) {
			continue
		}
		placed++
		if c := conditionOf(p, corev1.DisruptionTarget); c != nil && c.Status == corev1.ConditionTrue &&
			c.Reason == corev1.PodReasonPreemptionByScheduler {
			evicted++
		}
	}
	const target = string(corev1.DisruptionTarget)
	switch {
	case placed == 0 || g.GroupVersionKind().Group != v1alpha1.NativeGroupName:
	case evicted == placed:
		set(target, metav1.ConditionTrue, corev1.PodReasonPreemptionByScheduler, "all pods of the group are evicted")
	case meta.IsStatusConditionTrue(all, target):
		set(target, metav1.ConditionFalse, "Scheduled", "")
	}
	return all
}

// obstacleOf returns what a scheduler says of the pods without a node: of the gang, where it says that of one; of
// several, the oldest. Nil where it says nothing.
func obstacleOf(pods []*corev1.Pod) (obstacle *corev1.PodCondition) {
	rank := func(c *corev1.PodCondition) int {
		if strings.Contains(c.Message, `{"code":"Gang`) {
			return 1
		}
		return 0
	}
	for _, p := range slices.SortedFunc(slices.Values(pods), older) {
		c := conditionOf(p, corev1.PodScheduled)
		if p.Spec.NodeName == "" && !convert.Ended(p) && c != nil && c.Status == corev1.ConditionFalse &&
			(c.Reason == corev1.PodReasonUnschedulable || c.Reason == corev1.PodReasonSchedulerError) &&
			(obstacle == nil || rank(c) > rank(obstacle)) {
			obstacle = c
		}
	}
	return obstacle
}

func conditionOf(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

func older(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// leastOf returns how many members must start together: what the oldest pod says comes first.
func leastOf(g *v1alpha1.PodGroup, pods []*corev1.Pod) int32 {
	object := convert.GangObject(g).Settings
	var says gang.Settings
	if len(pods) > 0 {
		own, _ := convert.GangPod(slices.MinFunc(pods, older))
		says = own.Settings
	}
	return int32(cmp.Or(says.Min, object.Min, says.Total, object.Total, 1))
}
