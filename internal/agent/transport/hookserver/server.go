package hookserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/runtime/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/agent/socket"
)

// drainLimit is how long questions under way may take when the server ends: more than a proxy waits for one.
const drainLimit = 2 * time.Second

// Options are what Serve needs.
type Options struct {
	// Socket is the unix socket that the proxy connects to: an absolute path. It belongs to root alone.
	Socket string
	// Handler decides.
	Handler hook.Handler
	Link    Link
}

// Link follows the connection to a runtime proxy. Its methods must not block.
type Link interface {
	// Timed is called for each request except those after a stop, with the call of the container runtime that it
	// belongs to; the function that it returns is called when the request is answered.
	Timed(call string) (answered func())
	// Proxied is called with true at the beginning of each request, also of one for the server's health, with which a
	// proxy says that it is there before a container starts, and with false when the last connection has ended.
	Proxied(bool)
}

type (
	podRequest       = v1alpha1.PodSandboxHookRequest
	podAnswer        = v1alpha1.PodSandboxHookResponse
	containerRequest = v1alpha1.ContainerResourceHookRequest
	containerAnswer  = v1alpha1.ContainerResourceHookResponse
)

// server answers by a Handler.
type server struct{ Options }

var _ v1alpha1.RuntimeHookServiceServer = (*server)(nil)

// Serve listens and answers until ctx ends, then lets questions under way come to their end. It returns nil at the end
// of ctx, and socket.ErrClaimed when another process has the socket.
func Serve(ctx context.Context, o Options) error {
	lock, err := socket.Claim(o.Socket)
	if err != nil {
		return fmt.Errorf("hook server: %w", err)
	}
	defer lock.Close()
	l, err := socket.Listen(ctx, o.Socket)
	if err != nil {
		return fmt.Errorf("hook server: %w", err)
	}
	g := grpc.NewServer(grpc.StatsHandler(&connections{link: o.Link}))
	healthpb.RegisterHealthServer(g, health.NewServer())
	v1alpha1.RegisterRuntimeHookServiceServer(g, &server{o})
	log := klog.FromContext(ctx)
	log.Info("Hook server listens", "socket", o.Socket)
	service := socket.Service{
		Server: g, Listener: l, Path: o.Socket, Drain: drainLimit,
		Again:  func() { log.Info("Hook server listens again: its socket was removed", "socket", o.Socket) },
		Failed: func(err error) { log.Error(err, "Hook server's socket was removed and cannot be made again") },
	}
	if err := service.Serve(ctx); err != nil {
		return fmt.Errorf("hook server: %w", err)
	}
	return nil
}

func (s *server) PreRunPodSandboxHook(ctx context.Context, r *podRequest) (*podAnswer, error) {
	defer s.Link.Timed("RunPodSandbox")()
	return &podAnswer{}, refusal(s.Handler.RunPod(ctx, podOf(r)))
}

func (s *server) PostStopPodSandboxHook(_ context.Context, r *podRequest) (*podAnswer, error) {
	s.Handler.RemovePod(podOf(r))
	return &podAnswer{}, nil
}

// PreCreateContainerHook does not answer what has to change on other containers, as the protocol has no place for it:
// the handler changes it in the tree before it lets this one start.
func (s *server) PreCreateContainerHook(ctx context.Context, r *containerRequest) (*containerAnswer, error) {
	defer s.Link.Timed("CreateContainer")()
	c := containerOf(r)
	devices, err := s.Handler.Devices(c)
	if err == nil {
		err = sayable(&devices)
	}
	if err != nil {
		return nil, refusal(err)
	}
	answer, _, err := s.Handler.Create(ctx, c)
	out := response(answer)
	setDevices(out, devices)
	return out, refusal(err)
}

// PreStartContainerHook answers the current set of a container, which a proxy sends to the runtime before the start: it
// may have changed since the container was created.
func (s *server) PreStartContainerHook(ctx context.Context, r *containerRequest) (*containerAnswer, error) {
	defer s.Link.Timed("StartContainer")()
	c := containerOf(r)
	answer, _, err := s.Handler.Create(ctx, c)
	if err != nil {
		return nil, refusal(err)
	}
	c.Has.CPUs, c.Has.Mems = cmp.Or(answer.CPUs, c.Has.CPUs), cmp.Or(answer.Mems, c.Has.Mems)
	if answer.Quota != nil {
		c.Has.Quota = answer.Quota
	}
	return response(answer), refusal(s.Handler.Start(ctx, c))
}

