package app

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/features"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/internal/sched/upstream/ranking"
)

// SchedulerName is our own scheduler name.
const SchedulerName = "tenon-scheduler"

// shortestForecastInterval is how long a forecast is answered before another one is made.
const shortestForecastInterval = 10 * time.Second

// maxRankingMegabytes is 1 TiB.
const maxRankingMegabytes = 1 << 20

// Options are kube-scheduler's with a few of ours.
type Options struct {
	*options.Options
	// SchedulerNames are the profiles' names without a configuration file. Koordinator's is not a default: a cluster
	// that moves over may still run its scheduler.
	SchedulerNames []string
	// TrustedNames are other schedulers whose recorded allocations count.
	TrustedNames []string
	// LegacyDebugAddress serves diagnostics without authentication; loopback only, "" for none.
	LegacyDebugAddress string
	// LegacyDebugAllowFlags makes the debug flags changeable there.
	LegacyDebugAllowFlags bool
	// AutoscalerReasons gives conditions the reason Unschedulable only where a new node could help.
	AutoscalerReasons bool
	// Journal is the folder in which what is decided is recorded, "" for none.
	Journal string
	// IgnoreClaims leaves the devices of ResourceClaims out of the accounts of nodes.
	IgnoreClaims bool
	// RankingMegabytes is how much memory the rankings of nodes may take in each profile.
	RankingMegabytes int
	// LearnRunTimes lets forecasts use how long pods ran that have succeeded.
	LearnRunTimes bool
	// ForecastInterval is the time between two forecasts for conditions and metrics; 0 for none.
	ForecastInterval time.Duration
	// Plugins are beside ours; a profile of the configuration file enables them.
	Plugins frameworkruntime.Registry

	file     *strict.Document // of ConfigFile, once it has been read; nil for none
	ownGates []string         // our defaults of gates that the command line leaves out
}

// Option adds to what the command can run.
type Option func(*Options)

// WithPlugin makes a plugin known under a name, as in kube-scheduler's own command. A plugin that implements
// ginroute.APIServiceProvider serves its endpoints beside ours.
func WithPlugin(name string, factory frameworkruntime.PluginFactory) Option {
	return func(o *Options) { o.Plugins[name] = factory }
}

// NewOptions returns the defaults.
func NewOptions(with ...Option) *Options {
	o := &Options{
		Options: options.NewOptions(), SchedulerNames: []string{SchedulerName, corev1.DefaultSchedulerName},
		TrustedNames: []string{"koord-scheduler"}, Plugins: frameworkruntime.Registry{},
		RankingMegabytes: ranking.Memory >> 20, LearnRunTimes: true, ForecastInterval: time.Minute,
	}
	for _, option := range with {
		option(o)
	}
	fs := o.Flags.FlagSet("tenon")
	fs.StringSliceVar(&o.SchedulerNames, "serve-scheduler-names", o.SchedulerNames,
		"Names that this scheduler serves (spec.schedulerName). Omit default-scheduler beside a cluster's own "+
			"kube-scheduler. Add koord-scheduler to serve Koordinator's pods. Not with --config, whose profiles "+
			"contain the names.")
	fs.StringSliceVar(&o.TrustedNames, "trusted-scheduler-names", o.TrustedNames,
		"Names of other schedulers whose allocations in pod annotations count, such as Koordinator's while a cluster "+
			"moves over. Annotations of pods of all other schedulers are ignored.")
	fs.BoolVar(&o.IgnoreClaims, "ignore-claims", o.IgnoreClaims,
		"Do not account for the devices of ResourceClaims. A card that a DRA driver and the node's Device object both "+
			"publish can then be given to a claim and to a pod.")
	fs.IntVar(&o.RankingMegabytes, "ranking-memory-mb", o.RankingMegabytes,
		"Memory limit in MiB for the rankings of nodes in each profile. Pods with equal requests share a ranking, "+
			"which uses a few bytes for each node. The scheduler discards the least recently used ranking.")
	fs.StringVar(&o.LegacyDebugAddress, "legacy-debug-address", "",
		"Loopback address, e.g. 127.0.0.1:10251, for read-only diagnostics without authentication. Empty: none.")
	fs.BoolVar(&o.LegacyDebugAllowFlags, "legacy-debug-allow-flags", false,
		"Let every process of the host change the debug flags at --legacy-debug-address.")
	fs.BoolVar(&o.LearnRunTimes, "learn-run-times", o.LearnRunTimes,
		"Let tenon queue estimate how long pods run that declare nothing, from pods of the same workload that have "+
			"succeeded. No decision depends on it.")
	fs.DurationVar(&o.ForecastInterval, "forecast-interval", o.ForecastInterval,
		"Time between two forecasts, while pods wait, for the condition tenon.sh/ExpectedStart of PodGroups and the "+
			"metric of its errors: 10s or more. 0: none, unless tenon queue asks.")
	fs.BoolVar(&o.AutoscalerReasons, "autoscaler-reasons", true,
		"Set the reason Unschedulable of the condition PodScheduled, for which cluster autoscalers add nodes, only if "+
			"a new node could help the pod. False: set it for every pod that is refused.")
	fs.StringVar(&o.Journal, "journal", "",
		"Folder for the scheduler's record of events and decisions, for tenon replay. It keeps the latest 256 MiB, "+
			"without Secrets and environment variables. Empty: nothing is recorded.")
	return o
}

