package badinput

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
)

const (
	hintKey      = "metadata.annotations[scheduling.koordinator.sh/device-allocate-hint]"
	jointKey     = "metadata.annotations[scheduling.koordinator.sh/device-joint-allocate]"
	partitionKey = "metadata.annotations[scheduling.koordinator.sh/gpu-partition-spec]"
)

// badDevices is a request for devices that can never work: what the pod says, and what the user reads of it from the
// webhook and from the scheduler alike.
type badDevices struct {
	name     string
	manifest string
	says     []string
	// zero is an amount of nothing: the scheduler reads it as no request.
	zero bool
}

// gpuPod is a pod whose container c has requests that equal its limits.
func gpuPod(amounts string) string { return podOf("", "{"+amounts+"}", "{"+amounts+"}", "") }

// hinted is a pod with a whole GPU, a NIC and an annotation.
func hinted(key, json string) string {
	const amounts = "{nvidia.com/gpu: 1, koordinator.sh/rdma: 50}"
	return podOf("annotations: {scheduling.koordinator.sh/"+key+": '"+json+"'}", amounts, amounts, "")
}

func deviceRequests() []badDevices {
	const koord, native = "koordinator.sh/", "kubernetes.io/"
	hint := func(json string) string { return hinted("device-allocate-hint", json) }
	joint := func(json string) string { return hinted("device-joint-allocate", json) }
	partition := func(json string) string { return hinted("gpu-partition-spec", json) }
	container := func(name, amounts string) string {
		return "{name: " + name + ", image: i, resources: {requests: {" + amounts + "}, limits: {" + amounts + "}}}"
	}
	pod := func(lists string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default}, spec: {" + lists + "}}"
	}
	const memory = "request koordinator.sh/gpu-memory or koordinator.sh/gpu-memory-ratio too"
	oneWay := "a container names GPUs in one way"
	percent := "must be percentage of 100: at most 100, or a multiple of 100"
	return []badDevices{
		{
			name: "a whole GPU beside a share", manifest: gpuPod("nvidia.com/gpu: 1, koordinator.sh/gpu-memory: 4Gi"),
			says: []string{"nvidia.com/gpu", "together with koordinator.sh/gpu-memory", oneWay},
		},
		{
			name:     "a whole GPU of AMD beside koordinator.sh/gpu",
			manifest: gpuPod("amd.com/gpu: 1, koordinator.sh/gpu: 50"),
			says:     []string{"amd.com/gpu", "together with koordinator.sh/gpu", oneWay},
		},
		{
			name:     "a whole DCU beside a number of GPUs",
			manifest: gpuPod("dcu.com/gpu: 1, koordinator.sh/gpu.shared: 1"),
			says:     []string{"dcu.com/gpu", "together with koordinator.sh/gpu.shared", oneWay},
		},
		{
			name: "GPUs of two vendors", manifest: gpuPod("nvidia.com/gpu: 1, amd.com/gpu: 1"),
			says: []string{"amd.com/gpu", "together with nvidia.com/gpu", oneWay},
		},
		{
			name: "a whole GPU and a slice of one", manifest: gpuPod("nvidia.com/gpu: 1, nvidia.com/mig-1g.5gb: 1"),
			says: []string{"nvidia.com/gpu", "together with nvidia.com/mig-1g.5gb", oneWay},
		},
		{
			name: "slices of two profiles", manifest: gpuPod("nvidia.com/mig-1g.5gb: 1, nvidia.com/mig-2g.10gb: 1"),
			says: []string{"nvidia.com/mig-1g.5gb", "together with nvidia.com/mig-2g.10gb", oneWay},
		},
		{
			name: "a slice beside a share", manifest: gpuPod("nvidia.com/mig-1g.5gb: 1, koordinator.sh/gpu: 20"),
			says: []string{"nvidia.com/mig-1g.5gb", "together with koordinator.sh/gpu", oneWay},
		},
		{
			name: "gpu beside gpu-core", manifest: gpuPod("koordinator.sh/gpu: 50, koordinator.sh/gpu-core: 50"),
			says: []string{koord + "gpu", "together with koordinator.sh/gpu-core", "already means cores and memory"},
		},
		{
			name: "gpu beside gpu-memory", manifest: gpuPod("koordinator.sh/gpu: 50, koordinator.sh/gpu-memory: 4Gi"),
			says: []string{koord + "gpu", "together with koordinator.sh/gpu-memory", "already means cores and memory"},
		},
		{
			name:     "gpu beside gpu-memory-ratio",
			manifest: gpuPod("koordinator.sh/gpu: 50, koordinator.sh/gpu-memory-ratio: 50"),
			says:     []string{koord + "gpu", "together with koordinator.sh/gpu-memory-ratio"},
		},
		{
			name: "gpu beside gpu.shared", manifest: gpuPod("koordinator.sh/gpu: 200, koordinator.sh/gpu.shared: 2"),
			says: []string{koord + "gpu", "together with koordinator.sh/gpu.shared"},
		},
		{
			name: "gpu beside a part of an NPU", manifest: gpuPod("koordinator.sh/gpu: 50, huawei.com/npu-core: 4"),
			says: []string{koord + "gpu", "together with huawei.com/npu-core"},
		},
		{
			name: "memory as bytes and as percent",
			manifest: gpuPod("koordinator.sh/gpu-core: 50, koordinator.sh/gpu-memory: 4Gi, " +
				"koordinator.sh/gpu-memory-ratio: 50"),
			says: []string{koord + "gpu-memory", "request this or koordinator.sh/gpu-memory-ratio"},
		},
		{
			name: "cores without memory", manifest: gpuPod("koordinator.sh/gpu-core: 50"),
			says: []string{koord + "gpu-core", memory},
		},
		{
			name: "a number of GPUs without memory", manifest: gpuPod("koordinator.sh/gpu.shared: 2"),
			says: []string{koord + "gpu.shared", memory},
		},
		{
			name:     "a number of GPUs with cores alone",
			manifest: gpuPod("koordinator.sh/gpu.shared: 2, koordinator.sh/gpu-core: 100"),
			says:     []string{koord + "gpu.shared", "GPU memory and GPU memory ratio all is zero"},
		},
		{
			name: "150 percent of a GPU", manifest: gpuPod("koordinator.sh/gpu: 150"),
			says: []string{koord + "gpu", "150 " + percent},
		},
		{
			name: "150 percent by the alias", manifest: gpuPod("kubernetes.io/gpu: 150"),
			says: []string{"150 " + percent},
		},
		{
			name: "100.5 percent, which is rounded up", manifest: gpuPod("kubernetes.io/gpu: 100500m"),
			says: []string{"101 " + percent},
		},
		{
			name:     "150 percent of cores",
			manifest: gpuPod("koordinator.sh/gpu-core: 150, koordinator.sh/gpu-memory: 4Gi"),
			says:     []string{koord + "gpu-core", "150 " + percent},
		},
		{
			name: "250 percent of memory", manifest: gpuPod("koordinator.sh/gpu-memory-ratio: 250"),
			says: []string{koord + "gpu-memory-ratio", "250 " + percent},
		},
		{
			name: "150 percent of a NIC", manifest: gpuPod("koordinator.sh/rdma: 150"),
			says: []string{koord + "rdma", "150 " + percent},
		},
		{
			name: "101 percent of an FPGA", manifest: gpuPod("koordinator.sh/fpga: 101"),
			says: []string{koord + "fpga", "101 " + percent},
		},
		{
			name:     "cores of two GPUs, memory of one",
			manifest: gpuPod("koordinator.sh/gpu-core: 200, koordinator.sh/gpu-memory-ratio: 100"),
			says: []string{
				koord + "gpu-core", "200 requests several GPUs, but",
				"koordinator.sh/gpu-memory-ratio requests a share of one",
			},
		},
		{
			name:     "cores that two GPUs cannot share",
			manifest: gpuPod("koordinator.sh/gpu-core: 75, koordinator.sh/gpu-memory-ratio: 200"),
			says:     []string{koord + "gpu-core", "75 must be a multiple of 2, the number of GPUs"},
		},
		{
			name:     "more cores than the GPUs of the memory have",
			manifest: gpuPod("koordinator.sh/gpu-core: 400, koordinator.sh/gpu-memory-ratio: 200"),
			says:     []string{koord + "gpu-core", "200 must be at most 100 on one device"},
		},
		{
			name: "cores that are not a multiple of gpu.shared",
			manifest: gpuPod("koordinator.sh/gpu.shared: 2, koordinator.sh/gpu-core: 75, " +
				"koordinator.sh/gpu-memory: 4Gi"),
			says: []string{koord + "gpu-core", "75 must be a multiple of 2, the number of GPUs"},
		},
		{
			name:     "memory that is not a multiple of gpu.shared",
			manifest: gpuPod("koordinator.sh/gpu.shared: 3, koordinator.sh/gpu-memory-ratio: 100"),
			says:     []string{koord + "gpu-memory-ratio", "100 must be a multiple of 3, the number of GPUs"},
		},
		{
			name:     "more memory than gpu.shared has",
			manifest: gpuPod("koordinator.sh/gpu.shared: 2, koordinator.sh/gpu-memory-ratio: 400"),
			says:     []string{koord + "gpu-memory-ratio", "200 must be at most 100 on one device"},
		},
		{
			name: "a template on two NPUs",
			manifest: gpuPod("koordinator.sh/gpu.shared: 2, huawei.com/npu-core: 4, huawei.com/npu-cpu: 1, " +
				"koordinator.sh/gpu-memory: 6Gi"),
			says: []string{koord + "gpu.shared", "2 must be 1 where", "is requested"},
		},
		{
			name: "a template with more than all of a DVPP",
			manifest: gpuPod("koordinator.sh/gpu.shared: 1, huawei.com/npu-core: 4, huawei.com/npu-cpu: 1, " +
				"koordinator.sh/gpu-memory: 6Gi, huawei.com/npu-dvpp: 101"),
			says: []string{"huawei.com/npu-dvpp", "101 must be at most 100 on one device"},
		},
		{
			name: "a part of an NPU without memory", manifest: gpuPod("huawei.com/npu-core: 4"),
			says: []string{"huawei.com/npu-core", "must be requested as", "koordinator.sh/gpu-memory-ratio"},
		},
		{
			name: "a template with cores of a GPU",
			manifest: gpuPod("huawei.com/npu-core: 4, koordinator.sh/gpu-core: 50, " +
				"koordinator.sh/gpu-memory-ratio: 50"),
			says: []string{"must be requested as", "huawei.com/npu-core and koordinator.sh/gpu-memory-ratio"},
		},
		{
			name:     "an alias whose limit is higher",
			manifest: podOf("", "{kubernetes.io/gpu: 50}", "{kubernetes.io/gpu: 100}", ""),
			says:     []string{native + "gpu", "request 50 must equal limit 100"},
		},
		{
			name:     "an alias without a limit",
			manifest: podOf("", "{kubernetes.io/gpu-memory-ratio: 50}", "{}", ""),
			says:     []string{native + "gpu-memory-ratio", "request 50 must equal limit 0"},
		},
		{
			name:     "a name and its alias in one container",
			manifest: gpuPod("koordinator.sh/gpu-memory: 4Gi, kubernetes.io/gpu-memory: 4Gi"),
			says:     []string{native + "gpu-memory", "the pod also requests koordinator.sh/gpu-memory; use one"},
		},
		{
			name: "a name and its alias in two containers",
			manifest: pod("containers: [" + container("a", "koordinator.sh/gpu: 50") + ", " +
				container("b", "kubernetes.io/gpu: 50") + "]"),
			says: []string{native + "gpu", "the pod also requests koordinator.sh/gpu; use one spelling"},
		},
		{
			name: "an init container with cores alone",
			manifest: pod("initContainers: [" + container("first", "koordinator.sh/gpu-core: 50") + "], containers: [" +
				container("c", "koordinator.sh/gpu: 50") + "]"),
			says: []string{koord + "gpu-core", "GPU memory and GPU memory ratio all is zero"},
		},
		{
			name: "two containers that are wrong, alone and as a sum",
			manifest: pod("containers: [" + container("a", "koordinator.sh/gpu: 120") + ", " +
				container("b", "koordinator.sh/gpu: 130") + "]"),
			says: []string{"120 " + percent, "130 " + percent},
		},
		{
			name: "no part of a GPU", manifest: gpuPod("koordinator.sh/gpu: 0"), zero: true,
			says: []string{koord + "gpu", "must be greater than zero"},
		},
		{
			name: "a share of no GPU", zero: true,
			manifest: gpuPod("koordinator.sh/gpu.shared: 0, koordinator.sh/gpu-memory: 4Gi"),
			says:     []string{koord + "gpu.shared", "must be greater than zero"},
		},
		{
			name: "no part of a GPU by the alias", manifest: gpuPod("kubernetes.io/gpu: 0"), zero: true,
			says: []string{native + "gpu", "must be greater than zero"},
		},
		{name: "a hint that is not JSON", manifest: hint("{"), says: []string{hintKey, "byte 1"}},
		{name: "a hint that is a list", manifest: hint("[]"), says: []string{hintKey, "byte"}},
		{
			name: "a hint for a type that no pod can ask for", manifest: hint(`{"tpu":{}}`),
			says: []string{hintKey, `Unsupported value "tpu"`, "gpu, rdma, fpga"},
		},
		{
			name: "a hint with an unknown field", manifest: hint(`{"gpu":{"requiredTopologyScop":"PCIe"}}`),
			says: []string{hintKey, "unknown field", "requiredTopologyScope"},
		},
		{
			name: "a topology scope that does not exist", manifest: hint(`{"gpu":{"requiredTopologyScope":"Rack"}}`),
			says: []string{
				hintKey, "gpu.requiredTopologyScope", `Unsupported value "Rack"`, "Device, PCIe, NUMANode, Node",
			},
		},
		{
			name: "an exclusive policy that does not exist", manifest: hint(`{"rdma":{"exclusivePolicy":"NUMALevel"}}`),
			says: []string{hintKey, "rdma.exclusivePolicy", `Unsupported value "NUMALevel"`, "DeviceLevel, PCIeLevel"},
		},
		{
			name: "a strategy that does not exist", manifest: hint(`{"rdma":{"allocateStrategy":"Spread"}}`),
			says: []string{
				hintKey, "rdma.allocateStrategy", `Unsupported value "Spread"`, "ApplyForAll, RequestsAsCount",
			},
		},
		{
			name:     "a selector with an operator that does not exist",
			manifest: hint(`{"gpu":{"selector":{"matchExpressions":[{"key":"a","operator":"Like","values":["b"]}]}}}`),
			says:     []string{hintKey, "gpu.selector", `"Like" is not a valid label selector operator`},
		},
		{
			name:     "a selector without values",
			manifest: hint(`{"rdma":{"vfSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}}}`),
			says:     []string{hintKey, "rdma.vfSelector", "for 'in', 'notin' operators, values set can't be empty"},
		},
		{
			name: "a selector that is a text", manifest: hint(`{"gpu":{"selector":"a=b"}}`),
			says: []string{hintKey, "selector", "want an object, got string"},
		},
		{
			name: "more than a device has, of every device",
			manifest: podOf(`annotations: {scheduling.koordinator.sh/device-allocate-hint: `+
				`'{"rdma":{"allocateStrategy":"ApplyForAll"}}'}`, "{koordinator.sh/rdma: 200}",
				"{koordinator.sh/rdma: 200}", ""),
			says: []string{koord + "rdma", "200 must be at most 100 on one device"},
		},
		{
			name: "a joint allocation that is not JSON", manifest: joint("gpu,rdma"),
			says: []string{jointKey, "byte 1", "invalid character"},
		},
		{
			name:     "a joint allocation of a type that no pod can ask for",
			manifest: joint(`{"deviceTypes":["gpu","tpu"]}`),
			says:     []string{jointKey, "deviceTypes", `Unsupported value "tpu"`, "gpu, rdma, fpga"},
		},
		{
			name: "a joint allocation of one type twice", manifest: joint(`{"deviceTypes":["gpu","gpu"]}`),
			says: []string{jointKey, "deviceTypes", "must be listed once"},
		},
		{
			name:     "a joint scope that does not exist",
			manifest: joint(`{"deviceTypes":["gpu","rdma"],"requiredScope":"SameRack"}`),
			says:     []string{jointKey, "requiredScope", `Unsupported value "SameRack"`, "SamePCIe, SamePCIeSwitch"},
		},
		{
			name: "a joint allocation with an unknown field", manifest: joint(`{"deviceType":["gpu","rdma"]}`),
			says: []string{jointKey, "unknown field", "deviceTypes"},
		},
		{
			name: "a partition policy that does not exist", manifest: partition(`{"allocatePolicy":"Strict"}`),
			says: []string{partitionKey, "allocatePolicy", `Unsupported value "Strict"`, "BestEffort, Restricted"},
		},
		{
			name: "a bandwidth below zero", manifest: partition(`{"ringBusBandwidth":"-1Gi"}`),
			says: []string{partitionKey, "ringBusBandwidth", "must not be negative"},
		},
		{
			name: "a bandwidth that takes seconds to read", manifest: partition(`{"ringBusBandwidth":"1e-9999999"}`),
			says: []string{partitionKey, "ringBusBandwidth", `"1e-9999999" is out of range`},
		},
	}
}

// deviceCases hands every request to the webhooks, which must neither admit nor change it, and to what the scheduler
// reads pods with.
func deviceCases() (cases []bad) {
	for _, d := range deviceRequests() {
		cases = append(cases, bad{"webhook: devices: " + d.name, func(t *testing.T) string {
			t.Helper()
			review(t, "/mutate-pod", d.manifest, "") // fails the test where it changes the pod
			answer := refused("/validate-pod", d.manifest, "")(t)
			if !strings.Contains(answer, "spec.") && !strings.Contains(answer, "metadata.annotations[") {
				t.Errorf("got %q, want the path of a field", answer)
			}
			return answer
		}, d.says})
		if d.zero {
			continue
		}
		cases = append(cases, bad{"scheduler: devices: " + d.name, func(t *testing.T) string {
			t.Helper()
			pod := &corev1.Pod{}
			testkit.Check(t, yaml.UnmarshalStrict([]byte(d.manifest), pod))
			args := convert.DefaultArgs()
			args.Devices = true
			r, reason, detail := convert.Request(pod, args)
			if r != nil || reason.OK() {
				t.Fatalf("the request is read: %+v", r)
			}
			return reason.Code.String() + ": " + detail
		}, d.says})
	}
	return cases
}
