package observe

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/agent/statedir"
	"github.com/tenon-project/tenon/internal/agent/status"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Options are what an Observer needs.
type Options struct {
	Node string
	Root host.Root
	// Boot is the kernel's boot id.
	Boot     string
	Switches probe.Switches
	// Settings count for good, unless AskSettings is there.
	Settings annotation.Kubelet
	// AskSettings asks the kubelet for its settings, AskResources what it gave to whom. They must end soon; nil where
	// the kubelet is not asked.
	AskSettings  Configz
	AskResources PodResources
	Agent        Agent

	Status  *status.Reporter
	Metrics *status.Metrics
	Resync  time.Duration
	Clock   clock.PassiveClock
}

// Configz answers with a kubelet's settings, as kubeletapi.Client does.
type Configz interface {
	Config(context.Context, *corev1.Node) (kubeletapi.Config, error)
}

// PodResources answers what a kubelet gave to whom, as kubeletapi.Socket does.
type PodResources interface {
	Resources(context.Context) (kubeletapi.Resources, error)
}

// Agent is what an Observer asks of the agent of its node. Its methods must not block.
type Agent interface {
	// CurrentNode returns the last known state of the Node; nil while it is not known.
	CurrentNode() *corev1.Node
	Machine() *topo.Machine
	// Pods returns the node's pods by namespace and name.
	Pods() []*convert.Pod
	// Published returns an annotation of the published topology.
	Published(key string) string
}

// State is what is known of a kubelet at one moment. It is not changed any more.
type State struct {
	// Settings are those in force, with the CPUs that the static policy keeps for itself.
	Settings annotation.Kubelet
	// Mode says whose CPU assignments hold.
	Mode annotation.Mode
	// Since is when take-over phase 2 began; zero without a take-over.
	Since metav1.Time
	// Until is when a static kubelet was found to be gone whose pinned pods still run; zero while the kubelet is
	// static, and once no such pod runs.
	Until time.Time
	// Records are what the kubelet gave to whom, by its files and its answers.
	Records probe.KubeletState
}

// IsStatic reports whether the kubelet's CPU manager policy is static.
func (s *State) IsStatic() bool { return s.Settings.CPU.Policy == annotation.KubeletPolicyStatic }

// KeepsMemory reports whether the kubelet's memory manager is at work.
func (s *State) KeepsMemory() bool { return s.Settings.Memory.Policy == annotation.KubeletMemoryStatic }

// Pins are the pods that the kubelet has pinned and still decides about.
func (s *State) Pins(pods []*convert.Pod) []annotation.PodCPUAlloc {
	pins := probe.Pins(s.Records.CPU, pods, s.Mode, s.Since.Time)
	if !s.Until.IsZero() {
		pins = probe.Left(pins, pods, s.Until)
	}
	return pins
}

// Observer observes one kubelet. Refresh has one caller at a time; the other methods are safe for concurrent use.
type Observer struct {
	o         Options
	dir       statedir.Dir
	settings  *Source[settings]
	resources *Source[resources]
	records   *Source[probe.KubeletState] // by the kubelet's files alone

	// Owned by Refresh.
	asked    string         // the kubelet process that was asked last, see runOf; "" before the first question
	settled  settingsSource // the source of the settings in force
	mismatch string         // the policy that the kubelet's record names against its settings; "" if they agree
	dispute  dispute        // between the kubelet's answers and its records
	socket   host.Socket    // the last PodResources socket that was found; zero before

	mu        sync.Mutex // guards the fields below
	state     State
	refreshed bool
}

// New returns an Observer that knows what can be known before the kubelet is asked: what it said to an earlier agent,
// else what its files show.
func New(o Options) *Observer {
	known := begin(&o)
	b := &Observer{o: o, dir: statedir.Of(o.Root), settled: known.source}
	pace := Pace{Least: kubeletapi.Interval, Resync: o.Resync}
	b.settings = NewSource(known, SourceOptions[settings]{
		Report: o.Status.Condition(event.TopologySourceDegraded, "settings"), Failed: "KubeletSettingsUnknown",
		Usable: "Usable", Text: "the kubelet reports its settings",
		Instead: func() string { return "what counts are " + b.settings.Value().source.String() },
		Pace:    pace, Clock: o.Clock,
	})
	b.resources = NewSource(resources{}, SourceOptions[resources]{
		Report: o.Status.Condition(event.TopologySourceDegraded, "resources"), Failed: "PodResourcesUnavailable",
		Usable: "Usable", Text: "the kubelet reports the resources of its pods",
		Instead: func() string { return "the last good answer and the kubelet's files count" },
		Excused: func(err error) bool { return errors.Is(err, kubeletapi.ErrBusy) },
		Pace:    pace, Clock: o.Clock,
	})
	b.records = NewSource(probe.KubeletState{}, SourceOptions[probe.KubeletState]{
		Report: o.Status.Condition(event.KubeletStateUnreadable, "records"),
		Failed: "Unusable", Usable: "Readable", Text: "what the kubelet's managers have recorded is in use",
		Clock: o.Clock,
	})
	b.state.Settings = known.config.Kubelet
	if o.AskSettings != nil && !b.state.IsStatic() {
		b.state.Settings.CPU.Reserved = ""
	}
	b.recallPins(&b.state)
	b.state.Mode, _ = probe.ModeOf(o.Switches, b.state.IsStatic(), "")
	return b
}

