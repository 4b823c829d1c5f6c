package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/deviceshare"
	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/sched/diag/refusals"
	"github.com/tenon-project/tenon/internal/sched/diag/whatif"
	"github.com/tenon-project/tenon/internal/sched/elasticquota"
	"github.com/tenon-project/tenon/internal/sched/follow"
	"github.com/tenon-project/tenon/internal/sched/journal"
	"github.com/tenon-project/tenon/internal/sched/loadaware"
	"github.com/tenon-project/tenon/internal/sched/nodenumaresource"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/sched/reserving"
	"github.com/tenon-project/tenon/internal/sched/topologyspread"
	"github.com/tenon-project/tenon/internal/sched/upstream/guard"
	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
	"github.com/tenon-project/tenon/internal/sched/upstream/ranking"
)

// Scheduler is everything that one process runs. Setup makes it, Run runs it once.
type Scheduler struct {
	// options are those of the command line, config what kube-scheduler makes of them and of the file.
	options *Options
	config  *config.CompletedConfig
	client  rest.Interface // of the kinds of Tenon
	// core is kube-scheduler's. wire puts the other parts around its queue, cache, profiles and handlers.
	core *scheduler.Scheduler
	// completed are the profiles with all arguments of kube-scheduler's plugins.
	completed []schedulerconfig.KubeSchedulerProfile
	// nodes is the core's cache for snapshots beside the core's: those of core.Cache count as the core's own.
	nodes schedulercache.Cache
	// registry has our plugins and those of WithPlugin. Profiles for questions are made from it too.
	registry frameworkruntime.Registry
	plugins  diag.Plugins // of the profiles, for their endpoints

	// The state of the cluster, which informers fill: accounts of nodes, quotas, gangs, Reservations and of what nodes
	// use. All profiles share it.
	store    *kube.Store
	loads    *kube.Loads
	quotas   *kube.Quotas
	gangs    *kube.Gangs
	reserved *kube.Reservations

	// rounds places gangs. It wraps the queue, the cycle and the failure handler of the core.
	rounds   *coscheduling.Rounds
	rebuild  *metrics.Histogram // how long the start took until all accounts were known
	reporter *refusals.Reporter // writes why pods were refused
	live     *refusals.Live     // evaluates a pod again, for explanations
	// whatIf answers questions about other clusters, on profiles of its own.
	whatIf  *whatif.Engine
	tracker *follow.Tracker           // of bound pods on nodes whose kubelet chooses
	failed  cache.SharedIndexInformer // of kube.NewRejectionInformer; the tracker runs it

	decisions *diag.Ring        // the last decisions, for diagnostics
	flags     *diag.Flags       // what diagnostics record at run time
	journal   *journal.Recorder // nil without --journal

	// guard catches the panics of plugins in the cycles that place pods, asked in those that answer questions.
	guard, asked *guard.Guard

	// gate holds the scheduling loop back until this process leads and all accounts are known.
	gate *hooks.Gate
}

var _ ranking.Valuer = (*deviceshare.Plugin)(nil)

// Registry returns our plugins by name.
func Registry(d *placement.Decisions, q *kube.Quotas, m *elasticquota.Metrics, g *kube.Gangs, r *kube.Reservations,
	l *kube.Loads, now func() time.Time,
) frameworkruntime.Registry {
	d.Within = reserving.Chosen
	d.Also = func(p *corev1.Pod) map[string]string {
		var all map[string]string
		for _, record := range []map[string]string{g.Record(p), r.Record(p), q.Record(p)} {
			if all == nil {
				all = record
			} else {
				maps.Copy(all, record)
			}
		}
		return all
	}
	return frameworkruntime.Registry{
		coscheduling.Name:     coscheduling.Factory(g, q),
		deviceshare.Name:      deviceshare.Factory(d),
		elasticquota.Name:     elasticquota.Factory(q, m),
		loadaware.Name:        loadaware.Factory(l, now),
		nodenumaresource.Name: nodenumaresource.Factory(d),
		reserving.Name:        reserving.Factory(r, q),
		topologyspread.Name:   topologyspread.New,
	}
}

