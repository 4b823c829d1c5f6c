package evict

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// Arbitrate recount which of the waiting jobs start now, in their order and with Started set, and why the
// others do not, by UID. It changes nothing: the caller records what has passed. The jobs may be those that Waiting
// returns, or some of them.
func (s *State) Arbitrate(p *Policy, waiting []move.Job, now time.Time,
) (passed []move.Job, refused map[string]Refusal) {
	refused = map[string]Refusal{}
	var changed []move.Job // as they were before
	for _, unit := range s.units(s.order(waiting)) {
		root := Refusal{}
		for i := range unit {
			if was, known := s.Job(unit[i].UID); known {
				changed = append(changed, was)
			} else {
				changed = append(changed, move.Job{UID: unit[i].UID})
			}
			s.SetJob(unit[i])
			unit[i] = *s.jobs[unit[i].UID]
			unit[i].Started = now
			s.SetJob(unit[i])
		}
		own := map[string]Refusal{}
		for _, j := range unit {
			if r := s.CheckMove(p, Move{PodUID: j.PodUID, Job: j.UID}, now); len(r) > 0 {
				if own[j.UID] = r[0]; root.Code == "" || r[0].Final() && !root.Final() {
					root = r[0]
				}
			}
		}
		if root.Code == "" {
			passed = append(passed, unit...)
			continue
		}
		for _, j := range unit {
			if refused[j.UID] = root; own[j.UID].Code != "" {
				refused[j.UID] = own[j.UID]
			}
		}
		s.restore(changed[len(changed)-len(unit):])
		changed = changed[:len(changed)-len(unit)]
	}
	s.restore(changed)
	return passed, refused
}

// restore puts jobs back; those without a pod were not known.
func (s *State) restore(jobs []move.Job) {
	for _, j := range jobs {
		if j.PodUID == "" {
			s.DeleteJob(j.UID)
		} else {
			s.SetJob(j)
		}
	}
}

// cluster is jobs that follow each other: those of a gang group, or of the pods of a Job, or one.
type cluster struct {
	jobs     []move.Job // the first decides the place
	rank     rank
	workload string
	turn     int // of its workload among the clusters of equal rank
}

// rank is the place of a job before the age counts.
type rank struct {
	idle               bool // no job of its workload has started
	priority           int32
	class              int
	eviction, deletion int32
}

// compare is negative if r comes first: jobs of workloads of which another job runs already, then pods of lower
// priority, class and cost.
func (r rank) compare(o rank) int {
	return cmp.Or(compareBool(r.idle, o.idle), cmp.Compare(r.priority, o.priority), cmp.Compare(r.class, o.class),
		cmp.Compare(r.eviction, o.eviction), cmp.Compare(r.deletion, o.deletion))
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// classes orders the QoS classes; pods without one are like LS.
var classes = [...]int{qos.None: 1, qos.LSE: 2, qos.LSR: 2, qos.LS: 1, qos.BE: 0, qos.System: 3}

// rankOf returns the rank of a job. A pod that is not known has the rank of one with all defaults.
func (s *State) rankOf(j *move.Job) rank {
	p := s.pods[j.PodUID]
	if p == nil {
		p = &Pod{}
	}
	r := rank{
		idle: true, priority: p.Priority, class: classes[p.QoS], eviction: p.EvictionCost, deletion: p.DeletionCost,
	}
	for _, o := range s.workloadJob[j.Workload] {
		r.idle = r.idle && !o.IsRunning()
	}
	return r
}

// order recount the waiting jobs in clusters, as they are tried.
func (s *State) order(waiting []move.Job) []*cluster {
	ranks := map[string]rank{}
	for i := range waiting {
		ranks[waiting[i].UID] = s.rankOf(&waiting[i])
	}
	byName, pods := map[string]*cluster{}, map[string]bool{}
	var all []*cluster
	for _, j := range slices.SortedFunc(slices.Values(waiting), func(a, b move.Job) int {
		return cmp.Or(ranks[a.UID].compare(ranks[b.UID]), compareJobs(&a, &b))
	}) {
		name := s.clusterOf(&j)
		if pods[j.PodUID] { // a second job of a pod must not hold up its gang
			name = "job " + j.UID
		}
		pods[j.PodUID] = true
		c := byName[name]
		if c == nil {
			c = &cluster{rank: ranks[j.UID], workload: cmp.Or(j.Workload, j.UID)}
			byName[name] = c
			all = append(all, c)
		}
		c.jobs = append(c.jobs, j)
	}
	for i, count := 0, map[string]int{}; i < len(all); i++ {
		if i > 0 && all[i].rank != all[i-1].rank {
			clear(count)
		}
		all[i].turn = count[all[i].workload]
		count[all[i].workload]++
	}
	slices.SortStableFunc(all, func(a, b *cluster) int {
		return cmp.Or(a.rank.compare(b.rank), cmp.Compare(a.turn, b.turn))
	})
	return all
}

// clusterOf names what a job belongs to.
func (s *State) clusterOf(j *move.Job) string {
	if p := s.pods[j.PodUID]; p != nil && p.Gang != "" {
		return "gang " + s.groupOf(p.Gang)[0]
	}
	if w := s.workloads[j.Workload]; w != nil && w.Batch {
		return "workload " + w.Key
	}
	return "job " + j.UID
}

// units divides clusters into the jobs that start together: members of a gang group that would lose a minimum, if there
// are jobs for all members that do not leave anyway. Each other job is a unit. While a gang can spare members, the
// others wait for their turn.
func (s *State) units(clusters []*cluster) (units [][]move.Job) {
	for _, c := range clusters {
		members, rest := map[string][]move.Job{}, map[string]int{}
		moved := map[string]bool{}
		for _, j := range c.jobs {
			if p := s.pods[j.PodUID]; p != nil && p.Gang != "" && p.holds() && !s.leaves(p.UID) {
				members[p.Gang] = append(members[p.Gang], j)
				moved[p.UID] = true
			} else {
				units = append(units, []move.Job{j})
			}
		}
		var single, whole []move.Job
		together := true
		for _, id := range slices.Sorted(maps.Keys(members)) {
			for uid, p := range s.byGang[id] {
				if p.holds() && !moved[uid] && !s.leaves(uid) {
					rest[id]++
				}
			}
			alone, joint := gang.Divide(s.bonds[id], members[id], rest[id])
			single, whole = append(single, alone...), append(whole, joint...)
			together = together && (len(alone) == 0 || len(joint) == 0)
		}
		for _, j := range single {
			units = append(units, []move.Job{j})
		}
		switch {
		case len(whole) == 0:
		case together:
			units = append(units, whole)
		default:
			for _, j := range whole {
				units = append(units, []move.Job{j})
			}
		}
	}
	return units
}
