//go:build linux && e2e_cluster

package fabricated

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	testdriver "k8s.io/kubernetes/test/e2e/dra/test-driver/app"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// draDriver is a driver of devices. It has a DeviceClass, a ResourceClaim and a template of claims of its name.
type draDriver struct {
	name string
	// mapped is the extended resource that its DeviceClass maps; nil for none.
	mapped *string
	// sees begins the names of the variables that a container with a device has.
	sees string
}

var (
	cards = draDriver{"card.example.com", new(mappedCard), "claim_"}
	// another is the driver of another project, in its profile cpu.
	another = draDriver{"cpu.example.com", nil, "CPU_DEVICE_"}
)

const (
	mappedCard = "example.com/card"
	// anotherVariable names the program of that driver, see TENON_DRA_DRIVER in the package's documentation.
	anotherVariable = "TENON_DRA_DRIVER"
)

// startDriver runs Kubernetes' own test driver for ResourceClaims, which the kubelet asks to prepare devices. It
// publishes a card on each of these NUMA nodes, in their order.
func (n *node) startDriver(t *testing.T, numaNodes ...int) *testdriver.ExamplePlugin {
	t.Helper()
	var devices []resourcev1.Device
	for i, id := range numaNodes {
		devices = append(devices, resourcev1.Device{
			Name: "card-" + strconv.Itoa(i),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"resource.kubernetes.io/numaNode": {IntValue: new(int64(id))},
			},
		})
	}
	pools := map[string]resourceslice.Pool{n.name: {Slices: []resourceslice.Slice{{Devices: devices}}}}
	data, registry := n.driverFolders(t, cards)
	driver, err := testdriver.StartPlugin(t.Context(), n.w.Path("cdi"), cards.name, n.w.client, n.name,
		testdriver.FileOperations{DriverResources: &resourceslice.DriverResources{Pools: pools}},
		kubeletplugin.PluginDataDirectoryPath(data), kubeletplugin.RegistrarDirectoryPath(registry))
	testkit.Check(t, err)
	stage.Await(t, "the driver to be registered", func() error {
		if !driver.IsRegistered() {
			return errors.New("the kubelet does not know it")
		}
		return nil
	})
	n.awaitDevices(t, cards, len(devices))
	return driver
}

// driverFolders makes the folders of a driver's own socket and of those at which drivers register.
func (n *node) driverFolders(t *testing.T, d draDriver) (data, registry string) {
	t.Helper()
	data, registry = filepath.Join(n.kubeletDir(), "plugins", d.name), filepath.Join(n.kubeletDir(), "plugins_registry")
	for _, dir := range []string{data, registry} {
		testkit.Check(t, os.MkdirAll(dir, 0o750))
	}
	return data, registry
}

// awaitDevices waits until a driver has published so many devices of the node.
func (n *node) awaitDevices(t *testing.T, d draDriver, want int) {
	t.Helper()
	stage.Await(t, "the devices of "+d.name, func() error {
		list, err := n.w.client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		got := 0
		for i := range list.Items {
			if list.Items[i].Spec.Driver == d.name {
				got += len(list.Items[i].Spec.Devices)
			}
		}
		if got != want {
			return fmt.Errorf("%d devices, want %d", got, want)
		}
		return nil
	})
}

// layClaims makes a DeviceClass of the devices of a driver, a ResourceClaim of one and a template of such claims.
func (w *world) layClaims(t *testing.T, d draDriver) {
	t.Helper()
	api := w.client.ResourceV1()
	_, err := api.DeviceClasses().Create(t.Context(), &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: d.name},
		Spec: resourcev1.DeviceClassSpec{
			Selectors: []resourcev1.DeviceSelector{{
				CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", d.name)},
			}},
			ExtendedResourceName: d.mapped,
		},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	spec := resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
		Name: "card", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: d.name},
	}}}}
	_, err = api.ResourceClaims(metav1.NamespaceDefault).Create(t.Context(), &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: d.name}, Spec: spec,
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	_, err = api.ResourceClaimTemplates(metav1.NamespaceDefault).Create(t.Context(), &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: d.name}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: spec},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
}

// aligned is a pod with exclusive CPUs of one NUMA node and a device; nil for no device.
func (n *node) aligned(name, cpus string, device *corev1.PodResourceClaim) *corev1.Pod {
	p := wish{
		kind: "LSR on one NUMA node", class: "LSR", numa: `{"numaTopologyPolicy":"SingleNUMANode"}`,
		boxes: []box{{cpu: cpus, memory: "64Mi"}},
	}.pod(name, n.name)
	if device != nil {
		withDevice(p, device)
	}
	return p
}