// State returns what is known now.
func (b *Observer) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// CgroupRoot returns the cgroup below which the kubelet keeps its pods; "" if no answer of it is known. said reports
// whether the kubelet has answered this agent.
func (b *Observer) CgroupRoot() (root string, said bool) {
	s := b.settings.Value()
	return s.config.CgroupRoot, s.source == fromKubelet
}

// SetsNoQuotas reports whether the kubelet is known to set no CPU quotas.
func (b *Observer) SetsNoQuotas() bool { return b.settings.Value().config.NoQuotas }

// RecordsPods reports whether the kubelet records something of most pods that it admits, or has left some pinned.
func (b *Observer) RecordsPods() bool {
	s, r := b.State(), b.resources.Value()
	return s.IsStatic() || s.KeepsMemory() || len(r.devices)+len(r.holders) > 0 ||
		!s.Until.IsZero()
}

// HasLost reports whether the kubelet has devices of a resource and none of them is healthy: their plugin is gone. It
// is false for a resource without devices.
func (b *Observer) HasLost(resource string) bool {
	lost := false
	for _, d := range b.resources.Value().devices {
		if d.Resource == resource && !d.Unhealthy {
			return false
		}
		lost = lost || d.Resource == resource
	}
	return lost
}

// Hint makes the next Refresh ask the kubelet as soon as its pace allows: the kubelet has recorded something, or
// restarted.
func (b *Observer) Hint(restarted bool) {
	b.resources.Hint()
	if restarted {
		b.settings.Hint()
	}
}

// Want makes the next Refresh ask for resources, as pods have changed, unless a pause after a failure is running.
func (b *Observer) Want() { b.resources.Want() }

// Wait returns how long until a source wants to be asked before the next resync; false when none wants to be.
func (b *Observer) Wait() (least time.Duration, found bool) {
	if !b.o.Switches.QueryKubelet {
		return 0, false
	}
	if b.o.AskSettings != nil && b.o.Agent.CurrentNode() != nil {
		least, found = b.settings.Wait()
	}
	if b.o.AskResources != nil {
		if wait, wanted := b.resources.Wait(); wanted && (!found || wait < least) {
			least, found = wait, true
		}
	}
	return least, found
}

// Refresh reads what is due, decides the mode and reports whether the state has changed. Errors are reported as
// conditions and logged; the last known state is kept.
func (b *Observer) Refresh(ctx context.Context) (changed bool) {
	failed := func(err error, message string) {
		if err != nil {
			klog.FromContext(ctx).Error(err, message, "node", b.o.Node)
		}
	}
	b.detectRestart()
	failed(b.readSettings(ctx), "Cannot learn the kubelet's settings, the last good ones count")
	failed(b.readResources(ctx), "Cannot learn what the kubelet gave to whom, the last good answer counts")
	before := b.State()
	next := before
	b.adoptSettings(ctx, &next)
	failed(b.reportAssumed(ctx, &next), "Cannot report what is assumed of the kubelet")
	failed(b.readRecords(ctx, &next), "Cannot use what the kubelet's managers recorded, the last good record counts")
	failed(b.decideMode(ctx, &next), "Cannot report the topology mode")
	b.mu.Lock()
	b.state, b.refreshed = next, true
	b.mu.Unlock()
	return !reflect.DeepEqual(before, next)
}

// detectRestart sends an Event when the kubelet has restarted while the agent ran.
func (b *Observer) detectRestart() {
	if !b.o.Switches.QueryKubelet {
		return
	}
	now, found := host.PodResourcesSocket(b.o.Root)
	if !found {
		return // it is on its way, or does not serve it
	}
	before := b.socket
	b.socket = now
	if before == now || before == (host.Socket{}) {
		return
	}
	b.o.Metrics.KubeletStarts.Inc()
	b.o.Status.Event(event.KubeletRestarted,
		"the kubelet has restarted: it created its PodResources socket at %s, the previous one at %s",
		status.Moment(now.Made), status.Moment(before.Made))
}
