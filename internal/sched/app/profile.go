package app

import (
	"fmt"
	"slices"

	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/deviceshare"
	"github.com/tenon-project/tenon/internal/sched/elasticquota"
	"github.com/tenon-project/tenon/internal/sched/nodenumaresource"
	"github.com/tenon-project/tenon/internal/sched/reserving"
	"github.com/tenon-project/tenon/internal/sched/upstream/topologyspread"
)

// DefaultConfig is what holds without --config: upstream's defaults with our plugins, once under each name.
func DefaultConfig(schedulerNames []string) (*config.KubeSchedulerConfiguration, error) {
	cfg, err := latest.Default()
	if err != nil {
		return nil, fmt.Errorf("upstream's default configuration: %w", err)
	}
	// The scheduler core makes one request for each pod and one for its event.
	cfg.ClientConnection.QPS, cfg.ClientConnection.Burst = 1000, 2000
	// With upstream's lock, the cluster's own scheduler would keep this one waiting for ever.
	cfg.LeaderElection.ResourceName = SchedulerName
	profile := cfg.Profiles[0]
	extend(&profile)
	leaveDevices(&profile)
	cfg.Profiles = nil
	for _, name := range schedulerNames {
		p := profile.DeepCopy()
		p.SchedulerName = name
		cfg.Profiles = append(cfg.Profiles, *p)
	}
	coscheduling.SortQueue(cfg.Profiles)
	return cfg, nil
}

// deviceWeight lets the best node for a pod with devices win, whatever the plugins with weight 1 prefer a little.
const deviceWeight = 10

// roomWeight lets a node with a Reservation of the pod win, whatever the other plugins prefer.
const roomWeight = 5000

// extend puts our plugins into upstream's default profile, two of them in the place of upstream's own.
func extend(p *config.KubeSchedulerProfile) {
	multi := &p.Plugins.MultiPoint
	for i := range multi.Enabled {
		switch multi.Enabled[i].Name {
		case names.PodTopologySpread:
			multi.Enabled[i].Name = topologyspread.Name
		case names.DefaultPreemption: // also after DynamicResources
			multi.Enabled[i].Name = elasticquota.Name
		}
	}
	for i := range p.PluginConfig {
		if p.PluginConfig[i].Name == names.PodTopologySpread {
			p.PluginConfig[i].Name = topologyspread.Name
		}
	}
	// Before DefaultBinder, which would bind every pod and leave the allocation to a second write; after all that
	// refuse a node for less, and after DynamicResources, whose PostFilter misses its own state when an earlier
	// PreFilter refuses.
	binder := slices.IndexFunc(multi.Enabled, func(e config.Plugin) bool { return e.Name == names.DefaultBinder })
	multi.Enabled = slices.Insert(multi.Enabled, max(binder, 0), config.Plugin{Name: nodenumaresource.Name, Weight: 1},
		config.Plugin{Name: deviceshare.Name, Weight: deviceWeight}, config.Plugin{Name: coscheduling.Name},
		config.Plugin{Name: reserving.Name, Weight: roomWeight})
}

// bindFirst lets our plugins bind before DefaultBinder in a profile that enables them without naming plugins for Bind:
// those of a file come after the default ones. DefaultBinder would fail to bind Reservations, which are not pods, and
// leave the allocations of pods to a second write.
func bindFirst(profiles []config.KubeSchedulerProfile) {
	for i := range profiles {
		p := profiles[i].Plugins
		if p == nil || len(p.Bind.Enabled)+len(p.Bind.Disabled) > 0 {
			continue
		}
		for _, name := range []string{nodenumaresource.Name, deviceshare.Name, reserving.Name} {
			if enables(&p.MultiPoint, name) {
				p.Bind.Enabled = append(p.Bind.Enabled, config.Plugin{Name: name})
			}
		}
	}
}
