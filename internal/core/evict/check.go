package evict

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenon-project/tenon/internal/core/move"
)

// Move is a pod that may be evicted, with what is known of the place that it would go to.
type Move struct {
	PodUID string
	// Job is the pod's own job. Empty: its started job, else its oldest one.
	Job    string
	Target string // node; empty: that of the job, which may not be known yet
	// Round is set for a pod for which a job does not exist yet: since when jobs count against the limits of a round.
	Round time.Time
}

// candidate is a pod with all that the checks need.
type candidate struct {
	*State
	policy   *Policy
	move     Move
	now      time.Time
	pod      *Pod
	workload *Workload // nil where there is none or it is not known
	job      *move.Job // its own; nil where there is none
	target   string
}

// check is the only producer of a code.
type check struct {
	code      Code
	gate      string // may be skipped by this name
	predicate bool   // is lifted by the pod's annotation
	workload  bool   // does not refuse a pod without a workload
	service   bool   // protects what running pods serve: does not refuse a pod that has failed
	// run returns what the refusal says; false where the check does not refuse.
	run func(c *candidate) (Refusal, bool)
}

// checks are in the order in which refusals are reported.
var checks = []check{
	{code: LookupFailed, run: lookupFailed},
	{code: NamespaceNotInCanary, gate: "Namespaces", run: outsideCanary},
	{code: Protected, run: protected},
	{code: BarePod, gate: "BarePods", predicate: true, run: func(c *candidate) (Refusal, bool) {
		allowed := c.policy.EvictAllBarePods || c.policy.EvictFailedBarePods && c.pod.Failed
		return Refusal{}, c.pod.Workload == "" && !allowed
	}},
	{code: UnknownOwner, workload: true, service: true, run: func(c *candidate) (Refusal, bool) {
		return Refusal{Subject: c.workload.Key}, c.workload.Kind == Unknown && !c.policy.AllowUnknownOwners
	}},
	{code: SystemCritical, gate: "SystemCritical", predicate: true, run: systemCritical},
	{code: PriorityThreshold, gate: "PriorityThreshold", predicate: true, run: aboveThreshold},
	{code: LabelSelector, gate: "LabelSelector", predicate: true, run: func(c *candidate) (Refusal, bool) {
		return Refusal{}, c.policy.LabelSelector != nil && !c.policy.LabelSelector(c.pod.Labels)
	}},
	{code: LocalStorage, gate: "LocalStorage", predicate: true, run: func(c *candidate) (Refusal, bool) {
		return Refusal{Subject: c.pod.LocalVolume}, c.pod.LocalVolume != "" && !c.policy.EvictLocalStoragePods
	}},
	{code: PVC, gate: "PVC", predicate: true, run: func(c *candidate) (Refusal, bool) {
		return Refusal{Subject: c.pod.ClaimedVolume}, c.pod.ClaimedVolume != "" && c.policy.IgnorePVCPods
	}},
	{code: NodeFit, gate: "NodeFit", run: func(*candidate) (Refusal, bool) {
		return Refusal{}, false // whoever proposes a move asks the scheduler, which takes too long for a State
	}},
	{code: ExpectedReplicas, gate: "ExpectedReplicas", workload: true, service: true, run: tooFewReplicas},
	{code: GaveUp, run: gaveUp},
	{code: Paused, run: func(c *candidate) (Refusal, bool) { return Refusal{}, c.policy.Paused }},
	{code: MinAge, run: tooYoung},
	{code: RolloutInProgress, workload: true, service: true, run: rolloutInProgress},
	{code: EvictionWouldUpgrade, workload: true, run: wouldUpgrade},
	{code: ScalingDown, workload: true, service: true, run: scalingDown},
	{code: GangMinimum, service: true, run: breaksGang},
	{code: AlreadyEvicting, gate: "MaxMigratingPerWorkload", run: alreadyEvicting},
	{
		code: WorkloadUnavailable, gate: "MaxUnavailablePerWorkload", workload: true, service: true,
		run: workloadUnavailable,
	},
	{code: PDBViolation, service: true, run: violatesBudget},
	{code: CapWorkload, workload: true, service: true, run: workloadWindow},
	{code: CapNode, gate: "MaxMigratingPerNode", run: capped(CapNode)},
	{code: CapNamespace, gate: "MaxMigratingPerNamespace", run: namespaceCap},
	{code: CapDomain, run: capped(CapDomain)},
	{code: CapGlobal, gate: "MaxMigratingGlobally", run: capped(CapGlobal)},
	{code: ReturnWindow, run: returns},
	{code: OwnerBackoff, service: true, run: ownerBackoff},
	{code: RateLimited, run: rateLimited},
}

