package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bindAll is the trivial binder: it decides nothing and posts one Binding a pod, round robin. What it reaches is the
// floor that the control plane sets.
func bindAll(ctx context.Context, kubeconfig string, nodes int) error {
	c, err := connect(kubeconfig, 0)
	if err != nil {
		return err
	}
	pods, err := c.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return each(ctx, len(pods.Items), func(ctx context.Context, i int) error {
		pod := &pods.Items[i]
		return c.kube.CoreV1().Pods(namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: namespace, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: nodeName(i % nodes)},
		}, metav1.CreateOptions{})
	})
}
