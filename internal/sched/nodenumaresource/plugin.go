package nodenumaresource

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Name is the plugin's name in profiles, statuses and metrics.
const Name = "NodeNUMAResource"

// Plugin holds the arguments of one profile; the accounts are shared by all profiles.
type Plugin struct {
	handle   fwk.Handle
	store    *kube.Store
	args     convert.Args
	metrics  *Metrics
	tracker  *Tracker
	requests requests
	// bindsFirst reports whether a pod's Binding is written by this plugin.
	bindsFirst func() bool
}

var (
	_ fwk.PreFilterPlugin     = (*Plugin)(nil)
	_ fwk.PreFilterExtensions = (*Plugin)(nil)
	_ fwk.FilterPlugin        = (*Plugin)(nil)
	_ fwk.PreScorePlugin      = (*Plugin)(nil)
	_ fwk.ScorePlugin         = (*Plugin)(nil)
	_ fwk.ScoreExtensions     = (*Plugin)(nil)
	_ fwk.ReservePlugin       = (*Plugin)(nil)
	_ fwk.PreBindPlugin       = (*Plugin)(nil)
	_ fwk.BindPlugin          = (*Plugin)(nil)
	_ fwk.EnqueueExtensions   = (*Plugin)(nil)
	_ fwk.SignPlugin          = (*Plugin)(nil)
)

// Factory makes the plugin for each profile on one store, whose bound pods t follows.
func Factory(store *kube.Store, m *Metrics, t *Tracker) frameworkruntime.PluginFactory {
	return func(_ context.Context, raw runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		args, err := decodeArgs(raw)
		if err != nil {
			return nil, err
		}
		if err := store.Configure(args); err != nil {
			return nil, err
		}
		t.attach(h, args)
		p := &Plugin{handle: h, store: store, args: args, metrics: m, tracker: t}
		p.bindsFirst = sync.OnceValue(func() bool { return bindsFirst(h) })
		return p, nil
	}
}

// Name returns Name.
func (*Plugin) Name() string { return Name }

// concerns reports whether some node of the cluster as it is now could treat the request differently from a pod that
// asks for nothing of ours.
func (p *Plugin) concerns(r *place.Request) bool {
	if !r.Concerns() {
		return false
	}
	if r.Role.Binds() || r.ConstrainedBurst || r.Topology != 0 || r.OnPolicyNodes != nil {
		return true
	}
	return r.Role == qos.SharedPool && p.store.AnyConstrained() || p.mayBeRefused(r)
}

// mayBeRefused reports whether the managers of some node's kubelet could have a say about the pod.
func (p *Plugin) mayBeRefused(r *place.Request) bool {
	if len(r.Containers) > 0 && p.store.AnyStaticKubelet() {
		return true
	}
	if r.Kubelet == nil {
		return false
	}
	memory, devices := p.store.AnyMemoryManager(), p.store.AnyDevices()
	for i := range r.Kubelet.Containers {
		c := &r.Kubelet.Containers[i]
		if memory && len(c.Memory) > 0 || devices && len(c.Devices) > 0 {
			return true
		}
	}
	return false
}

// SignPod signs what Filter and Score read of the pod. The signature depends on the pod alone, never on the cluster.
func (p *Plugin) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	r, refused := p.request(pod)
	if refused != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, "a pod that cannot be read is not signed")
	}
	if !r.Concerns() {
		return nil, nil
	}
	return []fwk.SignFragment{{Key: "tenon.sh/" + Name, Value: r.Signature()}}, nil
}
