package evict

import (
	"fmt"
	"slices"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/move"
)

// tooFewReplicas refuses pods of workloads that the limits would let lose all replicas.
func tooFewReplicas(c *candidate) (Refusal, bool) {
	if c.policy.SkipExpectedNumber {
		return Refusal{}, false
	}
	n := c.replicas()
	limit := max(c.policy.MaxMigratingPerWorkload.Of(n), c.policy.MaxUnavailablePerWorkload.Of(n), 1)
	return Refusal{Subject: c.workload.Key, Have: n, Limit: limit}, limit >= n
}

// rolloutInProgress refuses pods of a workload whose pods are being replaced.
func rolloutInProgress(c *candidate) (Refusal, bool) {
	w := c.workload
	refuse := func(have, limit int, format string, values ...any) (Refusal, bool) {
		return Refusal{Subject: w.Key + ": " + fmt.Sprintf(format, values...), Have: have, Limit: limit}, true
	}
	if w.Generation != w.Observed {
		return refuse(0, 0, "generation %d is not observed, the last one is %d", w.Generation, w.Observed)
	}
	most := w.Replicas
	switch w.Kind {
	case Deployment:
		most = max(w.Replicas, w.StatusReplicas)
		if w.Stalled {
			return refuse(0, 0, "the rollout does not progress")
		}
	case StatefulSet:
		if w.OnDelete || w.CurrentRevision == w.UpdateRevision {
			return Refusal{}, false
		}
		if most -= w.Partition; w.Updated >= most && (!c.policy.AllowParkedPartition || w.Ready < w.Replicas) {
			return refuse(0, 0, "the update has stopped at partition %d", w.Partition)
		}
	case CloneSet:
		if most -= w.Partition; w.ExpectedUpdated != nil {
			most = *w.ExpectedUpdated
		}
	case Scaled:
		if w.StatusReplicas != w.Replicas {
			return refuse(w.StatusReplicas, w.Replicas, "%d replicas exist, %d are desired", w.StatusReplicas,
				w.Replicas)
		}
		return Refusal{}, false
	default:
		return Refusal{}, false
	}
	switch {
	case w.Updated < most:
		return refuse(w.Updated, most, "%d of %d replicas are updated", w.Updated, most)
	case w.PausedUpdate && w.Updated < w.StatusReplicas:
		return refuse(w.Updated, w.StatusReplicas, "the update is paused with %d of %d replicas updated", w.Updated,
			w.StatusReplicas)
	}
	return Refusal{}, false
}

// wouldUpgrade refuses pods whose replacement would have a new revision.
func wouldUpgrade(c *candidate) (Refusal, bool) {
	w := c.workload
	return Refusal{Subject: w.Key}, w.Kind == StatefulSet && w.OnDelete && w.CurrentRevision != w.UpdateRevision
}

// scalingDown refuses pods of a workload that has more replicas than it should have, or will have.
func scalingDown(c *candidate) (Refusal, bool) {
	w := c.workload
	r := Refusal{Subject: w.Key, Have: w.StatusReplicas, Limit: w.Replicas}
	leaving := 0
	for _, p := range c.byWorkload[w.Key] {
		if slices.Contains(w.Leaving, p.Name) {
			leaving++
		}
	}
	r.Have = max(r.Have, r.Limit+leaving)
	for _, a := range c.scalersOf[w.Key] {
		if a.Desired < a.Current && a.Current-a.Desired > r.Have-r.Limit {
			r.Have, r.Limit = a.Current, a.Desired
		}
	}
	return r, r.Have > r.Limit
}

// alreadyEvicting refuses a pod that is being evicted or migrated, or of whose workload too many are.
func alreadyEvicting(c *candidate) (Refusal, bool) {
	others := c.count(c.jobsOf[c.pod.UID], func(j *move.Job) bool {
		return j.IsRunning() || !c.move.Round.IsZero() && !j.Status.Phase.IsFinal()
	})
	if c.pod.Terminating || others > 0 {
		return Refusal{Subject: "pod " + c.pod.name(), Have: 1}, true
	}
	if c.workload == nil || c.pod.Failed {
		return Refusal{}, false
	}
	leaving := map[string]bool{}
	for uid, p := range c.byWorkload[c.pod.Workload] {
		leaving[uid] = p.Terminating && !p.Succeeded && !p.Failed
	}
	for _, j := range c.workloadJob[c.pod.Workload] {
		leaving[j.PodUID] = leaving[j.PodUID] || j.IsRunning()
	}
	delete(leaving, c.pod.UID)
	have, limit := 0, c.policy.MaxMigratingPerWorkload.Of(c.replicas())
	for _, counts := range leaving {
		if counts {
			have++
		}
	}
	return Refusal{Subject: "workload " + c.pod.Workload, Have: have, Limit: limit}, have >= limit
}

