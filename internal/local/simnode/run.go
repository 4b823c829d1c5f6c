package simnode

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/local/kernel"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/view"
)

// Node is one simulated node.
type Node struct {
	Name    string
	Machine machine.Description
	// Dir is the root of the node's machine; it is generated when it does not exist.
	Dir string
	// Client is the kubelet's.
	Client kubernetes.Interface
	// Agent returns the clients of the node's agent. It is called again, with pauses, while it fails: the agent's
	// credential may appear only after the Node.
	Agent func() (kubernetes.Interface, dynamic.Interface, error)
}

// Options are what Run needs.
type Options struct {
	Nodes []Node
	// Address is where the kubelets' HTTPS endpoint listens, one for all nodes; "" serves none.
	Address string
	// CertFile and KeyFile are its serving certificate.
	CertFile, KeyFile string
	// Version is the version that the agents report.
	Version string
	// Schedulers are the names of the schedulers whose pods count; none: SchedulerNames.
	Schedulers []string
	// Reconcile is the time between two reconciliations of a kubelet's CPU manager; default 10 s, as the kubelet's.
	Reconcile time.Duration
}

const (
	// kubeletVersion is the version that nodes report unless their settings name another one: that of the managers.
	kubeletVersion = "v1.37.2"
	// resync is the time between two comparisons of an agent with its whole tree. It is short, so that a user sees how
	// a manual change is repaired.
	resync = 10 * time.Second
)

// Run works until ctx ends and then returns nil; it does not remove trees and objects. It returns an error only where a
// retry cannot help, such as a machine that cannot be written.
func Run(ctx context.Context, o Options) error {
	if len(o.Nodes) == 0 {
		return errors.New("simulated nodes: none was given")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	shared := app.NewShared()
	registry := metrics.NewKubeRegistry()
	shared.Metrics.Register(registry.MustRegister, registry.CustomMustRegister)
	working := make(agents, len(o.Nodes))
	port, stop, err := serve(ctx, o, registry, working)
	if err != nil {
		return err
	}
	defer stop()
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: o.Nodes[0].Client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("simulated nodes: send events: %w", err)
	}
	defer broadcaster.Shutdown()

	var wg sync.WaitGroup
	starts := semaphore.NewWeighted(int64(startsPerCPU * runtime.GOMAXPROCS(0)))
	for i := range o.Nodes {
		wg.Go(func() {
			if starts.Acquire(ctx, 1) != nil {
				return
			}
			started := sync.OnceFunc(func() { starts.Release(1) })
			defer time.AfterFunc(startLimit, started).Stop()
			n, err := open(o, i, port)
			if err != nil {
				cancel(err)
				return
			}
			n.shared, n.working, n.started = shared, &working[i], started
			n.events = broadcaster.NewRecorder(scheme.Scheme, "kubelet")
			n.agentEvents = broadcaster.NewRecorder(scheme.Scheme, "tenon-agent")
			n.run(ctx)
		})
	}
	<-ctx.Done()
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// A node counts as starting until its agent has published the machine, at most for startLimit. startsPerCPU bounds the
// nodes that start at the same time, so that nodes that have started get the CPU time to renew their leases.
const (
	startsPerCPU = 16
	startLimit   = time.Minute
)

// node is a simulated node that runs.
type node struct {
	Node
	started     func() // called once the agent has published the machine
	o           Options
	index, port int
	tree        *kernel.Tree
	root        host.Root
	shared      *app.Shared
	working     *atomic.Pointer[app.Agent] // the node's agent, for the endpoint of all nodes; nil while no agent runs
	events      events.EventRecorder
	agentEvents events.EventRecorder
	kubelet     *kubelet
	use         *use
}

func open(o Options, index, port int) (*node, error) {
	n := &node{Node: o.Nodes[index], o: o, index: index, port: port, root: host.Root{Dir: o.Nodes[index].Dir}}
	m, err := openMachine(n.Machine, n.root)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", n.Name, err)
	}
	if n.tree, err = kernel.Open(kernel.Options{Dir: n.root.Cgroup(), Dialect: desired.V2, Machine: m}); err == nil {
		n.kubelet, err = newKubelet(n, m)
	}
	if err == nil {
		n.use, err = newUse(n, m)
	}
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", n.Name, err)
	}
	return n, nil
}

// openMachine reads the machine of an earlier start, or generates it. It generates under a temporary name, so that a
// process that is killed leaves a complete machine or none.
func openMachine(d machine.Description, root host.Root) (*topo.Machine, error) {
	if _, err := os.Stat(root.Path("sys")); !errors.Is(err, fs.ErrNotExist) {
		reading, err := host.Read(root, d.Arch())
		return reading.Machine, err
	}
	half := root.Dir + ".new"
	err := errors.Join(os.RemoveAll(half), os.RemoveAll(root.Dir))
	if err == nil {
		err = d.Write(half)
	}
	if err == nil {
		err = os.Rename(half, root.Dir)
	}
	if err != nil {
		return nil, err
	}
	return d.Topology()
}

