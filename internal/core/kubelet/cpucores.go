package kubelet

import "github.com/tenon-project/tenon/internal/core/cpuset"

// freeThreads counts the free CPUs of each core.
func (t *cpuTaking) freeThreads() []uint16 {
	free := make([]uint16, len(t.policy.cores))
	for c := t.free.First(); c >= 0; c = t.free.Next(c + 1) {
		free[t.policy.coreOf[c]]++
	}
	return free
}

// wholeCores takes a core for wholly free when as many CPUs are free as a core has on average: on a machine where only
// some cores have two threads, a core of two with one free thread is one, and both threads are taken
// (kubernetes#140495).
func (t *cpuTaking) wholeCores() {
	if t.need <= 0 {
		return
	}
	free := t.freeThreads()
	groups, order := t.coreGroups()
	for _, g := range order {
		for _, core := range groups[g.unit].cores {
			if int(free[core]) != t.policy.perCore {
				continue
			}
			if len(t.policy.cores[core]) <= t.need {
				t.grabThreads(&t.policy.online, core)
			}
			if t.need == 0 {
				return
			}
		}
	}
}

// singles takes CPU by CPU: those of the fullest cores first, or with distribute-cpus-across-cores the lowest of each
// socket.
func (t *cpuTaking) singles() {
	if t.need <= 0 {
		return
	}
	free := t.free
	if t.policy.settings.DistributeAcrossCores {
		for _, s := range t.sockets() {
			t.grabEach(free.Intersect(t.policy.sockets[s.unit].cpus))
		}
		return
	}
	threads := t.freeThreads()
	groups, order := t.coreGroups()
	for _, g := range order {
		cores := groups[g.unit].cores
		for n := 1; n <= t.policy.maxThreads && t.need > 0; n++ {
			for _, core := range cores {
				if int(threads[core]) == n {
					t.grabThreads(&free, core)
				}
			}
		}
	}
}

// grabEach takes CPUs in ascending order until the need is met.
func (t *cpuTaking) grabEach(cpus cpuset.Set) {
	for c := cpus.First(); c >= 0 && t.need > 0; c = cpus.Next(c + 1) {
		t.taken.Add(c)
		t.free.Remove(c)
		t.need--
	}
}

// grabThreads takes CPUs of a core that are in free until the need is met. With all online CPUs as free it takes a
// core's threads that other pods have: see wholeCores.
func (t *cpuTaking) grabThreads(free *cpuset.Set, core uint16) {
	for _, c := range t.policy.cores[core] {
		if t.need > 0 && free.Has(int(c)) {
			t.taken.Add(int(c))
			t.free.Remove(int(c))
			t.need--
		}
	}
}

// shareL3 takes whole L3 groups while the need is as large as an average one, then tries to find the remainder in one
// group. A second round of whole groups would find nothing: what is left of them is larger than the need.
func (t *cpuTaking) shareL3() {
	if t.need <= 0 {
		return
	}
	order := t.l3s()
	if t.need >= t.policy.perL3 {
		for _, g := range order {
			if group := &t.policy.l3s[g.unit]; int(g.free) == group.size {
				t.grab(&group.cpus, group.size)
			}
		}
	}
	if t.need <= 0 {
		return
	}
	free := t.freeThreads()
	for _, g := range order {
		cores := t.policy.l3s[g.unit].cores
		if share := t.share(cores, free); share.cpus == t.need {
			t.grabShare(cores, free, share)
			return
		}
	}
}

// l3Share is a number of cores and of their free CPUs, one CPU less where the highest is left out.
type l3Share struct{ cores, cpus, spare int }

// share is what the kubelet would take of a group for the remainder: the free CPUs of as many of its lowest cores that
// have one as the need has cores. A half-used core counts as a core, so the CPUs can be too few; for an odd need the
// highest one is left out when there are more.
func (t *cpuTaking) share(cores, free []uint16) l3Share {
	per, odd := t.policy.perCore, t.need%2 != 0
	wanted := (t.need + per - 1) / per
	if !t.policy.model.L3RoundsUp {
		wanted, odd = t.need/per, false
	}
	var s l3Share
	for _, core := range cores {
		if s.cores == wanted {
			break
		}
		if free[core] > 0 {
			s.cores++
			s.cpus += int(free[core])
		}
	}
	if odd && per > 1 && s.cpus > t.need {
		s.cpus, s.spare = s.cpus-1, 1
	}
	return s
}

// grabShare takes what share has found of a group, without the highest CPU if one is spare.
func (t *cpuTaking) grabShare(cores, free []uint16, s l3Share) {
	var cpus cpuset.Set
	last := 0
	for _, core := range cores {
		if free[core] == 0 {
			continue
		}
		if s.cores--; s.cores < 0 {
			break
		}
		for _, c := range t.policy.cores[core] {
			if t.free.Has(int(c)) {
				cpus.Add(int(c))
				last = max(last, int(c))
			}
		}
	}
	if s.spare > 0 {
		cpus.Remove(last)
	}
	t.grab(&cpus, s.cpus)
}
