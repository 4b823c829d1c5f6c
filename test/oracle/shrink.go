package oracle

import (
	"encoding/json"
	"maps"
	"slices"
)

// Shrink makes a case that fails smaller for as long as failing says that it still fails, within a number of tries.
// Steps go first, then containers, requests, devices, options.
func Shrink(c Case, tries int, failing func(Case) bool) Case {
	for {
		found := false
		for candidate := range smallerCases(c) {
			if tries--; tries < 0 {
				return c
			}
			if failing(candidate) {
				c, found = candidate, true
				break
			}
		}
		if !found {
			return c
		}
	}
}

// smallerCases yields cases that are one change smaller, the largest changes first.
func smallerCases(c Case) func(yield func(Case) bool) {
	return func(yield func(Case) bool) {
		try := func(change func(*Case) bool) bool {
			candidate := clone(c)
			return !change(&candidate) || yield(candidate)
		}
		for n := len(c.Steps) / 2; n >= 1; n /= 2 {
			for at := 0; at+n <= len(c.Steps); at += n {
				if !try(func(x *Case) bool { x.Steps = slices.Delete(x.Steps, at, at+n); return true }) {
					return
				}
			}
		}
		for i, s := range c.Steps {
			if s.Admit != nil && !smallerPods(i, s.Admit, try) {
				return
			}
		}
		for at := range c.Machine.Devices {
			if !try(func(x *Case) bool {
				x.Machine.Devices = slices.Delete(x.Machine.Devices, at,
					at+1)
				return true
			}) {
				return
			}
		}
		smallerSettings(&c.Machine, try)
	}
}

func smallerPods(i int, p *Pod, try func(func(*Case) bool) bool) bool {
	for at := range p.Containers {
		ok := try(func(x *Case) bool {
			list := x.Steps[i].Admit.Containers
			x.Steps[i].Admit.Containers = slices.Delete(list, at, at+1)
			return slices.ContainsFunc(x.Steps[i].Admit.Containers, func(k Container) bool { return k.Role == RoleApp })
		})
		if !ok {
			return false
		}
	}
	for at, k := range p.Containers {
		changes := []func(*Container) bool{
			func(y *Container) bool { y.Devices = nil; return k.Devices != nil },
			func(y *Container) bool {
				y.Memory = map[string]int64{"memory": k.Memory["memory"]}
				return len(k.Memory) > 1 && k.Memory["memory"] > 0
			},
			func(y *Container) bool { y.CPU = 1000; return k.CPU > 1000 },
			func(y *Container) bool { y.CPU -= 1000; return k.CPU > 1000 },
			func(y *Container) bool {
				y.Memory = maps.Clone(k.Memory)
				if y.Memory != nil {
					y.Memory["memory"] = mib
				}
				return k.Memory["memory"] > mib
			},
		}
		for _, change := range changes {
			if !try(func(x *Case) bool { return change(&x.Steps[i].Admit.Containers[at]) }) {
				return false
			}
		}
	}
	return true
}

func smallerSettings(m *Machine, try func(func(*Case) bool) bool) {
	for _, name := range slices.Sorted(maps.Keys(m.CPUOptions)) {
		if !try(func(x *Case) bool { delete(x.Machine.CPUOptions, name); return true }) {
			return
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.TopologyOptions)) {
		if !try(func(x *Case) bool { delete(x.Machine.TopologyOptions, name); return true }) {
			return
		}
	}
	try(func(x *Case) bool {
		x.Machine.MemoryPolicy = "None"
		for i := range x.Machine.NUMA {
			x.Machine.NUMA[i].Reserved = nil
		}
		return m.MemoryPolicy != "None"
	})
}

func clone(c Case) Case {
	var out Case
	b, err := json.Marshal(c)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		panic(err) // a case is plain data
	}
	return out
}
