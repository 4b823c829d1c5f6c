package convert_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// gpus adds a container, init or not, that asks for amounts with equal limits.
func gpus(name string, init bool, pairs ...string) podOption {
	return func(p *corev1.Pod) {
		c := corev1.Container{Name: name, Resources: object.Equal(append([]string{"cpu", "1"}, pairs...)...)}
		if init {
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		} else {
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
}

func withDevices() convert.Args {
	args := convert.DefaultArgs()
	args.Devices = true
	return args
}

func share(core, ratio, bytes int64) device.Need {
	n := device.Need{Ratio: ratio}
	n.Amount[device.Cores], n.Amount[device.Bytes] = core, bytes
	return n
}

func TestContainersAskForDevicesInTheirOrderAndRole(t *testing.T) {
	t.Parallel()
	pod := newPod(gpus("init", true, "koordinator.sh/gpu", "100"), gpus("side", true, "koordinator.sh/gpu", "20"),
		gpus("main", false, "koordinator.sh/gpu-core", "30", "koordinator.sh/gpu-memory", "4Gi"),
		gpus("odd", false, "koordinator.sh/gpu-core", "9500m", "kubernetes.io/gpu-memory-ratio", "9.2"),
		gpus("nic", false, "koordinator.sh/rdma", "50"), gpus("none", false))
	always := corev1.ContainerRestartPolicyAlways
	pod.Spec.InitContainers[1].RestartPolicy = &always
	r, reason, detail := convert.Request(pod, withDevices())
	if !reason.OK() {
		t.Fatalf("refused: %v %s", reason, detail)
	}
	nic := device.Need{}
	nic.Amount[device.Share] = 50
	want := []device.Part{
		{Container: "init", Role: device.Init, Type: device.GPU, Count: 1, Need: device.Need{Whole: true}},
		{Container: "side", Role: device.Sidecar, Type: device.GPU, Count: 1, Need: share(20, 20, 0)},
		{Container: "main", Type: device.GPU, Count: 1, Need: share(30, 0, 4<<30)},
		{Container: "odd", Type: device.GPU, Count: 1, Need: share(10, 10, 0)}, // rounded up
		{Container: "nic", Type: device.RDMA, Count: 1, Need: nic},
	}
	if diff := cmp.Diff(want, r.Devices.Parts); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	if !r.Concerns() {
		t.Error("a pod with devices does not concern the scheduler")
	}
}

// A whole GPU needs no limit; a node says what limits shares by its own label.
func TestSharesAreLimitedWherePodAndNodeSayTheSame(t *testing.T) {
	t.Parallel()
	limited := label("koordinator.sh/gpu-isolation-provider", "HAMi-core")
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"a share":     {newPod(gpus("c", false, "koordinator.sh/gpu", "50"), limited), "HAMi-core"},
		"a whole GPU": {newPod(gpus("c", false, "koordinator.sh/gpu", "100"), limited), ""},
		"an adapter":  {newPod(gpus("c", false, "koordinator.sh/rdma", "50"), limited), ""},
		"no label":    {newPod(gpus("c", false, "koordinator.sh/gpu", "50")), ""},
	} {
		if r, reason, _ := convert.Request(test.pod, withDevices()); !reason.OK() || r.GPUIsolation != test.want {
			t.Errorf("%s: got %q, reason %v, want %q", name, r.GPUIsolation, reason, test.want)
		}
	}
	facts, _ := new(convert.Known).Read(convert.Sources{
		Node:    newNode(map[string]string{"koordinator.sh/gpu-isolation-provider": "HAMi-core"}),
		Devices: deviceObject(t, "", fourGPUs(false)),
	}, convert.DefaultArgs())
	other := facts
	if other.GPUIsolation = ""; facts.GPUIsolation != "HAMi-core" || facts.Equal(&other) {
		t.Errorf("the node's label is read as %q, want HAMi-core; equal to none: %v", facts.GPUIsolation,
			facts.Equal(&other))
	}
}

func TestAPodWithoutDevicesAsksForNone(t *testing.T) {
	t.Parallel()
	for name, pod := range map[string]*corev1.Pod{
		"plain":                   plainPod(),
		"amounts of 0":            newPod(gpus("c", false, "koordinator.sh/gpu-core", "0")),
		"a hint alone":            newPod(gpus("c", false), annot(annotation.DeviceAllocateHintKey, `{"gpu":{}}`)),
		"another device's plugin": newPod(gpus("c", false, "example.com/gpu", "1")),
	} {
		if r, reason, _ := convert.Request(pod, withDevices()); !reason.OK() || r.Devices != nil {
			t.Errorf("%s: request %+v, reason %v", name, r, reason)
		}
	}
	gpu := newPod(gpus("c", false, "koordinator.sh/gpu", "150"))
	if r, reason, _ := convert.Request(gpu, convert.DefaultArgs()); !reason.OK() || r.Devices != nil {
		t.Errorf("without DeviceShare, devices are read: %+v, reason %v", r, reason)
	}
}

func TestHintsJointAllocationAndPartition(t *testing.T) {
	t.Parallel()
	pod := newPod(gpus("c", false, "nvidia.com/gpu", "2", "koordinator.sh/rdma", "2"),
		annot(annotation.DeviceAllocateHintKey, `{
			"gpu": {"selector": {"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [
				{"key": "c", "operator": "NotIn", "values": ["x", "y"]}, {"key": "d", "operator": "Exists"},
				{"key": "e", "operator": "DoesNotExist"}, {"key": "f", "operator": "In", "values": ["z"]}]},
				"requiredTopologyScope": "NUMANode", "exclusivePolicy": "PCIeLevel"},
			"rdma": {"vfSelector": {}, "allocateStrategy": "RequestsAsCount", "exclusivePolicy": "DeviceLevel",
				"requiredTopologyScope": "Node"},
			"fpga": {}}`),
		annot(annotation.DeviceJointAllocateKey, `{"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIeSwitch"}`),
		annot(annotation.GPUPartitionSpecKey, `{"allocatePolicy": "Restricted", "ringBusBandwidth": "200Gi"}`))
	p, reason, detail := convert.DevicePod(pod, nil)
	if !reason.OK() {
		t.Fatalf("refused: %v %s", reason, detail)
	}
	amounts := map[string]int64{"nvidia.com/gpu": 2, "koordinator.sh/rdma": 2}
	want := device.Pod{
		Containers: []device.Container{{Name: "c", Requests: amounts, Limits: amounts}},
		Hints: map[device.Type]device.Hint{
			device.GPU: {Scope: device.NUMALevel, Exclusive: device.PCIeLevel, Selector: device.Selector{
				{Key: "a", Operator: device.In, Values: []string{"1"}},
				{Key: "b", Operator: device.In, Values: []string{"2"}},
				{Key: "c", Operator: device.NotIn, Values: []string{"x", "y"}},
				{Key: "d", Operator: device.Exists},
				{Key: "e", Operator: device.DoesNotExist},
				{Key: "f", Operator: device.In, Values: []string{"z"}},
			}},
			device.RDMA: {
				VF: &device.Selector{}, Strategy: device.RequestsAsCount, Exclusive: device.DeviceLevel,
				Scope: device.MachineLevel,
			},
		},
		Joint:     device.Joint{Types: []device.Type{device.GPU, device.RDMA}, Scope: device.SamePCIeSwitch},
		Partition: &device.PartitionWish{Restricted: true, Bandwidth: 200 << 30},
	}
	// An empty selector demands a virtual function of any group.
	if vf := p.Hints[device.RDMA].VF; vf == nil || len(*vf) > 0 {
		t.Fatalf("vfSelector {} is read as %v", vf)
	}
	*want.Hints[device.RDMA].VF = *p.Hints[device.RDMA].VF
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
}

func TestARequestForDevicesThatCannotWorkIsRefusedByItsField(t *testing.T) {
	t.Parallel()
	pod := newPod(gpus("a", false, "koordinator.sh/gpu-core", "150", "koordinator.sh/gpu-memory-ratio", "50"),
		gpus("b", false, "koordinator.sh/gpu", "50", "koordinator.sh/gpu-core", "50"))
	_, reason, detail := convert.Request(pod, withDevices())
	want := `container "a": koordinator.sh/gpu-core: 150 must be percentage of 100: at most 100, or a multiple of ` +
		`100; container "b": koordinator.sh/gpu: must not be requested together with koordinator.sh/gpu-core; it ` +
		`already means cores and memory`
	if reason != (why.Reason{Code: why.InvalidDeviceRequest}) || detail != want {
		t.Errorf("got %v %s\nwant %s", reason.Code, detail, want)
	}
	for _, key := range []string{
		annotation.DeviceAllocateHintKey, annotation.DeviceJointAllocateKey, annotation.GPUPartitionSpecKey,
	} {
		pod := newPod(gpus("c", false, "nvidia.com/gpu", "1"), annot(key, "{"))
		_, reason, detail := convert.Request(pod, withDevices())
		if want := "metadata.annotations[" + key + "]: byte 1: unexpected end of JSON input"; detail != want ||
			reason != (why.Reason{Code: why.BadAnnotation, Extra: 1}) {
			t.Errorf("%s: got %+v %s, want %s", key, reason, detail, want)
		}
	}
}
