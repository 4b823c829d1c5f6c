package criproxy_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/runtime/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/criproxy"
	"github.com/tenon-project/tenon/internal/testkit"
)

// podConfig is a pod of the kubelet's; more are annotations and, with the prefix label:, labels.
func podConfig(name string, more ...string) *cri.PodSandboxConfig {
	c := &cri.PodSandboxConfig{
		Metadata:    &cri.PodSandboxMetadata{Name: name, Uid: "uid-" + name, Namespace: "default", Attempt: 1},
		Labels:      map[string]string{"app": name},
		Annotations: map[string]string{"kubernetes.io/config.source": "api"},
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent: "/kubepods/pod" + name,
			Overhead:     &cri.LinuxContainerResources{MemoryLimitInBytes: 1 << 20},
			Resources:    &cri.LinuxContainerResources{CpuShares: 2048},
		},
	}
	for i := 0; i < len(more); i += 2 {
		if key, ok := strings.CutPrefix(more[i], "label:"); ok {
			c.Labels[key] = more[i+1]
		} else {
			c.Annotations[more[i]] = more[i+1]
		}
	}
	return c
}

// exclusive makes podConfig's pod one that must be enforced.
func exclusive() []string {
	return []string{annotation.ResourceStatusKey, `{"cpuset":"0-3"}`, "label:" + annotation.QoSClass, "LSE"}
}

func containerConfig(name string) *cri.ContainerConfig {
	return &cri.ContainerConfig{
		Metadata:    &cri.ContainerMetadata{Name: name, Attempt: 2},
		Annotations: map[string]string{"io.kubernetes.container.hash": "1"},
		Envs: []*cri.KeyValue{
			{Key: "KEEP", Value: []byte("1")},
			{Key: "REPLACE", Value: []byte("old")},
			{Key: "BINARY", Value: []byte{0xff}},
		},
		Linux: &cri.LinuxContainerConfig{Resources: &cri.LinuxContainerResources{
			CpuPeriod: 100000, CpuQuota: 400000, CpuShares: 4096, MemoryLimitInBytes: 1 << 30, CpusetCpus: "0-7",
			HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB"}},
			Unified:        map[string]string{"memory.oom.group": "1"},
		}},
	}
}

// runPod runs a sandbox and creates a container in it.
func runPod(t *testing.T, c cri.RuntimeServiceClient, config *cri.PodSandboxConfig) (sandbox, container string) {
	t.Helper()
	b, err := c.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: config, RuntimeHandler: "runc"})
	testkit.Check(t, err)
	k, err := c.CreateContainer(t.Context(), &cri.CreateContainerRequest{
		PodSandboxId: b.GetPodSandboxId(), Config: containerConfig("main"), SandboxConfig: config,
	})
	testkit.Check(t, err)
	return b.GetPodSandboxId(), k.GetContainerId()
}

