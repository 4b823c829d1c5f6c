//go:build e2e_node

package fault

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tenon-project/tenon/internal/testkit"
)

// podResources is where a kubelet reports resources; the folder is the stage's own.
const podResources = "/var/lib/kubelet/pod-resources/kubelet.sock"

// kubelet is as much of a kubelet as the agent asks on its socket. It has given nothing to anybody.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	t      *testing.T
	server *grpc.Server
	done   chan error
}

// startKubelet serves until the test ends.
func startKubelet(t *testing.T) *kubelet {
	t.Helper()
	k := &kubelet{t: t}
	testkit.Check(t, os.MkdirAll(filepath.Dir(podResources), 0o755))
	k.start()
	t.Cleanup(func() {
		k.stop()
		if err := os.Remove(podResources); err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
	})
	return k
}

func (k *kubelet) start() {
	k.t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "unix", podResources)
	testkit.Check(k.t, err)
	k.server, k.done = grpc.NewServer(), make(chan error, 1)
	podresources.RegisterPodResourcesListerServer(k.server, k)
	go func() { k.done <- k.server.Serve(l) }()
}

func (k *kubelet) stop() {
	k.server.Stop()
	<-k.done
}

// restart ends the kubelet and starts another one.
func (k *kubelet) restart() {
	k.t.Helper()
	k.stop()
	k.start()
}

// List implements podresources.PodResourcesListerServer.
func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse,
	error,
) {
	return &podresources.ListPodResourcesResponse{}, nil
}

// GetAllocatableResources implements podresources.PodResourcesListerServer.
func (k *kubelet) GetAllocatableResources(context.Context,
	*podresources.AllocatableResourcesRequest,
) (*podresources.AllocatableResourcesResponse, error) {
	return &podresources.AllocatableResourcesResponse{}, nil
}
