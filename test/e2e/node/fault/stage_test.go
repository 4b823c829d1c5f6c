//go:build e2e_node

package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// The machine has the CPUs 0 and 1: bound pods have CPU 1, one after the other, and all others CPU 0 meanwhile.
const (
	boundCPU  = "1"
	sharedCPU = "0"
	allCPUs   = "0-1"
)

const (
	// period is the time between two passes of the agent over the whole tree: what a fault may cost.
	period = time.Second
	// slack is what a pass over the tree itself may take on a busy machine.
	slack = 500 * time.Millisecond
	// look is the pause between two looks at all sets.
	look = 2 * time.Millisecond
	// retry is a kubelet's pause before it tries again; shorter, so that more happens.
	retry = 50 * time.Millisecond
	// limit bounds a call of the runtime, which may be away.
	limit = 20 * time.Second
)

// realNode is a node on a stage: containerd, the agent, a control plane, and pods that come and go under a watch.
type realNode struct {
	*testing.T
	s          *stage.Stage
	plane      *stage.Plane
	node       *corev1.Node
	containerd *stage.Containerd
	agent      *stage.Agent
	runtime    *stage.Runtime
	exposed    *exposures
	random     *rand.Rand // of the test's own goroutine

	mu         sync.Mutex // guards the fields below
	containers map[string]*container
	running    map[string]*stage.Container
	bound      int            // bound containers that have started
	others     int            // others that have
	refusals   map[string]int // what the runtime said, and how often
}

// newRealNode starts a node on which nothing runs yet, and the watch. What is to be there before the agent is made by
// before.
func newRealNode(t *testing.T, o stage.ContainerdOptions, before ...func()) *realNode {
	t.Helper()
	stage.Count(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	n := &realNode{
		T: t, s: stage.New(t), exposed: newExposures(), random: rand.New(rand.NewPCG(seed, 0)),
		containers: map[string]*container{}, running: map[string]*stage.Container{},
		refusals: map[string]int{},
	}
	for _, f := range before {
		f()
	}
	n.plane = n.s.Plane()
	n.node = n.plane.Node(strings.ToLower(t.Name()))
	n.containerd = n.s.Containerd(o)
	t.Cleanup(func() {
		if t.Failed() && n.containerd.Running() {
			n.containerd.Stacks()
		}
	})
	n.agent = n.s.Agent(stage.AgentOptions{
		Node: n.node.Name, Kubeconfig: n.s.AgentKubeconfig(n.plane, n.node), NoHooks: true, Resync: period,
	})
	n.awaitConnected()
	n.runtime = n.s.Runtime(n.s.Socket())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); n.watch(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return n
}

func (n *realNode) awaitConnected() {
	n.Helper()
	stage.Await(n, "the agent's connection to the runtime",
		func() error { return n.metricIs("tenon_agent_runtime_connected", 1) })
}

func (n *realNode) metricIs(name string, want float64, labels ...string) error {
	got, err := n.agent.Metric(name, labels...)
	if err == nil && got != want {
		err = fmt.Errorf("%s%v is %v, want %v", name, labels, got, want)
	}
	return err
}

// metricGrows waits until a metric is above a value, and returns it.
func (n *realNode) metricGrows(above float64, name string, labels ...string) float64 {
	n.Helper()
	var got float64
	stage.Await(n, name, func() (err error) {
		if got, err = n.agent.Metric(name, labels...); err == nil && got <= above {
			err = fmt.Errorf("%s%v is %v, want more than %v", name, labels, got, above)
		}
		return err
	})
	return got
}

// event waits for an Event with a reason about the Node, or about any pod.
func (n *realNode) event(reason string) {
	n.Helper()
	stage.Await(n, "an Event "+reason, func() error {
		list, err := n.plane.Client.EventsV1().Events("").List(n.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if e := &list.Items[i]; e.Reason == reason &&
				(e.Regarding.Name == n.node.Name || e.Regarding.Kind == "Pod") {
				return nil
			}
		}
		return errors.New("there is none")
	})
}

// watch looks at the sets of all containers until ctx ends.
func (n *realNode) watch(ctx context.Context) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		places := n.places()
		if len(outside(places)) > 0 { // a look takes a moment, in which sets may move: only what is seen twice counts
			again := map[string]place{}
			for _, p := range n.places() {
				again[p.name] = p
			}
			kept := places[:0]
			for _, p := range places {
				if q, ok := again[p.name]; ok {
					kept = append(kept, q)
				}
			}
			places = kept
		}
		n.exposed.look(time.Now(), places)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// places reads where the containers with a started process may run.
func (n *realNode) places() []place {
	n.mu.Lock()
	groups := make(map[string]*container, len(n.containers))
	for group, c := range n.containers {
		groups[group] = c
	}
	n.mu.Unlock()
	var places []place
	for group, c := range groups {
		if !n.started(group) {
			continue
		}
		text, err := n.s.Effective(group)
		if err != nil {
			continue // it is gone
		}
		if cpus, err := cpuset.Parse(text); err == nil && n.started(group) {
			places = append(places, place{c, cpus})
		}
	}
	return places
}

// started reports whether a process other than the runtime's own, which waits for the start, lives in a group.
func (n *realNode) started(group string) bool {
	text, err := n.s.Cgroups().Read(group, "cgroup.procs")
	if err != nil {
		return false
	}
	for pid := range strings.FieldsSeq(text) {
		name, err := os.ReadFile(filepath.Join("/proc", pid, "comm"))
		if err == nil && !strings.HasPrefix(string(name), "runc") {
			return true
		}
	}
	return false
}

func (n *realNode) register(group string, c *container) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.containers[group] = c
}

