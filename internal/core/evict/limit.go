package evict

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tenon-project/tenon/internal/core/move"
)

// capacity bounds the jobs with the same value: those that have started and, in a round, those that it created.
type capacity struct {
	code    Code
	value   func(j *move.Job) string // "" is not counted
	prefix  string                   // of the value in a Use
	started int                      // 0 does not limit
	round   *int                     // nil does not limit
}

// capacities returns the limits on numbers of jobs.
func (c *candidate) capacities() []capacity {
	p := c.policy
	all := []capacity{
		{CapNode, func(j *move.Job) string { return j.Source }, "", p.MaxMigratingPerNode, p.MaxPerRoundAndNode},
		{CapNode, func(j *move.Job) string { return j.Status.Node }, "to ", p.MaxMigratingPerTargetNode, nil},
		{
			CapNamespace, func(j *move.Job) string { return j.Namespace }, "", p.MaxMigratingPerNamespace,
			p.MaxPerRoundAndNamespace,
		},
		{CapGlobal, func(*move.Job) string { return "cluster" }, "", p.MaxMigratingGlobally, p.MaxPerRound},
	}
	for _, d := range p.DomainLimits {
		all = append(all, capacity{CapDomain, func(j *move.Job) string {
			if value := c.nodes[j.Source][d.TopologyKey]; value != "" {
				return d.TopologyKey + "=" + value
			}
			return ""
		}, "", d.MaxMigrating, nil})
	}
	return all
}

// capped returns the check that refuses a move by the capacities of a code.
func capped(code Code) func(c *candidate) (Refusal, bool) {
	return func(c *candidate) (Refusal, bool) {
		own := &move.Job{Source: c.pod.Node, Namespace: c.pod.Namespace}
		if own.Source != "" {
			own.Status.Node = c.target
		}
		for _, k := range c.capacities() {
			if k.code != code || k.value(own) == "" {
				continue
			}
			r := Refusal{Subject: k.value(own), Limit: k.started}
			if r.Have = c.count(c.started, func(j *move.Job) bool {
				return k.value(j) == r.Subject
			}); r.Limit > 0 && r.Have >= r.Limit {
				return r, true
			}
			if k.round == nil || c.move.Round.IsZero() {
				continue
			}
			if r.Have, r.Limit = c.count(c.jobs, func(j *move.Job) bool {
				return !j.Created.Before(c.move.Round) && k.value(j) == r.Subject
			}), *k.round; r.Have >= r.Limit {
				r.Subject += " in this round"
				return r, true
			}
		}
		return Refusal{}, false
	}
}

// namespaceCap refuses a pod of a namespace with too many moves, now or in the window.
func namespaceCap(c *candidate) (Refusal, bool) {
	r, refuses := capped(CapNamespace)(c)
	if w := c.policy.NamespaceWindow; w != nil && !refuses {
		return c.inWindow(c.pod.Namespace, c.spaceJobs[c.pod.Namespace], w, w.MaxMigrating.Number)
	}
	return r, refuses
}

// workloadWindow refuses a pod of a workload with too many evictions in the window.
func workloadWindow(c *candidate) (Refusal, bool) {
	w := c.policy.WorkloadWindow
	if w == nil {
		return Refusal{}, false
	}
	most := cmp.Or(w.MaxMigrating, c.policy.MaxMigratingPerWorkload)
	return c.inWindow(c.workload.Key, c.workloadJob[c.workload.Key], w, most.Of(c.replicas()))
}

