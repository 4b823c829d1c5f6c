package descheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/api/nearest"
)

// Settings are what a file of either kind says, complete and checked.
type Settings struct {
	// Interval is the time between two rounds.
	Interval time.Duration
	DryRun   bool
	// Nodes selects the nodes whose pods may be moved.
	Nodes labels.Selector
	// Limits of a round; nil does not bound it.
	Limits Rounds
	// GracePeriodSeconds of moved pods; nil for the pod's own.
	GracePeriodSeconds *int64
	Profiles           []Profile
	// Migration has the limits of every move.
	Migration MigrationControllerArgs
	// Written is what the file sets, and where.
	Written strict.Settings
}

// Enables reports whether a profile runs a plugin.
func (s *Settings) Enables(plugin string) bool {
	return slices.ContainsFunc(s.Profiles, func(p Profile) bool {
		return slices.ContainsFunc(slices.Concat(p.Deschedule, p.Balance),
			func(e Enabled) bool { return e.Name == plugin })
	})
}

// Profile is a set of plugins that run together.
type Profile struct {
	Name string
	// Nodes selects those of Settings.Nodes that the plugins look at.
	Nodes labels.Selector
	// Deschedule and Balance are the plugins to run, in order.
	Deschedule, Balance []Enabled
	// Evictor has the arguments of DefaultEvictor; nil if the profile does not have it.
	Evictor *DefaultEvictorArgs
}

// Enabled is a plugin with its arguments, a pointer to the type NAMEArgs.
type Enabled struct {
	Name string
	Args any
}

// Points of extension. A file may name a plugin at those that the plugin has.
const (
	descheduling = "deschedule"
	balancing    = "balance"
	evicting     = "evict"
	filtering    = "filter"
	sorting      = "sort"
	lastLook     = "preevictionfilter"
)

// Names of the evictors.
const (
	MigrationController = "MigrationController"
	DefaultEvictor      = "DefaultEvictor"
)

// kind is what is known of a plugin.
type kind struct {
	points []string
	args   func() any
}

// kinds returns the known plugins by name.
func kinds() map[string]kind {
	each, whole := []string{descheduling}, []string{balancing}
	return map[string]kind{
		MigrationController: {[]string{evicting, filtering}, func() any { return new(MigrationControllerArgs) }},
		DefaultEvictor:      {[]string{evicting, filtering, lastLook}, func() any { return new(DefaultEvictorArgs) }},

		"RemovePodsViolatingNodeAffinity":             {each, func() any { return new(NodeAffinityArgs) }},
		"RemovePodsViolatingNodeTaints":               {each, func() any { return new(NodeTaintsArgs) }},
		"RemovePodsViolatingInterPodAntiAffinity":     {each, func() any { return new(InterPodAntiAffinityArgs) }},
		"RemovePodsHavingTooManyRestarts":             {each, func() any { return new(TooManyRestartsArgs) }},
		"RemoveFailedPods":                            {each, func() any { return new(FailedPodsArgs) }},
		"PodLifeTime":                                 {each, func() any { return new(LifeTimeArgs) }},
		"RemovePodsViolatingTopologySpreadConstraint": {whole, func() any { return new(TopologySpreadArgs) }},
		"RemoveDuplicates":                            {whole, func() any { return new(DuplicatesArgs) }},
		"LowNodeUtilization":                          {whole, func() any { return new(LowNodeUtilizationArgs) }},
		"LowNodeLoad":                                 {whole, func() any { return new(LowNodeLoadArgs) }},
		"HighNodeUtilization":                         {whole, func() any { return new(HighNodeUtilizationArgs) }},
		"FragmentationAware":                          {whole, func() any { return new(FragmentationAwareArgs) }},
		"ScaleDownBinPack":                            {whole, func() any { return new(ScaleDownBinPackArgs) }},
		"CustomPriority":                              {whole, func() any { return new(CustomPriorityArgs) }},
		"MakeRoom":                                    {whole, func() any { return new(MakeRoomArgs) }},
		"Defragment":                                  {whole, func() any { return new(DefragmentArgs) }},
	}
}