func TestHooksReceiveTheRequestsToTheRuntime(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	p := newProxy(t, rt.socket)
	p.register(t, "tenon-agent.json", h.registration(criproxy.Fail))
	c := p.kubelet(t)
	config := podConfig("a", exclusive()...)
	sandbox, container := runPod(t, c, config)
	for _, err := range []error{
		second(c.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: container})),
		second(c.UpdateContainerResources(t.Context(), &cri.UpdateContainerResourcesRequest{
			ContainerId: container, Linux: &cri.LinuxContainerResources{CpusetCpus: "4-5"},
		})),
		second(c.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: container})),
		second(c.StopPodSandbox(t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: sandbox})),
	} {
		testkit.Check(t, err)
	}
	meta := &v1alpha1.PodSandboxMetadata{Name: "a", Uid: "uid-a", Namespace: "default", Attempt: 1}
	pod := &v1alpha1.PodSandboxHookRequest{
		PodMeta: meta, RuntimeHandler: "runc", Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
		CgroupParent: "/kubepods/poda", Overhead: &v1alpha1.LinuxContainerResources{MemoryLimitInBytes: 1 << 20},
		Resources: &v1alpha1.LinuxContainerResources{CpuShares: 2048},
	}
	p.stop() // the hook calls in the background have ended
	for _, hook := range []string{"PreRunPodSandbox", "PostStopPodSandbox"} {
		if diff := cmp.Diff([]*v1alpha1.PodSandboxHookRequest{pod}, h.askedPods(hook),
			protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", hook, diff)
		}
	}
	ofContainer := func(id string, r *v1alpha1.LinuxContainerResources,
		envs map[string]string,
	) *v1alpha1.ContainerResourceHookRequest {
		return &v1alpha1.ContainerResourceHookRequest{
			PodMeta: meta, ContainerMeta: &v1alpha1.ContainerMetadata{Name: "main", Attempt: 2, Id: id},
			ContainerAnnotations: map[string]string{"io.kubernetes.container.hash": "1"}, ContainerResources: r,
			PodResources: pod.GetResources(), PodAnnotations: config.GetAnnotations(), PodLabels: config.GetLabels(),
			PodCgroupParent: "/kubepods/poda", ContainerEnvs: envs,
		}
	}
	resources := &v1alpha1.LinuxContainerResources{
		CpuPeriod: 100000, CpuQuota: 400000, CpuShares: 4096, MemoryLimitInBytes: 1 << 30, CpusetCpus: "0-7",
		HugepageLimits: []*v1alpha1.HugepageLimit{{PageSize: "2MB"}},
		Unified:        map[string]string{"memory.oom.group": "1"},
	}
	updated := proto.CloneOf(resources)
	updated.CpusetCpus = "4-5"
	for hook, want := range map[string]*v1alpha1.ContainerResourceHookRequest{
		// A value that is not UTF-8 has no place in the protocol.
		"PreCreateContainer": ofContainer("", resources, map[string]string{"KEEP": "1", "REPLACE": "old"}),
		"PreStartContainer":  ofContainer(container, resources, nil),
		"PostStartContainer": ofContainer(container, resources, nil),
		"PreUpdateContainerResources": ofContainer(container, &v1alpha1.LinuxContainerResources{CpusetCpus: "4-5"},
			nil),
		"PostStopContainer": ofContainer(container, updated, nil),
	} {
		if diff := cmp.Diff([]*v1alpha1.ContainerResourceHookRequest{want}, h.asked(hook),
			protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", hook, diff)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestHooksChangeWhatTheRuntimeIsAsked(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	p := newProxy(t, rt.socket)
	p.register(t, "tenon-agent.json", h.registration(criproxy.Fail))
	h.answerPods(func(context.Context, string) (*v1alpha1.PodSandboxHookResponse, error) {
		return &v1alpha1.PodSandboxHookResponse{
			Labels: map[string]string{"app": "changed"}, Annotations: map[string]string{"new": "annotation"},
			CgroupParent: "/other",
			Resources:    &v1alpha1.LinuxContainerResources{CpusetCpus: "2-3"},
		}, nil
	})
	h.answer(func(_ context.Context, hook string) (*v1alpha1.ContainerResourceHookResponse, error) {
		return &v1alpha1.ContainerResourceHookResponse{
			ContainerAnnotations: map[string]string{"by": hook},
			ContainerResources: &v1alpha1.LinuxContainerResources{
				CpusetCpus: "2-3", CpusetMems: "1", CpuQuota: -1, Unified: map[string]string{"memory.high": "max"},
				HugepageLimits: []*v1alpha1.HugepageLimit{
					{PageSize: "2MB", Limit: 2 << 20},
					{PageSize: "1GB", Limit: 1 << 30},
				},
			},
			ContainerEnvs:   map[string]string{"REPLACE": "new", "B": "2", "A": "1", "BINARY": "text"},
			PodCgroupParent: "/elsewhere",
		}, nil
	})
	c := p.kubelet(t)
	config := podConfig("a")
	conn := connect(t, p.socket)
	request := withUnknown(must(proto.Marshal(&cri.RunPodSandboxRequest{Config: config})))
	if _, _, _, err := call(t.Context(), conn, cri.RuntimeService_RunPodSandbox_FullMethodName, request); err != nil {
		t.Fatal(err)
	}
	wantRun := &cri.RunPodSandboxRequest{Config: podConfig("a", "new", "annotation", "label:app", "changed")}
	wantRun.Config.Linux.CgroupParent = "/other"
	wantRun.Config.Linux.Resources.CpusetCpus = "2-3"
	sees(t, rt, cri.RuntimeService_RunPodSandbox_FullMethodName, later(wantRun))

	create := &cri.CreateContainerRequest{
		PodSandboxId: "sandbox-0", Config: containerConfig("main"),
		SandboxConfig: config,
	}
	request = withUnknown(must(proto.Marshal(create)))
	if _, _, _, err := call(t.Context(), conn, cri.RuntimeService_CreateContainer_FullMethodName, request); err != nil {
		t.Fatal(err)
	}
	create.Config.Annotations["by"] = "PreCreateContainer"
	create.SandboxConfig.Linux.CgroupParent = "/elsewhere"
	create.Config.Envs = []*cri.KeyValue{
		{Key: "KEEP", Value: []byte("1")},
		{Key: "REPLACE", Value: []byte("new")},
		{Key: "BINARY", Value: []byte("text")},
		{Key: "A", Value: []byte("1")},
		{Key: "B", Value: []byte("2")},
	}
	r := create.Config.Linux.Resources
	r.CpusetCpus, r.CpusetMems, r.CpuQuota = "2-3", "1", -1
	r.Unified["memory.high"] = "max"
	r.HugepageLimits = []*cri.HugepageLimit{{PageSize: "2MB", Limit: 2 << 20}, {PageSize: "1GB", Limit: 1 << 30}}
	sees(t, rt, cri.RuntimeService_CreateContainer_FullMethodName, later(create))

	update := &cri.UpdateContainerResourcesRequest{
		ContainerId: "container-0", Linux: &cri.LinuxContainerResources{CpusetCpus: "0-7", MemoryLimitInBytes: 5},
	}
	if _, err := c.UpdateContainerResources(t.Context(), proto.CloneOf(update)); err != nil {
		t.Fatal(err)
	}
	update.Linux = proto.CloneOf(r)
	update.Linux.CpuPeriod, update.Linux.CpuShares, update.Linux.MemoryLimitInBytes = 0, 0, 5
	update.Linux.Unified = map[string]string{"memory.high": "max"}
	update.Annotations = map[string]string{"by": "PreUpdateContainerResources"}
	sees(t, rt, cri.RuntimeService_UpdateContainerResources_FullMethodName, update)
}

// later is a message with the field that withUnknown adds.
func later[M proto.Message](m M) M {
	m.ProtoReflect().SetUnknown([]byte(withUnknown(nil)))
	return m
}

// sees compares the last request of a method.
func sees[M proto.Message](t *testing.T, rt *runtime, method string, want M) {
	t.Helper()
	got := want.ProtoReflect().New().Interface()
	rt.last(method, got)
	if diff := cmp.Diff(proto.Message(want), got, protocmp.Transform()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", method, diff)
	}
}

// What a hook repeats changes nothing: the bytes of the caller travel on.
func TestARequestThatNoHookChangesKeepsItsBytes(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	p := newProxy(t, rt.socket)
	p.register(t, "tenon-agent.json", h.registration(criproxy.Fail))
	h.answer(func(context.Context, string) (*v1alpha1.ContainerResourceHookResponse, error) {
		return &v1alpha1.ContainerResourceHookResponse{
			ContainerResources: &v1alpha1.LinuxContainerResources{CpusetCpus: "0-7", CpuQuota: 400000},
			ContainerEnvs:      map[string]string{"KEEP": "1"},
		}, nil
	})
	conn := connect(t, p.socket)
	// Two pieces of one message merge when they are read: an encoder would not write it like this again.
	request := withUnknown(append(
		must(proto.Marshal(&cri.CreateContainerRequest{PodSandboxId: "x", Config: containerConfig("main")})),
		must(proto.Marshal(&cri.CreateContainerRequest{PodSandboxId: "y"}))...))
	if _, _, _, err := call(t.Context(), conn, cri.RuntimeService_CreateContainer_FullMethodName, request); err != nil {
		t.Fatal(err)
	}
	if got := rt.got(cri.RuntimeService_CreateContainer_FullMethodName); len(got) != 1 ||
		!bytes.Equal(got[0], request) {
		t.Errorf("the runtime got %x, want %x", got, request)
	}
	if n := len(h.asked("PreCreateContainer")); n != 1 {
		t.Errorf("the hook server was asked %d times, want once", n)
	}
}

func TestServersAreAskedInTheOrderOfTheirFilesAndSeeWhatThoseBeforeChanged(t *testing.T) {
	rt, first, last := newRuntime(t), newHooks(t), newHooks(t)
	p := newProxy(t, rt.socket)
	p.register(t, "20-last.json", last.registration(criproxy.Fail))
	p.register(t, "10-first.json", first.registration(criproxy.Fail))
	first.answer(func(context.Context, string) (*v1alpha1.ContainerResourceHookResponse, error) {
		return &v1alpha1.ContainerResourceHookResponse{
			ContainerResources: &v1alpha1.LinuxContainerResources{CpusetCpus: "1", CpusetMems: "1"},
		}, nil
	})
	last.answer(func(context.Context, string) (*v1alpha1.ContainerResourceHookResponse, error) {
		resources := &v1alpha1.LinuxContainerResources{CpusetCpus: "2"}
		return &v1alpha1.ContainerResourceHookResponse{ContainerResources: resources}, nil
	})
	runPod(t, p.kubelet(t), podConfig("a"))
	if got := last.asked("PreCreateContainer")[0].GetContainerResources(); got.GetCpusetCpus() != "1" ||
		got.GetCpusetMems() != "1" {
		t.Errorf("the last server sees CPUs %q, mems %q, want 1 and 1", got.GetCpusetCpus(), got.GetCpusetMems())
	}
	var got cri.CreateContainerRequest
	rt.last(cri.RuntimeService_CreateContainer_FullMethodName, &got)
	if r := got.GetConfig().GetLinux().GetResources(); r.GetCpusetCpus() != "2" || r.GetCpusetMems() != "1" {
		t.Errorf("the runtime sees CPUs %q, mems %q, want 2 and 1", r.GetCpusetCpus(), r.GetCpusetMems())
	}
}

// Which failures of a hook server hold which pods back.
func TestFailures(t *testing.T) {
	plain, bound := podConfig("plain"), podConfig("bound", exclusive()...)
	device := podConfig("device", annotation.DeviceAllocatedKey, `{"gpu":[]}`)
	fails := func(code codes.Code) func(*hooks) {
		return func(h *hooks) {
			h.answerPods(func(context.Context, string) (*v1alpha1.PodSandboxHookResponse, error) {
				return nil, status.Error(code, "because")
			})
		}
	}
	slow := func(h *hooks) {
		h.answerPods(func(ctx context.Context, _ string) (*v1alpha1.PodSandboxHookResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
	}
	away := func(h *hooks) { h.stop() }
	cases := map[string]struct {
		pod    *cri.PodSandboxConfig
		policy criproxy.Policy
		fault  func(*hooks)
		want   codes.Code
	}{
		"plain pods pass a server that is away":                {plain, criproxy.Ignore, away, codes.OK},
		"… unless its policy says otherwise":                   {plain, criproxy.Fail, away, codes.Unavailable},
		"pods with CPUs do not pass a server that is away":     {bound, criproxy.Ignore, away, codes.Unavailable},
		"pods with devices do not":                             {device, criproxy.Ignore, away, codes.Unavailable},
		"plain pods pass a server that is too slow":            {plain, criproxy.Ignore, slow, codes.OK},
		"pods with CPUs do not pass a server that is too slow": {bound, criproxy.Ignore, slow, codes.Unavailable},
		"plain pods pass a server that fails": {
			plain, criproxy.Ignore, fails(codes.Internal),
			codes.OK,
		},
		"plain pods do not pass a server that fails and may not": {
			plain, criproxy.Fail, fails(codes.Internal),
			codes.Unavailable,
		},
		"pods with CPUs do not pass a server that fails": {
			bound, criproxy.Ignore, fails(codes.Internal),
			codes.Unavailable,
		},
		"pods with CPUs do not pass a server that knows no hook": {
			bound, criproxy.Ignore,
			fails(codes.Unimplemented), codes.Unavailable,
		},
		"a refusal is not a failure: plain pods do not pass it either": {
			plain, criproxy.Ignore,
			fails(codes.FailedPrecondition), codes.FailedPrecondition,
		},
		"a refusal of pods with CPUs keeps its code": {
			bound, criproxy.Fail,
			fails(codes.FailedPrecondition), codes.FailedPrecondition,
		},
		"pods pass a server that answers":               {bound, criproxy.Fail, func(*hooks) {}, codes.OK},
		"plain pods pass where no server is registered": {plain, "", func(*hooks) {}, codes.OK},
		"pods with CPUs do not pass where no server is registered": {
			bound, "", func(*hooks) {},
			codes.FailedPrecondition,
		},
		"pods that require the agent do not pass without it": {podConfig("fence", annotation.RequiredPlugins,
			`["tenon-agent"]`), "", func(*hooks) {}, codes.FailedPrecondition},
		"LSR pods do not pass where no server is registered": {podConfig("lsr", "label:"+annotation.QoSClass,
			"LSR"), "", func(*hooks) {}, codes.FailedPrecondition},
		"LS pods without an allocation are plain": {podConfig("ls", "label:"+annotation.QoSClass,
			"LS"), "", func(*hooks) {}, codes.OK},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rt, h := newRuntime(t), newHooks(t)
			p := newProxy(t, rt.socket)
			if c.policy != "" {
				p.register(t, "tenon-agent.json", h.registration(c.policy))
			}
			c.fault(h)
			client := p.kubelet(t)
			_, err := client.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: c.pod})
			if got := status.Code(err); got != c.want {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			asked := len(rt.got(cri.RuntimeService_RunPodSandbox_FullMethodName))
			if ran := asked == 1; ran != (c.want == codes.OK) {
				t.Errorf("the runtime was asked %d times, but the caller got %v", asked, err)
			}
			if c.want != codes.OK && c.policy != "" && !strings.Contains(err.Error(), "tenon-agent.json") {
				t.Errorf("the error does not name the registration: %v", err)
			}
		})
	}
}

