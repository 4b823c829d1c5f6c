package elasticquota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Name is the plugin's name in profiles, statuses and metrics.
const Name = "ElasticQuota"

// wakePause is the least time between two looks at the pods that a change without an event may help.
const wakePause = 100 * time.Millisecond

// candidates is how many nodes preemption looks for victims on, as kube-scheduler's default has it.
var candidates = config.DefaultPreemptionArgs{MinCandidateNodesPercentage: 10, MinCandidateNodesAbsolute: 100}

// Plugin is the plugin of one profile.
type Plugin struct {
	quotas  *kube.Quotas
	metrics *Metrics
	handle  fwk.Handle
	args    v1alpha1.ElasticQuotaArgs
	// Preemption is upstream's, on victims that the quotas allow.
	Preemption *defaultpreemption.DefaultPreemption
	// Rooms knows what Reservations count in quotas for pods that use them. The application sets it; nil knows none.
	Rooms Rooms
	// Await returns a node that will take a pod when its terminating pods are gone, with the status of a pod that waits
	// for them; nil for none. It looks at every node or at those with terminating pods alone. The application sets it;
	// nil never waits.
	Await func(ctx context.Context, h fwk.Handle, cs fwk.CycleState, pod *corev1.Pod, nodes fwk.NodeToStatusReader,
		every bool) (node string, status *fwk.Status)
}

// Rooms knows what Reservations count in quotas for pods that use them.
type Rooms interface {
	// Covers reports whether a Reservation of the pod's quota counts all that the pod requests.
	Covers(cs fwk.CycleState, pod *corev1.Pod) bool
	// Yield takes off what the Reservation counts that the pod of a cycle uses on a node.
	Yield(cs fwk.CycleState, pod *corev1.Pod, node string)
}

var (
	_ fwk.PreEnqueuePlugin    = (*Plugin)(nil)
	_ fwk.PreFilterPlugin     = (*Plugin)(nil)
	_ fwk.PreFilterExtensions = (*Plugin)(nil)
	_ fwk.FilterPlugin        = (*Plugin)(nil)
	_ fwk.PostFilterPlugin    = (*Plugin)(nil)
	_ fwk.ReservePlugin       = (*Plugin)(nil)
	_ fwk.EnqueueExtensions   = (*Plugin)(nil)
	_ fwk.SignPlugin          = (*Plugin)(nil)
)

// Factory makes the plugin for each profile, on one account. Unknown fields and values of its arguments are refused,
// and so are arguments that differ between profiles.
func Factory(quotas *kube.Quotas, m *Metrics) frameworkruntime.PluginFactory {
	var once sync.Once
	return func(ctx context.Context, raw runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		args, err := v1alpha1.DecodeElasticQuota(raw)
		if err != nil {
			return nil, fmt.Errorf("arguments of %s: %w", Name, err)
		}
		if err := quotas.Configure(convert.QuotaConfig(&args)); err != nil {
			return nil, err
		}
		p := &Plugin{quotas: quotas, metrics: m, handle: h, args: args}
		p.Preemption, err = defaultpreemption.New(ctx, &candidates, h,
			feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Name, err)
		}
		p.Preemption.IsEligiblePod = p.isEligible
		once.Do(func() {
			freed := make(chan struct{}, 1)
			quotas.OnFreed(func() {
				select {
				case freed <- struct{}{}:
				default: // one look is due already
				}
			})
			go wake(ctx, freed, quotas, h)
		})
		return p, nil
	}
}

// wake activates refused pods when a pending pod of another quota is gone, for which the queue has no event.
func wake(ctx context.Context, freed <-chan struct{}, quotas *kube.Quotas, h fwk.Handle) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-freed:
		}
		if pods := quotas.Grown(); len(pods) > 0 {
			h.Activate(klog.FromContext(ctx), pods)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wakePause):
		}
	}
}

// Name returns Name.
func (*Plugin) Name() string { return Name }

// SignPod signs every pod with nothing: PreFilter decides before a node is proposed.
func (*Plugin) SignPod(context.Context, *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return nil, nil
}

// PreEnqueue is upstream's: it holds a pod back while its victims are evicted.
func (p *Plugin) PreEnqueue(ctx context.Context, pod *corev1.Pod) *fwk.Status {
	return p.Preemption.PreEnqueue(ctx, pod)
}

const stateKey fwk.StateKey = Name

