package app

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/event"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/besteffort"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/agent/inventory"
	"github.com/tenon-project/tenon/internal/agent/observe"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/agent/statedir"
	"github.com/tenon-project/tenon/internal/agent/status"
	"github.com/tenon-project/tenon/internal/agent/transport"
	"github.com/tenon-project/tenon/internal/agent/tune"
	"github.com/tenon-project/tenon/internal/agent/usage"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Agent is the agent of one node: its parts, and what they ask of it. Its methods are safe for concurrent use.
type Agent struct {
	o     Options
	notes []string // about the machine's files; logged once
	boot  string   // the kernel's boot id
	dir   statedir.Dir
	lock  *statedir.Lock // set once at the beginning of Run

	// New makes these parts.
	status     *status.Reporter
	machine    *observe.Source[reading]
	found      *inventory.Inventory
	kubelet    *observe.Observer
	enforcer   *apply.Enforcer
	tuner      *tune.Tuner
	usage      *usage.Collector       // nil where the machine has no cgroup tree
	suppressor *besteffort.Suppressor // nil where usage is
	evictor    *besteffort.Evictor
	transports *transport.Transports
	service    *hook.Service // answers container runtimes
	api        *apiServer

	// wire sets these once the version of NodeResourceTopology is known, and closes wired.
	pods, nodes cache.SharedIndexInformer
	publisher   *publisher
	wired       chan struct{}

	// These hold one token while there is something to do. The facts may have changed: follow refreshes them. The CPUs
	// that pods claim may have changed: follow reports contradictions. The devices may have changed: followDevices
	// reads them.
	poke, claims, synced chan struct{}

	facts facts
	last  refreshed
	// followed is when the loop of follow began its last round; nil before the first.
	followed atomic.Pointer[time.Time]
	// injects is what answers about containers' devices depend on; replaced under facts.mu, never changed.
	injects atomic.Pointer[inject.Node]
	// leaving reports that the Node is to be left, departed that its cgroups have been returned to the kubelet since.
	leaving, departed atomic.Bool

	holding   sync.Mutex // serializes holders, so that what it stores last is of the last pods
	beginning sync.Mutex // guards joined, and the first facts of the engine
	joined    bool       // the API's objects are known
}

// refreshed is what refresh has reported, to report only what changes. refresh alone uses it.
type refreshed struct {
	recorded *corev1.Node // the Node that was last kept for the next agent
	reported string       // the holders of devices that were published last
	// unclear says what was last found to contradict about the holders of devices; "" for nothing. It was found first
	// at unclearSince, and unclearCounted is the unclearSince of the last finding that the metrics count.
	unclear                      string
	unclearSince, unclearCounted time.Time
	exhausted                    []string             // names of whole GPUs of which the kubelet has none to give
	exceeded                     map[gpuUse]time.Time // since when pods use more of a GPU than was allocated
}

// facts are what is known of the node at this moment.
type facts struct {
	mu    sync.Mutex   // guards the fields below; never held across a call out of the package
	node  *corev1.Node // the last state of the Node; nil while it is not known
	draft *probe.Draft // of the last input; nil before there was one
	// deviceFault is what cannot be read of the devices; "" for nothing.
	deviceFault string
	inventory   *device.Inventory           // as the node's Device lists it; nil before one was computed
	shown       []devicev1alpha1.DeviceInfo // by the metrics; never changed
	// deviceMode is the mode that this agent has read last of the Device; "" before it has.
	deviceMode annotation.DeviceMode
	given      ledger.Facts          // those that the engine was given last
	metric     *slo.NodeMetricStatus // of the node, last; nil before the first report. Never changed
	batch      batchParts            // what was published last
	applied    error                 // why the cgroup tree is not in order yet; nil once it was
}

// reading is the machine, and what the kernel said of its parts when it was read.
type reading struct {
	machine  *topo.Machine
	quiet    *annotation.IsolatedCPUs
	presence string
}

// errStarting is what Ready says before Run has come far.
var errStarting = errors.New("the agent does not know the node's pods and topology yet")

