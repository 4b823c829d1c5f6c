package kube_test

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
)

func devices(list corev1.ResourceList, name corev1.ResourceName, n int64) {
	list[name] = *resource.NewQuantity(n, resource.DecimalSI)
}

// TestAQuotaOnOneNameOfADeviceHoldsPodsThatUseAnother: three pods for whole GPUs, a share and a part of memory, each by
// a name of its own, against two GPUs of a quota that names them as whole ones, and then in percent.
func TestAQuotaOnOneNameOfADeviceHoldsPodsThatUseAnother(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit corev1.ResourceName
		most  int64
		total int64
		asked int64 // by all pods
		third bool  // is admitted
	}{
		{"nvidia.com/gpu", 2, 8, 3, false},
		{"koordinator.sh/gpu", 200, 800, 250, false},
		{"koordinator.sh/gpu-core", 200, 800, 150, true},
	} {
		_, s := clockAt()
		for _, name := range []string{"nvidia", "koordinator"} {
			n := sized(name, 10)
			if name == "nvidia" {
				devices(n.Status.Allocatable, "nvidia.com/gpu", 4)
			} else {
				devices(n.Status.Allocatable, "koordinator.sh/gpu-core", 400)
				devices(n.Status.Allocatable, "koordinator.sh/gpu-memory-ratio", 400)
			}
			s.PutNode(n)
		}
		for name, asked := range map[string]corev1.ResourceList{
			"whole":  {"nvidia.com/gpu": resource.MustParse("1")},
			"share":  {"kubernetes.io/gpu": resource.MustParse("50")},
			"memory": {"koordinator.sh/gpu-memory": resource.MustParse("8Gi")},
		} {
			p := asking(name, "team", "", 1)
			maps.Copy(p.Spec.Containers[0].Resources.Requests, asked)
			s.PutPod(p)
		}
		q := elastic("a", "team", 0, 10)
		devices(q.Spec.Max, c.limit, c.most)
		s.PutQuota(q) // after pods and nodes
		if got := report(t, s, "team"); got.Request[string(c.limit)] != c.asked {
			t.Errorf("%s: request %v, want %d", c.limit, got.Request, c.asked)
		}
		if got := report(t, s, "koordinator-root-quota"); got.Runtime[string(c.limit)] != c.total {
			t.Errorf("%s: total %v, want %d", c.limit, got.Runtime, c.total)
		}
		if x := s.Reserve("whole", "share"); x != nil {
			t.Errorf("%s: one and a half of two GPUs are refused: %v", c.limit, x)
		}
		if x := admit(s, "memory"); (x == nil) != c.third {
			t.Errorf("%s: the third pod: %v", c.limit, x)
		}

		// Without the limit, nothing but what objects say is counted.
		s.RemoveQuota(q)
		s.PutQuota(elastic("a", "team", 0, 10))
		if got := report(t, s, "team").Request; len(got) != 4 {
			t.Errorf("%s: request %v without a limit, want CPU and three names that pods use", c.limit, got)
		}
	}
}

func TestTheTotalOfATreeCountsUnderEveryNameOfADevice(t *testing.T) {
	t.Parallel()
	_, s := clockAt()
	top := elastic("a", "top", 0, 10, annotation.QuotaIsRoot, "true", annotation.QuotaIsParent, "true",
		annotation.QuotaTreeID, "t")
	top.Annotations = map[string]string{annotation.QuotaTotal: `{"nvidia.com/gpu":4}`}
	s.PutQuota(top)
	team := elastic("a", "team", 0, 10, annotation.QuotaParent, "top", annotation.QuotaTreeID, "t")
	devices(team.Spec.Max, "koordinator.sh/gpu-core", 1000)
	s.PutQuota(team)
	p := asking("p", "team", "", 1)
	devices(p.Spec.Containers[0].Resources.Requests, "koordinator.sh/gpu", 700)
	s.PutPod(p)
	if got := report(t, s, "team").Runtime["koordinator.sh/gpu-core"]; got != 400 {
		t.Errorf("runtime %d of 7 GPUs asked and 4 there are, want 400 percent", got)
	}
}
