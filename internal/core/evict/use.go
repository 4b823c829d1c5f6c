package evict

import (
	"cmp"
	"slices"
	"time"
)

// Use is how much of a limit is used.
type Use struct {
	Code    Code   // of the refusal when Have reaches Limit
	Subject string // the node, namespace, workload or domain that is limited; "cluster" for the limits on all pods
	// Have counts the jobs that have started and not ended and, with a Window, the evictions within it as well. For
	// RateLimited it is the tokens that are missing in the bucket.
	Have, Limit int
	Window      time.Duration // the length of the interval; zero for jobs at the same time
}

// Uses returns the limits on jobs and evictions that something counts against, in the order of the codes and then by
// subject. Limits of a round of the descheduler and those that are skipped are not among them.
func (s *State) Uses(p *Policy, now time.Time) (all []Use) {
	c := s.candidate(p, Move{}, now)
	add := func(code Code, subject string, have, limit int, window time.Duration) {
		if have > 0 && limit > 0 {
			all = append(all, Use{Code: code, Subject: subject, Have: have, Limit: limit, Window: window})
		}
	}
	full := nextToken(func(yield func(time.Time) bool) {
		for _, e := range s.evicted {
			if !yield(e.at) {
				return
			}
		}
	}, p.EvictInterval, 1)
	if wait := full.Sub(now); wait > 0 && p.EvictInterval > 0 {
		// Jobs have whole seconds, rounded up: the bucket may seem to lack more than it can hold.
		add(RateLimited, "cluster", min(int((wait+p.EvictInterval-1)/p.EvictInterval), p.EvictBurst), p.EvictBurst, 0)
	}
	for _, k := range c.capacities() {
		have := map[string]int{}
		for _, j := range s.started {
			if value := k.value(j); value != "" {
				have[value]++
			}
		}
		for value, n := range have {
			add(k.code, k.prefix+value, n, k.started, 0)
		}
	}
	if w := p.NamespaceWindow; w != nil {
		for name, jobs := range s.spaceJobs {
			r, _ := c.inWindow(name, jobs, w, w.MaxMigrating.Number)
			add(CapNamespace, name, r.Have, r.Limit, w.Duration)
		}
	}
	if w := p.WorkloadWindow; w != nil {
		for key, jobs := range s.workloadJob {
			if c.workload = s.workloads[key]; c.workload == nil {
				continue // it is deleted: no pod of it can be evicted
			}
			most := cmp.Or(w.MaxMigrating, p.MaxMigratingPerWorkload)
			r, _ := c.inWindow(key, jobs, w, most.Of(c.replicas()))
			add(CapWorkload, key, r.Have, r.Limit, w.Duration)
		}
	}
	all = slices.DeleteFunc(all, func(u Use) bool { return p.skips(gates()[u.Code]) })
	order := map[Code]int{}
	for i, code := range Codes() {
		order[code] = i
	}
	slices.SortFunc(all, func(a, b Use) int {
		return cmp.Or(order[a.Code]-order[b.Code], cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Window, b.Window))
	})
	return all
}

// gates returns by which name each check may be skipped; "" where it cannot.
func gates() map[Code]string {
	all := map[Code]string{}
	for _, k := range checks {
		all[k.code] = k.gate
	}
	return all
}
