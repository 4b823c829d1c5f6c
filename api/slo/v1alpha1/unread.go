package v1alpha1

import "slices"

// Unread returns the fields that are set and that no part of Tenon reads. Extensions are another program's.
func (s *NodeSLOSpec) Unread() []string {
	var out []string
	if s.ResourceUsedThresholdWithBE != nil {
		for _, name := range s.ResourceUsedThresholdWithBE.Unread() {
			out = append(out, "resourceUsedThresholdWithBE."+name)
		}
	}
	if s.CPUBurstStrategy != nil {
		for _, name := range s.CPUBurstStrategy.Unread() {
			out = append(out, "cpuBurstStrategy."+name)
		}
	}
	return append(out, set(map[string]bool{
		"resourceQOSStrategy": s.ResourceQOSStrategy != nil,
		"systemStrategy":      s.SystemStrategy != nil,
	})...)
}

// Unread returns the fields that are set and that no part of Tenon reads, sorted.
func (t *ResourceThresholdStrategy) Unread() []string {
	return set(map[string]bool{
		"allocatableEvictPriorityThreshold":      t.AllocatableEvictPriorityThreshold != nil,
		"cpuAllocatableEvictLowerPercent":        t.CPUAllocatableEvictLowerPercent != nil,
		"cpuAllocatableEvictThresholdPercent":    t.CPUAllocatableEvictThresholdPercent != nil,
		"cpuEvictLowerPercent":                   t.CPUEvictLowerPercent != nil,
		"cpuEvictThresholdPercent":               t.CPUEvictThresholdPercent != nil,
		"evictEnabledPriorityThreshold":          t.EvictEnabledPriorityThreshold != nil,
		"memoryAllocatableEvictLowerPercent":     t.MemoryAllocatableEvictLowerPercent != nil,
		"memoryAllocatableEvictThresholdPercent": t.MemoryAllocatableEvictThresholdPercent != nil,
	})
}

// Unread returns the fields that are set and that no part of Tenon reads, sorted.
func (s *CPUBurstStrategy) Unread() []string {
	names := s.CPUBurstConfig.Unread()
	if s.SharePoolThresholdPercent != nil {
		names = append(names, "sharePoolThresholdPercent")
	}
	return names
}

// Unread returns the fields that are set and have no effect, or a part of it only, sorted.
func (c *CPUBurstConfig) Unread() []string {
	return set(map[string]bool{
		"cfsQuotaBurstPercent":          c.CFSQuotaBurstPercent != nil,
		"cfsQuotaBurstPeriodSeconds":    c.CFSQuotaBurstPeriodSeconds != nil,
		"policy: quota scaling of auto": c.Policy == CPUBurstAuto,
		"policy: cfsQuotaBurstOnly":     c.Policy == CFSQuotaBurstOnly,
	})
}

// set returns the names of the fields that are set, sorted.
func set(fields map[string]bool) (names []string) {
	for name, isSet := range fields {
		if isSet {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