// workloadUnavailable refuses pods of a workload of which too many replicas do not serve.
func workloadUnavailable(c *candidate) (Refusal, bool) {
	n := c.replicas()
	have, limit := c.unavailable(n), c.policy.MaxUnavailablePerWorkload.Of(n)
	return Refusal{Subject: c.workload.Key, Have: have, Limit: limit}, have >= limit
}

// unavailable counts the replicas that do not serve or are in a started job, apart from the candidate. Pods that have
// ended are not replicas any more.
func (c *candidate) unavailable(replicas int) (n int) {
	serving := 0
	for uid, p := range c.byWorkload[c.pod.Workload] {
		switch {
		case uid == c.pod.UID, p.Succeeded, p.Failed:
		case p.available() && !c.leaves(uid):
			serving++
		default:
			n++
		}
	}
	return max(n, replicas-1-serving)
}

// leaves reports whether a pod terminates or has a started job.
func (s *State) leaves(uid string) bool {
	p := s.pods[uid]
	if p == nil || p.Terminating {
		return true
	}
	for _, j := range s.jobsOf[uid] {
		if j.IsRunning() {
			return true
		}
	}
	return false
}

// violatesBudget refuses a pod whose PodDisruptionBudget, with all evictions that are in flight, allows none.
func violatesBudget(c *candidate) (Refusal, bool) {
	switch len(c.pod.Budgets) {
	case 0:
		return Refusal{}, false
	case 1:
	default:
		return Refusal{
			Subject: "the pod is counted by several; the Eviction API refuses that",
			Have:    len(c.pod.Budgets), Limit: 1,
		}, true
	}
	charges := gang.Charges{}
	for _, j := range c.started {
		if p := c.pods[j.PodUID]; p != nil && !p.Failed && !c.isOwn(j) && p != c.pod {
			charges.Add(p.Budgets)
		}
	}
	budget := c.pod.Budgets[0]
	have := charges[budget]
	return Refusal{
		Subject: fmt.Sprintf("%s allows %d disruptions, of which evictions in flight use %d",
			budget.Name, budget.Allowed, have),
		Have: have, Limit: budget.Allowed,
	}, charges.Add(c.pod.Budgets)
}

// breaksGang refuses a pod without which its gang has less than its minimum, unless its gang group leaves as a whole.
func breaksGang(c *candidate) (Refusal, bool) {
	bond, known := c.bonds[c.pod.Gang]
	if !known {
		return Refusal{}, false
	}
	rest := c.remaining(c.pod.Gang)
	if bond.Spares(rest+1) > 0 || !slices.ContainsFunc(c.groupOf(c.pod.Gang), func(id string) bool {
		return c.remaining(id) > 0
	}) {
		return Refusal{}, false
	}
	return Refusal{Subject: c.pod.Gang, Have: rest, Limit: bond.Least}, true
}

// groupOf returns the gangs that start together with one, itself included.
func (s *State) groupOf(id string) []string {
	if group := s.groups[s.bonds[id].Group]; len(group) > 0 {
		return group
	}
	return []string{id}
}

// remaining counts the members of a gang that hold resources and do not leave, apart from the candidate. Pods that
// replace those that the same move has evicted do not count.
func (c *candidate) remaining(id string) (n int) {
	for uid, p := range c.byGang[id] {
		if uid != c.pod.UID && p.holds() && !c.leaves(uid) && !c.replaces(p) {
			n++
		}
	}
	return n
}

// holds reports whether the pod holds resources of a node.
func (p *Pod) holds() bool { return p.Node != "" && !p.Succeeded && !p.Failed }

// replaces reports whether a member was created after the move that the candidate's job is part of evicted another one.
// Both times are whole seconds, that of the eviction rounded up: a member that is as old as the eviction counts, unless
// it moves itself.
func (c *candidate) replaces(p *Pod) bool {
	if c.job == nil || !c.job.IsRunning() || len(c.jobsOf[p.UID]) > 0 {
		return false
	}
	for _, id := range c.groupOf(p.Gang) {
		for _, j := range c.gangJobs[id] {
			at := j.Status.EvictedAt()
			if !at.IsZero() && !j.LastEviction().Before(c.job.Started) && !p.Created.Before(at) {
				return true
			}
		}
	}
	return false
}

// Unit returns the pods that must be moved with a pod, itself included: all of its gang group that hold resources where
// the gang would lose its minimum, apart from those that replace others of the same move. A failed pod is moved alone.
// They are in ascending order.
func (s *State) Unit(podUID string) []string {
	p := s.pods[podUID]
	if p == nil || p.Gang == "" || p.Failed {
		return []string{podUID}
	}
	c := candidate{State: s, pod: p, job: s.ownJob(podUID)}
	if s.bonds[p.Gang].Spares(c.remaining(p.Gang)+1) > 0 {
		return []string{podUID}
	}
	unit := []string{podUID}
	for _, id := range s.groupOf(p.Gang) {
		for uid, m := range s.byGang[id] {
			if uid != podUID && m.holds() && !c.replaces(m) {
				unit = append(unit, uid)
			}
		}
	}
	slices.Sort(unit)
	return unit
}
