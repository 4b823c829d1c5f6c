package claims

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit"
)

// stocked is a cluster with a class of all devices.
type stocked struct{ *cluster }

func (stocked) DeviceClasses() fwk.DeviceClassLister { return classesOf{} }

// alone is the rest of pods that ask for nothing but devices.
type alone struct{}

func (alone) Asked(fwk.CycleState, string) (*ledger.View, *place.Request) { return nil, nil }
func (alone) Claim(fwk.CycleState, string, topo.NodeSet, int)             {}
func (alone) Trial(fwk.CycleState) View                                   { return nil }
func (alone) AsksForDevices(*corev1.Pod) *place.Request                   { return nil }
func (alone) Offered(fwk.CycleState, *corev1.Pod, string, *ledger.View) (e ledger.Entry, ok bool) {
	return e, false
}

// answering is a filter with one answer.
type answering struct {
	fwk.FilterPlugin
	status *fwk.Status
	asked  int
}

func (a *answering) Filter(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) *fwk.Status {
	a.asked++
	return a.status
}

// TestANodeKeepsDevicesForPodsThatStart: a node has a card of model a and two of model b. Pod old has those of claim
// old, and pod p is tried, beside others that start there.
func TestANodeKeepsDevicesForPodsThatStart(t *testing.T) {
	t.Parallel()
	one := func(model string) [][]want { return [][]want{{{model: model, count: 1}}} }
	type starts = map[string][][]want
	for name, c := range map[string]struct {
		own    [][]want
		starts starts // by the names s0, s1, in this order
		old    int    // the card that old has
		goes   bool   // old leaves
		ahead  bool   // p has what it gets before old leaves
		change func(*plan, *cluster)
		filter *fwk.Status
		want   string // the pod that devices are kept for; "" for success
	}{
		"enough for both":                 {own: one("a"), starts: starts{"s0": one("b")}, old: 1},
		"too few of a model":              {own: one("b"), starts: starts{"s0": one("b")}, old: 1, want: "ns/s0"},
		"enough once another has left":    {own: one("b"), starts: starts{"s0": one("b")}, old: 1, goes: true},
		"the first device is the other's": {own: one(""), starts: starts{"s0": one("a")}, old: 1, want: "ns/s0"},
		"what leaves is not the pod's": {
			own: one(""), starts: starts{"s0": one("a")}, old: 0, goes: true, ahead: true,
		},
		"what leaves would be the pod's": {
			own: one(""), starts: starts{"s0": one("a")}, old: 0, goes: true, want: "ns/s0",
		},
		"enough for one of two": {
			own: one("a"), starts: starts{"s0": one("b"), "s1": one("b")}, old: 1, want: "ns/s1",
		},
		"a claim that two share": {
			own: one("a"), starts: starts{"s0": one("b"), "s1": nil}, old: 1,
		},
		"two claims of one": {
			own: one("b"), starts: starts{"s0": append(one("a"), one("b")...)}, old: 1, want: "ns/s0",
		},
		"devices that it has": {
			own: one("b"), starts: starts{"s0": one("b")}, old: 1, change: func(_ *plan, all *cluster) {
				all.claims["s0"].Status.Allocation = &resourcev1.AllocationResult{}
			},
		},
		"devices that it was promised": {
			own: one("b"), starts: starts{"s0": one("b")}, old: 1, change: func(_ *plan, all *cluster) {
				all.pending["s0-0"] = &resourcev1.AllocationResult{}
			},
		},
		"a claim of the pod itself": {
			own: one("b"), starts: starts{"s0": nil}, old: 1, change: func(_ *plan, all *cluster) {
				all.claims["s0"] = all.claims["p"]
			},
		},
		"a pod that has its devices": {
			own: one("a"), starts: starts{"s0": [][]want{{{model: "b", count: 2}}}}, old: 1, want: "ns/s0",
			change: func(p *plan, _ *cluster) { p.claims[0].Status.Allocation = &resourcev1.AllocationResult{} },
		},
		"claims that change meanwhile": {
			own: one("b"), starts: starts{"s0": one("b")}, old: 1,
			change: func(p *plan, _ *cluster) { p.state = nil },
		},
		"a device that another one was promised as soon as it is free": {
			own: one("b"), starts: starts{"s0": one("b")}, old: 1, goes: true, want: "ns/s0",
			change: func(_ *plan, all *cluster) {
				all.claims["sibling"] = newClaim("sibling", false)
				all.pending["sibling"] = all.claims["old"].Status.Allocation
			},
		},
		"no other pod": {own: one("b"), old: 1},
		"a node without devices": {
			own: one("b"), starts: starts{"s0": one("b")}, old: 1, filter: fwk.NewStatus(fwk.Unschedulable, "none"),
			want: "none",
		},
		"a node that was asked already": {
			own: one("a"), starts: starts{"s0": one("b")}, old: 1, ahead: true,
			filter: fwk.NewStatus(fwk.Unschedulable, "none"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := &cluster{
				claims: map[string]*resourcev1.ResourceClaim{}, pending: map[types.UID]*resourcev1.AllocationResult{},
			}
			s := situation{cards: []card{{model: "a", chip: -1}, {model: "b", chip: -1}, {model: "b", chip: -1}}}
			s.cards[c.old].allocated = true
			using := func(name string, wants [][]want) *corev1.Pod {
				pod := &corev1.Pod{}
				pod.Name, pod.Namespace, pod.UID = name, "ns", types.UID(name)
				_, claims, _ := (&situation{claims: wants}).objects()
				for i, own := range claims {
					claimName := name
					if i > 0 {
						claimName = fmt.Sprint(name, i)
					}
					own.Name, own.UID = claimName, types.UID(fmt.Sprint(name, "-", i))
					all.claims[claimName] = own
					pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims,
						corev1.PodResourceClaim{Name: claimName, ResourceClaimName: &claimName})
				}
				return pod
			}
			pod, old := using("p", c.own), using("old", one(""))
			all.claims["old"].Status = resourcev1.ResourceClaimStatus{
				ReservedFor: []resourcev1.ResourceClaimConsumerReference{{UID: old.UID}},
				Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
					Results: []resourcev1.DeviceRequestAllocationResult{
						{Driver: "x", Pool: "n", Device: fmt.Sprint("d", c.old)},
					},
				}},
			}
			q, _ := s.question()
			p := q.plan
			p.others, p.dra, p.claims = alone{}, stocked{all}, claimsOf(stocked{all}, pod)
			node := framework.NewNodeInfo()
			node.SetNode(q.node)
			cs := framework.NewCycleState()
			cs.Write(planKey, p)
			first, filter := &chosenFirst{c: p.choice}, &answering{status: c.filter}
			var later []*corev1.Pod
			for _, name := range []string{"s0", "s1"} {
				wants, given := c.starts[name]
				if !given {
					continue
				}
				next := using(name, wants)
				if wants == nil { // it shares that of s0
					next.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: new("s0")}}
				}
				later = append(later, next)
			}
			if c.change != nil {
				c.change(p, all)
			}
			if c.ahead {
				LookAhead(t.Context(), cs, pod, q.node)
			}
			info := func(p *corev1.Pod) fwk.PodInfo {
				info, err := framework.NewPodInfo(p)
				testkit.Check(t, err)
				return info
			}
			if c.goes {
				first.RemovePod(t.Context(), cs, pod, info(old), node)
			}
			for _, next := range later {
				first.AddPod(t.Context(), cs, pod, info(next), node)
			}
			status := (&chosenFilter{filter, p.choice}).Filter(t.Context(), cs, pod, node)
			got := status.Message()
			var refusal *lacking
			if errors.As(status.AsError(), &refusal) {
				got = refusal.detail
			}
			if got != c.want || (filter.asked == 0) != c.ahead {
				t.Errorf("got %q, want %q; the plugin was asked %d times", got, c.want, filter.asked)
			}
		})
	}
}

