package main

import (
	"cmp"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tenon-project/tenon/internal/core/forecast"
	"github.com/tenon-project/tenon/internal/core/fragment"
	"github.com/tenon-project/tenon/internal/core/gang"
)

// player lets jobs arrive and end in time, and holds nodes by the rules of internal/core/gang. Between two events
// nothing changes. After each, all jobs that wait are tried in the order of their arrival.
type player struct {
	*cluster
	rule    waitRule
	now     time.Duration
	queue   []*waitingJob  // by arrival
	holders []*waitingJob  // those of the queue for which nodes are held
	refused map[trial]bool // since the last event and the last change of a hold
	running []*runningJob
	early   int // jobs that have ended before their declared ends
	out     []played
}

// trial is a start of a job of a kind beside the holds that do not yield to it.
type trial struct {
	kind, members int
	bars          uint64
}

// played is what became of a job: when it started, and the first estimate of that with when it was made. Never is for
// none.
type played struct{ start, estimated, expected time.Duration }

// unplayed is a job of which nothing is known.
var unplayed = played{forecast.Never, forecast.Never, forecast.Never}

// waitingJob is a job that waits.
type waitingJob struct {
	*timed
	index     int
	rank      gang.Rank
	overtaken int
	hold      gang.Hold // without a start: none
	on        []int     // the node that is held for each member
	// vain is how many searches, one after the other, found no earlier start than before, the last one when so many
	// jobs had ended early.
	vain, searched int
}

// runningJob is a job that runs.
type runningJob struct {
	index          int
	ends, declared time.Duration
	parts          []holding
}

// played returns what becomes of jobs under a rule.
func (t *trace) played(jobs []timed, rule waitRule, rng *rand.Rand) ([]played, error) {
	c, err := newCluster(t, "rollout", fragment.Standard(), rng)
	if err != nil {
		return nil, err
	}
	p := &player{cluster: c, rule: rule, refused: map[trial]bool{}, out: slices.Repeat([]played{unplayed}, len(jobs))}
	next, estimate := 0, estimateEvery
	for p.now < t.end {
		p.now = min(t.end, estimate)
		if next < len(jobs) {
			p.now = min(p.now, jobs[next].arrives)
		}
		for _, r := range p.running {
			p.now = min(p.now, r.ends)
		}
		p.endAll()
		for ; next < len(jobs) && jobs[next].arrives <= p.now; next++ {
			j := &jobs[next]
			if err := p.arrive(&j.pod); err != nil {
				return nil, err
			}
			p.queue = append(p.queue, &waitingJob{timed: j, index: next, rank: gang.Rank{
				Turn: gang.Turn{Created: clockAt(j.arrives)}, Name: jobName(next),
			}})
		}
		p.decide()
		if p.now >= estimate {
			estimate += estimateEvery
			if err := p.estimate(); err != nil {
				return nil, err
			}
		}
	}
	return p.out, nil
}

// clockAt is a time of a replay as the rules have it.
func clockAt(d time.Duration) time.Time { return replayStart.Add(d) }

// endAll ends the jobs that are due.
func (p *player) endAll() {
	p.running = slices.DeleteFunc(p.running, func(r *runningJob) bool {
		if r.ends > p.now {
			return false
		}
		if r.declared > p.now {
			p.early++
		}
		for _, h := range r.parts {
			p.nodes[h.node].release(h)
			p.used -= h.demand()
		}
		return true
	})
}

// decide tries all jobs that wait.
func (p *player) decide() {
	clear(p.refused)
	for i := 0; i < len(p.queue); {
		w := p.queue[i]
		bars, mask := p.bars(w)
		like := trial{w.kind, w.members, mask}
		if w.hold.Start.IsZero() && p.refused[like] || !p.start(w, bars) {
			p.refused[like] = true
			p.keep(w, bars)
			i++
			continue
		}
		if !w.hold.Start.IsZero() {
			p.setHold(w, gang.Hold{})
		}
		p.queue = slices.Delete(p.queue, i, i+1)
		for _, before := range p.queue[:i] {
			if before.members > 0 && before.hold.Start.IsZero() {
				before.overtaken++
			}
		}
	}
}

// bars returns the jobs that hold nodes which a job may not use now, and which of all holds these are.
func (p *player) bars(w *waitingJob) (bars []*waitingJob, mask uint64) {
	user := gang.HoldUser{Rank: w.rank, Ends: clockAt(p.now + p.rule.factor*w.runs)}
	for i, h := range p.holders {
		if h != w && !p.rule.holds.Yields(h.hold, user) {
			bars, mask = append(bars, h), mask|1<<min(i, 63)
		}
	}
	return bars, mask
}

