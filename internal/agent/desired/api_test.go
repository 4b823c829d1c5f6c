package desired_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

func TestWhatAPodUsesOfTenon(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		labels, annotations map[string]string
		uses                bool
	}{
		"nothing": {nil, nil, false},
		"labels and annotations of others": {
			map[string]string{"app": "web"}, map[string]string{
				"kubernetes.io/config.source": "api",
				annotation.SimulateKey:        "{}",
			}, false,
		},
		"a class":              {map[string]string{annotation.QoSClass: "LS"}, nil, true},
		"a class that is none": {map[string]string{annotation.QoSClass: "X"}, nil, true},
		"an allocation":        {nil, map[string]string{annotation.ResourceStatusKey: "{}"}, true},
		"a wish":               {nil, map[string]string{annotation.ResourceSpecKey: "{}"}, true},
		"devices":              {nil, map[string]string{annotation.DeviceAllocatedKey: "{}"}, true},
		"the fence": {
			nil,
			map[string]string{annotation.RequiredPlugins: `["tenon-agent"]`},
			true,
		},
		"the fence of one container": {
			nil,
			map[string]string{annotation.RequiredPlugins + "/container.main": `["tenon-agent"]`},
			true,
		},
		"the fence of another plugin": {nil, map[string]string{annotation.RequiredPlugins: `["other"]`}, false},
		"a key that only begins like one": {
			nil,
			map[string]string{annotation.RequiredPlugins + ".example": `["tenon-agent"]`},
			false,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := desired.Uses(tt.labels, tt.annotations); got != tt.uses {
				t.Errorf("Uses = %v, want %v", got, tt.uses)
			}
		})
	}
}

func TestAPodIsTranslatedForItsNode(t *testing.T) {
	t.Parallel()
	bound := func(class, status string) *corev1.Pod {
		return object.Pod("ns/p", object.UID("u"), object.On("n"), object.Class(class), object.Requests("cpu", "2"),
			object.Annotation(annotation.ResourceStatusKey, status))
	}
	static := bound("", "")
	static.Annotations[corev1.MirrorPodAnnotationKey] = "of-the-node"
	tests := map[string]struct {
		pod             *corev1.Pod
		uid, cpus       string
		role            qos.Role
		uses, malformed bool
	}{
		"a pod that uses nothing": {bound("", ""), "u", "", qos.SharedPool, false, false},
		"a bound pod":             {bound("LSE", `{"cpuset":"2-3"}`), "u", "2-3", qos.Exclusive, true, false},
		"a pod that its node bound": {
			bound("", `{"cpuset":"2-3"}`), "u", "2-3", qos.ExclusiveWithBE, true,
			false,
		},
		"an allocation that is not JSON":  {bound("LS", `{"cpuset"`), "u", "", qos.SharedPool, true, true},
		"an allocation with a bad cpuset": {bound("LSR", `{"cpuset":"x"}`), "u", "", qos.ExclusiveWithBE, true, true},
		"the mirror of a static pod":      {static, "of-the-node", "", qos.SharedPool, false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := desired.FromAPI(convert.ReadPod(tt.pod))
			if got.Entry.UID != tt.uid || got.Entry.CPUList != tt.cpus || got.Entry.Role != tt.role ||
				got.Uses != tt.uses || (got.Malformed != "") != tt.malformed {
				t.Errorf("FromAPI = %+v, want UID %s, CPUs %q, %v, uses %v, malformed %v", got, tt.uid, tt.cpus,
					tt.role, tt.uses, tt.malformed)
			}
		})
	}
}

