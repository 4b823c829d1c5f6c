package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/agent/inventory"
	"github.com/tenon-project/tenon/internal/agent/observe"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/agent/status"
	"github.com/tenon-project/tenon/internal/agent/transport"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Options are what an Agent needs. Node, Root, Client and Dynamic are required.
type Options struct {
	// Node is the node's name.
	Node string
	Root host.Root
	// Arch is the GOARCH to assume when the Root does not show it.
	Arch string
	// Version is the agent's.
	Version string

	Client  kubernetes.Interface
	Dynamic dynamic.Interface

	// Kubelet is how the node's kubelet handles CPUs and topology. It counts for good, unless AskKubelet is there.
	Kubelet annotation.Kubelet
	// AskKubelet asks the node's kubelet for its settings. It must end soon; nil where Kubelet counts.
	AskKubelet observe.Configz
	// AskResources asks the node's kubelet what it gave to whom. It must end soon; nil where only its files are read.
	AskResources observe.PodResources
	// WatchKubelet asks again as soon as the kubelet's files change, not at the next resync alone.
	WatchKubelet bool
	// RegisterPlugins registers device plugins with the kubelet of a node with devices: package deviceplugin says why.
	RegisterPlugins bool
	// Switches are the take-over flags of seed 000.
	Switches probe.Switches
	// PublishNumatopology also keeps Volcano's Numatopology of the node.
	PublishNumatopology bool
	// AllowUnallocatedLSR lets LSR pods that no scheduler gave CPUs run on the shared pool.
	AllowUnallocatedLSR bool

	// Schedulers are those whose pods may use Tenon; nil for all. Another pod is treated as one without Tenon's labels
	// and annotations.
	Schedulers *convert.Schedulers

	// Cgroup is the tree that is kept; nil for the one that is mounted below Root.
	Cgroup apply.Cgroup
	// CgroupRoot is the group below which the kubelet makes the groups of pods, as its cgroupRoot says. "" is what the
	// kubelet said last where AskKubelet is there, and "/" otherwise; with "" Run ends with ErrCgroupRoot when it says
	// another.
	CgroupRoot string
	// Resync is the time between two looks at the whole tree and at the kubelet's state; default 30 s.
	Resync time.Duration
	// UsageInterval is the time between two measurements of what the node uses; default 1 s, with a glance
	// each half second.
	UsageInterval time.Duration

	// NRISocket is the runtime's NRI socket, HookSocket the one on which the runtime proxy asks; "" for none.
	NRISocket, HookSocket string
	// ServeNRI is nri.Run, where there is a NRISocket. Programs that only check settings do not link it.
	ServeNRI func(context.Context, transport.NRIOptions) error
	// AllowDegraded lets LSE pods start where it cannot be promised that no container starts without the agent.
	AllowDegraded bool

	// Drivers are asked for devices beside those that sysfs and drop files describe.
	Drivers []inventory.Driver
	// DeviceExempt pods without an allocation keep the devices that their image, their pod or the kubelet gives them.
	DeviceExempt []inject.Exemption

	// EvictDeviceOveruse evicts best-effort pods that use more of a GPU's memory than they were allocated.
	EvictDeviceOveruse bool

	// IsolateCPUs lets pods with exclusive CPUs ask for interrupts elsewhere, and for a limit of how deep CPUs sleep.
	IsolateCPUs bool

	// DeviceMode is whose choice of the node's devices is to hold; "" keeps what the Device object says.
	DeviceMode annotation.DeviceMode

	// guessesRoot: CgroupRoot is not the user's word.
	guessesRoot bool

	// Recorder takes Events; nil drops them. It must not block.
	Recorder events.EventRecorder
	// Shared is what agents of one process have in common; nil for an agent of its own.
	Shared *Shared
	// Clock is the real one when nil.
	Clock clock.WithTicker
}

func (o *Options) complete() error {
	switch {
	case o.Node == "":
		return errors.New("agent: the node's name is missing")
	case o.Root.Dir == "":
		return errors.New("agent: the root directory is missing")
	case o.Client == nil || o.Dynamic == nil:
		return errors.New("agent: the API clients are missing")
	case o.NRISocket != "" && o.ServeNRI == nil:
		return errors.New("agent: what serves NRI is missing")
	case !o.Switches.Valid():
		return fmt.Errorf("agent: --disable-query-kubelet-config needs --feature-gates=CPUSetAllocator=false: %w",
			ErrUnsafe)
	}
	if o.Resync <= 0 {
		o.Resync = 30 * time.Second
	}
	o.Version = cmp.Or(o.Version, "devel")
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Shared == nil {
		o.Shared = NewShared()
	}
	return nil
}

// ErrUnsafe is returned for switches under which the agent would write cpusets over a kubelet that it does not know.
var ErrUnsafe = errors.New("an agent that does not ask the kubelet must not write cpusets")

// Shared is what the agents of one process have in common. It is safe for concurrent use.
type Shared struct {
	Metrics *status.Metrics

	mu    sync.Mutex // guards the fields below
	pool  topo.Pool[*topo.Machine]
	known convert.Known
}

// NewShared returns a Shared with metrics that are not registered anywhere.
func NewShared() *Shared { return &Shared{Metrics: status.NewMetrics()} }

// facts is convert.Facts: agents of equal machines read them once.
func (s *Shared) facts(node *corev1.Node, nrt *v1alpha2.NodeResourceTopology, args convert.Args) (
	ledger.Facts, []convert.Problem,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known.Read(convert.Sources{Node: node, Topology: nrt}, args)
}

// intern makes agents of equal machines hold one topology.
func (s *Shared) intern(m *topo.Machine) *topo.Machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pool.Intern(m)
}
