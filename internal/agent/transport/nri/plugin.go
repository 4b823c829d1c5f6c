package nri

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/transport"
)

// Name and Index are the plugin's: the runtime calls it "10-tenon-agent".
const (
	Name  = annotation.NRIPlugin
	Index = "10"
)

// plugin is what the stub serves during one connection.
type plugin struct {
	o       *transport.NRIOptions
	runtime transport.Runtime
	// synced is closed when the runtime has reported all that it has.
	synced chan struct{}
}

// The compiler holds these to the interfaces: the stub looks for methods by name.
var (
	_ stub.ConfigureInterface                   = (*plugin)(nil)
	_ stub.SynchronizeInterface                 = (*plugin)(nil)
	_ stub.RunPodInterface                      = (*plugin)(nil)
	_ stub.StopPodInterface                     = (*plugin)(nil)
	_ stub.RemovePodInterface                   = (*plugin)(nil)
	_ stub.CreateContainerInterface             = (*plugin)(nil)
	_ stub.StartContainerInterface              = (*plugin)(nil)
	_ stub.UpdateContainerInterface             = (*plugin)(nil)
	_ stub.PostUpdateContainerInterface         = (*plugin)(nil)
	_ stub.StopContainerInterface               = (*plugin)(nil)
	_ stub.RemoveContainerInterface             = (*plugin)(nil)
	_ stub.ValidateContainerAdjustmentInterface = (*plugin)(nil)
)

// ErrSlow is answered in place of an answer that did not come in time. Pods that use nothing of Tenon do not get it:
// they go on without an answer.
var ErrSlow = errors.New("the agent did not decide in time")

func (p *plugin) Configure(_ context.Context, _, runtime, version string) (api.EventMask, error) {
	p.runtime = transport.ParseRuntime(runtime, version)
	return Events(p.runtime), nil
}

// Events are the events that the plugin subscribes to; 0 is all that it has a method for. A runtime without validators
// closes the connection of a plugin that names their event.
func Events(r transport.Runtime) api.EventMask {
	var events api.EventMask
	if r.Old() != "" {
		events.Set(api.Event_RUN_POD_SANDBOX, api.Event_STOP_POD_SANDBOX, api.Event_REMOVE_POD_SANDBOX,
			api.Event_CREATE_CONTAINER, api.Event_START_CONTAINER, api.Event_UPDATE_CONTAINER,
			api.Event_POST_UPDATE_CONTAINER, api.Event_STOP_CONTAINER, api.Event_REMOVE_CONTAINER)
	}
	return events
}

func (p *plugin) Synchronize(ctx context.Context, pods []*api.PodSandbox,
	containers []*api.Container,
) ([]*api.ContainerUpdate, error) {
	err := p.step(ctx, "Synchronize", nil, func(context.Context) error {
		sandboxes := make(map[string]*api.PodSandbox, len(pods))
		known := make([]hook.Pod, 0, len(pods))
		for _, pod := range pods {
			sandboxes[pod.GetId()] = pod
			known = append(known, podOf(pod))
		}
		held := make([]hook.Container, 0, len(containers))
		for _, c := range containers {
			if pod := sandboxes[c.GetPodSandboxId()]; pod != nil {
				held = append(held, containerOf(pod, c))
			}
		}
		p.o.Handler.Sync(known, held)
		return nil
	})
	if err != nil {
		return nil, err
	}
	p.o.Link.Connected(ctx, p.runtime) // before the first container
	close(p.synced)
	return nil, nil
}

func (p *plugin) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return p.step(ctx, "RunPodSandbox", pod,
		func(ctx context.Context) error { return p.o.Handler.RunPod(ctx, podOf(pod)) })
}

// StopPodSandbox removes the pod: all of it has ended by then; kubelets remove it a minute later.
func (p *plugin) StopPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return p.step(ctx, "StopPodSandbox", pod,
		func(context.Context) error { p.o.Handler.RemovePod(podOf(pod)); return nil })
}

func (p *plugin) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return p.step(ctx, "RemovePodSandbox", pod,
		func(context.Context) error { p.o.Handler.RemovePod(podOf(pod)); return nil })
}

