package view

import (
	"slices"
	"strings"
	"time"

	"github.com/tenon-project/tenon/internal/core/forecast"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Forecast is the pods and gangs that wait, in the order in which the scheduler tries them, and when they can start.
type Forecast struct {
	// At is when the forecast was made.
	At    time.Time     `json:"at"`
	Queue []WaitingUnit `json:"queue"`
	// Bound is the time that ended the forecast before all were estimated; absent where nothing did.
	Bound string `json:"bound,omitempty"`
	// Overdue are the pods that have outlived their declared run time, and after which others start.
	Overdue []Overdue `json:"overdue,omitempty"`
	// Hidden counts those in namespaces that the caller may not read.
	Hidden int `json:"hidden,omitempty"`
	// Notes are sentences about what the forecast leaves out.
	Notes []string `json:"notes,omitempty"`
}

// For returns what a caller may read that may read the pods of some namespaces. It shares what it does not change.
func (f *Forecast) For(mayRead func(namespace string) bool) *Forecast {
	out := *f
	out.Queue, out.Overdue = []WaitingUnit{}, nil
	readable := func(name string) bool {
		parts := strings.Split(name, "/")
		return len(parts) < 2 || mayRead(parts[len(parts)-2])
	}
	for _, o := range f.Overdue {
		if readable("pod/" + o.Pod) {
			out.Overdue = append(out.Overdue, o)
		}
	}
	for _, u := range f.Queue {
		if !readable(u.Name) || slices.ContainsFunc(u.Pods, func(pod string) bool { return !readable(pod) }) {
			out.Hidden++
			continue
		}
		if u.Start != nil {
			start := *u.Start
			start.After = slices.DeleteFunc(slices.Clone(start.After), func(name string) bool {
				return !readable(name)
			})
			u.Start = &start
		}
		if u.HeldBack != nil && !readable(u.HeldBack.For) {
			held := *u.HeldBack
			held.For, u.HeldBack = "", &held
		}
		out.Queue = append(out.Queue, u)
	}
	return &out
}

// Overdue is a pod that runs for longer than it declares.
type Overdue struct {
	Pod      string `json:"pod"` // namespace/name
	Declared string `json:"declared"`
	Ran      string `json:"ran"`
}

// Text says for how long the pod has run.
func (o *Overdue) Text() string {
	return "the pod has run for " + o.Ran + ", longer than the " + o.Declared + " that are declared"
}

// WaitingUnit is a pod, or the pods of a gang that wait to start together.
type WaitingUnit struct {
	// Position counts from 1.
	Position int `json:"position"`
	// Name is pod/NAMESPACE/NAME or gang/NAMESPACE/NAME.
	Name string   `json:"name"`
	Pods []string `json:"pods"`
	// QuotaPath are the quotas from the top of their tree to that of the pods.
	QuotaPath []string  `json:"quotaPath,omitempty"`
	Priority  int32     `json:"priority"`
	Since     time.Time `json:"since"`
	// Waits is why the last attempt failed; absent before one.
	Waits *why.Wire `json:"waits,omitempty"`
	// RunTime is how long it will run; absent where this is not known.
	RunTime *RunTime `json:"runTime,omitempty"`
	// Start is absent where the forecast ended before.
	Start *ExpectedStart `json:"start,omitempty"`
	// Hold is the nodes that are kept for it; absent where none are.
	Hold *Hold `json:"hold,omitempty"`
	// HeldBack is set where it would fit if a node were not held for another one.
	HeldBack *HeldBack `json:"heldBack,omitempty"`
}

// RunTime is how long a pod runs from its start. Both times are equal where they are declared. Where they are learned,
// they are the median and the 90th percentile.
type RunTime struct {
	Likely string          `json:"likely"`
	Late   string          `json:"late"`
	Source forecast.Source `json:"source"`
}

// IsLearned reports whether the run time is of pods that have ended.
func (r *RunTime) IsLearned() bool { return r.Source == forecast.Learned }

// RunTimeOf returns a run time; nil for one that is not known.
func RunTimeOf(r forecast.RunTime) *RunTime {
	if r.Source == forecast.Unknown {
		return nil
	}
	return &RunTime{r.Early.String(), r.Late.String(), r.Source}
}

// States of an ExpectedStart.
const (
	// StartsNow fits now: it starts at its next attempt.
	StartsNow = "Now"
	// StartsAfter starts after others have ended.
	StartsAfter = "Expected"
	// StartUnknown waits for pods whose ends are not known.
	StartUnknown = "Unknown"
	// StartIncomplete lacks members of its gang, so no end of another one lets it start.
	StartIncomplete = "Incomplete"
	// StartsNever does not fit either if no other pod runs.
	StartsNever = "Never"
)

// ExpectedStart is when a pod or gang can start.
type ExpectedStart struct {
	State string `json:"state"`
	// Earliest and Latest are absent where they are not known.
	Earliest *time.Time `json:"earliest,omitempty"`
	Latest   *time.Time `json:"latest,omitempty"`
	// After are those that end before, KIND/NAMESPACE/NAME each.
	After []string `json:"after,omitempty"`
	// Learned says that run times of these are learned, and not declared.
	Learned bool `json:"learned,omitempty"`
}

// ExpectedStartOf returns an estimate as times; nil for one that was not made.
func ExpectedStartOf(e forecast.Estimate, now time.Time) *ExpectedStart {
	at := func(d time.Duration) *time.Time {
		if d == forecast.Never {
			return nil
		}
		t := now.Add(d)
		return &t
	}
	out := &ExpectedStart{State: StartsAfter, Earliest: at(e.Start.Early), Latest: at(e.Start.Late), After: e.After}
	switch {
	case !e.Tried:
		return nil
	case e.Hopeless:
		out.State = StartsNever
	case e.Start.Early == forecast.Never:
		out.State = StartUnknown
	case e.Start.Late == 0 && len(e.After) == 0:
		out.State = StartsNow
	}
	return out
}

// Text says when it starts, and after what: "14:32 to 15:10, after job/default/sweep".
func (s *ExpectedStart) Text(now time.Time) string {
	if s == nil {
		return "not estimated"
	}
	text := map[string]string{
		StartsNow: "now", StartUnknown: "unknown: pods without a known end hold the room",
		StartIncomplete: "unknown: the gang lacks members",
		StartsNever:     "never: it would not fit if no other pod ran",
	}[s.State]
	if s.State == StartsAfter {
		text = clock(*s.Earliest, now)
		switch {
		case s.Latest == nil:
			text = "from " + text
		case clock(*s.Latest, now) != text:
			text += " to " + clock(*s.Latest, now)
		}
	}
	if len(s.After) > 0 {
		text += ", after " + NamesText(s.After, 3)
	}
	return text
}

// clock is a time of today as 15:04, and any other one with its day.
func clock(t, now time.Time) string {
	t = t.In(now.Location())
	switch {
	case t.Year() != now.Year():
		return t.Format("Jan 2 2006 15:04")
	case t.YearDay() != now.YearDay():
		return t.Format("Jan 2 15:04")
	}
	return t.Format("15:04")
}
