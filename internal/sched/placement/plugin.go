package placement

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/lru"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/follow"
)

// DeviceShare is the name under which a profile decides about devices. Requests for them are read in profiles with it.
const DeviceShare = "DeviceShare"

// Decisions creates the decision of each profile. All profiles decide on the accounts of one store.
type Decisions struct {
	// store has the accounts of all nodes.
	store *kube.Store
	// metrics are shared by all profiles.
	metrics *Metrics
	// tracker follows the pods that are bound.
	tracker *follow.Tracker
	// Others are what the accounts of other features have of a pod; nil where there are none.
	Others Others

	mu sync.Mutex // guards byProfile
	// byProfile has the decision of each profile, by the handle that its plugins share.
	byProfile map[fwk.Handle]*decision
}

// Others are what the accounts of other features have of a pod.
type Others interface {
	// Record returns what else is recorded with the binding of a pod.
	Record(*corev1.Pod) map[string]string
	// Chosen returns the Reservation whose room the pod of a cycle is to use on a node, "" for none, and whether what
	// it reserves comes from it alone.
	Chosen(cs fwk.CycleState, node string) (uid string, restricted bool)
}

// NewDecisions returns decisions on store, whose bound pods t follows.
func NewDecisions(store *kube.Store, m *Metrics, t *follow.Tracker) *Decisions {
	return &Decisions{store: store, metrics: m, tracker: t, byProfile: map[fwk.Handle]*decision{}}
}

// Configure sets the arguments of all profiles. It returns an error if another profile has set different ones.
func (d *Decisions) Configure(args convert.Args) error { return d.store.Configure(args) }

// Join returns the decision of the profile whose handle is h, under a further name. The profile's first call creates
// the decision.
func (d *Decisions) Join(h fwk.Handle, name string) *Plugin {
	d.mu.Lock()
	defer d.mu.Unlock()
	profile := d.byProfile[h]
	if profile == nil {
		profile = &decision{
			handle: h, store: d.store, metrics: d.metrics, tracker: d.tracker, others: d.Others,
			names: map[string]bool{}, requests: lru.New(requestsKept),
		}
		// Both functions are called for the first pod, when all names of the profile have joined.
		profile.args = sync.OnceValue(func() convert.Args {
			args := d.store.Args()
			args.Devices = profile.names[DeviceShare]
			return args
		})
		profile.bindsFirst = sync.OnceValue(profile.isFirstBinder)
		d.byProfile[h] = profile
		d.tracker.Attach(h)
	}
	profile.names[name] = true
	return &Plugin{profile, name}
}

// Share adds to the decision under all names of the profile. It is called before the profile's first pod.
func (p *Plugin) Share(s Sharing) { p.sharing = s }

// Store returns the accounts that are decided on.
func (p *Plugin) Store() *kube.Store { return p.store }

// ByDevices reports whether nodes are compared by their devices for the pod of a cycle: the pod asks for devices, and
// some node has an inventory of them.
func (p *Plugin) ByDevices(c *Cycle) bool {
	return c != nil && c.Request.Devices != nil && p.store.AnyInventory()
}

// decision is what all names of one profile have in common: a pod is parsed, filtered and reserved once per profile.
type decision struct {
	// handle is that of the profile, for its client, extenders and nominated pods.
	handle fwk.Handle
	// store, metrics and tracker are those of Decisions.
	store   *kube.Store
	metrics *Metrics
	tracker *follow.Tracker
	// others are those of Decisions.
	others Others
	// args returns the arguments for parsing pods, fixed when the profile's first pod comes.
	args func() convert.Args
	// requests remembers pods that concern us, by UID: all steps and hints of a pod share one parse.
	requests *lru.Cache
	// names are the names under which plugins joined. It is complete when all plugins of the profile are made.
	names map[string]bool
	// bindsFirst reports whether the profile asks this decision before all other binders.
	bindsFirst func() bool
	// sharing is what DeviceShare adds; empty in a profile without it.
	sharing Sharing
}

// Sharing is what DeviceShare adds to the decision of a profile.
type Sharing struct {
	// Rank adds to the options for devices of a node what ranks them, where a pod asks for r on an account of the node;
	// nil adds nothing.
	Rank func(node string, v *ledger.View, r *place.Request, o *device.Options)
	// WholeOnly are models of GPUs that are given to pods whole only.
	WholeOnly []string
	// Templates returns the templates of devices, another pointer when they have changed; nil has none.
	Templates func() *[]device.Template
	// Apart lets devices be on other NUMA nodes than the CPUs of their pod.
	Apart bool
	// Adapt adds to pods the annotations that device plugins of other projects read.
	Adapt bool
}

// Plugin is a decision under one name.
type Plugin struct {
	*decision
	// name is the one under which the framework knows this plugin.
	name string
}

var (
	_ fwk.PreFilterPlugin     = (*Plugin)(nil)
	_ fwk.PreFilterExtensions = (*Plugin)(nil)
	_ fwk.FilterPlugin        = (*Plugin)(nil)
	_ fwk.ReservePlugin       = (*Plugin)(nil)
	_ fwk.PreBindPlugin       = (*Plugin)(nil)
	_ fwk.BindPlugin          = (*Plugin)(nil)
	_ fwk.EnqueueExtensions   = (*Plugin)(nil)
	_ fwk.SignPlugin          = (*Plugin)(nil)
)

// Name returns the name.
func (p *Plugin) Name() string { return p.name }

// Suspects reports whether the request depends on what the node's kubelet chooses, and the model of that kubelet has
// been wrong repeatedly.
func (p *Plugin) Suspects(v *ledger.View, r *place.Request, node string) bool {
	return v.Facts().Model.Concerns(r.Kubelet) && p.tracker.Suspects(node)
}

// Account returns the account of a node, nil when no object names the node.
func (p *Plugin) Account(node string) *ledger.View { return p.store.Known(node) }

// Mispredictions returns the last pods that were predicted wrong, the latest first; the caller may change the list.
func (p *Plugin) Mispredictions() []follow.Misprediction { return p.tracker.Mispredictions() }

// concerns reports whether some node, as the cluster is now, could treat the request unlike that of an ordinary pod.
func (d *decision) concerns(r *place.Request) bool {
	if !r.Concerns() {
		return false
	}
	if r.Devices != nil || r.Role.Binds() || r.ConstrainedBurst || r.Topology != 0 || r.OnPolicyNodes != nil {
		return true
	}
	return r.Role == qos.SharedPool && d.store.AnyConstrained() || d.mayBeRefused(r)
}

// mayBeRefused reports whether the CPU, memory or device manager of some node's kubelet could refuse the pod.
func (d *decision) mayBeRefused(r *place.Request) bool {
	if r.Kubelet.CPUs() > 0 && d.store.AnyStaticKubelet() {
		return true
	}
	if r.Kubelet == nil {
		return false
	}
	memory, devices := d.store.AnyMemoryManager(), d.store.AnyDevices()
	for i := range r.Kubelet.Containers {
		c := &r.Kubelet.Containers[i]
		if memory && len(c.Memory) > 0 || devices && len(c.Devices) > 0 {
			return true
		}
	}
	return false
}

// SignPod returns the signature of the pod's request. It is equal under all names of the plugin and does not depend on
// the state of the cluster.
func (p *Plugin) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	r, refused := p.request(pod)
	if refused != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, "a pod that cannot be read is not signed")
	}
	if !r.Concerns() {
		return nil, nil
	}
	return []fwk.SignFragment{{Key: "tenon.sh/placement", Value: r.Signature()}}, nil
}
