package kube_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

func memberOf(name, least string) *corev1.Pod {
	return testobject.Pod("ns/"+name, testobject.UID("uid-"+name), testobject.Gang("g", least))
}

func inGroup(name string) *corev1.Pod {
	p := memberOf(name, "1")
	p.Annotations = nil
	p.Labels = map[string]string{annotation.PodGroup: "g"}
	return p
}

func podGroup(group string, least int32) *v1alpha1.PodGroup {
	g := testobject.PodGroup("ns/g", least)
	g.APIVersion = group + "/v1alpha1"
	return g
}

// gangs returns a store, and the names of the pods that it activates.
func gangs(t *testing.T) (*kube.Gangs, func() []string) {
	t.Helper()
	s := kube.NewGangs()
	testkit.Check(t, s.Configure(gang.Settings{}, convert.DefaultGangRules()))
	h := &gangHandler{T: t}
	s.Handle(h)
	return s, func() []string {
		got := h.opened
		h.opened = nil
		return got
	}
}

// gangHandler notes what it is called with.
type gangHandler struct {
	*testing.T
	opened, allowed, returned []string
}

func (h *gangHandler) Opened(pods map[string]*corev1.Pod) {
	for _, key := range slices.Sorted(maps.Keys(pods)) {
		if p := pods[key]; p == nil || key != p.Namespace+"/"+p.Name {
			h.Errorf("%s is activated as %v", key, p)
		}
		h.opened = append(h.opened, key)
	}
}

func (h *gangHandler) Allow(uids []string)   { h.allowed = append(h.allowed, uids...) }
func (h *gangHandler) Release(uids []string) { h.returned = append(h.returned, uids...) }

func gate(s *kube.Gangs, p *corev1.Pod) gang.Refusal {
	return kube.Ask(s, func(s *gang.State) gang.Refusal { return s.Gate(string(p.UID)) })
}

func TestMembersAreActivatedWhenTheGangIsComplete(t *testing.T) {
	t.Parallel()
	s, activated := gangs(t)
	s.PutPod(memberOf("a", "3"))
	s.PutPod(memberOf("b", "3"))
	if code := gate(s, memberOf("a", "3")).Code; code != why.GangNotReady || len(activated()) > 0 {
		t.Fatalf("two of three: %v", code)
	}
	leaves := memberOf("c", "3")
	leaves.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	s.PutPod(leaves)
	ended := memberOf("d", "3")
	ended.Status.Phase = corev1.PodSucceeded
	s.PutPod(ended)
	if code := gate(s, memberOf("a", "3")).Code; code != why.GangNotReady {
		t.Errorf("pods that leave or have ended count: %v", code)
	}
	s.PutPod(memberOf("e", "3"))
	if got := activated(); !slices.Equal(got, []string{"ns/a", "ns/b", "ns/e"}) {
		t.Errorf("activated %v, want all three", got)
	}
	s.PutPod(memberOf("e", "3"))
	if got := activated(); len(got) > 0 {
		t.Errorf("activated again: %v", got)
	}
	s.RemovePod(memberOf("b", "3"))
	if code := gate(s, memberOf("a", "3")).Code; code != why.GangNotReady {
		t.Errorf("two are left of three: %v", code)
	}
	// Nothing but an annotation of the oldest changes.
	s.PutPod(memberOf("a", "2"))
	if got := activated(); !slices.Equal(got, []string{"ns/a", "ns/e"}) {
		t.Errorf("activated %v after min-available was lowered, want both", got)
	}
}

