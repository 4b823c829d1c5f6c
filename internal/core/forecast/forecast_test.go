package forecast_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	. "github.com/tenon-project/tenon/internal/core/forecast"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// job is a unit of pods of one size each. A job with a place runs.
type job struct {
	name  string
	pods  []int // sizes
	place []int // nodes, by pod; nil for a job that waits
	ends  Range // of a job that waits: how long it runs
}

// machine is nodes with free amounts. Pods go to the first node that has room.
type machine struct {
	nodes []int // capacity
	jobs  []job

	free    []int
	running map[string]job
	starts  int // calls of Start
}

// Reset returns to the jobs that run.
func (m *machine) Reset() error {
	m.free, m.running = slices.Clone(m.nodes), map[string]job{}
	for _, j := range m.jobs {
		if j.place != nil {
			m.running[j.name] = j
			for i, size := range j.pods {
				m.free[j.place[i]] -= size
			}
		}
	}
	return nil
}

func (m *machine) waiting() (out []job) {
	for _, j := range m.jobs {
		if j.place == nil {
			out = append(out, j)
		}
	}
	return out
}

// Start places all pods of a job or none.
func (m *machine) Start(waiting int) (bool, error) {
	m.starts++
	j, free := m.waiting()[waiting], slices.Clone(m.free)
	for _, size := range j.pods {
		at := slices.IndexFunc(free, func(f int) bool { return f >= size })
		if at < 0 {
			return false, nil
		}
		free[at] -= size
		j.place = append(slices.Clone(j.place), at)
	}
	m.free, m.running[j.name] = free, j
	return true, nil
}

// End releases what a job holds.
func (m *machine) End(name string) error {
	j, found := m.running[name]
	if !found {
		return fmt.Errorf("%s does not run", name)
	}
	for i, size := range j.pods {
		m.free[j.place[i]] += size
	}
	delete(m.running, name)
	return nil
}

// units returns the jobs as units.
func (m *machine) units() (running, waiting []Unit) {
	for _, j := range m.jobs {
		u := Unit{Name: j.name, Kind: fmt.Sprint(j.pods), Range: j.ends}
		if j.place != nil {
			running = append(running, u)
		} else {
			waiting = append(waiting, u)
		}
	}
	return running, waiting
}

func inTime(int, int) bool { return false }

// at is a range without width, in minutes.
func at(minutes int) Range { return span(minutes, minutes) }

func span(early, late int) Range {
	return Range{time.Duration(early) * time.Minute, time.Duration(late) * time.Minute}
}

var never = Range{Never, Never}

func TestRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		nodes []int
		jobs  []job
		want  []Estimate
	}{
		"a job that fits starts now": {
			nodes: []int{4}, jobs: []job{{"a", []int{4}, nil, at(5)}},
			want: []Estimate{{Start: at(0), Tried: true}},
		},
		"a job waits for the end of another, between its earliest and its latest": {
			nodes: []int{4}, jobs: []job{{"r", []int{3}, []int{0}, span(5, 9)}, {"a", []int{2}, nil, at(1)}},
			want: []Estimate{{Start: span(5, 9), After: []string{"r"}, Tried: true}},
		},
		"a gang starts whole": {
			nodes: []int{2, 2},
			jobs: []job{
				{"r", []int{2}, []int{0}, at(5)}, {"s", []int{2}, []int{1}, at(7)}, {"a", []int{2, 2}, nil, at(1)},
			},
			want: []Estimate{{Start: at(7), After: []string{"s"}, Tried: true}},
		},
		"jobs that start end, and others follow them": {
			nodes: []int{4},
			jobs:  []job{{"r", []int{4}, []int{0}, at(5)}, {"a", []int{4}, nil, at(3)}, {"b", []int{4}, nil, at(1)}},
			want: []Estimate{
				{Start: at(5), After: []string{"r"}, Tried: true}, {Start: at(8), After: []string{"a"}, Tried: true},
			},
		},
		"the order of the queue decides, not the run time": {
			nodes: []int{4},
			jobs:  []job{{"r", []int{4}, []int{0}, at(5)}, {"b", []int{4}, nil, at(9)}, {"a", []int{3}, nil, at(1)}},
			want: []Estimate{
				{Start: at(5), After: []string{"r"}, Tried: true}, {Start: at(14), After: []string{"b"}, Tried: true},
			},
		},
		"a small job fills a gap": {
			nodes: []int{4},
			jobs:  []job{{"r", []int{3}, []int{0}, at(5)}, {"a", []int{4}, nil, at(9)}, {"b", []int{1}, nil, at(2)}},
			want:  []Estimate{{Start: at(5), After: []string{"r"}, Tried: true}, {Start: at(0), Tried: true}},
		},
		"behind a job without a known end the start is unknown": {
			nodes: []int{4}, jobs: []job{{"r", []int{4}, []int{0}, never}, {"a", []int{1}, nil, at(1)}},
			want: []Estimate{{Start: never, Tried: true}},
		},
		"a job that outlived its time may end now or never": {
			nodes: []int{4}, jobs: []job{{"r", []int{4}, []int{0}, Range{0, Never}}, {"a", []int{1}, nil, at(1)}},
			want: []Estimate{{Start: Range{0, Never}, After: []string{"r"}, Tried: true}},
		},
		"a job that fits on no empty node never starts": {
			nodes: []int{4}, jobs: []job{{"r", []int{1}, []int{0}, at(5)}, {"a", []int{5}, nil, at(1)}},
			want: []Estimate{{Start: never, Tried: true, Hopeless: true}},
		},
		"a job that fits on no empty node never starts, though others have no known end": {
			nodes: []int{4},
			jobs: []job{
				{"r", []int{4}, []int{0}, never},
				{"a", []int{5}, nil, at(1)},
				{"b", []int{4}, nil, at(1)},
				{"c", []int{4}, nil, at(1)},
			},
			want: []Estimate{
				{Start: never, Tried: true, Hopeless: true}, {Start: never, Tried: true}, {Start: never, Tried: true},
			},
		},
		"a job without a run time is not waited for": {
			nodes: []int{4}, jobs: []job{{"a", []int{4}, nil, never}, {"b", []int{4}, nil, at(1)}},
			want: []Estimate{{Start: at(0), Tried: true}, {Start: never, Tried: true}},
		},
		"all units are named that end at one time": {
			nodes: []int{2, 2},
			jobs: []job{
				{"s", []int{2}, []int{0}, at(5)}, {"r", []int{2}, []int{1}, at(5)}, {"a", []int{2, 2}, nil, at(1)},
			},
			want: []Estimate{{Start: at(5), After: []string{"r", "s"}, Tried: true}},
		},
		// As early: r ends at 1, so that a starts before b, which then waits for a. As late: b starts at 3.
		"a shorter run of one unit can make another one later": {
			nodes: []int{2, 1},
			jobs: []job{
				{"r", []int{2}, []int{0}, span(1, 9)},
				{"s", []int{1}, []int{1}, at(3)},
				{"a", []int{2}, nil, at(50)},
				{"b", []int{1}, nil, at(1)},
			},
			want: []Estimate{
				{Start: span(1, 9), After: []string{"r"}, Tried: true},
				{Start: at(3), After: []string{"s"}, Tried: true},
			},
		},
	} {
		m := &machine{nodes: c.nodes, jobs: c.jobs}
		running, waiting := m.units()
		got, err := Run(m, running, waiting, inTime)
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s: (-want +got) %v\n%s", name, err, diff)
		}
	}
}