func withDevice(p *corev1.Pod, device *corev1.PodResourceClaim) {
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{*device}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: device.Name}}
}

// usesClaims: a pod has its card and its exclusive CPUs on one NUMA node, although the first card that is free is on
// another one, and the runtime gives it what the driver describes.
func (n *node) usesClaims(t *testing.T) {
	n.w.layClaims(t, cards)
	filler := n.create(t, n.aligned("filler", "8", nil))
	n.inOrder(t)
	full := n.numaOf(t, filler)
	other := 1 - full
	driver := n.startDriver(t, full, other)

	shared := &corev1.PodResourceClaim{Name: "card", ResourceClaimName: &cards.name}
	own := &corev1.PodResourceClaim{Name: "card", ResourceClaimTemplateName: &cards.name}
	first := n.create(t, n.aligned("first", "6", shared))
	n.inOrder(t)
	n.has(t, first, cards, "card-1", other)
	beside := wish{kind: "LS with a card", class: "LS", boxes: []box{{cpu: "1", memory: "64Mi"}}}.pod("beside", n.name)
	withDevice(beside, shared)
	beside = n.create(t, beside)
	n.inOrder(t)
	n.has(t, beside, cards, "card-1", -1)

	second := n.create(t, n.aligned("second", "6", own))
	for _, d := range n.awaitStable(t) {
		t.Error(d)
	}
	if got := n.waitsFor(t, second); !strings.Contains(got, why.ClaimNotAligned.Entry().Text) {
		t.Errorf("second waits for %q, not for the NUMA node of the card that is free", got)
	}
	n.remove(t, filler)
	n.inOrder(t)
	n.has(t, second, cards, "card-0", full)
	t.Run("kubelet restarted", n.restartsKubelet)
	n.has(t, first, cards, "card-1", other)
	n.has(t, second, cards, "card-0", full)

	t.Run("the driver is away while a pod ends", func(t *testing.T) { n.losesDriver(t, driver, second, full) })
}

// usesAnotherDriver is how usesClaims begins, with the program of another driver, whose first device is on NUMA node 0.
func (n *node) usesAnotherDriver(t *testing.T) {
	program := os.Getenv(anotherVariable)
	if program == "" {
		t.Skipf("NOT RUN: the driver of another project: %s names no program", anotherVariable)
	}
	n.w.layClaims(t, another)
	_, registry := n.driverFolders(t, another)
	driver := n.w.Run(stage.Command{Name: "dra-driver", Path: program, Args: []string{
		"--kubeconfig=" + n.w.data.Kubeconfig(), "--node-name=" + n.name, "--driver-name=" + another.name,
		"--device-profile=cpu", "--cpu-numa-nodes=2", "--cpus-per-numa-node=8", "--cdi-root=" + n.w.Path("cdi"),
		"--kubelet-registrar-directory-path=" + registry,
		"--kubelet-plugins-directory-path=" + filepath.Join(n.kubeletDir(), "plugins"),
	}})
	t.Cleanup(func() {
		driver.Stop(t)
		if t.Failed() {
			t.Logf("the driver (end):\n%s", tail(driver.Log(), 3000))
		}
	})
	n.awaitDevices(t, another, 2)
	filler := n.create(t, n.aligned("filler", "8", nil))
	n.inOrder(t)
	if got := n.numaOf(t, filler); got != 0 {
		t.Fatalf("the filler is on NUMA node %d", got)
	}
	p := n.create(t, n.aligned("first", "6", &corev1.PodResourceClaim{
		Name: "device", ResourceClaimTemplateName: &another.name,
	}))
	n.inOrder(t)
	n.has(t, p, another, "numa-1", 1)
	n.remove(t, p) // while its driver runs
	n.remove(t, filler)
}

