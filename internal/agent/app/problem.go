package app

import (
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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

// problems remembers what was reported of each pod, so that it is reported once.
type problems struct {
	mu sync.Mutex // guards the fields below
	// annotations: by UID, what cannot be read. claims: what contradicts the machine or another pod.
	annotations map[types.UID]string
	claims      map[ledger.Problem]bool
}

// reportAnnotations sends an Event on the pod about its annotations that cannot be used.
func (a *Agent) reportAnnotations(pod *corev1.Pod) {
	text := ""
	for _, p := range convert.EntryProblems(pod) {
		text += fmt.Sprintf("; annotation %s is not used: %s: %s", p.Key, p.Text, p.Value)
	}
	a.problems.mu.Lock()
	reported := a.problems.annotations[pod.UID]
	if text == "" {
		delete(a.problems.annotations, pod.UID)
	} else {
		a.problems.annotations[pod.UID] = text
	}
	a.problems.mu.Unlock()
	if text != "" && text != reported {
		a.event(podObject(pod.Namespace, pod.Name, pod.UID), true, badAnnotation, "Read", "%s", text[len("; "):])
	}
}

// forget drops what was reported of a pod that is gone.
func (p *problems) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.annotations, uid)
}

// reportClaims sends Events on each pod about what its allocation contradicts.
func (a *Agent) reportClaims() {
	view := a.engine.View()
	now := map[ledger.Problem]bool{}
	for _, p := range view.Problems() {
		now[p] = true
	}
	a.problems.mu.Lock()
	before := a.problems.claims
	a.problems.claims = now
	a.problems.mu.Unlock()
	for p := range maps.Keys(now) {
		if before[p] {
			continue
		}
		for _, uid := range []string{p.UID, p.Other} {
			if e, ok := view.Entry(uid); ok {
				reason, note := describe(p)
				a.event(podObject(e.Namespace, e.Name, types.UID(uid)), true, reason, "Read", "%s", note)
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

func podObject(namespace, name string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: uid}
}
