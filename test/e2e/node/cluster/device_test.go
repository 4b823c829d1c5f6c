//go:build linux && e2e_cluster

package fabricated

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/deviceplugin"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// vendor is the resource of the device plugin that gives out the GPUs of the machine.
const vendor = "nvidia.com/gpu"

// gpus are the GPUs of the machine, as its driver and the device plugin name them.
func gpus() []string { return []string{"GPU-a", "GPU-b", "GPU-c"} }

// gpuPlugin is a vendor's device plugin: a variable names a container's GPUs.
type gpuPlugin struct {
	pluginapi.UnimplementedDevicePluginServer
	n      *node
	server *grpc.Server
	socket *net.UnixListener
}

// start serves the plugin and registers it with the kubelet, as plugins do whenever a kubelet has started.
func (p *gpuPlugin) start(t *testing.T) {
	t.Helper()
	p.server = grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(p.server, p)
	const endpoint = "gpus.sock"
	var err error
	p.socket, err = net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(p.n.pluginDir(), endpoint), Net: "unix"})
	testkit.Check(t, err)
	go func() { _ = p.server.Serve(p.socket) }()
	conn, err := grpc.NewClient("unix://"+filepath.Join(p.n.pluginDir(), "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	testkit.Check(t, err)
	defer conn.Close()
	stage.Await(t, "the plugin to be registered", func() error {
		_, err := pluginapi.NewRegistrationClient(conn).Register(t.Context(), &pluginapi.RegisterRequest{
			Version: pluginapi.Version, Endpoint: endpoint, ResourceName: vendor,
		})
		return err
	})
	p.n.awaitCapacity(t, vendor, int64(len(gpus())))
}

// GetDevicePluginOptions implements the plugin's API.
func (p *gpuPlugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

// ListAndWatch implements the plugin's API.
func (p *gpuPlugin) ListAndWatch(_ *pluginapi.Empty, to grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse],
) error {
	var all []*pluginapi.Device
	for _, id := range gpus() {
		all = append(all, &pluginapi.Device{ID: id, Health: pluginapi.Healthy})
	}
	if err := to.Send(&pluginapi.ListAndWatchResponse{Devices: all}); err != nil {
		return err
	}
	<-to.Context().Done()
	return nil
}

// GetPreferredAllocation lets the kubelet choose other GPUs than the scheduler did.
func (p *gpuPlugin) GetPreferredAllocation(ctx context.Context, r *pluginapi.PreferredAllocationRequest) (
	*pluginapi.PreferredAllocationResponse, error,
) {
	allocated, _, err := p.n.allocated(ctx)
	answer := &pluginapi.PreferredAllocationResponse{}
	for _, c := range r.GetContainerRequests() {
		ids := slices.Sorted(slices.Values(c.GetAvailableDeviceIDs()))
		slices.SortStableFunc(ids, func(a, b string) int { return len(allocated[a]) - len(allocated[b]) })
		answer.ContainerResponses = append(answer.ContainerResponses,
			&pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids[:c.GetAllocationSize()]})
	}
	return answer, err
}

// Allocate implements the plugin's API.
func (p *gpuPlugin) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	answer := &pluginapi.AllocateResponse{}
	for _, c := range r.GetContainerRequests() {
		answer.ContainerResponses = append(answer.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			Envs: map[string]string{visible: strings.Join(c.GetDevicesIds(), ",")},
		})
	}
	return answer, nil
}

const visible = "NVIDIA_VISIBLE_DEVICES"

// pluginDir is the folder of device plugins, which is bound over that of every kubelet.
func (n *node) pluginDir() string { return filepath.Join(n.kubeletDir(), "device-plugins") }

// layGPUs adds GPUs to the machine's files, as a driver does that is loaded. Their device files have NVIDIA's numbers;
// no driver of the real machine serves them.
func (n *node) layGPUs(t *testing.T) {
	t.Helper()
	files, drop := map[string]string{"proc/devices": "Character devices:\n195 nvidia\n"}, []string{}
	for i, id := range gpus() {
		bus := fmt.Sprintf("0000:3%d:00.0", i)
		files["proc/driver/nvidia/gpus/"+bus+"/information"] = fmt.Sprintf("GPU UUID: %s\nDevice Minor: %d\n", id, i)
		drop = append(drop, fmt.Sprintf(`{"uuid":%q,"vendor":"nvidia","minor":"%d","resources":{"gpu-memory":"16Gi"},`+
			`"topology":{"busID":%q}}`, id, i, bus))
	}
	files["var/run/tenon/device-infos/gpus.json"] = "[" + strings.Join(drop, ",") + "]"
	cdi := filepath.Join(n.dir, host.CDIDir)
	testkit.Check(t, os.MkdirAll(cdi, 0o755))
	stage.Bind(t, n.w.Path("cdi"), cdi)
	for name, text := range files {
		file := filepath.Join(n.dir, name)
		testkit.Check(t, os.MkdirAll(filepath.Dir(file), 0o755))
		testkit.Check(t, os.WriteFile(file, []byte(text), 0o644))
	}
}

