package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// asking is a pod that waits, or a gang of equal pods, in a cluster of nodes with 30 CPUs for pods each.
type asking struct {
	*asked
	cpus, members int
	// grouped is set where every second member is of gang h, which starts together with gang g.
	grouped bool
	free    []int // CPUs, by node
	pods    []string
	running map[string]*corev1.Pod
	room    int // CPUs that the quota of the pods still admits
}

// drawAsking draws 1 to 3 nodes with pods, which may terminate, be protected or important, and pods that wait.
func drawAsking(t *testing.T, r *rapid.T) *asking {
	a := &asking{
		cpus:    2 * rapid.IntRange(1, 16).Draw(r, "half of the CPUs"),
		members: rapid.SampledFrom([]int{1, 1, 1, 2, 3, 4}).Draw(r, "members"),
		running: map[string]*corev1.Pod{}, room: 1 << 20,
	}
	names := []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(r, "nodes")]
	a.asked = newAsked(t, names...)
	now := metav1.NewTime(time.Unix(1e9, 0))
	for _, name := range names {
		a.quotas.PutNode(object.Node(name, nil, "cpu", "32"))
		free := 30
		for i := range rapid.IntRange(0, 3).Draw(r, "pods of "+name) {
			cpus := 2 * rapid.IntRange(1, 5).Draw(r, "half of the CPUs of one")
			if free < cpus {
				break
			}
			pod := bound(fmt.Sprintf("on-%s-%d", name, i), name, list(16-free/2, cpus),
				object.Priority(rapid.SampledFrom([]int32{9000, 9500}).Draw(r, "priority")))
			switch rapid.IntRange(0, 4).Draw(r, "what it is") {
			case 0, 1:
				pod.DeletionTimestamp = &now
			case 2:
				object.Label("protected", "true")(pod)
			}
			a.add(pod)
			a.running["default/"+pod.Name] = pod
			free -= cpus
		}
		a.free = append(a.free, free)
	}
	testkit.Check(t, a.config.InformerFactory.Policy().V1().PodDisruptionBudgets().Informer().GetStore().Add(
		&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "none"},
			Spec: policyv1.PodDisruptionBudgetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"protected": "true"}},
			},
		}))
	var options []object.PodOption
	if rapid.Bool().Draw(r, "in a quota") {
		a.room = rapid.IntRange(1, 40).Draw(r, "max")
		a.quotas.PutQuota(object.Quota("default/team", corev1.ResourceList{},
			corev1.ResourceList{"cpu": resource.MustParse(fmt.Sprint(a.room))}))
		options = append(options, object.Label(annotation.QuotaName, "team"))
	}
	if a.members > 1 {
		options = append(options, object.Gang("g", fmt.Sprint(a.members)))
	}
	have := a.members
	if a.members > 1 && rapid.IntRange(0, 4).Draw(r, "whole") == 0 {
		have--
	}
	a.grouped = a.members > 1 && rapid.Bool().Draw(r, "two gangs")
	for i := range have {
		own := slices.Clone(options)
		if a.grouped {
			own = append(own, object.Gang(a.gangOf(i), fmt.Sprint(a.least(a.gangOf(i)))),
				object.Annotation(annotation.GangGroups, `["default/g","default/h"]`))
		}
		a.know(exclusive(fmt.Sprint("g-", i), fmt.Sprint(a.cpus), own...))
		a.pods = append(a.pods, fmt.Sprint("default/g-", i))
	}
	return a
}

// gangOf returns the gang of a member by its number.
func (a *asking) gangOf(i int) string {
	if a.grouped && i%2 == 1 {
		return "h"
	}
	return "g"
}

// least returns the minimum of a gang: all its members.
func (a *asking) least(gang string) (n int) {
	for i := range a.members {
		if a.gangOf(i) == gang {
			n++
		}
	}
	return n
}

// fits counts how many pods fit of so many CPUs each: no plugin is asked.
func (a *asking) fits(cpus, members, room int, free ...int) bool {
	n := 0
	for _, f := range free {
		n += f / cpus
	}
	return min(n, room/cpus) >= members
}

