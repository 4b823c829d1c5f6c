package deviceplugin

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/util/wait"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/socket"
)

// IDPrefix begins the ids of all devices: no device of a node has such a one.
const IDPrefix = "tenon-"

const (
	registerLimit = 5 * time.Second
	retry         = time.Second
)

// Serve keeps a plugin with so many devices of a resource registered with the kubelet of a machine until ctx ends: a
// kubelet that starts removes the sockets of all plugins, and those register anew. failed is called once for each error
// that prevents it, such as that of a kubelet that is away; the next attempt follows in a second.
func Serve(ctx context.Context, root host.Root, resource string, devices int, failed func(error)) {
	keepTrying(ctx, failed, func() error {
		p := &plugin{resource: resource, dir: root.Path(pluginapi.DevicePluginPath), left: make(chan struct{}, 1)}
		for i := range devices {
			p.devices = append(p.devices, &pluginapi.Device{ID: IDPrefix + strconv.Itoa(i), Health: pluginapi.Healthy})
		}
		return p.serve(ctx, failed)
	})
}

// keepTrying calls attempt until it returns nil, or ctx has ended.
func keepTrying(ctx context.Context, failed func(error), attempt func() error) {
	reported := ""
	_ = wait.PollUntilContextCancel(ctx, retry, true, func(context.Context) (bool, error) {
		err := attempt()
		if err != nil && ctx.Err() == nil && err.Error() != reported {
			reported = err.Error()
			failed(err)
		}
		return err == nil, nil
	})
}

// plugin answers the kubelet.
type plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	resource string
	dir      string // that of every kubelet, whatever its root directory is
	devices  []*pluginapi.Device
	left     chan struct{} // holds one token once a kubelet has ended its stream
}

func (p *plugin) endpoint() string { return strings.ReplaceAll(p.resource, "/", "_") + ".sock" }

func (p *plugin) serve(ctx context.Context, failed func(error)) error {
	s := socket.Service{
		Server: grpc.NewServer(), Path: filepath.Join(p.dir, p.endpoint()), Again: func() {}, Failed: failed,
	}
	var err error
	if s.Listener, err = socket.Listen(ctx, s.Path); err != nil {
		return err
	}
	pluginapi.RegisterDevicePluginServer(s.Server, p)
	ctx, cancel := context.WithCancel(ctx)
	var registering sync.WaitGroup
	defer registering.Wait()
	defer cancel()
	registering.Go(func() {
		for ctx.Err() == nil {
			keepTrying(ctx, failed, func() error { return p.register(ctx) })
			select {
			case <-p.left: // maybe for another plugin of the resource, which does likewise
				select {
				case <-time.After(retry):
				case <-ctx.Done():
				}
			case <-ctx.Done():
			}
		}
	})
	return s.Serve(ctx)
}

func (p *plugin) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registerLimit)
	defer cancel()
	kubelet := filepath.Join(p.dir, filepath.Base(pluginapi.KubeletSocket))
	conn, err := grpc.NewClient("unix:"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: p.endpoint(), ResourceName: p.resource,
	})
	if err != nil {
		return fmt.Errorf("register %s with the kubelet at %s: %w", p.resource, kubelet, err)
	}
	return nil
}

// GetDevicePluginOptions implements the plugin's API: the kubelet needs to ask for nothing else.
func (*plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

// ListAndWatch implements the plugin's API: the list never changes.
func (p *plugin) ListAndWatch(_ *pluginapi.Empty, to grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse],
) error {
	err := to.Send(&pluginapi.ListAndWatchResponse{Devices: p.devices})
	if err == nil {
		<-to.Context().Done()
	}
	select {
	case p.left <- struct{}{}:
	default:
	}
	return err
}

// Allocate implements the plugin's API: a container gets nothing with a device.
func (*plugin) Allocate(_ context.Context, asked *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	answer := &pluginapi.AllocateResponse{}
	for range asked.GetContainerRequests() {
		answer.ContainerResponses = append(answer.ContainerResponses, &pluginapi.ContainerAllocateResponse{})
	}
	return answer, nil
}