// device reads the node's Device.
func (n *node) device(ctx context.Context) (*devicev1alpha1.Device, error) {
	u, err := n.w.objects.Resource(devicev1alpha1.Resource()).Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	text, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	d, _, err := devicev1alpha1.Decode(text)
	return d, err
}

// awaitDevice waits until the Device has a mode, and as holders what pods have of the kubelet.
func (n *node) awaitDevice(t *testing.T, mode annotation.DeviceMode, holders map[*corev1.Pod]string) {
	t.Helper()
	want := annotation.DevicesCheckpoints{}
	for p, id := range holders {
		want = append(want, annotation.DevicesCheckpoint{
			PodUID: p.UID, ContainerName: "c0", ResourceName: vendor, DeviceIDs: []string{id},
		})
	}
	stage.Await(t, "the Device", func() error {
		d, err := n.device(t.Context())
		if err != nil {
			return err
		}
		text := d.Annotations[annotation.DevicesCheckpointsKey]
		got, _, err := annotation.ParseDevicesCheckpoints(text)
		switch {
		case text != "" && err != nil:
			return err
		case d.Annotations[annotation.DeviceModeKey] != mode || len(d.Spec.Devices) != len(gpus()):
			return fmt.Errorf("mode %q and %d devices, want %q", d.Annotations[annotation.DeviceModeKey],
				len(d.Spec.Devices), mode)
		case got.String() != want.String():
			return fmt.Errorf("holders %s, want %s", got, want)
		}
		return nil
	})
}

func (n *node) setDeviceMode(t *testing.T, mode annotation.DeviceMode) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, annotation.DeviceModeKey, mode)
	_, err := n.w.objects.Resource(devicev1alpha1.Resource()).Patch(t.Context(), n.name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	testkit.Check(t, err)
}

// gpuPod requests a GPU by the vendor's name.
func (n *node) gpuPod(name string) *corev1.Pod {
	p := wish{kind: "GPU", boxes: []box{{cpu: "100m", memory: "64Mi"}}}.pod(name, n.name)
	c := &p.Spec.Containers[0]
	c.Resources.Requests[vendor], c.Resources.Limits[vendor] = resource.MustParse("1"), resource.MustParse("1")
	return p
}

// bound is a pod of another scheduler than Tenon's: the kubelet chooses its GPU.
func (n *node) bound(p *corev1.Pod) *corev1.Pod {
	p.Spec.NodeName = n.name
	return p
}

// allocated returns the pods that the scheduler gave each GPU to, and the GPU of each pod.
func (n *node) allocated(ctx context.Context) (pods map[string][]string, gpu map[string]string, err error) {
	list, err := n.w.client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	pods, gpu = map[string][]string{}, map[string]string{}
	for i := range list.Items {
		p := &list.Items[i]
		text, ok := p.Annotations[annotation.DeviceAllocatedKey]
		if !ok || ended(p) {
			continue
		}
		a, _, err := annotation.ParseDeviceAllocations(text)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", title(p), err)
		}
		for _, g := range a[annotation.DeviceGPU] {
			pods[g.ID], gpu[p.Name] = append(pods[g.ID], p.Name), g.ID
		}
	}
	return pods, gpu, nil
}

// seen is what the only container of a pod sees: the GPUs that its variable names.
func (n *node) seen(p *corev1.Pod) (string, error) {
	file := n.w.Path("pods", fmt.Sprintf("%s_%s_%s", p.Namespace, p.Name, p.UID), "c0", "0.log")
	text, err := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if _, said, ok := strings.Cut(line, " F env:"+visible+"="); ok {
			return strings.TrimSpace(said), nil
		}
	}
	return "", errors.Join(err, fmt.Errorf("%s has not printed %s", title(p), visible))
}

