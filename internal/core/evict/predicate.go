package evict

import (
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"
)

// lookupFailed refuses while something that another check needs is not known.
func lookupFailed(c *candidate) (Refusal, bool) {
	var missing []string
	for _, source := range slices.Sorted(maps.Keys(c.faults)) {
		missing = append(missing, source+": "+c.faults[source])
	}
	add := func(text string, unknown bool) {
		if unknown && text != "" {
			missing = append(missing, text)
		}
	}
	p := c.pod
	add(p.Fault, true)
	add("owner "+p.Workload+" is not known", p.Workload != "" && c.workload == nil)
	if c.workload != nil {
		add(c.workload.Fault, true)
	}
	_, known := c.bonds[p.Gang]
	add("gang "+p.Gang+" is not known", p.Gang != "" && !known)
	_, known = c.nodes[p.Node]
	add("node "+p.Node+" is not known", p.Node != "" && len(c.policy.DomainLimits) > 0 && !known)
	_, known = c.namespaces[p.Namespace]
	add("namespace "+p.Namespace+" is not known", c.policy.NamespaceSelector != nil && !known)
	return Refusal{Subject: strings.Join(missing, "; ")}, len(missing) > 0
}

// outsideCanary refuses pods of namespaces that may not be touched.
func outsideCanary(c *candidate) (Refusal, bool) {
	p, name := c.policy, c.pod.Namespace
	labels, known := c.namespaces[name]
	in := (len(p.Include) == 0 || slices.Contains(p.Include, name)) && !slices.Contains(p.Exclude, name) &&
		(p.NamespaceSelector == nil || !known || p.NamespaceSelector(labels)) &&
		(p.NamespacePercent == nil || InRamp(name, *p.NamespacePercent))
	return Refusal{Subject: name}, !in
}

// InRamp reports whether a namespace is among so many percent of all. A larger percentage only adds namespaces.
func InRamp(namespace string, percent int) bool {
	h := fnv.New32a()
	h.Write([]byte(namespace))
	return int(h.Sum32()%100) < percent
}

// protected refuses pods that are never evicted.
func protected(c *candidate) (Refusal, bool) {
	switch p := c.pod; {
	case p.Fixed != "":
		return Refusal{Subject: p.Fixed}, true
	case p.EvictionCost == NeverEvict:
		return Refusal{Subject: "its eviction-cost is 2147483647"}, true
	case p.Succeeded:
		return Refusal{Subject: "it has succeeded"}, true
	}
	return Refusal{}, false
}

// systemCritical refuses pods with a system-critical priority, unless the policy allows them.
func systemCritical(c *candidate) (Refusal, bool) {
	const critical = 2_000_000_000
	return Refusal{Have: int(c.pod.Priority), Limit: critical},
		c.pod.Priority >= critical && !c.policy.EvictSystemCriticalPods
}

// aboveThreshold refuses pods whose priority is at least the policy's threshold.
func aboveThreshold(c *candidate) (Refusal, bool) {
	t := c.policy.PriorityThreshold
	if t == nil || c.pod.Priority < *t {
		return Refusal{}, false
	}
	return Refusal{Have: int(c.pod.Priority), Limit: int(*t)}, true
}

// tooYoung refuses pods below the least age; Until is when the pod has it. Have and Limit are seconds.
func tooYoung(c *candidate) (Refusal, bool) {
	age, until := c.now.Sub(c.pod.Created), c.pod.Created.Add(c.policy.MinPodAge)
	return Refusal{
		Have: int(age / time.Second), Limit: int(c.policy.MinPodAge / time.Second), Until: until,
	}, c.now.Before(until)
}
