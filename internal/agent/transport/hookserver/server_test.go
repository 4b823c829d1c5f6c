package hookserver_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/runtime/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/agent/socket"
	"github.com/tenon-project/tenon/internal/agent/transport/hookserver"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// book is a handler that records its calls and returns the answers that it is given. It implements the steps of the
// protocol; any other one is an error.
type book struct {
	hook.Handler

	mu    sync.Mutex
	lines []any

	answer  hook.Resources
	devices inject.Answer
	err     error
}

type line struct {
	Step      string
	Pod       hook.Pod
	Container hook.Container
	Asked     hook.Resources
}

func (b *book) write(l line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, l)
}

func (b *book) RunPod(_ context.Context, p hook.Pod) error {
	b.write(line{Step: "RunPod", Pod: p})
	return b.err
}

func (b *book) RemovePod(p hook.Pod) { b.write(line{Step: "RemovePod", Pod: p}) }

func (b *book) Create(_ context.Context, c hook.Container) (hook.Resources, []hook.Update, error) {
	b.write(line{Step: "Create", Container: c})
	return b.answer, nil, b.err
}

func (b *book) Devices(c hook.Container) (inject.Answer, error) {
	b.write(line{Step: "Devices", Container: c})
	return b.devices, b.err
}

func (b *book) Start(_ context.Context, c hook.Container) error {
	b.write(line{Step: "Start", Container: c})
	return b.err
}

func (b *book) Update(_ context.Context, c hook.Container, asked hook.Resources) (hook.Resources, error) {
	b.write(line{Step: "Update", Container: c, Asked: asked})
	return b.answer, b.err
}

func (b *book) Stop(c hook.Container) { b.write(line{Step: "Stop", Container: c}) }

// link keeps the calls, and has a token in a channel for each time that a proxy joins or the last one leaves.
type link struct {
	joined, left    chan struct{} // nil for no tokens
	mu              sync.Mutex    // guards the fields below
	asked, answered []string
}

func (l *link) Proxied(connected bool) {
	tokens := l.left
	if connected {
		tokens = l.joined
	}
	if tokens != nil {
		tokens <- struct{}{}
	}
}

func (l *link) Timed(call string) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, call)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.answered = append(l.answered, call)
	}
}

