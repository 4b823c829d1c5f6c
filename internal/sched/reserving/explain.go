package reserving

import (
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/reservation"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/placement"
)

// Explain is that of Rooms.
func (i *inside) Explain(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo,
	findings []why.Finding, find func(fwk.CycleState, fwk.NodeInfo) []why.Finding,
) []why.Finding {
	return i.rooms.Explain(ctx, i.Framework, cs, pod, node, findings, find)
}

// Explain corrects findings of filters that know no Reservation. It returns none if the pod fits inside a Reservation;
// else it returns the Reservation's own refusal first, or what find finds inside the first Reservation, and names the
// Reservations that keep the room from this pod if the pod would fit without these.
func (r *Rooms) Explain(ctx context.Context, f framework.Framework, cs fwk.CycleState, pod *corev1.Pod,
	node fwk.NodeInfo, findings []why.Finding, find func(fwk.CycleState, fwk.NodeInfo) []why.Finding,
) []why.Finding {
	name, keeping := node.Node().Name, map[string]bool{}
	// First: the findings are of filters that looked at the node as it is. Inside its Reservations the pod may fit.
	c := read(cs)
	if c != nil && (c.pre != nil || len(c.byNode[name]) > 0) {
		status := r.Filter(ctx, f, cs, pod, node)
		if status.IsSuccess() {
			return nil
		}
		var refused *placement.Refusal
		if status.Plugin() == Name { // and not of a filter inside a Reservation
			errors.As(status.AsError(), &refused)
		}
		if refused == nil && c.pre == nil {
			refused = r.shortage(cs, pod, c.byNode[name])
		}
		if refused != nil {
			said := refused.Finding()
			said.Plugin, said.Phase, said.Object = Name, why.Filter, name
			findings = append([]why.Finding{said}, findings...)
		} else if c.pre == nil {
			if dry, without, failed := enter(ctx, f, cs, pod, node, c.byNode[name][0]); failed == nil {
				if inside := find(dry, without); len(inside) > 0 {
					findings = inside
				}
			}
		}
	}
	if len(findings) == 0 {
		return nil
	}
	// Then: Reservations that the pod may not use are to blame only if the filters pass without all of them.
	var names []string
	for _, other := range r.Reservations.On(name) {
		isIt := func(s *reservation.Spec) bool { return s.UID == string(other.UID) }
		_, keeps := r.Reservations.Find(other.UID)
		if keeps != nil && (c == nil || !slices.ContainsFunc(c.byNode[name], isIt)) {
			names, keeping[string(other.UID)] = append(names, other.Name), true
		}
	}
	if len(names) == 0 {
		return findings
	}
	if c != nil && len(c.byNode[name]) > 0 && !c.byNode[name][0].Restricted {
		keeping[c.byNode[name][0].UID] = true // the pod has the room of its own Reservation as well
	}
	dry, without, failed := leave(ctx, f, cs, pod, node, keeping)
	if failed != nil || !f.RunFilterPluginsWithNominatedPods(ctx, dry, pod, without).IsSuccess() {
		return findings
	}
	return append([]why.Finding{{
		Reason: why.Reason{Code: why.ReservedForOthers}, Plugin: Name, Phase: why.Filter, Object: name,
		Detail: "node(s) keep the room for other pods in reservation " + strings.Join(names, ", "),
	}}, findings...)
}