func TestTypesOfDevicesThatAPodRequests(t *testing.T) {
	t.Parallel()
	list := func(names ...string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for _, name := range names {
			l[corev1.ResourceName(name)] = resource.MustParse("1")
		}
		return l
	}
	limits := func(names ...string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: list(names...)}
	}
	for name, test := range map[string]struct {
		init, main corev1.ResourceRequirements
		want       []string
	}{
		"CPUs and memory": {main: corev1.ResourceRequirements{Requests: list("cpu", "memory", "hugepages-2Mi")}},
		"others' devices": {main: limits("example.com/gpu", "koordinator.sh/gpus")},
		"a share": {
			main: corev1.ResourceRequirements{Requests: list("koordinator.sh/gpu-core", "koordinator.sh/gpu-memory")},
			want: []string{"gpu"},
		},
		"an alias":      {main: limits("kubernetes.io/gpu"), want: []string{"gpu"}},
		"shared GPUs":   {main: limits("koordinator.sh/gpu.shared"), want: []string{"gpu"}},
		"a vendor's":    {main: limits("amd.com/gpu"), want: []string{"gpu"}},
		"a slice":       {main: limits("nvidia.com/mig-1g.5gb"), want: []string{"gpu"}},
		"none of a GPU": {main: corev1.ResourceRequirements{Limits: object.List("nvidia.com/gpu", "0")}},
		"several types of several containers": {
			init: limits("koordinator.sh/rdma", "nvidia.com/gpu"),
			main: limits("koordinator.sh/fpga", "koordinator.sh/gpu"),
			want: []string{"fpga", "gpu", "rdma"},
		},
	} {
		got := desired.FromAPI(convert.ReadPod(&corev1.Pod{Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Resources: test.init}},
			Containers:     []corev1.Container{{Resources: test.main}},
		}})).Devices
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestAPodIsTheSameByItsSandbox: before its API object is known, a pod is what it would be with a request of some CPU.
func TestAPodIsTheSameByItsSandbox(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		labels, annotations := map[string]string{}, map[string]string{}
		draw := func(into map[string]string, key string, values ...string) {
			if value := rapid.SampledFrom(append(values, "-")).Draw(t, key); value != "-" {
				into[key] = value
			}
		}
		draw(labels, annotation.QoSClass, "LSE", "lsr", "LS", "BE", "SYSTEM", "?")
		draw(labels, annotation.PriorityClass, "koord-prod", "koord-batch", "koord-mid", "?")
		draw(annotations, annotation.ResourceStatusKey, `{"cpuset":"0-3"}`, `{"cpuset":"x"}`, "{",
			`{"numaNodeResources":[{"node":1,"resources":{"cpu":"2","memory":"1Gi"}}]}`,
			`{"cpuset":"2","numaNodeResources":[{"node":0,"resources":{"memory":"1Gi"}}]}`)
		draw(annotations, annotation.ResourceSpecKey, `{"preferredCPUExclusivePolicy":"PCPULevel"}`, "{")
		draw(annotations, annotation.DeviceAllocatedKey, `{"gpu":[{"minor":0,"id":"G"}]}`, "{")
		draw(annotations, annotation.PredictedPlacementKey, "{")
		kube := rapid.SampledFrom([]qos.Kube{qos.Guaranteed, qos.Burstable, qos.BestEffort}).Draw(t, "kube")
		class := map[qos.Kube]corev1.PodQOSClass{
			qos.Guaranteed: corev1.PodQOSGuaranteed, qos.Burstable: corev1.PodQOSBurstable,
			qos.BestEffort: corev1.PodQOSBestEffort,
		}
		pod := object.Pod("ns/p", object.UID("u"), object.On("n"), object.Requests("cpu", "1m"))
		pod.Labels, pod.Annotations, pod.Status.QOSClass = labels, annotations, class[kube]
		want := desired.FromAPI(convert.ReadPod(pod))
		want.Pinnable = kube == qos.Guaranteed && desired.MayBePinned(want.Entry)
		got := desired.FromSandbox(convert.Sandbox{
			UID: "u", Namespace: "ns", Name: "p", Labels: labels, Annotations: annotations, Kube: kube,
		})
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("labels %v, annotations %v, class %v (-by the API +by the "+
				"sandbox):\n%s", labels, annotations, kube,
				diff)
		}
	})
}
