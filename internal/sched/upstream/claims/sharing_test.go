package claims

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// cluster is the claims of a cluster, by name, which is also the UID.
type cluster struct {
	fwk.SharedDRAManager
	fwk.ResourceClaimTracker
	claims  map[string]*resourcev1.ResourceClaim
	pending map[types.UID]*resourcev1.AllocationResult
}

func (c *cluster) ResourceClaims() fwk.ResourceClaimTracker { return c }

func (c *cluster) DeviceClassResolver() fwk.DeviceClassResolver { return c }

func (*cluster) GetDeviceClass(name corev1.ResourceName) *resourcev1.DeviceClass {
	if name == "example.com/card" {
		return &resourcev1.DeviceClass{}
	}
	return nil
}

func (c *cluster) Get(_, name string) (*resourcev1.ResourceClaim, error) {
	if claim := c.claims[name]; claim != nil {
		return claim, nil
	}
	return nil, errors.New("not found")
}

func (c *cluster) List() ([]*resourcev1.ResourceClaim, error) {
	return slices.Collect(maps.Values(c.claims)), nil
}

func (c *cluster) GetPendingAllocation(uid types.UID) *resourcev1.AllocationResult {
	return c.pending[uid]
}

func (c *cluster) MaybeRemoveClaimPendingAllocation(uid types.UID, _ bool) bool {
	delete(c.pending, uid)
	return true
}

func newClaim(name string, allocated bool) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{}
	c.Name, c.UID = name, types.UID(name)
	if allocated {
		c.Status.Allocation = &resourcev1.AllocationResult{}
	}
	return c
}

// dynamic stands for DynamicResources. It records in which group's cycle it is called.
type dynamic struct {
	fwk.PreFilterPlugin
	fwk.ReservePlugin
	fwk.PreBindPlugin

	calls []string
	group fwk.PodGroupCycleState // of the last call
	ended bool                   // the context of the last call
	enter func(pod string)       // called in PreBind
}

func (*dynamic) Name() string { return names.DynamicResources }

// read is what the plugin has read of a pod.
type read struct{ claims []string }

func (r *read) Clone() fwk.StateData { return r }

func (d *dynamic) note(ctx context.Context, call string, cs fwk.CycleState, pod *corev1.Pod) {
	d.calls = append(d.calls, call+" "+pod.Name)
	d.group, d.ended = cs.GetPodGroupSchedulingCycle(), ctx.Err() != nil
}

func (d *dynamic) PreFilter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	d.note(ctx, "PreFilter", cs, pod)
	r := &read{}
	for i := range pod.Spec.ResourceClaims {
		r.claims = append(r.claims, *pod.Spec.ResourceClaims[i].ResourceClaimName)
	}
	cs.Write(pluginKey, r)
	return nil, nil
}

func (d *dynamic) Reserve(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, _ string) *fwk.Status {
	d.note(ctx, "Reserve", cs, pod)
	return nil
}

func (d *dynamic) Unreserve(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, _ string) {
	d.note(ctx, "Unreserve", cs, pod)
}

func (d *dynamic) PreBind(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) *fwk.Status {
	d.enter(pod.Name)
	return nil
}

// member is a pod of gang g with claims.
func member(name string, claims ...string) *corev1.Pod {
	pod := object.Pod(name, object.UID(name))
	for i := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{
			Name: claims[i], ResourceClaimName: &claims[i],
		})
	}
	return pod
}

// gangs has one gang. Its value is whether cycles only try a pod.
type gangs bool

func (gangs) StartsWith(p *corev1.Pod) string {
	if p.Name == "alone" {
		return ""
	}
	return "default/g"
}

func (g gangs) IsTrial(fwk.CycleState) bool { return bool(g) }

func (gangs) PodGroup(string, string) *v1alpha1.PodGroup { return nil }

func (gangs) Trial(fwk.CycleState) View { return nil }

func (gangs) Follow(fwk.CycleState, string) {}

// sharingOf is a Sharing around d, in which pods of the name "alone" are of no gang.
func sharingOf(c *cluster, d *dynamic, planning bool) *plugin {
	return &plugin{Sharing: NewSharing(gangs(planning)), dra: c, preFilter: d}
}

