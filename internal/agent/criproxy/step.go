package criproxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/api/runtime/v1alpha1"
)

// exchange is one of the calls around which hook servers are asked.
type exchange struct {
	p      *Proxy
	method string
	down   grpc.ServerStream
	// in is the request, out the answer.
	in, out frame
}

// endLimit is the longest time that it may take to end a container.
const endLimit = 30 * time.Second

// step answers a call around which hook servers are asked.
type step func(*exchange, context.Context) error

func steps() map[string]step {
	return map[string]step{
		cri.RuntimeService_RunPodSandbox_FullMethodName:            decoded((*exchange).runPodSandbox),
		cri.RuntimeService_StopPodSandbox_FullMethodName:           decoded((*exchange).stopPodSandbox),
		cri.RuntimeService_CreateContainer_FullMethodName:          decoded((*exchange).createContainer),
		cri.RuntimeService_StartContainer_FullMethodName:           decoded((*exchange).startContainer),
		cri.RuntimeService_UpdateContainerResources_FullMethodName: decoded((*exchange).updateContainerResources),
		cri.RuntimeService_StopContainer_FullMethodName:            decoded((*exchange).stopContainer),
	}
}

// decoded is a step that is given its request. A malformed one is refused: its pod is not known.
func decoded[T any, R interface {
	*T
	proto.Message
}](f func(*exchange, context.Context, R) error,
) step {
	return func(x *exchange, ctx context.Context) error {
		req := R(new(T))
		if err := x.in.decode(req); err != nil {
			return status.Errorf(codes.InvalidArgument, "runtime proxy: %s: %v", x.method, err)
		}
		return f(x, ctx, req)
	}
}

// intercept answers a call around which hook servers are asked.
func (p *Proxy) intercept(method string, s step, down grpc.ServerStream) error {
	x := &exchange{p: p, method: method, down: down}
	if err := down.RecvMsg(&x.in); errors.Is(err, io.EOF) {
		return status.Errorf(codes.Internal, "runtime proxy: %s without a request", method)
	} else if err != nil {
		return err
	}
	if err := s(x, down.Context()); err != nil {
		return err
	}
	return down.SendMsg(&x.out)
}

// forward lets the runtime answer; m is what hooks made of the request, nil when that is still what the caller sent.
func (x *exchange) forward(ctx context.Context, m proto.Message) error {
	if m != nil {
		if err := x.in.encode(m); err != nil {
			return status.Errorf(codes.Internal, "runtime proxy: %s: %v", x.method, err)
		}
	}
	var header, trailer metadata.MD
	err := x.p.upstream(x.method).Invoke(outgoing(ctx), x.method, &x.in, &x.out, grpc.ForceCodecV2(rawCodec{}),
		grpc.Header(&header), grpc.Trailer(&trailer))
	x.down.SetTrailer(trailer)
	if len(header) == 0 {
		return err
	}
	if failed := x.down.SetHeader(header); failed != nil && err == nil {
		return failed
	}
	return err
}

func (x *exchange) runPodSandbox(ctx context.Context, req *cri.RunPodSandboxRequest) error {
	asked := func() *sandbox { return sandboxOf(req.GetConfig(), req.GetRuntimeHandler()) }
	var changed proto.Message
	err := x.p.hooks.ask(ctx, PreRunPodSandbox, asked().enforced(),
		func(ctx context.Context, c v1alpha1.RuntimeHookServiceClient) error {
			answer, err := c.PreRunPodSandboxHook(ctx, asked().PodSandboxHookRequest)
			if err == nil && mergeSandbox(req, answer) {
				changed = req
			}
			return err
		})
	if err != nil {
		return err
	}
	if err := x.forward(ctx, changed); err != nil {
		return err
	}
	answer := &cri.RunPodSandboxResponse{}
	if x.out.decode(answer) == nil {
		b := asked()
		b.id = answer.GetPodSandboxId()
		x.p.state.putSandbox(b)
	}
	return nil
}

// mergeSandbox takes over what a hook server answered.
func mergeSandbox(req *cri.RunPodSandboxRequest, answer *v1alpha1.PodSandboxHookResponse) bool {
	config := cmp.Or(req.GetConfig(), &cri.PodSandboxConfig{})
	linux := cmp.Or(config.GetLinux(), &cri.LinuxPodSandboxConfig{})
	within := mergeField(&linux.CgroupParent, answer.GetCgroupParent())
	within = mergeResources(&linux.Resources, answer.GetResources()) || within
	if within {
		config.Linux = linux
	}
	changed := mergeMap(&config.Labels, answer.GetLabels()) || within
	changed = mergeMap(&config.Annotations, answer.GetAnnotations()) || changed
	if changed {
		req.Config = config
	}
	return changed
}