// Rounds returns what places the members of gangs for a scheduling core. It replaces the core's queue by one that
// counts the events which may help a gang, and adds the rules of gangs to the preemption of each profile. The caller
// wraps the core's functions with those of the Rounds.
func Rounds(core *scheduler.Scheduler, g *kube.Gangs, q *kube.Quotas, s *kube.Store, changes *hooks.Changes,
	now func() time.Time,
) *coscheduling.Rounds {
	events := &hooks.Events{SiblingPlugin: coscheduling.Name, Node: core.Cache.GetNode}
	events.Amounts = func(pod *corev1.Pod) hooks.Amounts {
		if p, ok := core.Profiles[pod.Spec.SchedulerName].(*ranking.Profile); ok {
			return p.Amounts(pod)
		}
		return nil
	}
	core.SchedulingQueue = events.Watch(core.SchedulingQueue, changes)
	core.NextPod = core.SchedulingQueue.Pop
	r := coscheduling.NewRounds(coscheduling.Cluster{
		Gangs: g, Core: core, Quotas: q, Now: now, Shown: changes.Shown,
		Planning: elasticquota.Planned, Admitted: elasticquota.Admitted,
		Events: events.Count, Trial: func() coscheduling.Trial { return placement.NewTrial(s) },
		Preemption: PreemptionOf, Joint: jointOf, Usable: usableOf,
	})
	for _, f := range core.Profiles {
		f.SetPodNominator(core.SchedulingQueue)
		if p := PreemptionOf(f); p != nil {
			protect(f, p, r.Evictions)
		}
		if p := pluginOf[*reserving.Plugin](f); p != nil {
			events.Opens = p.Opened // of all profiles: they share the account
		}
		rooms := roomsOf(f)
		for _, e := range f.PreEnqueuePlugins() {
			if p, ok := e.(*elasticquota.Plugin); ok {
				p.Await, p.Rooms = r.Await, rooms
			}
		}
	}
	return r
}

// protect adds the rules of Reservations and gangs to the preemption of a profile.
func protect(f framework.Framework, p *defaultpreemption.DefaultPreemption, e *coscheduling.Evictions) {
	if rooms := pluginOf[*reserving.Plugin](f); rooms != nil {
		rooms.Guard(p)
	}
	e.Guard(f, p)
}

// roomsOf returns what Reservations count in the quotas of a profile, nil for one without the plugin.
func roomsOf(f framework.Framework) elasticquota.Rooms {
	if p := pluginOf[*reserving.Plugin](f); p != nil {
		return p
	}
	return nil
}

// usableOf is reserving.Plugin.Usable of a profile.
func usableOf(f framework.Framework, pods []*corev1.Pod) func(*corev1.Pod) bool {
	if p := pluginOf[*reserving.Plugin](f); p != nil {
		return p.Usable(pods)
	}
	return nil
}

// pluginOf returns a plugin of a profile, nil for one without it.
func pluginOf[T fwk.Plugin](f framework.Framework) (plugin T) {
	for _, e := range f.EnqueueExtensions() {
		if p, ok := e.(T); ok {
			return p
		}
	}
	return plugin
}

// jointOf is the answer of the plugin that decides about devices in a profile.
func jointOf(f framework.Framework, node string, pods []*corev1.Pod) (link int64, mark func(fwk.CycleState)) {
	if p := pluginOf[*deviceshare.Plugin](f); p != nil {
		return p.Joint(node, pods)
	}
	return 0, nil
}

// PreemptionOf returns what chooses victims for a profile; nil for one that does not preempt.
func PreemptionOf(f framework.Framework) *defaultpreemption.DefaultPreemption {
	for _, p := range f.PreEnqueuePlugins() {
		switch p := p.(type) {
		case *elasticquota.Plugin:
			return p.Preemption
		case *defaultpreemption.DefaultPreemption:
			return p
		}
	}
	return nil
}

