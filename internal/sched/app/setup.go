package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

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
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/core"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/deviceshare"
	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/sched/diag/refusals"
	"github.com/tenon-project/tenon/internal/sched/diag/whatif"
	"github.com/tenon-project/tenon/internal/sched/elasticquota"
	"github.com/tenon-project/tenon/internal/sched/expected"
	"github.com/tenon-project/tenon/internal/sched/journal"
	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
	"github.com/tenon-project/tenon/internal/sched/upstream/snapshot"
)

// Scheduler is everything that one process runs. Setup makes it, Run runs it once.
type Scheduler struct {
	// options are those of the command line, config what kube-scheduler makes of them and of the file.
	options *Options
	config  *config.CompletedConfig
	client  rest.Interface // of the kinds of Tenon
	// core is kube-scheduler with all that surrounds it.
	core *core.Core

	// The state of the cluster, which informers fill: accounts of nodes, quotas, gangs, Reservations and of what nodes
	// use. All profiles share it.
	store    *kube.Store
	loads    *kube.Loads
	quotas   *kube.Quotas
	gangs    *kube.Gangs
	reserved *kube.Reservations

	rebuild        *metrics.Histogram    // how long the start took until all accounts were known
	expectedErrors *metrics.HistogramVec // by how much forecasts were wrong

	reporter *refusals.Reporter // writes why pods were refused
	live     *refusals.Live     // evaluates a pod again, for explanations
	// whatIf answers questions about other clusters, on profiles of its own.
	whatIf *whatif.Engine
	failed cache.SharedIndexInformer // of kube.NewRejectionInformer; the tracker of the core runs it

	decisions *diag.Ring        // the last decisions, for diagnostics
	flags     *diag.Flags       // what diagnostics record at run time
	journal   *journal.Recorder // nil without --journal
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
	file, err := strict.ReadFile("--config", o.ConfigFile)
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
	asItIs := func(i cache.SharedIndexInformer) cache.SharedIndexInformer { return i }
	now, watch := time.Now, asItIs
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
	known := accounts.Accounts{
		Nodes: store, Quotas: quotas, Gangs: gangs, Reservations: reserved, Loads: loads,
	}
	devices := asItIs // a replay heeds claims
	if !o.IgnoreClaims {
		known.Claims, devices = kube.NewClaims(store), watch
		if recorder != nil {
			known.Claims.Order = recorder.Own
		}
	}
	table := known.Table()
	c.InformerFactory = hooks.Informers(c.Client, c.InformerFactory, table, watch, devices)
	// A factory gives each of its informers a transform of its own: this one replaces it.
	if err := c.InformerFactory.Core().V1().Pods().Informer().SetTransform(gangs.ShowConcealed); err != nil {
		return nil, fmt.Errorf("follow pods: %w", err)
	}
	c.DynInformerFactory = hooks.Resources(c.DynInformerFactory, table, client, watch)
	cc := c.Complete()
	s := &Scheduler{
		options: o, config: &cc, client: client, store: store, quotas: quotas, gangs: gangs, reserved: reserved,
		loads:  loads,
		failed: kube.NewRejectionInformer(cc.Client), decisions: &diag.Ring{}, flags: &diag.Flags{},
		journal: recorder,
		rebuild: metrics.NewHistogram(&metrics.HistogramOpts{
			Name:    "tenon_ledger_rebuild_seconds",
			Help:    "Time from start until every node's account was known.",
			Buckets: metrics.ExponentialBuckets(0.05, 2, 12),
		}),
	}
	s.expectedErrors = expected.NewErrors()
	export(s.rebuild, s.expectedErrors)
	exportInfo(&cc.ComponentConfig)
	clocks := clockOf(now)
	counted := core.NewMetrics(export, clocks)
	s.reporter = refusals.NewReporter(cc.Client, export, counted.Placement.Decided, clock.RealClock{})
	s.reporter.PlainReasons = !o.AutoscalerReasons
	options := core.Options{
		Config: &cc, Events: s.recorder, Clock: clocks, Loop: clocks,
		Upstream: []scheduler.Option{
			scheduler.WithPodMaxInUnschedulablePodsDuration(cc.PodMaxInUnschedulablePodsDuration),
		},
		Accounts: known,
		Metrics:  counted, Plugins: o.Plugins, Serving: &core.Serving{RankingBytes: o.RankingMegabytes << 20},
		Reporter: s.reporter, Decisions: s.decisions, Flags: s.flags,
	}
	if recorder != nil {
		s.follow()
		options.Source, options.Record, s.decisions.Scores = recorder, core.Journal(recorder), recorder
	}
	if s.core, err = core.New(ctx, options); err != nil {
		return nil, o.inFile(err)
	}
	if err := s.check(ctx); err != nil {
		return nil, o.inFile(err)
	}
	s.answer(ctx)
	return s, nil
}