// Every hook before a step holds back a pod that must be enforced; those after one never do when they fail: what has
// happened would be taken for not having happened.
func TestEachHookOfAPodThatMustBeEnforced(t *testing.T) {
	for _, hook := range criproxy.Hooks() {
		t.Run(string(hook), func(t *testing.T) {
			t.Parallel()
			rt, h := newRuntime(t), newHooks(t)
			p := newProxy(t, rt.socket)
			p.register(t, "a.json", h.registration(criproxy.Ignore))
			h.answer(func(_ context.Context, asked string) (*v1alpha1.ContainerResourceHookResponse, error) {
				return nil, failing(asked == string(hook))
			})
			h.answerPods(func(_ context.Context, asked string) (*v1alpha1.PodSandboxHookResponse, error) {
				return nil, failing(asked == string(hook))
			})
			failed := lifecycle(t, p.kubelet(t))
			want := map[criproxy.Hook]string{
				criproxy.PreRunPodSandbox: "RunPodSandbox", criproxy.PreCreateContainer: "CreateContainer",
				criproxy.PreStartContainer:           "StartContainer",
				criproxy.PreUpdateContainerResources: "UpdateContainerResources",
			}[hook]
			if failed != want {
				t.Errorf("the call that fails is %q, want %q", failed, want)
			}
		})
	}
}

