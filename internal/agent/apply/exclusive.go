package apply

import (
	"cmp"
	"slices"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// Exclusive is a pod that runs on CPUs of its own.
type Exclusive struct {
	UID string
	// Class is LSE or LSR.
	Class qos.Class
	// CPUs are those that the kernel has for its groups, in list format.
	CPUs string
	Asks annotation.Tuning
}

// Exclusive returns the pods that run on CPUs of their own, by UID, also those that are gone from the API; false before
// a pass with the complete list of pods. A pod that is about to get its CPUs is not among them, nor one that lost them.
func (e *Engine) Exclusive() (pods []Exclusive, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.exclusive), e.exclusive != nil
}

// ExclusiveChanged returns a channel that holds a token after Exclusive has come to have another answer.
func (e *Engine) ExclusiveChanged() <-chan struct{} { return e.exclusiveMoved }

// noteExclusive keeps the answer of Exclusive.
func (p *pass) noteExclusive() {
	e := p.e
	cpus, roles := map[string]cpuset.Set{}, map[string]qos.Role{}
	for _, it := range p.items {
		if it.role.Binds() && it.occupies() && it.kernel.known && (it.settled() || it.orphan) {
			cpus[it.uid], roles[it.uid] = cpus[it.uid].Union(it.kernel.cpus), it.role
		}
	}
	now := []Exclusive{}
	e.mu.Lock()
	for uid, set := range cpus {
		x := Exclusive{UID: uid, Class: qos.LSE, CPUs: p.m.FormatList(set)}
		if roles[uid] == qos.ExclusiveWithBE {
			x.Class = qos.LSR
		}
		if owner := e.pods[uid]; owner != nil {
			x.Asks = owner.Asks
		}
		if !set.IsEmpty() {
			now = append(now, x)
		}
	}
	slices.SortFunc(now, func(a, b Exclusive) int { return cmp.Compare(a.UID, b.UID) })
	changed := e.complete && (e.exclusive == nil || !slices.Equal(e.exclusive, now))
	if changed {
		e.exclusive = now
	}
	e.mu.Unlock()
	if changed {
		select {
		case e.exclusiveMoved <- struct{}{}:
		default:
		}
	}
}
