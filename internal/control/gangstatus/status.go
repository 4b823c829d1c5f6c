package gangstatus

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// memory is what a status cannot say. A process that does not have it may send an Event once more.
type memory struct {
	late  bool       // gang.Progress.Late
	stage gang.Stage // one that the API has no phase for; empty for another one
}

// remember returns what the status of a PodGroup of an API group cannot say.
func remember(group string, p gang.Progress) memory {
	m := memory{late: p.Late}
	if phaseOf(group, p.Stage) != v1alpha1.PodGroupPhase(p.Stage) {
		m.stage = p.Stage
	}
	return m
}

// phaseOf returns the phase with which an API group shows a stage. The community's PodGroup has neither PreScheduling
// nor Scheduled, that of Kubernetes has conditions alone: a set that has started remains Scheduled.
func phaseOf(group string, s gang.Stage) v1alpha1.PodGroupPhase {
	switch {
	case group == v1alpha1.CommunityGroupName && s == gang.StagePreScheduling:
		return v1alpha1.PodGroupPending
	case group == v1alpha1.CommunityGroupName && s == gang.StageScheduled:
		return v1alpha1.PodGroupScheduling
	case group == v1alpha1.NativeGroupName && s == gang.StageUnknown:
		return v1alpha1.PodGroupScheduled
	}
	return v1alpha1.PodGroupPhase(s)
}

// progressOf reads the status of a PodGroup.
func progressOf(g *v1alpha1.PodGroup, m memory) gang.Progress {
	group := g.GroupVersionKind()
	p := gang.Progress{
		Stage: gang.Stage(g.Status.Phase), Controllers: g.Status.OccupiedBy, Late: m.late,
		Start:    conditionOf(g, v1alpha1.ScheduledCondition(group)),
		Eviction: conditionOf(g, string(corev1.DisruptionTarget)),
	}
	if m.stage != "" && phaseOf(group.Group, m.stage) == g.Status.Phase {
		p.Stage = m.stage
	}
	if g.Status.ScheduleStartTime != nil {
		p.Began = g.Status.ScheduleStartTime.Time
	}
	return p
}

func conditionOf(g *v1alpha1.PodGroup, kind string) gang.Condition {
	c := meta.FindStatusCondition(g.Status.Conditions, kind)
	if c == nil {
		return gang.Condition{}
	}
	return gang.Condition{Status: gang.Truth(c.Status), Reason: c.Reason, Message: c.Message}
}

// worldOf reads the pods of a PodGroup, ended ones too.
func worldOf(g *v1alpha1.PodGroup, pods []*corev1.Pod, now time.Time) *gang.World {
	w := &gang.World{Now: now, Object: convert.GangObject(g).Settings}
	for _, p := range pods {
		own, _ := convert.GangPod(p)
		worker := gang.Worker{Pod: own}
		if owner := metav1.GetControllerOfNoCopy(p); owner != nil {
			worker.Controller = p.Namespace + "/" + owner.Name
		}
		switch p.Status.Phase {
		case corev1.PodRunning:
			worker.Phase = gang.WorkerRunning
		case corev1.PodSucceeded:
			worker.Phase = gang.WorkerSucceeded
		case corev1.PodFailed:
			worker.Phase = gang.WorkerFailed
		}
		for _, c := range p.Status.Conditions {
			switch {
			case c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue:
				worker.Preempted = c.Reason == corev1.PodReasonPreemptionByScheduler
			case c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse &&
				(why.Refuses(c.Reason) || c.Reason == corev1.PodReasonSchedulerError):
				said, _ := why.ParseMessage(c.Message)
				worker.Refused = &gang.Refused{Code: said.Code, Reason: c.Reason, Message: c.Message}
			}
		}
		w.Pods = append(w.Pods, worker)
	}
	return w
}

// statusOf returns the status that says p, of a PodGroup whose status says was.
func statusOf(g *v1alpha1.PodGroup, was, p gang.Progress, now time.Time) v1alpha1.PodGroupStatus {
	group := g.GroupVersionKind()
	status := v1alpha1.PodGroupStatus{
		Phase: phaseOf(group.Group, p.Stage), OccupiedBy: p.Controllers, Scheduled: int32(p.Scheduled),
		Running: int32(p.Running), Succeeded: int32(p.Succeeded), Failed: int32(p.Failed),
		ScheduleStartTime: g.Status.ScheduleStartTime, Conditions: slices.Clone(g.Status.Conditions),
	}
	if status.ScheduleStartTime == nil && !p.Began.IsZero() {
		status.ScheduleStartTime = &metav1.Time{Time: p.Began}
	}
	set := func(kind string, was, c gang.Condition) {
		switch {
		case c == gang.Condition{}:
			meta.RemoveStatusCondition(&status.Conditions, kind)
		case c != was || c.Status == gang.False:
			meta.SetStatusCondition(&status.Conditions, metav1.Condition{
				Type: kind, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
				LastTransitionTime: metav1.NewTime(now), ObservedGeneration: g.Generation,
			})
		}
	}
	set(v1alpha1.ScheduledCondition(group), was.Start, p.Start)
	switch group.Group {
	case v1alpha1.CommunityGroupName: // it does not have the number
		status.Scheduled = 0
	case v1alpha1.NativeGroupName: // it has nothing else
		set(string(corev1.DisruptionTarget), was.Eviction, p.Eviction)
		return v1alpha1.PodGroupStatus{
			Conditions: status.Conditions, Phase: v1alpha1.NativePhase(status.Conditions),
		}
	}
	return status
}
