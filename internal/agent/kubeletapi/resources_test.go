package kubeletapi_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/testkit"
)

// lister is a kubelet's PodResources.
type lister struct {
	podresources.UnimplementedPodResourcesListerServer
	mu   sync.Mutex // guards the fields below
	all  *podresources.AllocatableResourcesResponse
	list *podresources.ListPodResourcesResponse
	fail error
	hang chan struct{} // closed when a question hangs
}

func (l *lister) List(ctx context.Context,
	_ *podresources.ListPodResourcesRequest,
) (*podresources.ListPodResourcesResponse, error) {
	l.mu.Lock()
	hang, list, fail := l.hang, l.list, l.fail
	l.mu.Unlock()
	if hang != nil {
		close(hang)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return list, fail
}

func (l *lister) GetAllocatableResources(context.Context,
	*podresources.AllocatableResourcesRequest,
) (*podresources.AllocatableResourcesResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all, nil
}

// listen serves a lister on a socket until the test ends, or stop is called.
func listen(t *testing.T, l *lister, socket string) (stop func()) {
	t.Helper()
	at, err := net.Listen("unix", socket)
	testkit.Check(t, err)
	s := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(s, l)
	done := make(chan error, 1)
	go func() { done <- s.Serve(at) }()
	var once sync.Once
	stop = func() { once.Do(func() { s.Stop(); <-done }) }
	t.Cleanup(stop)
	return stop
}

func socket(t *testing.T) string {
	t.Helper()
	return filepath.Join(testkit.Dir(t), "kubelet.sock")
}

func on(nodes ...int64) *podresources.TopologyInfo {
	t := &podresources.TopologyInfo{}
	for _, id := range nodes {
		t.Nodes = append(t.Nodes, &podresources.NUMANode{ID: id})
	}
	return t
}

func device(resource, id string, nodes ...int64) *podresources.ContainerDevices {
	return &podresources.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}, Topology: on(nodes...)}
}

func full() *lister {
	return &lister{
		all: &podresources.AllocatableResourcesResponse{
			CpuIds: []int64{5, 4, 2, 3},
			Devices: []*podresources.ContainerDevices{
				device("x/nic", "n1", 1), device("x/gpu", "g1", 1),
				device("x/gpu", "g0", 0),
				{ResourceName: "x/free", DeviceIds: []string{"a", "b"}},
			},
		},
		list: &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{
			{Namespace: "b", Name: "empty", Containers: []*podresources.ContainerResources{{Name: "main"}}},
			{Namespace: "a", Name: "pinned", Containers: []*podresources.ContainerResources{{
				Name: "main", CpuIds: []int64{3, 2},
				// A device on two NUMA nodes comes twice.
				Devices: []*podresources.ContainerDevices{device("x/gpu", "g0", 0), device("x/gpu", "g0", 1)},
				Memory: []*podresources.ContainerMemory{{
					MemoryType: "memory", Size: 1 << 30,
					Topology: on(1, 0),
				}},
				DynamicResources: []*podresources.DynamicResource{{ClaimName: "c"}},
			}}},
		}},
	}
}

