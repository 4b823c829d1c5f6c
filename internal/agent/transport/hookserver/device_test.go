package hookserver_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/tenon-project/tenon/api/runtime/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestDevicesTravelInBothDirections(t *testing.T) {
	b := &book{
		answer: hook.Resources{CPUs: "4-5"},
		devices: inject.Answer{
			Env:    map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-a"},
			Files:  []host.DeviceFile{{Path: "/dev/nvidia0", Major: 195}},
			CDI:    []string{"tenon.sh/gpu=GPU-a"},
			Mounts: []inject.Mount{{Path: "/usr/local/vgpu", ReadOnly: true}, {Path: "/dev/shm", Source: "/run/shm"}},
		},
	}
	c, _ := serve(t, b)
	request := proto.CloneOf(containerRequest)
	request.ContainerEnvs = map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}
	request.ContainerDevices = []*v1alpha1.ContainerDevice{
		{ContainerPath: "/dev/x", HostPath: "/dev/nvidia1", Permissions: "rw"},
	}
	request.ContainerCdiDevices, request.ContainerPrivileged = []string{"nvidia.com/gpu=0"}, true
	got, err := c.PreCreateContainerHook(t.Context(), request)
	testkit.Check(t, err)
	want := &v1alpha1.ContainerResourceHookResponse{
		ContainerResources: &v1alpha1.LinuxContainerResources{CpusetCpus: "4-5"},
		ContainerEnvs:      map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-a"},
		ContainerDevices: []*v1alpha1.ContainerDevice{
			{ContainerPath: "/dev/nvidia0", HostPath: "/dev/nvidia0", Permissions: "rw"},
		},
		ContainerCdiDevices: []string{"tenon.sh/gpu=GPU-a"},
		ContainerMounts: []*v1alpha1.ContainerMount{
			{ContainerPath: "/usr/local/vgpu", HostPath: "/usr/local/vgpu", Readonly: true},
			{ContainerPath: "/dev/shm", HostPath: "/run/shm"},
		},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	sight := inject.Sight{
		Env: []string{"NVIDIA_VISIBLE_DEVICES=all"},
		Files: []inject.File{
			{DeviceFile: host.DeviceFile{Path: "/dev/x"}, HostPath: "/dev/nvidia1"},
		},
		CDI: []string{"nvidia.com/gpu=0"}, Privileged: true,
	}
	if asked, ok := b.lines[0].(line); !ok || asked.Step != "Devices" {
		t.Errorf("first step %+v, want Devices", b.lines[0])
	} else if diff := cmp.Diff(sight, asked.Container.Devices); diff != "" {
		t.Errorf("what the container is to be created with (-want +got):\n%s", diff)
	}
}

func TestAMountOfMemoryIsRefusedBehindTheProxy(t *testing.T) {
	b := &book{devices: inject.Answer{Mounts: []inject.Mount{{Path: "/tmp/vgpulock", InMemory: true}}}}
	c, _ := serve(t, b)
	_, err := c.PreCreateContainerHook(t.Context(), containerRequest)
	if err == nil || !strings.Contains(err.Error(), "/tmp/vgpulock") {
		t.Errorf("the container is created (%v), want an error that names the path", err)
	}
	if len(b.lines) != 1 {
		t.Errorf("steps %+v, want one: CPUs are not given to a container that is not created", b.lines)
	}
}
