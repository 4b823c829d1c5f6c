package core

import (
	"context"
	"time"

	"k8s.io/component-base/metrics"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/sched/elasticquota"
	"github.com/tenon-project/tenon/internal/sched/follow"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/sched/upstream/claims"
	schedconfig "github.com/tenon-project/tenon/internal/sched/upstream/config"
	"github.com/tenon-project/tenon/internal/sched/upstream/guard"
	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
	"github.com/tenon-project/tenon/internal/sched/upstream/ranking"
	"github.com/tenon-project/tenon/internal/sched/upstream/snapshot"
)

// Clock returns the time.
type Clock interface{ Now() time.Time }

// Options are what schedulers, simulations and replays differ in.
type Options struct {
	// Config has the API: client, informers and profiles.
	Config *config.CompletedConfig
	// Events returns what sends the Events of a profile.
	Events loop.Recorders
	// Upstream are further options of kube-scheduler.
	Upstream []loop.Option

	// Clock is that of the accounts and plugins, Loop that of the scheduling loop, of which gangs have a share.
	Clock, Loop Clock

	// Accounts are those of the cluster, which all profiles share.
	accounts.Accounts
	// Metrics count what plugins do.
	Metrics *Metrics
	// Plugins are further ones, by name.
	Plugins frameworkruntime.Registry

	// Serving is nil in a simulation and in a replay, which bind no pod and wait for none.
	Serving *Serving
	// Reporter writes why a pod has no node.
	Reporter Reporter
	// Decisions keeps the last choices of nodes, with what Flags ask for; nil keeps none.
	Decisions *diag.Ring
	Flags     *diag.Flags
	// Remember answers for pods equal to one that all nodes refused without asking the nodes, as Serving does.
	Remember bool
	// Source decides which pod comes next; nil leaves it to the queue.
	Source Source
	// Record is outside of all else: a journal, a replay, or a simulation; nil for none.
	Record Record
}

// Serving is what only a scheduler has that serves a cluster.
type Serving struct {
	// RankingBytes is how many bytes the rankings of a profile may take.
	RankingBytes int
}

// Metrics count what plugins do. Guard catches their panics, Asked the panics of those that answer questions.
type Metrics struct {
	Placement *placement.Metrics
	Follow    *follow.Metrics
	Quota     *elasticquota.Metrics

	Guard, Asked *guard.Guard
}

// NewMetrics returns metrics that export has made visible. Times of the guards are those of a clock.
func NewMetrics(export func(...metrics.Registerable), c Clock) *Metrics {
	return &Metrics{
		Placement: placement.NewMetrics(export), Follow: follow.NewMetrics(export),
		Quota: elasticquota.NewMetrics(export),
		Guard: guard.New(export, c.Now), Asked: guard.New(func(...metrics.Registerable) {}, c.Now),
	}
}

// Core is kube-scheduler with all layers in place.
type Core struct {
	*loop.Scheduler
	// Completed are the profiles with all arguments of kube-scheduler's plugins.
	Completed []schedconfig.Profile
	// Nodes is the cache for snapshots beside those of the scheduling loop: the layers of Cache do not see them.
	Nodes snapshot.Cache
	// Plugins are Tenon's and those of Options, by name.
	Plugins diag.Plugins
	// Tracker follows the pods that are bound.
	Tracker *follow.Tracker
	// Rounds places gangs.
	Rounds *coscheduling.Rounds
	// Gate holds pods back until all accounts are known; nil unless Serving.
	Gate *hooks.Gate

	options  Options
	registry frameworkruntime.Registry
	// changes is the log of changed nodes, events counts what may let a pod fit.
	changes *hooks.Changes
	events  *hooks.Events
	// rejections has the nodes to which the API server refused to bind a pod; nil unless Serving.
	rejections *ranking.Rejections
	// Imagined is the ResourceClaims as questions change them.
	Imagined *claims.Imagined
	// sharing lets the members of gangs share ResourceClaims.
	sharing *claims.Sharing
	// dra has the claims of the cluster alone.
	dra fwk.SharedDRAManager
	// books are what the plugin for ResourceClaims reads in each profile, by scheduler name; nil where it reads no
	// accounts.
	books map[string]*claims.Books
	// ranked has the profiles that rank nodes, by scheduler name.
	ranked map[string]*ranking.Profile
}

// New builds the scheduling core. Nothing is read from the API server, and no pod is scheduled before its caller runs
// the core.
func New(ctx context.Context, o Options) (*Core, error) {
	c := &Core{
		options: o, Plugins: diag.Plugins{}, Tracker: follow.NewTracker(o.Nodes, o.Metrics.Follow, o.Clock.Now),
		changes: &hooks.Changes{}, ranked: map[string]*ranking.Profile{}, books: map[string]*claims.Books{},
	}
	c.sharing = claims.NewSharing(gangs{c})
	c.registry = Registry(&o, c.Tracker)
	if err := c.registry.Merge(o.Plugins); err != nil {
		return nil, err
	}
	// The registry notes the plugins of each profile for their endpoints.
	upstream, err := loop.New(ctx, o.Config, o.Events, c.Plugins.Watch(c.registry),
		func(p schedconfig.Profile) { c.Completed = append(c.Completed, p) }, o.Upstream...)
	if err != nil {
		return nil, err
	}
	c.Scheduler, c.Nodes = upstream, upstream.Cache
	c.events = &hooks.Events{SiblingPlugin: coscheduling.Name, Attempts: c}
	c.Rounds = coscheduling.NewRounds(coscheduling.Cluster{
		Gangs: o.Gangs, Core: loop.Of(upstream), Quotas: o.Quotas, Clock: o.Loop, Wall: o.Clock, Changes: c.changes,
		Events: c.events, Plugins: plugins{o.Nodes}, Claims: c.sharing,
	})
	if o.Serving != nil {
		c.rejections = ranking.NewRejections()
		c.Gate = &hooks.Gate{
			Open: o.Nodes.Synced(), Bindings: hooks.NewBindings(), Leading: &c.Tracker.Leading,
		}
	}
	o.Gangs.Serve(startTogether(upstream)...)
	return c, c.put(ctx, c.layers(ctx))
}
