package criproxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/runtime/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/criproxy"
	"github.com/tenon-project/tenon/internal/testkit"
)

// patience bounds waits for something that happens soon.
const patience = 20 * time.Second

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// wire is a message as it stands on the wire. Tests use a codec of their own, so that a fault of the proxy's shows.
type wire []byte

type wireCodec struct{}

func (wireCodec) Name() string { return "proto" }

func (wireCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*wire))}, nil
}

func (wireCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*wire) = data.Materialize()
	return nil
}

// runtime is a small container runtime: it keeps sandboxes and containers, and remembers the bytes of every request.
type runtime struct {
	t      testing.TB
	socket string
	stop   func()

	mu         sync.Mutex // guards the fields below
	sandboxes  map[string]*cri.PodSandbox
	parents    map[string]string
	containers map[string]*cri.Container
	requests   map[string][]wire
	ids        map[string]int
	// serve answers a method in place of the runtime's own way.
	serve map[string]func(grpc.ServerStream) error
}

// newRuntime starts a runtime.
func newRuntime(t testing.TB) *runtime {
	t.Helper()
	r := &runtime{
		t: t, socket: filepath.Join(folder(t), "runtime.sock"), sandboxes: map[string]*cri.PodSandbox{},
		parents:    map[string]string{},
		containers: map[string]*cri.Container{}, requests: map[string][]wire{}, ids: map[string]int{},
		serve: map[string]func(grpc.ServerStream) error{},
	}
	r.start()
	return r
}

// folder is a temporary folder with a short name: the path of a socket has 107 bytes at most.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri")
	testkit.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (r *runtime) start() {
	r.t.Helper()
	l, err := net.Listen("unix", r.socket)
	if err != nil {
		r.t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(wireCodec{}), grpc.UnknownServiceHandler(r.handle),
		grpc.MaxRecvMsgSize(64<<20), grpc.MaxSendMsgSize(64<<20))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	r.stop = sync.OnceFunc(func() {
		server.Stop()
		<-done
	})
	r.t.Cleanup(r.stop)
}

// on answers a method in another way.
func (r *runtime) on(method string, serve func(grpc.ServerStream) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serve[method] = serve
}

// got returns the requests of a method so far.
func (r *runtime) got(method string) []wire {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]wire(nil), r.requests[method]...)
}

// last reads the last request of a method.
func (r *runtime) last(method string, m proto.Message) {
	r.t.Helper()
	all := r.got(method)
	if len(all) == 0 {
		r.t.Fatalf("the runtime was not asked %s", method)
	}
	if err := proto.Unmarshal(all[len(all)-1], m); err != nil {
		r.t.Fatal(err)
	}
}

func (r *runtime) handle(_ any, s grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(s)
	r.mu.Lock()
	serve := r.serve[method]
	r.mu.Unlock()
	if serve != nil {
		return serve(s)
	}
	var in wire
	if err := s.RecvMsg(&in); err != nil {
		return err
	}
	answer, err := r.answer(method, in)
	if err != nil {
		return err
	}
	out, err := proto.Marshal(answer)
	if err != nil {
		return err
	}
	w := wire(out)
	return s.SendMsg(&w)
}

