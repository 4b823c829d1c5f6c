package kube

import (
	"context"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Evict asks the Eviction API to delete a pod. The preconditions of o should have the UID of the pod. An error of
// TooManyRequests is a PodDisruptionBudget's; NotFound and Conflict say that the pod is gone.
func Evict(ctx context.Context, client kubernetes.Interface, namespace, name string, o *metav1.DeleteOptions) error {
	return client.PolicyV1().Evictions(namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, DeleteOptions: o,
	})
}
