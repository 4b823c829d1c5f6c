//go:build e2e_node

package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"

	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/local/kernel"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

const (
	simName = "n0"
	// resync is the period of reconciliation in these tests: what a container may be outside its set for.
	resync = 10 * time.Second
)

// simNode is a node in this process: a machine of 32 CPUs with a simulated kernel, an API server in memory that can be
// cut off, and an agent. It lives in a synctest bubble, whose clock is everybody's.
type simNode struct {
	t        *testing.T
	root     host.Root
	tree     *kernel.Tree
	m        *topo.Machine
	client   *fake.Clientset
	objects  *dynamicfake.FakeDynamicClient
	recorder *events.FakeRecorder
	registry metrics.KubeRegistry
	options  app.Options
	agent    *app.Agent
	exposed  *exposures
	applies  int

	mu         sync.Mutex // guards the fields below
	containers map[string]*container
	gone       bool
	watches    []watch.Interface
}

// onNode runs play on a node of a dialect, whose agent is up.
func onNode(t *testing.T, d desired.Dialect, play func(n *simNode)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newSimNode(t, d)
		stop := n.start()
		play(n)
		stop()
	})
}

func newSimNode(t *testing.T, d desired.Dialect) *simNode {
	t.Helper()
	description, _, err := machine.Parse("hybrid")
	testkit.Check(t, err)
	n := &simNode{
		t: t, root: host.Root{Dir: filepath.Join(testkit.Dir(t), simName)}, exposed: newExposures(),
		containers: map[string]*container{}, recorder: events.NewFakeRecorder(10000),
		registry: metrics.NewKubeRegistry(),
	}
	testkit.Check(t, description.Write(n.root.Dir))
	reading, err := host.Read(n.root, "")
	testkit.Check(t, err)
	n.m = reading.Machine
	n.tree, err = kernel.Open(kernel.Options{Dialect: d, Machine: n.m, Observe: n.observe})
	testkit.Check(t, err)
	testkit.Check(t, n.tree.MkdirAll("kubepods/x"))
	testkit.Check(t, n.tree.Rmdir("kubepods/x"))
	n.serve()
	n.options = app.Options{
		Node: simName, Root: n.root, Client: n.client, Dynamic: n.objects, Kubelet: description.Kubelet, Cgroup: n.tree,
		Switches: probe.Switches{QueryKubelet: true, CPUSetAllocator: true}, Resync: resync, Version: "test",
		Recorder: n.recorder, Shared: app.NewShared(),
	}
	n.options.Shared.Metrics.Register(n.registry.MustRegister, n.registry.CustomMustRegister)
	return n
}

// serve makes the API server.
func (n *simNode) serve() {
	n.client = fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: simName, UID: "node-uid", Labels: map[string]string{corev1.LabelArchStable: "amd64"},
	}})
	n.client.Resources = []*metav1.APIResourceList{{
		GroupVersion: v1alpha2.GroupVersion().String(),
		APIResources: []metav1.APIResource{{Name: "noderesourcetopologies"}},
	}}
	n.objects = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{v1alpha2.Resource(): "NodeResourceTopologyList"})
	n.objects.PrependReactor("patch", "noderesourcetopologies", n.apply)
	n.objects.PrependReactor("*", "*", n.refuse)
	n.client.PrependReactor("*", "*", n.refuse)
	n.client.PrependWatchReactor("*", n.watch(n.client.Tracker()))
	n.objects.PrependWatchReactor("*", n.watch(n.objects.Tracker()))
}

var errGone = errors.New("connection refused")

func (n *simNode) refuse(clienttesting.Action) (bool, runtime.Object, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gone {
		return true, nil, errGone
	}
	return false, nil, nil
}

func (n *simNode) watch(tracker clienttesting.ObjectTracker) clienttesting.WatchReactionFunc {
	return func(action clienttesting.Action) (bool, watch.Interface, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.gone {
			return true, nil, errGone
		}
		w, err := tracker.Watch(action.GetResource(), action.GetNamespace())
		n.watches = append(n.watches, w)
		return true, w, err
	}
}

