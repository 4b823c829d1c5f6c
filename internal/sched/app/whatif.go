package app

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/sched/core"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/diag/whatif"
	"github.com/tenon-project/tenon/internal/sched/elasticquota"
	"github.com/tenon-project/tenon/internal/sched/limits"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/sched/reserving"
	"github.com/tenon-project/tenon/internal/sched/upstream/snapshot"
	"github.com/tenon-project/tenon/internal/view"
)

// accountant is a plugin that reserves CPUs and devices, on trial if its cycle is.
type accountant interface {
	fwk.ReservePlugin
	Account(node string) *ledger.View
}

// Asked is a scheduling core with the accounts that its plugins share.
type Asked struct {
	Core   *core.Core
	Store  *kube.Store
	Quotas *kube.Quotas
	Gangs  *kube.Gangs
	Client kubernetes.Interface // reads the templates of ResourceClaims
}

// Questions is what questions about other clusters read, until ctx ends.
func (a Asked) Questions(ctx context.Context, o whatif.Objects, now whatif.Clock) whatif.Cluster {
	guard := coscheduling.NewEvictions(coscheduling.Cluster{Gangs: a.Gangs})
	return whatif.Cluster{
		Nodes: snapshot.NewCopy(a.Core.Nodes), Store: a.Store, Held: a.Quotas, Gangs: a.Gangs,
		Nominated: a.Core.SchedulingQueue, Clock: now,
		Objects: o, Accounts: liveAccounts{a}, Cycles: cycles{ctx, a.Core, guard},
	}
}

// questions is what questions about other clusters read of this scheduler.
func (s *Scheduler) questions(ctx context.Context) whatif.Cluster {
	return Asked{s.core, s.store, s.quotas, s.gangs, s.config.Client}.Questions(ctx, objects{s}, clock.RealClock{})
}

// objects are whatif.Objects: the objects of the API that the scheduler knows, or asks for.
type objects struct{ s *Scheduler }

func (o objects) Pod(namespace, name string) *corev1.Pod { return o.s.pod(namespace, name) }

// Limits reads the LimitRanges and ResourceQuotas of a namespace from the API server's cache. No informer keeps them:
// a ResourceQuota changes with each pod of its namespace, and questions are rare.
func (o objects) Limits(ctx context.Context, namespace string) (whatif.Limits, error) {
	cached := metav1.ListOptions{ResourceVersion: "0"}
	ranges, err := o.s.config.Client.CoreV1().LimitRanges(namespace).List(ctx, cached)
	if err != nil {
		return nil, fmt.Errorf("list the LimitRanges of namespace %s: %w", namespace, err)
	}
	quotas, err := o.s.config.Client.CoreV1().ResourceQuotas(namespace).List(ctx, cached)
	if err != nil {
		return nil, fmt.Errorf("list the ResourceQuotas of namespace %s: %w", namespace, err)
	}
	all := make([]*corev1.LimitRange, len(ranges.Items))
	for i := range ranges.Items {
		all[i] = &ranges.Items[i]
	}
	return limits.New(all, quotas.Items, clock.RealClock{}), nil
}

// Waiting returns the pods without a node, those that have not passed the queue yet among them.
func (o objects) Waiting() (waiting []*corev1.Pod) {
	all, _ := o.s.pods().List(labels.Everything()) // a cache has no errors
	for _, pod := range all {
		if pod.Spec.NodeName == "" {
			waiting = append(waiting, pod)
		}
	}
	return waiting
}

// Jobs reads all Jobs from the API server's cache. No informer keeps them: forecasts are rare.
func (o objects) Jobs(ctx context.Context) (map[string]*batchv1.Job, error) {
	cached := metav1.ListOptions{ResourceVersion: "0"}
	list, err := o.s.config.Client.BatchV1().Jobs(metav1.NamespaceAll).List(ctx, cached)
	if err != nil {
		return nil, fmt.Errorf("list Jobs: %w", err)
	}
	jobs := map[string]*batchv1.Job{}
	for i := range list.Items {
		jobs[list.Items[i].Namespace+"/"+list.Items[i].Name] = &list.Items[i]
	}
	return jobs, nil
}

