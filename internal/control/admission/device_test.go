package admission_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/kube/convert"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// gpuPod is a pod whose containers c0, c1, … have equal requests and limits.
func gpuPod(containers ...corev1.ResourceList) *corev1.Pod {
	pod := newPod()
	pod.Spec.Containers = nil
	for i, list := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name:      "c" + strconv.Itoa(i),
			Resources: corev1.ResourceRequirements{Requests: list, Limits: maps.Clone(list)},
		})
	}
	return pod
}

func quantities(list corev1.ResourceList) map[string]string {
	out := map[string]string{}
	for name, q := range list {
		out[string(name)] = q.String()
	}
	return out
}

func TestRequestsForDevicesAreWrittenInOneWay(t *testing.T) {
	t.Parallel()
	type want = map[string]string
	for name, test := range map[string]struct {
		asked corev1.ResourceList
		want  want
	}{
		"half a GPU": {amounts("koordinator.sh/gpu", "50", "cpu", "1"), want{
			"cpu": "1", "koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50",
			"koordinator.sh/gpu.shared": "1",
		}},
		"two GPUs by an alias": {amounts("kubernetes.io/gpu", "200"), want{
			"koordinator.sh/gpu-core": "200", "koordinator.sh/gpu-memory-ratio": "200",
			"koordinator.sh/gpu.shared": "2",
		}},
		"aliases, rounded up": {amounts("kubernetes.io/gpu-core", "49500m", "kubernetes.io/gpu-memory", "4Gi"), want{
			"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory": "4Gi", "koordinator.sh/gpu.shared": "1",
		}},
		"cores of two, bytes": {amounts("koordinator.sh/gpu-core", "200", "koordinator.sh/gpu-memory", "16Gi"), want{
			"koordinator.sh/gpu-core": "200", "koordinator.sh/gpu-memory": "16Gi", "koordinator.sh/gpu.shared": "2",
		}},
		"memory alone": {amounts("kubernetes.io/gpu-memory-ratio", "30"), want{
			"koordinator.sh/gpu-memory-ratio": "30", "koordinator.sh/gpu.shared": "1",
		}},
		"the number is given": {amounts("koordinator.sh/gpu.shared", "2", "koordinator.sh/gpu-memory", "4Gi"), want{
			"koordinator.sh/gpu-memory": "4Gi", "koordinator.sh/gpu.shared": "2",
		}},
		"an adapter": {amounts("kubernetes.io/rdma", "50", "kubernetes.io/fpga", "100"), want{
			"koordinator.sh/rdma": "50", "koordinator.sh/fpga": "100",
		}},
		"a share and an adapter": {amounts("koordinator.sh/rdma", "50", "koordinator.sh/gpu", "10"), want{
			"koordinator.sh/rdma": "50", "koordinator.sh/gpu-core": "10", "koordinator.sh/gpu-memory-ratio": "10",
			"koordinator.sh/gpu.shared": "1",
		}},
		"nothing of an old name": {amounts("koordinator.sh/gpu", "10", "kubernetes.io/gpu-core", "0"), want{
			"koordinator.sh/gpu-core": "10", "koordinator.sh/gpu-memory-ratio": "10", "koordinator.sh/gpu.shared": "1",
		}},
		"a vendor's name": {amounts("nvidia.com/gpu", "2"), want{"nvidia.com/gpu": "2"}},
		"a MIG device":    {amounts("nvidia.com/mig-1g.5gb", "1"), want{"nvidia.com/mig-1g.5gb": "1"}},
		"a template": {amounts("huawei.com/npu-core", "4", "kubernetes.io/gpu-memory-ratio", "25"), want{
			"huawei.com/npu-core": "4", "koordinator.sh/gpu-memory-ratio": "25",
		}},
		"nothing":           {amounts("cpu", "1"), want{"cpu": "1"}},
		"150 percent":       {amounts("kubernetes.io/gpu", "150"), want{"kubernetes.io/gpu": "150"}},
		"none, explicitly":  {amounts("kubernetes.io/gpu", "0"), want{"kubernetes.io/gpu": "0"}},
		"cores without any": {amounts("kubernetes.io/gpu-core", "50"), want{"kubernetes.io/gpu-core": "50"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := gpuPod(test.asked)
			pod.Spec.InitContainers = []corev1.Container{*gpuPod(test.asked).Spec.Containers[0].DeepCopy()}
			pod.Spec.InitContainers[0].Name = "init"
			changed, answer := admission.Mutate(pod)
			for _, c := range slices.Concat(changed.Spec.Containers, changed.Spec.InitContainers) {
				for _, got := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
					if diff := cmp.Diff(test.want, quantities(got)); diff != "" {
						t.Errorf("container %s (-want +got):\n%s", c.Name, diff)
					}
				}
			}
			if len(answer.Warnings) > 0 {
				t.Errorf("warnings: %v", answer.Warnings)
			}
			again, _ := admission.Mutate(changed)
			if diff := cmp.Diff(changed, again); diff != "" {
				t.Errorf("changed a second time (-first +second):\n%s", diff)
			}
		})
	}
}

