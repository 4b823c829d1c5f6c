package criproxy_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/api/runtime/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/criproxy"
)

func TestAContainerIsCreatedWithTheDevicesOfTheAnswer(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	p := newProxy(t, rt.socket)
	p.register(t, "tenon-agent.json", h.registration(criproxy.Fail))
	h.answer(func(context.Context, string) (*v1alpha1.ContainerResourceHookResponse, error) {
		return &v1alpha1.ContainerResourceHookResponse{
			ContainerEnvs: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-a"},
			ContainerDevices: []*v1alpha1.ContainerDevice{
				{ContainerPath: "/dev/nvidia0", HostPath: "/dev/nvidia0", Permissions: "rw"},
				{ContainerPath: "/dev/nvidiactl", HostPath: "/dev/nvidiactl", Permissions: "rw"},
			},
			ContainerCdiDevices: []string{"tenon.sh/gpu=GPU-a", "example.com/net=eth1"},
			ContainerMounts: []*v1alpha1.ContainerMount{
				{ContainerPath: "/usr/local/vgpu", HostPath: "/usr/local/vgpu", Readonly: true},
			},
		}, nil
	})
	create := &cri.CreateContainerRequest{PodSandboxId: "sandbox-0", Config: containerConfig("main")}
	create.SandboxConfig = podConfig("a", exclusive()...)
	c := create.Config
	c.Envs = []*cri.KeyValue{ // an image and a pod that set it twice
		{Key: "NVIDIA_VISIBLE_DEVICES", Value: []byte("all")},
		{Key: "NVIDIA_VISIBLE_DEVICES", Value: []byte("0")},
	}
	c.Devices = []*cri.Device{
		{ContainerPath: "/dev/fuse", HostPath: "/dev/fuse", Permissions: "rw"},
		{ContainerPath: "/dev/nvidia0", HostPath: "/dev/nvidia3", Permissions: "rwm"},
	}
	c.CDIDevices = []*cri.CDIDevice{{Name: "example.com/net=eth1"}}
	c.Mounts = []*cri.Mount{{ContainerPath: "/usr/local/vgpu", HostPath: "/home"}, {ContainerPath: "/data"}}
	c.Linux.SecurityContext = &cri.LinuxContainerSecurityContext{Privileged: true}
	client := p.kubelet(t)
	if _, err := client.CreateContainer(t.Context(), proto.CloneOf(create)); err != nil {
		t.Fatal(err)
	}
	asked := h.asked("PreCreateContainer")[0]
	want := &v1alpha1.ContainerResourceHookRequest{
		ContainerEnvs: map[string]string{"NVIDIA_VISIBLE_DEVICES": "0"},
		ContainerDevices: []*v1alpha1.ContainerDevice{
			{ContainerPath: "/dev/fuse", HostPath: "/dev/fuse", Permissions: "rw"},
			{ContainerPath: "/dev/nvidia0", HostPath: "/dev/nvidia3", Permissions: "rwm"},
		},
		ContainerCdiDevices: []string{"example.com/net=eth1"}, ContainerPrivileged: true,
	}
	if diff := cmp.Diff(want, &v1alpha1.ContainerResourceHookRequest{
		ContainerEnvs: asked.GetContainerEnvs(), ContainerDevices: asked.GetContainerDevices(),
		ContainerCdiDevices: asked.GetContainerCdiDevices(), ContainerPrivileged: asked.GetContainerPrivileged(),
	}, protocmp.Transform()); diff != "" {
		t.Errorf("question (-want +got):\n%s", diff)
	}
	for _, e := range c.Envs {
		e.Value = []byte("GPU-a")
	}
	c.Devices = []*cri.Device{
		c.Devices[0],
		{ContainerPath: "/dev/nvidia0", HostPath: "/dev/nvidia0", Permissions: "rw"},
		{ContainerPath: "/dev/nvidiactl", HostPath: "/dev/nvidiactl", Permissions: "rw"},
	}
	c.CDIDevices = append(c.CDIDevices, &cri.CDIDevice{Name: "tenon.sh/gpu=GPU-a"})
	c.Mounts = []*cri.Mount{
		{ContainerPath: "/data"}, {ContainerPath: "/usr/local/vgpu", HostPath: "/usr/local/vgpu", Readonly: true},
	}
	sees(t, rt, cri.RuntimeService_CreateContainer_FullMethodName, create)
}
