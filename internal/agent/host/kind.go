package host

import "github.com/tenon-project/tenon/internal/core/topo"

// readKinds distinguishes performance and efficiency cores by the first of these sources that is present: the two PMU
// folders of hybrid x86 machines; cpu_capacity, where the CPUs of the highest one are the performance ones; a base
// frequency that falls together with the lack of SMT (a base frequency alone may also differ on servers with speed
// select).
func (s *survey) readKinds() {
	fast, slow := s.list("sys/devices/cpu_core/cpus"), s.list("sys/devices/cpu_atom/cpus")
	if fast != nil && slow != nil {
		s.splitKinds(func(c cpuFacts) bool { return contains(fast, c.ID) },
			func(c cpuFacts) bool { return contains(slow, c.ID) })
		return
	}
	if most, least := span(s.cpu, func(c cpuFacts) int64 { return c.capacity }); most != least {
		s.splitKinds(func(c cpuFacts) bool { return c.capacity == most },
			func(c cpuFacts) bool { return c.capacity > 0 })
		return
	}
	most, least := span(s.cpu, func(c cpuFacts) int64 { return c.baseKHz })
	if most == least {
		return
	}
	for _, c := range s.cpu {
		if known := c.baseKHz > 0; known && (c.baseKHz != most && c.baseKHz != least ||
			(len(c.threads) > 1) != (c.baseKHz == most)) {
			return
		}
	}
	s.splitKinds(func(c cpuFacts) bool { return c.baseKHz == most },
		func(c cpuFacts) bool { return c.baseKHz == least })
}

func (s *survey) splitKinds(fast, slow func(cpuFacts) bool) {
	for i := range s.cpu {
		switch {
		case fast(s.cpu[i]):
			s.cpu[i].Kind = topo.Performance
		case slow(s.cpu[i]):
			s.cpu[i].Kind = topo.Efficiency
		}
	}
}

// span returns the largest and the smallest positive value; 0 and 0 when there is none.
func span(cpus []cpuFacts, value func(cpuFacts) int64) (most, least int64) {
	for _, c := range cpus {
		v := value(c)
		if v <= 0 {
			continue
		}
		most = max(most, v)
		if least == 0 || v < least {
			least = v
		}
	}
	return most, least
}
