package status

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Reasons of Events about what is written on a pod.
const (
	badAnnotation      = "BadAnnotation"
	allocationUnusable = "AllocationUnusable"
	allocationConflict = "AllocationConflict"
	boundCPUOffline    = "BoundCPUOffline"
)

// Annotations sends an Event on a pod about its annotations that cannot be used.
func (r *Reporter) Annotations(pod *corev1.Pod) {
	text := ""
	for _, p := range convert.EntryProblems(pod) {
		text += fmt.Sprintf("; annotation %s is not used: %s: %s", p.Key, p.Text, p.Value)
	}
	r.mu.Lock()
	reported := r.annotations[pod.UID]
	if text == "" {
		delete(r.annotations, pod.UID)
	} else {
		r.annotations[pod.UID] = text
	}
	r.mu.Unlock()
	if text != "" && text != reported {
		r.send(podObject(pod.Namespace, pod.Name, pod.UID), corev1.EventTypeWarning, badAnnotation, "Read", "%s",
			text[len("; "):])
	}
}

// ForgetPod drops what was reported of a pod that is gone.
func (r *Reporter) ForgetPod(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.annotations, uid)
}

// Claims sends Events on each pod about what its allocation contradicts.
func (r *Reporter) Claims(view *ledger.View) {
	now := map[ledger.Problem]bool{}
	for _, p := range view.Problems() {
		now[p] = true
	}
	r.mu.Lock()
	before := r.claims
	r.claims = now
	r.mu.Unlock()
	for p := range maps.Keys(now) {
		if before[p] {
			continue
		}
		for _, uid := range []string{p.UID, p.Other} {
			if e, ok := view.Entry(uid); ok {
				reason, note := describe(p)
				r.send(podObject(e.Namespace, e.Name, types.UID(uid)), corev1.EventTypeWarning, reason, "Read", "%s",
					note)
			}
		}
	}
}

// describe returns the reason and the text of a contradiction.
func describe(p ledger.Problem) (reason, note string) {
	switch p.Kind {
	case ledger.HeldTwice:
		return allocationConflict, fmt.Sprintf(
			"CPUs %s are allocated to two pods: the one that has them first keeps them, the other one does not start "+
				"on them", p.CPUs)
	case ledger.Reserved:
		return allocationConflict, fmt.Sprintf("CPUs %s of the pod's allocation are reserved on this node", p.CPUs)
	case ledger.Offline:
		return boundCPUOffline, fmt.Sprintf(
			"CPUs %s of the pod's allocation are offline: it runs on the rest of them until they are back", p.CPUs)
	case ledger.UnknownNUMA:
		return allocationUnusable, fmt.Sprintf("this machine has no CPUs on NUMA nodes %s of the pod's allocation",
			p.CPUs)
	case ledger.Malformed:
		return allocationUnusable, fmt.Sprintf("the pod's allocation %q is not a list of CPUs", p.CPUs)
	}
	return allocationUnusable, fmt.Sprintf("CPUs %s of the pod's allocation are left out: %s on this machine", p.CPUs,
		p.Kind)
}

// Overlap keeps the condition StaticActive: whether the kubelet has assigned CPUs, by UID, that are exclusive to
// another pod of the account.
func (r *Reporter) Overlap(ctx context.Context, view *ledger.View, assigned map[string][]int) error {
	text := overlap(view, assigned)
	if text == "" {
		return r.Set(ctx, StaticActive, false, "NoOverlap",
			"no CPU that the kubelet assigned is exclusive to another pod")
	}
	return r.Set(ctx, StaticActive, true, "AssignmentsOverlap", text)
}

// overlap names the first pod whose exclusive CPUs the kubelet has assigned to another one; "" when there is none.
func overlap(view *ledger.View, assigned map[string][]int) string {
	machine := view.Machine()
	if machine == nil || len(assigned) == 0 {
		return ""
	}
	for e := range view.Entries() {
		if !e.Role.Binds() {
			continue
		}
		own := view.CPUsOf(e.UID)
		for _, uid := range slices.Sorted(maps.Keys(assigned)) {
			theirs, _, err := machine.ParseList(cpuset.FormatIDs(assigned[uid]))
			if taken := own.Intersect(theirs); uid != e.UID && err == nil && !taken.IsEmpty() {
				return fmt.Sprintf(
					"the kubelet's static policy has assigned CPUs %s, which are exclusive to pod %s/%s, to the pod "+
						"with UID %s: "+
						"the agent keeps that pod off them; set the kubelet's policy to none once the take-over has "+
						"ended",
					machine.FormatList(taken), e.Namespace, e.Name, uid)
			}
		}
	}
	return ""
}