// A pod that the webhook has rewritten asks for exactly what it asked before, whatever it asked.
func TestTheWebhookChangesNoRequestForDevices(t *testing.T) {
	t.Parallel()
	names := []string{
		"koordinator.sh/gpu", "kubernetes.io/gpu", "koordinator.sh/gpu-core", "kubernetes.io/gpu-core",
		"koordinator.sh/gpu-memory", "koordinator.sh/gpu-memory-ratio", "koordinator.sh/gpu.shared", "nvidia.com/gpu",
		"huawei.com/npu-core", "koordinator.sh/rdma", "kubernetes.io/fpga",
	}
	valid := 0
	rapid.Check(t, func(t *rapid.T) {
		var lists []corev1.ResourceList
		for range rapid.IntRange(1, 3).Draw(t, "containers") {
			list := corev1.ResourceList{}
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 3, rapid.ID).Draw(t, "names") {
				n := rapid.SampledFrom([]int64{0, 1, 2, 4, 50, 99, 100, 150, 200, 400}).Draw(t, "amount")
				list[corev1.ResourceName(name)] = *resource.NewQuantity(n, resource.DecimalSI)
			}
			lists = append(lists, list)
		}
		pod := gpuPod(lists...)
		was, _, _ := convert.DevicePod(pod, nil)
		before, faults := device.NewRequest(was, nil)
		changed, _ := admission.Mutate(pod)
		asked, _, _ := convert.DevicePod(changed, nil)
		after, _ := device.NewRequest(asked, nil)
		if refused := len(faults) > 0 || len(device.Zeros(was.Containers)) > 0; refused && !cmp.Equal(pod, changed) {
			t.Fatalf("a pod that is refused is changed: %s", cmp.Diff(pod, changed))
		} else if !refused && len(before.Warnings) == 0 {
			valid++
			if diff := cmp.Diff(before.Parts, after.Parts); diff != "" {
				t.Fatalf("the request is another one (-before +after):\n%s", diff)
			}
		}
	})
	if valid < 5 {
		t.Errorf("only %d of the drawn pods are valid", valid)
	}
}

