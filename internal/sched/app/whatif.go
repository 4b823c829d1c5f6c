package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/sched/core"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/diag/whatif"
	"github.com/tenon-project/tenon/internal/sched/elasticquota"
	"github.com/tenon-project/tenon/internal/sched/limits"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/sched/reserving"
	"github.com/tenon-project/tenon/internal/view"
)

// accountant is a plugin that reserves CPUs and devices, on trial if its cycle is.
type accountant interface {
	fwk.ReservePlugin
	Account(node string) *ledger.View
}

// questions is what questions about other clusters read of this scheduler.
func (s *Scheduler) questions(ctx context.Context) whatif.Cluster {
	guard := coscheduling.NewEvictions(coscheduling.Cluster{Gangs: s.gangs})
	return whatif.Cluster{
		Cache: s.core.Nodes,
		Pod:   s.pod,
		Profiles: func(nodes fwk.SharedLister) (map[string]framework.Framework, error) {
			return s.core.Questions(ctx, nodes, guard)
		},
		Trial:   func() whatif.Trial { return placement.NewTrial(s.store) },
		Imagine: s.store.Imagine,
		AdmitAgain: func(uids ...string) bool {
			return kube.Ask(s.quotas, func(a *quota.Account) *quota.Excess { return a.AdmitAgain(uids...) }) == nil
		},
		Lost:   s.lost,
		Quotas: func() whatif.Quotas { return elasticquota.NewCopy(s.quotas) },
		Limits: s.limitsOf,
		Members: func(id string) []*corev1.Pod {
			members := s.gangs.Pods(func(p *corev1.Pod, state *gang.State) bool {
				return state.GangOf(string(p.UID)) == id
			})
			slices.SortFunc(members, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
			return members
		},
		Gang: func(id string) (g *view.Gang, rule string) {
			s.gangs.Read(func(state *gang.State) {
				if g = view.GangOf(state, id); g == nil {
					return
				}
				known, _ := state.Find(id)
				for i, r := range known.Settings.DomainRules {
					if r.Must || r.Multiple > 0 {
						rule = g.Network[i]
					}
				}
			})
			return g, rule
		},
		Admit: elasticquota.Admitted,
		Reserve: func(ctx context.Context, f framework.Framework, cs fwk.CycleState, pod *corev1.Pod, node string,
		) (func() map[string]string, string, *fwk.Status) {
			within, _ := reserving.Chosen(cs, node)
			// Both names of a placement are asked; the second one finds the reservation made.
			for _, e := range f.EnqueueExtensions() {
				if p, ok := e.(accountant); ok {
					if status := p.Reserve(ctx, cs, pod, node); !status.IsSuccess() {
						return nil, "", status
					}
				}
			}
			return placement.Read(cs).Record, within, nil
		},
		Describe: func(cs fwk.CycleState, t whatif.Trial, pod *corev1.Pod) *view.Placement {
			v := t.(*placement.Trial).Account(pod.Spec.NodeName)
			out := describe.Placement(pod, v)
			if cycle := placement.Read(cs); cycle != nil && len(out.Devices) > 0 {
				held, _ := v.Entry(string(pod.UID))
				without := v.Without(string(pod.UID))
				out.Choice = view.DeviceChoiceOf(without, cycle.Request.On(without.Facts()), held.Devices)
			}
			return out
		},
		Exclude: reserving.Exclude,
		Preemption: func(f framework.Framework) *preemption.Evaluator {
			if p := core.PreemptionOf(f); p != nil {
				guard.Forget()
				return p.Evaluator
			}
			return nil
		},
	}
}

// limitsOf reads the LimitRanges and ResourceQuotas of a namespace from the API server's cache. No informer keeps them:
// a ResourceQuota changes with each pod of its namespace, and questions are rare.
func (s *Scheduler) limitsOf(ctx context.Context, namespace string) (whatif.Limits, error) {
	cached := metav1.ListOptions{ResourceVersion: "0"}
	ranges, err := s.config.Client.CoreV1().LimitRanges(namespace).List(ctx, cached)
	if err != nil {
		return nil, fmt.Errorf("list the LimitRanges of namespace %s: %w", namespace, err)
	}
	quotas, err := s.config.Client.CoreV1().ResourceQuotas(namespace).List(ctx, cached)
	if err != nil {
		return nil, fmt.Errorf("list the ResourceQuotas of namespace %s: %w", namespace, err)
	}
	all := make([]*corev1.LimitRange, len(ranges.Items))
	for i := range ranges.Items {
		all[i] = &ranges.Items[i]
	}
	return limits.New(all, quotas.Items, clock.RealClock{}), nil
}
