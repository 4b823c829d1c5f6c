package criproxy_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/api/runtime/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/criproxy"
)

// BenchmarkOverhead is what the proxy adds to a call: each round asks the runtime straight and through the proxy in
// turn, so that what else the machine does hits both alike. The metrics are differences of medians and of 99th
// percentiles.
func BenchmarkOverhead(b *testing.B) {
	list := &cri.ListContainersResponse{}
	for i := range 250 {
		list.Containers = append(list.Containers, &cri.Container{
			Id: fmt.Sprintf("%064d", i), PodSandboxId: fmt.Sprintf("%064d", i), Labels: podConfig("a").GetLabels(),
			Annotations: podConfig("a", exclusive()...).GetAnnotations(),
		})
	}
	create := func(ctx context.Context, c cri.RuntimeServiceClient) error {
		_, err := c.CreateContainer(ctx, &cri.CreateContainerRequest{
			PodSandboxId: "sandbox-0", Config: containerConfig("main"), SandboxConfig: podConfig("a"),
		})
		return err
	}
	start := func(ctx context.Context, c cri.RuntimeServiceClient) error {
		_, err := c.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: "container"})
		return err
	}
	stop := func(ctx context.Context, c cri.RuntimeServiceClient) error {
		_, err := c.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: "container"})
		return err
	}
	cases := []struct {
		name  string
		hooks bool
		call  func(context.Context, cri.RuntimeServiceClient) error
	}{
		{"call=Version/hooks=0", false, func(ctx context.Context, c cri.RuntimeServiceClient) error {
			_, err := c.Version(ctx, &cri.VersionRequest{})
			return err
		}},
		{"call=ListContainers-250/hooks=0", false, func(ctx context.Context, c cri.RuntimeServiceClient) error {
			_, err := c.ListContainers(ctx, &cri.ListContainersRequest{})
			return err
		}},
		{"call=CreateContainer/hooks=0", false, create},
		{"call=CreateContainer/hooks=1", true, create},
		{"call=StartContainer/hooks=1", true, start}, // two questions: before and after
		{"call=StopContainer/hooks=1", true, stop},
	}
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			rt := newRuntime(b)
			p := newProxy(b, rt.socket)
			if c.hooks {
				h := newHooks(b)
				h.answer(func(context.Context, string) (*v1alpha1.ContainerResourceHookResponse, error) {
					resources := &v1alpha1.LinuxContainerResources{CpusetCpus: "0-3", CpuQuota: -1}
					return &v1alpha1.ContainerResourceHookResponse{ContainerResources: resources}, nil
				})
				p.register(b, "tenon-agent.json", h.registration(criproxy.Ignore))
			}
			if _, err := p.kubelet(b).RunPodSandbox(b.Context(),
				&cri.RunPodSandboxRequest{Config: podConfig("a")}); err != nil {
				b.Fatal(err)
			}
			answers(b, rt, list)
			if err := create(b.Context(), p.kubelet(b)); err != nil {
				b.Fatal(err)
			}
			straight, through := cri.NewRuntimeServiceClient(connect(b, rt.socket)), p.kubelet(b)
			var without, with []time.Duration
			for b.Loop() {
				without = append(without, took(b, straight, c.call))
				with = append(with, took(b, through, c.call))
			}
			b.ReportMetric(float64(quantile(with, 50)-quantile(without, 50))/1e3, "p50-µs")
			b.ReportMetric(float64(quantile(with, 99)-quantile(without, 99))/1e3, "p99-µs")
			b.ReportMetric(0, "ns/op") // two calls and what is around them say nothing
		})
	}
}

// answers makes the runtime answer from memory.
func answers(b *testing.B, rt *runtime, list *cri.ListContainersResponse) {
	b.Helper()
	for method, m := range map[string]wire{
		cri.RuntimeService_ListContainers_FullMethodName: marshal(b, list),
		cri.RuntimeService_CreateContainer_FullMethodName: marshal(b,
			&cri.CreateContainerResponse{ContainerId: "container"}),
		cri.RuntimeService_StartContainer_FullMethodName: {},
		cri.RuntimeService_StopContainer_FullMethodName:  {},
	} {
		rt.on(method, func(s grpc.ServerStream) error {
			var in wire
			if err := s.RecvMsg(&in); err != nil {
				return err
			}
			return s.SendMsg(&m)
		})
	}
}

func took(b *testing.B, c cri.RuntimeServiceClient,
	call func(context.Context, cri.RuntimeServiceClient) error,
) time.Duration {
	b.Helper()
	start := time.Now()
	if err := call(b.Context(), c); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

func quantile(all []time.Duration, percent int) time.Duration {
	slices.Sort(all)
	return all[(len(all)-1)*percent/100]
}