// cycle is what a scheduling cycle knows of a pod that its quotas reject. A cycle without it is not rejected.
type cycle struct {
	excess *quota.Excess
	trial  *quota.Trial // nil where no victim can help
}

// Clone copies the state for a dry run.
func (c *cycle) Clone() fwk.StateData {
	copied := *c
	if c.trial != nil {
		copied.trial = c.trial.Clone()
	}
	return &copied
}

func read(cs fwk.CycleState) *cycle {
	if data, err := cs.Read(stateKey); err == nil {
		c, _ := data.(*cycle)
		return c
	}
	return nil
}

const admittedKey fwk.StateKey = Name + "Admitted"

type admitted struct{}

// Clone returns a.
func (a admitted) Clone() fwk.StateData { return a }

// Admitted marks an attempt about whose quotas the caller decides.
func Admitted(cs fwk.CycleState) { cs.Write(admittedKey, admitted{}) }

func isAdmitted(cs fwk.CycleState) bool {
	_, err := cs.Read(admittedKey)
	return err == nil
}

// asked is the account that an attempt asks: the cluster's, or a Copy.
type asked interface {
	Read(f func(*quota.Account))
}

func (p *Plugin) asked(cs fwk.CycleState) asked {
	if data, err := cs.Read(copyKey); err == nil {
		return data.(*Copy)
	}
	return p.quotas
}

// PreFilter asks the account. The other plugins are asked too, so that preemption has their state. An admitted pod has
// no more to do with quotas until Reserve: preemption for want of a node only gives its quota back.
func (p *Plugin) PreFilter(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	account := p.asked(cs)
	if account == asked(p.quotas) && !p.quotas.Limits(pod) || isAdmitted(cs) ||
		p.Rooms != nil && p.Rooms.Covers(cs, pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	uid := string(pod.UID)
	x := kube.Ask(account, func(a *quota.Account) *quota.Excess { return a.Admit(uid) })
	if x == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	cs.Write(stateKey, &cycle{x, kube.Ask(account, func(a *quota.Account) *quota.Trial { return a.Try(uid) })})
	return nil, (&refusal{x}).status()
}

// PreFilterExtensions returns p.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// RemovePod takes a victim off what is used, in this dry run.
func (p *Plugin) RemovePod(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, victim fwk.PodInfo, _ fwk.NodeInfo,
) *fwk.Status {
	if c := read(cs); c != nil && c.trial != nil {
		p.asked(cs).Read(func(a *quota.Account) { a.Take(c.trial, string(victim.GetPod().UID)) })
	}
	return nil
}

// AddPod adds a victim that is spared, or a nominated pod that is to come first, in this dry run.
func (p *Plugin) AddPod(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, added fwk.PodInfo, _ fwk.NodeInfo,
) *fwk.Status {
	if c := read(cs); c != nil && c.trial != nil {
		p.asked(cs).Read(func(a *quota.Account) { a.Give(c.trial, string(added.GetPod().UID)) })
	}
	return nil
}

// Filter asks the account in a dry run, as PreFilter did.
func (p *Plugin) Filter(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, _ fwk.NodeInfo) *fwk.Status {
	c := read(cs)
	if c == nil {
		return nil
	}
	x := c.excess
	if c.trial != nil {
		x = kube.Ask(p.asked(cs), func(a *quota.Account) *quota.Excess { return a.AdmitTrial(c.trial) })
	}
	if x == nil {
		return nil
	}
	return (&refusal{x}).status()
}

// PostFilter preempts. Only here a refusal by PreFilter is remembered for hints: others than the scheduling cycle ask
// PreFilter as well.
func (p *Plugin) PostFilter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, nodes fwk.NodeToStatusReader,
) (*fwk.PostFilterResult, *fwk.Status) {
	uid := string(pod.UID)
	if c := read(cs); c != nil {
		p.quotas.Refuse(uid, c.excess)
		p.metrics.refused(c.excess, "PreFilter")
		none := c.excess.Quota == quota.Default && *p.args.DisableDefaultQuotaPreemption
		if none || c.excess.LimitKind == quota.NoQuota {
			return p.withdraw(pod, "the quota allows none")
		}
	}
	var on map[string]bool
	inside := false
	if p.quotas.Read(func(a *quota.Account) { on, inside = a.VictimNodes(uid) }); inside {
		if len(on) == 0 {
			return p.withdraw(pod, "no victims in the pod's quota help")
		}
	}
	if p.Await != nil {
		node, status := p.Await(ctx, p.handle, cs, pod, nodes, p.admitsWithout(cs))
		if status != nil {
			p.quotas.Update(pod.UID, func(a *quota.Account) { a.Nominate(uid) })
			return framework.NewPostFilterResultWithNominatedNode(node), status
		}
	}
	if inside {
		nodes = only{nodes, on}
	}
	result, status := p.Preemption.PostFilter(ctx, cs, pod, nodes)
	switch {
	case result == nil || result.Mode() == fwk.ModeNoop: // its victims are on their way, or an error
	case result.NominatedNodeName == "":
		p.quotas.Update(pod.UID, func(a *quota.Account) { a.Withdraw(string(pod.UID)) })
	default: // what its victims leave is not for the pods that come in their place
		p.quotas.Update(pod.UID, func(a *quota.Account) { a.Nominate(string(pod.UID)) })
	}
	return result, status
}