// TestAGangThatHasBegunIsNotHeldBack: one member is bound, and the other is tried once more.
func TestAGangThatHasBegunIsNotHeldBack(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{
		annotation.GangOnceSatisfied, annotation.GangOnlyWaiting, annotation.GangWaitingAndRunning,
	} {
		for _, cause := range []string{"pods", "PodGroup", "arguments"} {
			s := kube.NewGangs()
			defaults := gang.Settings{}
			if cause == "arguments" {
				defaults.Policy = gang.MatchPolicy(policy)
			}
			testkit.Check(t, s.Configure(defaults, convert.DefaultGangRules()))
			g := podGroup(v1alpha1.GroupName, 2)
			a, b := inGroup("a"), inGroup("b")
			switch cause {
			case "pods":
				a.Annotations = map[string]string{annotation.GangMatchPolicy: policy}
				b.Annotations = a.Annotations
			case "PodGroup":
				g.Annotations = map[string]string{annotation.GangMatchPolicy: policy}
			}
			s.PutGroup(g)
			s.PutPod(a)
			s.PutPod(b)
			bound := a.DeepCopy()
			bound.Spec.NodeName = "n"
			s.PutPod(bound)
			if r := gate(s, b); r.Code != why.None {
				t.Errorf("%s by %s: one of two runs, and the other is held: %v", policy, cause, r)
			}
		}
	}
}

// TestPodsOfABasicPodGroupAreNotHeld beyond the time when it does not exist: they are activated when it does, start by
// themselves, are evicted by themselves, and need no others.
func TestPodsOfABasicPodGroupAreNotHeld(t *testing.T) {
	t.Parallel()
	s, activated := gangs(t)
	faulty := inGroup("a")
	faulty.Annotations = map[string]string{annotation.GangMode: "x", annotation.GangMinAvailable: "3"}
	pods := []*corev1.Pod{faulty, inGroup("b")}
	for _, p := range pods {
		s.PutPod(p)
		if code := gate(s, p).Code; code == why.None {
			t.Errorf("%s may be tried before its PodGroup exists", p.Name)
		}
	}
	basic := podGroup(v1alpha1.NativeGroupName, 0)
	basic.Basic = true
	s.PutGroup(basic)
	if got := activated(); !slices.Equal(got, []string{"ns/a", "ns/b"}) {
		t.Errorf("activated %v, want both", got)
	}
	for _, p := range pods {
		plan, _, refused := s.Begin(p)
		if plan != nil || refused.Code != why.None || !s.Alone(p) || s.Pass(p, time.Unix(0, 0)) {
			t.Errorf("%s: plan %v, refused by %+v, alone %v", p.Name, plan, refused, s.Alone(p))
		}
	}
	units := func(uids ...string) [][]string {
		return kube.Ask(s, func(s *gang.State) [][]string { return s.Units(uids, func(string) bool { return false }) })
	}
	if got := units("uid-a", "uid-b"); len(got) != 2 {
		t.Errorf("evicted as %v, want each by itself", got)
	}
	s.Read(func(state *gang.State) {
		if got := state.Gangs(); len(got) > 0 {
			t.Errorf("gangs %v", got)
		}
	})
	whole := podGroup(v1alpha1.NativeGroupName, 0)
	whole.Basic, whole.Whole = true, true
	s.PutGroup(whole)
	if got := units("uid-a"); len(got) != 1 || len(got[0]) != 2 {
		t.Errorf("of pods that go together %v go", got)
	}
	s.RemoveGroup(whole)
	if r := gate(s, pods[1]); r.Code == why.None {
		t.Error("the PodGroup is gone, and a pod may be tried")
	}
}

// followBonds returns what holds gangs together, as it is informed of each change.
func followBonds(s *kube.Gangs) map[string]gang.Bond {
	bonds := map[string]gang.Bond{}
	s.Inform(func(id string, b gang.Bond) {
		if bonds[id] = b; b == (gang.Bond{}) {
			delete(bonds, id)
		}
	})
	return bonds
}