// recorded is the GPU that the kubelet gave to a pod, which its checkpoint and PodResources must agree about.
func (n *node) recorded(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	file, err := host.ReadDeviceState(n.root)
	testkit.Check(t, err)
	if file.Doubt != "" {
		t.Errorf("the kubelet's own checkpoint may be damaged: %s", file.Doubt)
	}
	answer, err := kubeletapi.Socket(n.podResourcesSocket()).Resources(t.Context())
	testkit.Check(t, err)
	i := slices.IndexFunc(answer.Pods, func(x kubeletapi.Pod) bool { return x.Name == p.Name })
	byFile := file.Pods[string(p.UID)]["c0"][vendor]
	if i < 0 || len(byFile) != 1 || len(answer.Pods[i].Containers["c0"].Devices) != 1 ||
		answer.Pods[i].Containers["c0"].Devices[0].ID != byFile[0].ID {
		t.Fatalf("%s has %v by the kubelet's checkpoint, PodResources says %+v", title(p), byFile, answer.Pods)
	}
	return byFile[0].ID
}

// awaitCapacity waits for an amount in the Node's capacity, and for the same or another in allocatable.
func (n *node) awaitCapacity(t *testing.T, name corev1.ResourceName, want int64, allocatable ...int64) {
	t.Helper()
	free := append(allocatable, want)[0]
	stage.Await(t, string(name), func() error {
		obj, err := n.w.client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		has, left := obj.Status.Capacity[name], obj.Status.Allocatable[name]
		if has.Value() != want || left.Value() != free {
			return fmt.Errorf("capacity %s, allocatable %s; want %d and %d", &has, &left, want, free)
		}
		return nil
	})
}

// least returns the smallest capacity that the Node had while f ran.
func (n *node) least(t *testing.T, name corev1.ResourceName, f func()) int64 {
	t.Helper()
	w, err := n.w.client.CoreV1().Nodes().Watch(t.Context(), metav1.SingleObject(metav1.ObjectMeta{Name: n.name}))
	testkit.Check(t, err)
	least, done := int64(math.MaxInt64), make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			if obj, ok := e.Object.(*corev1.Node); ok {
				q := obj.Status.Capacity[name]
				least = min(least, q.Value())
			}
		}
	}()
	f()
	w.Stop()
	<-done
	return least
}

func (n *node) remove(t *testing.T, p *corev1.Pod) {
	t.Helper()
	pods := n.w.client.CoreV1().Pods(p.Namespace)
	testkit.Check(t, pods.Delete(t.Context(), p.Name, metav1.DeleteOptions{}))
	stage.Await(t, title(p)+" to go", func() error {
		_, err := pods.Get(t.Context(), p.Name, metav1.GetOptions{})
		return gone(err)
	})
}

// wantGPUs waits until all GPUs are given out but those that are taken, each once, and so many pods wait, and checks
// that every pod sees the GPU that it was given.
func (n *node) wantGPUs(t *testing.T, waiting int, taken ...string) {
	t.Helper()
	var gpu map[string]string
	stage.Await(t, "the scheduler", func() error {
		pods, all, err := n.allocated(t.Context())
		if err != nil {
			return err
		}
		for id, names := range pods {
			if len(names) > 1 || slices.Contains(taken, id) {
				t.Fatalf("%s is given to %v; the kubelet gave out %v", id, names, taken)
			}
		}
		waits := len(n.pods(t)) - len(all) - len(taken)
		if gpu = all; waits != waiting || len(all) != len(gpus())-len(taken) {
			err = fmt.Errorf("%d pods wait and %v are given, want %d and all GPUs but %v", waits, all, waiting, taken)
		}
		return err
	})
	for _, d := range n.awaitStable(t) {
		t.Error(d)
	}
	for _, p := range n.pods(t) {
		if gpu[p.Name] == "" {
			continue
		}
		stage.Await(t, p.Name+" to see its GPU alone", func() error {
			got, err := n.seen(&p)
			if err == nil && got != gpu[p.Name] {
				err = fmt.Errorf("it sees %q, want %s", got, gpu[p.Name])
			}
			return err
		})
	}
}

