package forecast_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	. "github.com/tenon-project/tenon/internal/core/forecast"
)

const hour = time.Hour

func TestDeclaration(t *testing.T) {
	t.Parallel()
	declared := func(d time.Duration, s Source) RunTime { return RunTime{Range{d, d}, s} }
	two := 2 * hour
	for name, c := range map[string]struct {
		d    Declaration
		want RunTime
	}{
		"nothing":                        {Declaration{}, RunTime{}},
		"the pod before its owner":       {Declaration{Pod: two, Owner: hour}, declared(two, Annotated)},
		"the owner before the quota":     {Declaration{Owner: hour, Quota: two}, declared(hour, Annotated)},
		"a deadline before the quota":    {Declaration{PodDeadline: hour, Quota: two}, declared(hour, Deadline)},
		"the deadline of the Job":        {Declaration{JobDeadline: hour}, declared(hour, Deadline)},
		"the smaller deadline":           {Declaration{PodDeadline: two, JobDeadline: hour}, declared(hour, Deadline)},
		"an annotation below a deadline": {Declaration{Pod: hour, PodDeadline: two}, declared(hour, Annotated)},
		"an annotation above a deadline": {Declaration{Pod: two, PodDeadline: hour}, declared(hour, Annotated)},
		"the quota alone":                {Declaration{Quota: hour}, declared(hour, QuotaDefault)},
		"a negative time counts as none": {Declaration{Pod: -hour, Quota: -1, PodDeadline: -2}, RunTime{}},
		"a huge deadline is cut":         {Declaration{PodDeadline: Never - 1}, declared(Longest, Deadline)},
		"a huge time of a quota is cut":  {Declaration{Quota: Never}, declared(Longest, QuotaDefault)},
	} {
		if got := c.d.RunTime(); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

func TestOnlyDeclaredTimesMayDecide(t *testing.T) {
	t.Parallel()
	for source, want := range map[Source]bool{
		Unknown: false, Learned: false, Annotated: true, Deadline: true, QuotaDefault: true,
	} {
		if got := (RunTime{Source: source}).IsDeclared(); got != want {
			t.Errorf("%q: got %v, want %v", source, got, want)
		}
	}
}

func TestEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		runs RunTime
		ran  time.Duration
		want Range
	}{
		"unknown":                    {RunTime{}, hour, Range{Never, Never}},
		"in between":                 {RunTime{Range{hour, 3 * hour}, Learned}, 2 * hour, Range{0, hour}},
		"before both":                {RunTime{Range{2 * hour, 3 * hour}, Learned}, hour, Range{hour, 2 * hour}},
		"outlived":                   {RunTime{Range{hour, hour}, Annotated}, 2 * hour, Range{0, Never}},
		"at its end":                 {RunTime{Range{hour, hour}, Annotated}, hour, Range{0, Never}},
		"started in the future":      {RunTime{Range{hour, hour}, Annotated}, -hour, Range{hour, hour}},
		"the clock was set far back": {RunTime{Range{hour, hour}, Annotated}, -Never, Range{hour, hour}},
		"the clock was set far on":   {RunTime{Range{hour, hour}, Annotated}, Never, Range{0, Never}},
	} {
		if got := c.runs.Ends(c.ran); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// add records a run of so many minutes that ended at a minute.
func add(h *History, workload, uid string, minutes, ended int) {
	end := time.Unix(int64(ended)*60, 0)
	h.Add(workload, uid, end.Add(-time.Duration(minutes)*time.Minute), end)
}

func TestHistory(t *testing.T) {
	t.Parallel()
	h := NewHistory(2, 10)
	for i := range 10 {
		add(h, "sweep", fmt.Sprint(i), i+1, 100+i)
	}
	want := RunTime{span(5, 9), Learned}
	if got := h.RunTime("sweep"); got != want {
		t.Errorf("the runs of 1 to 10 minutes: got %v, want %v", got, want)
	}
	add(h, "sweep", "3", 99, 200)
	if got := h.RunTime("sweep"); got != want {
		t.Errorf("a pod that is known: got %v, want %v", got, want)
	}
	add(h, "sweep", "old", 99, 1)
	if got := h.RunTime("sweep"); got != want {
		t.Errorf("one more that ended before all of them: got %v, want %v", got, want)
	}
	add(h, "sweep", "new", 99, 200)
	if got := h.RunTime("sweep"); got == want {
		t.Error("the newest run does not count")
	}
	add(h, "few", "a", 1, 300)
	add(h, "few", "b", 1, 300)
	if got := h.RunTime("few"); got != (RunTime{}) {
		t.Errorf("two runs: got %v, want unknown", got)
	}
	add(h, "third", "a", 1, 301)
	if got := h.RunTime("sweep"); got != (RunTime{}) {
		t.Errorf("the workload that ended first of three: got %v, want it forgotten", got)
	}
	if got := h.RunTime("never seen"); got != (RunTime{}) {
		t.Errorf("a workload that is not known: got %v", got)
	}
}

func TestARunWithoutATimeIsNotLearned(t *testing.T) {
	t.Parallel()
	h, end := NewHistory(9, 9), time.Unix(1000, 0)
	for i := range 5 {
		h.Add("w", fmt.Sprint(i), end, end)                     // it did not run
		h.Add("w", fmt.Sprint("b", i), end.Add(time.Hour), end) // it ended before it started
		h.Add("w", fmt.Sprint("c", i), time.Time{}, end)        // it never started
	}
	if got := h.RunTime("w"); got != (RunTime{}) {
		t.Errorf("got %v, want unknown", got)
	}
}

// TestAHistoryIsThatOfItsRunsInAnyOrder: one that is rebuilt from the API equals the one before the restart.
func TestAHistoryIsThatOfItsRunsInAnyOrder(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		one, other := NewHistory(100, 4), NewHistory(100, 4)
		order := random.Perm(12)
		for i := range 12 {
			add(one, "w", fmt.Sprint(i), 1+i*i, i/2)
		}
		for _, i := range order {
			add(other, "w", fmt.Sprint(i), 1+i*i, i/2)
		}
		if a, b := one.RunTime("w"), other.RunTime("w"); a != b {
			t.Fatalf("order %v: %v, want %v", order, b, a)
		}
	}
}

// TestAnOutlivedPodIsExpectedToEnd: soon at first, and ever later.
func TestAnOutlivedPodIsExpectedToEnd(t *testing.T) {
	t.Parallel()
	hour := RunTime{Range{time.Hour, time.Hour}, Annotated}
	for name, c := range map[string]struct {
		runs      RunTime
		ran, want time.Duration
		outlived  bool
	}{
		"none is declared":         {RunTime{}, time.Hour, Never, false},
		"learned ones do not bind": {RunTime{Range{time.Hour, time.Hour}, Learned}, 0, Never, false},
		"it has yet to start":      {hour, -time.Minute, time.Hour, false},
		"it runs":                  {hour, 20 * time.Minute, 40 * time.Minute, false},
		"its time is over":         {hour, time.Hour, 0, false},
		"over by a second":         {hour, time.Hour + time.Second, 59 * time.Second, true},
		"over by a minute":         {hour, time.Hour + time.Minute, 0, true},
		"over by more":             {hour, time.Hour + 61*time.Second, 59 * time.Second, true},
		"over by hours":            {hour, 4 * time.Hour, (256 - 180) * time.Minute, true},
		"over for ever":            {hour, Never, 0, true},
	} {
		if left, outlived := c.runs.Left(c.ran); left != c.want || outlived != c.outlived {
			t.Errorf("%s: %v left, outlived %t; want %v, %t", name, left, outlived, c.want, c.outlived)
		}
	}
}
