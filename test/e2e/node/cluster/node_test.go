//go:build linux && e2e_cluster

package fabricated

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/agent/transport/nri"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// node is one machine that is played: its files, its kubelet, its agent.
type node struct {
	w       *world
	name    string
	follow  bool
	machine machine.Description
	topo    *topo.Machine
	dir     string
	root    host.Root
	group   string // the kubelet's cgroupRoot
	config  *kubelet.KubeletConfiguration
	kubelet *stage.Process
	tree    tree

	// ask is how the agent asks for the kubelet's settings: with its own credential.
	ask       *kubeletapi.Client
	agent     *app.Agent
	stopAgent func()
}

// newNode plays a machine until the test ends and returns when pods can be bound to it.
func newNode(t *testing.T, w *world, name string, m machine.Description) *node {
	t.Helper()
	n := &node{
		w: w, name: name, follow: m.Follow, machine: m, dir: w.Path("nodes", name),
		group: path.Join(w.Group(), name),
	}
	n.root = host.Root{Dir: n.dir}
	var err error
	n.topo, err = topo.New(m.Spec())
	testkit.Check(t, err)
	testkit.Check(t, m.Write(n.dir))
	const plugins = "var/lib/kubelet/device-plugins" // every kubelet's, whatever its root directory
	for _, dir := range []string{n.pluginDir(), n.staticPods(), "/" + plugins} {
		testkit.Check(t, os.MkdirAll(dir, 0o755))
	}
	for _, name := range []string{"sys/devices/system/cpu", "sys/devices/system/node", "proc/cpuinfo", plugins} {
		stage.Bind(t, filepath.Join(n.dir, name), "/"+name)
	}
	// A kubelet with the CPU policy none gives all CPUs to a kubepods that it makes itself, in ids that the kernel does
	// not have; one that exists it leaves as it is, but for an update that may fail.
	testkit.Check(t, w.Cgroups().Make(path.Join(n.group, "kubepods")))
	n.tree = n.newTree()
	n.config = n.kubeletConfig()
	n.startKubelet(t)
	t.Cleanup(func() { n.end(t) })
	n.awaitRegistered(t)
	n.startAgent(t)
	n.awaitReady(t)
	return n
}

func (n *node) newTree() tree {
	dialect := desired.V1
	if n.w.Cgroups().Unified() {
		dialect = desired.V2
	}
	var nodes []string
	for i := range n.topo.NumNUMA() {
		nodes = append(nodes, fmt.Sprint(n.topo.NUMAID(topo.NUMA(i))))
	}
	return tree{
		Cgroup: apply.Mounted("/sys/fs/cgroup", dialect), store: n.w.store, real: n.w.real,
		all: n.topo.FormatList(n.topo.Online()), nodes: strings.Join(nodes, ","),
	}
}

// startAgent runs the agent in this process, with its own credential.
func (n *node) startAgent(t testing.TB) {
	t.Helper()
	options := n.agentOptions(t)
	a, err := app.New(options)
	testkit.Check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	n.agent = a
	n.stopAgent = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the agent of %s ended with %v", n.name, err)
		}
		n.stopAgent = func() {}
	}
}

func (n *node) agentOptions(t testing.TB) app.Options {
	t.Helper()
	file := n.w.credential("agent", n.name)
	stage.Await(t, "the credential of the agent of "+n.name, func() error {
		_, err := os.Stat(file)
		return err
	})
	config, err := clientcmd.BuildConfigFromFlags("", file)
	testkit.Check(t, err)
	client, err := kubernetes.NewForConfig(config)
	testkit.Check(t, err)
	objects, err := dynamic.NewForConfig(config)
	testkit.Check(t, err)
	asks, err := kubeletapi.NewClient(kubeletapi.ClientOptions{Node: n.name, Root: n.root, API: config})
	testkit.Check(t, err)
	n.ask = asks
	return app.Options{
		Node: n.name, Root: n.root, Arch: n.machine.Arch(), Version: "test", Client: client, Dynamic: objects,
		AskKubelet: n.ask, WatchKubelet: true, RegisterPlugins: true,
		AskResources: kubeletapi.Socket(n.podResourcesSocket()),
		Switches:     probe.Switches{QueryKubelet: true, CPUSetAllocator: true},
		Cgroup:       n.tree, CgroupRoot: n.group, Resync: 2 * time.Second, NRISocket: n.w.NRISocket(),
		ServeNRI: nri.Run,
	}
}

// awaitRegistered waits for the Node and labels it where its kubelet is to be followed.
func (n *node) awaitRegistered(t testing.TB) {
	t.Helper()
	stage.Await(t, "the kubelet of "+n.name, func() error {
		if !n.kubelet.Running() {
			t.Fatalf("the kubelet of %s (%s) ended: %v\n%s", n.name, n.machine.Name, n.kubelet.Err(),
				tail(n.kubelet.Log(), 4000))
		}
		obj, err := n.w.client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
		if err != nil || !n.follow {
			return err
		}
		obj.Labels[annotation.TopologyMode] = annotation.ModeFollow
		_, err = n.w.client.CoreV1().Nodes().Update(t.Context(), obj, metav1.UpdateOptions{})
		return err
	})
}