func failing(fails bool) error {
	if fails {
		return status.Error(codes.Internal, "broken")
	}
	return nil
}

// lifecycle leads an exclusive pod through all calls, and returns the one that fails.
func lifecycle(t *testing.T, c cri.RuntimeServiceClient) string {
	t.Helper()
	ctx, config := t.Context(), podConfig("a", exclusive()...)
	b, err := c.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
	if err != nil {
		return "RunPodSandbox"
	}
	k, err := c.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: b.GetPodSandboxId(), Config: containerConfig("main"), SandboxConfig: config,
	})
	if err != nil {
		return "CreateContainer"
	}
	id := k.GetContainerId()
	if _, err := c.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: id}); err != nil {
		return "StartContainer"
	}
	if _, err := c.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{ContainerId: id}); err != nil {
		return "UpdateContainerResources"
	}
	if _, err := c.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: id}); err != nil {
		return "StopContainer"
	}
	if _, err := c.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: b.GetPodSandboxId()}); err != nil {
		return "StopPodSandbox"
	}
	return ""
}

func TestAPolicyOfOneHookGoesBeforeTheServers(t *testing.T) {
	rt := newRuntime(t)
	p := newProxy(t, rt.socket)
	p.register(t, "a.json", fmt.Sprintf(`{"remote-endpoint":%q,"failure-policy":"Fail","runtime-hooks":%s,
		"failure-policies":{"PreRunPodSandbox":"Ignore"}}`, folder(t)+"/absent.sock", allHooks))
	c := p.kubelet(t)
	b, err := c.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: podConfig("a")})
	if err != nil {
		t.Fatalf("RunPodSandbox: got %v, want nil: its policy is Ignore", err)
	}
	_, err = c.CreateContainer(t.Context(),
		&cri.CreateContainerRequest{PodSandboxId: b.GetPodSandboxId(), Config: containerConfig("main")})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("CreateContainer: got %v, want Unavailable: its policy is Fail", err)
	}
}

// The configuration in a request for a container is the caller's word. The sandbox's own is the runtime's.
func TestAContainerOfAnExclusivePodCannotPassAsPlain(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	p := newProxy(t, rt.socket)
	p.register(t, "a.json", h.registration(criproxy.Ignore))
	c := p.kubelet(t)
	b, err := c.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: podConfig("a", exclusive()...)})
	testkit.Check(t, err)
	h.stop()
	for _, config := range []*cri.PodSandboxConfig{nil, podConfig("a"), podConfig("b")} {
		_, err := c.CreateContainer(t.Context(), &cri.CreateContainerRequest{
			PodSandboxId: b.GetPodSandboxId(), Config: containerConfig("main"), SandboxConfig: config,
		})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("with pod %v: got %v, want Unavailable", config.GetMetadata(), err)
		}
	}
	if got := rt.got(cri.RuntimeService_CreateContainer_FullMethodName); len(got) != 0 {
		t.Errorf("the runtime was asked %d times, want never", len(got))
	}
}

