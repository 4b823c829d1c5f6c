package ledger

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
)

// namelessUID is the holder of CPUs of no known pod. No UID of a pod has a slash.
const namelessUID = "unclaimed/"

// named returns the pins, those without UID with that of the pod of their namespace and name. Of two pods of one name
// the one with the lower UID has it: an exporter that reports no UID cannot distinguish them either.
func (v *View) named() []Pin {
	pins := v.facts.Pins
	if len(pins) == 0 || pins[0].UID != "" {
		return pins
	}
	type name struct{ namespace, name string }
	uids := map[name]string{}
	for _, a := range slices.Backward(v.accounts) {
		uids[name{a.Namespace, a.Name}] = a.UID
	}
	pins = slices.Clone(pins)
	for i := range pins {
		if pins[i].UID == "" && pins[i].Name != "" {
			pins[i].UID = uids[name{pins[i].Namespace, pins[i].Name}]
		}
	}
	return sortedPins(pins)
}

// dependsOnOthers reports whether what one pod has depends on which other pods there are.
func (v *View) dependsOnOthers() bool {
	pins := v.facts.Pins
	return !v.facts.Unclaimed.IsEmpty() || len(pins) > 0 && pins[0].UID == ""
}

// share assigns the CPUs that the kubelet has allocated to unknown pods to the pods of which nothing else is known, in
// the order of admission. Which of them has which CPUs does not matter: what is free does.
func (t *tenancy) share(v *View) {
	left := v.facts.Unclaimed.Intersect(v.facts.Machine.Online())
	if left.IsEmpty() {
		return
	}
	for _, s := range t.assignments {
		if s.source == Pinned {
			left = left.Minus(v.pinOf(s.UID))
		} else {
			left = left.Minus(held(s.placement))
		}
	}
	for _, s := range t.queue {
		if n := s.KubeletCPUs; s.source == Computed && n > 0 && n <= left.Len() {
			s.claim, s.source = lowest(&left, n), Pinned
			left = left.Minus(s.claim)
		}
	}
	slices.SortFunc(t.queue, byAdmission)
	if t.nameless = left; left.IsEmpty() {
		return
	}
	t.base = t.base.With(&kubelet.Pod{UID: namelessUID, Guaranteed: true}, kubelet.Placement{{CPUs: left}})
}

// lowest returns the first n CPUs of set.
func lowest(set *cpuset.Set, n int) cpuset.Set {
	var first cpuset.Set
	for c := range set.All() {
		if first.Len() >= n {
			break
		}
		first.Add(c)
	}
	return first
}