func (n *node) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if !n.keepTrying(ctx, "register the node", n.register) || !n.keepTrying(ctx, "label the node", n.labelFollow) {
		return
	}
	wg.Go(func() { n.heartbeat(ctx) })
	wg.Go(func() { n.lease().Run(ctx) })
	wg.Go(func() { n.kubelet.run(ctx) })
	wg.Go(func() { n.use.run(ctx) })
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := n.runAgent(ctx); ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The agent ended, it is started again", "node", n.Name)
		}
	}, time.Second)
}

// SchedulerNames are the names that the scheduler of a local cluster serves. The first name is what a pod says that
// names none, the last one what manifests for Koordinator say.
func SchedulerNames() []string {
	return []string{corev1.DefaultSchedulerName, "tenon-scheduler", "koord-scheduler"}
}

func (n *node) schedulers() []string {
	if len(n.o.Schedulers) > 0 {
		return n.o.Schedulers
	}
	return SchedulerNames()
}

func (n *node) runAgent(ctx context.Context) error {
	var a *app.Agent
	ok := n.keepTrying(ctx, "start the agent", func(context.Context) error {
		client, objects, err := n.Agent()
		if err != nil {
			return err
		}
		a, err = app.New(app.Options{
			Node: n.Name, Root: n.root, Arch: n.Machine.Arch(), Version: n.o.Version, Client: client, Dynamic: objects,
			Kubelet: n.Machine.Kubelet, Switches: switches(),
			Cgroup: n.tree, Resync: resync, UsageInterval: useInterval, Recorder: n.agentEvents, Shared: n.shared,
			Schedulers: convert.NewSchedulers(n.schedulers()...),
		})
		return err
	})
	if !ok {
		return ctx.Err()
	}
	n.kubelet.connect(a.Attach())
	defer n.kubelet.connect(nil)
	n.working.Store(a)
	defer n.working.Store(nil)
	go func() {
		_ = wait.PollUntilContextCancel(ctx, readyPause, false, // its error is the end of ctx
			func(context.Context) (bool, error) { return a.Ready() == nil, nil })
		n.started()
	}()
	return a.Run(ctx)
}

// Pauses between attempts, and when those that fail are logged.
const (
	firstPause  = 100 * time.Millisecond
	lastPause   = 5 * time.Second
	readyPause  = 100 * time.Millisecond // between looks whether an agent is ready
	quietWait   = 30 * time.Second
	logInterval = time.Minute
)

// keepTrying repeats f until it succeeds; false when ctx ended before. What is still missing after quietWait is logged
// once and then once a minute: another part of the cluster may just be later, and a thousand nodes wait for it.
func (n *node) keepTrying(ctx context.Context, what string, f func(context.Context) error) bool {
	due := time.Now().Add(quietWait)
	pauses := wait.Backoff{Duration: firstPause, Factor: 2, Steps: 10, Cap: lastPause}
	err := pauses.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := f(ctx)
		if now := time.Now(); err != nil && !now.Before(due) && ctx.Err() == nil {
			due = now.Add(logInterval)
			klog.FromContext(ctx).Error(err, "Start of a node is delayed, will retry", "node", n.Name, "step", what)
		}
		return err == nil, nil
	})
	return err == nil
}

// Answers to kubectl logs and exec.
const (
	noLogs = "simulated container: it runs no program, so it has no logs\n"
	noExec = "simulated container: it runs no program, so nothing can be executed in it or attached to it"
)

// serve starts the kubelets' endpoint and returns its port; 0 when there is none. It listens before it returns.
func serve(ctx context.Context, o Options, registry metrics.KubeRegistry, working agents) (port int, stop func(),
	err error,
) {
	if o.Address == "" {
		return 0, func() {}, nil
	}
	pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		return 0, nil, fmt.Errorf("kubelet endpoint: %w", err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Address)
	if err != nil {
		return 0, nil, fmt.Errorf("kubelet endpoint: %w", err)
	}
	server := &http.Server{
		Handler: handler(registry, working), ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(l, "", "") // always an error; ErrServerClosed at the end
	}()
	stop = func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
			_ = server.Close()
		}
		<-done
	}
	return l.Addr().(*net.TCPAddr).Port, stop, nil
}

// agents are the agents of the nodes by the nodes' index; nil while a node's agent does not run.
type agents []atomic.Pointer[app.Agent]

func (a agents) all() (working []*app.Agent) {
	for i := range a {
		if agent := a[i].Load(); agent != nil {
			working = append(working, agent)
		}
	}
	return working
}

// handler answers kubectl's requests to a kubelet with an explanation, and serves what the agents of all nodes serve.
// None of this needs authentication.
func handler(registry metrics.KubeRegistry, working agents) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	mux.Handle("GET /metrics", metrics.HandlerFor(registry, metrics.HandlerOpts{}))
	mux.Handle("GET "+view.CgroupsPattern, app.InspectHandler(working.all))
	mux.HandleFunc("/containerLogs/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, noLogs) })
	for _, path := range []string{"/exec/", "/attach/", "/portForward/", "/run/"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, noExec, http.StatusNotImplemented)
		})
	}
	return mux
}