// answer is the runtime's own way.
func (r *runtime) answer(method string, in wire) (proto.Message, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests[method] = append(r.requests[method], in)
	switch method {
	case cri.RuntimeService_Version_FullMethodName:
		return &cri.VersionResponse{RuntimeName: "small", RuntimeVersion: "1", RuntimeApiVersion: "v1"}, nil
	case cri.RuntimeService_RunPodSandbox_FullMethodName:
		req := read(in, &cri.RunPodSandboxRequest{})
		id := r.id("sandbox")
		r.sandboxes[id] = &cri.PodSandbox{
			Id: id, Metadata: req.GetConfig().GetMetadata(), Labels: req.GetConfig().GetLabels(),
			Annotations: req.GetConfig().GetAnnotations(), RuntimeHandler: req.GetRuntimeHandler(),
		}
		r.parents[id] = req.GetConfig().GetLinux().GetCgroupParent()
		return &cri.RunPodSandboxResponse{PodSandboxId: id}, nil
	case cri.RuntimeService_PodSandboxStatus_FullMethodName:
		id := read(in, &cri.PodSandboxStatusRequest{}).GetPodSandboxId()
		info := fmt.Sprintf(`{"pid":1,"runtimeSpec":{"linux":{"cgroupsPath":%q}}}`, r.parents[id]+"/"+id)
		return &cri.PodSandboxStatusResponse{Info: map[string]string{"info": info}}, nil
	case cri.RuntimeService_ListPodSandbox_FullMethodName:
		return r.listSandboxes(read(in, &cri.ListPodSandboxRequest{}).GetFilter().GetId()), nil
	case cri.RuntimeService_CreateContainer_FullMethodName:
		req := read(in, &cri.CreateContainerRequest{})
		id := r.id("container")
		r.containers[id] = &cri.Container{
			Id: id, PodSandboxId: req.GetPodSandboxId(), Metadata: req.GetConfig().GetMetadata(),
			Annotations: req.GetConfig().GetAnnotations(),
		}
		return &cri.CreateContainerResponse{ContainerId: id}, nil
	case cri.RuntimeService_ListContainers_FullMethodName:
		return r.listContainers(read(in, &cri.ListContainersRequest{}).GetFilter().GetId()), nil
	case cri.RuntimeService_RemoveContainer_FullMethodName:
		delete(r.containers, read(in, &cri.RemoveContainerRequest{}).GetContainerId())
		return &cri.RemoveContainerResponse{}, nil
	case cri.RuntimeService_RemovePodSandbox_FullMethodName:
		delete(r.sandboxes, read(in, &cri.RemovePodSandboxRequest{}).GetPodSandboxId())
		return &cri.RemovePodSandboxResponse{}, nil
	case cri.RuntimeService_StartContainer_FullMethodName:
		id := read(in, &cri.StartContainerRequest{}).GetContainerId()
		if r.containers[id] == nil {
			return nil, status.Errorf(codes.NotFound, "no container %s", id)
		}
		return &cri.StartContainerResponse{}, nil
	case cri.RuntimeService_UpdateContainerResources_FullMethodName, cri.RuntimeService_StopContainer_FullMethodName,
		cri.RuntimeService_StopPodSandbox_FullMethodName:
		return &cri.StopContainerResponse{}, nil // all of them are empty
	}
	return nil, status.Errorf(codes.Unimplemented, "unknown method %s", method)
}

// id returns a name that was never used before.
func (r *runtime) id(kind string) string {
	n := r.ids[kind]
	r.ids[kind]++
	return fmt.Sprintf("%s-%d", kind, n)
}

func (r *runtime) listSandboxes(id string) *cri.ListPodSandboxResponse {
	answer := &cri.ListPodSandboxResponse{}
	for _, b := range r.sandboxes {
		if id == "" || id == b.GetId() {
			answer.Items = append(answer.Items, b)
		}
	}
	return answer
}

func (r *runtime) listContainers(id string) *cri.ListContainersResponse {
	answer := &cri.ListContainersResponse{}
	for _, c := range r.containers {
		if id == "" || id == c.GetId() {
			answer.Containers = append(answer.Containers, c)
		}
	}
	return answer
}

// read decodes a request that the proxy may have written.
func read[M proto.Message](in wire, m M) M {
	if err := proto.Unmarshal(in, m); err != nil {
		panic(err)
	}
	return m
}

// proxy is a running Proxy.
type proxy struct {
	*criproxy.Proxy
	socket, hooks string
	stop          func()
}

// newProxy starts a proxy in front of a runtime, with an empty hooks folder.
func newProxy(t testing.TB, runtimeSocket string, change ...func(*criproxy.Options)) *proxy {
	t.Helper()
	return start(t, newOptions(t, runtimeSocket, change...))
}

// newOptions has an empty hooks folder.
func newOptions(t testing.TB, runtimeSocket string, change ...func(*criproxy.Options)) criproxy.Options {
	t.Helper()
	dir := folder(t)
	o := criproxy.Options{
		Listen: filepath.Join(dir, "cri.sock"), Runtime: "unix://" + runtimeSocket,
		HooksDir: filepath.Join(dir, "hookserver.d"),
	}
	for _, c := range change {
		c(&o)
	}
	testkit.Check(t, os.MkdirAll(o.HooksDir, 0o755))
	return o
}

