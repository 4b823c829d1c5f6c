package evict

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// isStarted reports whether a job runs.
func isStarted(j *Job) bool { return j.Phase == Started }

// full reports whether a limit allows no further one; 0 does not limit.
func full(have, limit int) bool { return limit > 0 && have >= limit }

// inRound reports whether the number of jobs that were created in the round, and have a property, has reached a limit.
func (c *candidate) inRound(limit *int, has func(j *Job) bool) (have int, refuses bool) {
	if limit == nil || c.move.Round.IsZero() {
		return 0, false
	}
	have = c.count(c.jobs, func(j *Job) bool { return !j.Created.Before(c.move.Round) && has(j) })
	return have, have >= *limit
}

// nodeCap refuses a move from or to a node with too many.
func nodeCap(c *candidate) (Refusal, bool) {
	p, source := c.policy, c.pod.Node
	if source == "" {
		return Refusal{}, false
	}
	if n := c.count(c.started, func(j *Job) bool { return j.Source == source }); full(n, p.MaxMigratingPerNode) {
		return Refusal{Subject: source, Have: n, Limit: p.MaxMigratingPerNode}, true
	}
	isTarget := func(j *Job) bool { return c.target != "" && j.Target == c.target }
	if n := c.count(c.started, isTarget); full(n, p.MaxMigratingPerTargetNode) {
		return Refusal{Subject: c.target, Have: n, Limit: p.MaxMigratingPerTargetNode}, true
	}
	n, refuses := c.inRound(p.MaxPerRoundAndNode, func(j *Job) bool { return j.Source == source })
	if !refuses {
		return Refusal{}, false
	}
	return Refusal{Subject: source + " in this round", Have: n, Limit: *p.MaxPerRoundAndNode}, true
}

// namespaceCap refuses a pod of a namespace with too many moves, now or in the window.
func namespaceCap(c *candidate) (Refusal, bool) {
	p, name := c.policy, c.pod.Namespace
	if n := c.count(c.started, func(j *Job) bool { return j.Namespace == name }); full(n, p.MaxMigratingPerNamespace) {
		return Refusal{Subject: name, Have: n, Limit: p.MaxMigratingPerNamespace}, true
	}
	if n, refuses := c.inRound(p.MaxPerRoundAndNamespace, func(j *Job) bool { return j.Namespace == name }); refuses {
		return Refusal{Subject: name + " in this round", Have: n, Limit: *p.MaxPerRoundAndNamespace}, true
	}
	if p.NamespaceWindow == nil {
		return Refusal{}, false
	}
	return c.inWindow(name, c.spaceJobs[name], p.NamespaceWindow, p.NamespaceWindow.MaxMigrating.Number)
}

// workloadWindow refuses a pod of a workload with too many evictions in the window.
func workloadWindow(c *candidate) (Refusal, bool) {
	w := c.policy.WorkloadWindow
	if c.workload == nil || w == nil {
		return Refusal{}, false
	}
	most := cmp.Or(w.MaxMigrating, c.policy.MaxMigratingPerWorkload)
	return c.inWindow(c.workload.Key, c.workloadJob[c.workload.Key], w, most.Of(c.replicas()))
}

