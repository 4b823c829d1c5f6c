package command

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/agent/inventory"
	"github.com/tenon-project/tenon/internal/agent/socket"
	"github.com/tenon-project/tenon/internal/agent/status"
	"github.com/tenon-project/tenon/internal/agent/transport"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// minResync is the shortest time between two comparisons of the whole tree that can be asked for.
const minResync = time.Second

func newRunCommand(serveNRI func(context.Context, transport.NRIOptions) error) *cobra.Command {
	var file, kubeconfig string
	var r runFlags
	c := &cobra.Command{
		Use:   "run",
		Short: "Run the agent of this node",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := strict.ReadFile("--config", file)
			if err != nil {
				return err
			}
			settings, err := r.complete(c.Flags(), d)
			if err != nil {
				return err
			}
			if err := connect(&r.o, kubeconfig); err != nil {
				return err
			}
			if err := r.ask.wire(&r.o, c.Flags(), kubeconfig); err != nil {
				return err
			}
			r.o.Drivers, r.o.ServeNRI = inventory.NVML(r.o.Root), serveNRI
			return r.serve(c.Context(), kubeconfig, settings)
		},
	}
	fs := c.Flags()
	r.add(fs)
	fs.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file (default: the pod's service account)")
	fs.StringVar(&file, "config", "", "`file` with an AgentConfiguration; flags win over it")
	return c
}

// CheckConfig finds everything wrong in an AgentConfiguration, and returns the settings that it would give.
func CheckConfig(d *strict.Document) (strict.Settings, error) {
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	var r runFlags
	r.add(fs)
	return r.complete(fs, d)
}

// runFlags are those of run that no API server is needed for.
type runFlags struct {
	common
	ask                          askFlags
	address, metrics, deviceMode string
	exempt, schedulers           []string
	o                            app.Options
}

// complete adds what a file says, nil for none, and checks everything at once.
func (r *runFlags) complete(fs *pflag.FlagSet, d *strict.Document) (strict.Settings, error) {
	var schema v1alpha1.AgentConfiguration
	if d != nil {
		problems := d.DecodeKind(v1alpha1.ComponentAPIVersion, v1alpha1.AgentConfigurationKind, &schema)
		if err := problems.Err(); err != nil {
			return strict.Settings{}, err
		}
	}
	settings, err := strict.Apply(d, schema, strict.Flags{
		Given: fs.Changed,
		Set: func(name, text string) error {
			f := fs.Lookup(name)
			f.Changed = true
			return f.Value.Set(text)
		},
		Text: func(name string) string { return fs.Lookup(name).Value.String() },
	})
	if err != nil {
		return settings, err
	}
	o, errs := &r.o, []error{mustBeLoopback(r.address), checkMetricsAddress(r.metrics)}
	if o.Resync < minResync {
		errs = append(errs, fmt.Errorf("--resync %v: want %v or more", o.Resync, minResync))
	}
	errs = append(errs, r.ask.check(fs, host.Root{Dir: r.root}), r.parse(o))
	for _, text := range r.exempt {
		e, err := inject.ParseExemption(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--device-exempt %w", err))
		}
		o.DeviceExempt = append(o.DeviceExempt, e)
	}
	o.Schedulers = convert.NewSchedulers(r.schedulers...)
	if r.deviceMode != "" {
		if o.DeviceMode, _, err = annotation.ParseDeviceMode(r.deviceMode); err != nil {
			errs = append(errs, fmt.Errorf("--device-mode: %w", err))
		}
	}
	return settings, settings.Locate(append(errs, checkRuntime(o))...)
}

func (r *runFlags) add(fs *pflag.FlagSet) {
	o := &r.o
	r.common.add(fs)
	r.ask.add(fs)
	fs.StringVar(&o.NRISocket, "nri-socket", "/var/run/nri/nri.sock",
		"NRI socket of the container runtime; empty to not connect")
	fs.StringVar(&o.HookSocket, "hook-socket", "/run/tenon/hooks.sock",
		"socket for tenon-runtime-proxy; empty to not listen")
	fs.StringVar(&o.CgroupRoot, "cgroup-root", "",
		"cgroup below which the kubelet keeps its pods, as its cgroupRoot (default: ask the kubelet, else /)")
	fs.BoolVar(&o.AllowDegraded, "allow-degraded-enforcement", false,
		"start LSE pods even if containers may start without the agent: on old runtimes, or without NRI's validator")
	fs.StringArrayVar(&r.exempt, "device-exempt", nil,
		"NAMESPACE or NAMESPACE/SELECTOR of pods that may see devices without an allocation, such as metrics "+
			"exporters; may be repeated")
	fs.StringVar(&r.deviceMode, "device-mode", "", "who allocates devices: Follow (the kubelet), Own (Tenon; Moving "+
		"while pods hold devices of the kubelet) or Moving (default: by the Device object)")
	fs.BoolVar(&o.EvictDeviceOveruse, "evict-device-overuse", false,
		"evict best-effort pods that exceed their allocation of GPU memory for a minute")
	fs.BoolVar(&o.IsolateCPUs, "isolate-exclusive-cpus", false,
		"move interrupts off the CPUs of LSE pods, and of LSR pods that ask for it, and limit how deep CPUs sleep "+
			"where pods ask for it; without it the agent restores what it has set")
	fs.StringVar(&r.address, "health-address", "127.0.0.1:10271",
		"loopback address of /healthz, /livez, /readyz, /configz and /metrics; empty to disable")
	fs.StringVar(&r.metrics, "metrics-address", "",
		"`host:port` of /metrics for other machines, over TLS with the API server's authorization; empty to "+
			"serve none")
	fs.BoolVar(&o.AllowUnallocatedLSR, "allow-unallocated-lsr", false,
		"run LSR pods that another scheduler bound on the CPU shared pool")
	fs.StringSliceVar(&r.schedulers, "scheduler-names", nil, "names of the schedulers whose pods may use Tenon "+
		"(spec.schedulerName); labels and annotations of Tenon on other pods are ignored (default: all)")
	fs.DurationVar(&o.Resync, "resync", 30*time.Second, "time between two comparisons of the whole cgroup tree")
}