func TestHookServersComeAndGo(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	p := newProxy(t, rt.socket)
	c := p.kubelet(t)
	run := func() error {
		_, err := c.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: podConfig("a", exclusive()...)})
		return err
	}
	if err := run(); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("before the registration: got %v, want FailedPrecondition", err)
	}
	p.register(t, "tenon-agent.json", h.registration(criproxy.Ignore))
	for range 20 { // the call may find the connection in any state
		if err := run(); err != nil {
			t.Errorf("with the server: got %v", err)
		}
		h.stop()
		for range 3 {
			if err := run(); status.Code(err) != codes.Unavailable {
				t.Errorf("without the server: got %v, want Unavailable", err)
			}
		}
		h.start() // the very next call finds it
	}
	if err := run(); err != nil {
		t.Errorf("after the server came back: got %v", err)
	}
}

func TestAHookLeavesTheRuntimeSomeOfTheCallersTime(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	p := newProxy(t, rt.socket)
	p.register(t, "a.json", h.registration(criproxy.Ignore))
	left := make(chan time.Duration, 1)
	h.answerPods(func(ctx context.Context, _ string) (*v1alpha1.PodSandboxHookResponse, error) {
		d, ok := ctx.Deadline()
		if !ok {
			t.Error("the hook has no deadline")
		}
		left <- time.Until(d)
		return &v1alpha1.PodSandboxHookResponse{}, nil
	})
	c := p.kubelet(t)
	for _, given := range []time.Duration{time.Hour, time.Second, 0} {
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		want := 1500 * time.Millisecond
		if given > 0 {
			ctx, cancel = context.WithTimeout(ctx, given)
			want = min(want, given-100*time.Millisecond)
		}
		_, err := c.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: podConfig("a")})
		cancel()
		testkit.Check(t, err)
		if got := <-left; got > want {
			t.Errorf("of %v the hook gets %v, want %v or less", given, got, want)
		}
	}
	// Nothing is left for the hook, so it is not asked; a plain pod goes on.
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Millisecond)
	defer cancel()
	_, _ = c.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: podConfig("a")})
	if len(left) != 0 {
		t.Errorf("with 90 ms left the hook was asked and got %v, want no call", <-left)
	}
}

func TestARequestThatCannotBeReadIsRefused(t *testing.T) {
	rt := newRuntime(t)
	conn := connect(t, newProxy(t, rt.socket).socket)
	for method := range methods() {
		if !strings.HasSuffix(method, "StopContainer") && !strings.HasSuffix(method, "CreateContainer") {
			continue
		}
		_, _, _, err := call(t.Context(), conn, method, wire{0x0a, 0xff})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), method) {
			t.Errorf("%s: got %v, want InvalidArgument with the method's name", method, err)
		}
		if got := rt.got(method); len(got) != 0 {
			t.Errorf("%s: the runtime was asked", method)
		}
	}
}

func TestAProxyThatRestartsKnowsWhatRuns(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	before := newProxy(t, rt.socket)
	before.register(t, "a.json", h.registration(criproxy.Ignore))
	config := podConfig("a", exclusive()...)
	sandbox, container := runPod(t, before.kubelet(t), config)
	before.stop()

	after := newProxy(t, rt.socket)
	if s, c := after.Size(); s != 1 || c != 1 {
		t.Errorf("knows %d sandboxes, %d containers, want one of each", s, c)
	}
	c := after.kubelet(t)
	// Its hook server is gone: the pod is known for what it is, although no request says so.
	for what, f := range map[string]func() error{
		"start": func() error {
			return second(c.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: container}))
		},
		"update": func() error {
			return second(c.UpdateContainerResources(t.Context(),
				&cri.UpdateContainerResourcesRequest{ContainerId: container}))
		},
	} {
		if err := f(); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s without a hook server: got %v, want FailedPrecondition", what, err)
		}
	}
	after.register(t, "a.json", h.registration(criproxy.Ignore))
	if _, err := c.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: container}); err != nil {
		t.Fatal(err)
	}
	want := &v1alpha1.ContainerResourceHookRequest{
		PodMeta:              &v1alpha1.PodSandboxMetadata{Name: "a", Uid: "uid-a", Namespace: "default", Attempt: 1},
		ContainerMeta:        &v1alpha1.ContainerMetadata{Name: "main", Attempt: 2, Id: container},
		ContainerAnnotations: map[string]string{"io.kubernetes.container.hash": "1"},
		PodAnnotations:       config.GetAnnotations(), PodLabels: config.GetLabels(), PodCgroupParent: "/kubepods/poda",
	}
	if diff := cmp.Diff([]*v1alpha1.ContainerResourceHookRequest{want}, h.asked("PreStartContainer"),
		protocmp.Transform()); diff != "" {
		t.Errorf("PreStartContainer (-want +got):\n%s", diff)
	}
	if _, err := c.StopPodSandbox(t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		t.Fatal(err)
	}
	after.stop() // the hook calls in the background have ended
	if got := h.askedPods("PostStopPodSandbox"); len(got) != 1 || got[0].GetPodMeta().GetUid() != "uid-a" {
		t.Errorf("PostStopPodSandbox: got %v, want one of pod uid-a", got)
	}
}

func TestAContainerThatWasMadeBesideTheProxyIsLookedUp(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	p := newProxy(t, rt.socket)
	p.register(t, "a.json", h.registration(criproxy.Ignore))
	beside := cri.NewRuntimeServiceClient(connect(t, rt.socket))
	_, container := runPod(t, beside, podConfig("a", exclusive()...))
	h.stop()
	_, err := p.kubelet(t).StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: container})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want Unavailable: the pod is exclusive and its hook server is away", err)
	}
	// The runtime's own answer about an unknown container.
	if _, err := p.kubelet(t).StartContainer(t.Context(),
		&cri.StartContainerRequest{ContainerId: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("a container that does not exist: got %v, want NotFound", err)
	}
}

