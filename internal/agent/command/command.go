package command

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/wait"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/tenon-project/tenon/api/version"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/agent/transport"
)

// CPUSetAllocator is the feature gate under which the agent writes cpusets (seed 000).
const CPUSetAllocator = "CPUSetAllocator"

// New returns the command line of tenon-agent. serveNRI is nri.Run, nil where no verb is to connect to a runtime.
func New(serveNRI func(context.Context, transport.NRIOptions) error) *cobra.Command {
	c := &cobra.Command{
		Use:   "tenon-agent",
		Short: "Publishes what a node is and keeps its containers on the CPUs that were allocated to them",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },

		SilenceUsage: true,
		Version:      version.String(),
	}
	c.Flags().Bool("version", false, "print the version")
	c.AddCommand(newRunCommand(serveNRI), newProbeCommand(), newDoctorCommand(),
		newReportNVIDIACommand())
	return c
}

// common are the flags of both verbs.
type common struct {
	root, nodeName, kubelet string
	disableQuery, volcano   bool
	gates                   map[string]bool
}

func (f *common) add(fs *pflag.FlagSet) {
	f.gates = map[string]bool{}
	fs.StringVar(&f.root, "root", "/", "directory to use as the host's /")
	fs.StringVar(&f.nodeName, "node-name", "",
		"name of the node (default: $NODE_NAME, else the name of the host or of the root's folder)")
	fs.StringVar(&f.kubelet, "kubelet", "",
		"how the node's kubelet handles CPUs, memory and topology (default of run: ask the kubelet), such as "+
			"static,full-pcpus-only,reserved=0-1,memory-static,restricted,pod-scope,version=1.36")
	fs.BoolVar(&f.disableQuery, "disable-query-kubelet-config", false,
		"do not ask the kubelet, and only publish the topology (take-over phase 1)")
	fs.BoolVar(&f.volcano, "publish-numatopology", false,
		"also publish the node's Numatopology (nodeinfo.volcano.sh) for Volcano, in place of its resource exporter")
	fs.Var(cliflag.NewMapStringBool(&f.gates), "feature-gates",
		CPUSetAllocator+"=true|false (default true): whether the agent writes cpusets")
}

// switches reads the take-over flags and refuses what cannot be meant.
func (f *common) switches() (probe.Switches, error) {
	s := probe.Switches{QueryKubelet: !f.disableQuery, CPUSetAllocator: true}
	for name, on := range f.gates {
		if name != CPUSetAllocator {
			return s, fmt.Errorf("unknown feature gate %q: want %s", name, CPUSetAllocator)
		}
		s.CPUSetAllocator = on
	}
	if !s.Valid() {
		return s, fmt.Errorf("--disable-query-kubelet-config needs --feature-gates=%s=false: %w", CPUSetAllocator,
			app.ErrUnsafe)
	}
	return s, nil
}

func (f *common) name() (string, error) {
	if name := cmp.Or(f.nodeName, os.Getenv("NODE_NAME")); name != "" {
		return name, nil
	}
	root, err := filepath.Abs(f.root)
	if err != nil {
		return "", err
	}
	if root != "/" {
		return filepath.Base(root), nil
	}
	return os.Hostname()
}

// parse puts the flags into an Agent's options.
func (f *common) parse(o *app.Options) (err error) {
	o.Root, o.Arch, o.Version = host.Root{Dir: f.root}, runtime.GOARCH, version.String()
	o.PublishNumatopology = f.volcano
	if o.Switches, err = f.switches(); err != nil {
		return err
	}
	if o.Kubelet, err = host.ParseKubelet(f.kubelet); err != nil {
		return err
	}
	o.Node, err = f.name()
	return err
}

// What keeps the agent small: it runs on every node.
const (
	// gcPercent is how much the heap may grow before it is collected, where the environment does not say. The heap is
	// small and little happens, so that collecting twice as often costs nothing that can be measured.
	gcPercent = 50
	// readyPoll is the time between two questions whether the start is over.
	readyPoll = time.Second
)

// collectOften makes the garbage collector prefer memory over CPU, unless the operator has decided.
func collectOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// releaseStart waits until ready answers nil, or ctx ends. Then it gives back the memory that only the start needed.
func releaseStart(ctx context.Context, ready func() error) {
	err := wait.PollUntilContextCancel(ctx, readyPoll, true,
		func(context.Context) (bool, error) { return ready() == nil, nil })
	if err == nil {
		debug.FreeOSMemory()
	}
}
