package forecast

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Never is the end of what has no known end.
const Never = time.Duration(math.MaxInt64)

// Bounds of run times that are declared.
const (
	Shortest = time.Second
	Longest  = 365 * 24 * time.Hour
)

// Source says where a run time comes from.
type Source string

// Sources.
const (
	Unknown      Source = ""
	Annotated    Source = "Annotation"   // the pod or its owner declares it
	Deadline     Source = "Deadline"     // activeDeadlineSeconds of the pod or its Job
	QuotaDefault Source = "QuotaDefault" // the pod's quota declares it
	Learned      Source = "Learned"      // from ended pods of the same workload
)

// Range is from when to when, counted from now. Late is Never where no end is known.
type Range struct{ Early, Late time.Duration }

// RunTime is how long a unit runs from its start. The zero value is unknown.
type RunTime struct {
	Range
	Source Source
}

// IsDeclared reports whether decisions may rely on the run time. One that was learned only informs.
func (r RunTime) IsDeclared() bool { return r.Source != Unknown && r.Source != Learned }

// Declaration is what a pod and the objects around it declare about its run time; 0 for nothing.
type Declaration struct {
	Pod, Owner, Quota        time.Duration // expected
	PodDeadline, JobDeadline time.Duration // when Kubernetes ends the pod
}

// Deadline returns after what time Kubernetes ends the pod; Never where it does not.
func (d Declaration) Deadline() time.Duration {
	deadline := Never
	for _, at := range []time.Duration{d.PodDeadline, d.JobDeadline} {
		if at > 0 {
			deadline = min(deadline, at)
		}
	}
	return deadline
}

// RunTime returns the declared run time: what the pod says, else its owner, else a deadline, else its quota. It is
// never longer than a deadline, which ends the pod.
func (d Declaration) RunTime() RunTime {
	deadline := d.Deadline()
	expected, source := cmp.Or(d.Pod, d.Owner), Annotated
	if expected <= 0 && deadline < Never {
		expected, source = deadline, Deadline
	}
	if expected <= 0 {
		expected, source = d.Quota, QuotaDefault
	}
	if expected <= 0 {
		return RunTime{}
	}
	expected = min(expected, deadline, Longest)
	return RunTime{Range{expected, expected}, source}
}

// Ends returns when a pod ends that has run for some time. A pod that outlived its run time may end at any moment, or
// never. A start in the future, as the clock of another machine may set it, counts as now.
func (r RunTime) Ends(ran time.Duration) Range {
	ran = max(ran, 0)
	switch {
	case r.Source == Unknown:
		return Range{Never, Never}
	case ran >= r.Late:
		return Range{0, Never}
	}
	return Range{max(0, r.Early-ran), r.Late - ran}
}

// firstOverrun is how much longer than declared a pod is expected to run that has outlived its run time.
const firstOverrun = time.Minute

// Left returns how long a pod runs on by its declared run time that has run for some time; Never for one that declares
// none. A pod that has outlived its run time is expected to end a minute after it, then two, four, and so on: what
// waits for its end has a start, which moves on by little, and others may use the room until then.
func (r RunTime) Left(ran time.Duration) (left time.Duration, outlived bool) {
	if !r.IsDeclared() {
		return Never, false
	}
	ran = max(ran, 0)
	if ran <= r.Late {
		return r.Late - ran, false
	}
	over := firstOverrun
	for over < ran-r.Late && over < Never/2 {
		over *= 2
	}
	return max(over-(ran-r.Late), 0), true
}

// History is how long ended pods ran, by workload. It keeps the last runs of the workloads that ended last, so that its
// content depends on the runs alone, not on their order. It is not safe for concurrent use.
type History struct {
	workloads, each int
	runs            map[string][]run // the newest first. Invariant: none is empty.
}

// run is one pod that ended.
type run struct {
	uid   string
	ended time.Time
	ran   time.Duration
}

// compare orders runs by their end, the newest first.
func (r run) compare(o run) int { return cmp.Or(o.ended.Compare(r.ended), cmp.Compare(r.uid, o.uid)) }

// fewestRuns is how many runs of a workload must be known before they say anything.
const fewestRuns = 3

// NewHistory returns an empty history of at most so many workloads, and runs of each.
func NewHistory(workloads, each int) *History {
	return &History{workloads: workloads, each: each, runs: map[string][]run{}}
}

// Add records a pod that ended. A pod that did not run, and one that is known, changes nothing.
func (h *History) Add(workload, uid string, started, ended time.Time) {
	r := run{uid, ended, ended.Sub(started)}
	all := h.runs[workload]
	if r.ran <= 0 || started.IsZero() || slices.ContainsFunc(all, func(o run) bool { return o.uid == uid }) {
		return
	}
	at, _ := slices.BinarySearchFunc(all, r, run.compare)
	all = slices.Insert(all, at, r)
	h.runs[workload] = all[:min(len(all), h.each)]
	if len(h.runs) <= h.workloads {
		return
	}
	oldest := ""
	for name, runs := range h.runs {
		if last := h.runs[oldest]; last == nil ||
			cmp.Or(runs[0].compare(last[0]), cmp.Compare(name, oldest)) > 0 {
			oldest = name
		}
	}
	delete(h.runs, oldest)
}

// RunTime returns the median and the 90th percentile of a workload's runs; unknown where fewer than three are known.
func (h *History) RunTime(workload string) RunTime {
	all := h.runs[workload]
	if len(all) < fewestRuns {
		return RunTime{}
	}
	ran := make([]time.Duration, 0, len(all))
	for _, r := range all {
		ran = append(ran, r.ran)
	}
	slices.Sort(ran)
	at := func(percent int) time.Duration { return ran[(len(ran)*percent+99)/100-1] }
	return RunTime{Range{at(50), at(90)}, Learned}
}