// movesIn: the GPUs of a node with a vendor's device plugin become Tenon's, under a pod that the plugin gave one to.
func (n *node) movesIn(t *testing.T) {
	plugin := &gpuPlugin{n: n}
	plugin.start(t)
	t.Cleanup(func() { plugin.server.Stop() })
	n.layGPUs(t)
	n.awaitDevice(t, annotation.DeviceFollow, nil)
	foreign := n.create(t, n.bound(n.gpuPod("foreign")))
	for _, d := range n.awaitStable(t) {
		t.Error(d)
	}
	its := n.recorded(t, foreign)
	n.awaitDevice(t, annotation.DeviceFollow, map[*corev1.Pod]string{foreign: its})

	n.setDeviceMode(t, annotation.DeviceMoving)
	n.awaitDevice(t, annotation.DeviceMoving, map[*corev1.Pod]string{foreign: its})
	n.awaitCapacity(t, annotation.ResourceGPUCore, 100*int64(len(gpus())))
	n.awaitCapacity(t, annotation.ResourcePresence, 1)
	first := n.create(t, n.gpuPod("own-0"))
	for _, d := range n.awaitStable(t) {
		t.Error(d)
	}
	_, gpu, err := n.allocated(t.Context())
	testkit.Check(t, err)
	if got := n.recorded(t, first); got == gpu[first.Name] || gpu[first.Name] == "" || gpu[first.Name] == its {
		t.Fatalf("the scheduler gave %q and the kubelet %q; want two GPUs beside %s", gpu[first.Name], got, its)
	}
	t.Run("the kubelet gives out a GPU of Tenon", func(t *testing.T) { n.strays(t, gpu[first.Name]) })

	for i := range 2 {
		n.create(t, n.gpuPod(fmt.Sprintf("own-%d", i+1)))
	}
	n.wantGPUs(t, 1, its)
	if got, err := n.seen(foreign); err != nil || got != its {
		t.Errorf("the pod of the kubelet sees %q (%v), want %s", got, err, its)
	}
	t.Run("kubelet restarted", func(t *testing.T) { n.restartsWithGPUs(t, plugin) })
	n.remove(t, foreign)
	n.wantGPUs(t, 0)
	n.awaitDevice(t, annotation.DeviceMoving, nil)
	n.setDeviceMode(t, annotation.DeviceOwn)
	n.awaitDevice(t, annotation.DeviceOwn, nil)
	t.Run("the plugin is removed", func(t *testing.T) { n.losesPlugin(t, plugin, first) })
	for _, p := range n.pods(t) {
		n.remove(t, &p)
	}
	t.Run("kubelet without plugins", n.restartsWithoutPlugins)
}

// losesPlugin: a plugin that was killed, whose socket remains, leaves its resource at 0, at which the kubelet admits no
// pod that requests it. On a node of Tenon the agent's plugin takes its place once the Node shows that.
func (n *node) losesPlugin(t *testing.T, plugin *gpuPlugin, p *corev1.Pod) {
	plugin.socket.SetUnlinkOnClose(false)
	plugin.server.Stop()
	stage.Await(t, "the agent's plugin", func() error {
		text, err := os.ReadFile(filepath.Join(n.pluginDir(), "kubelet_internal_checkpoint"))
		if err == nil && !strings.Contains(string(text), deviceplugin.IDPrefix+"1") {
			err = errors.New("the kubelet has recorded none of its devices")
		}
		return err
	})
	n.awaitCapacity(t, vendor, int64(len(gpus())))
	n.remove(t, p)
	n.create(t, n.gpuPod("own-3"))
	n.wantGPUs(t, 0)
}

// restartsWithoutPlugins: a kubelet that registers while its folder of plugins is empty, as it is until the runtime
// answers for the first time, sets all extended resources to 0. With its checkpoint it never does. Without, the manager
// writes them again before the kubelet looks at the pods that run.
func (n *node) restartsWithoutPlugins(t *testing.T) {
	share := n.gpuPod("share")
	for _, list := range []corev1.ResourceList{
		share.Spec.Containers[0].Resources.Requests, share.Spec.Containers[0].Resources.Limits,
	} {
		delete(list, vendor)
		list[annotation.ResourceGPU] = resource.MustParse("50")
	}
	share = n.create(t, share)
	for _, d := range n.awaitStable(t) {
		t.Error(d)
	}
	all, late := 100*int64(len(gpus())), n.delayRuntime(t)
	for _, checkpoint := range []bool{true, false} {
		n.stopAgent()
		n.kubelet.Stop(t)
		files, err := os.ReadDir(n.pluginDir())
		testkit.Check(t, err)
		for _, f := range files {
			if !checkpoint || f.Type() == os.ModeSocket {
				testkit.Check(t, os.Remove(filepath.Join(n.pluginDir(), f.Name())))
			}
		}
		late.Store(true)
		const registered = "Successfully registered node"
		before := strings.Count(n.kubelet.Log(), registered)
		least := n.least(t, annotation.ResourceGPUCore, func() {
			n.startKubelet(t)
			stage.Await(t, "the kubelet to be registered", func() error {
				if strings.Count(n.kubelet.Log(), registered) == before {
					return errors.New("it is not")
				}
				return nil
			})
			n.awaitCapacity(t, annotation.ResourceGPUCore, all)
			late.Store(false)
			n.startAgent(t)
			n.awaitReady(t)
			n.awaitCapacity(t, annotation.ResourcePresence, 1)
		})
		if (least == all) != checkpoint || least != all && least != 0 {
			t.Errorf("with the checkpoint (%t) the Node had %s=%d for a moment", checkpoint,
				annotation.ResourceGPUCore, least)
		}
		if p := n.pods(t)[0]; p.Status.Phase != corev1.PodRunning {
			t.Errorf("with the checkpoint (%t) %s is %s: %s", checkpoint, title(&p), p.Status.Phase, p.Status.Message)
		}
	}
	file, err := host.ReadDeviceState(n.root)
	if err != nil || len(file.Registered[annotation.ResourcePresence]) != 1 {
		t.Errorf("the kubelet's checkpoint has %v (%v), want the agent's plugin", file.Registered, err)
	}
	n.remove(t, share) // its kubelet has no runtime when the test is over
}