// setHold replaces what is held for a job; nothing without a start.
func (p *player) setHold(w *waitingJob, h gang.Hold) {
	clear(p.refused) // it knows holds by their place in the list
	p.holders = slices.DeleteFunc(p.holders, func(o *waitingJob) bool { return o == w })
	if w.hold = h; !h.Start.IsZero() {
		p.holders = append(p.holders, w)
	}
}

// start starts a job as a whole, or not at all.
func (p *player) start(w *waitingJob, bars []*waitingJob) bool {
	var parts []holding
	p.barred = func(pod *pod, at int) bool {
		if p.rule.holds.Backfill {
			return p.leavesTooLittle(bars, pod, at)
		}
		return isBarred(bars, p.nodes, pod, at)
	}
	defer func() { p.barred = nil }()
	for range max(1, w.members) {
		h, fits := p.place(&w.pod)
		if !fits {
			for _, h := range parts {
				p.nodes[h.node].release(h)
				p.used -= h.demand()
			}
			return false
		}
		parts = append(parts, h)
	}
	p.running = append(p.running, &runningJob{w.index, p.now + w.runs, p.now + p.rule.factor*w.runs, parts})
	p.out[w.index].start = p.now
	return true
}

// leavesTooLittle reports whether a pod that outlives the starts of jobs which hold a node takes what they need there.
// As in the scheduler, it has what it gets now, and the pods have left that declare to end by the start.
func (p *player) leavesTooLittle(bars []*waitingJob, pod *pod, at int) bool {
	held := slices.DeleteFunc(slices.Clone(bars), func(w *waitingJob) bool { return !slices.Contains(w.on, at) })
	slices.SortStableFunc(held, func(a, b *waitingJob) int { return a.hold.Start.Compare(b.hold.Start) })
	gpus := uint64(0)
	for all := p.rate(pod, at).gpus; bits.OnesCount64(gpus) < int(pod.GPUs); all &= all - 1 {
		gpus |= all & -all
	}
	for i, h := range held {
		n := p.nodes[at]
		n.take(pod, gpus)
		for _, r := range p.running {
			for _, part := range r.parts {
				if part.node == at && !clockAt(r.declared).After(h.hold.Start) {
					n.release(part)
				}
			}
		}
		for _, w := range held[:i+1] {
			for _, on := range w.on {
				if on != at {
					continue
				}
				if !n.fits(&w.pod) {
					return true
				}
				n.take(&w.pod, lowest(&n, &w.pod))
			}
		}
	}
	return false
}

// isBarred reports whether a pod may not use a node because of what is held there. As nominated pods in the scheduler,
// held members count as if they were on the node.
func isBarred(bars []*waitingJob, nodes []node, p *pod, at int) bool {
	n, changed := nodes[at], false
	for _, w := range bars {
		for _, on := range w.on {
			if on != at {
				continue
			}
			if !n.fits(&w.pod) {
				return p.GPUs > 0 || n.MilliCPU < w.MilliCPU+p.MilliCPU
			}
			n.take(&w.pod, lowest(&n, &w.pod))
			changed = true
		}
	}
	return changed && !n.fits(p)
}

// lowest returns the first GPUs of a node that a pod can use.
func lowest(n *node, p *pod) (gpus uint64) {
	for all := suitable(n, p); bits.OnesCount64(gpus) < int(p.GPUs); all &= all - 1 {
		gpus |= all & -all
	}
	return gpus
}

// keep holds nodes for a job that does not fit, if it may hold any.
func (p *player) keep(w *waitingJob, bars []*waitingJob) {
	rules, had := p.rule.holds, w.hold
	stands := !had.Start.IsZero() && clockAt(p.now).Before(had.Start)
	if search := (gang.Search{Vain: w.vain}); stands &&
		!search.IsDue(nil, uint64(p.early-w.searched), nil, had.Start, clockAt(p.now)) {
		return
	}
	overtaken := w.members > 0 && p.rule.overtakes > 0 && w.overtaken >= p.rule.overtakes
	if !overtaken && !rules.MayHold(w.rank, holdsOf(p.holders)) {
		p.setHold(w, gang.Hold{})
		return
	}
	start, on, ok := p.earliest(w, bars)
	w.searched = p.early
	switch {
	case stands && (!ok || !start.Before(had.Start)):
		w.vain++
		return
	case !ok:
		p.setHold(w, gang.Hold{})
		return
	}
	w.vain = 0
	w.on = on
	p.setHold(w, gang.Hold{Rank: w.rank, Start: start, Overtaken: overtaken})
	for _, o := range rules.Excess(holdsOf(p.holders)) {
		i := slices.IndexFunc(p.holders, func(h *waitingJob) bool { return h.rank.Name == o.Rank.Name })
		p.setHold(p.holders[i], gang.Hold{})
	}
}