// serve runs a server over a handler and returns a client.
func serve(t *testing.T, h hook.Handler, change ...func(*hookserver.Options)) (v1alpha1.RuntimeHookServiceClient,
	string,
) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hooks.sock")
	o := hookserver.Options{
		Socket: path, Handler: h, Link: &link{},
	}
	for _, f := range change {
		f(&o)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	done := make(chan error, 1)
	go func() { done <- hookserver.Serve(ctx, o) }()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	testkit.Check(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return v1alpha1.NewRuntimeHookServiceClient(conn), path
}

var (
	podRequest = &v1alpha1.PodSandboxHookRequest{
		PodMeta: &v1alpha1.PodSandboxMetadata{Name: "a", Uid: "u", Namespace: "ns", Attempt: 3},
		Labels:  map[string]string{"l": "1"}, Annotations: map[string]string{"a": "2"}, CgroupParent: "/kubepods/podu",
	}
	containerRequest = &v1alpha1.ContainerResourceHookRequest{
		PodMeta:       podRequest.GetPodMeta(),
		ContainerMeta: &v1alpha1.ContainerMetadata{Name: "main", Id: "c1"},
		PodLabels:     map[string]string{"l": "1"}, PodAnnotations: map[string]string{"a": "2"},
		PodCgroupParent: "/kubepods/podu",
		ContainerResources: &v1alpha1.LinuxContainerResources{
			CpusetCpus: "0-3", CpusetMems: "1", CpuQuota: -1,
			CpuShares: 5,
		},
	}
)

func TestQuestionsBecomeStepsOfTheHandler(t *testing.T) {
	quota, pod := int64(-1), hook.Pod{
		ID: "u/3", UID: "u", Namespace: "ns", Name: "a", Labels: map[string]string{"l": "1"},
		Annotations: map[string]string{"a": "2"},
		Cgroup:      "/kubepods/podu",
	}
	has := hook.Resources{CPUs: "0-3", Mems: "1", Quota: &quota, Shares: 5}
	container := hook.Container{Pod: pod, ID: "c1", Name: "main", Has: has}
	now, running := container, container
	// What the runtime receives before the start.
	now.Has = hook.Resources{CPUs: "4-5", Mems: "0", Quota: &quota, Shares: 5}
	running.Running = true
	bare := container
	bare.Has = hook.Resources{}
	answer := &v1alpha1.ContainerResourceHookResponse{
		ContainerResources: &v1alpha1.LinuxContainerResources{CpusetCpus: "4-5", CpusetMems: "0", CpuQuota: -1},
	}
	empty := &v1alpha1.ContainerResourceHookResponse{}
	b := &book{answer: hook.Resources{CPUs: "4-5", Mems: "0", Quota: &quota}}
	c, path := serve(t, b)
	ask := func(f func(context.Context, *v1alpha1.ContainerResourceHookRequest,
		...grpc.CallOption) (*v1alpha1.ContainerResourceHookResponse, error),
		want *v1alpha1.ContainerResourceHookResponse,
	) {
		t.Helper()
		got, err := f(t.Context(), containerRequest)
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("answer (-want +got):\n%s", diff)
		}
	}
	if _, err := c.PreRunPodSandboxHook(t.Context(), podRequest); err != nil {
		t.Error(err)
	}
	ask(c.PreCreateContainerHook, answer)
	ask(c.PreStartContainerHook,
		&v1alpha1.ContainerResourceHookResponse{ContainerResources: answer.GetContainerResources()})
	ask(c.PostStartContainerHook, empty)
	ask(c.PreUpdateContainerResourcesHook, answer)
	ask(c.PostStopContainerHook, empty)
	if _, err := c.PostStopPodSandboxHook(t.Context(), podRequest); err != nil {
		t.Error(err)
	}
	want := []any{
		line{Step: "RunPod", Pod: pod},
		line{Step: "Devices", Container: container},
		line{Step: "Create", Container: container},
		line{Step: "Create", Container: container},
		line{Step: "Start", Container: now},
		line{Step: "Start", Container: running},
		line{Step: "Update", Container: bare, Asked: has},
		line{Step: "Stop", Container: container},
		line{Step: "RemovePod", Pod: pod},
	}
	if diff := cmp.Diff(want, b.lines); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	f, err := os.Stat(path)
	if err != nil || f.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v, want mode 600", f.Mode(), err)
	}
}

func TestEachErrorHasItsGRPCCode(t *testing.T) {
	blocked := &apply.Blocked{
		Container: apply.Container{PodUID: "u", Name: "main"}, Cause: apply.ErrHandOverPending,
		Detail: "x still has CPUs 1",
	}
	cases := map[string]struct {
		err  error
		code codes.Code
		text string
	}{
		"held back":          {fmt.Errorf("start: %w", blocked), codes.FailedPrecondition, "CPUHandOverPending"},
		"any other":          {errors.New("broken"), codes.FailedPrecondition, "broken"},
		"out of time":        {fmt.Errorf("write: %w", context.DeadlineExceeded), codes.DeadlineExceeded, ""},
		"no process listens": {context.Canceled, codes.Canceled, ""},
	}
	for name, k := range cases {
		t.Run(name, func(t *testing.T) {
			c, _ := serve(t, &book{err: k.err})
			_, runErr := c.PreRunPodSandboxHook(t.Context(), podRequest)
			_, createErr := c.PreCreateContainerHook(t.Context(), containerRequest)
			_, startErr := c.PreStartContainerHook(t.Context(), containerRequest)
			_, updateErr := c.PreUpdateContainerResourcesHook(t.Context(), containerRequest)
			for step, err := range map[string]error{
				"run": runErr, "create": createErr, "start": startErr,
				"update": updateErr,
			} {
				if status.Code(err) != k.code || !strings.Contains(err.Error(), k.text) {
					t.Errorf("%s: got %v, want %v with %q", step, err, k.code, k.text)
				}
			}
		})
	}
}

// A proxy stops a container that is refused after its start. An agent that was started anew meanwhile refuses nothing.
func TestAnAgentThatIsNotReadyAfterAStartRefusesNothing(t *testing.T) {
	notReady := &apply.Blocked{
		Container: apply.Container{PodUID: "u"}, Cause: apply.ErrNotReady,
		Detail: "it has just started",
	}
	c, _ := serve(t, &book{err: notReady})
	if _, err := c.PostStartContainerHook(t.Context(), containerRequest); status.Code(err) != codes.Unavailable {
		t.Errorf("after the start: got %v, want Unavailable", err)
	}
	if _, err := c.PreStartContainerHook(t.Context(), containerRequest); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("before the start: got %v, want FailedPrecondition", err)
	}
}

