//go:build linux

package stage

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func amounts(cpu, memory string) corev1.ResourceList {
	l := corev1.ResourceList{}
	if cpu != "" {
		l[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		l[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return l
}

func TestPodsHaveTheGroupsThatAKubeletGivesThem(t *testing.T) {
	t.Parallel()
	s := &Stage{group: "/tenon-e2e-7/1"}
	for name, test := range map[string]struct {
		resources corev1.ResourceRequirements
		want      string
	}{
		"nothing asked": {corev1.ResourceRequirements{}, "/tenon-e2e-7/1/kubepods/besteffort/podu"},
		"a request": {
			corev1.ResourceRequirements{Requests: amounts("1", "")},
			"/tenon-e2e-7/1/kubepods/burstable/podu",
		},
		"limits alone": {
			corev1.ResourceRequirements{Limits: amounts("1", "1Gi")},
			"/tenon-e2e-7/1/kubepods/podu",
		},
		"a limit of CPU only": {
			corev1.ResourceRequirements{Limits: amounts("1", "")},
			"/tenon-e2e-7/1/kubepods/burstable/podu",
		},
		"a larger limit": {
			corev1.ResourceRequirements{Requests: amounts("1", "1Gi"), Limits: amounts("2", "1Gi")},
			"/tenon-e2e-7/1/kubepods/burstable/podu",
		},
		"equal ones": {
			corev1.ResourceRequirements{Requests: amounts("1", "1Gi"), Limits: amounts("1", "1Gi")},
			"/tenon-e2e-7/1/kubepods/podu",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{UID: "u"},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: test.resources}}},
			}
			if diff := cmp.Diff(test.want, s.PodGroup(pod)); diff != "" {
				t.Errorf("group (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResourcesAreThoseOfAKubelet(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		resources             corev1.ResourceRequirements
		shares, quota, memory int64
	}{
		"nothing":      {corev1.ResourceRequirements{}, 2, 0, 0},
		"a request":    {corev1.ResourceRequirements{Requests: amounts("500m", "")}, 512, 0, 0},
		"a limit":      {corev1.ResourceRequirements{Limits: amounts("2", "64Mi")}, 2048, 200_000, 64 << 20},
		"a tiny limit": {corev1.ResourceRequirements{Limits: amounts("1m", "")}, 2, 1_000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Resources(test.resources)
			if got.GetCpuShares() != test.shares || got.GetCpuQuota() != test.quota ||
				got.GetMemoryLimitInBytes() != test.memory {
				t.Errorf("shares %d, quota %d, memory %d; want %d, %d, %d",
					got.GetCpuShares(), got.GetCpuQuota(), got.GetMemoryLimitInBytes(), test.shares, test.quota,
					test.memory)
			}
		})
	}
}