// Read returns the settings of a file. Without a text there are no profiles: nothing is moved but what
// PodMigrationJobs ask for. All problems are reported at once.
func Read(file string, text []byte) (Settings, error) {
	documents, err := strict.Parse(file, text)
	if err != nil {
		return Settings{}, err
	}
	if len(documents) > 1 {
		return Settings{}, fmt.Errorf("%s: has %d documents, want one", file, len(documents))
	}
	if len(documents) == 0 {
		documents, _ = strict.Parse(file, []byte("{apiVersion: "+APIVersion+", kind: "+ConfigurationKind+"}"))
	}
	settings, err := ReadDocument(documents[0])
	if len(text) == 0 {
		settings.Written = strict.Settings{}
	}
	return settings, err
}

// ReadDocument is Read for the document of a file.
func ReadDocument(d *strict.Document) (Settings, error) {
	r := reader{inspector: inspector{Document: d}, kinds: kinds()}
	r.read()
	r.Written = d.Settings()
	r.Written.Warnings = r.warnings
	return r.Settings, r.problems.Err()
}

// reader makes Settings of a document.
type reader struct {
	Settings
	inspector
	kinds map[string]kind
	// limits is where the arguments of MigrationController are.
	limits string
}

func (r *reader) read() {
	switch kind := r.Kind(); kind {
	case ConfigurationKind:
		var c Configuration
		if !r.file(kind, &c, &c.TypeMeta) {
			return
		}
		r.Interval, r.DryRun, r.Limits = c.DeschedulingInterval.Duration, c.DryRun, c.Rounds
		r.Nodes = selector(c.NodeSelector)
		for n, p := range c.Profiles {
			r.profile(n, p.Name, selector(p.NodeSelector), p.PluginConfig, map[string]PluginNames{
				descheduling: p.Plugins.Deschedule.names(), balancing: p.Plugins.Balance.names(),
				evicting: p.Plugins.Evict.names(), filtering: p.Plugins.Filter.names(),
			})
		}
	case PolicyKind:
		var c Policy
		if !r.file(kind, &c, &c.TypeMeta) {
			return
		}
		r.Interval, r.Limits = 2*time.Minute, c.Rounds
		r.Nodes, _ = labels.Parse(c.NodeSelector) // it was checked
		r.GracePeriodSeconds = c.GracePeriodSeconds
		for n, p := range c.Profiles {
			r.profile(n, p.Name, labels.Everything(), p.PluginConfig, map[string]PluginNames{
				"presort": p.Plugins.PreSort, sorting: p.Plugins.Sort, descheduling: p.Plugins.Deschedule,
				balancing: p.Plugins.Balance, filtering: p.Plugins.Filter, lastLook: p.Plugins.PreEvictionFilter,
			})
		}
	default:
		_ = r.Decode("", new(map[string]any)) // it finds the places
		r.refuse("kind", "%q is not allowed: use %s or %s", kind, ConfigurationKind, PolicyKind)
	}
	if r.limits == "" {
		r.Migration = *r.absent(MigrationController, "").(*MigrationControllerArgs)
	}
	r.inherit()
}

// file reads all of the document, and reports whether its fields can be used.
func (r *reader) file(kind string, into any, said *metav1.TypeMeta) bool {
	if r.arguments("", into); len(r.problems) > 0 {
		return false
	}
	if said.APIVersion != APIVersion {
		r.refuse("apiVersion", "%q is not allowed: use %s", said.APIVersion, APIVersion)
	}
	return len(r.problems) == 0 && said.Kind == kind
}

func (p NamedPlugins) names() (names PluginNames) {
	for _, one := range p.Enabled {
		names.Enabled = append(names.Enabled, one.Name)
	}
	for _, one := range p.Disabled {
		names.Disabled = append(names.Disabled, one.Name)
	}
	return names
}

// selector makes one of a checked selector; nil selects all.
func selector(s *metav1.LabelSelector) labels.Selector {
	if s == nil {
		return labels.Everything()
	}
	made, _ := metav1.LabelSelectorAsSelector(s) // it was checked
	return made
}

