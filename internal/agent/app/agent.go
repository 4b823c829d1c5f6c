package app

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/agent/report"
	"github.com/tenon-project/tenon/internal/agent/status"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Agent is the agent of one node. Its methods are safe for concurrent use.
type Agent struct {
	o      Options
	notes  []string
	boot   string
	engine *apply.Engine
	// mounted: the cgroup tree is the kernel's, or files that replace it in tests.
	mounted bool
	// service answers container runtimes.
	service    *hook.Service
	transports transports
	poke       chan struct{} // holds one token while facts may have changed
	claims     chan struct{} // holds one token while what pods claim may have changed
	// outdated holds one token once the API serves a newer version of the object than the agent writes.
	outdated chan struct{}

	drifts drifts
	api    reach
	status *status.Reporter
	// When the loop of follow and the engine last did something.
	followed, passed pulse

	mu          sync.Mutex // guards the fields below; never held across a call out of the package
	machine     *topo.Machine
	presence    string // what the kernel said of its parts when machine was read
	node        *corev1.Node
	mode        probe.Mode
	modeChanged chan struct{} // closed and replaced when mode changes
	settings    settings
	resources   resources
	recorded    probe.KubeletState // by the kubelet's files alone
	state       probe.KubeletState
	since       metav1.Time // when take-over phase 2 began
	// when the static kubelet whose pins are left was gone; zero while there is one, or none was
	until    time.Time
	mismatch string      // the policy that the kubelet's record names against its settings
	socket   host.Socket // the last PodResources socket seen
	facts    ledger.Facts
	applied  error // why the cgroup tree is not in order yet; nil once it was

	// Set once at the beginning of Run.
	held                    *held
	pods, nodes, topologies cache.SharedIndexInformer
	reporter                *report.Reporter
	volcano                 *report.NumatopologyReporter // nil unless it is asked for
}

// errStarting is what Ready says before Run has come far.
var errStarting = errors.New("the node's pods and its topology are not known yet")

var errUnpublished = errors.New("the node's topology is not published yet")

// grantsFile keeps, below the Root, which pods were given exclusive CPUs: after a restart the engine holds them for
// pods that are gone from the API while their processes still live.
const grantsFile = "var/lib/tenon-agent/grants.json"

// New reads the machine and returns its agent. It refuses options that are incomplete or unsafe, and a machine whose
// files contradict themselves.
func New(o Options) (*Agent, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	presence, err := host.Presence(o.Root) // before the rest: what changes meanwhile is seen again
	if err != nil {
		return nil, err
	}
	reading, err := host.Read(o.Root, o.Arch)
	if err != nil {
		return nil, err
	}
	known := begin(&o)
	if err := known.inForce.Runs(reading.Machine); err != nil {
		reading.Notes = append(reading.Notes, "a kubelet with these settings would not start here: "+err.Error())
	}
	boot, err := host.BootID(o.Root)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		o: o, machine: o.Shared.intern(reading.Machine), presence: presence, notes: reading.Notes, boot: boot,
		poke: make(chan struct{}, 1), claims: make(chan struct{}, 1), outdated: make(chan struct{}, 1),
		modeChanged: make(chan struct{}), applied: errStarting,
		settings: known,
	}
	a.status = status.New(status.Options{
		Client: o.Client, Node: o.Node, Current: a.currentNode, Recorder: o.Recorder,
		Metrics: o.Shared.Metrics, Clock: o.Clock,
	})
	a.recallPins()
	a.mode, _ = probe.ModeOf(o.Switches, a.isStatic(), "")
	if err := a.findCgroups(); err != nil {
		return nil, err
	}
	a.engine = apply.New(apply.Options{
		Cgroup: a.o.Cgroup, Roots: a.o.CgroupRoots, Report: a.record, Timed: a.timed,
		Resync: o.Resync, Clock: o.Clock,
		KubeletKeepsMemory:  keepsMemory(known.inForce),
		AllowUnallocatedLSR: o.AllowUnallocatedLSR,
		Checkpoint:          apply.File(o.Root.Path(grantsFile)),
		Moved:               func(pass uint64, sets []apply.Moved) { a.service.Moved(pass, sets) },
	})
	a.service = hook.New(hook.Options{
		Engine: a.engine, Writes: a.writes, Degraded: a.whyDegraded, AllowDegraded: o.AllowDegraded,
		Report: a.status.Blocked, Clock: o.Clock,
		Overridden: a.o.Shared.Metrics.Overridden.Inc,
	})
	a.api = reach{clock: a.o.Clock, lost: a.o.Shared.Metrics.Unreachable.Add, back: a.reportOutage}
	return a, nil
}