func (n *realNode) unregister(group string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.containers, group)
	delete(n.running, group)
}

// spec is a pod with the container main. class is "" for a pod that uses nothing of Tenon.
func spec(name, class string) *corev1.Pod {
	p := object.Pod(name, object.Class(class), object.Grace(0), object.Probe, object.Requests("cpu", "100m"))
	p.Spec.HostNetwork, p.Spec.RestartPolicy = true, corev1.RestartPolicyAlways
	if isBound(class) { // as scheduler and webhook write it
		object.Both("cpu", "1", "memory", "64Mi")(p)
		object.CPUs(boundCPU)(p)
		p.Annotations[annotation.RequiredPlugins] = `["` + annotation.NRIPlugin + `"]`
	}
	return p
}

func isBound(class string) bool { return class == "LSE" || class == "LSR" }

// life is a pod from its binding on, as a kubelet leads it.
type life struct {
	n     *realNode
	pod   *corev1.Pod
	class string
	b     *stage.Sandbox
	c     *stage.Container
}

// begin binds a pod and tries until it runs; false when ctx ends before.
func (n *realNode) begin(ctx context.Context, name, class string) (*life, bool) {
	l := &life{n: n, class: class}
	p := spec(name, class)
	p.Spec.NodeName = n.node.Name
	ok := n.insist(ctx, func(ctx context.Context) error {
		made, err := n.plane.Client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
		if err == nil {
			l.pod = made
		}
		return err
	})
	ok = ok && n.insist(ctx, func(ctx context.Context) (err error) {
		if l.b, err = n.runtime.RunPod(ctx, l.pod); err != nil {
			return errors.Join(err, n.sweep(ctx, l.pod))
		}
		return nil
	})
	if !ok {
		return l, false
	}
	n.register(l.b.PauseGroup(), l.watched("pause", true))
	return l, n.insist(ctx, l.start)
}

// sweep removes what a runtime that died in the middle keeps of a pod's sandbox, as a kubelet does.
func (n *realNode) sweep(ctx context.Context, pod *corev1.Pod) error {
	client := n.runtime.Client()
	list, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(pod.UID)},
	}})
	if err != nil {
		return err
	}
	for _, b := range list.GetItems() {
		if err := stage.RemoveSandbox(ctx, client, b.GetId()); err != nil {
			return err
		}
	}
	return nil
}

// watched is what the watch knows of a container of the pod.
func (l *life) watched(name string, follows bool) *container {
	c := &container{
		name: l.pod.Name + "/" + name, pod: l.pod.Name, follows: follows, bestEffort: l.class == "BE",
		withBE: l.class == "LSR",
	}
	if isBound(l.class) {
		c.want = cpuset.MustParse(boundCPU)
	}
	return c
}

// start creates and starts the container once.
func (l *life) start(ctx context.Context) error {
	c, err := l.b.Create(ctx, "main")
	if err != nil {
		// A runtime that died in the middle keeps it.
		return errors.Join(err, stage.RemoveContainers(ctx, l.n.runtime.Client(), l.b.ID))
	}
	l.n.register(c.Group, l.watched("main/"+c.ID[:8], false))
	if err := c.Start(ctx); err != nil {
		_ = c.Remove(ctx) // the next attempt is another container
		l.n.unregister(c.Group)
		return err
	}
	l.c = c
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	l.n.running[c.Group] = c
	if isBound(l.class) {
		l.n.bound++
	} else {
		l.n.others++
	}
	return nil
}