// Setup builds the scheduler from parsed options. Nothing is read from the API server before Run.
func Setup(ctx context.Context, o *Options) (*Scheduler, error) {
	cfg, err := DefaultConfig(o.SchedulerNames)
	if err != nil {
		return nil, err
	}
	o.ComponentConfig = cfg // upstream replaces it by the file's when there is one
	if errs := o.Validate(); len(errs) > 0 {
		return nil, utilerrors.NewAggregate(errs)
	}
	file, err := strict.ReadFile(o.ConfigFile)
	if err == nil && file != nil {
		err = errors.Join(CheckConfig(file, slices.Collect(maps.Keys(o.Plugins))...), showSettings(file))
	}
	if err != nil {
		return nil, err
	}
	o.file = file
	c, err := o.Config(ctx)
	if err != nil {
		return nil, o.inFile(err)
	}
	coscheduling.SortQueue(c.ComponentConfig.Profiles)
	bindFirst(c.ComponentConfig.Profiles)
	c.KubeConfig.Wrap(hooks.LimitBindings)
	return assemble(ctx, o, c)
}

// assemble builds the scheduler from a configuration, whose client and informers of our objects are made here.
func assemble(ctx context.Context, o *Options, c *config.Config) (*Scheduler, error) {
	var err error
	if c.Client, err = kubernetes.NewForConfig(rest.AddUserAgent(c.KubeConfig, "scheduler")); err != nil {
		return nil, fmt.Errorf("client for Bindings: %w", err)
	}
	client, err := kube.NewClient(c.KubeConfig)
	if err != nil {
		return nil, fmt.Errorf("client for topologies, devices, quotas and PodGroups: %w", err)
	}
	// A journal is in front of everything: it has the clock of all accounts, and sees each event before they do.
	// Without one, informers are used as they are.
	var recorder *journal.Recorder
	now, watch := time.Now, func(i cache.SharedIndexInformer) cache.SharedIndexInformer { return i }
	if o.Journal != "" {
		if recorder, err = newJournal(o, &c.ComponentConfig); err != nil {
			return nil, err
		}
		now, watch = recorder.Now, recorder.Watch
		if len(c.ComponentConfig.Extenders) > 0 {
			return nil, errors.New("--journal: not allowed with extenders: what they answer is not recorded")
		}
	}
	// The accounts of the cluster. They trust what the schedulers of these names have written into pods.
	store, quotas, gangs := kube.NewStore(), kube.NewQuotas(now), kube.NewGangs()
	trusted := slices.Clone(o.TrustedNames)
	for i := range c.ComponentConfig.Profiles {
		trusted = append(trusted, c.ComponentConfig.Profiles[i].SchedulerName)
	}
	schedulers := convert.NewSchedulers(trusted...)
	store.Trust(schedulers)
	store.Fill()
	quotas.Trust(schedulers)
	reserved := kube.NewReservations(client, now)
	reserved.Profile = c.ComponentConfig.Profiles[0].SchedulerName
	if recorder != nil {
		reserved.Order = recorder.Own
	}
	loads := kube.NewLoads()
	// The core gets its informers from these factories, in which the accounts are in front: they have each event before
	// the queue can wake a pod for it.
	table := accounts.Accounts{
		Nodes: store, Quotas: quotas, Gangs: gangs, Reservations: reserved, Loads: loads,
	}.Table()
	c.InformerFactory = hooks.Informers(c.Client, c.InformerFactory, table, watch)
	c.DynInformerFactory = hooks.Resources(c.DynInformerFactory, table, client, watch)
	cc := c.Complete()
	s := &Scheduler{
		options: o, config: &cc, client: client, store: store, quotas: quotas, gangs: gangs, reserved: reserved,
		loads:  loads,
		failed: kube.NewRejectionInformer(cc.Client), decisions: &diag.Ring{}, flags: &diag.Flags{},
		plugins: diag.Plugins{}, journal: recorder,
		rebuild: metrics.NewHistogram(&metrics.HistogramOpts{
			Name:    "tenon_ledger_rebuild_seconds",
			Help:    "Time from start until every node's account was known.",
			Buckets: metrics.ExponentialBuckets(0.05, 2, 12),
		}),
	}
	export(s.rebuild)
	exportInfo(&cc.ComponentConfig)
	s.tracker = follow.NewTracker(store, follow.NewMetrics(export), now)
	placed := placement.NewMetrics(export)
	s.registry = Registry(placement.NewDecisions(store, placed, s.tracker), quotas, elasticquota.NewMetrics(export),
		gangs, reserved, loads, now)
	if err := s.registry.Merge(o.Plugins); err != nil {
		return nil, err
	}
	s.guard, s.asked = guard.New(export, now), guard.New(func(...metrics.Registerable) {}, now)
	s.reporter = refusals.NewReporter(cc.Client, export, placed.Decided, clock.RealClock{})
	if err := s.build(ctx); err != nil {
		return nil, o.inFile(err)
	}
	return s, s.wire(ctx)
}

