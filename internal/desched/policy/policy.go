package policy

import (
	"errors"
	"fmt"
	"strings"
	"time"

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
	limits := evict.Settings{
		Paused: m.Paused, EvictQPS: string(m.EvictQPS), EvictBurst: int(m.EvictBurst),
		MaxMigratingGlobally: number(m.MaxMigratingGlobally), MaxMigratingPerNode: number(m.MaxMigratingPerNode),
		MaxMigratingPerNamespace:  number(m.MaxMigratingPerNamespace),
		MaxMigratingPerTargetNode: number(m.MaxMigratingPerTargetNode),
		MaxMigratingPerWorkload:   amount(m.MaxMigratingPerWorkload),
		MaxUnavailablePerWorkload: amount(m.MaxUnavailablePerWorkload),
		Windows:                   map[string]evict.Window{},
		Include:                   m.Namespaces.Include, Exclude: m.Namespaces.Exclude, OwnNamespace: ownNamespace,
		NamespaceSelector: matcher(m.Namespaces.Selector), NamespacePercent: number(&m.Namespaces.Percent),
		MinPodAge: &m.MinPodAge.Duration, ReturnWindow: &m.ReturnWindow.Duration,
		SkipEvictionGates: m.SkipEvictionGates, SkipExpectedNumber: m.SkipCheckExpectedReplicas,
		EvictAllBarePods: m.EvictAllBarePods, AllowUnknownOwners: m.AllowUnknownOwners,
		AllowParkedPartition:    m.AllowParkedPartition,
		MaxPerRound:             number(s.Limits.MaxNoOfPodsToEvictTotal),
		MaxPerRoundAndNode:      number(s.Limits.MaxNoOfPodsToEvictPerNode),
		MaxPerRoundAndNamespace: number(s.Limits.MaxNoOfPodsToEvictPerNamespace),
	}
	for _, d := range m.DomainLimits {
		limits.DomainLimits = append(limits.DomainLimits, evict.DomainLimit{
			TopologyKey: d.TopologyKey, MaxMigrating: int(d.MaxMigrating),
		})
	}
	for key, l := range map[string]*descheduler.ObjectLimiter{
		"workload": m.ObjectLimiters.Workload, "namespace": m.ObjectLimiters.Namespace,
	} {
		if l != nil && l.Duration.Duration > 0 {
			window := evict.Window{Duration: l.Duration.Duration, MaxMigrating: amount(l.MaxMigrating)}
			if l.Burst != nil {
				window.Burst = int(*l.Burst)
			}
			limits.Windows[key] = window
		}
	}
	err := predicates(&limits, m.Predicates, class)
	made, wrong := evict.NewPolicy(limits)
	if err = errors.Join(err, wrong); err != nil {
		return nil, fmt.Errorf("limits of migrations: %w", err)
	}
	return made, nil
}

// predicates adds which pods may be moved at all.
func predicates(s *evict.Settings, p descheduler.Predicates, class func(string) (int32, error)) error {
	s.EvictFailedBarePods, s.EvictLocalStoragePods = p.EvictFailedBarePods, p.EvictLocalStoragePods
	s.EvictSystemCriticalPods, s.IgnorePVCPods, s.NodeFit = p.EvictSystemCriticalPods, p.IgnorePVCPods, p.NodeFit
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
	limits := evict.Settings{
		Exclude: []string{}, EvictAllBarePods: bare, MinPodAge: new(time.Duration),
		AllowUnknownOwners: true,
	}
	if a.MinPodAge != nil {
		limits.MinPodAge = &a.MinPodAge.Duration
	}
	if err := predicates(&limits, a.Predicates, class); err != nil {
		return nil, fmt.Errorf("DefaultEvictor: %w", err)
	}
	return evict.NewPolicy(limits)
}

func number(n *int32) *int {
	if n == nil {
		return nil
	}
	return new(int(*n))
}

func amount(a *intstr.IntOrString) string {
	if a == nil {
		return ""
	}
	return strings.TrimSpace(a.String())
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
