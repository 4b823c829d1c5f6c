//go:build linux

package stage

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxMessageBytes is what kubelets allow.
const maxMessageBytes = 16 << 20

// Runtime asks a container runtime, or a proxy in front of one, for pods as a kubelet does.
type Runtime struct {
	s       *Stage
	runtime runtimeapi.RuntimeServiceClient
}

// Runtime returns a driver of the runtime that serves CRI at a socket.
func (s *Stage) Runtime(socket string) *Runtime {
	s.t.Helper()
	conn, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: pause, Multiplier: 1, MaxDelay: pause},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)))
	must(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	return &Runtime{s: s, runtime: runtimeapi.NewRuntimeServiceClient(conn)}
}

// Client is the CRI client itself.
func (r *Runtime) Client() runtimeapi.RuntimeServiceClient { return r.runtime }

// Sandbox is a pod that a runtime runs.
type Sandbox struct {
	r      *Runtime
	Pod    *corev1.Pod
	ID     string
	config *runtimeapi.PodSandboxConfig
	// Group is the pod's cgroup.
	Group string
}

// RunPod makes the cgroups of a pod and runs its sandbox. The pod needs a uid.
func (r *Runtime) RunPod(ctx context.Context, pod *corev1.Pod) (*Sandbox, error) {
	if pod.UID == "" {
		return nil, fmt.Errorf("pod %s has no uid", pod.Name)
	}
	b := &Sandbox{r: r, Pod: pod.DeepCopy(), Group: r.s.PodGroup(pod)}
	if err := r.s.makePodGroup(pod); err != nil {
		return nil, err
	}
	b.config = sandboxConfig(r.s, pod, b.Group)
	answer, err := r.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: b.config})
	if err != nil {
		return nil, err
	}
	b.ID = answer.GetPodSandboxId()
	return b, nil
}

// Adopt returns a sandbox that runs already, by the id that RunPod gave it: for another driver of the same runtime.
func (r *Runtime) Adopt(b *Sandbox) *Sandbox {
	other := *b
	other.r = r
	return &other
}

// Stop stops the pod's containers and its sandbox.
func (b *Sandbox) Stop(ctx context.Context) error {
	_, err := b.r.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: b.ID})
	return err
}

// Remove stops and removes the sandbox with its containers, and then the pod's cgroups.
func (b *Sandbox) Remove(ctx context.Context) error {
	if err := RemoveSandbox(ctx, b.r.runtime, b.ID); err != nil {
		return err
	}
	return b.r.s.hierarchies.Remove(b.Group)
}

// RemoveSandbox stops a sandbox and removes its containers before it, as kubelets do: containerd 2.4 takes the lock
// that a plugin waits for when it connects once in RemovePodSandbox and again for each container that it removes there.
// A plugin that connects in between blocks both for good.
func RemoveSandbox(ctx context.Context, client runtimeapi.RuntimeServiceClient, id string) error {
	if _, err := client.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		return err
	}
	if err := RemoveContainers(ctx, client, id); err != nil {
		return err
	}
	_, err := client.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

// RemoveContainers removes all containers of a sandbox.
func RemoveContainers(ctx context.Context, client runtimeapi.RuntimeServiceClient, sandbox string) error {
	list, err := client.ListContainers(ctx,
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: sandbox}})
	if err != nil {
		return err
	}
	for _, c := range list.GetContainers() {
		if _, err := client.RemoveContainer(ctx,
			&runtimeapi.RemoveContainerRequest{ContainerId: c.GetId()}); err != nil {
			return err
		}
	}
	return nil
}

// PauseGroup is the cgroup of the sandbox's own container.
func (b *Sandbox) PauseGroup() string { return path.Join(b.Group, b.ID) }

// Container is a container of a pod.
type Container struct {
	b    *Sandbox
	ID   string
	Name string
	// Group is its cgroup.
	Group string
	log   string
}

// Create creates the container of a pod that has a name, as the pod's spec has it: a usual, an init or an ephemeral
// one.
func (b *Sandbox) Create(ctx context.Context, name string) (*Container, error) {
	spec, err := specOf(b.Pod, name)
	if err != nil {
		return nil, err
	}
	config := containerConfig(b.Pod, spec)
	answer, err := b.r.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: b.ID, Config: config, SandboxConfig: b.config,
	})
	if err != nil {
		return nil, err
	}
	id := answer.GetContainerId()
	return &Container{
		b: b, ID: id, Name: name, Group: path.Join(b.Group, id),
		log: path.Join(b.config.GetLogDirectory(), config.GetLogPath()),
	}, nil
}

// Run creates and starts a container.
func (b *Sandbox) Run(ctx context.Context, name string) (*Container, error) {
	c, err := b.Create(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	if err := c.Start(ctx); err != nil {
		return c, fmt.Errorf("start: %w", err)
	}
	return c, nil
}

// Start starts the container's first process.
func (c *Container) Start(ctx context.Context) error {
	_, err := c.b.r.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.ID})
	return err
}

// Update asks for other resources, as a kubelet does that reconciles CPUs or resizes a pod.
func (c *Container) Update(ctx context.Context, resources *runtimeapi.LinuxContainerResources) error {
	_, err := c.b.r.runtime.UpdateContainerResources(ctx,
		&runtimeapi.UpdateContainerResourcesRequest{ContainerId: c.ID, Linux: resources})
	return err
}

// Stop ends the container's processes at once.
func (c *Container) Stop(ctx context.Context) error {
	_, err := c.b.r.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.ID})
	return err
}

// Remove removes a container.
func (c *Container) Remove(ctx context.Context) error {
	_, err := c.b.r.runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.ID})
	return err
}

// State returns the runtime's view of the container.
func (c *Container) State(ctx context.Context) (runtimeapi.ContainerState, error) {
	answer, err := c.b.r.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
	return answer.GetStatus().GetState(), err
}

// Cgroup reads a file of the container's cgroup.
func (c *Container) Cgroup(file string) (string, error) {
	return c.b.r.s.hierarchies.Read(c.Group, file)
}

// CPUs returns the CPUs that the kernel lets the container's group use.
func (c *Container) CPUs() (string, error) { return c.b.r.s.Effective(c.Group) }

// Lines returns what the container has printed.
func (c *Container) Lines() ([]string, error) { return readLog(c.log) }

// Said returns the last value that the probe in the container printed for a key, such as "Cpus_allowed_list".
func (c *Container) Said(key string) (string, error) {
	lines, err := c.Lines()
	if err != nil {
		return "", err
	}
	found, value := false, ""
	for _, line := range lines {
		if rest, ok := strings.CutPrefix(line, key+"="); ok {
			found, value = true, rest
		}
	}
	if !found {
		return "", fmt.Errorf("container %s has printed no %s yet", c.Name, key)
	}
	return value, nil
}

// Effective returns the CPUs that the kernel lets a group use.
func (s *Stage) Effective(group string) (string, error) {
	if s.hierarchies.Unified() {
		return s.hierarchies.Read(group, "cpuset.cpus.effective")
	}
	return s.hierarchies.Read(group, "cpuset.effective_cpus")
}