func checkRuntime(o *app.Options) (err error) {
	for _, s := range []struct {
		flag string
		at   *string
	}{{"--nri-socket", &o.NRISocket}, {"--hook-socket", &o.HookSocket}} {
		if *s.at == "" {
			continue
		}
		if *s.at, err = socket.Path(*s.at); err != nil {
			return fmt.Errorf("%s: %w", s.flag, err)
		}
	}
	if o.NRISocket != "" && o.NRISocket == o.HookSocket {
		return errors.New(
			"--nri-socket and --hook-socket are one file: the one is the runtime's, the other the agent's own")
	}
	if o.CgroupRoot != "" && (!path.IsAbs(o.CgroupRoot) || path.Clean(o.CgroupRoot) != o.CgroupRoot) {
		return fmt.Errorf("--cgroup-root %q: want an absolute path such as / or /pods, as the kubelet's cgroupRoot",
			o.CgroupRoot)
	}
	return nil
}

func connect(o *app.Options, kubeconfig string) error {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return err
	}
	// Protobuf is half the size of JSON and leaves less garbage; custom resources are JSON all the same.
	typed := rest.CopyConfig(config)
	typed.AcceptContentTypes = kruntime.ContentTypeProtobuf + "," + kruntime.ContentTypeJSON
	typed.ContentType = kruntime.ContentTypeProtobuf
	if o.Client, err = kubernetes.NewForConfig(typed); err != nil {
		return err
	}
	o.Dynamic, err = dynamic.NewForConfig(config)
	return err
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("configure the API client: %w", err)
	}
	return rest.AddUserAgent(config, "tenon-agent"), nil
}

// serve runs an agent with Events and its own HTTP endpoints until ctx ends.
func (r *runFlags) serve(ctx context.Context, kubeconfig string, settings strict.Settings) error {
	o := r.o
	broadcaster := events.NewBroadcaster(status.NewSink(o.Client, o.Node))
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("send events: %w", err)
	}
	defer broadcaster.Shutdown()
	o.Recorder = broadcaster.NewRecorder(scheme.Scheme, status.Controller)
	o.Shared = app.NewShared()
	registry := metrics.NewKubeRegistry()
	o.Shared.Metrics.Register(registry.MustRegister, registry.CustomMustRegister)
	status.RegisterInfo(registry.MustRegister, o.Version, settings.Hash())
	a, err := app.New(o)
	if err != nil {
		return err
	}
	h := app.Handler(a.Alive, a.Ready, registry)
	h.Handle("GET "+view.CgroupsPattern, app.InspectHandler(func() []*app.Agent { return []*app.Agent{a} }))
	h.Handle("GET /configz", settings)
	stop, err := serve(ctx, r.address, h, nil)
	if err != nil {
		return err
	}
	defer stop()
	stopMetrics, err := serveMetrics(ctx, r.metrics, o.Node, kubeconfig, h)
	if err != nil {
		return err
	}
	defer stopMetrics()
	klog.FromContext(ctx).Info("Agent starts", "node", o.Node, "root", o.Root.Path(), "mode", a.Mode(), "version",
		o.Version)
	collectOften()
	var released sync.WaitGroup
	defer released.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	released.Go(func() { releaseStart(ctx, a.Ready) })
	return a.Run(ctx)
}

// serve answers at an address, "" for none, until stop; plainly where secure is nil.
func serve(ctx context.Context, address string, h http.Handler, secure *tls.Config) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve health and metrics: %w", err)
	}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			klog.Background().Error(err, "HTTP endpoint ended", "address", address)
		}
	}()
	return func() { _ = s.Close(); <-done }, nil
}

// mustBeLoopback refuses addresses that others could reach: they are served without authentication.
func mustBeLoopback(address string) error {
	if address == "" {
		return nil
	}
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--health-address %q: %w", address, err)
	}
	if ip := net.ParseIP(name); name == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf(
		"--health-address %q: want a loopback address, such as 127.0.0.1:10271: it serves without authentication",
		address)
}