// losesDriver: without the driver the kubelet cannot end a pod that has a card, and the card remains allocated. The pod
// that waits for it gets it once the driver is back. It requests the card as an extended resource.
func (n *node) losesDriver(t *testing.T, driver *testdriver.ExamplePlugin, p *corev1.Pod, numaNode int) {
	driver.Stop()
	pods := n.w.client.CoreV1().Pods(p.Namespace)
	testkit.Check(t, pods.Delete(t.Context(), p.Name, metav1.DeleteOptions{}))
	next := n.aligned("next", "6", nil)
	for _, list := range []corev1.ResourceList{
		next.Spec.Containers[0].Resources.Requests, next.Spec.Containers[0].Resources.Limits,
	} {
		list[mappedCard] = resource.MustParse("1")
	}
	next = n.create(t, next)
	stage.Await(t, "next to wait", func() error {
		if n.waitsFor(t, next) == "" {
			return errors.New("the scheduler has not looked at it")
		}
		return nil
	})
	stage.Await(t, "the containers of "+title(p)+" to end", func() error {
		leaves, err := n.leaves()
		if slices.ContainsFunc(leaves, func(l leaf) bool { return l.uid == string(p.UID) }) {
			return errors.New("they run")
		}
		return err
	})
	if got := n.claimed(t, p); len(got) != 1 {
		t.Errorf("%s has ended without its driver, and has %v", title(p), got)
	}
	n.startDriver(t, numaNode, 1-numaNode)
	n.inOrder(t)
	n.has(t, next, cards, "card-0", numaNode)
}

// waitsFor is why a pod waits, "" for one that does not.
func (n *node) waitsFor(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	now, err := n.w.client.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
	testkit.Check(t, err)
	for _, c := range now.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

// numaOf is the NUMA node of the exclusive CPUs of a pod, which must all be on one.
func (n *node) numaOf(t *testing.T, p *corev1.Pod) int {
	t.Helper()
	now, err := n.w.client.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
	testkit.Check(t, err)
	cpus := n.cpus(n.status(now, t.Errorf).CPUSet)
	ids := n.topo.NodeIDs(n.topo.NodesOf(&cpus))
	if len(ids) != 1 {
		t.Fatalf("the exclusive CPUs of %s are on NUMA nodes %v, want one: %v", title(now), ids, now.Annotations)
	}
	return ids[0]
}

// claimed are the devices of the claims that are reserved for a pod.
func (n *node) claimed(t *testing.T, p *corev1.Pod) (names []string) {
	t.Helper()
	list, err := n.w.client.ResourceV1().ResourceClaims(p.Namespace).List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	for i := range list.Items {
		status := &list.Items[i].Status
		if slices.ContainsFunc(status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool {
			return r.UID == p.UID
		}) {
			for _, d := range status.Allocation.Devices.Results {
				names = append(names, convert.DeviceName(d.Driver, d.Pool, d.Device))
			}
		}
	}
	return names
}

// prepared are the devices that a pod has of drivers, as the kubelet's PodResources names them.
func (n *node) prepared(t *testing.T, p *corev1.Pod) (names []string, err error) {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+n.podResourcesSocket(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	testkit.Check(t, err)
	defer conn.Close()
	answer, err := podresources.NewPodResourcesListerClient(conn).Get(t.Context(), &podresources.GetPodResourcesRequest{
		PodName: p.Name, PodNamespace: p.Namespace,
	})
	for _, c := range answer.GetPodResources().GetContainers() {
		for _, claim := range c.GetDynamicResources() {
			for _, d := range claim.GetClaimResources() {
				names = append(names, convert.DeviceName(d.GetDriverName(), d.GetPoolName(), d.GetDeviceName()))
			}
		}
	}
	return names, err
}

// has checks that a pod has a device by its claim, by the kubelet's PodResources and by its environment, and its
// exclusive CPUs on a NUMA node, -1 for a pod without.
func (n *node) has(t *testing.T, p *corev1.Pod, d draDriver, device string, numaNode int) {
	t.Helper()
	if numaNode >= 0 {
		if got := n.numaOf(t, p); got != numaNode {
			t.Errorf("the CPUs of %s are on NUMA node %d, want %d", title(p), got, numaNode)
		}
	}
	allocated := n.claimed(t, p)
	want := convert.DeviceName(d.name, n.name, device)
	if len(allocated) != 1 || allocated[0] != want {
		t.Errorf("%s has %v by its claim, want %s", title(p), allocated, want)
	}
	if got, err := n.prepared(t, p); err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("%s has %v by the kubelet (%v), want %s", title(p), got, err, want)
	}
	file := filepath.Join(n.w.Path("pods", fmt.Sprintf("%s_%s_%s", p.Namespace, p.Name, p.UID)), "c0", "0.log")
	stage.Await(t, title(p)+" to see what its driver describes", func() error {
		text, err := os.ReadFile(file)
		if err == nil && !strings.Contains(string(text), " F env:"+d.sees) {
			err = fmt.Errorf("it has printed no variable %s…", d.sees)
		}
		return err
	})
}