// A runtime completes what a caller writes of an id. What is known of the container stays.
func TestAPartOfAnIDIsTheSameContainer(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	p := newProxy(t, rt.socket)
	p.register(t, "a.json", h.registration(criproxy.Ignore))
	c := p.kubelet(t)
	_, container := runPod(t, c, podConfig("a", exclusive()...))
	rt.on(cri.RuntimeService_ListContainers_FullMethodName, func(s grpc.ServerStream) error {
		rt.mu.Lock()
		all := rt.listContainers("")
		rt.mu.Unlock()
		w := marshal(t, all)
		return s.SendMsg(&w)
	})
	rt.on(cri.RuntimeService_UpdateContainerResources_FullMethodName,
		func(s grpc.ServerStream) error { return s.SendMsg(&wire{}) })
	_, err := c.UpdateContainerResources(t.Context(),
		&cri.UpdateContainerResourcesRequest{ContainerId: container[:len(container)-2]})
	testkit.Check(t, err)
	if _, err := c.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: container}); err != nil {
		t.Fatal(err)
	}
	if got := h.asked("PreStartContainer"); len(got) != 1 || got[0].GetContainerResources().GetCpusetCpus() != "0-7" {
		t.Errorf("PreStartContainer: got %v, want the resources that the container was created with", got)
	}
}

// A sandbox whose group was not reported in time is not stored without it.
func TestASandboxIsQueriedUntilItsGroupIsKnown(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	p := newProxy(t, rt.socket)
	p.register(t, "a.json", h.registration(criproxy.Ignore))
	beside := cri.NewRuntimeServiceClient(connect(t, rt.socket))
	_, container := runPod(t, beside, podConfig("a"))
	rt.on(cri.RuntimeService_PodSandboxStatus_FullMethodName,
		func(grpc.ServerStream) error { return status.Error(codes.DeadlineExceeded, "busy") })
	c := p.kubelet(t)
	for range 2 {
		if _, err := c.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: container}); err != nil {
			t.Fatal(err)
		}
		rt.on(cri.RuntimeService_PodSandboxStatus_FullMethodName, nil)
	}
	var groups []string
	for _, asked := range h.asked("PreStartContainer") {
		groups = append(groups, asked.GetPodCgroupParent())
	}
	if want := []string{"", "/kubepods/poda"}; !slices.Equal(groups, want) {
		t.Errorf("groups %q, want %q", groups, want)
	}
}

func TestWhatIsGoneIsForgotten(t *testing.T) {
	rt := newRuntime(t)
	p := newProxy(t, rt.socket)
	c := p.kubelet(t)
	sandbox, container := runPod(t, c, podConfig("a"))
	runPod(t, c, podConfig("b"))
	for _, err := range []error{
		second(c.RemoveContainer(t.Context(), &cri.RemoveContainerRequest{ContainerId: container})),
		second(c.RemovePodSandbox(t.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: sandbox})),
	} {
		testkit.Check(t, err)
	}
	if s, k := p.Size(); s != 2 || k != 2 {
		t.Errorf("before: %d sandboxes, %d containers, want two of each", s, k)
	}
	testkit.Check(t, p.Sweep(t.Context()))
	if s, k := p.Size(); s != 1 || k != 1 {
		t.Errorf("after: %d sandboxes, %d containers, want one of each", s, k)
	}
	// What comes while the runtime is asked stays, although its answer is older.
	rt.on(cri.RuntimeService_ListContainers_FullMethodName, func(s grpc.ServerStream) error {
		rt.on(cri.RuntimeService_ListContainers_FullMethodName, nil)
		runPod(t, c, podConfig("c"))
		w := wire{}
		return s.SendMsg(&w)
	})
	testkit.Check(t, p.Sweep(t.Context()))
	if s, k := p.Size(); s != 2 || k != 1 {
		t.Errorf("with a pod that came meanwhile: %d sandboxes, %d containers, want 2 and 1", s, k)
	}
}