// inWindow refuses an eviction with which an interval of the window's length could have more evictions than its limit,
// or more at once than its burst. Jobs that have started may evict their pod at any time: they count.
func (c *candidate) inWindow(subject string, jobs map[string]*move.Job, w *Window, limit int) (Refusal, bool) {
	var at []time.Time
	soon := 0
	for _, j := range jobs {
		switch evicted := j.LastEviction(); {
		case c.isOwn(j):
		case evicted.IsZero() && j.IsRunning():
			soon++
		case !evicted.IsZero() && evicted.After(c.now.Add(-w.Duration)):
			at = append(at, evicted)
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	r := Refusal{Subject: subject, Have: soon + len(at), Limit: limit}
	if r.Have >= limit {
		if i := r.Have - limit; i < len(at) && limit > 0 {
			r.Until = at[i].Add(w.Duration)
		}
		return r, true
	}
	if w.Burst > 0 {
		r.Until = nextToken(slices.Values(at), w.Duration/time.Duration(max(limit, 1)), w.Burst)
	}
	return r, r.Until.After(c.now)
}

// rateLimited refuses an eviction for which the token bucket has no token.
func rateLimited(c *candidate) (Refusal, bool) {
	until := nextToken(func(yield func(time.Time) bool) {
		for _, e := range c.evicted {
			if (c.job == nil || e.job != c.job.UID) && !yield(e.at) {
				return
			}
		}
	}, c.policy.EvictInterval, c.policy.EvictBurst)
	return Refusal{Until: until}, until.After(c.now)
}

// nextToken returns when a token bucket that gets one token in each interval, and was full before the first eviction,
// has one. It keeps the time at which the bucket would be full again, which is exact (ATM Forum's generic cell rate
// algorithm). The evictions are in ascending order.
func nextToken(evictions func(yield func(time.Time) bool), interval time.Duration, burst int) time.Time {
	var full time.Time
	for at := range evictions {
		if full.Before(at) {
			full = at
		}
		full = full.Add(interval)
	}
	return full.Add(-time.Duration(max(burst, 1)-1) * interval)
}

// backoffMemory is for how long moves of an owner count.
const (
	backoffMemory = 24 * time.Hour
	backoffMost   = 4 * time.Hour
)

// ownerBackoff refuses the begin of a move of a workload soon after the last one. Jobs that run at the same time are
// one move, which may go on. So are jobs that were created before the others ended: they wait for their turn.
func ownerBackoff(c *candidate) (Refusal, bool) {
	jobs := c.workloadJob[c.pod.Workload]
	for _, j := range jobs {
		if j.IsRunning() && j.Started.Before(c.now) {
			return Refusal{}, false
		}
	}
	var moves []*move.Job
	for _, j := range jobs {
		if !c.isOwn(j) && !j.LastEviction().IsZero() && endOf(j).After(c.now.Add(-backoffMemory)) {
			moves = append(moves, j)
		}
	}
	slices.SortFunc(moves, func(a, b *move.Job) int { return beginOf(a).Compare(beginOf(b)) })
	n, failures, last := 0, 0, time.Time{}
	failed := false // a job of the move
	for _, j := range moves {
		if n == 0 || j.Created.After(last) {
			n++
			failed = false
		}
		if j.Status.Phase == move.Failed && !failed {
			failures++
			failed = true
		}
		if endOf(j).After(last) {
			last = endOf(j)
		}
	}
	if c.job != nil && !c.job.Created.After(last) {
		return Refusal{}, false
	}
	until := last.Add(c.policy.backoff(failures))
	return Refusal{Subject: c.pod.Workload, Have: n, Until: until}, n > 0 && until.After(c.now)
}

// backoff returns the pause after the moves of a workload, of which so many failed. Moves that succeeded do not make it
// longer.
func (p *Policy) backoff(failures int) time.Duration {
	return min(p.OwnerBackoff<<min(max(failures-1, 0), 10), max(p.OwnerBackoff, backoffMost))
}

// beginOf returns when a job that evicted its pod began.
func beginOf(j *move.Job) time.Time {
	if j.Started.IsZero() {
		return j.Created
	}
	return j.Started
}

// endOf returns when the eviction of a job counts for the limits: when the job ended, or else when it evicted.
func endOf(j *move.Job) time.Time {
	if at := j.EndedAt(); !at.IsZero() {
		return at
	}
	return j.LastEviction()
}

// returns refuses a target that pods of the workload left, or leave.
func returns(c *candidate) (Refusal, bool) {
	return Refusal{Subject: c.target}, c.target != "" && slices.Contains(c.Avoid(c.policy, c.pod.UID, c.now), c.target)
}

// Avoid returns the nodes that a pod must not be moved to: its own and, with a return window, those that pods of its
// workload were moved away from within it or are about to be. They are in ascending order.
func (s *State) Avoid(p *Policy, podUID string, now time.Time) []string {
	pod := s.pods[podUID]
	if pod == nil {
		return nil
	}
	nodes := map[string]bool{pod.Node: true}
	for _, j := range s.workloadJob[pod.Workload] {
		evicted := j.LastEviction()
		if p.ReturnWindow > 0 && j.IsRunning() || !evicted.IsZero() && evicted.After(now.Add(-p.ReturnWindow)) {
			nodes[j.Source] = true
		}
	}
	delete(nodes, "")
	return slices.Sorted(maps.Keys(nodes))
}

// Retry budget.
const (
	mostFailed  = 3
	failedPause = time.Hour
)

// gaveUp refuses a pod whose jobs have failed too often.
func gaveUp(c *candidate) (Refusal, bool) {
	r := Refusal{Limit: mostFailed}
	for _, j := range c.jobsOf[c.pod.UID] {
		if j.Status.Phase == move.Failed && !c.isOwn(j) {
			r.Have++
			if until := j.EndedAt().Add(failedPause); until.After(r.Until) {
				r.Until = until
			}
		}
	}
	return r, r.Have >= mostFailed && r.Until.After(c.now)
}