func (x *exchange) createContainer(ctx context.Context, req *cri.CreateContainerRequest) error {
	b, err := x.p.state.sandbox(ctx, req.GetPodSandboxId())
	if err != nil {
		return err
	}
	asked := sandboxOf(req.GetSandboxConfig(), "")
	enforced := asked.enforced()
	if b == nil {
		b = asked
	} else {
		enforced = enforced || b.enforced()
		b = b.completed(asked)
	}
	var changed proto.Message
	err = x.p.hooks.ask(ctx, PreCreateContainer, enforced,
		func(ctx context.Context, c v1alpha1.RuntimeHookServiceClient) error {
			request := containerOf(req).request(b)
			describeDevices(request, req.GetConfig())
			answer, err := c.PreCreateContainerHook(ctx, request)
			if err == nil && mergeContainer(req, answer) {
				changed = req
			}
			return err
		})
	if err != nil {
		return err
	}
	if err := x.forward(ctx, changed); err != nil {
		return err
	}
	answer := &cri.CreateContainerResponse{}
	if x.out.decode(answer) == nil {
		c := containerOf(req)
		c.id = answer.GetContainerId()
		x.p.state.putContainer(c)
	}
	return nil
}

// completed is a sandbox with the fields that only requests contain.
func (s *sandbox) completed(asked *sandbox) *sandbox {
	b := &sandbox{s.id, proto.CloneOf(s.PodSandboxHookRequest)}
	b.CgroupParent, b.Resources = cmp.Or(b.CgroupParent, asked.CgroupParent), cmp.Or(b.Resources, asked.Resources)
	return b
}

// containerOf is the container that a request asks for.
func containerOf(req *cri.CreateContainerRequest) *container {
	return &container{
		sandbox: req.GetPodSandboxId(), meta: req.GetConfig().GetMetadata(),
		annotations: req.GetConfig().GetAnnotations(),
		resources:   req.GetConfig().GetLinux().GetResources(),
	}
}

// mergeContainer takes over what a hook server answered.
func mergeContainer(req *cri.CreateContainerRequest, answer *v1alpha1.ContainerResourceHookResponse) bool {
	config := cmp.Or(req.GetConfig(), &cri.ContainerConfig{})
	changed := mergeMap(&config.Annotations, answer.GetContainerAnnotations())
	changed = mergeDevices(config, answer) || changed
	linux := cmp.Or(config.GetLinux(), &cri.LinuxContainerConfig{})
	if mergeResources(&linux.Resources, answer.GetContainerResources()) {
		config.Linux = linux
		changed = true
	}
	if changed {
		req.Config = config
	}
	return mergeParent(req, answer.GetPodCgroupParent()) || changed
}

func mergeParent(req *cri.CreateContainerRequest, group string) bool {
	if group == "" || req.GetSandboxConfig().GetLinux().GetCgroupParent() == group {
		return false
	}
	req.SandboxConfig = cmp.Or(req.SandboxConfig, &cri.PodSandboxConfig{})
	req.SandboxConfig.Linux = cmp.Or(req.SandboxConfig.Linux, &cri.LinuxPodSandboxConfig{})
	req.SandboxConfig.Linux.CgroupParent = group
	return true
}

func (x *exchange) startContainer(ctx context.Context, req *cri.StartContainerRequest) error {
	c, b, err := x.p.state.container(ctx, req.GetContainerId())
	if err != nil {
		return err
	}
	if c == nil {
		return x.forward(ctx, nil)
	}
	if c, err = x.beforeStart(ctx, c, b); err != nil {
		return err
	}
	if err := x.forward(ctx, nil); err != nil {
		if !unanswered(err) { // it does not run
			x.afterStop(ctx, c, b)
		}
		return err
	}
	// It runs, whether or not the caller still waits.
	err = x.p.hooks.ask(context.WithoutCancel(ctx), PostStartContainer, b.enforced(),
		func(ctx context.Context, hooks v1alpha1.RuntimeHookServiceClient) error {
			_, err := hooks.PostStartContainerHook(ctx, c.request(b))
			return err
		})
	if status.Code(err) == codes.FailedPrecondition {
		return x.end(ctx, c, b, err)
	}
	return err
}