// delayRuntime puts a server between the runtime and the kubelets that are started from now on. While the returned
// value is true the runtime's status is not known.
func (n *node) delayRuntime(t *testing.T) *atomic.Bool {
	t.Helper()
	late, codec := &atomic.Bool{}, grpc.ForceCodec(unread{})
	conn, err := grpc.NewClient(n.config.ContainerRuntimeEndpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	testkit.Check(t, err)
	socket := n.w.Path("late.sock")
	l, err := net.Listen("unix", socket)
	testkit.Check(t, err)
	server := grpc.NewServer(grpc.ForceServerCodec(unread{}), grpc.UnknownServiceHandler(
		func(_ any, down grpc.ServerStream) error {
			method, _ := grpc.MethodFromServerStream(down)
			if late.Load() && strings.HasSuffix(method, "RuntimeService/Status") {
				return status.Error(codes.Unavailable, "the runtime has just been started")
			}
			var asked, answer []byte
			err := down.RecvMsg(&asked)
			if err == nil {
				err = conn.Invoke(down.Context(), method, &asked, &answer, codec)
			}
			if err == nil {
				err = down.SendMsg(&answer)
			}
			return err
		}))
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		_ = conn.Close()
	})
	n.config.ContainerRuntimeEndpoint = "unix://" + socket
	return late
}

// unread leaves the messages of gRPC as they are.
type unread struct{}

// Name is that of the codec whose messages these are.
func (unread) Name() string { return "proto" }

// Marshal returns a message.
func (unread) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

// Unmarshal keeps a message.
func (unread) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}

// strays: the kubelet knows nothing of what the scheduler gave out. A pod that gets a GPU of another one does not
// start, and the Node says so until it is gone.
func (n *node) strays(t *testing.T, taken string) {
	second := n.create(t, n.bound(n.gpuPod("foreign-2")))
	stage.Await(t, "its container to be refused", func() error {
		p, err := n.w.client.CoreV1().Pods(second.Namespace).Get(t.Context(), second.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if text := stateOf(p); !strings.Contains(text, "DeviceConflict") || !strings.Contains(text, taken) {
			return errors.New(text)
		}
		return nil
	})
	unclear := func(want corev1.ConditionStatus) {
		t.Helper()
		stage.Await(t, "the condition of the Node", func() error {
			obj, err := n.w.client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, c := range obj.Status.Conditions {
				if string(c.Type) == event.DeviceHoldersUnclear.Condition() && c.Status == want {
					return nil
				}
			}
			return fmt.Errorf("%s is not %s", event.DeviceHoldersUnclear, want)
		})
	}
	unclear(corev1.ConditionTrue)
	n.remove(t, second)
	unclear(corev1.ConditionFalse)
}

// restartsWithGPUs: a kubelet that starts shows none of the plugin's GPUs until the plugin has registered anew, and
// leaves Tenon's amounts alone. No pod restarts.
func (n *node) restartsWithGPUs(t *testing.T, plugin *gpuPlugin) {
	restarts := n.restarts(t)
	n.kubelet.Stop(t)
	plugin.server.Stop()
	least := n.least(t, annotation.ResourceGPUCore, func() {
		n.startKubelet(t)
		n.awaitCapacity(t, vendor, 0)
		plugin.start(t)
		n.awaitCapacity(t, annotation.ResourcePresence, 1)
		n.awaitReady(t)
	})
	if want := 100 * int64(len(gpus())); least != want {
		t.Errorf("the Node had %s=%d for a moment, want %d", annotation.ResourceGPUCore, least, want)
	}
	if after := n.restarts(t); after != restarts {
		t.Errorf("containers have restarted %d times, %d times before", after, restarts)
	}
}