// PostStartContainerHook checks what runtimes that make a container's group with its first process made.
func (s *server) PostStartContainerHook(ctx context.Context, r *containerRequest) (*containerAnswer, error) {
	defer s.Link.Timed("StartContainer")()
	c := containerOf(r)
	c.Running = true
	err := s.Handler.Start(ctx, c)
	if errors.Is(err, apply.ErrNotReady) { // the agent was started anew meanwhile: no reason to stop what it let start
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &containerAnswer{}, refusal(err)
}

func (s *server) PreUpdateContainerResourcesHook(ctx context.Context, r *containerRequest) (*containerAnswer, error) {
	defer s.Link.Timed("UpdateContainerResources")()
	c := containerOf(r)
	asked := c.Has
	c.Has = hook.Resources{}
	answer, err := s.Handler.Update(ctx, c, asked)
	return response(answer), refusal(err)
}

func (s *server) PostStopContainerHook(_ context.Context, r *containerRequest) (*containerAnswer, error) {
	s.Handler.Stop(containerOf(r))
	return &containerAnswer{}, nil
}

// refusal is the answer to a step that is rejected; nil to one that is not. A timeout is not a refusal.
func refusal(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.FailedPrecondition, err.Error())
}

func podOf(r *podRequest) hook.Pod {
	return sandbox(r.GetPodMeta(), r.GetLabels(), r.GetAnnotations(), r.GetCgroupParent())
}

func containerOf(r *containerRequest) hook.Container {
	return hook.Container{
		Pod: sandbox(r.GetPodMeta(), r.GetPodLabels(), r.GetPodAnnotations(), r.GetPodCgroupParent()),
		ID:  r.GetContainerMeta().GetId(), Name: r.GetContainerMeta().GetName(),
		Has: resourcesOf(r.GetContainerResources()), Devices: sightOf(r),
	}
}

// sandbox is a pod's. The protocol does not contain its id, but two sandboxes of a pod never have the same attempt.
func sandbox(m *v1alpha1.PodSandboxMetadata, labels, annotations map[string]string, cgroup string) hook.Pod {
	return hook.Pod{
		ID: fmt.Sprintf("%s/%d", m.GetUid(), m.GetAttempt()), UID: m.GetUid(), Namespace: m.GetNamespace(),
		Name: m.GetName(), Labels: labels, Annotations: annotations, Cgroup: cgroup,
	}
}

func resourcesOf(r *v1alpha1.LinuxContainerResources) hook.Resources {
	has := hook.Resources{
		CPUs: r.GetCpusetCpus(), Mems: r.GetCpusetMems(), Shares: r.GetCpuShares(),
		Memory: max(r.GetMemoryLimitInBytes(), 0),
	}
	if quota := r.GetCpuQuota(); quota != 0 {
		has.Quota = &quota
	}
	return has
}

func response(a hook.Resources) *containerAnswer {
	r := &v1alpha1.LinuxContainerResources{
		CpusetCpus: a.CPUs, CpusetMems: a.Mems, CpuShares: a.Shares, MemoryLimitInBytes: a.Memory,
	}
	if a.Weight > 0 {
		r.Unified = map[string]string{desired.WeightV2: strconv.FormatInt(a.Weight, 10)}
	}
	if a.Quota != nil {
		r.CpuQuota = *a.Quota
	}
	return &containerAnswer{ContainerResources: r}
}

// connections reports requests, and when the last connection of a server has ended. A proxy keeps its connection open
// until it exits.
type connections struct {
	open atomic.Int64
	link Link
}

var _ stats.Handler = (*connections)(nil)

func (*connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (c *connections) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		c.open.Add(1)
	case *stats.ConnEnd:
		if c.open.Add(-1) == 0 {
			c.link.Proxied(false)
		}
	}
}

func (*connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (c *connections) HandleRPC(_ context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.InHeader); ok {
		c.link.Proxied(true)
	}
}

// sightOf is what a container is to be created with. Of a variable the protocol has one value, and the proxy replaces
// them all.
func sightOf(r *containerRequest) inject.Sight {
	s := inject.Sight{CDI: r.GetContainerCdiDevices(), Privileged: r.GetContainerPrivileged()}
	for name, value := range r.GetContainerEnvs() {
		s.Env = append(s.Env, name+"="+value)
	}
	for _, d := range r.GetContainerDevices() {
		s.Files = append(s.Files, inject.File{
			DeviceFile: host.DeviceFile{Path: d.GetContainerPath()}, HostPath: d.GetHostPath(),
		})
	}
	return s
}

// sayable returns an error where an answer cannot be said by CRI, in whose words the proxy speaks.
func sayable(d *inject.Answer) error {
	for _, m := range d.Mounts {
		if m.InMemory {
			return fmt.Errorf("it needs a file system of memory at %s, which a runtime gives by NRI and not "+
				"behind the proxy", m.Path)
		}
	}
	return nil
}

// setDevices puts what a container sees of devices into an answer.
func setDevices(to *containerAnswer, d inject.Answer) {
	to.ContainerEnvs, to.ContainerCdiDevices = d.Env, d.CDI
	for _, f := range d.Files {
		to.ContainerDevices = append(to.ContainerDevices,
			&v1alpha1.ContainerDevice{ContainerPath: f.Path, HostPath: f.Path, Permissions: "rw"})
	}
	for _, m := range d.Mounts {
		to.ContainerMounts = append(to.ContainerMounts, &v1alpha1.ContainerMount{
			ContainerPath: m.Path, HostPath: cmp.Or(m.Source, m.Path), Readonly: m.ReadOnly,
		})
	}
}
