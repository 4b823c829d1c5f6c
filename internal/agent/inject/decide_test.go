package inject_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/testkit"
)

// file is a device file of the test machine.
func file(path string, major, minor int64) host.DeviceFile {
	return host.DeviceFile{Path: path, Major: major, Minor: minor}
}

// machine has two GPUs of NVIDIA whose minors run against their addresses, one whose UUID is not known, an RDMA adapter
// with two virtual functions, an adapter without a file, and an FPGA.
func machine() *inject.Node {
	return &inject.Node{
		Mode: annotation.DeviceOwn, Types: []string{"fpga", "gpu", "rdma"},
		Cards: host.Cards{
			List: []host.Card{
				{Kind: host.RDMA, ID: "0000:09:00.0", BusID: "0000:09:00.0", Files: []host.DeviceFile{
					file("/dev/infiniband/uverbs0", 231, 192), file("/dev/infiniband/umad0", 231, 0),
				}},
				{
					Kind: host.RDMA, ID: "0000:09:00.1", BusID: "0000:09:00.1", Parent: "0000:09:00.0",
					Files: []host.DeviceFile{file("/dev/infiniband/uverbs1", 231, 193)},
				},
				{
					Kind: host.RDMA, ID: "0000:09:00.2", BusID: "0000:09:00.2", Parent: "0000:09:00.0",
					Files: []host.DeviceFile{file("/dev/infiniband/uverbs2", 231, 194)},
				},
				{Kind: host.RDMA, ID: "0000:0a:00.0", BusID: "0000:0a:00.0"},
				{
					Kind: host.NVIDIA, ID: "GPU-b", BusID: "0000:3b:00.0",
					Files: []host.DeviceFile{file("/dev/nvidia1", 195, 1)},
				},
				{
					Kind: host.NVIDIA, ID: "GPU-a", BusID: "0000:5e:00.0",
					Files: []host.DeviceFile{file("/dev/nvidia0", 195, 0)},
				},
				{Kind: host.NVIDIA, BusID: "0000:af:00.0", Files: []host.DeviceFile{file("/dev/nvidia2", 195, 2)}},
				{
					Kind: host.FPGA, ID: "0000:b1:00.0", BusID: "0000:b1:00.0",
					Files: []host.DeviceFile{file("/dev/dfl-port.0", 236, 64)},
				},
			},
			Common: map[host.CardKind][]host.DeviceFile{
				host.NVIDIA: {file("/dev/nvidiactl", 195, 255), file("/dev/nvidia-uvm", 510, 0)},
				host.RDMA:   {file("/dev/infiniband/rdma_cm", 10, 58)},
			},
		},
	}
}

// withAMD adds a GPU of AMD.
func withAMD(n *inject.Node) {
	n.Cards.List = append(n.Cards.List, host.Card{
		Kind: host.AMD, ID: "1f3b", BusID: "0000:c1:00.0",
		Files: []host.DeviceFile{file("/dev/dri/renderD128", 226, 128)},
	})
	n.Cards.Common[host.AMD] = []host.DeviceFile{file("/dev/kfd", 234, 0)}
}

// allocated is a container of a pod with an allocation.
func allocated(text string) inject.Container {
	return inject.Container{
		Name: "main", Namespace: "ns", Annotations: map[string]string{annotation.DeviceAllocatedKey: text},
	}
}

func plain() inject.Container { return inject.Container{Name: "main", Namespace: "ns"} }

const (
	gpuA  = `{"gpu":[{"minor":0,"id":"GPU-a","resources":{}}]}`
	half  = `{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"4Gi","koordinator.sh/gpu-memory-ratio":"50"}`
	label = "koordinator.sh/gpu-isolation-provider"
)

// shareOf is the allocation of half a GPU.
func shareOf(gpu string) string { return `{"gpu":[{"id":"` + gpu + `","resources":` + half + `}]}` }

func labeled(text, provider string) inject.Container {
	c := allocated(text)
	c.Labels = map[string]string{label: provider}
	return c
}