// awaitReady waits until pods can be bound: the Node is ready and the agent has published its machine and mode.
func (n *node) awaitReady(t testing.TB) {
	t.Helper()
	stage.Await(t, "node "+n.name+" to be ready", func() error {
		obj, err := n.w.client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, taint := range obj.Spec.Taints {
			return fmt.Errorf("taint %s", taint.Key)
		}
		for _, c := range obj.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				return errors.New(c.Message)
			}
		}
		if err := n.agent.Ready(); err != nil {
			return err
		}
		want := annotation.ModeOwn
		if n.follow {
			want = annotation.ModeFollow
		}
		keys, err := n.published(t.Context())
		if err == nil && keys[annotation.TopologyMode] != want {
			err = fmt.Errorf("published mode %q, want %q", keys[annotation.TopologyMode], want)
		}
		if err == nil {
			err = n.isCurrent(keys)
		}
		if err == nil {
			err = n.isSeen(t.Context())
		}
		return err
	})
}

// isCurrent returns an error while what is published was made before the kubelet had reported its settings.
func (n *node) isCurrent(keys map[string]string) error {
	got, _, err := annotation.ParseKubelet(keys[annotation.KubeletKey])
	if err != nil {
		return err
	}
	k := n.machine.Kubelet
	for what, value := range map[string][2]string{
		"CPU policy":      {got.CPU.Policy, cmp.Or(k.CPU.Policy, annotation.KubeletPolicyNone)},
		"memory policy":   {got.Memory.Policy, cmp.Or(k.Memory.Policy, "None")},
		"topology policy": {got.Topology.Policy, cmp.Or(k.Topology.Policy, "none")},
		"reserved CPUs":   {got.CPU.Reserved, k.CPU.Reserved},
	} {
		if value[0] != value[1] && !(what == "reserved CPUs" && n.sameCPUs(value[0], value[1])) {
			return fmt.Errorf("published %s %q, want %q", what, value[0], value[1])
		}
	}
	return nil
}

// isSeen answers an error while the scheduler does not know the node's machine and policy.
func (n *node) isSeen(ctx context.Context) error {
	ports, err := n.w.data.SavedPorts()
	if err != nil {
		return err
	}
	address := fmt.Sprintf("http://127.0.0.1:%d/apis/v1/plugins/NodeNUMAResource/cpuTopologyOptions/%s",
		ports[datadir.Diagnostics], n.name)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var view struct {
		CPUTopology *struct{}               `json:"cpuTopology"`
		Policy      struct{ Policy string } `json:"policy"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&view); err != nil {
		return err
	}
	if want := cmp.Or(n.machine.Kubelet.CPU.Policy, annotation.KubeletPolicyNone); view.CPUTopology == nil ||
		view.Policy.Policy != want {
		return fmt.Errorf("the scheduler sees a machine %t and the CPU policy %q, want %q", view.CPUTopology != nil,
			view.Policy.Policy, want)
	}
	return nil
}

// published returns the annotations of the node's NodeResourceTopology.
func (n *node) published(ctx context.Context) (map[string]string, error) {
	obj, err := n.w.objects.Resource(v1alpha2.Resource()).Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return obj.GetAnnotations(), nil
}

// end removes the node with its pods, at once: that pods end well is what waves and cases look at.
func (n *node) end(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if n.stopAgent != nil {
		n.stopAgent()
	}
	n.kubelet.Kill()
	if err := n.removePods(ctx); err != nil {
		t.Errorf("remove the pods of %s: %v", n.name, err)
	}
	if err := n.w.removeSandboxes(ctx); err != nil {
		t.Errorf("remove the sandboxes of %s: %v", n.name, err)
	}
	if err := n.w.client.CoreV1().Nodes().Delete(ctx, n.name, metav1.DeleteOptions{}); err != nil {
		t.Errorf("remove node %s: %v", n.name, err)
	}
	if err := n.w.Cgroups().Remove(n.group); err != nil {
		t.Errorf("remove the groups of %s: %v", n.name, err)
	}
}

// removeSandboxes removes all sandboxes with their containers.
func (w *world) removeSandboxes(ctx context.Context) error {
	list, err := w.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	errs := make([]error, len(list.GetItems()))
	var removing sync.WaitGroup
	for i, s := range list.GetItems() {
		removing.Go(func() { errs[i] = stage.RemoveSandbox(ctx, w.cri, s.GetId()) })
	}
	removing.Wait()
	return errors.Join(errs...)
}

// removePods removes all pods from the API, and waits until none is left: a controller may make a last one.
func (n *node) removePods(ctx context.Context) error {
	pods := n.w.client.CoreV1().Pods(metav1.NamespaceDefault)
	for {
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return nil
		}
		for i := range list.Items {
			_ = pods.Delete(ctx, list.Items[i].Name, *metav1.NewDeleteOptions(0)) // it may be gone
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d pods are left: %w", len(list.Items), ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func tail(text string, bytes int) string {
	if len(text) > bytes {
		return "… " + text[len(text)-bytes:]
	}
	return text
}
