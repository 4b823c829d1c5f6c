package gang

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenon-project/tenon/internal/core/why"
)

// Stage is how far the set of pods of a PodGroup is. The zero value is that of a PodGroup without a status.
type Stage string

// Stages.
const (
	StagePending       Stage = "Pending"       // no pods
	StagePreScheduling Stage = "PreScheduling" // no pod has a node
	StageScheduling    Stage = "Scheduling"    // some pods have nodes, fewer than the minimum
	StageScheduled     Stage = "Scheduled"     // the minimum has nodes
	StageRunning       Stage = "Running"       // the minimum runs, or has succeeded
	StageUnknown       Stage = "Unknown"       // the set has started, and fewer pods than the minimum are left
	StageFinished      Stage = "Finished"      // all pods have ended, and the minimum has succeeded
	StageFailed        Stage = "Failed"        // all pods have ended, and too few have succeeded
)

// IsStarted reports whether the minimum had nodes once.
func (s Stage) IsStarted() bool { return s.isUnderWay() || s.isFinal() }

func (s Stage) isUnderWay() bool {
	return s == StageScheduled || s == StageRunning || s == StageUnknown
}

func (s Stage) isFinal() bool { return s == StageFinished || s == StageFailed }

// Truth is the status of a condition. The zero value is that of a condition that does not exist.
type Truth string

// Values of a Truth.
const (
	True  Truth = "True"
	False Truth = "False"
)

// Condition is a condition of a PodGroup.
type Condition struct {
	Status          Truth
	Reason, Message string
}

// preempted is the reason of pods, and of a PodGroup, that the scheduler evicts for others.
const preempted = "PreemptionByScheduler"

// Progress is what the status of a PodGroup says of its pods.
type Progress struct {
	Stage Stage
	// Scheduled counts the pods with a node, ended ones too; the others count pods in these phases.
	Scheduled, Running, Succeeded, Failed int
	// Controllers are the controllers of the pods, as namespace/name, sorted, between commas. They are kept when no pod
	// with a controller is left.
	Controllers string
	// Began is when a pod had a node for the first time; the zero time before.
	Began time.Time
	// Start is True once the minimum had nodes, and never taken back. While it is False it says why pods do not start.
	Start Condition
	// Eviction is True while the scheduler evicts all pods that have nodes, and False afterwards.
	Eviction Condition
	// Late is set with NoticePartial, until the gang is not in part any more. It need not be stored: a
	// process that does not know it reports once more.
	Late bool
}

// Worker is a pod of a PodGroup, which may have ended.
type Worker struct {
	Pod
	Controller string // namespace/name; empty without one
	Phase      WorkerPhase
	Refused    *Refused // the scheduler's last refusal of a pod without a node; nil without one
	Preempted  bool     // the scheduler evicts it for others
}

// WorkerPhase is the phase of a pod, as far as a PodGroup counts it.
type WorkerPhase uint8

// Phases of a pod. The zero value is a pod that does not run yet.
const (
	WorkerPending WorkerPhase = iota
	WorkerRunning
	WorkerSucceeded
	WorkerFailed
)

func (w *Worker) hasEnded() bool { return w.Phase == WorkerSucceeded || w.Phase == WorkerFailed }

// isPlaced reports whether the pod has a node and has not ended.
func (w *Worker) isPlaced() bool { return w.Node != "" && !w.hasEnded() }

// Refused is the condition of a pod that a scheduler refused.
type Refused struct {
	Code            why.Code // None for a refusal without a code, such as one of another scheduler
	Reason, Message string
}

// isOfGang reports whether the refusal is about the gang, and not about the pod alone.
func (r *Refused) isOfGang() bool { return r.Code.Class() == why.Gang || r.Code == why.GangOtherDomain }

// World is what the API server has beside the status of a PodGroup.
type World struct {
	Now    time.Time
	Object Settings // of the PodGroup
	Pods   []Worker // all that exist, in any order
}

// Notice is what an Event reports about a gang.
type Notice string

// Notices.
const (
	NoNotice      Notice = ""
	NoticeStarted Notice = "Started" // the minimum has nodes
	NoticeShrunk  Notice = "Shrunk"  // fewer pods than the minimum are left of a gang that has started
	NoticePartial Notice = "Partial" // some pods have had nodes for longer than Bindings take, fewer than the minimum
)

// Actions are what follows the write of a Progress.
type Actions struct {
	Notice Notice
	// Placed is how many pods that have not ended have nodes, Least how many must have.
	Placed, Least int
	// Again is after what time the step is to be repeated even if nothing changes; 0 for never.
	Again time.Duration
}

// bindTime is how long it may take to bind the members of a gang. Where it is in part for longer, some could not be
// bound.
const bindTime = 15 * time.Second