// TestThePluginIsAskedInTheCycleOfAGang: for members alone, and the gang is forgotten with its last reserved member.
func TestThePluginIsAskedInTheCycleOfAGang(t *testing.T) {
	t.Parallel()
	extended := member("extended", "s")
	extended.Spec.Containers = object.Pod("x", object.Both("example.com/card", "1")).Spec.Containers
	for name, tt := range map[string]struct {
		pod   *corev1.Pod
		group bool
	}{
		"a member with claims":                         {member("a", "s"), true},
		"a member without claims":                      {member("a"), false},
		"a pod of no gang":                             {member("alone", "s"), false},
		"a member with devices for extended resources": {extended, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &dynamic{}
			p := sharingOf(&cluster{claims: map[string]*resourcev1.ResourceClaim{"s": newClaim("s", false)}}, d, false)
			cs := framework.NewCycleState()
			_, _ = (&preFilter{d, p}).PreFilter(t.Context(), cs, tt.pod, nil)
			if (d.group != nil) != tt.group {
				t.Errorf("PreFilter: in the cycle of a group: %v", d.group != nil)
			}
			_ = (&reserve{d, p}).Reserve(t.Context(), cs, tt.pod, "n")
			reserved := d.group
			if (reserved != nil) != tt.group || cs.GetPodGroupSchedulingCycle() != nil {
				t.Errorf("Reserve: in the cycle of a group: %v", reserved != nil)
			}
			(&reserve{d, p}).Unreserve(t.Context(), cs, tt.pod, "n")
			if d.group != reserved || d.ended {
				t.Errorf("Unreserve: in the cycle of another group, or the context has ended: %v", d.ended)
			}
			if len(p.groups)+len(p.byPod) > 0 {
				t.Errorf("%d groups and %d pods are known at the end", len(p.groups), len(p.byPod))
			}
		})
	}
}

// TestAPlanWritesNothing: upstream's Unreserve would tell the API server.
func TestAPlanWritesNothing(t *testing.T) {
	t.Parallel()
	d := &dynamic{}
	p := sharingOf(&cluster{}, d, true)
	(&reserve{d, p}).Unreserve(t.Context(), framework.NewCycleState(), member("a", "s"), "n")
	if !d.ended {
		t.Error("the context of the plugin has not ended")
	}
}

// TestThePodsOfAClaimAreBoundOneAfterTheOther: those that share one wait, others do not, and a pod whose claim was
// written meanwhile reads it again.
func TestThePodsOfAClaimAreBoundOneAfterTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{claims: map[string]*resourcev1.ResourceClaim{
			"s": newClaim("s", false), "o": newClaim("o", false), "other": newClaim("other", false),
		}, pending: map[types.UID]*resourcev1.AllocationResult{}}
		release := make(chan struct{})
		entered := map[string]bool{}
		d := &dynamic{}
		d.enter = func(pod string) {
			entered[pod] = true
			if <-release; pod == "a" { // which writes it
				c.claims["s"] = newClaim("s", true)
			}
		}
		p := sharingOf(c, d, false)
		states := map[string]fwk.CycleState{}
		pods := []*corev1.Pod{member("a", "s", "o"), member("b", "o", "s"), member("c", "other"), member("late", "s")}
		for _, pod := range pods {
			states[pod.Name] = framework.NewCycleState()
			_, _ = (&preFilter{d, p}).PreFilter(t.Context(), states[pod.Name], pod, nil)
			_ = (&reserve{d, p}).Reserve(t.Context(), states[pod.Name], pod, "n")
			c.pending["s"] = &resourcev1.AllocationResult{}
		}
		done := make(chan string, len(pods))
		bind := func(ctx context.Context, pod *corev1.Pod) {
			status := (&preBind{d, p}).PreBind(ctx, states[pod.Name], pod, "n")
			done <- fmt.Sprint(pod.Name, " ", status.IsSuccess())
		}
		ctx, cancel := context.WithCancel(t.Context())
		go bind(t.Context(), pods[0])
		synctest.Wait()
		go bind(t.Context(), pods[1])
		go bind(t.Context(), pods[2])
		go bind(ctx, pods[3])
		synctest.Wait()
		if got := slices.Sorted(maps.Keys(entered)); !slices.Equal(got, []string{"a", "c"}) {
			t.Errorf("in PreBind are %v, want a and c", got)
		}
		cancel() // late is deleted
		synctest.Wait()
		calls := len(d.calls)
		release <- struct{}{} // one of a and c; both go on
		release <- struct{}{}
		release <- struct{}{}
		var ended []string
		for range pods {
			ended = append(ended, <-done)
		}
		slices.Sort(ended)
		if want := []string{"a true", "b true", "c true", "late false"}; !slices.Equal(ended, want) {
			t.Errorf("got %v, want %v", ended, want)
		}
		if got := d.calls[calls:]; !slices.Equal(got, []string{"PreFilter b"}) {
			t.Errorf("read again were %v, want the claims of b", got)
		}
		if c.pending["s"] != nil {
			t.Error("the claim is still pending after it was written")
		}
		(&reserve{d, p}).Unreserve(t.Context(), states["late"], pods[3], "n")
		if len(p.groups)+len(p.byPod)+len(p.writing) > 0 {
			t.Errorf("known at the end: %v, %v, %v", p.groups, p.byPod, p.writing)
		}
	})
}