func TestThePodsThatMustBeEnforced(t *testing.T) {
	cases := map[string]struct {
		labels, annotations map[string]string
		want                bool
	}{
		"none":              {nil, nil, false},
		"LSE":               {map[string]string{annotation.QoSClass: "LSE"}, nil, true},
		"LSR":               {map[string]string{annotation.QoSClass: "LSR"}, nil, true},
		"lse":               {map[string]string{annotation.QoSClass: "lse"}, nil, true},
		"LS":                {map[string]string{annotation.QoSClass: "LS"}, nil, false},
		"BE":                {map[string]string{annotation.QoSClass: "BE"}, nil, false},
		"allocated CPUs":    {nil, map[string]string{annotation.ResourceStatusKey: "{}"}, true},
		"allocated devices": {nil, map[string]string{annotation.DeviceAllocatedKey: "{}"}, true},
		"a wish alone":      {nil, map[string]string{annotation.ResourceSpecKey: "{}"}, false},
		"requires the agent": {nil, map[string]string{annotation.RequiredPlugins: "[" + annotation.NRIPlugin +
			"]"}, true},
		"one container requires it": {nil, map[string]string{annotation.RequiredPlugins + "/container.x": "- " +
			annotation.NRIPlugin}, true},
		"requires another plugin": {nil, map[string]string{annotation.RequiredPlugins: `["other"]`}, false},
	}
	for name, c := range cases {
		if got := criproxy.MustEnforce(c.labels, c.annotations); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestTheGroupOfAPodFromTheRuntimesStatus(t *testing.T) {
	for info, want := range map[string]string{
		`{"runtimeSpec":{"linux":{"cgroupsPath":"/kubepods/burstable/pod1/abc"}}}`:           "/kubepods/burstable/pod1",
		`{"runtimeSpec":{"linux":{"cgroupsPath":"kubepods-pod1.slice:cri-containerd:abc"}}}`: "kubepods-pod1.slice",
		`{"runtimeSpec":{"linux":{"cgroupsPath":"/kubepods/pod1/crio-abc"}}}`:                "/kubepods/pod1",
		`{"runtimeSpec":{}}`: "",
		`{"pid":1}`:          "",
		`not JSON`:           "",
		``:                   "",
	} {
		if got := criproxy.ParentGroup(info); got != want {
			t.Errorf("%s: got %q, want %q", info, got, want)
		}
	}
}

// Any request and any answer: fields that the hook did not name keep their values, those that it named are set, and
// unknown fields survive.
func TestAnyRequestKeepsWhatNoHookNamed(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	p := newProxy(t, rt.socket)
	p.register(t, "a.json", h.registration(criproxy.Fail))
	conn := connect(t, p.socket)
	d := (&cri.CreateContainerRequest{}).ProtoReflect().Descriptor()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		in := random(r, d)
		want := read(in, &cri.CreateContainerRequest{})
		cpus, envs := fmt.Sprint(r.IntN(64)), map[string]string{"N" + fmt.Sprint(r.IntN(3)): "v"}
		if e := want.GetConfig().GetEnvs(); r.IntN(2) == 0 {
			envs[e[0].GetKey()] = "replaced"
		}
		h.answer(func(context.Context, string) (*v1alpha1.ContainerResourceHookResponse, error) {
			return &v1alpha1.ContainerResourceHookResponse{
				ContainerResources: &v1alpha1.LinuxContainerResources{CpusetCpus: cpus, CpuQuota: -1},
				ContainerEnvs:      envs,
			}, nil
		})
		if _, _, _, err := call(t.Context(), conn, cri.RuntimeService_CreateContainer_FullMethodName, in); err != nil {
			t.Fatal(err)
		}
		got := &cri.CreateContainerRequest{}
		rt.last(cri.RuntimeService_CreateContainer_FullMethodName, got)
		left := maps.Clone(envs)
		for _, e := range got.GetConfig().GetEnvs() {
			if v, ok := envs[e.GetKey()]; ok && string(e.GetValue()) != v {
				t.Errorf("seed %d: %s is %q, want %q", seed, e.GetKey(), e.GetValue(), v)
			}
			delete(left, e.GetKey())
		}
		if len(left) != 0 {
			t.Errorf("seed %d: variables %v are missing", seed, left)
		}
		if res := got.GetConfig().GetLinux().GetResources(); res.GetCpusetCpus() != cpus || res.GetCpuQuota() != -1 {
			t.Errorf("seed %d: CPUs %q, quota %d, want %q and -1", seed, res.GetCpusetCpus(), res.GetCpuQuota(), cpus)
		}
		// Without what the hook named, both are the same, unknown fields and all.
		for _, m := range []*cri.CreateContainerRequest{want, got} {
			m.Config.Linux.Resources.CpusetCpus, m.Config.Linux.Resources.CpuQuota = "", 0
			kept := m.Config.Envs[:0]
			for _, e := range m.Config.Envs {
				if _, named := envs[e.GetKey()]; !named {
					kept = append(kept, e)
				}
			}
			m.Config.Envs = kept
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Fatalf("seed %d: (-want +got):\n%s", seed, diff)
		}
	}
}

// A container that was created a while ago receives its current resources before it starts.
func TestTheAnswerOfAHookBeforeAStartUpdatesTheContainer(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	p := newProxy(t, rt.socket)
	p.register(t, "a.json", h.registration(criproxy.Fail))
	c := p.kubelet(t)
	_, container := runPod(t, c, podConfig("a"))
	cpus := "0-7"
	h.answer(func(_ context.Context, hook string) (*v1alpha1.ContainerResourceHookResponse, error) {
		if hook != "PreStartContainer" {
			return &v1alpha1.ContainerResourceHookResponse{}, nil
		}
		resources := &v1alpha1.LinuxContainerResources{CpusetCpus: cpus}
		return &v1alpha1.ContainerResourceHookResponse{ContainerResources: resources}, nil
	})
	start := func() {
		t.Helper()
		if _, err := c.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: container}); err != nil {
			t.Fatal(err)
		}
	}
	start()
	if got := rt.got(cri.RuntimeService_UpdateContainerResources_FullMethodName); len(got) != 0 {
		t.Errorf("the runtime received %d updates that change nothing", len(got))
	}
	cpus = "2-3"
	start()
	want := containerConfig("main").GetLinux().GetResources()
	want.CpusetCpus = "2-3"
	sees(t, rt, cri.RuntimeService_UpdateContainerResources_FullMethodName,
		&cri.UpdateContainerResourcesRequest{ContainerId: container, Linux: want})
	asked := h.asked("PostStartContainer")
	if got := asked[len(asked)-1].GetContainerResources().GetCpusetCpus(); got != "2-3" {
		t.Errorf("after the start the hook server receives CPUs %q, want 2-3", got)
	}
	start()
	if got := rt.got(cri.RuntimeService_UpdateContainerResources_FullMethodName); len(got) != 1 {
		t.Errorf("the runtime received %d updates, want one", len(got))
	}

	rt.on(cri.RuntimeService_UpdateContainerResources_FullMethodName,
		func(grpc.ServerStream) error { return status.Error(codes.Aborted, "no") })
	cpus = "4"
	before := len(rt.got(cri.RuntimeService_StartContainer_FullMethodName))
	_, err := c.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: container})
	if status.Code(err) != codes.Aborted || len(rt.got(cri.RuntimeService_StartContainer_FullMethodName)) != before {
		t.Errorf("a runtime that does not take it: got %v, want its error and no start", err)
	}
}