// build makes the scheduling core as kube-scheduler does.
func (s *Scheduler) build(ctx context.Context) error {
	cc := s.config
	var completed []schedulerconfig.KubeSchedulerProfile
	// The options are those of kube-scheduler's own command, but for the recorder and for the registry, which notes the
	// plugins of each profile for their endpoints.
	core, err := scheduler.New(ctx, cc.Client, cc.InformerFactory, cc.DynInformerFactory,
		s.recorder,
		scheduler.WithComponentConfigVersion(cc.ComponentConfig.APIVersion),
		scheduler.WithKubeConfig(cc.KubeConfig),
		scheduler.WithProfiles(cc.ComponentConfig.Profiles...),
		scheduler.WithPercentageOfNodesToScore(cc.ComponentConfig.PercentageOfNodesToScore),
		scheduler.WithFrameworkOutOfTreeRegistry(s.plugins.Watch(s.registry)),
		scheduler.WithPodMaxBackoffSeconds(cc.ComponentConfig.PodMaxBackoffSeconds),
		scheduler.WithPodInitialBackoffSeconds(cc.ComponentConfig.PodInitialBackoffSeconds),
		scheduler.WithPodMaxInUnschedulablePodsDuration(cc.PodMaxInUnschedulablePodsDuration),
		scheduler.WithExtenders(cc.ComponentConfig.Extenders...),
		scheduler.WithParallelism(cc.ComponentConfig.Parallelism),
		scheduler.WithBuildFrameworkCapturer(
			func(p schedulerconfig.KubeSchedulerProfile) { completed = append(completed, p) }),
	)
	if err != nil {
		return err
	}
	s.core, s.completed = core, completed
	if err := s.guard.Scheduler(core); err != nil {
		return err
	}
	// Arguments and plugins are checked now that defaults and multi-point plugins are expanded.
	for i := range completed {
		name := completed[i].SchedulerName
		if err := checkDevices(core.Profiles[name].ListPlugins(), completed[i].PluginConfig); err != nil {
			return fmt.Errorf("profile %s: %w", name, err)
		}
	}
	for _, p := range cc.ComponentConfig.Profiles {
		unread := unreadArgs(core.Profiles[p.SchedulerName].ListPlugins(), p.PluginConfig)
		if s.options.ConfigFile != "" && len(unread) > 0 {
			klog.FromContext(ctx).Info("WARNING: pluginConfig has arguments of plugins that the profile does not "+
				"enable; they have no effect", "profile", p.SchedulerName, "plugins", unread)
		}
	}
	for name, f := range core.Profiles {
		if err := elasticquota.Exclusive(f.ListPlugins()); err != nil {
			return fmt.Errorf("profile %s: %w", name, err)
		}
		if err := coscheduling.Exclusive(f.ListPlugins(), utilfeature.DefaultFeatureGate); err != nil {
			return fmt.Errorf("profile %s: %w", name, err)
		}
	}
	ServeGangs(core, s.gangs)
	return options.LogOrWriteConfig(klog.FromContext(ctx), s.options.WriteConfigTo, &cc.ComponentConfig, completed)
}