// TestUnitsOfOneKindAreTriedOnceAfterEachEnd: and in the end each alone. If all times are exact, there is one pass.
func TestUnitsOfOneKindAreTriedOnceAfterEachEnd(t *testing.T) {
	t.Parallel()
	for trials, runs := range map[int]Range{1 + 50: at(1), 2 + 2*50: span(1, 2)} {
		m := &machine{nodes: []int{4}, jobs: []job{{"r", []int{4}, []int{0}, never}}}
		for i := range 50 {
			m.jobs = append(m.jobs, job{fmt.Sprint("w", i), []int{2}, nil, runs})
		}
		running, waiting := m.units()
		got, err := Run(m, running, waiting, inTime)
		if err != nil || m.starts != trials {
			t.Errorf("%d trials, want %d (%v)", m.starts, trials, err)
		}
		if !got[49].Tried {
			t.Error("the last unit does not count as tried, as one of its kind was")
		}
	}
}

func TestUnitsWithoutAKindAreTriedEach(t *testing.T) {
	t.Parallel()
	m := &machine{nodes: []int{4}, jobs: []job{{"a", []int{5}, nil, at(1)}, {"b", []int{4}, nil, at(1)}}}
	running, waiting := m.units()
	waiting[0].Kind, waiting[1].Kind = "", ""
	got, err := Run(m, running, waiting, inTime)
	if err != nil || got[1].Start != at(0) {
		t.Errorf("the second one starts at %v, want now (%v)", got[1].Start, err)
	}
}

// TestEachPassHasHalfOfTheTime: what the first one finds is known where the time is over in the second one.
func TestEachPassHasHalfOfTheTime(t *testing.T) {
	t.Parallel()
	now := Estimate{Start: at(0), Tried: true}
	from := Estimate{Start: Range{5 * time.Minute, Never}, After: []string{"r"}, Tried: true}
	for name, c := range map[string]struct {
		first, second int // looks at the clock until the part of each pass is over
		want          []Estimate
	}{
		"the first pass has no time":  {0, 0, []Estimate{{Start: never}, {Start: never}, {Start: never}}},
		"the second pass has no time": {99, 0, []Estimate{now, from, {Start: never}}},
		"the second pass starts one":  {99, 1, []Estimate{now, from, {Start: never}}},
		"both have time": {99, 99, []Estimate{
			now, {Start: span(5, 9), After: []string{"r"}, Tried: true}, {Start: never, Tried: true, Hopeless: true},
		}},
	} {
		m := &machine{nodes: []int{3}, jobs: []job{
			{"r", []int{2}, []int{0}, span(5, 9)},
			{"a", []int{1}, nil, at(99)},
			{"b", []int{2}, nil, at(1)},
			{"c", []int{4}, nil, at(1)},
		}}
		running, waiting := m.units()
		looks := map[int]int{1: c.first, 2: c.second}
		got, err := Run(m, running, waiting, func(parts, all int) bool {
			if all != 2 {
				t.Errorf("%s: %d parts, want 2", name, all)
			}
			looks[parts]--
			return looks[parts] < 0
		})
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s: (-want +got) %v\n%s", name, err, diff)
		}
	}
}

func TestATimeThatIsOverBetweenTwoEndsLeavesOutWhatStillWaits(t *testing.T) {
	t.Parallel()
	m := &machine{nodes: []int{2}, jobs: []job{
		{"r", []int{2}, []int{0}, at(5)}, {"a", []int{2}, nil, at(1)}, {"b", []int{1}, nil, at(1)},
	}}
	running, waiting := m.units()
	calls := 0
	got, err := Run(m, running, waiting, func(int, int) bool { calls++; return calls > 3 }) // a has started, b has not
	if err != nil || !got[0].Tried || got[1].Tried {
		t.Errorf("got %+v (%v): the start of the second one was not looked for until the last end", got, err)
	}
}

// broken is a machine with an operation that fails.
type broken struct {
	*machine
	reset, start, end error
}

func (b broken) Reset() error {
	if b.reset != nil {
		return b.reset
	}
	return b.machine.Reset()
}

func (b broken) Start(waiting int) (bool, error) {
	if b.start != nil {
		return false, b.start
	}
	return b.machine.Start(waiting)
}

func (b broken) End(name string) error {
	if b.end != nil {
		return b.end
	}
	return b.machine.End(name)
}