// ProtectsService reports whether a code refuses only pods that may serve, so that a failed pod goes in spite of it.
func (c Code) ProtectsService() bool {
	return slices.ContainsFunc(checks, func(k check) bool { return k.code == c && k.service })
}

// Codes returns all codes, in the order in which refusals are reported.
func Codes() (all []Code) {
	for _, k := range checks {
		all = append(all, k.code)
	}
	return all
}

// Check returns all that refuses the eviction of a pod now, the root first. None: the pod may be evicted.
func (s *State) Check(p *Policy, podUID string, now time.Time) []Refusal {
	return s.CheckMove(p, Move{PodUID: podUID}, now)
}

// CheckMove is Check of a move.
func (s *State) CheckMove(p *Policy, m Move, now time.Time) (refused []Refusal) {
	c := s.candidate(p, m, now)
	for _, k := range checks {
		if p.skips(k.gate) || k.predicate && c.pod.Evictable || k.workload && c.workload == nil ||
			k.service && c.pod.Failed {
			continue
		}
		if r, refuses := k.run(&c); refuses {
			r.Code = k.code
			refused = append(refused, r)
			if r.Code == LookupFailed {
				break // the other checks would read what is not known
			}
		}
	}
	return refused
}

// candidate returns a move with all that the predicates read. An unknown pod is one with a fault, which refuses it.
func (s *State) candidate(p *Policy, m Move, now time.Time) candidate {
	c := candidate{State: s, policy: p, move: m, now: now, pod: s.pods[m.PodUID], job: s.jobs[m.Job], target: m.Target}
	if c.pod == nil {
		c.pod = &Pod{UID: m.PodUID, Fault: "the pod is not known"}
	}
	c.workload = s.workloads[c.pod.Workload]
	if m.Job == "" && m.Round.IsZero() {
		c.job = s.ownJob(m.PodUID)
	}
	if c.target == "" && c.job != nil {
		c.target = c.job.Status.Node
	}
	return c
}

// ownJob returns the pod's started job, else its oldest one; nil where each has ended.
func (s *State) ownJob(uid string) (own *move.Job) {
	for _, j := range s.jobsOf[uid] {
		if !j.Status.Phase.IsFinal() && (own == nil || cmp.Or(
			compareBool(own.IsRunning(), j.IsRunning()), compareJobs(j, own)) < 0) {
			own = j
		}
	}
	return own
}

// isOwn reports whether a job is that of the candidate.
func (c *candidate) isOwn(j *move.Job) bool { return c.job != nil && j.UID == c.job.UID }

// count returns how many jobs, apart from the candidate's own, have a property.
func (c *candidate) count(jobs map[string]*move.Job, has func(j *move.Job) bool) (n int) {
	for _, j := range jobs {
		if !c.isOwn(j) && has(j) {
			n++
		}
	}
	return n
}

// replicas returns how many replicas the workload should have. Those of an unknown kind are the pods that have it.
func (c *candidate) replicas() int {
	if c.workload.Kind == Unknown {
		return len(c.byWorkload[c.workload.Key])
	}
	return c.workload.Replicas
}

// name returns namespace/name.
func (p *Pod) name() string { return p.Namespace + "/" + p.Name }

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
	add("owner "+p.Workload+" is not known", p.Workload != "" && c.workload == nil && !p.Failed)
	if c.workload != nil && !p.Failed {
		add(c.workload.Fault, true)
	}
	_, known := c.bonds[p.Gang]
	add("gang "+p.Gang+" is not known", p.Gang != "" && !known && !p.Failed)
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
