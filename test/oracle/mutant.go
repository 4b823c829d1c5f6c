package oracle

// mutant is a fault of the model: the only occurrence of a text in a file of internal/core replaced by another. A run
// of the oracle has to notice each (make oracle-mutants), or it says nothing about what that text decides.
type mutant struct{ file, from, to string }

var mutants = []mutant{
	{"kubelet/model.go", "DeviceHostsOnly:  m >= 36", "DeviceHostsOnly:  m >= 38"},
	{"kubelet/model.go", "L3RoundsUp:       m >= 34", "L3RoundsUp:       m >= 38"},
	{"kubelet/model.go", "OneSocketFirst:   m >= 37", "OneSocketFirst:   m >= 38"},
	{"kubelet/model.go", "ChecksPinned:     m <= 36", "ChecksPinned:     m <= 37"},
	{"kubelet/model.go", "SkipsEmptyMemory: m >= 37", "SkipsEmptyMemory: m >= 38"},
	{"kubelet/pod.go", "most = max(most, amount.Plus(running, n))", "most = max(most, n)"},
	{"kubelet/merge.go", "list[i].Mask.Len() == least", "list[i].Mask.Len() <= least+1"},
	{"kubelet/memory.go", "z.assignments > 0 && z.group != nodes", "z.assignments > 1 && z.group != nodes"},
	{"kubelet/memory.go", "best.Preferred && !wider.Preferred", "best.Preferred && wider.Preferred"},
	{"kubelet/memory.go", "m.zones[i].assignments++", "m.zones[i].assignments = 1"},
	{"kubelet/memory.go", "taken := min(bytes, m.free[t][i])", "taken := bytes / int64(group.Len())"},
	{"kubelet/device.go", "matching += available[i] + reuse[i]", "matching += available[i]"},
	{"kubelet/device.go", "capacity += sets[i].Registered", "capacity += sets[i].Healthy"},
	{"kubelet/device.go", "int64(matching) >= n", "int64(matching) > n"},
	{"kubelet/pod.go", "peak = max(peak, running+c.CPUs)", "peak = max(peak, c.CPUs)"},
	{"kubelet/cpupolicy.go", "sumOn(p.capacity, m) >= int64(n)", "sumOn(p.capacity, m) >= need"},
	{"kubelet/cpupolicy.go", "(least+perSocket-1)/perSocket", "least/perSocket"},
	{"kubelet/cpuadmission.go", "available.Minus(p.unaligned)", "available.Minus(p.reserved)"},
	{
		"kubelet/cpuadmission.go", "inside := from.Intersect(a.policy.within(m))",
		"inside := a.available.Intersect(a.policy.within(m))",
	},
	{"kubelet/cpupack.go", "int(s.free) == t.policy.perSocket", "int(s.free) == t.policy.sockets[s.unit].size"},
	{"kubelet/cpudistribute.go", "for grown*2 < k {", "for grown*4 < k {"},
	{"hint/fold.go", "return 1 + topo.MaxNodes - n", "return 1 + n"},
	{
		"hint/hint.go", "if sa, sb := r.spread(a), r.spread(b); sa != sb {",
		"if sa, sb := r.spread(a), r.spread(b); sa > sb {",
	},
}
