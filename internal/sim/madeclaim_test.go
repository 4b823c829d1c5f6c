package sim

import (
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

// TestAClaimThatWasMadeAndNotWritten: a scheduler ended after it had created the claim for the extended resource of a
// pod, and before it wrote the device. The next one deletes that claim, and the deletion wakes the pod.
func TestAClaimThatWasMadeAndNotWritten(t *testing.T) {
	const in = `
{apiVersion: v1, kind: Node, metadata: {name: a}, status: {allocatable: {cpu: 4, memory: 4Gi, pods: 10}}}
---
{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: card}, spec: {extendedResourceName: x.com/card}}
---
`
	l := newLive(t, in+strings.TrimSuffix(cardsOf("a", 1), "---"))
	left := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceDefault, Name: "p-extended-resources-1", UID: "left",
		Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "uid-p", Controller: new(true)},
		},
	}}
	left.Spec.Devices.Requests = []resourcev1.DeviceRequest{{
		Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "card", Count: 1},
	}}
	l.api.create(l.api.claims, left)
	l.pod("p", 1, testobject.Both("x.com/card", "1"))
	l.runUntilIdle()
	pods := l.on("p")
	if len(pods) != 1 {
		t.Fatalf("%d pods have a node, want 1", len(pods))
	}
	made := allocations(t, l.engine)
	if status := pods[0].Status.ExtendedResourceClaimStatus; status == nil || len(made) != 1 ||
		made[status.ResourceClaimName] == "" || status.ResourceClaimName == left.Name {
		t.Errorf("the pod has %+v, and claims are %v", status, made)
	}
}