// Succeeded reads the pods that have succeeded from the API server's cache. The informer of pods leaves them out.
func (o objects) Succeeded(ctx context.Context) ([]corev1.Pod, error) {
	list, err := o.s.config.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		ResourceVersion: "0",
		FieldSelector:   fields.OneTermEqualSelector("status.phase", string(corev1.PodSucceeded)).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("list pods that have succeeded: %w", err)
	}
	return list.Items, nil
}

// liveAccounts are whatif.Accounts: the accounts of the scheduler.
type liveAccounts struct{ Asked }

func (l liveAccounts) Trial() whatif.Trial {
	trial := placement.NewTrial(l.Store)
	l.Core.Imagined.Reset(trial.Account)
	return trial
}

func (l liveAccounts) OpenClaims(pod *corev1.Pod) (claims []*resourcev1.ResourceClaim, classes []string) {
	return l.Core.Imagined.Open(pod)
}

func (l liveAccounts) ChangeClaim(claim *resourcev1.ResourceClaim) { l.Core.Imagined.Change(claim) }

// Arrive reads templates from the API server's cache. No informer keeps them: scheduling does not read them.
func (l liveAccounts) Arrive(ctx context.Context, pod, like *corev1.Pod) ([]*resourcev1.ResourceClaim, error) {
	templates := l.Client.ResourceV1().ResourceClaimTemplates(pod.Namespace)
	return l.Core.Imagined.Arrive(pod, like, func(name string) (*resourcev1.ResourceClaimTemplate, error) {
		return templates.Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
	})
}

func (l liveAccounts) Leave(t whatif.Trial, pod *corev1.Pod) { l.Core.Imagined.Leave(pod, t.Take) }

func (l liveAccounts) Quotas() whatif.Quotas { return elasticquota.NewCopy(l.Asked.Quotas) }

// cycles are whatif.Cycles: those of the scheduler's profiles.
type cycles struct {
	ctx   context.Context // ends with the scheduler
	core  *core.Core
	guard *coscheduling.Evictions // keeps gangs whole
}

func (c cycles) Profiles(nodes fwk.SharedLister) (map[string]framework.Framework, error) {
	return c.core.Questions(c.ctx, nodes, c.guard)
}

func (c cycles) Admit(cs fwk.CycleState) { elasticquota.Admitted(cs) }

func (c cycles) Exclude(cs fwk.CycleState, reservations map[string]bool) {
	reserving.Exclude(cs, reservations)
}

func (c cycles) Reserve(ctx context.Context, f framework.Framework, cs fwk.CycleState, pod *corev1.Pod, node string,
) (record func() map[string]string, within string, status *fwk.Status) {
	within, _ = reserving.Chosen(cs, node)
	// Both names of a placement are asked; the second one finds the reservation made. Claims come last, as the accounts
	// may refuse what the filters have let pass.
	var accounts, claims []fwk.ReservePlugin
	for _, e := range f.EnqueueExtensions() {
		if p, ok := e.(accountant); ok {
			accounts = append(accounts, p)
		} else if p, ok := e.(fwk.ReservePlugin); ok && p.Name() == names.DynamicResources {
			claims = append(claims, p)
		}
	}
	for _, p := range slices.Concat(accounts, claims) {
		if status := p.Reserve(ctx, cs, pod, node); !status.IsSuccess() {
			return nil, "", status
		}
	}
	if trial := placement.OnTrial(cs); len(claims) > 0 && trial != nil {
		if contested := c.core.Imagined.Charge(trial.Put); contested != "" {
			return nil, "", fwk.NewStatus(fwk.Unschedulable, contested)
		}
		c.core.Imagined.Use(pod)
	}
	return placement.Read(cs).Record, within, nil
}

func (c cycles) Describe(cs fwk.CycleState, t whatif.Trial, pod *corev1.Pod) *view.Placement {
	v := t.Account(pod.Spec.NodeName)
	out := describe.Placement(pod, v)
	if cycle := placement.Read(cs); cycle != nil && len(out.Devices) > 0 {
		held, _ := v.Entry(string(pod.UID))
		without := v.Without(string(pod.UID))
		out.Choice = view.DeviceChoiceOf(without, cycle.Request.On(without.Facts()), held.Devices)
	}
	return out
}

func (c cycles) Preemption(f framework.Framework) whatif.Chooser {
	p := core.PreemptionOf(f)
	if p == nil {
		return nil
	}
	c.guard.Forget()
	return p
}
