package elasticquota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/upstream/config"
	"github.com/tenon-project/tenon/internal/sched/upstream/preempt"
)

// Name is the plugin's name in profiles, statuses and metrics.
const Name = "ElasticQuota"

// wakePause is the least time between two searches for pods that a change without an event may help.
const wakePause = 100 * time.Millisecond

// Plugin is the plugin of one profile. The fields that the application sets do not change after the first pod.
type Plugin struct {
	// quotas is the account of all profiles, args are equal in all of them.
	quotas  *kube.Quotas
	metrics *Metrics
	handle  fwk.Handle
	args    v1alpha1.ElasticQuotaArgs
	// Preemption is upstream's preemption, restricted to victims that the quotas allow.
	Preemption *preempt.Chooser
	// Rooms knows what Reservations count in quotas for pods that use them. The application sets it; nil knows none.
	Rooms Rooms
	// Terminating knows which pods go. The application sets it; without it no pod waits for them.
	Terminating Terminating
}

// Terminating knows which pods go.
type Terminating interface {
	// Await returns a node that will take a pod once its terminating pods have ended, with the status of a pod that
	// waits for them; a nil status if there is none. If every is true it tries all nodes, else those with terminating
	// pods.
	Await(ctx context.Context, h fwk.Handle, cs fwk.CycleState, pod *corev1.Pod, nodes fwk.NodeToStatusReader,
		every bool) (node string, status *fwk.Status)
}

// Rooms knows what Reservations count in quotas for pods that use them.
type Rooms interface {
	// Inside reports whether admits is true for a Reservation that the pod may use, given its reserve pod and what is
	// left of that once the pod uses the Reservation: nil for nothing.
	Inside(cs fwk.CycleState, pod *corev1.Pod, admits func(room, left *corev1.Pod) bool) bool
	// Yield takes off the quotas what a Reservation counts for the pod of a cycle, which uses the Reservation on this
	// node.
	Yield(cs fwk.CycleState, pod *corev1.Pod, node string)
}

var (
	_ fwk.PreEnqueuePlugin    = (*Plugin)(nil)
	_ fwk.PreFilterPlugin     = (*Plugin)(nil)
	_ fwk.PreFilterExtensions = (*Plugin)(nil)
	_ fwk.FilterPlugin        = (*Plugin)(nil)
	_ fwk.PostFilterPlugin    = (*Plugin)(nil)
	_ fwk.ReservePlugin       = (*Plugin)(nil)
	_ fwk.PostBindPlugin      = (*Plugin)(nil)
	_ fwk.EnqueueExtensions   = (*Plugin)(nil)
	_ fwk.SignPlugin          = (*Plugin)(nil)
)

// Factory makes the plugin for each profile, on one account. Unknown fields and values of its arguments are refused,
// and so are arguments that differ between profiles.
func Factory(quotas *kube.Quotas, m *Metrics) frameworkruntime.PluginFactory {
	var once sync.Once
	return func(ctx context.Context, raw runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		args, err := v1alpha1.Decode[v1alpha1.ElasticQuotaArgs](raw)
		if err != nil {
			return nil, fmt.Errorf("arguments of %s: %w", Name, err)
		}
		if err := quotas.Configure(convert.QuotaConfig(&args)); err != nil {
			return nil, err
		}
		p := &Plugin{quotas: quotas, metrics: m, handle: h, args: args}
		p.Preemption, err = preempt.New(ctx, h)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Name, err)
		}
		p.Preemption.Restrict(p.isEligible)
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

// wake activates refused pods after a pending pod of another quota has gone, for which the queue has no event. It runs
// until ctx ends, and looks at most once in each wakePause.
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

// stateKey is where a cycle has its state.
const stateKey fwk.StateKey = Name

// cycle is the state of a scheduling cycle whose pod the quotas refuse. It is absent if they do not.
type cycle struct {
	// excess is what the pod asks for beyond a limit.
	excess *quota.Excess
	// trial is the account of the dry run. nil if no victim can help.
	trial *quota.Trial
}