func (p *plugin) CreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment,
	[]*api.ContainerUpdate, error,
) {
	devices, err := p.o.Handler.Devices(containerOf(pod, c))
	if err != nil {
		return nil, nil, err
	}
	type created struct {
		hook.Resources
		updates []hook.Update
	}
	a, err := guarded(ctx, p, "CreateContainer", pod, func(ctx context.Context) (a created, err error) {
		a.Resources, a.updates, err = p.o.Handler.Create(ctx, containerOf(pod, c))
		return a, err
	})
	if err != nil {
		return nil, nil, err
	}
	return adjustment(a.Resources, devices), toAPI(a.updates), nil
}

// ValidateContainerAdjustment checks that the container that is about to be made has what was decided, whichever plugin
// asked for something else and whatever became of our own answer.
func (p *plugin) ValidateContainerAdjustment(ctx context.Context, req *api.ValidateContainerAdjustmentRequest) error {
	p.o.Link.Fenced(fenced(req))
	after := containerOf(req.GetPod(), req.GetContainer())
	after.Devices = adjusted(after.Devices, req.GetAdjust())
	if err := p.o.Handler.CheckDevices(after); err != nil {
		return err
	}
	return p.step(ctx, "ValidateContainerAdjustment", req.GetPod(), func(ctx context.Context) error {
		c := containerOf(req.GetPod(), req.GetContainer())
		adjust(&c.Has, req.GetAdjust().GetLinux().GetResources())
		return p.o.Handler.Check(ctx, c)
	})
}

func (p *plugin) StartContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	return p.step(ctx, "StartContainer", pod,
		func(ctx context.Context) error { return p.o.Handler.Start(ctx, containerOf(pod, c)) })
}

// UpdateContainer names the container in its answer: only then does that supersede what was asked for.
func (p *plugin) UpdateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container,
	asked *api.LinuxResources,
) ([]*api.ContainerUpdate, error) {
	answer, err := guarded(ctx, p, "UpdateContainer", pod, func(ctx context.Context) (hook.Resources, error) {
		return p.o.Handler.Update(ctx, containerOf(pod, c), resourcesOf(asked))
	})
	if err != nil || answer == (hook.Resources{}) {
		return nil, err
	}
	return toAPI([]hook.Update{{ContainerID: c.GetId(), Resources: answer}}), nil
}

func (p *plugin) PostUpdateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	return p.step(ctx, "PostUpdateContainer", pod,
		func(context.Context) error { p.o.Handler.Updated(containerOf(pod, c)); return nil })
}

func (p *plugin) StopContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate,
	error,
) {
	return nil, p.step(ctx, "StopContainer", pod,
		func(context.Context) error { p.o.Handler.Stop(containerOf(pod, c)); return nil })
}

func (p *plugin) RemoveContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	return p.step(ctx, "RemoveContainer", pod,
		func(context.Context) error { p.o.Handler.Remove(containerOf(pod, c)); return nil })
}

// step is guarded for a call whose answer is yes or no.
func (p *plugin) step(ctx context.Context, call string, pod *api.PodSandbox, f func(context.Context) error) error {
	_, err := guarded(ctx, p, call, pod, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// guarded answers ErrSlow for a call about a pod that takes too long; what it does then has no effect on the answer.
// nil is for a call about all pods.
func guarded[T any](ctx context.Context, p *plugin, call string, pod *api.PodSandbox,
	f func(context.Context) (T, error),
) (T, error) {
	began := p.o.Clock.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		answer T
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		a, err := f(ctx)
		done <- outcome{a, err}
	}()
	limit := p.o.Clock.NewTimer(transport.GuardTime)
	defer limit.Stop()
	var out outcome
	select {
	case out = <-done:
	case <-limit.C():
		if pod == nil || desired.Uses(pod.GetLabels(), pod.GetAnnotations()) {
			out.err = fmt.Errorf("%s: %w", call, ErrSlow)
		}
	}
	p.o.Link.Timed(call, p.o.Clock.Since(began))
	return out.answer, out.err
}