// findCgroups fills the options that describe the cgroup tree. An agent that never writes needs none.
func (a *Agent) findCgroups() error {
	if a.o.Cgroup != nil {
		return nil
	}
	layout, err := host.Cgroups(a.o.Root)
	if err != nil && a.o.Switches.CPUSetAllocator {
		return err
	}
	dialect := desired.V2
	if layout.Version == 1 {
		dialect = desired.V1
	}
	a.o.Cgroup, a.mounted = apply.Mounted(a.o.Root.Cgroup(), dialect), a.o.Switches.CPUSetAllocator
	if len(a.o.CgroupRoots) == 0 {
		a.o.CgroupRoots = kubepods(a.o.CgroupRoot)
	}
	return nil
}

// kubepods returns where a kubelet keeps its pods below its cgroupRoot: with the cgroupfs driver, and with the systemd
// driver, where a slice's name contains the names of its parents. One of them is missing.
func kubepods(root string) []string {
	root = strings.Trim(path.Clean("/"+root), "/")
	slice := strings.ReplaceAll(strings.ReplaceAll(root, "-", "_"), "/", "-")
	return []string{path.Join(root, "kubepods"), hook.PodGroup(strings.TrimPrefix(slice+"-kubepods.slice", "-"))}
}

func (a *Agent) isStatic() bool { return a.kubelet().CPUPolicy == annotation.KubeletPolicyStatic }

// keepsRecords reports whether the kubelet records something of most pods that it admits, or has left some pinned.
func (a *Agent) keepsRecords() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.settings.inForce
	return k.CPUPolicy == annotation.KubeletPolicyStatic || k.MemoryPolicy == annotation.KubeletMemoryStatic ||
		a.o.Devices != nil || len(a.resources.devices) > 0 || !a.until.IsZero()
}

// Machine returns the node's machine.
func (a *Agent) Machine() *topo.Machine {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.machine
}

// Table returns the desired state of the cgroup tree of this moment.
func (a *Agent) Table() desired.Table { return a.engine.Table() }

// Mode returns whose CPU assignments hold now.
func (a *Agent) Mode() probe.Mode {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mode
}

// writes reports whether the agent writes cpusets now.
func (a *Agent) writes() bool { return a.o.Switches.Writes(a.Mode()) }

// Ready returns nil once the agent has seen its pods, brought the cgroup tree in order and published the topology.
func (a *Agent) Ready() error {
	a.mu.Lock()
	err := a.applied
	a.mu.Unlock()
	if err != nil {
		return err
	}
	if _, published := a.reporter.Age(); !published {
		return errUnpublished
	}
	return nil
}

// Run works until ctx ends and returns nil then; the cgroup tree stays as it is. It must be called once. It answers
// ErrSecondAgent at once where another agent works on the machine.
func (a *Agent) Run(ctx context.Context) error {
	held, err := lock(a.o.Root, a.o.Clock.Now())
	if errors.Is(err, ErrSecondAgent) {
		err = errors.Join(err, a.status.Refused(ctx, err))
	}
	if err != nil {
		return err
	}
	defer held.release()
	a.held = held
	a.o.Shared.Metrics.UncleanEnds.Add(float64(held.ends))
	if err := a.work(ctx); err != nil {
		return err // the next agent reports that this one was not stopped
	}
	held.stopped()
	return nil
}