// Clone copies the state for a dry run.
func (c *cycle) Clone() fwk.StateData {
	copied := *c
	if c.trial != nil {
		copied.trial = c.trial.Clone()
	}
	return &copied
}

// read returns the state of a cycle; nil if quotas do not refuse its pod.
func read(cs fwk.CycleState) *cycle {
	if data, err := cs.Read(stateKey); err == nil {
		c, _ := data.(*cycle)
		return c
	}
	return nil
}

// admittedKey and plannedKey are where Admitted and Planned leave their marks.
const (
	admittedKey fwk.StateKey = Name + "Admitted"
	plannedKey  fwk.StateKey = Name + "Planned"
)

// mark is what a marked cycle has.
type mark struct{}

// Clone returns m.
func (m mark) Clone() fwk.StateData { return m }

// Admitted marks an attempt whose caller decides about quotas, so that the plugin does not.
func Admitted(cs fwk.CycleState) { cs.Write(admittedKey, mark{}) }

// Planned marks an attempt that is part of a plan. Its refusals are not counted: a plan tries a pod many times.
func Planned(cs fwk.CycleState) { cs.Write(plannedKey, mark{}) }

// isMarked reports whether an attempt has a mark.
func isMarked(cs fwk.CycleState, key fwk.StateKey) bool {
	_, err := cs.Read(key)
	return err == nil
}

// asked is the account that an attempt is checked against: the cluster's, or a Copy.
type asked interface {
	Read(f func(*quota.Account))
}

// asked returns the account for a cycle.
func (p *Plugin) asked(cs fwk.CycleState) asked {
	if data, err := cs.Read(copyKey); err == nil {
		return data.(*Copy)
	}
	return p.quotas
}

// PreFilter asks the account whether the quotas admit the pod. For an admitted pod the plugin skips the rest of the
// cycle up to Reserve. For a refused one it keeps a trial of the account, on which preemption can test victims.
func (p *Plugin) PreFilter(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	account := p.asked(cs)
	if account == asked(p.quotas) && !p.quotas.Limits(pod) || isMarked(cs, admittedKey) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	uid := string(pod.UID)
	x := kube.Ask(account, func(a *quota.Account) *quota.Excess { return a.Admit(uid) })
	if x == nil || p.Rooms != nil && p.Rooms.Inside(cs, pod, func(room, left *corev1.Pod) bool {
		var rest *quota.Pod
		if left != nil {
			rest = new(p.quotas.Convert(left))
		}
		return kube.Ask(account, func(a *quota.Account) *quota.Excess {
			return a.AdmitInside(uid, string(room.UID), rest)
		}) == nil
	}) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	cs.Write(stateKey, &cycle{x, kube.Ask(account, func(a *quota.Account) *quota.Trial { return a.Try(uid) })})
	return nil, (&refusal{x}).status()
}

// PreFilterExtensions returns p.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// RemovePod subtracts a victim from what is used, in this dry run.
func (p *Plugin) RemovePod(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, victim fwk.PodInfo, _ fwk.NodeInfo,
) *fwk.Status {
	if c := read(cs); c != nil && c.trial != nil {
		p.asked(cs).Read(func(a *quota.Account) { a.Take(c.trial, string(victim.GetPod().UID)) })
	}
	return nil
}

// AddPod adds a victim that is spared, or a nominated pod that is scheduled first, in this dry run.
func (p *Plugin) AddPod(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, added fwk.PodInfo, _ fwk.NodeInfo,
) *fwk.Status {
	if c := read(cs); c != nil && c.trial != nil {
		p.asked(cs).Read(func(a *quota.Account) { a.Give(c.trial, string(added.GetPod().UID)) })
	}
	return nil
}

// Filter refuses as PreFilter did, unless the victims of the dry run leave enough.
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

