package whatif

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/view"
)

// waitingGang is a gang whose members wait, all of them without a reservation.
type waitingGang struct {
	*view.Gang
	// rule says how the members must be placed, "" if they may be anywhere.
	rule string
	// pending are the members that wait, namespace/name, the one that is explained first.
	pending []string
	// fit is how many members the first trial placed, without a change, and taken are their nodes.
	fit   int
	taken []string
}

// waitingGang returns the gang of a member that waits, or a note that says why no fix is looked for.
func (e *Engine) waitingGang(id, key string) (_ *waitingGang, note string) {
	g, rule := e.Gang(id)
	switch {
	case g == nil:
		note = "gang " + id + " does not exist"
	case len(g.Group) > 1:
		note = fmt.Sprintf("gang %s starts together with %d other gangs", id, len(g.Group)-1)
	case len(g.Waiting) > 0:
		note = fmt.Sprintf("%d members of gang %s hold reservations", len(g.Waiting), id)
	}
	if note != "" {
		return nil, "no fix was looked for: " + note
	}
	w := &waitingGang{Gang: g, rule: rule, pending: []string{key}}
	for _, member := range g.Pending {
		if member != key {
			w.pending = append(w.pending, member)
		}
	}
	return w, ""
}

// needed is how many members must be placed together.
func (w *waitingGang) needed() int {
	if w.Started {
		return 1
	}
	return max(1, w.Min-len(w.Bound))
}

// together is how many pods must be placed together: 1 for a pod without a gang.
func (x *fixing) together() int {
	if x.gang == nil {
		return 1
	}
	return x.gang.needed()
}

// tryMembers places the members that wait, and those that a change created, each beside those before it. It returns the
// node of the pod, "" if too few members are placed.
//
// Members after the first that fit nowhere are left out, since the gang may start without them; the first is the pod in
// question, without which the trial says nothing.
func (x *fixing) tryMembers() (node string, err error) {
	g := x.gang
	placed, keys := 0, slices.Clone(g.pending)
	for _, key := range slices.Sorted(maps.Keys(x.pods)) { // those that scaleGang added
		if !slices.Contains(keys, key) && x.successors[string(x.pods[key].UID)] == "" {
			keys = append(keys, key)
		}
	}
	for i, key := range keys {
		pod, err := x.pending(key)
		if err != nil {
			return "", err
		}
		p, err := x.place(pod, nil)
		if err != nil {
			return "", err
		}
		if p == nil {
			if i == 0 {
				return "", nil
			}
			continue
		}
		if i == 0 {
			node = p.node
		}
		if placed++; x.runs.Runs == 1 && !slices.Contains(g.taken, p.node) {
			g.taken = append(g.taken, p.node)
		}
	}
	if x.runs.Runs == 1 {
		g.fit = placed
	}
	if placed < g.needed() {
		return "", nil
	}
	return node, nil
}

// members creates the members that the gang lacks, or lowers its minimum to what fits. The minimum cannot be changed by
// a session, so it is lowered in the description of the gang for one trial.
func (x *fixing) members() error {
	g := x.gang
	if n := g.Min - len(g.Members); n > 0 && !g.Started {
		_, err := x.offer(view.FixMembers, fmt.Sprintf("create %d more pods of gang %s", n, g.Name), view.Change{
			ScaleGang: encode(map[string]any{"gang": g.Name, "to": g.Min}),
		})
		if err != nil {
			return err
		}
	}
	lower := len(g.Bound) + g.fit
	if g.fit == 0 || lower >= g.Min || g.Started {
		return nil
	}
	was := g.Min
	g.Min = lower
	node, err := x.try()
	if node != "" {
		x.keep(view.FixGang, fmt.Sprintf("lower the minimum of gang %s to %d (from %d)", g.Name, lower, was), node)
	}
	g.Min = was
	return err
}

// alike reports whether the members that wait request the same, so that one change is made to all of them.
func (x *fixing) alike() bool {
	if x.gang == nil {
		return true
	}
	return !slices.ContainsFunc(x.gang.pending, func(key string) bool {
		other, err := x.named(key)
		return err != nil || !equality.Semantic.DeepEqual(requests(x.pod), requests(other)) ||
			!maps.Equal(x.pod.Spec.NodeSelector, other.Spec.NodeSelector) ||
			slices.ContainsFunc([]string{
				annotation.ResourceSpecKey, annotation.NUMATopologySpecKey, annotation.DeviceJointAllocateKey,
				annotation.DeviceAllocateHintKey,
			}, func(key string) bool { return x.pod.Annotations[key] != other.Annotations[key] })
	})
}

// requests are what the containers of a pod request, by name.
func requests(pod *corev1.Pod) map[string]corev1.ResourceRequirements {
	all := map[string]corev1.ResourceRequirements{}
	for i := range pod.Spec.Containers {
		all[pod.Spec.Containers[i].Name] = pod.Spec.Containers[i].Resources
	}
	return all
}