func holdsOf(jobs []*waitingJob) (holds []gang.Hold) {
	for _, w := range jobs {
		holds = append(holds, w.hold)
	}
	return holds
}

// earliest returns when and where a job fits first by the declared ends of those that run.
func (p *player) earliest(w *waitingJob, bars []*waitingJob) (start time.Time, on []int, ok bool) {
	var times []time.Time
	for _, r := range p.running {
		times = append(times, clockAt(r.declared))
	}
	return gang.EarliestStart(times, clockAt(p.now), func(at time.Time) (on []int, fits bool) {
		nodes := slices.Clone(p.nodes)
		goes := make([]int, len(nodes)) // pods that have left each
		for _, r := range p.running {
			if clockAt(r.declared).After(at) {
				continue
			}
			for _, h := range r.parts {
				nodes[h.node].release(h)
				goes[h.node]++
			}
		}
		order := make([]int, len(nodes))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(goes[a], goes[b]) })
		for range max(1, w.members) {
			i := slices.IndexFunc(order, func(i int) bool {
				return nodes[i].fits(&w.pod) && !isBarred(bars, nodes, &w.pod, i)
			})
			if i < 0 {
				return nil, false
			}
			n := &nodes[order[i]]
			n.take(&w.pod, lowest(n, &w.pod))
			on = append(on, order[i])
		}
		return on, true
	})
}

// estimate forecasts the starts of all jobs that wait, and notes the first estimate of each.
func (p *player) estimate() error {
	w := &forecastNodes{player: p}
	var running, waiting []forecast.Unit
	for _, r := range p.running {
		ends := r.declared - p.now
		running = append(running, forecast.Unit{Name: jobName(r.index), Range: forecast.Range{Early: ends, Late: ends}})
	}
	for _, j := range p.queue {
		u := forecast.Unit{Name: j.rank.Name, Kind: string(rune(j.kind)) + string(rune(j.members))}
		u.Range = forecast.Range{Early: p.rule.factor * j.runs, Late: p.rule.factor * j.runs}
		if !j.hold.Start.IsZero() {
			u.Kind = "" // nothing bars it from what it holds
		}
		waiting = append(waiting, u)
	}
	estimates, err := forecast.Run(w, running, waiting, func(int, int) bool { return false })
	if err != nil {
		return err
	}
	for i, e := range estimates {
		job := &p.out[p.queue[i].index]
		if job.estimated == forecast.Never && e.Start.Early < forecast.Never && e.Start.Early > 0 {
			job.estimated, job.expected = p.now, p.now+e.Start.Early
		}
	}
	return nil
}

// forecastNodes are the nodes of a player as a forecast plays on them. As in the scheduler's forecast, what is held for
// a job that has not started bars all others.
type forecastNodes struct {
	*player
	nodes   []node
	parts   map[string][]holding
	started map[string]bool
}

// Reset returns to the nodes as they are.
func (f *forecastNodes) Reset() error {
	f.nodes, f.parts, f.started = slices.Clone(f.player.nodes), map[string][]holding{}, map[string]bool{}
	for _, r := range f.running {
		f.parts[jobName(r.index)] = r.parts
	}
	return nil
}

// End releases what a job has.
func (f *forecastNodes) End(name string) error {
	for _, h := range f.parts[name] {
		f.nodes[h.node].release(h)
	}
	delete(f.parts, name)
	return nil
}

// Start starts a job, each member on the node with the fewest free GPUs that takes it.
func (f *forecastNodes) Start(waiting int) (bool, error) {
	w := f.queue[waiting]
	var bars []*waitingJob
	for _, h := range f.holders {
		if h != w && !f.started[h.rank.Name] {
			bars = append(bars, h)
		}
	}
	var parts []holding
	for range max(1, w.members) {
		best := -1
		for i := range f.nodes {
			n := &f.nodes[i]
			if n.fits(&w.pod) && !isBarred(bars, f.nodes, &w.pod, i) && (best < 0 || total(n) < total(&f.nodes[best])) {
				best = i
			}
		}
		if best < 0 {
			for _, h := range parts {
				f.nodes[h.node].release(h)
			}
			return false, nil
		}
		n := &f.nodes[best]
		h := holding{&w.pod, best, lowest(n, &w.pod)}
		n.take(&w.pod, h.gpus)
		parts = append(parts, h)
	}
	f.parts[w.rank.Name], f.started[w.rank.Name] = parts, true
	return true, nil
}