func TestWhatIsWrongWithDevicesIsRefusedByItsField(t *testing.T) {
	t.Parallel()
	const requests = "].resources.requests["
	pod := gpuPod(amounts("nvidia.com/gpu", "1"), amounts("koordinator.sh/gpu", "50", "koordinator.sh/gpu.shared", "0"))
	pod.Spec.InitContainers = gpuPod(amounts("koordinator.sh/gpu-core", "50")).Spec.Containers
	pod.Spec.InitContainers[0].Name = "init"
	check(t, admission.Create(pod, nil), []string{
		"spec.containers[1" + requests + "koordinator.sh/gpu.shared]: must be greater than zero",
		"spec.initContainers[0" + requests + "koordinator.sh/gpu-core]: GPU memory and GPU memory ratio all is zero; " +
			"request koordinator.sh/gpu-memory or koordinator.sh/gpu-memory-ratio too",
	}, nil)

	pod = gpuPod(amounts("koordinator.sh/gpu-core", "50"), amounts("koordinator.sh/gpu-memory-ratio", "40"))
	pod.Annotations[annotation.DeviceAllocateHintKey] = `{"rdma":{"requiredTopologyScope":"pcie"},` +
		`"gpu":{"allocateStrategy":"ApplyForAll"}}`
	hint := "metadata.annotations[scheduling.koordinator.sh/device-allocate-hint]: "
	check(t, admission.Create(pod, nil), nil, []string{
		hint + "gpu.allocateStrategy: has no effect: it is not for GPUs",
		hint + `rdma.requiredTopologyScope: "pcie" is read as "PCIe": values are case-sensitive on output`,
		"spec.containers[0" + requests + "koordinator.sh/gpu-core]: is only valid as the sum of all containers; give " +
			"each container a valid request",
		hint + "rdma: has no effect: no container requests such devices",
	})

	pod = gpuPod(amounts("nvidia.com/gpu", "1"))
	pod.Annotations[annotation.DeviceJointAllocateKey] = `{"deviceTypes":["gpu","tpu"]}`
	check(t, admission.Create(pod, nil), []string{
		"metadata.annotations[scheduling.koordinator.sh/device-joint-allocate]: byte 15: deviceTypes: Unsupported " +
			`value "tpu": supported gpu, rdma, fpga`,
	}, nil)
	kinds := device.Kinds{{Type: "tpu", Resource: "example.com/tpu", Unit: 1}}
	check(t, admission.Create(pod, kinds), nil, nil)
	pod.Annotations[annotation.DeviceAllocateHintKey] = `{"tpu":{"exclusivePolicy":"DeviceLevel"},"dpu":{}}`
	check(t, admission.Create(pod, kinds), []string{
		"metadata.annotations[scheduling.koordinator.sh/device-allocate-hint]: byte 47: dpu: Unsupported " +
			`value "dpu": supported gpu, rdma, fpga, tpu`,
	}, nil)

	pod = gpuPod(amounts("kubernetes.io/gpu", "50", "example.com/tpu", "1"))
	pod.Annotations[annotation.DeviceAllocateHintKey] = `{"tpu":{"exclusivePolicy":"DeviceLevel"}}`
	if changed, _ := admission.Mutate(pod); cmp.Equal(pod, changed) {
		t.Error("the names of a pod with a hint about a type of a Device object are not rewritten")
	}
}