// work is Run for the one agent of the machine.
func (a *Agent) work(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	log := klog.FromContext(ctx)
	for _, note := range a.notes {
		log.Info("The machine's files leave something open", "node", a.o.Node, "note", note)
	}
	version, err := a.servedVersion(ctx)
	if err != nil {
		return nil // ctx has ended while waiting
	}
	if err := a.wire(ctx, version); err != nil {
		return err
	}
	defer a.o.Shared.Metrics.Age.Track(a.o.Node, a.reporter.Age)()
	g := newGroup(ctx, cancel)
	for _, inf := range []cache.SharedIndexInformer{a.pods, a.nodes, a.topologies} {
		g.run(func(ctx context.Context) error { inf.RunWithContext(ctx); return nil })
	}
	g.run(a.reporter.Run)
	g.run(a.follow)
	g.run(a.watchVersion)
	if a.o.WatchKubelet {
		g.run(a.watchKubelet)
	}
	if a.mounted {
		g.run(a.watchGroups)
	}
	g.run(a.serveNRI)
	g.run(a.serveHooks)
	if a.volcano != nil {
		g.run(a.publishNumatopology)
	}
	return g.wait()
}

// wire builds what needs the API's version, and connects it.
func (a *Agent) wire(ctx context.Context, version schema.GroupVersion) error {
	a.pods, a.nodes, a.topologies = a.podInformer(), a.nodeInformer(), a.topologyInformer(version)
	var objects report.Objects = a.o.Dynamic.Resource(version.WithResource("noderesourcetopologies"))
	if version != v1alpha2.GroupVersion() {
		objects = olderObjects{objects, a.discoverVersion, a.outdated}
	}
	last, err := keptReport(a.o.Root)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The generation of the node's topology goes on from the API's alone", "node",
			a.o.Node)
	}
	a.reporter = report.New(report.Options{
		Objects: objects, Version: version, Node: a.o.Node, Boot: a.boot, Source: a.Topology,
		SetCondition: a.status.Source("NodeResourceTopology"),
		Last:         last, Keep: func(r annotation.Report) error { return keepReport(a.o.Root, r) },
		Emit: a.emit, Clock: a.o.Clock,
	})
	if a.o.PublishNumatopology {
		a.volcano = report.NewNumatopology(report.NumatopologyOptions{
			Objects: a.o.Dynamic.Resource(nodeinfo.Resource()), Node: a.o.Node, Source: a.Numatopology,
			SetCondition: a.status.Source("Numatopology"), Clock: a.o.Clock,
		})
	}
	if err := a.pods.SetTransform(trim); err != nil {
		return err
	}
	if _, err := handle(a.pods, a.keepPod, a.dropPod); err != nil {
		return err
	}
	if _, err := handle(a.nodes, a.keepNode, func(*corev1.Node) { a.keepNode(nil) }); err != nil {
		return err
	}
	_, err = handle(a.topologies, a.reporter.Observe, func(*unstructured.Unstructured) { a.reporter.Observe(nil) })
	return err
}

// watchKubelet asks the kubelet again when its files change. Without a watch, as on a machine that has no inotify
// instance left, the resync is what remains.
func (a *Agent) watchKubelet(ctx context.Context) error {
	if err := host.WatchKubelet(ctx, a.o.Root, a.hintKubelet); err != nil {
		klog.FromContext(ctx).Error(err, "Changes of the kubelet are seen at the next resync", "node", a.o.Node)
	}
	return nil
}

// watchVersion ends the agent when the API has come to serve a newer version of its object.
func (a *Agent) watchVersion(ctx context.Context) error {
	select {
	case <-a.outdated:
		return ErrOutdated
	case <-ctx.Done():
		return nil
	}
}
