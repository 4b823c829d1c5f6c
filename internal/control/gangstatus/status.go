package gangstatus

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// statusOf returns what the pods of a PodGroup do: all that exist, ended ones too.
func statusOf(g *v1alpha1.PodGroup, pods []*corev1.Pod, now metav1.Time) v1alpha1.PodGroupStatus {
	is := v1alpha1.PodGroupStatus{
		OccupiedBy: g.Status.OccupiedBy, ScheduleStartTime: g.Status.ScheduleStartTime,
	}
	owners := map[string]bool{}
	active, bound, running := 0, int32(0), int32(0)
	for _, p := range pods {
		if owner := metav1.GetControllerOf(p); owner != nil {
			owners[p.Namespace+"/"+owner.Name] = true
		}
		if p.Spec.NodeName != "" {
			is.Scheduled++
		}
		switch p.Status.Phase {
		case corev1.PodSucceeded:
			is.Succeeded++
		case corev1.PodFailed:
			is.Failed++
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
	is.Running = running
	if len(owners) > 0 {
		is.OccupiedBy = strings.Join(slices.Sorted(maps.Keys(owners)), ",")
	}
	least, was := leastOf(g, pods), g.Status.Phase
	switch started := was.IsStarted() || is.Scheduled >= least; {
	case !started && is.Scheduled > 0:
		is.Phase = v1alpha1.PodGroupScheduling
	case !started && active > 0:
		is.Phase = v1alpha1.PodGroupPreScheduling
	case !started:
		is.Phase = v1alpha1.PodGroupPending
	case active == 0 && is.Succeeded >= least:
		is.Phase = v1alpha1.PodGroupFinished
	case active == 0 && is.Failed > 0:
		is.Phase = v1alpha1.PodGroupFailed
	case active == 0 && was.IsFinal():
		is.Phase = was
	case active > 0 && running+is.Succeeded >= least:
		is.Phase = v1alpha1.PodGroupRunning
	case active > 0 && bound+is.Succeeded >= least:
		is.Phase = v1alpha1.PodGroupScheduled
	default:
		is.Phase = v1alpha1.PodGroupUnknown
	}
	if is.Scheduled > 0 && is.ScheduleStartTime == nil {
		is.ScheduleStartTime = &now
	}
	if g.GroupVersionKind().Group == v1alpha1.CommunityGroupName { // it has neither these phases nor the number
		is.Scheduled = 0
		switch is.Phase {
		case v1alpha1.PodGroupPreScheduling:
			is.Phase = v1alpha1.PodGroupPending
		case v1alpha1.PodGroupScheduled:
			is.Phase = v1alpha1.PodGroupScheduling
		}
	}
	return is
}

// leastOf returns how many members must start together: what the oldest pod says comes first.
func leastOf(g *v1alpha1.PodGroup, pods []*corev1.Pod) int32 {
	object := convert.GangObject(g).Settings
	var says gang.Settings
	if len(pods) > 0 {
		oldest := slices.MinFunc(pods, func(a, b *corev1.Pod) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
		is, _ := convert.GangPod(oldest)
		says = is.Settings
	}
	return int32(cmp.Or(says.Min, object.Min, says.Total, object.Total, 1))
}