func TestErrorsOfTheClusterEndTheForecast(t *testing.T) {
	t.Parallel()
	wrong := errors.New("node n is gone")
	m := &machine{nodes: []int{1}, jobs: []job{{"r", []int{1}, []int{0}, at(1)}, {"a", []int{1}, nil, at(1)}}}
	running, waiting := m.units()
	for name, c := range map[string]Cluster{
		"reset the cluster: node n is gone": broken{machine: m, reset: wrong},
		"start a: node n is gone":           broken{machine: m, start: wrong},
		"end r: node n is gone":             broken{machine: m, end: wrong},
	} {
		if _, err := Run(c, running, waiting, inTime); !errors.Is(err, wrong) || err.Error() != name {
			t.Errorf("got %v, want %s", err, name)
		}
	}
}

// drawMachine draws a small schedule.
func drawMachine(t *rapid.T) *machine {
	m := &machine{nodes: rapid.SliceOfN(rapid.IntRange(1, 4), 1, 3).Draw(t, "nodes")}
	free := slices.Clone(m.nodes)
	for i := range rapid.IntRange(0, 4).Draw(t, "running") {
		node := rapid.IntRange(0, len(free)-1).Draw(t, "node")
		if free[node] == 0 {
			continue
		}
		size, end := rapid.IntRange(1, free[node]).Draw(t, "size"), at(rapid.IntRange(1, 9).Draw(t, "ends"))
		if rapid.IntRange(0, 5).Draw(t, "unknown") == 0 {
			end = never
		}
		free[node] -= size
		m.jobs = append(m.jobs, job{fmt.Sprint("r", i), []int{size}, []int{node}, end})
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "waiting") {
		m.jobs = append(m.jobs, job{
			fmt.Sprint("w", i), rapid.SliceOfN(rapid.IntRange(1, 4), 1, 3).Draw(t, "pods"), nil,
			at(rapid.IntRange(1, 9).Draw(t, "runs")),
		})
	}
	return m
}

// byMinutes is the schedule by a clock that ticks: at each minute jobs end whose time it is, then each job that waits
// is tried. It returns the minute at which each job starts, -1 for never.
func byMinutes(t *rapid.T, m *machine) (starts []int) {
	if err := m.Reset(); err != nil {
		t.Fatal(err)
	}
	ends := map[string]int{}
	for _, j := range m.jobs {
		if j.place != nil && j.ends.Late < Never {
			ends[j.name] = int(j.ends.Late / time.Minute)
		}
	}
	waiting := m.waiting()
	starts = slices.Repeat([]int{-1}, len(waiting))
	for minute := range 100 {
		for name, end := range ends {
			if end == minute {
				if err := m.End(name); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i, j := range waiting {
			if starts[i] >= 0 {
				continue
			}
			if fits, _ := m.Start(i); fits {
				starts[i], ends[j.name] = minute, minute+int(j.ends.Late/time.Minute)
			}
		}
	}
	return starts
}

func TestEachStartIsThatOfAClockThatTicks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawMachine(t)
		running, waiting := m.units()
		got, err := Run(m, running, waiting, inTime)
		if err != nil {
			t.Fatal(err)
		}
		for i, minute := range byMinutes(t, m) {
			want := never
			if minute >= 0 {
				want = at(minute)
			}
			if got[i].Start != want {
				t.Fatalf("%s starts at %v, want %v: %+v", waiting[i].Name, got[i].Start, want, m.jobs)
			}
			alone := &machine{nodes: m.nodes, jobs: []job{m.waiting()[i]}}
			_ = alone.Reset()
			fits, _ := alone.Start(0)
			if hopeless := minute < 0 && !fits; got[i].Hopeless != hopeless {
				t.Fatalf("%s: hopeless %v, want %v: %+v", waiting[i].Name, got[i].Hopeless, hopeless, m.jobs)
			}
			if known := want.Early > 0 && want.Early < Never; known != (len(got[i].After) > 0) {
				t.Fatalf("%s starts at %v after %v", waiting[i].Name, got[i].Start, got[i].After)
			}
		}
	})
}
