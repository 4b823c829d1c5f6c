package evict

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Settings are the arguments of MigrationController and of the descheduler that limit evictions. A zero value means the
// default. Numbers that may be percentages are texts, as IntOrString prints them.
type Settings struct {
	Paused bool // refuse all evictions

	EvictQPS   string // evictions per second, or "30/m" per minute; default 10
	EvictBurst int    // evictions at once; default 1

	// Concurrent jobs; nil is the default (2 for a node, else no limit), 0 does not limit.
	MaxMigratingGlobally, MaxMigratingPerNode, MaxMigratingPerNamespace, MaxMigratingPerTargetNode *int
	DomainLimits                                                                                   []DomainLimit

	// Of the desired replicas: a number or a percentage. Default: 1 up to 3 replicas, 2 up to 10, else 10%.
	MaxMigratingPerWorkload, MaxUnavailablePerWorkload string
	// Windows are the limits over time, by "workload" and "namespace". nil is 5 minutes for a workload.
	Windows map[string]Window

	Include, Exclude   []string // namespaces; no Include is all. Exclude nil is kube-system and OwnNamespace
	OwnNamespace       string
	NamespaceSelector  func(labels map[string]string) bool // nil selects all
	NamespacePercent   *int                                // of all namespaces, by a stable hash; nil is 100
	LabelSelector      func(labels map[string]string) bool // of pods; nil selects all
	PriorityThreshold  *int32                              // pods with this priority or a higher one are refused
	MinPodAge          *time.Duration                      // nil is 5 minutes
	ReturnWindow       *time.Duration                      // nil is 30 minutes
	SkipEvictionGates  []string
	SkipExpectedNumber bool // skipCheckExpectedReplicas

	EvictFailedBarePods, EvictAllBarePods, EvictLocalStoragePods, EvictSystemCriticalPods bool
	IgnorePVCPods, NodeFit, AllowUnknownOwners, AllowParkedPartition                      bool

	// Pods to evict in one round of the descheduler; nil does not limit.
	MaxPerRound, MaxPerRoundAndNode, MaxPerRoundAndNamespace *int
}

// DomainLimit bounds the concurrent jobs whose source nodes have one value of a label.
type DomainLimit struct {
	TopologyKey  string
	MaxMigrating int
}

// Window bounds the evictions of one workload or namespace in each interval of a length.
type Window struct {
	Duration     time.Duration
	MaxMigrating string // a number or a percentage of the replicas; empty is the limit of concurrent jobs
	Burst        int    // at once, the others evenly over Duration; 0 does not limit
}

// IntOrPercent is a number, or a percentage of another one.
type IntOrPercent struct {
	n       int
	percent bool
	set     bool
}

// Policy is valid Settings with their defaults.
type Policy struct {
	Settings
	interval                 time.Duration // between evictions
	migrating, unavailable   IntOrPercent
	workload, namespace      *window
	perNode                  int
	minAge, returns          time.Duration
	skipped                  map[string]bool
	included, excluded       []string
	percent                  int
	global, perSpace, target int
}

type window struct {
	Window
	most IntOrPercent
}

// Gates returns the checks that SkipEvictionGates may name.
func Gates() []string {
	var all []string
	for _, c := range checks {
		if c.gate != "" && !slices.Contains(all, c.gate) {
			all = append(all, c.gate)
		}
	}
	slices.Sort(all)
	return all
}

// NewPolicy validates settings. The error names each field that is wrong, its rule and the allowed values.
func NewPolicy(s Settings) (*Policy, error) {
	p := &Policy{Settings: s, skipped: map[string]bool{}}
	var v validation
	p.interval = v.rate("evictQPS", cmp.Or(s.EvictQPS, "10"))
	p.EvictBurst = cmp.Or(s.EvictBurst, 1)
	v.atLeast("evictBurst", p.EvictBurst, 1)
	p.global = v.limit("maxMigratingGlobally", s.MaxMigratingGlobally, 0)
	p.perNode = v.limit("maxMigratingPerNode", s.MaxMigratingPerNode, 2)
	p.perSpace = v.limit("maxMigratingPerNamespace", s.MaxMigratingPerNamespace, 0)
	p.target = v.limit("maxMigratingPerTargetNode", s.MaxMigratingPerTargetNode, 0)
	for _, d := range s.DomainLimits {
		v.atLeast("domainLimits["+d.TopologyKey+"].maxMigrating", d.MaxMigrating, 1)
		if d.TopologyKey == "" {
			v.add("domainLimits[].topologyKey", "must not be empty")
		}
	}
	p.migrating = v.intOrPercent("maxMigratingPerWorkload", s.MaxMigratingPerWorkload)
	p.unavailable = v.intOrPercent("maxUnavailablePerWorkload", s.MaxUnavailablePerWorkload)
	v.windows(p)
	p.included, p.excluded, p.percent = s.Include, s.Exclude, 100
	if p.excluded == nil {
		p.excluded = []string{"kube-system", s.OwnNamespace}
	}
	if s.NamespacePercent != nil {
		if p.percent = *s.NamespacePercent; p.percent < 0 || p.percent > 100 {
			v.add("namespaces.percent", "must be 0 to 100, is %d", p.percent)
		}
	}
	p.minAge = v.duration("minPodAge", s.MinPodAge, 5*time.Minute)
	p.returns = v.duration("returnWindow", s.ReturnWindow, 30*time.Minute)
	for _, gate := range s.SkipEvictionGates {
		if !slices.Contains(Gates(), gate) {
			v.add("skipEvictionGates", "must be of %s, has %q", strings.Join(Gates(), ", "), gate)
		}
		p.skipped[gate] = true
	}
	v.limit("maxNoOfPodsToEvictTotal", s.MaxPerRound, 0)
	v.limit("maxNoOfPodsToEvictPerNode", s.MaxPerRoundAndNode, 0)
	v.limit("maxNoOfPodsToEvictPerNamespace", s.MaxPerRoundAndNamespace, 0)
	return p, errors.Join(v...)
}

