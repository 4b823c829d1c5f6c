package criproxy

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"sync"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/api/runtime/v1alpha1"
)

// sandbox is what is known of a pod's sandbox, as hook servers get it. It is never written to once others can see it.
type sandbox struct {
	id string
	*v1alpha1.PodSandboxHookRequest
}

// enforced reports whether the sandbox's containers may not pass without their hooks.
func (s *sandbox) enforced() bool { return mustEnforce(s.Labels, s.Annotations) }

// sandboxOf is a sandbox that does not exist yet, or that is known only from a request.
func sandboxOf(c *cri.PodSandboxConfig, handler string) *sandbox {
	return &sandbox{PodSandboxHookRequest: &v1alpha1.PodSandboxHookRequest{
		PodMeta: podMeta(c.GetMetadata()), RuntimeHandler: handler, Labels: c.GetLabels(),
		Annotations: c.GetAnnotations(), CgroupParent: c.GetLinux().GetCgroupParent(),
		Overhead: toHook(c.GetLinux().GetOverhead()), Resources: toHook(c.GetLinux().GetResources()),
	}}
}

// container is what is known of a container. It is never written to once others can see it.
type container struct {
	id, sandbox string
	meta        *cri.ContainerMetadata
	annotations map[string]string
	// resources are those that the runtime was given; nil when that was before the proxy started.
	resources *cri.LinuxContainerResources
}

// state remembers the runtime's sandboxes and containers, and asks for those that it does not know. It is safe for
// concurrent use.
type state struct {
	runtime cri.RuntimeServiceClient

	mu         sync.Mutex // guards the fields below
	sandboxes  map[string]*sandbox
	containers map[string]*container
}

func newState(runtime cri.RuntimeServiceClient) *state {
	return &state{runtime: runtime, sandboxes: map[string]*sandbox{}, containers: map[string]*container{}}
}

func (s *state) putSandbox(b *sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sandboxes[b.id] = b
}

func (s *state) putContainer(c *container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.containers[c.id] = c
}

// sandbox returns the sandbox of an id; nil when the runtime has none.
func (s *state) sandbox(ctx context.Context, id string) (*sandbox, error) {
	s.mu.Lock()
	known := s.sandboxes[id]
	s.mu.Unlock()
	if known != nil || id == "" {
		return known, nil
	}
	answer, err := s.runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{Id: id}})
	if err != nil || len(answer.GetItems()) != 1 {
		return nil, err
	}
	return s.meetSandbox(ctx, answer.GetItems()[0]), nil
}

// container returns the container of an id with its sandbox; nil when the runtime does not have them.
func (s *state) container(ctx context.Context, id string) (*container, *sandbox, error) {
	s.mu.Lock()
	c := s.containers[id]
	s.mu.Unlock()
	if c == nil && id != "" {
		answer, err := s.runtime.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{Id: id}})
		if err != nil {
			return nil, nil, err
		}
		if len(answer.GetContainers()) == 1 {
			c = s.meetContainer(answer.GetContainers()[0])
		}
	}
	if c == nil {
		return nil, nil, nil
	}
	b, err := s.sandbox(ctx, c.sandbox)
	if b == nil {
		return nil, nil, err
	}
	return c, b, nil
}

// rebuild asks the runtime for all that it has.
func (s *state) rebuild(ctx context.Context) error {
	sandboxes, containers, err := s.list(ctx)
	if err != nil {
		return err
	}
	for _, b := range sandboxes {
		s.meetSandbox(ctx, b)
	}
	for _, c := range containers {
		s.meetContainer(c)
	}
	return nil
}

func (s *state) list(ctx context.Context) ([]*cri.PodSandbox, []*cri.Container, error) {
	sandboxes, err := s.runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, nil, fmt.Errorf("list sandboxes: %w", err)
	}
	containers, err := s.runtime.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return nil, nil, fmt.Errorf("list containers: %w", err)
	}
	return sandboxes.GetItems(), containers.GetContainers(), nil
}

// sweep forgets what the runtime no longer has. What comes meanwhile stays.
func (s *state) sweep(ctx context.Context) error {
	gone := map[string]bool{}
	s.mu.Lock()
	for id := range s.sandboxes {
		gone[id] = true
	}
	for id := range s.containers {
		gone[id] = true
	}
	s.mu.Unlock()
	sandboxes, containers, err := s.list(ctx)
	if err != nil {
		return err
	}
	for _, b := range sandboxes {
		delete(gone, b.GetId())
	}
	for _, c := range containers {
		delete(gone, c.GetId())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range gone {
		delete(s.sandboxes, id)
		delete(s.containers, id)
	}
	return nil
}

// size returns how many sandboxes and containers are remembered.
func (s *state) size() (sandboxes, containers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sandboxes), len(s.containers)
}

// meetSandbox remembers a sandbox that was run without the proxy, or before it started. If the runtime does not report
// its group now, it is queried again.
func (s *state) meetSandbox(ctx context.Context, listed *cri.PodSandbox) *sandbox {
	b := &sandbox{listed.GetId(), &v1alpha1.PodSandboxHookRequest{
		PodMeta: podMeta(listed.GetMetadata()), RuntimeHandler: listed.GetRuntimeHandler(), Labels: listed.GetLabels(),
		Annotations: listed.GetAnnotations(),
	}}
	answer, err := s.runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: b.id, Verbose: true})
	if err != nil {
		return b
	}
	b.CgroupParent = parentGroup(answer.GetInfo()["info"])
	s.mu.Lock()
	defer s.mu.Unlock()
	return meet(s.sandboxes, b.id, b)
}

func (s *state) meetContainer(listed *cri.Container) *container {
	c := &container{
		id: listed.GetId(), sandbox: listed.GetPodSandboxId(), meta: listed.GetMetadata(),
		annotations: listed.GetAnnotations(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return meet(s.containers, c.id, c)
}

// meet stores an item of a list of the runtime, unless more is known: callers may use a prefix of an id, which the
// runtime completes. The caller holds mu.
func meet[T any](known map[string]*T, id string, it *T) *T {
	if old := known[id]; old != nil {
		return old
	}
	known[id] = it
	return it
}

// parentGroup returns the group of a pod from the verbose status of its sandbox: the OCI path of the sandbox's own
// group, which containerd and CRI-O report, is PARENT/NAME or SLICE:PREFIX:NAME.
func parentGroup(info string) string {
	var verbose struct {
		Spec struct {
			Linux struct {
				CgroupsPath string `json:"cgroupsPath"`
			} `json:"linux"`
		} `json:"runtimeSpec"`
	}
	if json.Unmarshal([]byte(info), &verbose) != nil {
		return ""
	}
	group := verbose.Spec.Linux.CgroupsPath
	if slice, _, scoped := strings.Cut(group, ":"); scoped {
		return slice
	}
	if group == "" {
		return ""
	}
	return path.Dir(group)
}
