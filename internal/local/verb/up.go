package verb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/deploy"
	web "github.com/tenon-project/tenon/internal/console"
	"github.com/tenon-project/tenon/internal/control/serving"
	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/local/cluster"
	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/local/simoperator"
	"github.com/tenon-project/tenon/internal/progress"
	"github.com/tenon-project/tenon/internal/view"
)

type upFlags struct {
	machines  []string
	nodes     int
	replicas  int // of the scheduler
	data      string
	config    string // of the descheduler; empty for none
	profiles  string // file of the scheduler's configuration; empty for none
	console   string // address to serve the console on; empty for none
	fences    bool
	journal   bool
	detach    bool
	demo      bool
	operators bool // simulated ones
	list      bool
	scaled    bool          // the manager serves autoscalers, too
	lease     time.Duration // of the schedulers' leader; 0 is the default
	revoke    time.Duration // how long quotas may use more than their share; 0 is the default
	server    string        // a kube-apiserver of another release; empty: the one that is built in
	report    int           // descriptor that a detached start reports on; 0 in the foreground
}

func newUp(serve ServeConsole) *cobra.Command {
	f := &upFlags{}
	c := help.Command(texts, "up", &cobra.Command{
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.list {
				return listMachines(c.OutOrStdout(), progress.Width(c.OutOrStdout()))
			}
			serving.UseLogger(klog.Background())
			return up(c.Context(), *f, serve, c.OutOrStdout())
		},
	})
	c.Flags().StringArrayVar(&f.machines, "machine", nil,
		"machine of the cluster: NAME[@KUBELET][=COUNT], see above; may be repeated")
	utilruntime.Must(c.RegisterFlagCompletionFunc("machine",
		cobra.FixedCompletions(Presets(), cobra.ShellCompDirectiveDefault)))
	c.Flags().IntVar(&f.nodes, "nodes", 0, "repeat the list of machines until N nodes exist")
	c.Flags().IntVar(&f.replicas, "schedulers", 1,
		fmt.Sprintf("replicas of the scheduler, at most %d; one of them is the leader", datadir.MaxSchedulers))
	c.Flags().StringVar(&f.data, "data", "", "folder of the cluster's data (default ~/.tenon)")
	c.Flags().BoolVar(&f.fences, "require-nri-plugin", false,
		"for clusters that real nodes join: add to pods with exclusive CPUs the annotation "+
			"required-plugins.noderesource.dev, as in tenon-manager")
	c.Flags().StringVar(&f.config, "descheduler-config", "",
		"file with a DeschedulerConfiguration or a DeschedulerPolicy for the descheduler (default: only "+
			"PodMigrationJobs move pods)")
	c.Flags().StringVar(&f.profiles, "scheduler-config", "",
		"file with a KubeSchedulerConfiguration for the scheduler; its clientConnection and leaderElection are "+
			"replaced by the cluster's own (default: the default profile, as default-scheduler, tenon-scheduler and "+
			"koord-scheduler)")
	c.Flags().StringVar(&f.console, "console", "",
		"serve the console on this loopback `address`, such as 127.0.0.1:0 (0: any free port)")
	c.Flags().BoolVar(&f.journal, "journal", false,
		"record the scheduler's decisions below journal/ of the cluster's data, for tenon replay")
	c.Flags().BoolVar(&f.detach, "detach", false, "return when the cluster is ready, and leave it running")
	c.Flags().BoolVar(&f.demo, "demo", false, "when the cluster is ready, apply pods of every class")
	c.Flags().BoolVar(&f.operators, "operators", false,
		"create the pods of objects of Kubeflow, Ray, Spark, JobSet and LeaderWorkerSet, as their operators do; "+
			"--demo does so too")
	c.Flags().BoolVar(&f.list, "list-machines", false, "print the presets without starting a cluster")
	c.Flags().IntVar(&f.report, "report-fd", 0, "descriptor to report the start on")
	c.Flags().DurationVar(&f.lease, "leader-lease", 0, "how long a leader of the scheduler that is gone leads on")
	c.Flags().DurationVar(&f.revoke, "revoke-after", 0, "how long a quota may use more than its share")
	c.Flags().StringVar(&f.server, "api-server", "", "a kube-apiserver that is run in place of the built-in one")
	c.Flags().BoolVar(&f.scaled, "autoscaled", false, "--protect-reservations and --scale-helper of the manager")
	for _, name := range []string{"report-fd", "leader-lease", "revoke-after", "api-server", "autoscaled"} {
		if err := c.Flags().MarkHidden(name); err != nil {
			panic(err) // the flag is defined right above
		}
	}
	return c
}

// configOf returns the absolute path of a configuration of the descheduler, once it is one.
func configOf(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	if _, err := deschedulerSettings(file); err != nil {
		return "", err
	}
	return filepath.Abs(file)
}