// inWindow refuses an eviction with which an interval of the window's length could have more evictions than its limit,
// or more at once than its burst. Jobs that have started may evict their pod at any time: they count.
func (c *candidate) inWindow(subject string, jobs map[string]*Job, w *Window, limit int) (Refusal, bool) {
	var at []time.Time
	soon := 0
	for _, j := range jobs {
		switch {
		case c.isOwn(j):
		case j.Evicted.IsZero() && j.Phase == Started:
			soon++
		case !j.Evicted.IsZero() && j.Evicted.After(c.now.Add(-w.Duration)):
			at = append(at, j.Evicted)
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

// domainCap refuses a pod of a domain with too many moves.
func domainCap(c *candidate) (Refusal, bool) {
	for _, d := range c.policy.DomainLimits {
		value := c.nodes[c.pod.Node][d.TopologyKey]
		n := c.count(c.started, func(j *Job) bool { return c.nodes[j.Source][d.TopologyKey] == value })
		if value != "" && n >= d.MaxMigrating {
			return Refusal{Subject: d.TopologyKey + "=" + value, Have: n, Limit: d.MaxMigrating}, true
		}
	}
	return Refusal{}, false
}

// globalCap refuses a pod if the cluster has too many moves.
func globalCap(c *candidate) (Refusal, bool) {
	if n := c.count(c.started, isStarted); full(n, c.policy.MaxMigratingGlobally) {
		return Refusal{Subject: "cluster", Have: n, Limit: c.policy.MaxMigratingGlobally}, true
	}
	n, refuses := c.inRound(c.policy.MaxPerRound, func(*Job) bool { return true })
	if !refuses {
		return Refusal{}, false
	}
	return Refusal{Subject: "cluster in this round", Have: n, Limit: *c.policy.MaxPerRound}, true
}

// rateLimited refuses an eviction for which the token bucket has no token.
func rateLimited(c *candidate) (Refusal, bool) {
	until := nextToken(func(yield func(time.Time) bool) {
		for _, j := range c.evicted {
			if !c.isOwn(j) && !yield(j.Evicted) {
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
	backoffFirst  = 5 * time.Minute
	backoffMost   = 240 * time.Minute
)

// ownerBackoff refuses the begin of a move of a workload soon after the last one. Jobs that run at the same time are
// one move, which may go on.
func ownerBackoff(c *candidate) (Refusal, bool) {
	jobs := c.workloadJob[c.pod.Workload]
	for _, j := range jobs {
		if j.Phase == Started && j.begin().Before(c.now) {
			return Refusal{}, false
		}
	}
	var moves []*Job
	for _, j := range jobs {
		if !c.isOwn(j) && !j.Evicted.IsZero() && j.end().After(c.now.Add(-backoffMemory)) {
			moves = append(moves, j)
		}
	}
	slices.SortFunc(moves, func(a, b *Job) int { return a.begin().Compare(b.begin()) })
	n, last := 0, time.Time{}
	for _, j := range moves {
		if n == 0 || j.begin().After(last) {
			n++
		}
		if j.end().After(last) {
			last = j.end()
		}
	}
	until := last.Add(backoff(n))
	return Refusal{Subject: c.pod.Workload, Have: n, Until: until}, n > 0 && until.After(c.now)
}

// backoff returns the pause after so many moves.
func backoff(moves int) time.Duration {
	return min(backoffFirst<<min(max(moves-1, 0), 10), backoffMost)
}

// begin and end return when the job ran.
func (j *Job) begin() time.Time {
	if j.StartedAt.IsZero() {
		return j.Created
	}
	return j.StartedAt
}

func (j *Job) end() time.Time {
	if j.Finished.IsZero() {
		return j.Evicted
	}
	return j.Finished
}

// returns refuses a target that pods of the workload left, or leave.
func returns(c *candidate) (Refusal, bool) {
	return Refusal{Subject: c.target}, c.target != "" && slices.Contains(c.Avoid(c.policy, c.pod.UID, c.now), c.target)
}

// Avoid returns the nodes that a pod must not be moved to: its own, and those that pods of its workload were moved away
// from within the return window or are about to be. They are in ascending order.
func (s *State) Avoid(p *Policy, podUID string, now time.Time) []string {
	pod := s.pods[podUID]
	if pod == nil {
		return nil
	}
	nodes := map[string]bool{pod.Node: true}
	for _, j := range s.workloadJob[pod.Workload] {
		if j.Phase == Started || !j.Evicted.IsZero() && j.Evicted.After(now.Add(-p.ReturnWindow)) {
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
		if j.Phase == Failed && !c.isOwn(j) {
			r.Have++
			if until := j.Finished.Add(failedPause); until.After(r.Until) {
				r.Until = until
			}
		}
	}
	return r, r.Have >= mostFailed && r.Until.After(c.now)
}
