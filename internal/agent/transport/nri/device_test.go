package nri_test

import (
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/agent/transport"
	"github.com/tenon-project/tenon/internal/testkit"
)

// accelerated is a node with two GPUs.
func accelerated() *inject.Node {
	return &inject.Node{
		Mode: annotation.DeviceOwn, Types: []string{annotation.DeviceGPU}, CDI: []string{"tenon.sh/gpu=GPU-a"},
		Cards: host.Cards{
			List: []host.Card{
				{
					Kind: host.NVIDIA, ID: "GPU-a", BusID: "0000:3b:00.0",
					Files: []host.DeviceFile{{Path: "/dev/nvidia1", Major: 195, Minor: 1}},
				},
				{
					Kind: host.NVIDIA, ID: "GPU-b", BusID: "0000:5e:00.0",
					Files: []host.DeviceFile{{Path: "/dev/nvidia0", Major: 195, Minor: 0}},
				},
			},
			Common: map[host.CardKind][]host.DeviceFile{
				host.NVIDIA: {{Path: "/dev/nvidiactl", Major: 195, Minor: 255}},
			},
		},
	}
}

// withGPU is a pod that GPU-a was allocated to.
func withGPU(uid string) *api.PodSandbox {
	p := pod(uid, "", "")
	p.Annotations[annotation.DeviceAllocatedKey] = `{"gpu":[{"minor":0,"id":"GPU-a","resources":` +
		`{"koordinator.sh/gpu-memory":"4Gi"}}]}`
	return p
}

func deviceRuntime(t *testing.T, change ...func(*inject.Node)) *runtime {
	t.Helper()
	tree, m := newTree(t)
	r := newRuntime(t, tree)
	node := accelerated()
	for _, f := range change {
		f(node)
	}
	r.devices = node
	startAgent(t, r, m)
	return r
}

func linuxFile(path string, minor int64) *api.LinuxDevice {
	return &api.LinuxDevice{Path: path, Type: "c", Major: 195, Minor: minor, FileMode: api.FileMode(uint32(0o666))}
}

func TestAContainerIsMadeWithItsDevices(t *testing.T) {
	t.Parallel()
	r := deviceRuntime(t)
	p := withGPU("a")
	p.Labels["koordinator.sh/gpu-isolation-provider"] = "HAMi-core"
	b, err := r.deploy(p, "c1")
	testkit.Check(t, err)
	want := &api.ContainerAdjustment{
		Env: []*api.KeyValue{
			{Key: "CUDA_DEVICE_MEMORY_LIMIT_0", Value: "4096m"},
			{Key: "CUDA_DEVICE_MEMORY_SHARED_CACHE", Value: "/tmp/vgpulock/cache"},
			{Key: "LD_PRELOAD", Value: "/usr/local/vgpu/libvgpu.so"},
			{Key: "NVIDIA_VISIBLE_DEVICES", Value: "GPU-a"},
		},
		CDIDevices: []*api.CDIDevice{{Name: "tenon.sh/gpu=GPU-a"}},
		Mounts: []*api.Mount{
			{
				Source: "/usr/local/vgpu", Destination: "/usr/local/vgpu", Type: "bind",
				Options: []string{"rbind", "ro"},
			},
			{
				Source: "tmpfs", Destination: "/tmp/vgpulock", Type: "tmpfs",
				Options: []string{"nosuid", "nodev", "noexec", "mode=1777", "size=16m"},
			},
		},
		Linux: &api.LinuxContainerAdjustment{
			Devices: []*api.LinuxDevice{linuxFile("/dev/nvidia1", 1), linuxFile("/dev/nvidiactl", 255)},
		},
	}
	got := &api.ContainerAdjustment{
		Env: b.adjust.GetEnv(), CDIDevices: b.adjust.GetCDIDevices(), Mounts: b.adjust.GetMounts(),
		Linux: &api.LinuxContainerAdjustment{Devices: b.adjust.GetLinux().GetDevices()},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("adjustment (-want +got):\n%s", diff)
	}
	if cpus := r.cpus(b); cpus != "0-7" {
		t.Errorf("its CPUs are %q, want those of the shared pool, 0-7", cpus)
	}
}

func TestAContainerWithoutDevicesSeesNone(t *testing.T) {
	t.Parallel()
	r := deviceRuntime(t)
	p := pod("a", "", "")
	testkit.Check(t, r.run(p))
	b, err := r.createWith(p, "c1", func(c *api.Container) { c.Env = []string{"NVIDIA_VISIBLE_DEVICES=all"} })
	testkit.Check(t, err)
	want := []*api.KeyValue{{Key: "NVIDIA_VISIBLE_DEVICES", Value: "void"}}
	if diff := cmp.Diff(want, b.adjust.GetEnv(), protocmp.Transform()); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	_, err = r.createWith(p, "c2", func(c *api.Container) { // as kube-proxy
		c.Linux.Devices = []*api.LinuxDevice{linuxFile("/dev/nvidia0", 0)}
		c.Linux.Resources.Devices = []*api.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
	})
	testkit.Check(t, err)
}

