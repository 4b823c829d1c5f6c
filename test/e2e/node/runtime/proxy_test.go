//go:build e2e_node

package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// The proxy keeps nothing on disk: a new one knows the containers of the old one from the runtime.
func TestAProxyThatIsKilledComesBackUnderRunningContainers(t *testing.T) {
	w := newWorld(t, byProxy, options{})
	_, plain := w.run(pod("plain"))
	b, bound := w.run(pod("bound", withClass("LSR"), guaranteed("1"), allocated(exclusive)))
	w.wants(plain, shared)
	w.proxy.Kill()
	if _, err := w.runtime.Client().Version(t.Context(),
		&runtimeapi.VersionRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("without a proxy: got %v, want Unavailable", err)
	}
	w.wants(bound, exclusive)
	w.wants(plain, shared)
	w.proxy = w.s.Proxy()
	stage.Await(t, "the kubelet to be connected again", func() error {
		_, err := w.runtime.Client().Version(t.Context(), &runtimeapi.VersionRequest{})
		return err
	})
	for _, c := range []*stage.Container{bound, plain} {
		testkit.Check(t, c.Update(t.Context(), &runtimeapi.LinuxContainerResources{CpusetCpus: allCPUs}))
	}
	w.wants(bound, exclusive)
	w.wants(plain, shared)
	w.never(bound, exclusive)
	_, late := w.run(pod("late"))
	w.wants(late, shared)
	w.never(late, shared)
	testkit.Check(t, b.Remove(t.Context()))
	w.unbind(b.Pod)
	w.wants(plain, allCPUs)
}

// What a container was promised at its creation may be another pod's at its start.
func TestAContainerThatWasCreatedBeforeThePoolsMovedStartsOnWhatIsLeft(t *testing.T) {
	for _, route := range paths {
		t.Run(string(route), func(t *testing.T) {
			w := newWorld(t, route, options{})
			early, err := w.sandbox(pod("early", withClass("LS"))).Create(t.Context(), "main")
			testkit.Check(t, err)
			_, bound := w.run(pod("bound", withClass("LSR"), guaranteed("1"), allocated(exclusive)))
			w.wants(bound, exclusive)
			testkit.Check(t, early.Start(t.Context()))
			w.wants(early, shared)
			w.never(early, shared)
		})
	}
}

// A container that the runtime cannot start blocks no other container.
func TestAContainerThatCannotBeStartedHoldsNothing(t *testing.T) {
	for _, route := range paths {
		t.Run(string(route), func(t *testing.T) {
			w := newWorld(t, route, options{})
			broken := pod("broken", withClass("LS"))
			broken.Spec.Containers[0].Command = []string{"/no/such/program"}
			b := w.sandbox(broken)
			if c, err := b.Run(t.Context(), "main"); err == nil {
				t.Fatalf("container %s started without a program", c.ID)
			}
			_, bound := w.run(pod("bound", withClass("LSR"), guaranteed("1"), allocated(exclusive)))
			w.wants(bound, exclusive)
			w.never(bound, exclusive)
		})
	}
}

// Whatever the runtime says comes through the proxy unchanged, in one piece or as a stream.
func TestTheRuntimeSaysTheSameThroughTheProxy(t *testing.T) {
	w := newWorld(t, byProxy, options{})
	b, c := w.run(pod("plain"))
	straight, through := w.s.Runtime(w.s.Socket()).Client(), w.runtime.Client()
	for name, ask := range map[string]func(context.Context, runtimeapi.RuntimeServiceClient) ([]proto.Message, error){
		"Version": func(ctx context.Context, r runtimeapi.RuntimeServiceClient) ([]proto.Message, error) {
			return one(r.Version(ctx, &runtimeapi.VersionRequest{}))
		},
		"Status": func(ctx context.Context, r runtimeapi.RuntimeServiceClient) ([]proto.Message, error) {
			return one(r.Status(ctx, &runtimeapi.StatusRequest{}))
		},
		"RuntimeConfig": func(ctx context.Context, r runtimeapi.RuntimeServiceClient) ([]proto.Message, error) {
			return one(r.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{}))
		},
		"ListPodSandbox": func(ctx context.Context, r runtimeapi.RuntimeServiceClient) ([]proto.Message, error) {
			return one(r.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}))
		},
		"ContainerStatus": func(ctx context.Context, r runtimeapi.RuntimeServiceClient) ([]proto.Message, error) {
			return one(r.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.ID, Verbose: true}))
		},
		"PodSandboxStatus of none": func(ctx context.Context, r runtimeapi.RuntimeServiceClient) ([]proto.Message,
			error,
		) {
			return one(r.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: b.ID + "0"}))
		},
		"StreamContainers": func(ctx context.Context, r runtimeapi.RuntimeServiceClient) ([]proto.Message, error) {
			s, err := r.StreamContainers(ctx, &runtimeapi.StreamContainersRequest{})
			if err != nil {
				return nil, err
			}
			return all(s.Recv)
		},
		"StreamPodSandboxes": func(ctx context.Context, r runtimeapi.RuntimeServiceClient) ([]proto.Message, error) {
			s, err := r.StreamPodSandboxes(ctx, &runtimeapi.StreamPodSandboxesRequest{})
			if err != nil {
				return nil, err
			}
			return all(s.Recv)
		},
	} {
		want, wantErr := ask(t.Context(), straight)
		got, err := ask(t.Context(), through)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) || len(got) != len(want) {
			t.Errorf("%s: got %d answers, %v; want %d, %v", name, len(got), err, len(want), wantErr)
			continue
		}
		for i := range got {
			if !proto.Equal(got[i], want[i]) {
				t.Errorf("%s: got %v, want %v", name, got[i], want[i])
			}
		}
	}
}

func one(m proto.Message, err error) ([]proto.Message, error) { return []proto.Message{m}, err }

// all reads a stream to its end.
func all[M proto.Message](receive func() (M, error)) ([]proto.Message, error) {
	var out []proto.Message
	for {
		m, err := receive()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, m)
	}
}