func start(t testing.TB, o criproxy.Options) *proxy {
	t.Helper()
	return startDraining(t, o, 50*time.Millisecond)
}

func startDraining(t testing.TB, o criproxy.Options, drain time.Duration) *proxy {
	t.Helper()
	p, err := criproxy.New(o)
	testkit.Check(t, err)
	p.SetDrain(drain)
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- p.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		cancel()
		t.Fatalf("the proxy ended: %v", err)
	case <-time.After(patience):
		cancel()
		t.Fatal("the proxy does not listen")
	}
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the proxy ended: %v", err)
		}
	})
	t.Cleanup(stop)
	return &proxy{Proxy: p, socket: o.Listen, hooks: o.HooksDir, stop: stop}
}

// connect returns a connection to a socket.
func connect(t testing.TB, socket string, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.MaxCallSendMsgSize(64<<20)),
	}, o...)...)
	testkit.Check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// kubelet returns a CRI client.
func (p *proxy) kubelet(t testing.TB) cri.RuntimeServiceClient {
	t.Helper()
	return cri.NewRuntimeServiceClient(connect(t, p.socket))
}

// register writes a registration.
func (p *proxy) register(t testing.TB, name, content string) {
	t.Helper()
	testkit.Check(t, os.WriteFile(filepath.Join(p.hooks, name), []byte(content), 0o644))
}

// allHooks is the list of a registration for every hook.
const allHooks = `["PreRunPodSandbox","PostStopPodSandbox","PreCreateContainer","PreStartContainer",` +
	`"PostStartContainer",` +
	`"PreUpdateContainerResources","PostStopContainer"]`

// hooks is a hook server.
type hooks struct {
	t      testing.TB
	socket string
	server *grpc.Server
	done   chan struct{}
	// greetings counts the calls that belong to no hook.
	greetings atomic.Int32

	mu sync.Mutex // guards the fields below
	// pods and containers are the questions so far, by hook.
	pods       map[string][]*v1alpha1.PodSandboxHookRequest
	containers map[string][]*v1alpha1.ContainerResourceHookRequest
	pod        func(context.Context, string) (*v1alpha1.PodSandboxHookResponse, error)
	container  func(context.Context, string) (*v1alpha1.ContainerResourceHookResponse, error)
}

// newHooks starts a hook server that changes nothing.
func newHooks(t testing.TB) *hooks {
	t.Helper()
	h := &hooks{
		t: t, socket: filepath.Join(folder(t), "hooks.sock"), pods: map[string][]*v1alpha1.PodSandboxHookRequest{},
		containers: map[string][]*v1alpha1.ContainerResourceHookRequest{},
	}
	h.start()
	t.Cleanup(h.stop)
	return h
}

func (h *hooks) start() {
	h.t.Helper()
	l, err := net.Listen("unix", h.socket)
	if err != nil {
		h.t.Fatal(err)
	}
	h.server = grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		h.greetings.Add(1)
		return status.Error(codes.Unimplemented, "it knows hooks alone")
	}))
	v1alpha1.RegisterRuntimeHookServiceServer(h.server, h)
	done := make(chan struct{})
	h.done = done
	server := h.server
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
}

func (h *hooks) stop() {
	h.server.Stop()
	<-h.done
}

// registration registers the server for all hooks.
func (h *hooks) registration(policy criproxy.Policy) string {
	return fmt.Sprintf(`{"remote-endpoint":%q,"failure-policy":%q,"runtime-hooks":%s}`, h.socket, policy, allHooks)
}

// answer sets what containers are answered.
func (h *hooks) answer(f func(context.Context, string) (*v1alpha1.ContainerResourceHookResponse, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.container = f
}

// answerPods sets what sandboxes are answered.
func (h *hooks) answerPods(f func(context.Context, string) (*v1alpha1.PodSandboxHookResponse, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pod = f
}

// asked returns the questions of a hook about containers.
func (h *hooks) asked(hook string) []*v1alpha1.ContainerResourceHookRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]*v1alpha1.ContainerResourceHookRequest(nil), h.containers[hook]...)
}