var errUnpublished = errors.New("the node's topology is not published yet")

// grantsFile has, in the agent's folder, which pods were given exclusive CPUs: after a restart the engine holds them
// for pods that are gone from the API while their processes live.
const grantsFile = "grants.json"

// New reads the machine and returns its agent. It refuses options that are incomplete or unsafe, and a machine whose
// files contradict themselves.
func New(o Options) (*Agent, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	a := &Agent{
		o: o, dir: statedir.Of(o.Root), facts: facts{applied: errStarting}, wired: make(chan struct{}),
		poke: make(chan struct{}, 1), claims: make(chan struct{}, 1), synced: make(chan struct{}, 1),
	}
	a.status = status.New(status.Options{
		Client: o.Client, Node: o.Node, Agent: a, Recorder: o.Recorder, Metrics: o.Shared.Metrics, Clock: o.Clock,
	})
	if err := a.openMachine(); err != nil {
		return nil, err
	}
	a.openKubelet()
	if err := a.openCgroups(); err != nil {
		return nil, err
	}
	a.transports = transport.New(transport.Options{
		Node: o.Node, Agent: a, NRISocket: o.NRISocket, ServeNRI: o.ServeNRI, HookSocket: o.HookSocket,
		AllowDegraded: o.AllowDegraded, Status: a.status, Metrics: o.Shared.Metrics, Clock: o.Clock,
	})
	a.service = hook.New(hook.Options{
		Engine: a.enforcer.Engine, Agent: a, AllowDegraded: o.AllowDegraded, Reports: a.status, Clock: o.Clock,
		WriteWait: transport.Budget / 2,
	})
	a.api = newAPI(apiOptions{
		client: o.Client, dynamic: o.Dynamic, node: o.Node, schedulers: o.Schedulers, status: a.status,
		metrics: o.Shared.Metrics, clock: o.Clock,
	})
	return a, nil
}

// openMachine reads the machine's files.
func (a *Agent) openMachine() error {
	root := a.o.Root
	presence, err := host.Presence(root) // before the rest: what changes meanwhile is seen again
	if err != nil {
		return err
	}
	read, err := host.Read(root, a.o.Arch)
	if err != nil {
		return err
	}
	if a.boot, err = host.BootID(root); err != nil {
		return err
	}
	a.notes = read.Notes
	quiet, err := host.Quiet(root, read.Machine)
	a.note("what disturbs CPUs: ", err)
	first := reading{a.o.Shared.intern(read.Machine), &quiet, presence}
	a.machine = observe.NewSource(first, observe.SourceOptions[reading]{
		Report: a.status.Condition(event.TopologySourceDegraded, "machine"), Failed: "Unusable",
		Usable: "Usable", Text: "the machine's files describe one machine",
		Instead: func() string { return "the last good topology stays published" }, Clock: a.o.Clock,
	})
	a.note("", a.loadDevices())
	a.found, err = inventory.New(inventory.Options{
		Root: root, Boot: a.boot, Dir: a.dir, Drivers: append(inventory.Sysfs(root), a.o.Drivers...),
		Pace: a.o.Resync / 2, Changed: a.requestPublish, Clock: a.o.Clock,
	})
	a.note("", err)
	return nil
}

// note keeps an error for the log.
func (a *Agent) note(what string, err error) {
	if err != nil {
		a.notes = append(a.notes, what+err.Error())
	}
}

// openKubelet reads what is known of the kubelet before it is asked.
func (a *Agent) openKubelet() {
	a.kubelet = observe.New(observe.Options{
		Node: a.o.Node, Root: a.o.Root, Boot: a.boot, Switches: a.o.Switches, Settings: a.o.Kubelet,
		AskSettings: a.o.AskKubelet, AskResources: a.o.AskResources, Agent: a, Status: a.status,
		Metrics: a.o.Shared.Metrics, Resync: a.o.Resync, Clock: a.o.Clock,
	})
	if a.o.AskKubelet != nil && a.o.CgroupRoot == "" {
		a.o.CgroupRoot, _ = a.kubelet.CgroupRoot()
		a.o.guessesRoot = true
	}
	known := a.kubelet.State()
	a.note("a kubelet with these settings would not start here: ", host.CheckKubelet(&known.Settings, a.Machine()))
}