// Step returns what the status of a PodGroup is to say, and what follows once it does. The next step takes what it
// returns. A set of pods that has started stays started until no pod of it is left, or until another set follows its
// end.
func Step(was Progress, w *World) (Progress, Actions) {
	pods := slices.Clone(w.Pods)
	if !was.Stage.isUnderWay() {
		follows := was.Stage.isFinal() || was.Start.Status == True
		pods = withoutFormerSet(pods, follows)
	}
	slices.SortFunc(pods, func(a, b Worker) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	settings := w.Object
	if len(pods) > 0 {
		settings = pods[0].Settings.over(settings)
	}
	do := Actions{Least: settings.least()}
	next := was.count(pods)
	for i := range pods {
		if pods[i].isPlaced() {
			do.Placed++
		}
	}
	next.Stage = next.stage(was.Stage, len(pods), do)
	if next.Scheduled > 0 && next.Began.IsZero() {
		next.Began = w.Now
	}
	next.Start = startCondition(was.Start, next.Stage, pods)
	next.Eviction = evictionCondition(was.Eviction, pods, do.Placed)
	switch {
	case next.Stage == StageUnknown && was.Stage != StageUnknown:
		do.Notice = NoticeShrunk
	case next.Stage.IsStarted() && !was.Stage.IsStarted():
		do.Notice = NoticeStarted
	}
	since := placedSince(pods)
	next.Late = false
	if next.Stage == StageScheduling && !since.IsZero() {
		do.Again = max(bindTime-w.Now.Sub(since), 0)
		if next.Late = do.Again == 0; next.Late && !was.Late {
			do.Notice = NoticePartial
		}
	}
	return next, do
}

// count returns p with the numbers and the controllers of pods.
func (p Progress) count(pods []Worker) Progress {
	p.Scheduled, p.Running, p.Succeeded, p.Failed = 0, 0, 0, 0
	controllers := map[string]bool{}
	for i := range pods {
		if pods[i].Node != "" {
			p.Scheduled++
		}
		if name := pods[i].Controller; name != "" {
			controllers[name] = true
		}
		switch pods[i].Phase {
		case WorkerPending:
		case WorkerRunning:
			p.Running++
		case WorkerSucceeded:
			p.Succeeded++
		case WorkerFailed:
			p.Failed++
		}
	}
	if len(controllers) > 0 {
		p.Controllers = strings.Join(slices.Sorted(maps.Keys(controllers)), ",")
	}
	return p
}

// stage returns how far a set of pods is of which p has the numbers.
func (p Progress) stage(was Stage, pods int, do Actions) Stage {
	active := pods - p.Succeeded - p.Failed
	goesOn := was.isUnderWay() && pods > 0 || was.isFinal() && (active == 0 || active < pods)
	switch started := goesOn || p.Scheduled >= do.Least; {
	case !started && p.Scheduled > 0:
		return StageScheduling
	case !started && active > 0:
		return StagePreScheduling
	case !started:
		return StagePending
	case active == 0 && p.Succeeded >= do.Least:
		return StageFinished
	case active == 0 && p.Failed > 0:
		return StageFailed
	case active == 0 && was.isFinal():
		return was
	case p.Running+p.Succeeded >= do.Least:
		return StageRunning
	case do.Placed+p.Succeeded >= do.Least:
		return StageScheduled
	}
	return StageUnknown
}

// withoutFormerSet returns the pods without those that have ended and whose controller has no others: a later set
// follows them. Where the set follows one that has started, pods without a controller that have ended are of that one.
// If no pod is left that has not ended, all count.
func withoutFormerSet(pods []Worker, follows bool) []Worker {
	active := map[string]bool{}
	for i := range pods {
		if !pods[i].hasEnded() {
			active[pods[i].Owner] = true
		}
	}
	if len(active) == 0 {
		return pods
	}
	return slices.DeleteFunc(pods, func(p Worker) bool {
		return p.hasEnded() && (p.Owner == "" && follows || p.Owner != "" && !active[p.Owner])
	})
}

// placedSince returns when the first of the pods that have nodes got its node; the zero time where none says so.
func placedSince(pods []Worker) (first time.Time) {
	for i := range pods {
		if p := &pods[i]; p.isPlaced() && !p.Bound.IsZero() && (first.IsZero() || p.Bound.Before(first)) {
			first = p.Bound
		}
	}
	return first
}

// startCondition returns Progress.Start. While the gang has not started it is the refusal of its oldest pod that has
// one; a refusal of the gang comes before that of one pod.
func startCondition(was Condition, stage Stage, pods []Worker) Condition {
	if was.Status == True {
		return was
	}
	if stage.IsStarted() {
		return Condition{Status: True, Reason: "Scheduled"}
	}
	var cause *Refused
	for i := range pods {
		r := pods[i].Refused
		if r == nil || pods[i].Node != "" || pods[i].hasEnded() {
			continue
		}
		if cause == nil || r.isOfGang() && !cause.isOfGang() {
			cause = r
		}
	}
	if cause == nil {
		return Condition{}
	}
	return Condition{False, cause.Reason, cause.Message}
}

// evictionCondition returns Progress.Eviction.
func evictionCondition(was Condition, pods []Worker, placed int) Condition {
	evicted := 0
	for i := range pods {
		if pods[i].isPlaced() && pods[i].Preempted {
			evicted++
		}
	}
	switch {
	case placed == 0:
		return was
	case evicted == placed:
		return Condition{True, preempted, "all pods of the group are evicted"}
	case was.Status == True:
		return Condition{Status: False, Reason: "Scheduled"}
	}
	return was
}