// withMPS is a machine whose GPUs programs share by the control daemon alone.
func withMPS(n *inject.Node) {
	n.MPS, n.Exclusive = true, []string{"GPU-a", "GPU-b", "MIG-a"}
}

func paths(files []host.DeviceFile) (out []string) {
	for _, f := range files {
		out = append(out, f.Path)
	}
	return out
}

func TestDecide(t *testing.T) {
	t.Parallel()
	const none = "void"
	ofA := []string{"/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"}
	for name, test := range map[string]struct {
		node      func(*inject.Node)
		container inject.Container
		env       map[string]string
		files     []string
		cdi       []string
		mounts    []inject.Mount
	}{
		"a whole GPU": {
			container: allocated(gpuA), env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-a"}, files: ofA,
		},
		"the minor of an allocation plays no role": {
			container: allocated(`{"gpu":[{"minor":1,"id":"GPU-a","resources":{}}]}`),
			env:       map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-a"}, files: ofA,
		},
		"several GPUs are named by address, however they are listed": {
			container: allocated(`{"gpu":[{"id":"GPU-a","resources":{}},{"id":"GPU-b","resources":{}}]}`),
			env:       map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-b,GPU-a"},
			files:     []string{"/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"},
		},
		"each container has its own part": {
			container: allocated(`{"gpu":[{"id":"GPU-a","resources":{},"extension":{"containers":{"main":{}}}},` +
				`{"id":"GPU-b","resources":{},"extension":{"containers":{"other":{}}}}]}`),
			env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-a"}, files: ofA,
		},
		"a part of the pod as a whole is each container's": {
			container: allocated(`{"gpu":[{"id":"GPU-a","resources":{},"extension":{"containers":{"":{}}}}]}`),
			env:       map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-a"}, files: ofA,
		},
		"a sidecar has none": {
			container: allocated(`{"gpu":[{"id":"GPU-b","resources":{},"extension":{"containers":{"other":{}}}}]}`),
			env:       map[string]string{"NVIDIA_VISIBLE_DEVICES": none},
		},
		"a pod without an allocation": {
			container: plain(), env: map[string]string{"NVIDIA_VISIBLE_DEVICES": none},
		},
		"an empty allocation": {
			container: allocated(`{}`), env: map[string]string{"NVIDIA_VISIBLE_DEVICES": none},
		},
		"image and pod ask for all": {
			container: func() inject.Container {
				c := plain()
				c.Has.Env = []string{"PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all"}
				return c
			}(),
			env: map[string]string{"NVIDIA_VISIBLE_DEVICES": none},
		},
		"no driver is loaded": {
			node: func(n *inject.Node) { n.Cards = host.Cards{} }, container: plain(),
			env: map[string]string{"NVIDIA_VISIBLE_DEVICES": none},
		},
		"GPUs of two vendors": {
			node: withAMD, container: allocated(`{"gpu":[{"id":"1f3b","resources":{}}]}`),
			env:   map[string]string{"NVIDIA_VISIBLE_DEVICES": none, "AMD_VISIBLE_DEVICES": "1f3b"},
			files: []string{"/dev/dri/renderD128", "/dev/kfd"},
		},
		"no GPU of two vendors": {
			node: withAMD, container: plain(),
			env: map[string]string{"NVIDIA_VISIBLE_DEVICES": none, "AMD_VISIBLE_DEVICES": none},
		},
		"an RDMA adapter": {
			container: allocated(`{"rdma":[{"id":"0000:09:00.0","resources":{}}]}`),
			env:       map[string]string{"NVIDIA_VISIBLE_DEVICES": none},
			files:     []string{"/dev/infiniband/rdma_cm", "/dev/infiniband/umad0", "/dev/infiniband/uverbs0"},
		},
		"a virtual function, and not its adapter": {
			container: allocated(`{"rdma":[{"id":"0000:09:00.0","resources":{},` +
				`"extension":{"vfs":[{"minor":-1,"busID":"0000:09:00.2"}]}}]}`),
			env:   map[string]string{"NVIDIA_VISIBLE_DEVICES": none},
			files: []string{"/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs2"},
		},
		"an FPGA": {
			container: allocated(`{"fpga":[{"id":"0000:b1:00.0","resources":{}}]}`),
			env:       map[string]string{"NVIDIA_VISIBLE_DEVICES": none}, files: []string{"/dev/dfl-port.0"},
		},
		"CDI devices where the runtime knows them": {
			node:      func(n *inject.Node) { n.CDI = []string{"tenon.sh/gpu=GPU-a", "tenon.sh/gpu=GPU-b"} },
			container: allocated(gpuA), env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-a"}, files: ofA,
			cdi: []string{"tenon.sh/gpu=GPU-a"},
		},
		"the toolkit's CDI device, which brings libraries, before the agent's": {
			node: func(n *inject.Node) {
				n.CDI = []string{"tenon.sh/gpu=GPU-a", "nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b"}
			},
			container: allocated(gpuA), env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-a"}, files: ofA,
			cdi: []string{"nvidia.com/gpu=GPU-a"},
		},
		"a CDI device of a virtual function": {
			node: func(n *inject.Node) { n.CDI = []string{"tenon.sh/rdma=0000:09:00.0", "tenon.sh/rdma=0000:09:00.2"} },
			container: allocated(`{"rdma":[{"id":"0000:09:00.0","resources":{},` +
				`"extension":{"vfs":[{"minor":-1,"busID":"0000:09:00.2"}]}}]}`),
			env:   map[string]string{"NVIDIA_VISIBLE_DEVICES": none},
			files: []string{"/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs2"},
			cdi:   []string{"tenon.sh/rdma=0000:09:00.2"},
		},
		"the kubelet's plugins choose": {
			node: func(n *inject.Node) { n.Mode = annotation.DeviceFollow }, container: allocated(gpuA),
		},
		"a moving node leaves pods without an allocation": {
			node: func(n *inject.Node) { n.Mode = annotation.DeviceMoving }, container: plain(),
		},
		"a moving node gives allocations": {
			node: func(n *inject.Node) { n.Mode = annotation.DeviceMoving }, container: allocated(gpuA),
			env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-a"}, files: ofA,
		},
		"a node without a Device object leaves pods without an allocation": {
			node: func(n *inject.Node) { n.Mode, n.Types = "", nil }, container: plain(),
		},
		"a node without a Device object gives allocations": {
			node: func(n *inject.Node) { n.Mode, n.Types = "", nil }, container: allocated(gpuA),
			env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-a"}, files: ofA,
		},
		"GPUs are not Tenon's": {
			node: func(n *inject.Node) { n.Types = []string{"rdma"} }, container: plain(),
		},
		"an exempt pod": {
			node: func(n *inject.Node) { n.Exempt = exempt(t, "ns") }, container: plain(),
		},
		"a pod with an allocation is not exempt": {
			node: func(n *inject.Node) { n.Exempt = exempt(t, "ns") }, container: allocated(gpuA),
			env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-a"}, files: ofA,
		},
		"a pod of another namespace is not exempt": {
			node: func(n *inject.Node) { n.Exempt = exempt(t, "gpu-operator") }, container: plain(),
			env: map[string]string{"NVIDIA_VISIBLE_DEVICES": none},
		},
		"a pod with other labels is not exempt": {
			node: func(n *inject.Node) { n.Exempt = exempt(t, "ns/app in (exporter, driver)") }, container: plain(),
			env: map[string]string{"NVIDIA_VISIBLE_DEVICES": none},
		},
		"a node agent that is privileged": {
			container: func() inject.Container {
				c := plain()
				c.Has = inject.Sight{Privileged: true, Files: []inject.File{{DeviceFile: file("/dev/nvidia0", 195, 0)}}}
				return c
			}(),
			env: map[string]string{"NVIDIA_VISIBLE_DEVICES": none},
		},
		"limits of a share": {
			container: labeled(shareOf("GPU-a"), "HAMi-core"),
			env: map[string]string{
				"NVIDIA_VISIBLE_DEVICES": "GPU-a", "CUDA_DEVICE_MEMORY_LIMIT_0": "4096m", "CUDA_DEVICE_SM_LIMIT": "50",
				"CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/vgpulock/cache", "LD_PRELOAD": "/usr/local/vgpu/libvgpu.so",
			},
			files:  ofA,
			mounts: []inject.Mount{{Path: "/usr/local/vgpu", ReadOnly: true}, {Path: "/tmp/vgpulock", InMemory: true}},
		},
		"limits of one container's part": {
			container: func() inject.Container {
				c := allocated(`{"gpu":[{"id":"GPU-a","resources":{},"extension":{"containers":{"main":` + half +
					`}}}]}`)
				c.Labels = map[string]string{label: "HAMi-core"}
				return c
			}(),
			env: map[string]string{
				"NVIDIA_VISIBLE_DEVICES": "GPU-a", "CUDA_DEVICE_MEMORY_LIMIT_0": "4096m", "CUDA_DEVICE_SM_LIMIT": "50",
				"CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/vgpulock/cache", "LD_PRELOAD": "/usr/local/vgpu/libvgpu.so",
			},
			files:  ofA,
			mounts: []inject.Mount{{Path: "/usr/local/vgpu", ReadOnly: true}, {Path: "/tmp/vgpulock", InMemory: true}},
		},
		"limits of a share by MPS": {
			node:      withMPS,
			container: labeled(shareOf("GPU-a"), "mps"),
			env: map[string]string{
				"NVIDIA_VISIBLE_DEVICES": "GPU-a", "CUDA_MPS_PIPE_DIRECTORY": "/run/tenon/mps/pipe",
				"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "GPU-a=4096M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50",
			},
			files:  ofA,
			mounts: []inject.Mount{{Path: "/run/tenon/mps/pipe"}, {Path: "/dev/shm", Source: "/run/tenon/mps/shm"}},
		},
		"a whole GPU has no neighbours to be kept apart": {
			container: labeled(`{"gpu":[{"id":"GPU-a","resources":{"koordinator.sh/gpu-core":"100",`+
				`"koordinator.sh/gpu-memory":"8Gi","koordinator.sh/gpu-memory-ratio":"100"}}]}`, "mps"),
			env:   map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-a"},
			files: ofA,
		},
		"a container without a GPU has no limits": {
			container: func() inject.Container {
				c := plain()
				c.Labels = map[string]string{label: "HAMi-core"}
				return c
			}(),
			env: map[string]string{"NVIDIA_VISIBLE_DEVICES": none},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := machine()
			if test.node != nil {
				test.node(n)
			}
			got, err := inject.Decide(n, &test.container)
			testkit.Check(t, err)
			if diff := cmp.Diff(test.env, got.Env); diff != "" {
				t.Errorf("variables (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.files, paths(got.Files)); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.cdi, got.CDI); diff != "" {
				t.Errorf("CDI devices (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.mounts, got.Mounts); diff != "" {
				t.Errorf("mounts (-want +got):\n%s", diff)
			}
			if empty := len(test.env)+len(test.files) == 0; got.IsEmpty() != empty {
				t.Errorf("IsEmpty() = %t, want %t", got.IsEmpty(), empty)
			}
		})
	}
}

func exempt(t *testing.T, text string) []inject.Exemption {
	t.Helper()
	e, err := inject.ParseExemption(text)
	testkit.Check(t, err)
	return []inject.Exemption{e}
}

func TestDecideRefuses(t *testing.T) {
	t.Parallel()
	has := func(text string, s inject.Sight) inject.Container {
		c := plain()
		if text != "" {
			c = allocated(text)
		}
		c.Has = s
		return c
	}
	asks := func(c inject.Container, types ...string) inject.Container {
		c.Asks = types
		return c
	}
	foreign := func(path string, major, minor int64) inject.Sight {
		return inject.Sight{Files: []inject.File{{DeviceFile: file(path, major, minor)}}}
	}
	for name, test := range map[string]struct {
		node      func(*inject.Node)
		container inject.Container
		cause     error
		text      string
	}{
		"text that is not JSON": {
			container: allocated(`{`),
			cause:     inject.ErrMalformed, text: "device-allocated",
		},
		"an empty annotation": {
			container: allocated(``),
			cause:     inject.ErrMalformed, text: "device-allocated",
		},
		"an amount that is not a number": {
			container: allocated(`{"gpu":[{"id":"GPU-a","resources":{"koordinator.sh/gpu-core":"x"}}]}`),
			cause:     inject.ErrMalformed, text: "device-allocated",
		},
		"a minor alone": {
			container: allocated(`{"gpu":[{"minor":0,"resources":{}}]}`),
			cause:     inject.ErrMalformed, text: "gpu with minor 0 has no id",
		},
		"a card that vanished": {
			container: allocated(`{"gpu":[{"minor":3,"id":"GPU-c","resources":{}}]}`),
			cause:     inject.ErrUnavailable, text: `"GPU-c"`,
		},
		"a vanished card of another container": {
			container: allocated(`{"gpu":[{"id":"GPU-c","resources":{},"extension":{"containers":{"other":{}}}}]}`),
			cause:     inject.ErrUnavailable, text: `"GPU-c"`,
		},
		"an id of another type": {
			container: allocated(`{"rdma":[{"id":"GPU-a","resources":{}}]}`),
			cause:     inject.ErrUnavailable, text: `the rdma "GPU-a"`,
		},
		"the address of a GPU": {
			container: allocated(`{"gpu":[{"id":"0000:3b:00.0","resources":{}}]}`),
			cause:     inject.ErrUnavailable, text: "0000:3b:00.0",
		},
		"an id that differs in case": {
			container: allocated(`{"gpu":[{"id":"gpu-a","resources":{}}]}`),
			cause:     inject.ErrUnavailable, text: "gpu-a",
		},
		"an instance of a GPU": {
			container: allocated(`{"gpu":[{"id":"MIG-a","resources":{}}]}`),
			cause:     inject.ErrUnavailable, text: "MIG-a",
		},
		"a type that the agent does not know": {
			container: allocated(`{"npu":[{"id":"0","resources":{}}]}`),
			cause:     inject.ErrUnavailable, text: "npu",
		},
		"a part of an Ascend NPU": {
			container: allocated(`{"gpu":[{"id":"npu-0","resources":{},` +
				`"extension":{"gpuSharedResourceTemplate":"vir02_1c"}}]}`),
			cause: inject.ErrUnavailable, text: "template vir02_1c of gpu npu-0: the agent does not put Ascend NPUs",
		},
		"an adapter without a file": {
			container: allocated(`{"rdma":[{"id":"0000:0a:00.0","resources":{}}]}`),
			cause:     inject.ErrUnavailable, text: "no device file",
		},
		"a virtual function that vanished": {
			container: allocated(`{"rdma":[{"id":"0000:09:00.0","resources":{},` +
				`"extension":{"vfs":[{"minor":0,"busID":"0000:09:00.7"}]}}]}`),
			cause: inject.ErrUnavailable, text: "0000:09:00.7",
		},
		"a virtual function of no adapter": {
			container: allocated(`{"rdma":[{"id":"0000:09:00.1","resources":{},` +
				`"extension":{"vfs":[{"minor":0,"busID":"0000:09:00.2"}]}}]}`),
			cause: inject.ErrUnavailable, text: "not a virtual function of 0000:09:00.1",
		},
		"two ids of one card": {
			container: allocated(`{"rdma":[{"id":"0000:09:00.1","resources":{}},{"id":"0000:09:00.0","resources":{},` +
				`"extension":{"vfs":[{"minor":0,"busID":"0000:09:00.1"}]}}]}`),
			cause: inject.ErrMalformed, text: "0000:09:00.1 twice",
		},
		"two cards of one id": {
			node:      func(n *inject.Node) { n.Cards.List[6].ID = "GPU-a" },
			container: allocated(gpuA), cause: inject.ErrUnavailable, text: "are both the gpu GPU-a",
		},
		"a request without an allocation": {
			container: asks(plain(), "gpu"),
			cause:     inject.ErrUnallocated, text: "type gpu",
		},
		"a request of a type without an allocation": {
			container: asks(allocated(gpuA), "gpu", "rdma"),
			cause:     inject.ErrUnallocated, text: "type rdma",
		},
		"a request of an empty allocation": {
			container: asks(allocated(`{}`), "gpu"),
			cause:     inject.ErrUnallocated, text: "type gpu",
		},
		"a file of the kubelet's plugin": {
			container: has(gpuA, foreign("/dev/nvidia1", 195, 1)),
			cause:     inject.ErrConflict, text: "/dev/nvidia1",
		},
		"a file of a card under another path": {
			container: has("", foreign("/dev/card", 195, 1)),
			cause:     inject.ErrConflict, text: "/dev/card",
		},
		"a file that the driver did not list": {
			container: has("", foreign("/dev/nvidia7", 195, 7)),
			cause:     inject.ErrConflict, text: "/dev/nvidia7",
		},
		"a file that all GPUs share": {
			container: has("", foreign("/dev/nvidiactl", 195, 255)),
			cause:     inject.ErrConflict, text: "/dev/nvidiactl",
		},
		"a file by its path on the host": {
			container: has("", inject.Sight{Files: []inject.File{
				{DeviceFile: host.DeviceFile{Path: "/dev/x"}, HostPath: "/dev/dfl-port.0"},
			}}),
			cause: inject.ErrConflict, text: "/dev/x",
		},
		"a CDI device of the kubelet's plugin": {
			container: has(gpuA, inject.Sight{CDI: []string{"nvidia.com/gpu=0"}}),
			cause:     inject.ErrConflict, text: "nvidia.com/gpu=0",
		},
		"a CDI device of a claim": {
			container: has("", inject.Sight{CDI: []string{"k8s.gpu.nvidia.com/claim=u"}}),
			cause:     inject.ErrConflict, text: "claim=u",
		},
		"a CDI device of another pod": {
			container: has("", inject.Sight{CDI: []string{"tenon.sh/gpu=GPU-b"}}),
			cause:     inject.ErrConflict, text: "GPU-b",
		},
		"a CDI device of another pod's FPGA": {
			container: has(gpuA, inject.Sight{CDI: []string{"tenon.sh/fpga=0000:b1:00.0"}}),
			cause:     inject.ErrConflict, text: "0000:b1:00.0",
		},
		// A runtime replaces the first of them and keeps the second.
		"a variable that is set twice": {
			container: has("", inject.Sight{Env: []string{
				"NVIDIA_VISIBLE_DEVICES=none", "NVIDIA_VISIBLE_DEVICES=all",
			}}),
			cause: inject.ErrConflict, text: "2 times",
		},
		"a privileged container with one GPU of two": {
			container: has(gpuA, inject.Sight{Privileged: true}),
			cause:     inject.ErrConflict, text: "privileged",
		},
		"a library that is not known": {
			container: labeled(gpuA, "other"),
			cause:     inject.ErrMalformed, text: "want HAMi-core or mps",
		},
		"MPS without its daemon": {
			node:      func(n *inject.Node) { withMPS(n); n.MPS = false },
			container: labeled(shareOf("GPU-a"), "mps"),
			cause:     inject.ErrUnavailable, text: "no nvidia-cuda-mps-control with its pipes in",
		},
		"MPS on a GPU that programs can use without it": {
			node:      func(n *inject.Node) { withMPS(n); n.Exclusive = []string{"GPU-b"} },
			container: labeled(shareOf("GPU-a"), "mps"),
			cause:     inject.ErrUnavailable, text: "no report says that gpu GPU-a is in compute mode",
		},
		"MPS on a MIG device": {
			node: func(n *inject.Node) {
				withMPS(n)
				n.Cards.List = []host.Card{{
					Kind: host.NVIDIA, ID: "MIG-a", BusID: "x", Files: []host.DeviceFile{file("/dev/nvidia0", 195, 0)},
				}}
			},
			container: labeled(shareOf("MIG-a"), "mps"),
			cause:     inject.ErrUnavailable, text: "does not use for the MIG device MIG-a",
		},
		"a limit without an amount": {
			container: labeled(gpuA, "HAMi-core"),
			cause:     inject.ErrMalformed, text: "koordinator.sh/gpu-memory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := machine()
			if test.node != nil {
				test.node(n)
			}
			got, err := inject.Decide(n, &test.container)
			if !errors.Is(err, test.cause) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("Decide = %+v, %v; want an error of %v with %q", got, err, test.cause, test.text)
			}
			if err := inject.Check(n, &test.container); !errors.Is(err, test.cause) {
				t.Errorf("Check = %v, want %v", err, test.cause)
			}
		})
	}
}

