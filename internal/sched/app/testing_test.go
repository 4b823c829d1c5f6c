package app

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// testPod asks for two whole CPUs with equal limits.
func testPod(name string) *corev1.Pod {
	amount := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("2"),
		corev1.ResourceMemory: resource.MustParse("1Gi"),
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{
			SchedulerName: SchedulerName,
			Containers: []corev1.Container{{
				Name: "c", Image: "x",
				Resources: corev1.ResourceRequirements{Requests: amount, Limits: amount},
			}},
		},
	}
}
