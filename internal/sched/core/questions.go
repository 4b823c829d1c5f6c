package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/deviceshare"
	"github.com/tenon-project/tenon/internal/sched/loadaware"
	"github.com/tenon-project/tenon/internal/sched/nodenumaresource"
	"github.com/tenon-project/tenon/internal/sched/reserving"
	"github.com/tenon-project/tenon/internal/sched/scarceresource"
	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
	"github.com/tenon-project/tenon/internal/sched/upstream/ranking"
)

// Profiles for questions are second ones of the same configuration: their plugins read the accounts of the core and a
// snapshot of their own, and reserve on trial alone. They share neither cycle nor waiting pod with those that place
// pods. Of the layers of a profile they have those that evaluate nodes.

// Beside makes the profiles anew on another snapshot, to run their filters in the room of Reservations too.
func (c *Core) Beside(ctx context.Context, nodes fwk.SharedLister) (map[string]framework.Framework, error) {
	profiles, err := c.asked(ctx, nodes, c.dra)
	for name, f := range profiles {
		books, other := c.audit(f)
		err = errors.Join(err, other, c.options.Metrics.Asked.Framework(f), c.claim(f, books))
		profiles[name] = c.rooms().Wrap(&heldRoom{f, c})
	}
	return profiles, err
}

// Questions makes the profiles anew on another snapshot, for pods that may not exist. They learn nothing from these.
// Pods that are reserved get their claims in c.Imagined alone.
// victims protects gangs from the preemption of the profiles.
func (c *Core) Questions(ctx context.Context, nodes fwk.SharedLister, victims *coscheduling.Evictions,
) (map[string]framework.Framework, error) {
	profiles, err := c.asked(ctx, nodes, c.Imagined)
	if err != nil {
		return nil, err
	}
	for name, f := range profiles {
		if err := cmp.Or(c.options.Metrics.Asked.Framework(f), c.choose(f)); err != nil {
			return nil, err
		}
		p, err := c.rank(ctx, name, f, &hooks.Changes{})
		if err != nil {
			return nil, err
		}
		protect(p, victims)
		p.DryRun, profiles[name] = true, p
	}
	return profiles, nil
}

// asked makes the profiles anew on another snapshot. Its callers guard them: what panics there counts for no pod.
func (c *Core) asked(ctx context.Context, nodes fwk.SharedLister, dra fwk.SharedDRAManager,
) (map[string]framework.Framework, error) {
	return hooks.ProfilesOn(ctx, nodes, dra, c.options.Config, c.Scheduler, c.registry)
}

// rank returns a profile that ranks nodes and runs filters in the room of Reservations.
func (c *Core) rank(ctx context.Context, name string, f framework.Framework, changes *hooks.Changes,
) (*ranking.Profile, error) {
	for i := range c.options.Config.ComponentConfig.Profiles {
		cfg := &c.options.Config.ComponentConfig.Profiles[i]
		if cfg.SchedulerName != name {
			continue
		}
		p, err := ranking.NewProfile(ctx, &heldRoom{f, c}, cfg, changes, nodenumaresource.Name, deviceshare.Name,
			reserving.Name, loadaware.Name, scarceresource.Name)
		if err == nil {
			p.Rooms = c.rooms()
		}
		return p, err
	}
	return nil, fmt.Errorf("the configuration has no profile %s", name)
}

// rooms are those of the Reservations.
func (c *Core) rooms() *reserving.Rooms {
	return &reserving.Rooms{Reservations: c.options.Reservations, Store: c.options.Nodes}
}