// openCgroups makes what keeps and measures the cgroup tree.
func (a *Agent) openCgroups() (err error) {
	known := a.kubelet.State()
	a.tuner = tune.NewTuner(tune.Options{
		Root: a.o.Root, Dir: a.dir, Boot: a.boot, Enabled: a.o.IsolateCPUs, Agent: a, Clock: a.o.Clock,
	})
	a.enforcer, err = apply.NewEnforcer(apply.EnforcerOptions{
		Node: a.o.Node, Root: a.o.Root, CgroupRoot: a.o.CgroupRoot, Allowed: a.o.Switches.CPUSetAllocator,
		Engine: apply.Options{
			Cgroup: a.o.Cgroup, Dir: a.dir, Resync: a.o.Resync, KubeletKeepsMemory: known.KeepsMemory(),
			AllowUnallocatedLSR: a.o.AllowUnallocatedLSR, Checkpoint: apply.File(a.dir.Path(grantsFile)),
			Reports: a.status, Clock: a.o.Clock,
		},
		Agent: a, Clock: a.o.Clock,
	})
	if err != nil {
		return err
	}
	a.usage, err = usage.New(usage.Options{
		Root: a.o.Root, Pods: a.enforcer, Agent: a, Interval: a.o.UsageInterval, Clock: a.o.Clock,
	})
	if a.note("what the node uses is not measured: ", err); err == nil {
		a.suppressor = besteffort.New(besteffort.Options{Engine: a.enforcer.Engine, Agent: a})
	}
	a.evictor = besteffort.NewEvictor(besteffort.EvictorOptions{Agent: a, Limit: a.suppressor, Evictions: a.status})
	return nil
}

// Machine returns the node's machine.
func (a *Agent) Machine() *topo.Machine { return a.machine.Value().machine }

// Attach connects a container runtime of this process: it asks the service that it gets once that is ready, as NRI and
// the runtime proxy do. It may be called from the time of New on.
func (a *Agent) Attach() *hook.Service {
	a.transports.Attach()
	return a.service
}

// Mode returns whose CPU assignments hold now.
func (a *Agent) Mode() annotation.Mode { return a.kubelet.State().Mode }

// Writes reports whether the agent decides about cpusets now.
func (a *Agent) Writes() bool { return !a.leaving.Load() && a.o.Switches.Writes(a.Mode()) }

// Leaves reports whether the agent leaves the Node.
func (a *Agent) Leaves() bool { return a.leaving.Load() }

// IsUnasked reports whether containers start without the agent.
func (a *Agent) IsUnasked() bool { return a.transports.IsUnasked() }

// WhyDegraded says why LSE pods are to be refused; "" when they are not.
func (a *Agent) WhyDegraded() string { return a.transports.WhyDegraded() }

// Published returns an annotation of the published topology.
func (a *Agent) Published(key string) string { return a.publisher.Published(key) }

// Glanced lets best-effort pods give way at once to what others use.
func (a *Agent) Glanced(at time.Time, milliCPU int64) { a.suppressor.Glance(at, milliCPU) }

// Synced makes followDevices compare what a runtime has reported.
func (a *Agent) Synced() { a.wakeDevices() }

// Ready returns nil once the agent has seen its pods, brought the cgroup tree in order and published the topology, if
// it is not to leave its node.
func (a *Agent) Ready() error {
	a.facts.mu.Lock()
	err := a.facts.applied
	a.facts.mu.Unlock()
	if err != nil {
		return err
	}
	if _, published := a.publisher.Age(); !published && !a.leaving.Load() {
		return errUnpublished
	}
	return nil
}