// askedPods returns the questions of a hook about sandboxes.
func (h *hooks) askedPods(hook string) []*v1alpha1.PodSandboxHookRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]*v1alpha1.PodSandboxHookRequest(nil), h.pods[hook]...)
}

func (h *hooks) ofPod(ctx context.Context, hook string,
	r *v1alpha1.PodSandboxHookRequest,
) (*v1alpha1.PodSandboxHookResponse, error) {
	h.mu.Lock()
	h.pods[hook] = append(h.pods[hook], r)
	f := h.pod
	h.mu.Unlock()
	if f == nil {
		return &v1alpha1.PodSandboxHookResponse{}, nil
	}
	return f(ctx, hook)
}

func (h *hooks) ofContainer(ctx context.Context, hook string,
	r *v1alpha1.ContainerResourceHookRequest,
) (*v1alpha1.ContainerResourceHookResponse, error) {
	h.mu.Lock()
	h.containers[hook] = append(h.containers[hook], r)
	f := h.container
	h.mu.Unlock()
	if f == nil {
		return &v1alpha1.ContainerResourceHookResponse{}, nil
	}
	return f(ctx, hook)
}

func (h *hooks) PreRunPodSandboxHook(ctx context.Context,
	r *v1alpha1.PodSandboxHookRequest,
) (*v1alpha1.PodSandboxHookResponse, error) {
	return h.ofPod(ctx, "PreRunPodSandbox", r)
}

func (h *hooks) PostStopPodSandboxHook(ctx context.Context,
	r *v1alpha1.PodSandboxHookRequest,
) (*v1alpha1.PodSandboxHookResponse, error) {
	return h.ofPod(ctx, "PostStopPodSandbox", r)
}

func (h *hooks) PreCreateContainerHook(ctx context.Context,
	r *v1alpha1.ContainerResourceHookRequest,
) (*v1alpha1.ContainerResourceHookResponse, error) {
	return h.ofContainer(ctx, "PreCreateContainer", r)
}

func (h *hooks) PreStartContainerHook(ctx context.Context,
	r *v1alpha1.ContainerResourceHookRequest,
) (*v1alpha1.ContainerResourceHookResponse, error) {
	return h.ofContainer(ctx, "PreStartContainer", r)
}

func (h *hooks) PostStartContainerHook(ctx context.Context,
	r *v1alpha1.ContainerResourceHookRequest,
) (*v1alpha1.ContainerResourceHookResponse, error) {
	return h.ofContainer(ctx, "PostStartContainer", r)
}

func (h *hooks) PreUpdateContainerResourcesHook(ctx context.Context,
	r *v1alpha1.ContainerResourceHookRequest,
) (*v1alpha1.ContainerResourceHookResponse, error) {
	return h.ofContainer(ctx, "PreUpdateContainerResources", r)
}

func (h *hooks) PostStopContainerHook(ctx context.Context,
	r *v1alpha1.ContainerResourceHookRequest,
) (*v1alpha1.ContainerResourceHookResponse, error) {
	return h.ofContainer(ctx, "PostStopContainer", r)
}

// call sends one message through any method and returns all answers.
func call(ctx context.Context, conn *grpc.ClientConn, method string, in wire) (out []wire, header, trailer metadata.MD,
	err error,
) {
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method,
		grpc.ForceCodecV2(wireCodec{}))
	if err != nil {
		return nil, nil, nil, err
	}
	if err := s.SendMsg(&in); err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, nil, err
	}
	if err := s.CloseSend(); err != nil {
		return nil, nil, nil, err
	}
	header, _ = s.Header()
	for {
		var w wire
		err := s.RecvMsg(&w)
		if errors.Is(err, io.EOF) {
			return out, header, s.Trailer(), nil
		}
		if err != nil {
			return out, header, s.Trailer(), err
		}
		out = append(out, w)
	}
}

func imagesAt(socket string) func(*criproxy.Options) {
	return func(o *criproxy.Options) { o.Images = socket }
}

func marshal(t testing.TB, m proto.Message) wire {
	t.Helper()
	w, err := proto.Marshal(m)
	testkit.Check(t, err)
	return w
}
