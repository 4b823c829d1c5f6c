package deviceplugin

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/testkit"
)

// kubelet is what a kubelet has for device plugins.
type kubelet struct {
	pluginapi.UnimplementedRegistrationServer
	dir        string
	server     *grpc.Server
	registered chan *pluginapi.RegisterRequest
	plugin     *grpc.ClientConn
}

// start begins as a kubelet does: it removes the sockets that it finds.
func start(t *testing.T, dir string) *kubelet {
	t.Helper()
	for _, name := range []string{"kubelet.sock", "tenon.sh_presence.sock"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	k := &kubelet{dir: dir, server: grpc.NewServer(), registered: make(chan *pluginapi.RegisterRequest, 10)}
	pluginapi.RegisterRegistrationServer(k.server, k)
	l, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	testkit.Check(t, err)
	go func() { _ = k.server.Serve(l) }()
	t.Cleanup(k.server.Stop)
	return k
}

// Register implements the kubelet's API.
func (k *kubelet) Register(_ context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	k.registered <- r
	return &pluginapi.Empty{}, nil
}

// wantPlugin waits for a plugin, and checks how many devices it has, and that containers get nothing with them. The
// stream of devices stays open.
func (k *kubelet) wantPlugin(t *testing.T, resource string, devices int) {
	t.Helper()
	var r *pluginapi.RegisterRequest
	select {
	case r = <-k.registered:
	case <-time.After(30 * time.Second):
		t.Fatal("no plugin has registered")
	}
	if r.GetVersion() != pluginapi.Version || r.GetResourceName() != resource {
		t.Errorf("registered as %s %s, want %s %s", r.GetVersion(), r.GetResourceName(), pluginapi.Version, resource)
	}
	conn, err := grpc.NewClient("unix:"+filepath.Join(k.dir, r.GetEndpoint()),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	testkit.Check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	k.plugin = conn
	p := pluginapi.NewDevicePluginClient(conn)
	stream, err := p.ListAndWatch(t.Context(), &pluginapi.Empty{}, grpc.WaitForReady(true))
	testkit.Check(t, err)
	list, err := stream.Recv()
	if err != nil || len(list.GetDevices()) != devices {
		t.Errorf("it lists %v, %v; want %d devices", list.GetDevices(), err, devices)
	}
	ids := map[string]bool{}
	for _, d := range list.GetDevices() {
		if ids[d.GetID()] || d.GetHealth() != pluginapi.Healthy {
			t.Errorf("device %q is %s, or there twice", d.GetID(), d.GetHealth())
		}
		ids[d.GetID()] = true
	}
	o, err := p.GetDevicePluginOptions(t.Context(), &pluginapi.Empty{})
	if err != nil || o.GetPreStartRequired() || o.GetGetPreferredAllocationAvailable() {
		t.Errorf("it wants to be asked %v, %v; want nothing", o, err)
	}
	given, err := p.Allocate(t.Context(), &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: []string{"0"}}},
	})
	if a := given.GetContainerResponses(); err != nil || len(a) != 1 || len(a[0].GetEnvs())+len(a[0].GetDevices())+
		len(a[0].GetMounts())+len(a[0].GetCdiDevices())+len(a[0].GetAnnotations()) > 0 {
		t.Errorf("a container gets %v, %v; want nothing", a, err)
	}
}

// end ends as a kubelet does that is killed.
func (k *kubelet) end() {
	k.server.Stop()
	_ = k.plugin.Close()
}

// A kubelet that starts takes all plugins for gone, and one may drop a plugin at any time.
func TestAPluginRegistersWheneverAKubeletLeaves(t *testing.T) {
	t.Parallel()
	root, err := os.MkdirTemp("", "tenon-") // a test's own folder has too long a name for a socket
	testkit.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	dir := filepath.Join(root, pluginapi.DevicePluginPath)
	var mu sync.Mutex
	var errs []string
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	running.Go(func() { // no kubelet has made the folder yet
		Serve(ctx, host.Root{Dir: root}, annotation.ResourcePresence, 2, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err.Error())
		})
	})
	testkit.Check(t, os.MkdirAll(dir, 0o750))
	k := start(t, dir)
	k.wantPlugin(t, annotation.ResourcePresence, 2)
	k.end()
	k = start(t, dir)
	k.wantPlugin(t, annotation.ResourcePresence, 2)
	_ = k.plugin.Close()
	k.wantPlugin(t, annotation.ResourcePresence, 2)
	mu.Lock()
	defer mu.Unlock()
	if len(errs) > 6 {
		t.Errorf("errors are reported again and again:\n%s", strings.Join(errs, "\n"))
	}
}