// applyGates sets the defaults of feature gates that the command line leaves out.
func (o *Options) applyGates() error {
	flag := o.Flags.FlagSet("feature gate").Lookup("feature-gates")
	if flag == nil {
		return errors.New("kube-scheduler has no flag feature-gates")
	}
	for _, pair := range missingGates(flag.Value.String()) {
		o.ownGates = append(o.ownGates, strings.TrimPrefix(pair, "kube:"))
		if err := flag.Value.Set(pair); err != nil {
			return fmt.Errorf("default of feature gate %s: %w", pair, err)
		}
	}
	return nil
}

// missingGates returns our defaults that said, the value of --feature-gates, does not speak of, in its own spelling
// (the registry refuses a mixture). Expectations would be one more write for each pod that waits.
func missingGates(said string) []string {
	prefix := ""
	if strings.Contains(said, "kube:") {
		prefix = "kube:"
	}
	names := "," + strings.ReplaceAll(said, ":", ",")
	var missing []string
	for _, gate := range []string{
		string(features.NominatedNodeNameForExpectation) + "=false", string(features.OpportunisticBatching) + "=true",
	} {
		if name, _, _ := strings.Cut(gate, "="); !strings.Contains(names, ","+name+"=") {
			missing = append(missing, prefix+gate)
		}
	}
	return missing
}

// validate checks our own flags; upstream's are checked by upstream.
func (o *Options) validate(set *pflag.FlagSet) error {
	if o.ConfigFile != "" && set.Changed("serve-scheduler-names") {
		return errors.New("--serve-scheduler-names is not allowed with --config: name the profiles in the file")
	}
	if len(o.SchedulerNames) == 0 || slices.Contains(o.SchedulerNames, "") {
		return errors.New("--serve-scheduler-names must name at least one scheduler and no empty name")
	}
	for i, name := range o.SchedulerNames {
		if slices.Contains(o.SchedulerNames[:i], name) {
			return fmt.Errorf("--serve-scheduler-names has %q twice", name)
		}
	}
	if o.ForecastInterval != 0 && o.ForecastInterval < shortestForecastInterval {
		return fmt.Errorf("--forecast-interval %s is not allowed: use 0, or %s and more", o.ForecastInterval,
			shortestForecastInterval)
	}
	if o.RankingMegabytes < 1 || o.RankingMegabytes > maxRankingMegabytes {
		return fmt.Errorf("--ranking-memory-mb=%d is not allowed: it must be 1 to %d",
			o.RankingMegabytes, maxRankingMegabytes)
	}
	if o.LegacyDebugAddress == "" {
		if o.LegacyDebugAllowFlags {
			return errors.New("--legacy-debug-allow-flags needs --legacy-debug-address")
		}
		return nil
	}
	host, _, err := net.SplitHostPort(o.LegacyDebugAddress)
	if err != nil {
		return fmt.Errorf("--legacy-debug-address: %w", err)
	}
	if !isLoopback(host) {
		return fmt.Errorf(
			"--legacy-debug-address=%s is not allowed: it has no authentication, so it must be a loopback address",
			o.LegacyDebugAddress)
	}
	return nil
}

// isLoopback reports whether a host is one that only this machine can reach. Names other than localhost are not.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// inFile adds the configuration file to an error of what it says: upstream's errors name the field alone.
func (o *Options) inFile(err error) error {
	if o.ConfigFile == "" || strings.Contains(err.Error(), o.ConfigFile) {
		return err
	}
	return fmt.Errorf("--config=%s: %w", o.ConfigFile, err)
}