// TestWhichPodsANodeIsKeptFor: pods that a dry run takes back are none of them, and neither are those without claims.
func TestWhichPodsANodeIsKeptFor(t *testing.T) {
	t.Parallel()
	using := func(name string, claims ...corev1.PodResourceClaim) fwk.PodInfo {
		pod := &corev1.Pod{Spec: corev1.PodSpec{ResourceClaims: claims}}
		pod.Name, pod.UID = name, types.UID(name)
		info, err := framework.NewPodInfo(pod)
		testkit.Check(t, err)
		return info
	}
	own := corev1.PodResourceClaim{Name: "c"}
	victim, held, plain := using("victim", own), using("held", own), using("plain")
	first, cs := &chosenFirst{c: &choice{others: alone{}, dra: &shop{}}}, framework.NewCycleState()
	LookAhead(t.Context(), cs, nil, &corev1.Node{})
	first.AddPod(t.Context(), cs, nil, held, nil)
	if got := startersOf(cs); got != nil {
		t.Errorf("a pod without claims is tried: %v", got)
	}
	cs.Write(planKey, &plan{})
	first.RemovePod(t.Context(), cs, nil, victim, nil)
	for _, p := range []fwk.PodInfo{victim, plain, held} {
		first.AddPod(t.Context(), cs, nil, p, nil)
	}
	other := cs.Clone()
	first.AddPod(t.Context(), other, nil, using("second", own), nil)
	for cs, want := range map[fwk.CycleState]string{cs: "[held]", other: "[held second]"} {
		var got []string
		for _, p := range startersOf(cs) {
			got = append(got, p.Name)
		}
		if fmt.Sprint(got) != want || victimsOf(cs).has("victim") {
			t.Errorf("got %v, want %s; the victim is one: %t", got, want, victimsOf(cs).has("victim"))
		}
	}
}