func TestResourcesAreReadWhole(t *testing.T) {
	t.Parallel()
	at := socket(t)
	listen(t, full(), at)
	got, err := kubeletapi.Socket(at).Resources(t.Context())
	testkit.Check(t, err)
	want := kubeletapi.Resources{
		CPUs: []int{2, 3, 4, 5},
		Devices: []host.Device{
			{Resource: "x/free", ID: "a"},
			{Resource: "x/free", ID: "b"},
			{Resource: "x/gpu", ID: "g0", NUMAIDs: []int{0}},
			{Resource: "x/gpu", ID: "g1", NUMAIDs: []int{1}},
			{Resource: "x/nic", ID: "n1", NUMAIDs: []int{1}},
		},
		Pods: []kubeletapi.Pod{
			{Namespace: "a", Name: "pinned", Containers: map[string]kubeletapi.Container{"main": {
				CPUs: []int{2, 3}, Devices: []host.Device{{Resource: "x/gpu", ID: "g0", NUMAIDs: []int{0, 1}}},
				Memory: []host.MemoryBlock{{NUMAIDs: []int{0, 1}, Type: "memory", Bytes: 1 << 30}},
			}}},
			{Namespace: "b", Name: "empty", Containers: map[string]kubeletapi.Container{"main": {}}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources differ (-want +got):\n%s", diff)
	}
}

func TestASocketThatDoesNotAnswerIsAnError(t *testing.T) {
	t.Parallel()
	at := socket(t)
	if r, err := kubeletapi.Socket(at).Resources(t.Context()); err == nil || !strings.Contains(err.Error(), at) {
		t.Errorf("no process listens: %+v, %v, want an error that names the socket", r, err)
	}
	l := full()
	stop := listen(t, l, at)
	if _, err := kubeletapi.Socket(at).Resources(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	if r, err := kubeletapi.Socket(at).Resources(t.Context()); err == nil {
		t.Errorf("the kubelet is gone: %+v, want an error", r)
	}
	listen(t, l, at)
	if _, err := kubeletapi.Socket(at).Resources(t.Context()); err != nil {
		t.Errorf("the kubelet is back: %v", err)
	}
}

func TestAQuestionThatHangsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	at := socket(t)
	l := full()
	l.hang = make(chan struct{})
	listen(t, l, at)
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		_, err := kubeletapi.Socket(at).Resources(ctx)
		answered <- err
	}()
	<-l.hang
	cancel()
	if err := <-answered; status.Code(errors.Unwrap(err)) != codes.Canceled {
		t.Errorf("Resources = %v, want one that is cancelled", err)
	}
}

func TestARateLimitHasItsOwnError(t *testing.T) {
	t.Parallel()
	at := socket(t)
	l := full()
	l.fail = status.Error(codes.ResourceExhausted, "rejected by rate limit")
	listen(t, l, at)
	if _, err := kubeletapi.Socket(at).Resources(t.Context()); !errors.Is(err, kubeletapi.ErrBusy) {
		t.Errorf("Resources = %v, want ErrBusy", err)
	}
	l.mu.Lock()
	l.fail = status.Error(codes.Internal, "no")
	l.mu.Unlock()
	if _, err := kubeletapi.Socket(at).Resources(t.Context()); err == nil || errors.Is(err, kubeletapi.ErrBusy) {
		t.Errorf("Resources = %v, want an error that is not ErrBusy", err)
	}
}

func TestAnswersThatCannotBeTrueAreRefused(t *testing.T) {
	t.Parallel()
	first := func(l *lister) *podresources.ContainerResources { return l.list.PodResources[1].Containers[0] }
	tests := map[string]struct {
		spoil func(*lister)
		says  string
	}{
		"a CPU below zero": {func(l *lister) { l.all.CpuIds = []int64{-1} }, "CPU -1"},
		"a CPU above all": {
			func(l *lister) { first(l).CpuIds = []int64{1 << 40} },
			"pod a/pinned, container \"main\": cpu_ids",
		},
		"a device without a name": {func(l *lister) {
			first(
				l).Devices = []*podresources.ContainerDevices{device("x/gpu", "", 0)}
		}, "both want a name"},
		"a device of nothing": {func(l *lister) {
			l.all.Devices = []*podresources.ContainerDevices{device("",
				"g0")}
		}, "allocatable devices"},
		"a device below node zero": {func(l *lister) {
			l.all.Devices = []*podresources.ContainerDevices{device(
				"x/gpu", "g0", -2)}
		}, "NUMA node -2"},
		"memory from nowhere":     {func(l *lister) { first(l).Memory[0].Topology = nil }, "on NUMA nodes []"},
		"more memory than can be": {func(l *lister) { first(l).Memory[0].Size = 1 << 63 }, "memory: a block"},
		"memory without a type":   {func(l *lister) { first(l).Memory[0].MemoryType = "" }, "memory: a block"},
		"a pod without a name": {
			func(l *lister) { l.list.PodResources[0].Name = "" },
			"a pod has no namespace or no name",
		},
		"a container without a name": {func(l *lister) { first(l).Name = "" }, "has no name"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := full()
			tt.spoil(l)
			r, err := kubeletapi.ParseResources(l.all, l.list)
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("ParseResources = %v, want an error that says %q", err, tt.says)
			}
			if diff := cmp.Diff(kubeletapi.Resources{}, r); diff != "" {
				t.Errorf("a refused answer gives something:\n%s", diff)
			}
		})
	}
	if _, err := kubeletapi.ParseResources(nil, nil); err != nil {
		t.Errorf("an empty answer: %v", err)
	}
}

func FuzzParseResources(f *testing.F) {
	l := full()
	all, err := proto.Marshal(l.all)
	if err != nil {
		f.Fatal(err)
	}
	list, err := proto.Marshal(l.list)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(all, list)
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, all, list []byte) {
		var a podresources.AllocatableResourcesResponse
		var p podresources.ListPodResourcesResponse
		if proto.Unmarshal(all, &a) != nil || proto.Unmarshal(list, &p) != nil {
			return
		}
		r, err := kubeletapi.ParseResources(&a, &p)
		if err != nil {
			return
		}
		for _, pod := range r.Pods {
			if pod.Name == "" || pod.Namespace == "" {
				t.Errorf("a pod without a name: %+v", pod)
			}
			for _, c := range pod.Containers {
				for _, b := range c.Memory {
					if b.Bytes < 0 || len(b.NUMAIDs) == 0 {
						t.Errorf("memory %+v", b)
					}
				}
			}
		}
		for i := 1; i < len(r.CPUs); i++ {
			if r.CPUs[i] <= r.CPUs[i-1] {
				t.Errorf("CPUs %v are not ascending", r.CPUs)
			}
		}
	})
}
