package claims

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/testkit/object"
)

// choosing is a claim whose request has these alternatives.
func choosing(name string, alternatives ...string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{}
	c.Name, c.Namespace = name, "default"
	r := resourcev1.DeviceRequest{Name: "r"}
	for _, a := range alternatives {
		r.FirstAvailable = append(r.FirstAvailable, resourcev1.DeviceSubRequest{Name: a})
	}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{r}
	return c
}

func TestLaterAlternativesComeFirstWhereThatIsAsked(t *testing.T) {
	t.Parallel()
	claims := []*resourcev1.ResourceClaim{choosing("a", "x", "y", "z"), choosing("b"), choosing("c", "x")}
	order := func(cs *framework.CycleState) string {
		var names []string
		for _, c := range inOrder(inOrderOf(t.Context(), cs), claims) {
			for _, a := range c.Spec.Devices.Requests[0].FirstAvailable {
				names = append(names, c.Name+a.Name)
			}
		}
		return strings.Join(names, " ")
	}
	cs := framework.NewCycleState()
	if got := order(cs); got != "ax ay az cx" {
		t.Errorf("in their order: %s", got)
	}
	LaterFirst(cs)
	if got := order(cs); got != "az ay ax cx" {
		t.Errorf("later ones first: %s", got)
	}
	if got := order(cs.Clone().(*framework.CycleState)); got != "az ay ax cx" {
		t.Errorf("later ones first, in a copy of the cycle: %s", got)
	}
	if got := order(framework.NewCycleState()); got != "ax ay az cx" {
		t.Errorf("the claims themselves have changed: %s", got)
	}
}

func TestOnlyOpenClaimsHaveAlternatives(t *testing.T) {
	t.Parallel()
	allocated := choosing("allocated", "x", "y")
	allocated.Status.Allocation = &resourcev1.AllocationResult{}
	known := &cluster{claims: map[string]*resourcev1.ResourceClaim{
		"two": choosing("two", "x", "y"), "one": choosing("one", "x"), "none": choosing("none"), "allocated": allocated,
	}}
	for claim, want := range map[string]bool{
		"two": true, "one": false, "none": false, "allocated": false, "missing": false, "": false,
	} {
		pod := object.Pod("p")
		if claim != "" {
			pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: &claim}}
		}
		if got := HasAlternatives(known, pod); got != want {
			t.Errorf("claim %q: got %t", claim, got)
		}
		if HasAlternatives(nil, pod) {
			t.Errorf("claim %q: an API server without claims has alternatives", claim)
		}
	}
}