func TestAContainerThatIsRefusedAfterItsStartIsStopped(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	p := newProxy(t, rt.socket)
	p.register(t, "a.json", h.registration(criproxy.Ignore))
	c := p.kubelet(t)
	_, container := runPod(t, c, podConfig("a", exclusive()...))
	h.answer(func(_ context.Context, hook string) (*v1alpha1.ContainerResourceHookResponse, error) {
		if hook == "PostStartContainer" {
			return nil, status.Error(codes.FailedPrecondition, "it runs elsewhere")
		}
		return &v1alpha1.ContainerResourceHookResponse{}, nil
	})
	_, err := c.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: container})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "it runs elsewhere") {
		t.Errorf("got %v, want the refusal", err)
	}
	sees(t, rt, cri.RuntimeService_StopContainer_FullMethodName, &cri.StopContainerRequest{ContainerId: container})
	eventually(t, "the hook server receives the end of the container once", func() error {
		if got := h.asked("PostStopContainer"); len(got) != 1 {
			return fmt.Errorf("PostStopContainer was asked %d times, want once", len(got))
		}
		return nil
	})
	rt.on(cri.RuntimeService_StopContainer_FullMethodName,
		func(grpc.ServerStream) error { return status.Error(codes.Internal, "stuck") })
	_, err = c.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: container})
	if err == nil || !strings.Contains(err.Error(), "it runs elsewhere") || !strings.Contains(err.Error(), "stuck") {
		t.Errorf("got %v, want both errors", err)
	}
}

func TestAContainerThatTheRuntimeDoesNotStartIsReported(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	p := newProxy(t, rt.socket)
	p.register(t, "a.json", h.registration(criproxy.Ignore))
	c := p.kubelet(t)
	_, container := runPod(t, c, podConfig("a", exclusive()...))
	rt.on(cri.RuntimeService_StartContainer_FullMethodName,
		func(grpc.ServerStream) error { return status.Error(codes.Unknown, "no such program") })
	_, err := c.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: container})
	if status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), "no such program") {
		t.Errorf("got %v, want the runtime's error", err)
	}
	p.stop()
	if got := h.asked("PostStopContainer"); len(got) != 1 || got[0].GetContainerMeta().GetId() != container {
		t.Errorf("PostStopContainer: got %v, want one of %s", got, container)
	}
}

// A caller that does not wait for the end of a start says nothing about how it ended: the container may run.
func TestAStartWithoutAWaitingCallerIsNotStopped(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	p := newProxy(t, rt.socket)
	p.register(t, "a.json", h.registration(criproxy.Ignore))
	c := p.kubelet(t)
	_, container := runPod(t, c, podConfig("a", exclusive()...))
	arrived := make(chan struct{})
	rt.on(cri.RuntimeService_StartContainer_FullMethodName, func(s grpc.ServerStream) error {
		close(arrived)
		<-s.Context().Done()
		return status.FromContextError(s.Context().Err()).Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	if _, err := c.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: container}); status.Code(
		err) != codes.Canceled {
		t.Fatalf("got %v, want Canceled", err)
	}
	p.stop()
	if got := h.asked("PostStopContainer"); len(got) != 0 {
		t.Errorf("PostStopContainer: got %v, want nothing", got)
	}
}

// Stops are reported in the background: a hook server that hangs delays no stop.
func TestAStopWaitsForNoHook(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	p := newProxy(t, rt.socket)
	p.register(t, "a.json", h.registration(criproxy.Fail))
	c := p.kubelet(t)
	sandbox, container := runPod(t, c, podConfig("a", exclusive()...))
	p.SetHookLimit(2 * patience)
	release := make(chan struct{})
	defer close(release)
	h.answer(func(context.Context, string) (*v1alpha1.ContainerResourceHookResponse, error) {
		<-release
		return &v1alpha1.ContainerResourceHookResponse{}, nil
	})
	h.answerPods(func(context.Context, string) (*v1alpha1.PodSandboxHookResponse, error) {
		<-release
		return &v1alpha1.PodSandboxHookResponse{}, nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, err := range []error{
		second(c.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: container})),
		second(c.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandbox})),
	} {
		if err != nil {
			t.Error(err)
		}
	}
}

// The first step finds out that a hook server hangs; the others of plain pods are not held up by it, and those of pods
// that must be enforced wait for it.
func TestAServerThatHangsHoldsPlainPodsUpOnce(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	p := newProxy(t, rt.socket)
	p.register(t, "a.json", h.registration(criproxy.Ignore))
	c := p.kubelet(t)
	release, asked := make(chan struct{}), make(chan struct{})
	answer := sync.OnceFunc(func() { close(release) })
	defer answer()
	hang := func(arrived func()) {
		h.answerPods(func(context.Context, string) (*v1alpha1.PodSandboxHookResponse, error) {
			arrived()
			<-release
			return &v1alpha1.PodSandboxHookResponse{}, nil
		})
	}
	run := func(config *cri.PodSandboxConfig) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return second(c.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config}))
	}
	hang(func() {})
	p.SetHookLimit(time.Millisecond)
	if err := run(podConfig("first")); err != nil {
		t.Fatalf("the first: %v", err)
	}
	p.SetHookLimit(2 * patience) // longer than any caller waits
	hang(sync.OnceFunc(func() { close(asked) }))
	waits := make(chan error, 1)
	go func() { waits <- run(podConfig("enforced", exclusive()...)) }()
	<-asked
	// Asked later, the plain pod gives up sooner.
	if err := run(podConfig("plain")); err != nil {
		t.Errorf("a plain pod after it: %v", err)
	}
	answer()
	if err := <-waits; err != nil {
		t.Errorf("a pod that must be enforced, once the server answers: %v", err)
	}
}