// profile reads the n-th one.
func (r *reader) profile(n int, name string, nodes labels.Selector, configs []PluginConfig,
	plugins map[string]PluginNames,
) {
	path := fmt.Sprintf("profiles[%d]", n)
	if slices.ContainsFunc(r.Profiles, func(p Profile) bool { return p.Name == name }) {
		r.refuse(path+".name", "%q is the name of an earlier profile", name)
	}
	p := Profile{Name: name, Nodes: nodes}
	args, places := map[string]any{}, map[string]string{}
	for c, config := range configs {
		at := fmt.Sprintf("%s.pluginConfig[%d]", path, c)
		if !r.known(at+".name", config.Name) {
			continue
		}
		if places[config.Name] != "" {
			r.refuse(at+".name", "%s has arguments already", config.Name)
		}
		places[config.Name] = at + ".args"
		args[config.Name] = r.kinds[config.Name].args()
		r.arguments(at+".args", args[config.Name])
		r.rules(config.Name, at+".args", args[config.Name])
	}
	used := map[string]bool{MigrationController: true, DefaultEvictor: true}
	for _, point := range slices.Sorted(maps.Keys(plugins)) {
		for e, plugin := range plugins[point].Enabled {
			at := fmt.Sprintf("%s.plugins.%s.enabled[%d]", path, point, e)
			if !r.known(at, plugin) {
				continue
			}
			kind := r.kinds[plugin]
			if !slices.Contains(kind.points, point) {
				r.refuse(at, "%s is not allowed here: use plugins.%s", plugin, strings.Join(kind.points, ", plugins."))
				continue
			}
			if used[plugin] = true; args[plugin] == nil {
				args[plugin] = r.absent(plugin, at)
			}
			switch enabled := (Enabled{plugin, args[plugin]}); point {
			case descheduling:
				p.Deschedule = append(p.Deschedule, enabled)
			case balancing:
				p.Balance = append(p.Balance, enabled)
			}
		}
		for d, plugin := range plugins[point].Disabled {
			if plugin != "*" {
				r.known(fmt.Sprintf("%s.plugins.%s.disabled[%d]", path, point, d), plugin)
			}
		}
	}
	p.Evictor, _ = args[DefaultEvictor].(*DefaultEvictorArgs)
	if limits, ok := args[MigrationController].(*MigrationControllerArgs); ok && places[MigrationController] != "" {
		if r.limits != "" {
			r.refuse(places[MigrationController], "MigrationController has arguments in another profile already: "+
				"its limits are those of all profiles")
		}
		r.Migration, r.limits = *limits, places[MigrationController]
	}
	for _, plugin := range slices.Sorted(maps.Keys(places)) {
		if !used[plugin] {
			r.warn(strings.TrimSuffix(places[plugin], ".args"), "has no effect: the profile does not enable "+plugin)
		}
	}
	r.Profiles = append(r.Profiles, p)
}

// known reports whether there is such a plugin, and refuses it if not.
func (r *reader) known(path, name string) bool {
	if _, ok := r.kinds[name]; ok {
		return true
	}
	names := slices.Sorted(maps.Keys(r.kinds))
	meant := ""
	if word := nearest.Word(name, names); word != "" {
		meant = fmt.Sprintf(", did you mean %s?", word)
	}
	r.refuse(path, "%q is not a known plugin%s (known: %s)", name, meant, strings.Join(names, ", "))
	return false
}

// absent returns the arguments of a plugin that has none in the file. What is wrong with them is at the plugin.
func (r *reader) absent(plugin, at string) any {
	none, _ := strict.Parse(r.File, []byte("{}"))
	alone := reader{inspector: inspector{Document: none[0]}}
	args := r.kinds[plugin].args()
	alone.arguments("", args)
	alone.rules(plugin, "", args)
	for _, p := range alone.problems {
		r.refuse(at, "%s %s: %s", plugin, p.Path, p.Text)
	}
	return args
}