// end removes the pod; it tries until that succeeds.
func (l *life) end(ctx context.Context) {
	if l.c != nil {
		l.n.mu.Lock()
		delete(l.n.running, l.c.Group)
		l.n.mu.Unlock()
	}
	if l.b != nil {
		if l.n.insist(ctx, l.b.Remove) {
			l.n.unregister(l.b.PauseGroup())
			if l.c != nil {
				l.n.unregister(l.c.Group)
			}
		}
	}
	if l.pod != nil {
		l.n.insist(ctx, func(ctx context.Context) error {
			return l.n.plane.Client.CoreV1().Pods(l.pod.Namespace).Delete(ctx, l.pod.Name, *metav1.NewDeleteOptions(0))
		})
	}
}

// insist tries a step until it succeeds; false when ctx ends before.
func (n *realNode) insist(ctx context.Context, step func(context.Context) error) bool {
	for ctx.Err() == nil {
		each, cancel := context.WithTimeout(ctx, limit)
		err := step(each)
		cancel()
		if err == nil {
			return true
		}
		n.mu.Lock()
		n.refusals[err.Error()]++
		n.mu.Unlock()
		select {
		case <-time.After(retry):
		case <-ctx.Done():
		}
	}
	return false
}

// churn lets pods come and go until the answer is called, which waits until the last is gone.
func (n *realNode) churn() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for lane, classes := range [][]string{{"LSE", "LSR"}, {"", "LS"}, {"BE"}} {
		seed := n.random.Uint64()
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, 0))
			for i := 0; ctx.Err() == nil; i++ {
				l, _ := n.begin(ctx, fmt.Sprintf("lane%d-%d", lane, i), classes[i%len(classes)])
				pauseFor(ctx, time.Duration(random.IntN(int(300*time.Millisecond))))
				tidy, done := context.WithTimeout(context.Background(), time.Minute)
				l.end(tidy)
				done()
			}
		})
	}
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); all.Wait() }) }
	n.Cleanup(stop)
	return stop
}

// pauseFor waits for a moment that a test drew at random, or until ctx ends.
func pauseFor(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// someMoment waits for a random moment within d.
func (n *realNode) someMoment(d time.Duration) {
	pauseFor(n.Context(), time.Duration(n.random.Int64N(int64(d))))
}

// more waits until more bound pods have started, and as many others.
func (n *realNode) more(count int) {
	n.Helper()
	n.mu.Lock()
	bound, others := n.bound+count, n.others+count
	n.mu.Unlock()
	stage.Await(n, "pods to start", func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.bound < bound || n.others < others {
			return fmt.Errorf("%d bound pods have started and %d others, want %d and %d", n.bound, n.others, bound,
				others)
		}
		return nil
	})
}

// healed waits until bound pods start again and no container is outside its set, and returns how long that took.
func (n *realNode) healed() time.Duration {
	n.Helper()
	began := time.Now()
	n.agent.Ready()
	n.more(1)
	stage.Await(n, "all containers to be in their sets", func() error {
		if n.exposed.open() {
			return errors.New("one is not")
		}
		return nil
	})
	return time.Since(began)
}

// refused returns how often the runtime refused something with a text.
func (n *realNode) refused(text string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	times := 0
	for said, count := range n.refusals {
		if strings.Contains(said, text) {
			times += count
		}
	}
	return times
}

// awaitRefusal waits until the runtime refuses something once more with a text.
func (n *realNode) awaitRefusal(text string) {
	n.Helper()
	before := n.refused(text)
	stage.Await(n, "a bound pod that is held back", func() error {
		if n.refused(text) == before {
			return fmt.Errorf("none was with %q", text)
		}
		return nil
	})
}

// all returns the running containers.
func (n *realNode) all() []*stage.Container {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []*stage.Container
	for _, c := range n.running {
		out = append(out, c)
	}
	return out
}

// outage measures for how long the agent is away.
type outage struct {
	since   time.Time
	longest time.Duration
}

func (o *outage) begin() {
	if o.since.IsZero() {
		o.since = time.Now()
	}
}

func (o *outage) end() {
	if !o.since.IsZero() {
		o.longest = max(o.longest, time.Since(o.since))
	}
	o.since = time.Time{}
}
