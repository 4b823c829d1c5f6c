package app_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

func TestPluginsThatANodeNeeds(t *testing.T) {
	t.Parallel()
	presence := map[string]int{"tenon.sh/presence": 1}
	both := map[string]int{"tenon.sh/presence": 1, "nvidia.com/gpu": 2}
	for name, test := range map[string]struct {
		mode           annotation.DeviceMode
		cards          int
		capacity, left string // of nvidia.com/gpu; "" where the Node does not have it
		running        string
		lost           bool // the kubelet says that no device of it is healthy
		want           map[string]int
	}{
		"no devices":                           {want: map[string]int{}},
		"GPUs of which no Device is known yet": {cards: 2, want: presence},
		"a Device without GPUs":                {mode: annotation.DeviceOwn, want: presence},
		"no plugin was ever there":             {mode: annotation.DeviceOwn, cards: 2, want: presence},
		"the vendor's plugin is there": {
			mode: annotation.DeviceOwn, cards: 2, capacity: "2", left: "2", want: presence,
		},
		"it is gone": {
			mode: annotation.DeviceOwn, cards: 2, capacity: "2", left: "0", want: both,
		},
		"it is gone, which the Node does not say yet": {
			mode: annotation.DeviceOwn, cards: 2, capacity: "2", left: "2", lost: true, want: both,
		},
		"it is gone for long": {
			mode: annotation.DeviceOwn, cards: 2, capacity: "0", left: "0", want: both,
		},
		"the agent's is in its place": {
			mode: annotation.DeviceOwn, cards: 2, capacity: "2", left: "2", running: "nvidia.com/gpu", want: both,
		},
		"it is gone, and pods have GPUs of it": {
			mode: annotation.DeviceMoving, cards: 2, capacity: "2", left: "0", want: presence,
		},
		"the node is the kubelet's again": {
			mode: annotation.DeviceFollow, cards: 2, capacity: "2", left: "2", running: "nvidia.com/gpu",
			want: presence,
		},
		"it is gone, and the driver lists no GPUs": {
			mode: annotation.DeviceOwn, capacity: "2", left: "0", want: presence,
		},
	} {
		n := &inject.Node{Mode: test.mode}
		for range test.cards {
			n.Cards.List = append(n.Cards.List, host.Card{Kind: host.NVIDIA})
		}
		node := &corev1.Node{}
		if test.capacity != "" {
			node.Status.Capacity = object.List("nvidia.com/gpu", test.capacity)
			node.Status.Allocatable = object.List("nvidia.com/gpu", test.left)
		}
		lost := func(resource string) bool { return test.lost && resource == "nvidia.com/gpu" }
		running := map[string]context.CancelFunc{test.running: func() {}}
		if diff := cmp.Diff(test.want, app.WantedPlugins(n, node, lost, running)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// registry is what a kubelet has for device plugins: it names the resources that register.
type registry struct {
	pluginapi.UnimplementedRegistrationServer
	resources chan string
}

// Register implements the kubelet's API.
func (r *registry) Register(_ context.Context, q *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	r.resources <- q.GetResourceName()
	return &pluginapi.Empty{}, nil
}

// TestAPluginThatEndsIsReplacedAtOnce: its socket vanishes, and none of its devices is healthy any more, by what the
// kubelet answers. The Node still has them, and the next resync is far.
func TestAPluginThatEndsIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	w := newAccelerated(t)
	dir := w.root.Path(pluginapi.DevicePluginPath)
	if len(dir) > 80 {
		t.Skipf("the path of a socket in %s is too long", dir)
	}
	for _, folder := range []string{dir, w.root.Path("var/lib/kubelet/pod-resources")} {
		testkit.Check(t, os.MkdirAll(folder, 0o750))
	}
	kubelet, server := &registry{resources: make(chan string, 10)}, grpc.NewServer()
	pluginapi.RegisterRegistrationServer(server, kubelet)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "kubelet.sock"))
	testkit.Check(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	await := func(resource string) bool {
		for {
			select {
			case got := <-kubelet.resources:
				if got == resource {
					return true
				}
			case <-time.After(2 * time.Second):
				return false
			}
		}
	}

	w.putGPUs("1")
	w.putMode("Own")
	var ended atomic.Bool
	asked := make(chan struct{}, 100)
	w.options.AskResources = resources(func(context.Context) (r kubeletapi.Resources, err error) {
		if !ended.Load() {
			r.Devices = []host.Device{{Resource: "nvidia.com/gpu", ID: "GPU-a"}}
		}
		asked <- struct{}{}
		return r, nil
	})
	w.options.WatchKubelet, w.options.RegisterPlugins, w.options.Resync = true, true, time.Hour
	a, err := app.New(w.options)
	testkit.Check(t, err)
	a.Attach()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	select {
	case <-asked:
	case <-time.After(time.Minute):
		t.Fatal("the agent does not ask the kubelet for resources")
	}
	if await("nvidia.com/gpu") {
		t.Error("the agent's plugin is registered beside the vendor's")
	}
	ended.Store(true)
	replaced := false
	for try := 0; try < 30 && !replaced; try++ { // the start of the watch is not observable
		vendor := filepath.Join(dir, "vendor.sock")
		testkit.Check(t, errors.Join(os.WriteFile(vendor, nil, 0o600), os.Remove(vendor)))
		replaced = await("nvidia.com/gpu")
	}
	if !replaced {
		t.Error("the vendor's plugin is not replaced")
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
}