// cutOff takes the API server away, or brings it back.
func (n *simNode) cutOff(gone bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone = gone
	if gone {
		for _, w := range n.watches {
			w.Stop()
		}
		n.watches = nil
	}
}

// apply stores what is applied as it is.
func (n *simNode) apply(action clienttesting.Action) (bool, runtime.Object, error) {
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(action.(clienttesting.PatchAction).GetPatch(), &u.Object); err != nil {
		return true, nil, err
	}
	n.applies++
	u.SetResourceVersion(strconv.Itoa(n.applies))
	u.SetUID("nrt-uid")
	if _, err := n.objects.Tracker().Get(v1alpha2.Resource(), "", simName); err == nil {
		return true, u, n.objects.Tracker().Update(v1alpha2.Resource(), u, "")
	}
	return true, u, n.objects.Tracker().Create(v1alpha2.Resource(), u, "")
}

// start runs an agent until the answer is called, and waits until it is ready.
func (n *simNode) start() (stop func()) {
	n.t.Helper()
	var err error
	n.agent, err = app.New(n.options)
	testkit.Check(n.t, err)
	n.agent.Attach()
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan error, 1)
	go func() { done <- n.agent.Run(ctx) }()
	later(5 * time.Second)
	return func() {
		n.t.Helper()
		cancel()
		if err := <-done; err != nil {
			n.t.Errorf("Run = %v, want nil at the end of its context", err)
		}
	}
}

// later lets time pass.
func later(d time.Duration) { time.Sleep(d); synctest.Wait() } //nolint:forbidigo // the clock is the bubble's

// until lets time pass until ask is content, and returns how long that took.
func (n *simNode) until(what string, ask func() error) time.Duration {
	n.t.Helper()
	began := time.Now()
	for {
		err := ask()
		if err == nil {
			return time.Since(began)
		}
		if time.Since(began) > 10*time.Minute {
			n.t.Fatalf("waited ten minutes for %s: %v", what, err)
		}
		later(100 * time.Millisecond)
	}
}

// observe sees every instant of the simulated kernel.
func (n *simNode) observe(s []kernel.Group) {
	n.mu.Lock()
	var places []place
	for _, g := range s {
		if c := n.containers[g.Path]; c != nil && g.Tasks > 0 {
			places = append(places, place{c, g.Effective})
		}
	}
	n.mu.Unlock()
	n.exposed.look(time.Now(), places)
}

// simPod is a pod with one container.
type simPod struct {
	*corev1.Pod
	hook hook.Container
}

func (n *simNode) pod(name, class, cpus string) *simPod {
	p := object.Pod(name, object.UID("uid-"+name), object.On(simName), object.Class(class), object.CPUs(cpus),
		object.Both("cpu", "2", "memory", "1Gi"))
	c := &container{name: name, pod: name, withBE: class == "LSR", bestEffort: class == "BE"}
	if cpus != "" {
		c.want = cpuset.MustParse(cpus)
	}
	parent := "kubepods/pod" + string(p.UID)
	s := &simPod{Pod: p, hook: hook.Container{
		ID: "c-" + string(p.UID), Name: "main", Cgroup: parent + "/c1",
		Pod: hook.Pod{
			ID: "s-" + string(p.UID), UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Labels: p.Labels,
			Annotations: p.Annotations, Cgroup: parent,
		},
	}}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.containers[s.hook.Cgroup] = c
	n.containers[s.hook.Pod.Cgroup] = c // to which a v1 kernel moves processes whose group has no CPU left
	return s
}

// create puts a pod into the API; an API server that is gone has it when it is back, as its store has it by then.
func (n *simNode) create(p *simPod) {
	n.t.Helper()
	testkit.Check(n.t, n.client.Tracker().Add(p.Pod))
	later(100 * time.Millisecond)
}