// wire puts our parts around the core. The core reads these fields on each use, and nothing runs yet. The order matters
// where one part wraps another: the next pod comes from the queue through the share of gangs and the gate to the
// rounds, a cycle goes from the record of decisions through the rounds to the core, and a failure from the core through
// Reservations and rounds to the reporter, which writes it.
func (s *Scheduler) wire(ctx context.Context) error {
	changes := &hooks.Changes{}
	s.nodes = s.core.Cache
	s.core.Cache = changes.Watch(s.core.Cache, s.store)
	s.loads.OnChange(changes.Node, changes.Shown)
	now := time.Now
	if s.journal != nil {
		now = s.journal.Now
	}
	s.rounds = Rounds(s.core, s.gangs, s.quotas, s.store, changes, now)
	s.core.SchedulingQueue = hooks.Hold(s.core.SchedulingQueue, s.gangs.IsMember)
	s.core.FailureHandler = reserving.Fail(s.core, s.reserved, s.rounds.Fail(s.reporter.Wrap(s.core.FailureHandler)))
	// From the inside out: the core's cycle with remembered scores, rejections for the ranking, gangs, the record.
	refused := ranking.NewRejections()
	s.core.SchedulePod = s.decisions.Record(s.flags, s.rounds.Schedule(refused.Schedule(
		ranking.Remember(s.rankedProfile, s.core.SchedulePod))))
	s.gate = &hooks.Gate{
		Open: s.store.Synced(), Bindings: hooks.NewBindings(), Leading: func() { s.tracker.Leading.Store(true) },
	}
	for i := range s.config.ComponentConfig.Profiles {
		cfg := &s.config.ComponentConfig.Profiles[i]
		ranked, err := ranking.NewProfile(ctx, s.core.Profiles[cfg.SchedulerName], cfg, changes, nodenumaresource.Name,
			deviceshare.Name, reserving.Name, loadaware.Name)
		if err != nil {
			return err
		}
		ranked.Memory = s.options.RankingMegabytes << 20
		ranked.Rooms = &reserving.Rooms{Reservations: s.reserved, Store: s.store}
		ranked.Bindings, ranked.Together, ranked.Rejections = s.gate.Bindings, s.rounds, refused
		s.core.Profiles[cfg.SchedulerName] = ranked
	}
	s.core.NextPod = s.gate.Wrap(ctx, s.rounds.Share(s.core.NextPod))
	if s.journal != nil {
		s.record()
	} else {
		// From the inside out: the queue, the share of gangs, the gate, the members of the round under way.
		s.core.NextPod = s.rounds.Next(s.core.NextPod)
	}
	s.whatIf = whatif.New(s.questions(ctx))
	s.live = refusals.NewLive(s.nodes, func(nodes fwk.SharedLister) (map[string]framework.Framework, error) {
		profiles, err := s.profilesOn(ctx, nodes)
		rooms := &reserving.Rooms{Reservations: s.reserved, Store: s.store}
		for name, f := range profiles {
			profiles[name] = rooms.Wrap(f)
		}
		return profiles, err
	})
	s.reporter.ExplainBeside(s.live)
	s.reporter.OnReport(s.rounds.Describe)
	s.reporter.ForgetDeleted(s.config.InformerFactory.Core().V1().Pods().Informer())
	// Fails when another scheduler of this process has it already, as in tests.
	_ = legacyregistry.CustomRegister(s.reporter.Unschedulable())
	_ = legacyregistry.CustomRegister(elasticquota.NewResources(s.quotas))
	devices, _ := s.plugins[deviceshare.Name].(*deviceshare.Plugin)
	if devices != nil {
		devices.Survey(s.nodes)
	}
	_ = legacyregistry.CustomRegister(deviceshare.NewGauges(s.store, devices))
	return nil
}

// rankedProfile returns the profile of a scheduler name.
func (s *Scheduler) rankedProfile(name string) *ranking.Profile {
	p, _ := s.core.Profiles[name].(*ranking.Profile)
	return p
}
