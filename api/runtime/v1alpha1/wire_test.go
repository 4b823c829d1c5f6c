package v1alpha1_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tenon-project/tenon/api/runtime/v1alpha1"
)

// What Koordinator's hook servers and proxies speak, with Tenon's fields from 101 on, which those skip. A difference
// here is a peer that no longer understands us.
func TestTheWireIsKoordinators(t *testing.T) {
	want := map[string][]string{
		"PodSandboxMetadata": {"name=1 string", "uid=2 string", "namespace=3 string", "attempt=4 uint32"},
		"PodSandboxHookRequest": {
			"pod_meta=1 runtime.v1alpha1.PodSandboxMetadata", "runtime_handler=2 string", "labels=3 map<string,string>",
			"annotations=4 map<string,string>", "cgroup_parent=5 string",
			"overhead=6 runtime.v1alpha1.LinuxContainerResources",
			"resources=7 runtime.v1alpha1.LinuxContainerResources",
		},
		"PodSandboxHookResponse": {
			"labels=1 map<string,string>", "annotations=2 map<string,string>", "cgroup_parent=3 string",
			"resources=4 runtime.v1alpha1.LinuxContainerResources",
		},
		"LinuxContainerResources": {
			"cpu_period=1 int64", "cpu_quota=2 int64", "cpu_shares=3 int64", "memory_limit_in_bytes=4 int64",
			"oom_score_adj=5 int64", "cpuset_cpus=6 string", "cpuset_mems=7 string",
			"hugepage_limits=8 repeated runtime.v1alpha1.HugepageLimit", "unified=9 map<string,string>",
			"memory_swap_limit_in_bytes=10 int64",
		},
		"HugepageLimit":     {"page_size=1 string", "limit=2 uint64"},
		"ContainerMetadata": {"name=1 string", "attempt=2 uint32", "id=3 string"},
		"ContainerResourceHookRequest": {
			"pod_meta=1 runtime.v1alpha1.PodSandboxMetadata", "container_meta=2 runtime.v1alpha1.ContainerMetadata",
			"container_annotations=3 map<string,string>",
			"container_resources=4 runtime.v1alpha1.LinuxContainerResources",
			"pod_resources=5 runtime.v1alpha1.LinuxContainerResources", "pod_annotations=6 map<string,string>",
			"pod_labels=7 map<string,string>", "pod_cgroup_parent=8 string", "container_envs=9 map<string,string>",
			"container_devices=101 repeated runtime.v1alpha1.ContainerDevice",
			"container_cdi_devices=102 repeated string", "container_privileged=103 bool",
		},
		"ContainerResourceHookResponse": {
			"container_annotations=1 map<string,string>",
			"container_resources=2 runtime.v1alpha1.LinuxContainerResources",
			"pod_cgroup_parent=3 string", "container_envs=4 map<string,string>",
			"container_devices=101 repeated runtime.v1alpha1.ContainerDevice",
			"container_cdi_devices=102 repeated string",
			"container_mounts=103 repeated runtime.v1alpha1.ContainerMount",
		},
		"ContainerDevice": {"container_path=1 string", "host_path=2 string", "permissions=3 string"},
		"ContainerMount":  {"container_path=1 string", "host_path=2 string", "readonly=3 bool"},
	}
	file := v1alpha1.File_api_runtime_v1alpha1_api_proto
	if got := file.Package(); got != "runtime.v1alpha1" {
		t.Errorf("package %q, want runtime.v1alpha1", got)
	}
	got := map[string][]string{}
	for i := range file.Messages().Len() {
		m := file.Messages().Get(i)
		var fields []string
		for j := range m.Fields().Len() {
			fields = append(fields, describe(m.Fields().Get(j)))
		}
		got[string(m.Name())] = fields
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

func TestTheServiceIsKoordinators(t *testing.T) {
	sandbox := [2]string{"PodSandboxHookRequest", "PodSandboxHookResponse"}
	container := [2]string{"ContainerResourceHookRequest", "ContainerResourceHookResponse"}
	want := map[string][2]string{
		"PreRunPodSandboxHook": sandbox, "PostStopPodSandboxHook": sandbox,
		"PreCreateContainerHook": container, "PreStartContainerHook": container, "PostStartContainerHook": container,
		"PostStopContainerHook": container, "PreUpdateContainerResourcesHook": container,
	}
	service := v1alpha1.File_api_runtime_v1alpha1_api_proto.Services().ByName("RuntimeHookService")
	if service == nil {
		t.Fatal("no service RuntimeHookService")
	}
	got := map[string][2]string{}
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		if m.IsStreamingClient() || m.IsStreamingServer() {
			t.Errorf("%s streams, want one request and one response", m.Name())
		}
		got[string(m.Name())] = [2]string{string(m.Input().Name()), string(m.Output().Name())}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("methods (-want +got):\n%s", diff)
	}
}

func describe(f protoreflect.FieldDescriptor) string {
	kind := f.Kind().String()
	switch {
	case f.IsMap():
		kind = fmt.Sprintf("map<%s,%s>", f.MapKey().Kind(), f.MapValue().Kind())
	case f.Message() != nil && f.IsList():
		kind = "repeated " + string(f.Message().FullName())
	case f.Message() != nil:
		kind = string(f.Message().FullName())
	case f.IsList():
		kind = "repeated " + kind
	}
	return fmt.Sprintf("%s=%d %s", f.Name(), f.Number(), kind)
}