func TestAPodWithPartsOfGPUsNamesNoVisibleGPUs(t *testing.T) {
	t.Parallel()
	const text = " is set by Tenon's agent in a pod with parts of GPUs: remove it, or use the value void or none"
	half, all := amounts("koordinator.sh/gpu", "50"), corev1.EnvVar{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}
	for name, test := range map[string]struct {
		asked corev1.ResourceList
		env   corev1.EnvVar
		want  []string
	}{
		"all cards": {half, all, []string{"NVIDIA"}},
		"a card":    {half, corev1.EnvVar{Name: "AMD_VISIBLE_DEVICES", Value: "0"}, []string{"AMD"}},
		"a value from elsewhere": {half, corev1.EnvVar{
			Name: "NVIDIA_VISIBLE_DEVICES", ValueFrom: &corev1.EnvVarSource{},
		}, []string{"NVIDIA"}},
		"no card":           {half, corev1.EnvVar{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"}, nil},
		"another variable":  {half, corev1.EnvVar{Name: "NVIDIA_DRIVER_CAPABILITIES", Value: "all"}, nil},
		"whole GPUs":        {amounts("koordinator.sh/gpu", "100"), all, nil},
		"GPUs of a plugin":  {amounts("nvidia.com/gpu", "1"), all, nil},
		"a pod without GPU": {amounts("cpu", "1"), all, nil},
	} {
		pod := gpuPod(amounts("cpu", "1"), test.asked)
		pod.Spec.InitContainers = gpuPod(amounts("cpu", "1")).Spec.Containers
		pod.Spec.InitContainers[0].Name = "init"
		pod.Spec.InitContainers[0].Env = []corev1.EnvVar{{Name: "PATH"}, test.env}
		pod.Spec.Containers[0].Env = []corev1.EnvVar{test.env}
		var want []string
		for _, vendor := range test.want {
			want = []string{
				"spec.initContainers[0].env[1]: " + vendor + "_VISIBLE_DEVICES" + text,
				"spec.containers[0].env[0]: " + vendor + "_VISIBLE_DEVICES" + text,
			}
		}
		t.Run(name, func(t *testing.T) { check(t, admission.Create(pod, nil), want, nil) })
	}
}

func TestAPodThatWillHoldDevicesRequiresThePlugin(t *testing.T) {
	t.Parallel()
	hinted := gpuPod(amounts("nvidia.com/gpu", "1"))
	hinted.Annotations[annotation.DeviceAllocateHintKey] = `{"gpu":{"exclusivePolicy":"PCIeLevel"}}`
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"a share":                        {gpuPod(amounts("koordinator.sh/gpu", "50")), true},
		"a whole GPU of any vendor":      {gpuPod(amounts("koordinator.sh/gpu", "100")), true},
		"an adapter":                     {gpuPod(amounts("koordinator.sh/rdma", "100")), true},
		"a whole GPU by a vendor's name": {gpuPod(amounts("nvidia.com/gpu", "1")), false},
		"a MIG device":                   {gpuPod(amounts("nvidia.com/mig-1g.5gb", "1")), false},
		"a whole GPU with a hint":        {hinted, true},
		"a share that Create refuses":    {gpuPod(amounts("koordinator.sh/gpu", "150")), false},
		"an amount of zero":              {gpuPod(amounts("koordinator.sh/gpu-core", "0")), false},
		"a pod that asks for no devices": {gpuPod(amounts("cpu", "1")), false},
		"a share beside a vendor's whole": {gpuPod(
			amounts("nvidia.com/gpu", "1"), amounts("koordinator.sh/gpu", "50"),
		), true},
	} {
		fenced, answer := admission.Fence(test.pod, nil)
		if got := !cmp.Equal(test.pod, fenced); got != test.want || !answer.Allowed() {
			t.Errorf("%s: fenced %v, want %v; refusals %v", name, got, test.want, answer.Refusals)
		}
	}
}

// TestAnAllocationIsTheSchedulers: a pod that is created with one would be given devices that other pods hold.
func TestAnAllocationIsTheSchedulers(t *testing.T) {
	t.Parallel()
	const text = `{"gpu":[{"minor":0,"id":"GPU-a","resources":{"koordinator.sh/gpu-core":"100"}}]}`
	for _, pod := range []*corev1.Pod{
		newPod(annot(annotation.DeviceAllocatedKey, text)), newPod(annot(annotation.DeviceAllocatedKey, "{")),
	} {
		answer := admission.Create(pod, nil)
		if len(answer.Refusals) != 1 || answer.Refusals[0].String() !=
			"metadata.annotations[scheduling.koordinator.sh/device-allocated]: "+
				"scheduling.koordinator.sh/device-allocated is set by the scheduler" {
			t.Errorf("refusals %v", answer.Refusals)
		}
	}
	if answer := admission.Create(newPod(), nil); !answer.Allowed() {
		t.Errorf("refusals %v", answer.Refusals)
	}
}

// TestTheShareOfEachContainerCountsAsAGPU is what the reference says of a quota in whole GPUs.
func TestTheShareOfEachContainerCountsAsAGPU(t *testing.T) {
	t.Parallel()
	share := func() corev1.ResourceList {
		return corev1.ResourceList{"koordinator.sh/gpu": resource.MustParse("40")}
	}
	for want, pod := range map[int64]*corev1.Pod{1: gpuPod(share()), 2: gpuPod(share(), share())} {
		pod, answer := admission.Mutate(pod)
		if got := convert.PodAmounts(pod).Asked([]string{"nvidia.com/gpu"})["nvidia.com/gpu"]; got != want {
			t.Errorf("%d containers with 40 %% of a GPU count as %d: %v", want, got, answer)
		}
	}
}
