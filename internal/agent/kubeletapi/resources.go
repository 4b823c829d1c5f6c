package kubeletapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// Resources is one answer of a kubelet's PodResources.
type Resources struct {
	// CPUs are those that the static policy may give, ascending: all but the reserved ones. Empty under the policy
	// none.
	CPUs []int
	// Devices are the healthy devices of all plugins, by resource, then id.
	Devices []host.Device
	// Pods are the active ones, by namespace and name.
	Pods []Pod
}

// Pod is what the kubelet gave to the containers of an active pod. The kubelet does not say which pod of that name it
// is.
type Pod struct {
	Namespace, Name string
	// Containers are sidecars and app containers, by name. Init containers that end are never among them.
	Containers map[string]Container
}

// Container is what a container has of its own.
type Container struct {
	CPUs    []int // exclusive ones, ascending
	Devices []host.Device
	Memory  []host.MemoryBlock
}

// maxResourcesBytes is the kubelet's own limit for its gRPC answers.
const maxResourcesBytes = 16 << 20

// ErrBusy is answered by a kubelet that is asked too often: the next question may be answered.
var ErrBusy = errors.New("the kubelet is asked too often")

// Socket is the path of the unix socket at which a kubelet serves PodResources.
type Socket string

// Resources asks the kubelet what there is and who has it. The answers are two, so a device or CPU may have changed
// hands between them. The error is ErrBusy where the kubelet limits the rate.
func (s Socket) Resources(ctx context.Context) (Resources, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	r, err := ask(ctx, string(s))
	if err != nil {
		if status.Code(err) == codes.ResourceExhausted {
			err = fmt.Errorf("%w: %s", ErrBusy, status.Convert(err).Message())
		}
		return Resources{}, fmt.Errorf("ask the kubelet at %s for the resources of its pods: %w", s, err)
	}
	return r, nil
}

func ask(ctx context.Context, socket string) (Resources, error) {
	path, err := filepath.Abs(socket)
	if err != nil {
		return Resources{}, err
	}
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResourcesBytes)))
	if err != nil {
		return Resources{}, err
	}
	defer func() { _ = conn.Close() }()
	kubelet := podresources.NewPodResourcesListerClient(conn)
	all, err := kubelet.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return Resources{}, err
	}
	list, err := kubelet.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return Resources{}, err
	}
	return ParseResources(all, list)
}

// ParseResources reads the answers of a kubelet. It refuses those that cannot be true: ids that no machine has, a
// device without a name, one CPU or device for two containers at once is left to the caller.
func ParseResources(all *podresources.AllocatableResourcesResponse, list *podresources.ListPodResourcesResponse,
) (Resources, error) {
	var r Resources
	var err error
	if r.CPUs, err = ids(all.GetCpuIds(), "CPU"); err != nil {
		return Resources{}, fmt.Errorf("allocatable cpu_ids: %w", err)
	}
	if r.Devices, err = devices(all.GetDevices()); err != nil {
		return Resources{}, fmt.Errorf("allocatable devices: %w", err)
	}
	for _, in := range list.GetPodResources() {
		p := Pod{Namespace: in.GetNamespace(), Name: in.GetName(), Containers: map[string]Container{}}
		if p.Namespace == "" || p.Name == "" {
			return Resources{}, fmt.Errorf("a pod has no namespace or no name: %q/%q", p.Namespace, p.Name)
		}
		for _, c := range in.GetContainers() {
			if p.Containers[c.GetName()], err = container(c); err != nil {
				return Resources{}, fmt.Errorf("pod %s/%s, container %q: %w", p.Namespace, p.Name, c.GetName(), err)
			}
		}
		r.Pods = append(r.Pods, p)
	}
	slices.SortStableFunc(r.Pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return r, nil
}

func container(in *podresources.ContainerResources) (Container, error) {
	var c Container
	var err error
	if in.GetName() == "" {
		return c, errors.New("has no name")
	}
	if c.CPUs, err = ids(in.GetCpuIds(), "CPU"); err != nil {
		return c, fmt.Errorf("cpu_ids: %w", err)
	}
	if c.Devices, err = devices(in.GetDevices()); err != nil {
		return c, fmt.Errorf("devices: %w", err)
	}
	for _, m := range in.GetMemory() {
		b := host.MemoryBlock{Type: m.GetMemoryType()}
		if b.NUMAIDs, err = numaIDs(m.GetTopology()); err != nil {
			return c, fmt.Errorf("memory: %w", err)
		}
		if b.Type == "" || m.GetSize() > math.MaxInt64 || len(b.NUMAIDs) == 0 {
			return c, fmt.Errorf("memory: a block of %d bytes of type %q on NUMA nodes %v", m.GetSize(), b.Type,
				b.NUMAIDs)
		}
		b.Bytes = int64(m.GetSize())
		c.Memory = append(c.Memory, b)
	}
	return c, nil
}

func numaIDs(t *podresources.TopologyInfo) ([]int, error) {
	var list []int64
	for _, n := range t.GetNodes() {
		list = append(list, n.GetID())
	}
	return ids(list, "NUMA node")
}

// ids returns distinct ids, ascending; nil for none.
func ids(in []int64, what string) ([]int, error) {
	var out []int
	for _, id := range in {
		if id < 0 || id > cpuset.MaxID {
			return nil, fmt.Errorf("%s %d: want 0 to %d", what, id, cpuset.MaxID)
		}
		out = append(out, int(id))
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// devices returns one Device for each id. A kubelet that lists an id twice reports a part of its NUMA nodes each time.
func devices(in []*podresources.ContainerDevices) ([]host.Device, error) {
	var out []host.Device
	at := map[[2]string]int{}
	for _, d := range in {
		nodes, err := numaIDs(d.GetTopology())
		if err != nil {
			return nil, err
		}
		for _, id := range d.GetDeviceIds() {
			if d.GetResourceName() == "" || id == "" {
				return nil, fmt.Errorf("device %q of resource %q: both want a name", id, d.GetResourceName())
			}
			key := [2]string{d.GetResourceName(), id}
			i, known := at[key]
			if !known {
				i, at[key] = len(out), len(out)
				out = append(out, host.Device{Resource: key[0], ID: key[1]})
			}
			out[i].NUMAIDs = append(out[i].NUMAIDs, nodes...) // nil while there are none
			slices.Sort(out[i].NUMAIDs)
			out[i].NUMAIDs = slices.Compact(out[i].NUMAIDs)
		}
	}
	slices.SortFunc(out, func(a, b host.Device) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.ID, b.ID))
	})
	return out, nil
}

// Interval is the least time between two questions for resources.
const Interval = time.Second