func TestQuotasLearnWhatHoldsGangsTogether(t *testing.T) {
	t.Parallel()
	s := kube.NewGangs()
	bonds := followBonds(s)
	testkit.Check(t, s.Configure(gang.Settings{}, convert.DefaultGangRules()))
	moved := inGroup("a")
	moved.Labels = map[string]string{annotation.PodGroup: "other"}
	listing := podGroup(v1alpha1.GroupName, 3)
	listing.Annotations = map[string]string{annotation.GangGroups: `["ns/g","ns/other"]`}
	both := moved.DeepCopy()
	both.Annotations = listing.Annotations
	nonStrict := both.DeepCopy()
	nonStrict.Annotations[annotation.GangMode] = "NonStrict"
	partial := listing.DeepCopy()
	partial.Annotations[annotation.GangMode] = "NonStrict"
	native := podGroup(v1alpha1.NativeGroupName, 0)
	native.Basic, native.Whole = true, true
	for i, c := range []struct {
		event func()
		want  string
	}{
		{func() { s.PutPod(inGroup("a")) }, "map[ns/g:{1 false false false ns/g}]"},
		{func() { s.PutGroup(podGroup(v1alpha1.GroupName, 4)) }, "map[ns/g:{4 false false false ns/g}]"},
		{func() { s.PutGroup(podGroup(v1alpha1.GroupName, 3)) }, "map[ns/g:{3 false false false ns/g}]"},
		{func() { s.PutPod(moved) }, "map[ns/g:{3 false false false ns/g} ns/other:{1 false false false ns/other}]"},
		{func() { s.PutGroup(listing) }, "map[ns/g:{3 false false false } ns/other:{1 false false false ns/other}]"},
		{
			func() { s.PutPod(both) },
			"map[ns/g:{3 false false false ns/g,ns/other} ns/other:{1 false false false ns/g,ns/other}]",
		},
		{
			func() { s.PutPod(nonStrict) },
			"map[ns/g:{3 false false false ns/g,ns/other} ns/other:{1 false false false ns/g,ns/other}]",
		},
		{
			func() { s.PutGroup(partial) },
			"map[ns/g:{3 false false true ns/g,ns/other} ns/other:{1 false false true ns/g,ns/other}]",
		},
		{
			func() { s.PutPod(both) },
			"map[ns/g:{3 false false false ns/g,ns/other} ns/other:{1 false false false ns/g,ns/other}]",
		},
		{
			func() { s.PutGroup(listing) },
			"map[ns/g:{3 false false false ns/g,ns/other} ns/other:{1 false false false ns/g,ns/other}]",
		},
		{func() { s.PutPod(moved) }, "map[ns/g:{3 false false false } ns/other:{1 false false false ns/other}]"},
		{func() { s.PutGroup(native) }, "map[ns/g:{0 true true false ns/g} ns/other:{1 false false false ns/other}]"},
		{func() { s.RemoveGroup(native) }, "map[ns/g:{3 false false false } ns/other:{1 false false false ns/other}]"},
		{func() { s.RemoveGroup(listing) }, "map[ns/other:{1 false false false ns/other}]"},
		{func() { s.RemovePod(moved) }, "map[]"},
	} {
		c.event()
		if got := fmt.Sprint(bonds); got != c.want {
			t.Errorf("after event %d: %s, want %s", i, got, c.want)
		}
	}
}