// TestEachFixIsVerifiedAndTheSmallest makes random clusters with a pod, a gang or two gangs that start together.
// Each fix must make the pods fit by plain arithmetic, and no smaller change of its kind may.
func TestEachFixIsVerifiedAndTheSmallest(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(r *rapid.T) {
		a := drawAsking(t, r)
		have := len(a.pods)
		plain := func(cpus, members, room int, free ...int) bool {
			return a.fits(cpus, members, room, append(slices.Clone(a.free), free...)...)
		}
		fixes, search := a.fixes("g-0")
		if have == a.members && plain(a.cpus, a.members, a.room) {
			if len(fixes) > 0 {
				r.Fatalf("%d pods of %d CPUs fit, and have fixes %+v", a.members, a.cpus, fixes)
			}
			seen["fits"]++
			return
		}
		for _, f := range fixes {
			if seen[f.Kind]++; a.grouped {
				seen["fixes of two gangs"]++
			}
			wrong := func(format string, args ...any) {
				t.Helper()
				r.Fatalf("%s of %d×%d CPUs, free %v, quota %d: %s", f.Message, have, a.cpus, a.free, a.room,
					fmt.Sprintf(format, args...))
			}
			if f.Kind != view.FixGang { // what-if has no rules of gangs
				pods := slices.Clone(a.pods)
				if a.members > have { // it is like the first one of its gang
					first := map[string]int{"g": 0, "h": 1}[a.gangOf(have)]
					pods = append(pods, fmt.Sprintf("default/g-%d-whatif-1", first))
				}
				if f.Kind != view.FixMembers {
					pods = pods[:have]
				}
				answer, err := a.whatIf.Answer(t.Context(), &view.WhatIf{
					Changes: f.Changes, Ask: view.Ask{Pods: pods},
				})
				if err != nil || len(answer.Placements) < a.members {
					wrong("the question has the answer %+v, %v", answer, err)
				}
			}
			a.isSmallest(f, plain, wrong)
		}
		if len(fixes) == 0 && have == a.members && search != nil && search.Note == "" {
			a.hasNone(r, plain)
			seen["none"]++
		}
	})
	t.Logf("outcomes %v", seen)
	if seen["fixes of two gangs"] == 0 && !testing.Short() {
		t.Errorf("outcomes %v, want fixes of two gangs", seen)
	}
	for _, kind := range []string{
		"fits", view.FixWait, view.FixRequest, view.FixMembers, view.FixGang, view.FixQuota, view.FixEvict,
		view.FixAddNode,
	} {
		if seen[kind] == 0 && !testing.Short() {
			t.Errorf("outcomes %v, want %s among them", seen, kind)
		}
	}
}

// isSmallest checks a fix by arithmetic: it is enough, and what is one step smaller is not.
func (a *asking) isSmallest(f view.Fix, plain func(cpus, members, room int, free ...int) bool,
	wrong func(string, ...any),
) {
	var n, was int
	var text string
	switch f.Kind {
	case view.FixRequest:
		if _, err := fmt.Sscanf(f.Message, "request cpu %d instead of %d", &n, &was); err != nil || was != a.cpus {
			wrong("%v", err)
		}
		if !plain(n, a.members, a.room) || plain(n+1, a.members, a.room) {
			wrong("the largest request that fits is another one")
		}
	case view.FixGang:
		var name string
		const format = "lower the minimum of gang %s to %d (from %d)"
		if _, err := fmt.Sscanf(f.Message, format, &name, &n, &was); err != nil {
			wrong("%v", err)
		}
		if was != a.least(strings.TrimPrefix(name, "default/")) {
			wrong("the minimum is another one")
		}
		n += a.members - was // of all gangs
		have := len(a.pods)
		if n > have || !plain(a.cpus, n, a.room) || n < have && plain(a.cpus, n+1, a.room) {
			wrong("the largest minimum that fits is another one")
		}
	case view.FixMembers:
		if !plain(a.cpus, a.members, a.room) {
			wrong("the members do not fit")
		}
	case view.FixQuota:
		if _, err := fmt.Sscanf(f.Message, "raise max of quota team to cpu %d (from %d)", &n, &was); err != nil {
			wrong("%v", err)
		}
		if was != a.room || !plain(a.cpus, a.members, n) || plain(a.cpus, a.members, n-1) {
			wrong("the smallest max that suffices is another one")
		}
	case view.FixAddNode:
		if _, err := fmt.Sscanf(f.Message, "add %d node", &n); err != nil {
			wrong("%v", err)
		}
		full := slices.Repeat([]int{30}, n)
		if !plain(a.cpus, a.members, a.room, full...) || n > 1 && plain(a.cpus, a.members, a.room, full[1:]...) {
			wrong("the smallest number of nodes is another one")
		}
	case view.FixEvict:
		var priority int32
		if _, err := fmt.Sscanf(f.Message, "delete pod %s (priority %d)", &text, &priority); err != nil {
			wrong("%v", err)
		}
		pod := a.running[text]
		if pod == nil || priority > 9000 || pod.Labels["protected"] != "" || !a.fitsWithout(plain, pod) {
			wrong("the pod must not be deleted, or its room does not suffice")
		}
	case view.FixWait:
		var gone []*corev1.Pod
		for _, c := range f.Changes {
			pod := a.running[c.RemovePod]
			if pod == nil || pod.DeletionTimestamp == nil {
				wrong("pod %s does not terminate", c.RemovePod)
			}
			gone = append(gone, pod)
		}
		if !a.fitsWithout(plain, gone...) {
			wrong("the room of the pods does not suffice")
		}
	default:
		wrong("no such fix is expected")
	}
}