// run plays the runtime: group, hooks, first process.
func (n *simNode) run(p *simPod) error {
	n.t.Helper()
	if err := n.tree.MkdirAll(p.hook.Cgroup); err != nil && !errors.Is(err, fs.ErrExist) {
		n.t.Fatal(err)
	}
	runtime := n.agent.Attach()
	if err := runtime.RunPod(n.t.Context(), p.hook.Pod); err != nil {
		return err
	}
	answer, _, err := runtime.Create(n.t.Context(), p.hook)
	if err != nil {
		return err
	}
	dialect := n.options.Cgroup.Dialect()
	if dialect == desired.V1 {
		testkit.Check(n.t, n.tree.Write(p.hook.Cgroup, desired.Mems, "0"))
	}
	file, unlimited := dialect.Quota()
	values := map[string]string{desired.CPUs: answer.CPUs, desired.Mems: answer.Mems}
	if answer.Quota != nil && *answer.Quota < 0 {
		values[file] = unlimited
	}
	for file, value := range values {
		if value != "" {
			testkit.Check(n.t, n.tree.Write(p.hook.Cgroup, file, value))
		}
	}
	if err := runtime.Start(n.t.Context(), p.hook); err != nil {
		return err
	}
	_, err = n.tree.Spawn(p.hook.Cgroup)
	return err
}

// end plays the runtime: the processes die.
func (n *simNode) end(p *simPod) {
	n.t.Helper()
	testkit.Check(n.t, n.tree.Kill(p.hook.Cgroup))
	n.agent.Attach().Stop(p.hook)
}

// allowed returns where a pod's processes may run.
func (n *simNode) allowed(p *simPod) string {
	n.t.Helper()
	file := "cpuset.cpus.effective"
	if n.options.Cgroup.Dialect() == desired.V1 {
		file = "cpuset.effective_cpus"
	}
	text, err := n.tree.Read(p.hook.Cgroup, file)
	testkit.Check(n.t, err)
	return text
}

// on answers nil when a pod's processes may run on cpus.
func (n *simNode) on(p *simPod, cpus string) func() error {
	return func() error {
		if got := n.allowed(p); got != cpus {
			return fmt.Errorf("pod %s may run on %s, want %s", p.Name, got, cpus)
		}
		return nil
	}
}

// metric returns a value that the agent serves; 0 when it serves none of that name.
func (n *simNode) metric(name string) float64 {
	n.t.Helper()
	served := httptest.NewRecorder()
	app.Handler(n.agent.Alive, n.agent.Ready, n.registry).ServeHTTP(served,
		httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return valueOf(n.t, served.Body.String(), name)
}

// valueOf finds a series by its name with labels in the text format.
func valueOf(t testing.TB, text, name string) float64 {
	t.Helper()
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			number, err := strconv.ParseFloat(value, 64)
			testkit.Check(t, err)
			return number
		}
	}
	return 0
}

// reported fails the test when no Event has a reason.
func (n *simNode) reported(reason string) {
	n.t.Helper()
	var events []string
	for len(n.recorder.Events) > 0 {
		events = append(events, <-n.recorder.Events)
	}
	for _, text := range events { // others look for theirs
		n.recorder.Events <- text
	}
	if !slices.ContainsFunc(events, func(text string) bool { return strings.Contains(text, " "+reason+" ") }) {
		n.t.Errorf("no Event %s was sent, but %q", reason, events)
	}
}

// check judges the exposures: none longer than a period, none from the start on.
func (n *simNode) check(f figure) {
	n.t.Helper()
	f.mayLose, f.mayCrowd = resync, resync
	f.check(n.t, n.exposed)
}

// file writes a file of the machine.
func (n *simNode) file(name, text string) {
	n.t.Helper()
	testkit.Check(n.t, os.WriteFile(n.root.Path(name), []byte(text), 0o644))
}