// PostFilter preempts, and records the refusal for hints. PreFilter does not record it, because it also runs for
// questions. A pod that its quota refuses has victims in this quota only, and only on the nodes where these are. Before
// it evicts, it waits for pods that terminate, if these leave enough.
func (p *Plugin) PostFilter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, nodes fwk.NodeToStatusReader,
) (*fwk.PostFilterResult, *fwk.Status) {
	uid := string(pod.UID)
	// A quota that allows no preemption, or does not exist, ends the pod's nomination.
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
	if p.Terminating != nil {
		node, status := p.Terminating.Await(ctx, p.handle, cs, pod, nodes, p.admitsWithout(cs))
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

// admitsWithout reports whether the quotas will admit a pod that they refuse now, once the terminating pods have ended.
func (p *Plugin) admitsWithout(cs fwk.CycleState) bool {
	c := read(cs)
	return c != nil && c.trial != nil &&
		kube.Ask(p.quotas, func(a *quota.Account) *quota.Excess { return a.AdmitTrial(c.trial) }) == nil
}

// withdraw ends the nomination of a pod that no victims help, in the account and in its status.
func (p *Plugin) withdraw(pod *corev1.Pod, why string) (*fwk.PostFilterResult, *fwk.Status) {
	p.quotas.Update(pod.UID, func(a *quota.Account) { a.Withdraw(string(pod.UID)) })
	return framework.NewPostFilterResultWithNominatedNode(""),
		fwk.NewStatus(fwk.Unschedulable, "preemption: not eligible: "+why)
}

// isEligible reports whether the quotas allow a victim. Upstream checks that its priority is lower.
func (p *Plugin) isEligible(_ fwk.NodeInfo, victim fwk.PodInfo, preemptor *corev1.Pod) bool {
	preemptorUID, uid := string(preemptor.UID), string(victim.GetPod().UID)
	return kube.Ask(p.quotas, func(a *quota.Account) bool { return a.MayPreempt(preemptorUID, uid) })
}

// only restricts preemption to nodes with a possible victim: each node costs a copy of what runs on it.
type only struct {
	fwk.NodeToStatusReader
	// nodes are those with a possible victim.
	nodes map[string]bool
}

// NodesForStatusCode returns those of the nodes that are in the set.
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

// Reserve checks the quotas again and counts the pod, in one step: they may have changed since PreFilter.
func (p *Plugin) Reserve(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	if isMarked(cs, admittedKey) {
		return nil
	}
	if p.Rooms != nil {
		p.Rooms.Yield(cs, pod, node)
	}
	if x := p.quotas.Reserve(string(pod.UID)); x != nil {
		p.quotas.Refuse(string(pod.UID), x)
		if !isMarked(cs, plannedKey) {
			p.metrics.refused(x, "Reserve")
		}
		return (&refusal{x}).status()
	}
	return nil
}

// PostBind sends an Event about a pod whose quota does not exist: one for each pod, however often it was tried.
func (p *Plugin) PostBind(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	if p.quotas.Misses(pod) {
		e := event.QuotaNotFound
		p.handle.EventRecorder().Eventf(pod, nil, e.Type(), e.String(), "Scheduling",
			"the quota does not exist; the pod counts in %s until it does", quota.Default)
	}
}

// Unreserve releases what the pod counts for. A second call, or one without Reserve, does nothing.
func (p *Plugin) Unreserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	p.quotas.Update(pod.UID, func(a *quota.Account) { a.Release(string(pod.UID)) })
}

// Exclusive returns an error if both this plugin and DefaultPreemption preempt in a profile.
func Exclusive(plugins *config.Plugins) error {
	if on := plugins.PostFilter; config.Enables(on, Name) && config.Enables(on, names.DefaultPreemption) {
		return errors.New("plugins ElasticQuota and DefaultPreemption are both enabled: ElasticQuota preempts inside " +
			"quotas and, where no quota decides, as DefaultPreemption does; disable DefaultPreemption")
	}
	return nil
}
