package sloconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/strict"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
)

// Name is that of the ConfigMap.
const Name = "slo-controller-config"

// Keys of the ConfigMap.
const (
	ColocationKey   = "colocation-config"
	ThresholdKey    = "resource-threshold-config"
	QoSKey          = "resource-qos-config"
	BurstKey        = "cpu-burst-config"
	SystemKey       = "system-config"
	ApplicationsKey = "host-application-config"
)

// Selected says for which Nodes an item of a list is.
type Selected struct {
	// Name is how people call the item. It must be unique in its list.
	Name string `json:"name,omitempty"`
	// NodeSelector matches labels of Nodes; nil matches none.
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

type (
	colocation struct {
		Strategy    `json:",inline"`
		NodeConfigs []struct {
			Selected `json:",inline"`
			Strategy `json:",inline"`
		} `json:"nodeConfigs,omitempty"`
	}
	thresholds struct {
		ClusterStrategy *slo.ResourceThresholdStrategy `json:"clusterStrategy,omitempty"`
		NodeStrategies  []struct {
			Selected                      `json:",inline"`
			slo.ResourceThresholdStrategy `json:",inline"`
		} `json:"nodeStrategies,omitempty"`
	}
	classes struct {
		ClusterStrategy *slo.ResourceQOSStrategy `json:"clusterStrategy,omitempty"`
		NodeStrategies  []struct {
			Selected                `json:",inline"`
			slo.ResourceQOSStrategy `json:",inline"`
		} `json:"nodeStrategies,omitempty"`
	}
	bursts struct {
		ClusterStrategy *slo.CPUBurstStrategy `json:"clusterStrategy,omitempty"`
		NodeStrategies  []struct {
			Selected             `json:",inline"`
			slo.CPUBurstStrategy `json:",inline"`
		} `json:"nodeStrategies,omitempty"`
	}
	// free has strategies whose fields Tenon passes on as they are.
	free struct {
		ClusterStrategy map[string]any   `json:"clusterStrategy,omitempty"`
		NodeStrategies  []map[string]any `json:"nodeStrategies,omitempty"`
	}
	applications struct {
		Applications []slo.HostApplicationSpec `json:"applications,omitempty"`
		NodeConfigs  []struct {
			Selected     `json:",inline"`
			Applications []slo.HostApplicationSpec `json:"applications,omitempty"`
		} `json:"nodeConfigs,omitempty"`
	}
)

// rule is an item of a list for nodes.
type rule[T any] struct {
	matches labels.Selector
	said    T
}

// first returns what the first rule says that matches.
func first[T any](rules []rule[T], node labels.Set) (said T, found bool) {
	for _, r := range rules {
		if r.matches.Matches(node) {
			return r.said, true
		}
	}
	return said, false
}

// layers is a strategy of the cluster and what nodes say over it.
type layers struct {
	cluster map[string]any
	nodes   []rule[map[string]any]
}

// Config is what the ConfigMap says; nil is a cluster without it.
type Config struct {
	// Ignored are keys, and fields of keys, that are set and have no effect on any node.
	Ignored []string

	strategy   Strategy
	strategies []rule[Strategy]
	slo        map[string]layers // by key
	hosts      []slo.HostApplicationSpec
	nodeHosts  []rule[[]slo.HostApplicationSpec]
}

// Read reads the ConfigMap: what its data says or, if that has a problem, what the last data without one said, as the
// manager has noted in an annotation. The result is nil where the manager noted none.
func Read(m *corev1.ConfigMap) (config *Config, problem error) {
	config, problem = Parse(m.Data)
	var last map[string]string
	if problem != nil && json.Unmarshal([]byte(m.Annotations[annotation.LastValidStrategy]), &last) == nil {
		config, _ = Parse(last)
	}
	return config, problem
}

// Parse reads the data of the ConfigMap. The error has all problems of all keys.
func Parse(data map[string]string) (*Config, error) {
	c := &Config{slo: map[string]layers{}}
	var all []error
	for _, key := range slices.Sorted(maps.Keys(data)) {
		documents, err := strict.Parse(Name+": "+key, []byte(data[key]))
		switch {
		case err != nil:
		case len(documents) > 1:
			err = fmt.Errorf("%s: %s: has %d documents, want one", Name, key, len(documents))
		case len(documents) == 1:
			err = c.read(key, documents[0])
		}
		all = append(all, err)
	}
	if err := errors.Join(all...); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Config) read(key string, d *strict.Document) error {
	switch key {
	case ColocationKey:
		return c.readColocation(d)
	case ThresholdKey:
		var t thresholds
		return c.readLayers(key, d, &t, func() (errs field.ErrorList) {
			check := func(path *field.Path, t *slo.ResourceThresholdStrategy) {
				errs = append(errs, validateThresholds(path, t)...)
				for _, name := range t.Unread() {
					c.Ignored = append(c.Ignored, key+": "+path.Child(name).String())
				}
			}
			if t.ClusterStrategy != nil {
				check(field.NewPath("clusterStrategy"), t.ClusterStrategy)
			}
			for i := range t.NodeStrategies {
				check(field.NewPath("nodeStrategies").Index(i), &t.NodeStrategies[i].ResourceThresholdStrategy)
			}
			return errs
		})
	case QoSKey: // the rest reaches NodeSLOs, whose readers may be other programs
		c.Ignored = append(c.Ignored, key)
		return c.readLayers(key, d, &classes{}, nil)
	case BurstKey:
		var b bursts
		return c.readLayers(key, d, &b, func() (errs field.ErrorList) {
			check := func(path *field.Path, s *slo.CPUBurstStrategy) {
				errs = append(errs, validateBurst(path, s)...)
				for _, name := range s.Unread() {
					c.Ignored = append(c.Ignored, key+": "+path.Child(name).String())
				}
			}
			if b.ClusterStrategy != nil {
				check(field.NewPath("clusterStrategy"), b.ClusterStrategy)
			}
			for i := range b.NodeStrategies {
				check(field.NewPath("nodeStrategies").Index(i), &b.NodeStrategies[i].CPUBurstStrategy)
			}
			return errs
		})
	case SystemKey:
		c.Ignored = append(c.Ignored, key)
		return c.readLayers(key, d, &free{}, nil)
	case ApplicationsKey:
		return c.readApplications(d)
	}
	c.Ignored = append(c.Ignored, key)
	return nil
}

func (c *Config) readColocation(d *strict.Document) error {
	var said colocation
	if err := d.Decode("", &said).Err(); err != nil {
		return err
	}
	errs := said.validate(nil)
	c.strategy = said.Strategy
	list := selectors{path: field.NewPath("nodeConfigs")}
	for i := range said.NodeConfigs {
		n := &said.NodeConfigs[i]
		c.strategies = append(c.strategies, rule[Strategy]{list.add(n.Selected), n.Strategy})
		errs = append(errs, n.validate(list.path.Index(i))...)
	}
	return d.Locate("", append(errs, list.errs...).ToAggregate()).Err()
}

// readLayers reads a value as the type says, and keeps it as JSON.
func (c *Config) readLayers(key string, d *strict.Document, as any, validate func() field.ErrorList) error {
	if err := d.Decode("", as).Err(); err != nil {
		return err
	}
	text, err := d.JSON()
	if err != nil {
		return err
	}
	var raw free
	var selected struct{ NodeStrategies []Selected }
	if err := errors.Join(json.Unmarshal(text, &raw), json.Unmarshal(text, &selected)); err != nil {
		return d.Problem("nodeStrategies", "%v", err)
	}
	l, list := layers{cluster: raw.ClusterStrategy}, selectors{path: field.NewPath("nodeStrategies")}
	for i, said := range raw.NodeStrategies {
		delete(said, "name")
		delete(said, "nodeSelector")
		l.nodes = append(l.nodes, rule[map[string]any]{list.add(selected.NodeStrategies[i]), said})
	}
	c.slo[key] = l
	if validate != nil {
		list.errs = append(list.errs, validate()...)
	}
	return d.Locate("", list.errs.ToAggregate()).Err()
}

func (c *Config) readApplications(d *strict.Document) error {
	var said applications
	if err := d.Decode("", &said).Err(); err != nil {
		return err
	}
	c.hosts = said.Applications
	list := selectors{path: field.NewPath("nodeConfigs")}
	for _, n := range said.NodeConfigs {
		c.nodeHosts = append(c.nodeHosts, rule[[]slo.HostApplicationSpec]{list.add(n.Selected), n.Applications})
	}
	return d.Locate("", list.errs.ToAggregate()).Err()
}

// selectors are those of one list.
type selectors struct {
	path  *field.Path
	names []string
	errs  field.ErrorList
}

func (s *selectors) add(item Selected) labels.Selector {
	at := s.path.Index(len(s.names))
	if item.Name != "" && slices.Contains(s.names, item.Name) {
		s.errs = append(s.errs, field.Duplicate(at.Child("name"), item.Name))
	}
	s.names = append(s.names, item.Name)
	selector, err := metav1.LabelSelectorAsSelector(item.NodeSelector)
	if err != nil {
		s.errs = append(s.errs, field.Invalid(at.Child("nodeSelector"), metav1.FormatLabelSelector(item.NodeSelector),
			err.Error()))
		return labels.Nothing()
	}
	return selector
}

func validateThresholds(path *field.Path, t *slo.ResourceThresholdStrategy) (errs field.ErrorList) {
	between := func(name string, n *int64, least, most int64) {
		if n != nil && (*n < least || *n > most) {
			errs = append(errs, field.Invalid(path.Child(name), *n, fmt.Sprintf("must be %d to %d", least, most)))
		}
	}
	above := func(name, lowerName string, upper, lower *int64) {
		if upper != nil && lower != nil && *lower >= *upper {
			errs = append(errs, field.Invalid(path.Child(lowerName), *lower, "must be less than "+name))
		}
	}
	between("cpuSuppressThresholdPercent", t.CPUSuppressThresholdPercent, 0, 100)
	between("cpuSuppressMinPercent", t.CPUSuppressMinPercent, 0, 100)
	between("memoryEvictThresholdPercent", t.MemoryEvictThresholdPercent, 0, 100)
	between("memoryEvictLowerPercent", t.MemoryEvictLowerPercent, 0, 100)
	between("cpuEvictBESatisfactionUpperPercent", t.CPUEvictBESatisfactionUpperPercent, 0, 100)
	between("cpuEvictBESatisfactionLowerPercent", t.CPUEvictBESatisfactionLowerPercent, 0, 100)
	between("cpuEvictBEUsageThresholdPercent", t.CPUEvictBEUsageThresholdPercent, 0, 100)
	between("cpuEvictThresholdPercent", t.CPUEvictThresholdPercent, 0, 100)
	between("cpuEvictLowerPercent", t.CPUEvictLowerPercent, 0, 100)
	between("cpuEvictTimeWindowSeconds", t.CPUEvictTimeWindowSeconds, 1, 86400)
	above("memoryEvictThresholdPercent", "memoryEvictLowerPercent", t.MemoryEvictThresholdPercent,
		t.MemoryEvictLowerPercent)
	above("cpuEvictBESatisfactionUpperPercent", "cpuEvictBESatisfactionLowerPercent",
		t.CPUEvictBESatisfactionUpperPercent, t.CPUEvictBESatisfactionLowerPercent)
	above("cpuEvictThresholdPercent", "cpuEvictLowerPercent", t.CPUEvictThresholdPercent, t.CPUEvictLowerPercent)
	for name, n := range map[string]*int32{
		"evictEnabledPriorityThreshold":     t.EvictEnabledPriorityThreshold,
		"allocatableEvictPriorityThreshold": t.AllocatableEvictPriorityThreshold,
	} {
		if n != nil && *n > 7999 {
			errs = append(errs, field.Invalid(path.Child(name), *n, "must be at most 7999"))
		}
	}
	if p := t.CPUSuppressPolicy; p != "" && p != slo.CPUSetPolicy && p != slo.CPUCfsQuotaPolicy {
		errs = append(errs, field.NotSupported(path.Child("cpuSuppressPolicy"), p,
			[]slo.CPUSuppressPolicy{slo.CPUSetPolicy, slo.CPUCfsQuotaPolicy}))
	}
	if p := t.CPUEvictPolicy; p != "" && p != slo.EvictByRealLimit && p != slo.EvictByAllocatable {
		errs = append(errs, field.NotSupported(path.Child("cpuEvictPolicy"), p,
			[]slo.CPUEvictPolicy{slo.EvictByRealLimit, slo.EvictByAllocatable}))
	}
	return errs
}

// validateBurst checks a strategy by the rules of Koordinator's webhook.
func validateBurst(path *field.Path, s *slo.CPUBurstStrategy) (errs field.ErrorList) {
	between := func(name string, n *int64, least, most int64, rule string) {
		if n != nil && (*n < least || *n > most) {
			errs = append(errs, field.Invalid(path.Child(name), *n, "must be "+rule))
		}
	}
	between("cpuBurstPercent", s.CPUBurstPercent, 1, 10_000, "1 to 10000")
	between("cfsQuotaBurstPercent", s.CFSQuotaBurstPercent, 100, math.MaxInt64, "at least 100")
	between("cfsQuotaBurstPeriodSeconds", s.CFSQuotaBurstPeriodSeconds, -1, math.MaxInt64, "at least -1")
	between("sharePoolThresholdPercent", s.SharePoolThresholdPercent, 0, 100, "0 to 100")
	if p := s.Policy; p != "" && !slices.Contains(slo.CPUBurstPolicies(), string(p)) {
		errs = append(errs, field.NotSupported(path.Child("policy"), string(p), slo.CPUBurstPolicies()))
	}
	return errs
}

// Strategy returns that of a Node, complete. An error is about what is written on the Node; the strategy is then the
// one without it.
func (c *Config) Strategy(node *corev1.Node) (Strategy, error) {
	s := Default()
	if c != nil {
		s = s.over(&c.strategy)
		if said, found := first(c.strategies, node.Labels); found {
			s = s.over(&said)
		}
	}
	return s.onNode(node)
}

// NodeSLO returns what the NodeSLO of a Node says.
func (c *Config) NodeSLO(node *corev1.Node) (spec slo.NodeSLOSpec, err error) {
	if c == nil {
		return spec, nil
	}
	said := map[string]any{}
	for key, name := range map[string]string{
		ThresholdKey: "resourceUsedThresholdWithBE", QoSKey: "resourceQOSStrategy", BurstKey: "cpuBurstStrategy",
		SystemKey: "systemStrategy",
	} {
		l := c.slo[key]
		own, _ := first(l.nodes, node.Labels)
		if merged := merge(merge(nil, l.cluster), own); len(merged) > 0 {
			said[name] = merged
		}
	}
	text, err := json.Marshal(said)
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	spec.HostApplications = c.hosts
	if own, found := first(c.nodeHosts, node.Labels); found {
		spec.HostApplications = own
	}
	return spec, err
}

// merge returns an object with the fields of another one over its own, at every depth. Fields that are null or "", and
// objects without fields, are left out of what comes over it: the API server refuses an empty object that is applied
// in place of fields of the same manager.
func merge(under, over map[string]any) map[string]any {
	merged := maps.Clone(under)
	if merged == nil {
		merged = map[string]any{}
	}
	for key, value := range over {
		if below, ok := value.(map[string]any); ok {
			own, _ := merged[key].(map[string]any)
			if both := merge(own, below); len(both) > 0 {
				value = both
			} else {
				value = nil
			}
		}
		if merged[key] = value; value == nil || value == "" {
			delete(merged, key)
		}
	}
	return merged
}