// What another owner of devices gives is left alone where those are not Tenon's.
func TestDevicesOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	c := plain()
	c.Asks = []string{"gpu"}
	c.Has = inject.Sight{
		Env: []string{"NVIDIA_VISIBLE_DEVICES=GPU-a", "NVIDIA_VISIBLE_DEVICES=GPU-a"},
		CDI: []string{"nvidia.com/gpu=0"}, Files: []inject.File{{DeviceFile: file("/dev/nvidia0", 195, 0)}},
	}
	for name, change := range map[string]func(*inject.Node){
		"Follow": func(n *inject.Node) { n.Mode = annotation.DeviceFollow },
		"Moving": func(n *inject.Node) { n.Mode = annotation.DeviceMoving },
		"none":   func(n *inject.Node) { n.Mode, n.Types = "", nil },
		"rdma":   func(n *inject.Node) { n.Types = []string{"rdma"} },
		"exempt": func(n *inject.Node) { n.Exempt = exempt(t, "ns") },
	} {
		n := machine()
		change(n)
		if got, err := inject.Decide(n, &c); err != nil || !got.IsEmpty() {
			t.Errorf("%s: %+v, %v; want nothing", name, got, err)
		}
	}
	unrelated := plain()
	unrelated.Has = inject.Sight{
		CDI: []string{"example.com/net=eth1"}, Files: []inject.File{{DeviceFile: file("/dev/fuse", 10, 229)}},
	}
	if _, err := inject.Decide(machine(), &unrelated); err != nil {
		t.Errorf("devices of another type: %v", err)
	}
}

func TestParseExemption(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]bool{ // by the label app
		"ns":                             {"": true, "exporter": true},
		"ns/app=exporter":                {"": false, "exporter": true, "driver": false},
		"ns/app in (exporter,driver)":    {"exporter": true, "driver": true, "web": false},
		"ns/example.com/app notin (web)": {"": true},
	} {
		e := exempt(t, text)[0]
		if e.Namespace != "ns" {
			t.Errorf("%s: namespace %q", text, e.Namespace)
		}
		for _, app := range slices.Sorted(maps.Keys(want)) {
			if got := e.Selector.Matches(labels.Set{"app": app}); got != want[app] {
				t.Errorf("%s: app=%s matches %t, want %t", text, app, got, want[app])
			}
		}
	}
	for _, text := range []string{"", "/app=x", "ns/app in", "ns/=x"} {
		if e, err := inject.ParseExemption(text); err == nil || !strings.Contains(err.Error(), "NAMESPACE/SELECTOR") {
			t.Errorf("ParseExemption(%q) = %v, %v; want an error that shows the form", text, e, err)
		}
	}
}
