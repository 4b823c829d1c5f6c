package app

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/testkit/object"
)

// testPod asks for two whole CPUs with equal limits.
func testPod(name string) *corev1.Pod {
	return object.Pod(name, object.Scheduler(SchedulerName), object.Both("cpu", "2", "memory", "1Gi"))
}