// check refuses profiles whose plugins and arguments contradict each other, now that defaults and multi-point plugins
// are expanded.
func (s *Scheduler) check(ctx context.Context) error {
	if utilfeature.DefaultFeatureGate.Enabled(features.InPlacePodVerticalScalingSchedulerPreemption) {
		return errors.New("feature gate InPlacePodVerticalScalingSchedulerPreemption is not supported: it queues " +
			"pods that have a node, which gangs, quotas and Reservations take for new ones; leave it off")
	}
	cc, completed := s.config, s.core.Completed
	for i := range completed {
		name := completed[i].SchedulerName
		if err := checkDevices(s.core.Profiles[name].ListPlugins(), completed[i].PluginConfig); err != nil {
			return fmt.Errorf("profile %s: %w", name, err)
		}
	}
	for _, p := range cc.ComponentConfig.Profiles {
		unread := unreadArgs(s.core.Profiles[p.SchedulerName].ListPlugins(), p.PluginConfig)
		if s.options.ConfigFile != "" && len(unread) > 0 {
			klog.FromContext(ctx).Info("WARNING: pluginConfig has arguments of plugins that the profile does not "+
				"enable; they have no effect", "profile", p.SchedulerName, "plugins", unread)
		}
	}
	for name, f := range s.core.Profiles {
		if err := elasticquota.Exclusive(f.ListPlugins()); err != nil {
			return fmt.Errorf("profile %s: %w", name, err)
		}
		if err := coscheduling.Exclusive(f.ListPlugins(), utilfeature.DefaultFeatureGate); err != nil {
			return fmt.Errorf("profile %s: %w", name, err)
		}
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.GenericWorkload) { // also without Coscheduling
		return errors.New("feature gate GenericWorkload is not supported: it queues the pods of a PodGroup as one, " +
			"and this scheduler tries pods; leave it off: PodGroups of the API server are read without it")
	}
	return options.LogOrWriteConfig(klog.FromContext(ctx), s.options.WriteConfigTo, &cc.ComponentConfig, completed)
}

// answer prepares what answers questions about the core, and metrics of what it knows.
func (s *Scheduler) answer(ctx context.Context) {
	s.whatIf = whatif.New(s.questions(ctx))
	s.whatIf.Learn = s.options.LearnRunTimes
	s.live = refusals.NewLive(snapshot.NewCopy(s.core.Nodes), func(nodes fwk.SharedLister,
	) (map[string]framework.Framework, error) {
		return s.core.Beside(ctx, nodes)
	})
	s.reporter.ExplainBeside(s.live)
	s.reporter.OnReport(s.core.Rounds.Describe)
	s.reporter.ForgetDeleted(s.config.InformerFactory.Core().V1().Pods().Informer())
	// Fails when another scheduler of this process has it already, as in tests.
	_ = legacyregistry.CustomRegister(s.reporter.Unschedulable())
	_ = legacyregistry.CustomRegister(elasticquota.NewResources(s.quotas))
	devices, _ := s.core.Plugins[deviceshare.Name].(*deviceshare.Plugin)
	if devices != nil {
		devices.Survey(s.core.Nodes)
	}
	_ = legacyregistry.CustomRegister(deviceshare.NewGauges(s.store, devices))
}

// clockOf is a function as a clock.
type clockOf func() time.Time

// Now calls the function.
func (c clockOf) Now() time.Time { return c() }