// Retention is how long after its end a job is needed to decide about others.
func (p *Policy) Retention() time.Duration {
	most := max(backoffMemory, p.returns)
	for _, w := range []*window{p.workload, p.namespace} {
		if w != nil {
			most = max(most, w.Duration)
		}
	}
	return most
}

// validation is what is wrong with settings.
type validation []error

func (v *validation) add(field, format string, values ...any) {
	*v = append(*v, fmt.Errorf("%s: "+format, append([]any{field}, values...)...))
}

func (v *validation) atLeast(field string, n, least int) {
	if n < least {
		v.add(field, "must be a whole number of at least %d, is %d", least, n)
	}
}

func (v *validation) limit(field string, n *int, otherwise int) int {
	if n == nil {
		return otherwise
	}
	v.atLeast(field, *n, 0)
	return *n
}

func (v *validation) duration(field string, d *time.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	if *d < 0 {
		v.add(field, "must not be negative, is %s", *d)
	}
	return *d
}

// rate returns the time between two evictions.
func (v *validation) rate(field, text string) time.Duration {
	number, unit, _ := strings.Cut(text, "/")
	per := map[string]time.Duration{"": time.Second, "s": time.Second, "m": time.Minute, "h": time.Hour}[unit]
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || per == 0 || !(n >= 1e-4 && n <= 1e6) || strings.HasSuffix(text, "/") {
		v.add(field, "must be a number of 0.0001 to 1000000, per second or with /s, /m or /h, is %q", text)
		return 0
	}
	return max(time.Duration(float64(per)/n), 1)
}

func (v *validation) intOrPercent(field, text string) (i IntOrPercent) {
	if text == "" {
		return i
	}
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || percent && n > 100 {
		v.add(field, "must be a whole number of at least 1, or 1%% to 100%%, is %q", text)
	}
	return IntOrPercent{n: n, percent: percent, set: true}
}

func (v *validation) windows(p *Policy) {
	all := p.Windows
	if all == nil {
		all = map[string]Window{"workload": {Duration: 5 * time.Minute}}
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		w, field := all[key], "objectLimiters."+key
		limit := &window{Window: w, most: v.intOrPercent(field+".maxMigrating", w.MaxMigrating)}
		v.atLeast(field+".burst", w.Burst, 0)
		if w.Duration <= 0 {
			v.add(field+".duration", "must be positive, is %s", w.Duration)
		}
		switch key {
		case "workload":
			p.workload = limit
		case "namespace":
			if limit.most.percent || !limit.most.set && p.perSpace == 0 {
				v.add(field+".maxMigrating", "must be a whole number of at least 1, is %q", w.MaxMigrating)
			}
			if !limit.most.set {
				limit.most = IntOrPercent{n: p.perSpace, set: true}
			}
			p.namespace = limit
		default:
			v.add("objectLimiters", "must be of workload, namespace, has %q", key)
		}
	}
}

// Of returns the number of so many replicas: a percentage is rounded down and at least 1, and nothing is more than all
// replicas. The zero value follows the table: 1 up to 3 replicas, 2 up to 10, else 10 %.
func (i IntOrPercent) Of(replicas int) int {
	n := i.n
	switch {
	case i.percent:
		n = max(replicas*i.n/100, 1)
	case i.set:
	case replicas <= 3:
		n = 1
	case replicas <= 10:
		n = 2
	default:
		n = replicas / 10
	}
	return min(n, replicas)
}