// TestATreeOfPodGroupsIsOneGroup: pods are held until its last object has come, and quotas learn of it whatever comes
// last.
func TestATreeOfPodGroupsIsOneGroup(t *testing.T) {
	t.Parallel()
	s, activated := gangs(t)
	bonds := followBonds(s)
	object := func(kind, name, parent string, least int32) *v1alpha1.PodGroup {
		g := podGroup(v1alpha1.NativeGroupName, least)
		g.Kind, g.Name = kind, name
		g.Parent = parent
		return g
	}
	sub := object(v1alpha1.CompositeKind, "g", "root", 2) // a name that a PodGroup has too
	for _, g := range []*v1alpha1.PodGroup{
		object("PodGroup", "g", "g", 1), object("PodGroup", "h", "g", 1), object("PodGroup", "i", "root", 1),
		object(v1alpha1.CompositeKind, "root", "", 2),
	} {
		s.PutGroup(g)
	}
	for _, name := range []string{"g", "h", "i"} {
		p := memberOf("pod-"+name, "1")
		p.Annotations = nil
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
		s.PutPod(p)
	}
	const alone = "map[ns/g:{1 false false false ns/g} ns/h:{1 false false false ns/h} ns/i:{1 false false false ns/i}]"
	const together = "map[ns/g:{1 false false false ns/g,ns/h,ns/i} ns/h:{1 false false false ns/g,ns/h,ns/i} " +
		"ns/i:{1 false false false ns/g,ns/h,ns/i}]"
	for i, c := range []struct {
		event  func()
		opened []string
		bonds  string
	}{
		{func() {}, nil, alone},
		{func() { s.PutGroup(sub) }, []string{"ns/pod-g", "ns/pod-h", "ns/pod-i"}, together},
		{func() { s.PutGroup(sub) }, nil, together},
		{func() { s.RemoveGroup(sub) }, nil, alone},
		{func() { s.PutGroup(sub) }, []string{"ns/pod-g", "ns/pod-h", "ns/pod-i"}, together},
	} {
		c.event()
		if got := activated(); !slices.Equal(got, c.opened) {
			t.Errorf("event %d activates %v, want %v", i, got, c.opened)
		}
		if got := fmt.Sprint(bonds); got != c.bonds {
			t.Errorf("after event %d: %s, want %s", i, got, c.bonds)
		}
	}
}

func TestWhatAnEventDecidesReachesTheHandler(t *testing.T) {
	t.Parallel()
	s, h := kube.NewGangs(), &gangHandler{T: t}
	settings := gang.Settings{Mode: gang.NonStrict, Wait: time.Minute}
	testkit.Check(t, s.Configure(settings, convert.DefaultGangRules()))
	s.Handle(h)
	a, b := memberOf("a", "2"), memberOf("b", "2")
	s.PutPod(a)
	s.PutPod(b)
	start := time.Unix(0, 0)
	reserve := func(p *corev1.Pod) {
		if !s.Pass(p, start) {
			t.Errorf("%s need not wait", p.Name)
		}
		uid := []string{string(p.UID)}
		s.Update(func(s *gang.State) gang.Effects { return s.Conclude(uid, uid, gang.Failure{}, start) })
	}
	reserve(a)
	s.Update(func(s *gang.State) gang.Effects { return s.Expire(start.Add(time.Hour)) })
	if want := []string{"uid-a"}; !slices.Equal(h.returned, want) || len(h.allowed) > 0 {
		t.Fatalf("after the waiting time %v are to return, want %v; allowed %v", h.returned, want, h.allowed)
	}
	h.opened = nil
	if _, _, refused := s.Begin(b); refused.Code != why.GangHolding {
		t.Errorf("one is still returning: %+v", refused)
	}
	s.Update(func(s *gang.State) gang.Effects { return s.Lose("uid-a", why.Finding{}) })
	if want := []string{"ns/a", "ns/b"}; !slices.Equal(h.opened, want) {
		t.Errorf("all have returned, and %v may be tried, want %v", h.opened, want)
	}
	reserve(a)
	reserve(b)
	if want := []string{"uid-a", "uid-b"}; !slices.Equal(h.allowed, want) {
		t.Errorf("both are reserved, and %v may be bound, want %v", h.allowed, want)
	}
	if late := memberOf("c", "2"); !s.Alone(b) || s.Pass(late, start) {
		t.Error("a pod of a gang that has started must wait")
	}
}

func TestPodsOfOtherSchedulersAreNoMembers(t *testing.T) {
	t.Parallel()
	s, _ := gangs(t)
	s.Serve("ours", "ours-too")
	for name, scheduler := range map[string]string{"a": "ours", "b": "theirs", "c": "ours-too"} {
		p := memberOf(name, "3")
		p.Spec.SchedulerName = scheduler
		s.PutPod(p)
	}
	if r := gate(s, memberOf("a", "3")); r.Code != why.GangNotReady || r.Have != 2 {
		t.Errorf("two of ours and one of theirs: %+v", r)
	}
}

