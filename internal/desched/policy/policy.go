package policy

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/internal/core/evict"
)

// NewPolicy returns the limits of every move. It asks for the value of a PriorityClass if the settings name one.
func NewPolicy(s descheduler.Settings, ownNamespace string, class func(name string) (int32, error)) (*evict.Policy,
	error,
) {
	m := s.Migration
	p := &evict.Policy{
		Paused: m.Paused, EvictInterval: m.EvictQPS.Interval(), EvictBurst: int(m.EvictBurst),
		MaxMigratingGlobally: limit(m.MaxMigratingGlobally), MaxMigratingPerNode: limit(m.MaxMigratingPerNode),
		MaxMigratingPerNamespace:  limit(m.MaxMigratingPerNamespace),
		MaxMigratingPerTargetNode: limit(m.MaxMigratingPerTargetNode),
		MaxMigratingPerWorkload:   numberOrPercent(m.MaxMigratingPerWorkload),
		MaxUnavailablePerWorkload: numberOrPercent(m.MaxUnavailablePerWorkload),
		WorkloadWindow:            window(m.ObjectLimiters.Workload),
		NamespaceWindow:           window(m.ObjectLimiters.Namespace),
		Include:                   m.Namespaces.Include, Exclude: m.Namespaces.Exclude,
		NamespaceSelector: matcher(m.Namespaces.Selector), NamespacePercent: number(&m.Namespaces.Percent),
		MinPodAge: m.MinPodAge.Duration, ReturnWindow: m.ReturnWindow.Duration,
		OwnerBackoff:      m.OwnerBackoff.Duration,
		SkipEvictionGates: m.SkipEvictionGates, SkipExpectedNumber: m.SkipCheckExpectedReplicas,
		EvictAllBarePods: m.EvictAllBarePods, AllowUnknownOwners: m.AllowUnknownOwners,
		AllowParkedPartition:    m.AllowParkedPartition,
		MaxPerRound:             number(s.Limits.MaxNoOfPodsToEvictTotal),
		MaxPerRoundAndNode:      number(s.Limits.MaxNoOfPodsToEvictPerNode),
		MaxPerRoundAndNamespace: number(s.Limits.MaxNoOfPodsToEvictPerNamespace),
	}
	if p.Exclude == nil {
		p.Exclude = []string{metav1.NamespaceSystem, ownNamespace}
	}
	if w := p.NamespaceWindow; w != nil {
		w.MaxMigrating.Number = cmp.Or(w.MaxMigrating.Number, p.MaxMigratingPerNamespace)
	}
	for _, d := range m.DomainLimits {
		p.DomainLimits = append(p.DomainLimits, evict.DomainLimit{
			TopologyKey: d.TopologyKey, MaxMigrating: int(d.MaxMigrating),
		})
	}
	if err := predicates(p, m.Predicates, class); err != nil {
		return nil, fmt.Errorf("limits of migrations: %w", err)
	}
	return p, nil
}

// predicates adds which pods may be moved at all.
func predicates(s *evict.Policy, p descheduler.Predicates, class func(string) (int32, error)) error {
	s.EvictFailedBarePods, s.EvictLocalStoragePods = p.EvictFailedBarePods, p.EvictLocalStoragePods
	s.EvictSystemCriticalPods, s.IgnorePVCPods = p.EvictSystemCriticalPods, p.IgnorePVCPods
	s.LabelSelector = matcher(p.LabelSelector)
	switch t := p.PriorityThreshold; {
	case t == nil || p.EvictSystemCriticalPods:
	case t.Value != nil:
		s.PriorityThreshold = t.Value
	default:
		value, err := class(t.Name)
		if err != nil {
			return fmt.Errorf("priorityThreshold.name: %w", err)
		}
		s.PriorityThreshold = &value
	}
	return nil
}

// ofProfile returns a policy that has the predicates of a profile's DefaultEvictor. bare lets all pods without an owner
// pass.
func ofProfile(a *descheduler.DefaultEvictorArgs, bare bool, class func(string) (int32, error)) (*evict.Policy, error) {
	limits := &evict.Policy{EvictAllBarePods: bare, AllowUnknownOwners: true}
	if a.MinPodAge != nil {
		limits.MinPodAge = a.MinPodAge.Duration
	}
	if err := predicates(limits, a.Predicates, class); err != nil {
		return nil, fmt.Errorf("DefaultEvictor: %w", err)
	}
	return limits, nil
}

// limit returns a number; 0, which does not limit, for none.
func limit(n *int32) int {
	if n == nil {
		return 0
	}
	return int(*n)
}

func number(n *int32) *int {
	if n == nil {
		return nil
	}
	return new(int(*n))
}

// numberOrPercent returns a number or a percentage that was checked.
func numberOrPercent(a *intstr.IntOrString) evict.IntOrPercent {
	if a == nil {
		return evict.IntOrPercent{}
	}
	n, percent := a.IntValue(), a.Type == intstr.String
	if percent {
		n, _ = strconv.Atoi(strings.TrimSuffix(a.StrVal, "%"))
	}
	return evict.IntOrPercent{Number: n, Percent: percent}
}

func window(l *descheduler.ObjectLimiter) *evict.Window {
	if l == nil || l.Duration.Duration <= 0 {
		return nil
	}
	return &evict.Window{
		Duration: l.Duration.Duration, MaxMigrating: numberOrPercent(l.MaxMigrating), Burst: limit(l.Burst),
	}
}

func matcher(s *metav1.LabelSelector) func(map[string]string) bool {
	if s == nil {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil { // the reader of the configuration has refused it
		selector = labels.Nothing()
	}
	return func(set map[string]string) bool { return selector.Matches(labels.Set(set)) }
}