// unanswered reports whether an error may be that of the way to the runtime, which may have done what it was asked.
func unanswered(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		return true
	}
	return false
}

// beforeStart calls the hooks for the last time before a container's first process. It updates the container in the
// runtime if they answer with other resources: the allocation of a container that was created earlier may have gone to
// others since.
func (x *exchange) beforeStart(ctx context.Context, c *container, b *sandbox) (*container, error) {
	now := c.updated(nil)
	changed := false
	err := x.p.hooks.ask(ctx, PreStartContainer, b.enforced(),
		func(ctx context.Context, hooks v1alpha1.RuntimeHookServiceClient) error {
			answer, err := hooks.PreStartContainerHook(ctx, now.request(b))
			if err == nil && mergeResources(&now.resources, answer.GetContainerResources()) {
				changed = true
			}
			return err
		})
	if err != nil || !changed {
		return c, err
	}
	_, err = x.p.state.runtime.UpdateContainerResources(ctx,
		&cri.UpdateContainerResourcesRequest{ContainerId: c.id, Linux: now.resources})
	if err != nil {
		return c, err
	}
	x.p.state.putContainer(now)
	return now, nil
}

// end stops a container that was refused after its start, and returns why.
func (x *exchange) end(ctx context.Context, c *container, b *sandbox, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	if _, err := x.p.state.runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: c.id}); err != nil {
		return status.Errorf(codes.FailedPrecondition, "%s; and the container cannot be stopped: %v",
			status.Convert(why).Message(), err)
	}
	x.afterStop(ctx, c, b)
	return why
}

// afterStop reports to the hook servers that a container does not run.
func (x *exchange) afterStop(ctx context.Context, c *container, b *sandbox) {
	x.p.hooks.announce(ctx, PostStopContainer,
		func(ctx context.Context, hooks v1alpha1.RuntimeHookServiceClient) error {
			_, err := hooks.PostStopContainerHook(ctx, c.request(b))
			return err
		})
}

func (x *exchange) updateContainerResources(ctx context.Context, req *cri.UpdateContainerResourcesRequest) error {
	c, b, err := x.p.state.container(ctx, req.GetContainerId())
	if err != nil {
		return err
	}
	if c == nil {
		return x.forward(ctx, nil)
	}
	var changed proto.Message
	err = x.p.hooks.ask(ctx, PreUpdateContainerResources, b.enforced(),
		func(ctx context.Context, hooks v1alpha1.RuntimeHookServiceClient) error {
			request := c.request(b)
			request.ContainerResources = toHook(req.GetLinux())
			answer, err := hooks.PreUpdateContainerResourcesHook(ctx, request)
			if err != nil {
				return err
			}
			merged := mergeMap(&req.Annotations, answer.GetContainerAnnotations())
			if mergeResources(&req.Linux, answer.GetContainerResources()) || merged {
				changed = req
			}
			return nil
		})
	if err != nil {
		return err
	}
	if err := x.forward(ctx, changed); err != nil {
		return err
	}
	x.p.state.putContainer(c.updated(req.GetLinux()))
	return nil
}

// updated is a copy of a container after an update.
func (c *container) updated(r *cri.LinuxContainerResources) *container {
	u := *c
	u.resources = proto.CloneOf(c.resources)
	mergeResources(&u.resources, toHook(r))
	return &u
}

func (x *exchange) stopContainer(ctx context.Context, req *cri.StopContainerRequest) error {
	// What cannot be found out keeps nothing from stopping.
	c, b, _ := x.p.state.container(ctx, req.GetContainerId())
	if err := x.forward(ctx, nil); err != nil || c == nil {
		return err
	}
	x.afterStop(ctx, c, b)
	return nil
}

func (x *exchange) stopPodSandbox(ctx context.Context, req *cri.StopPodSandboxRequest) error {
	b, _ := x.p.state.sandbox(ctx, req.GetPodSandboxId())
	if err := x.forward(ctx, nil); err != nil || b == nil {
		return err
	}
	x.p.hooks.announce(ctx, PostStopPodSandbox,
		func(ctx context.Context, hooks v1alpha1.RuntimeHookServiceClient) error {
			_, err := hooks.PostStopPodSandboxHook(ctx, b.PodSandboxHookRequest)
			return err
		})
	return nil
}
