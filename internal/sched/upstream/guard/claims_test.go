package guard

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/component-base/metrics"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/core/claim"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// claims are the ResourceClaims of a cluster by name.
type claims struct {
	fwk.SharedDRAManager
	fwk.ResourceClaimTracker
	byName map[string]*resourcev1.ResourceClaim
}

func (c claims) ResourceClaims() fwk.ResourceClaimTracker { return c }

func (c claims) Get(_, name string) (*resourcev1.ResourceClaim, error) {
	if claim := c.byName[name]; claim != nil {
		return claim, nil
	}
	return nil, errors.New("not found")
}

// dynamic stands for DynamicResources.
type dynamic struct {
	fwk.PreFilterPlugin
	status *fwk.Status
}

func (dynamic) Name() string { return names.DynamicResources }

func (dynamic) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func (d dynamic) PreFilter(context.Context, fwk.CycleState, *corev1.Pod, []fwk.NodeInfo) (*fwk.PreFilterResult,
	*fwk.Status,
) {
	return nil, d.status
}

func exactly(n int64) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{Exactly: &resourcev1.ExactDeviceRequest{Count: n}}
}

func oneOf(counts ...int64) (r resourcev1.DeviceRequest) {
	for _, n := range counts {
		r.FirstAvailable = append(r.FirstAvailable, resourcev1.DeviceSubRequest{Count: n})
	}
	return r
}

func TestAClaimThatNoAllocationServesIsRefused(t *testing.T) {
	t.Parallel()
	if claim.MostDevices != resourcev1.AllocationResultsMaxSize {
		t.Errorf("an allocation has %d devices, not %d", resourcev1.AllocationResultsMaxSize, claim.MostDevices)
	}
	all := resourcev1.DeviceRequest{Exactly: &resourcev1.ExactDeviceRequest{
		AllocationMode: resourcev1.DeviceAllocationModeAll,
	}}
	type requests = []resourcev1.DeviceRequest
	const most = " 9223372036854775807 "
	for name, test := range map[string]struct {
		requests  []resourcev1.DeviceRequest
		allocated bool
		inner     *fwk.Status
		missing   bool
		want      string // of the refusal, empty for none
	}{
		"as many as an allocation has":   {requests: requests{exactly(16), exactly(16), all}},
		"one more":                       {requests: requests{exactly(16), exactly(17)}, want: " 33 "},
		"counts whose sum overflows":     {requests: requests{exactly(1 << 62), exactly(1 << 62)}, want: most},
		"the largest count of all":       {requests: requests{exactly(math.MaxInt64)}, want: most},
		"a smaller alternative":          {requests: requests{oneOf(1<<62, 2), exactly(30)}},
		"no alternative is small enough": {requests: requests{oneOf(1<<62, 3), exactly(30)}, want: " 33 "},
		"the claim is allocated already": {requests: requests{exactly(33)}, allocated: true},
		"the claim does not exist":       {missing: true},
		"the plugin has refused the pod": {
			requests: requests{exactly(33)}, inner: fwk.NewStatus(fwk.Unschedulable, "other"),
		},
		"the plugin has nothing to do with": {requests: requests{exactly(33)}, inner: fwk.NewStatus(fwk.Skip)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &resourcev1.ResourceClaim{}
			c.Name, c.Spec.Devices.Requests = "c", test.requests
			if test.allocated {
				c.Status.Allocation = &resourcev1.AllocationResult{}
			}
			known := claims{byName: map[string]*resourcev1.ResourceClaim{"c": c}}
			if test.missing {
				known.byName = nil
			}
			pod := object.Pod("p")
			pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "d", ResourceClaimName: ptr.To("c")}}
			g := New(func(...metrics.Registerable) {}, nil)
			_, status := g.preFilter(dynamic{status: test.inner}, known).PreFilter(t.Context(),
				framework.NewCycleState(), pod, nil)
			var refused *tooLarge
			if errors.As(status.AsError(), &refused) != (test.want != "") {
				t.Fatalf("got %v, want the refusal %q", status, test.want)
			}
			if test.want == "" {
				if status != test.inner {
					t.Errorf("got %v, want what the plugin says: %v", status, test.inner)
				}
				return
			}
			f := refused.Finding()
			says := "ResourceClaim c requests at least" + test.want
			if f.Code != why.ClaimTooLarge || !strings.Contains(f.Detail, says) ||
				!strings.Contains(f.Detail, "at most 32") || status.Code() != fwk.UnschedulableAndUnresolvable {
				t.Errorf("got %v, %v", status.Code(), f)
			}
		})
	}
}

// nothing is a plugin that lets each pod pass.
type nothing struct{ fwk.FilterPlugin }

func (nothing) Name() string { return "Nothing" }

func (nothing) Filter(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) *fwk.Status {
	return nil
}

func TestAGuardedFilterAllocatesNothing(t *testing.T) {
	g := New(func(...metrics.Registerable) {}, nil)
	var p fwk.FilterPlugin = &filter{nothing{}, g.at(nothing{}, "Filter")}
	ctx, pod := t.Context(), object.Pod("p")
	if n := testing.AllocsPerRun(100, func() { p.Filter(ctx, nil, pod, nil) }); n != 0 {
		t.Errorf("got %v allocations for a node, want none", n)
	}
}