// admitsWithout reports whether a pod that its quota refuses will be admitted when the pods that leave are gone.
func (p *Plugin) admitsWithout(cs fwk.CycleState) bool {
	c := read(cs)
	return c != nil && c.trial != nil &&
		kube.Ask(p.quotas, func(a *quota.Account) *quota.Excess { return a.AdmitTrial(c.trial) }) == nil
}

// withdraw ends the nomination of a pod that no victims help.
func (p *Plugin) withdraw(pod *corev1.Pod, why string) (*fwk.PostFilterResult, *fwk.Status) {
	p.quotas.Update(pod.UID, func(a *quota.Account) { a.Withdraw(string(pod.UID)) })
	return framework.NewPostFilterResultWithNominatedNode(""),
		fwk.NewStatus(fwk.Unschedulable, "preemption: not eligible: "+why)
}

// isEligible is the rule of quotas for a victim; that its priority is lower is upstream's.
func (p *Plugin) isEligible(_ fwk.NodeInfo, victim fwk.PodInfo, preemptor *corev1.Pod) bool {
	preemptorUID, uid := string(preemptor.UID), string(victim.GetPod().UID)
	return kube.Ask(p.quotas, func(a *quota.Account) bool { return a.MayPreempt(preemptorUID, uid) })
}

// only leaves out the nodes without a victim: each one costs a copy of what runs on it.
type only struct {
	fwk.NodeToStatusReader
	nodes map[string]bool
}

func (o only) NodesForStatusCode(lister fwk.NodeInfoLister, code fwk.Code) ([]fwk.NodeInfo, error) {
	all, err := o.NodeToStatusReader.NodesForStatusCode(lister, code)
	var out []fwk.NodeInfo
	for _, n := range all {
		if o.nodes[n.Node().Name] {
			out = append(out, n)
		}
	}
	return out, err
}

// Reserve checks again and takes the amounts in one step: what PreFilter saw may have changed.
func (p *Plugin) Reserve(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	if isAdmitted(cs) {
		return nil
	}
	if p.Rooms != nil {
		p.Rooms.Yield(cs, pod, node)
	}
	if x := p.quotas.Reserve(string(pod.UID)); x != nil {
		p.quotas.Refuse(string(pod.UID), x)
		p.metrics.refused(x, "Reserve")
		return (&refusal{x}).status()
	}
	if p.quotas.Misses(pod) {
		e := event.QuotaNotFound
		p.handle.EventRecorder().Eventf(pod, nil, e.Type(), e.String(), "Scheduling",
			"the quota does not exist; the pod counts in %s until it does", quota.Default)
	}
	return nil
}

// Unreserve gives the amounts back; a second call, or one without reservation, does nothing.
func (p *Plugin) Unreserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	p.quotas.Update(pod.UID, func(a *quota.Account) { a.Release(string(pod.UID)) })
}

// Exclusive returns an error for a profile that preempts in two ways.
func Exclusive(plugins *config.Plugins) error {
	ours, stock := false, false
	for _, e := range plugins.PostFilter.Enabled {
		ours = ours || e.Name == Name
		stock = stock || e.Name == defaultpreemption.Name
	}
	if ours && stock {
		return errors.New("plugins ElasticQuota and DefaultPreemption are both enabled: ElasticQuota preempts inside " +
			"quotas and, where no quota decides, as DefaultPreemption does; disable DefaultPreemption")
	}
	return nil
}