func TestOfSeveralPodGroupsOfOneNameTheFirstCounts(t *testing.T) {
	t.Parallel()
	s, activated := gangs(t)
	s.PutPod(inGroup("a"))
	s.PutPod(inGroup("b"))
	if code := gate(s, inGroup("a")).Code; code != why.GangNotFound {
		t.Fatalf("without a PodGroup: %v", code)
	}
	const sigs, community, native = v1alpha1.GroupName, v1alpha1.CommunityGroupName, v1alpha1.NativeGroupName
	s.PutGroup(podGroup(community, 2))
	if got := activated(); len(got) != 2 {
		t.Errorf("activated %v, want both", got)
	}
	s.PutGroup(podGroup(sigs, 3))
	if r := gate(s, inGroup("a")); r.Code != why.GangNotReady || r.Need != 3 {
		t.Errorf("with both: %+v, want 3 of %s", r, sigs)
	}
	s.PutGroup(podGroup(community, 1))
	if r := gate(s, inGroup("a")); r.Need != 3 {
		t.Errorf("the other is put again: %+v", r)
	}
	s.PutGroup(podGroup(native, 4))
	if r := gate(s, inGroup("a")); r.Need != 4 {
		t.Errorf("with all: %+v, want 4 of %s", r, native)
	}
	basic := podGroup(native, 0)
	basic.Basic = true
	s.PutGroup(basic)
	if r := gate(s, inGroup("a")); r.Code != why.None || !s.Alone(inGroup("a")) {
		t.Errorf("Kubernetes' own says that they are not a gang: %+v", r)
	}
	s.RemoveGroup(basic)
	s.RemoveGroup(podGroup(sigs, 3))
	if r := gate(s, inGroup("a")); r.Code != why.None {
		t.Errorf("with that of %s alone: %+v", community, r)
	}
	s.RemoveGroup(podGroup(community, 1))
	if r := gate(s, inGroup("a")); r.Code != why.GangNotFound {
		t.Errorf("both are gone: %+v", r)
	}
}

func TestAllProfilesMustGiveEqualDefaultsOfGangs(t *testing.T) {
	t.Parallel()
	s := kube.NewGangs()
	for i, want := range []bool{true, true, false} {
		d := gang.Settings{Policy: gang.OnlyWaiting}
		if i == 2 {
			d.Policy = gang.OnceSatisfied
		}
		if got := s.Configure(d, convert.DefaultGangRules()) == nil; got != want {
			t.Errorf("call %d is accepted: %v", i, got)
		}
	}
}

// TestGangsFromManyGoroutines is for the race detector, and that each gang is opened once.
func TestGangsFromManyGoroutines(t *testing.T) {
	t.Parallel()
	s := kube.NewGangs()
	testkit.Check(t, s.Configure(gang.Settings{}, convert.DefaultGangRules()))
	opened := &counter{}
	s.Handle(opened)
	const members = 50
	var all sync.WaitGroup
	for i := range members {
		all.Go(func() {
			p := memberOf(fmt.Sprint(i), fmt.Sprint(members))
			s.PutPod(p)
			gate(s, p)
			s.Pods(func(p *corev1.Pod, state *gang.State) bool { return state.Gate(string(p.UID)).Code != why.None })
		})
	}
	all.Wait()
	if n := opened.n.Load(); n != members {
		t.Errorf("%d pods were activated, want %d once", n, members)
	}
}

// counter counts the pods that are activated.
type counter struct {
	gangHandler
	n atomic.Int64
}

func (c *counter) Opened(pods map[string]*corev1.Pod) { c.n.Add(int64(len(pods))) }
