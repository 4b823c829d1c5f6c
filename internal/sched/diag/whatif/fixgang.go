package whatif

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// waitingGang is a gang whose members wait, with the gangs that start together with it: all members that wait are
// without a reservation.
type waitingGang struct {
	*view.Gang
	// group are all gangs that start together, that of the pod first.
	group []*view.Gang
	// rule says how the members of the gang named ruled must be placed, "" if all may be anywhere.
	rule, ruled string
	// pending are the members that wait, namespace/name, the one that is explained first.
	pending []string
	// fit is how many members of each gang the first trial placed, without a change, and taken are their nodes. A gang
	// has no more placed than it needs.
	fit   map[string]int
	taken []string
}

// waitingGang returns the gang of a member that waits, or a note that says why no fix is looked for.
func (e *Engine) waitingGang(id, key string) (_ *waitingGang, note string) {
	g, rule := e.gang(id)
	if g == nil {
		return nil, "no fix was looked for: gang " + id + " does not exist"
	}
	w := &waitingGang{Gang: g, group: []*view.Gang{g}, rule: rule, ruled: g.Name, fit: map[string]int{}}
	for _, name := range g.Group {
		if name == g.Name || g.Started {
			continue // a gang that has started waits for no other
		}
		o, rule := e.gang(name)
		switch {
		case o == nil || !slices.Equal(slices.Sorted(slices.Values(o.Group)), slices.Sorted(slices.Values(g.Group))):
			return nil, fmt.Sprintf("no fix was looked for: gang %s, which gang %s lists, does not exist or lists "+
				"other gangs", name, g.Name)
		case rule != "" && w.rule != "":
			return nil, fmt.Sprintf("no fix was looked for: gangs %s and %s both have a network rule", w.ruled, name)
		case rule != "":
			w.rule, w.ruled = rule, name
		}
		w.group = append(w.group, o)
	}
	for _, o := range w.group {
		if n := len(o.Waiting); n > 0 {
			return nil, fmt.Sprintf("no fix was looked for: gang %s has %s", o.Name,
				view.Count(n, "reserved member"))
		}
		w.pending = append(w.pending, o.Pending...)
	}
	w.pending = slices.Insert(slices.DeleteFunc(w.pending, func(member string) bool { return member == key }), 0, key)
	return w, ""
}

// lacking returns how many more members of a gang must be placed than run.
func (w *waitingGang) lacking(g *view.Gang) int {
	least := 0
	if g == w.Gang {
		least = 1 // the pod in question
	}
	if g.Started {
		return least
	}
	return max(least, g.Min-len(g.Bound))
}

// needed is how many members must be placed together.
func (w *waitingGang) needed() (n int) {
	for _, g := range w.group {
		n += w.lacking(g)
	}
	return n
}

// together is how many pods must be placed together: 1 for a pod without a gang.
func (x *fixing) together() int {
	if x.gang == nil {
		return 1
	}
	return x.gang.needed()
}

// tryMembers places the members that wait, and those that a change created, each beside those before it. It returns the
// node of the pod, "" if too few members of a gang are placed.
//
// Members beyond those that their gang needs are left out, as the scheduler places them last. So are members after the
// first that fit nowhere, since the gang may start without them; the first is the pod in question, without which the
// trial says nothing.
func (x *fixing) tryMembers() (node string, err error) {
	g := x.gang
	placed, lacks, keys := 0, map[string]int{}, slices.Clone(g.pending)
	for _, o := range g.group {
		lacks[o.Name] = g.lacking(o)
	}
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
		member, _ := convert.GangPod(pod)
		if lacks[member.Gang] == 0 {
			continue
		}
		p, err := x.place(pod, nil)
		if err != nil {
			return "", err
		}
		if p == nil {
			if x.refused = cmp.Or(x.refused, pod); i == 0 {
				return "", nil
			}
			continue
		}
		if i == 0 {
			node = p.node
		}
		lacks[member.Gang]--
		placed++
		if x.runs.Runs == 1 {
			if g.fit[member.Gang]++; !slices.Contains(g.taken, p.node) {
				g.taken = append(g.taken, p.node)
			}
		}
	}
	if placed < g.needed() {
		return "", nil
	}
	return node, nil
}

// members creates the members that the gangs lack, or lowers the minimum of the only gang of which too few fit. The
// minimum cannot be changed by a session, so it is lowered in the description of the gang for one trial.
func (x *fixing) members() error {
	var changes []view.Change
	var texts []string
	var short []*view.Gang
	for _, g := range x.gang.group {
		if n := g.Min - len(g.Members); n > 0 && !g.Started {
			texts = append(texts, fmt.Sprintf("%s of gang %s", view.Count(n, "more pod"), g.Name))
			changes = append(changes, view.Change{ScaleGang: encode(map[string]any{"gang": g.Name, "to": g.Min})})
		}
		if x.gang.fit[g.Name] < x.gang.lacking(g) {
			short = append(short, g)
		}
	}
	if len(changes) > 0 {
		if _, err := x.offer(view.FixMembers, "create "+strings.Join(texts, " and "), changes...); err != nil {
			return err
		}
	}
	if len(short) != 1 || x.gang.fit[short[0].Name] == 0 || short[0].Started {
		return nil
	}
	g := short[0]
	was, lower := g.Min, len(g.Bound)+x.gang.fit[g.Name]
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