// Run works until ctx ends and returns nil then; the cgroup tree stays as it is. It must be called once. It answers
// statedir.ErrSecondAgent at once where another agent works on the machine.
func (a *Agent) Run(ctx context.Context) error {
	lock, err := a.dir.Lock(a.o.Clock.Now())
	if errors.Is(err, statedir.ErrSecondAgent) {
		err = errors.Join(err, a.status.Refused(ctx, err))
	}
	if err != nil {
		return err
	}
	defer lock.Release()
	a.lock = lock
	a.o.Shared.Metrics.UncleanEnds.Add(float64(lock.Ends))
	if err := a.work(ctx); err != nil {
		return err // the next agent reports that this one was not stopped
	}
	lock.Stop()
	return nil
}

// work is Run for the one agent of the machine.
func (a *Agent) work(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer a.showDevices(nil)
	log := klog.FromContext(ctx)
	for _, note := range a.notes {
		log.Info("The machine's files leave something open", "node", a.o.Node, "note", note)
	}
	g := &group{ctx: ctx, cancel: cancel}
	g.run(func(ctx context.Context) error { return a.transports.ServeNRI(ctx, a.service) })
	g.run(func(ctx context.Context) error { return a.transports.ServeHooks(ctx, a.service) })
	g.run(a.enforcer.Watch)
	g.run(a.enforcer.Run)
	g.run(a.tuner.Run)
	g.run(a.serveWithoutAPI)
	g.run(func(ctx context.Context) error { return a.followDevices(ctx, g) })
	g.run(a.found.Run)
	if a.usage != nil {
		g.run(a.usage.Run)
		g.run(a.reportSuppression)
	}
	g.run(a.evictor.Run)
	g.run(func(ctx context.Context) error { return a.join(ctx, g) })
	return g.wait()
}

// join waits for the API and runs in a group what needs it.
func (a *Agent) join(ctx context.Context, g *group) error {
	version, err := a.api.topologyVersion(ctx)
	if err != nil {
		return nil //nolint:nilerr // ctx has ended while waiting
	}
	if err := a.wire(ctx, version); err != nil {
		return err
	}
	close(a.wired)
	for _, inf := range []cache.SharedIndexInformer{a.pods, a.nodes} {
		g.run(func(ctx context.Context) error { inf.RunWithContext(ctx); return nil })
	}
	for _, part := range a.publisher.Parts() {
		g.run(part)
	}
	g.run(a.follow)
	g.run(a.followSLO)
	if a.o.WatchKubelet {
		g.run(a.watchKubelet)
	}
	defer a.o.Shared.Metrics.Age.Track(a.o.Node, func() (time.Duration, bool) {
		age, published := a.publisher.Age()
		return age, published && !a.leaving.Load()
	})()
	<-ctx.Done()
	return nil
}

// wire builds what needs the API's version, and connects it.
func (a *Agent) wire(ctx context.Context, version schema.GroupVersion) (err error) {
	if a.pods, err = a.api.pods(); err != nil {
		return err
	}
	a.nodes = a.api.node()
	a.publisher, err = newPublisher(ctx, publisherOptions{
		Node: a.o.Node, Boot: a.boot, Version: version, Numatopology: a.o.PublishNumatopology,
		Source: a, API: a.api, Dynamic: a.o.Dynamic, Dir: a.dir, Status: a.status, Clock: a.o.Clock,
	})
	return errors.Join(err, handle(a.pods, a.updatePod, a.removePod),
		handle(a.nodes, a.updateNode, func(*corev1.Node) { a.updateNode(nil) }))
}

// isSynced reports whether the Node and all pods are known.
func (a *Agent) isSynced() bool { return a.pods.HasSynced() && a.nodes.HasSynced() }

// watchKubelet asks the kubelet again when its files change. Without a watch, as on a machine that has no inotify
// instance left, the resync is what remains.
func (a *Agent) watchKubelet(ctx context.Context) error {
	changed := func(restarted bool) {
		a.kubelet.Hint(restarted)
		a.RequestRefresh()
	}
	if err := host.WatchKubelet(ctx, a.o.Root, changed); err != nil {
		klog.FromContext(ctx).Error(err, "Changes of the kubelet are seen at the next resync", "node", a.o.Node)
	}
	return nil
}