// listMachines wraps what the machines are to a width; 0 is unlimited.
func listMachines(w io.Writer, width int) error {
	const gap = 3
	t := tabwriter.NewWriter(w, 0, 0, gap, ' ', 0)
	_, _ = fmt.Fprintln(t, "NAME\tMACHINE") // a tabwriter reports at Flush
	longest := 0
	for _, d := range machine.Presets() {
		longest = max(longest, len(d.Name))
	}
	if width > 0 {
		width = max(1, width-longest-gap)
	}
	for _, d := range machine.Presets() {
		name := d.Name
		for _, part := range view.Wrap(d.Summary, " ", width) {
			_, _ = fmt.Fprintf(t, "%s\t%s\n", name, part)
			name = ""
		}
	}
	return t.Flush()
}

func up(ctx context.Context, f upFlags, serve ServeConsole, out io.Writer) error {
	dir, err := datadir.Resolve(f.data)
	if err != nil {
		return err
	}
	if f.replicas < 1 || f.replicas > datadir.MaxSchedulers {
		err := fmt.Errorf("--schedulers: %d is not allowed: use 1 to %d", f.replicas, datadir.MaxSchedulers)
		return &cluster.ExitError{Err: err, Code: 2}
	}
	if f.config, err = configOf(f.config); err != nil {
		return &cluster.ExitError{Err: err, Code: 2}
	}
	schedulers, err := readSchedulerConfig(f.profiles)
	if err == nil && f.demo {
		err = schedulers.checkDemo()
	}
	if err != nil {
		return &cluster.ExitError{Err: err, Code: 2}
	}
	if f.console != "" {
		if err := web.CheckAddress(f.console); err != nil {
			return &cluster.ExitError{Err: fmt.Errorf("--console: %w", err), Code: 2}
		}
	}
	machines := f.machines
	if len(machines) == 0 && f.nodes != 0 {
		machines = cluster.DefaultMachines()
	}
	var nodes []datadir.Node // none where the user named neither machines nor a number
	if len(machines) > 0 {
		if nodes, err = cluster.Expand(machines, f.nodes); err != nil {
			return err
		}
	}
	show := func() error {
		if !f.demo {
			return nil
		}
		return demo(ctx, dir, out)
	}
	if f.operators = f.operators || f.demo; f.detach {
		if err := detach(ctx, dir, f.operators, out); err != nil {
			return err
		}
		return show()
	}
	console := &console{out: out}
	if f.report != 0 {
		console.report = os.NewFile(uintptr(f.report), "report")
	}
	return console.end(run(ctx, dir, nodes, f, schedulers, serve, console, show))
}

// run keeps a cluster up until ctx ends or it breaks. It calls show once all is ready.
func run(ctx context.Context, dir datadir.Dir, nodes []datadir.Node, f upFlags, schedulers schedulerConfig,
	serve ServeConsole, console *console, show func() error,
) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the binary to start the components with: %w", err)
	}
	given := manifests()
	if f.config != "" {
		given = append(given, []byte(pluginRights), []byte(pluginRightsBound))
	}
	if schedulers.file != "" {
		given = append(given, []byte(profileRights), []byte(profileRightsBound))
	}
	if f.scaled {
		given = append(given, []byte(helperNamespace), []byte(helperRights), []byte(helperRightsBound))
	}
	pages := ""
	if f.console != "" { // it waits for the cluster, and a port that is taken is known at once
		served, stop := context.WithCancel(ctx)
		defer stop()
		if pages, err = serve(served, dir.Kubeconfig(), f.console); err != nil {
			return err
		}
	}
	begun := time.Now()
	c, err := cluster.Start(ctx, cluster.Options{
		Dir: dir, Nodes: nodes, Schedulers: f.replicas, Binary: binary, Manifests: given,
		Admission: deploy.Webhooks(schedulers.names()...), RequireNRIPlugin: f.fences, Report: console.step,
		Journal: f.journal, Lease: f.lease, RevokeAfter: f.revoke, Autoscaled: f.scaled,
		DeschedulerConfig: f.config, SchedulerConfig: schedulers.file, APIServer: f.server,
	})
	if err != nil {
		return err
	}
	stopOperators := func() {}
	if f.operators {
		stopOperators, err = startOperators(ctx, dir, console.say)
	}
	if err == nil {
		console.say(summary(dir, c, pages, time.Since(begun)))
		console.send(line{Ready: true})
		err = show()
	}
	if err == nil {
		err = c.Wait(ctx)
	}
	stopOperators()
	console.say("stopping")
	err = errors.Join(err, c.Stop())
	if err == nil {
		console.say("stopped; the data are kept in " + dir.Root())
	}
	return err
}

// startOperators starts the simulated operators, and returns a function that stops them.
func startOperators(ctx context.Context, dir datadir.Dir, report func(string)) (stop func(), err error) {
	stop = func() {}
	config, err := clientcmd.BuildConfigFromFlags("", dir.Kubeconfig())
	if err != nil {
		return stop, fmt.Errorf("read kubeconfig: %w", err)
	}
	if err := simoperator.Install(ctx, config); err != nil {
		return stop, err
	}
	operator, err := simoperator.New(config, report)
	if err != nil {
		return stop, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { operator.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}, nil
}