// fitsWithout reports whether the pods fit once others are gone.
func (a *asking) fitsWithout(plain func(cpus, members, room int, free ...int) bool, gone ...*corev1.Pod) bool {
	was := slices.Clone(a.free)
	defer func() { a.free = was }()
	a.free = slices.Clone(was)
	for _, pod := range gone {
		a.free[pod.Spec.NodeName[0]-'a'] += int(pod.Spec.Containers[0].Resources.Requests.Cpu().Value())
	}
	return plain(a.cpus, a.members, a.room)
}

// hasNone checks that indeed no single change of these kinds suffices.
func (a *asking) hasNone(r *rapid.T, plain func(cpus, members, room int, free ...int) bool) {
	full := slices.Repeat([]int{30}, a.members)
	switch {
	case plain(1, a.members, a.room), plain(a.cpus, a.members, a.room, full...), plain(a.cpus, a.members, 1<<20):
		r.Fatalf("no fix was found for %d×%d CPUs, free %v, quota %d", a.members, a.cpus, a.free, a.room)
	}
}

// TestRulesOfNodesAreLiftedWhereThatAloneHelps makes random clusters whose nodes are cordoned, tainted, without the
// label that the pod selects, or full. A fix lifts the only fault of a node, or drops what the pod selects.
func TestRulesOfNodesAreLiftedWhereThatAloneHelps(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(r *rapid.T) {
		names := []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(r, "nodes")]
		a := newAsked(t, names...)
		faults := map[string][]string{}
		for _, name := range names {
			for _, fault := range []string{"cordon", "taint", "label", "room"} {
				if rapid.Bool().Draw(r, fault) {
					faults[name] = append(faults[name], fault)
				}
			}
			if slices.Contains(faults[name], "room") {
				a.add(bound("on-"+name, name, list(2, 28), object.Priority(9500)))
			}
			a.change(name, func(n *corev1.Node) {
				n.Spec.Unschedulable = slices.Contains(faults[name], "cordon")
				if slices.Contains(faults[name], "taint") {
					n.Spec.Taints = []corev1.Taint{{Key: "team", Value: "ml", Effect: corev1.TaintEffectNoSchedule}}
				}
				if !slices.Contains(faults[name], "label") {
					n.Labels["disk"] = "ssd"
				}
			})
		}
		a.know(exclusive("waits", "8", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }))
		// helps reports whether a node has no fault but these.
		helps := func(lifted ...string) bool {
			return slices.ContainsFunc(names, func(name string) bool {
				return !slices.ContainsFunc(faults[name], func(f string) bool { return !slices.Contains(lifted, f) })
			})
		}
		fixes, _ := a.fixes("waits")
		found := map[string]bool{}
		for _, f := range fixes {
			seen[f.Kind]++
			found[f.Kind] = true
			answer, err := a.whatIf.Answer(t.Context(), &view.WhatIf{
				Changes: f.Changes, Ask: view.Ask{Pods: []string{"default/waits"}},
			})
			if err != nil || len(answer.Placements) != 1 {
				r.Fatalf("%s with faults %v: the question has the answer %+v, %v", f.Message, faults, answer, err)
			}
		}
		want := map[string]bool{
			view.FixNode:    !helps() && (helps("cordon") || helps("taint") || helps("label")),
			view.FixPolicy:  !helps() && helps("label"),
			view.FixRequest: !helps() && helps("room"),
		}
		for kind, wanted := range want {
			if found[kind] != wanted {
				r.Errorf("faults %v: a fix %s is %v, want %v; fixes %+v", faults, kind, found[kind], wanted, fixes)
			}
		}
	})
	if !testing.Short() && (seen[view.FixNode] == 0 || seen[view.FixPolicy] == 0 || seen[view.FixRequest] == 0) {
		t.Errorf("outcomes %v, want all of them", seen)
	}
}