func TestAContainerIsNotMadeWithOtherDevices(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*api.Container)
		text   string
	}{
		"a file of the kubelet's plugin": {func(c *api.Container) {
			c.Linux.Devices = []*api.LinuxDevice{linuxFile("/dev/nvidia0", 0)}
		}, "/dev/nvidia0"},
		"a rule for one file": {func(c *api.Container) {
			c.Linux.Devices = []*api.LinuxDevice{linuxFile("/dev/nvidia0", 0)}
			c.Linux.Resources.Devices = []*api.LinuxDeviceCgroup{
				{Allow: false, Access: "rwm"},
				{Allow: true, Type: "c", Access: "m"},
				{Allow: true, Type: "c", Major: api.Int64(195), Minor: api.Int64(0), Access: "rwm"},
			}
		}, "/dev/nvidia0"},
		"a privilege": {func(c *api.Container) {
			c.Linux.Resources.Devices = []*api.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
		}, "privileged"},
		"a CDI device": {func(c *api.Container) {
			c.CDIDevices = []*api.CDIDevice{{Name: "nvidia.com/gpu=1"}}
		}, "nvidia.com/gpu=1"},
		"a variable that is set twice": {func(c *api.Container) {
			c.Env = []string{"NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_VISIBLE_DEVICES=all"}
		}, "2 times"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := deviceRuntime(t)
			p := withGPU("a")
			testkit.Check(t, r.run(p))
			_, err := r.createWith(p, "c1", test.change)
			wantRefusal(t, err, "DeviceConflict")
			wantRefusal(t, err, test.text)
		})
	}
}

func TestAnAllocationThatCannotBeGivenMakesNoContainer(t *testing.T) {
	t.Parallel()
	r := deviceRuntime(t, func(n *inject.Node) { n.Cards.List = n.Cards.List[1:] })
	_, err := r.deploy(withGPU("a"), "c1")
	wantRefusal(t, err, `DeviceUnavailable: container "main" of pod a: no driver of this machine has the gpu "GPU-a"`)
	p := pod("b", "", "")
	p.Annotations[annotation.DeviceAllocatedKey] = "{"
	_, err = r.deploy(p, "c2")
	wantRefusal(t, err, "BadAnnotation")
}

// Another plugin that answers later adds what the agent did not: the validator finds it.
func TestAnotherPluginCannotAddDevices(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer func(*api.ContainerAdjustment)
		text   string
	}{
		"a file": {
			func(a *api.ContainerAdjustment) { a.AddDevice(linuxFile("/dev/nvidia0", 0)) }, "/dev/nvidia0",
		},
		"a CDI device": {
			func(a *api.ContainerAdjustment) { a.AddCDIDevice(&api.CDIDevice{Name: "nvidia.com/gpu=all"}) }, "gpu=all",
		},
		"the variable": {
			func(a *api.ContainerAdjustment) { a.AddEnv("NVIDIA_VISIBLE_DEVICES", "all") }, "both tried to set",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := deviceRuntime(t)
			(&rival{create: test.answer}).join(t, r)
			p := pod("a", "", "")
			testkit.Check(t, r.run(p))
			eventually(t, "the refusal", func() bool { // the rival takes part soon after it was synchronized
				_, err := r.create(p, "c1")
				if err == nil {
					return false
				}
				wantRefusal(t, err, test.text)
				return true
			})
		})
	}
}

// lost is a Handler whose answer about devices never reaches the runtime.
type lost struct{ hook.Handler }

func (lost) Devices(hook.Container) (inject.Answer, error) { return inject.Answer{}, nil }

func TestAContainerWhoseAnswerWasLostIsNotMade(t *testing.T) {
	t.Parallel()
	tree, m := newTree(t)
	r := newRuntime(t, tree)
	r.devices = accelerated()
	startAgent(t, r, m, func(o *transport.NRIOptions) { o.Handler = lost{o.Handler} })
	_, err := r.deploy(withGPU("a"), "c1")
	wantRefusal(t, err, "without NVIDIA_VISIBLE_DEVICES=GPU-a")
	_, err = r.deploy(pod("b", "", ""), "c2")
	wantRefusal(t, err, "without NVIDIA_VISIBLE_DEVICES=void")
}