// A request without any field is one that a careless proxy may send.
func TestAnEmptyQuestionIsAnswered(t *testing.T) {
	b := &book{}
	c, _ := serve(t, b)
	if _, err := c.PreCreateContainerHook(t.Context(), &v1alpha1.ContainerResourceHookRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := c.PreRunPodSandboxHook(t.Context(), &v1alpha1.PodSandboxHookRequest{}); err != nil {
		t.Error(err)
	}
}

func TestASecondServerIsRefusedAndANewOneFollows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hooks.sock")
	o := hookserver.Options{Socket: path, Handler: &book{}, Link: &link{}}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	done := make(chan error, 1)
	go func() { done <- hookserver.Serve(ctx, o) }()
	for deadline := time.Now().Add(20 * time.Second); ; {
		if _, err := os.Stat(path); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the first server does not listen")
		}
	}
	if err := hookserver.Serve(ctx, o); !errors.Is(err, socket.ErrClaimed) {
		t.Errorf("the second: got %v, want ErrClaimed", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	cancel()
	if err := hookserver.Serve(ended, o); err != nil {
		t.Errorf("again: %v", err)
	}
}

// One question is one call, whatever steps the handler needs for it.
func TestQuestionsAreTimedByTheCallThatTheyBelongTo(t *testing.T) {
	l := &link{}
	client, _ := serve(t, &book{}, func(o *hookserver.Options) { o.Link = l })
	for _, question := range []func() error{
		func() error { _, err := client.PreRunPodSandboxHook(t.Context(), podRequest); return err },
		func() error { _, err := client.PreCreateContainerHook(t.Context(), containerRequest); return err },
		func() error { _, err := client.PreStartContainerHook(t.Context(), containerRequest); return err },
		func() error { _, err := client.PostStartContainerHook(t.Context(), containerRequest); return err },
		func() error {
			_, err := client.PreUpdateContainerResourcesHook(t.Context(), containerRequest)
			return err
		},
		func() error { _, err := client.PostStopContainerHook(t.Context(), containerRequest); return err },
	} {
		testkit.Check(t, question())
	}
	want := []string{"RunPodSandbox", "CreateContainer", "StartContainer", "StartContainer", "UpdateContainerResources"}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.asked, want) || !slices.Equal(l.answered, want) {
		t.Errorf("asked %v, answered %v, want %v", l.asked, l.answered, want)
	}
}

func TestAProxyIsKnownBeforeItsFirstContainer(t *testing.T) {
	joined := make(chan struct{}, 9)
	_, path := serve(t, &book{}, func(o *hookserver.Options) { o.Link = &link{joined: joined} })
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	testkit.Check(t, err)
	defer conn.Close()
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	if len(joined) != 1 {
		t.Errorf("joined was called %d times, want once", len(joined))
	}
}

func TestTheEndOfTheLastProxyIsHeard(t *testing.T) {
	left := make(chan struct{}, 9)
	_, path := serve(t, &book{}, func(o *hookserver.Options) { o.Link = &link{left: left} })
	var proxies []*grpc.ClientConn
	for range 3 {
		conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
		testkit.Check(t, err)
		if _, err := v1alpha1.NewRuntimeHookServiceClient(conn).PreRunPodSandboxHook(t.Context(),
			podRequest); err != nil {
			t.Fatal(err)
		}
		proxies = append(proxies, conn)
	}
	for _, conn := range proxies {
		if len(left) > 0 {
			t.Error("heard while a proxy is connected")
		}
		testkit.Check(t, conn.Close())
	}
	<-left
	if len(left) > 0 {
		t.Error("heard twice")
	}
}

func TestASocketThatIsRemovedIsMadeAgain(t *testing.T) {
	client, path := serve(t, &book{})
	for range 2 {
		if _, err := client.PreRunPodSandboxHook(t.Context(), podRequest); err != nil {
			t.Fatal(err)
		}
		testkit.Check(t, os.Remove(path))
		conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
		testkit.Check(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		client = v1alpha1.NewRuntimeHookServiceClient(conn)
	}
	if _, err := client.PreRunPodSandboxHook(t.Context(), podRequest); err != nil {
		t.Error(err)
	}
}
