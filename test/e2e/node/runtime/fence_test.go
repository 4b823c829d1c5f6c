//go:build e2e_node

package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// fault is what goes wrong in a plugin at CreateContainer.
type fault int

const (
	answersError fault = iota
	notConnected
	tooSlow
	dies
	callsBack // into the runtime, which holds the lock that the call needs
	well
	stopsInRemoval // of a container, until it may go on
)

func (f fault) String() string {
	return [...]string{
		"the handler returns an error", "the plugin is not connected", "the handler is too slow",
		"the plugin dies in the handler", "the handler calls UpdateContainers", "nothing",
		"the handler of removals stops",
	}[f]
}

// plugin stands in for the agent: it sets the cpuset of every container, unless something goes wrong.
type plugin struct {
	fault fault
	stub  stub.Stub
	conn  net.Conn
	over  chan struct{} // closed when the test is over
	ready chan struct{}
	// configured is closed when the runtime has configured the plugin and is about to synchronize it.
	configured chan struct{}
	// removes gets a channel for each removal of a container, which goes on when that is closed.
	removes chan chan struct{}
}

func (p *plugin) Configure(context.Context, string, string, string) (api.EventMask, error) {
	close(p.configured)
	return 0, nil
}

func (p *plugin) RemoveContainer(context.Context, *api.PodSandbox, *api.Container) error {
	if p.fault == stopsInRemoval {
		proceed := make(chan struct{})
		select {
		case p.removes <- proceed:
			<-proceed
		case <-p.over:
		}
	}
	return nil
}

func (p *plugin) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	close(p.ready)
	return nil, nil
}

func (p *plugin) CreateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment,
	[]*api.ContainerUpdate, error,
) {
	switch p.fault {
	case answersError:
		return nil, nil, errors.New("fails on purpose")
	case tooSlow:
		<-p.over
	case dies:
		_ = p.conn.Close()
		<-p.over
	case callsBack:
		u := &api.ContainerUpdate{}
		u.SetContainerId(c.GetId())
		u.SetLinuxCPUSetCPUs(allCPUs) // what it has: the runtime writes it late, after the caller gave up
		_, _ = p.stub.UpdateContainers([]*api.ContainerUpdate{u})
	}
	a := &api.ContainerAdjustment{}
	a.SetLinuxCPUSetCPUs(exclusive)
	return a, nil, nil
}

// validating is a plugin that also checks what is about to be created.
type validating struct{ *plugin }

func (validating) ValidateContainerAdjustment(_ context.Context, r *api.ValidateContainerAdjustmentRequest) error {
	if got := r.GetAdjust().GetLinux().GetResources().GetCpu().GetCpus(); got != exclusive {
		return fmt.Errorf("cpuset.cpus is to be %q, want %q", got, exclusive)
	}
	return nil
}

// connect connects a plugin to the runtime of a stage and waits until it is consulted.
func connect(t *testing.T, s *stage.Stage, name, index string, f fault, validate bool) *plugin {
	t.Helper()
	p := begin(t, s, name, index, f, validate)
	select {
	case <-p.ready:
	case <-time.After(time.Minute):
		t.Fatalf("plugin %s-%s was not synchronized", index, name)
	}
	return p
}

// begin lets a plugin connect to the runtime of a stage.
func begin(t *testing.T, s *stage.Stage, name, index string, f fault, validate bool) *plugin {
	t.Helper()
	p := &plugin{
		fault: f, over: make(chan struct{}), ready: make(chan struct{}), configured: make(chan struct{}),
		removes: make(chan chan struct{}),
	}
	var handler any = p
	if validate {
		handler = validating{p}
	}
	ended := make(chan struct{})
	st, err := stub.New(handler,
		stub.WithPluginName(name), stub.WithPluginIdx(index), stub.WithSocketPath(s.NRISocket()),
		stub.WithOnClose(func() {}), stub.WithLogger(quiet{}),
		stub.WithDialer(func(path string) (net.Conn, error) {
			conn, err := net.Dial("unix", path)
			p.conn = conn
			return conn, err
		}))
	testkit.Check(t, err)
	p.stub = st
	go func() { defer close(ended); _ = st.Run(context.Background()) }()
	t.Cleanup(func() {
		close(p.over)
		st.Stop()
		<-ended
	})
	select {
	case <-p.configured:
	case <-ended:
		t.Fatalf("plugin %s-%s was refused", index, name)
	case <-time.After(time.Minute):
		t.Fatalf("plugin %s-%s was not configured", index, name)
	}
	return p
}

// quiet keeps the stub's news out of the tests' output.
type quiet struct{}

func (quiet) Debugf(context.Context, string, ...interface{}) {}
func (quiet) Infof(context.Context, string, ...interface{})  {}
func (quiet) Warnf(context.Context, string, ...interface{})  {}
func (quiet) Errorf(context.Context, string, ...interface{}) {}

// What a runtime does when a plugin fails, with none, either or both of the fences. A new runtime that behaves
// otherwise changes what the agent can promise: the table is in docs/reference/testing.md.
func TestTheFencesOfTheRuntime(t *testing.T) {
	type cell struct {
		annotated, validates bool
	}
	cells := []cell{{}, {annotated: true}, {validates: true}, {annotated: true, validates: true}}
	const fails, starts = "fails", "starts unadjusted"
	want := map[fault][]string{
		answersError: {fails, fails, fails, fails},
		notConnected: {starts, fails, starts, fails},
		tooSlow:      {starts, starts, fails, fails},
		dies:         {starts, starts, fails, fails},
		callsBack:    {starts, starts, fails, fails},
		well:         {"adjusted", "adjusted", "adjusted", "adjusted"},
	}
	s := stage.New(t)
	s.Containerd(stage.ContainerdOptions{RequestTimeout: 500 * time.Millisecond})
	r := s.Runtime(s.Socket())
	n := 0
	for f := answersError; f <= well; f++ {
		for i, c := range cells {
			t.Run(fmt.Sprintf("%v/annotation=%v,validator=%v", f, c.annotated, c.validates), func(t *testing.T) {
				stage.Count(t)
				n++
				p := pod(fmt.Sprintf("p%d", n))
				p.UID = types.UID(p.Name)
				if c.annotated {
					fenced(p)
				}
				b, err := r.RunPod(t.Context(), p)
				testkit.Check(t, err)
				if f != notConnected {
					connect(t, s, annotation.NRIPlugin, "10", f, c.validates)
				}
				got := outcome(t, b)
				if got != want[f][i] {
					t.Errorf("the container %s, want: %s", got, want[f][i])
				}
				if err := b.Remove(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// outcome runs the container of a pod and says what became of it.
func outcome(t *testing.T, b *stage.Sandbox) string {
	t.Helper()
	c, err := b.Create(t.Context(), "main")
	if err != nil {
		t.Logf("the runtime says: %v", err)
		return "fails"
	}
	if err := c.Start(t.Context()); err != nil {
		return "is created and fails to start: " + err.Error()
	}
	cpus, err := c.CPUs()
	testkit.Check(t, err)
	switch cpus {
	case exclusive:
		return "adjusted"
	case allCPUs:
		return "starts unadjusted"
	}
	return "starts on CPUs " + cpus
}

// TestAPluginConnectsWhileAPodIsRemoved: containerd holds a plugin that connects back while it removes a container. It
// must not be asked to remove another one within the same call then: the two would wait for each other for good.
func TestAPluginConnectsWhileAPodIsRemoved(t *testing.T) {
	w := newWorld(t, byNRI, options{
		noAgent: true, containerd: stage.ContainerdOptions{RequestTimeout: 20 * time.Second},
	})
	slow := connect(t, w.s, "slow", "20", stopsInRemoval, false)
	b := w.sandbox(pod("pair", func(p *corev1.Pod) {
		second := p.Spec.Containers[0]
		second.Name = "second"
		p.Spec.Containers = append(p.Spec.Containers, second)
	}))
	w.start(b, "main")
	w.start(b, "second")
	removed := make(chan error, 1)
	go func() { removed <- b.Remove(t.Context()) }()
	first := <-slow.removes
	late := begin(t, w.s, "late", "30", well, false)
	<-time.After(200 * time.Millisecond) // until the runtime has taken the answer and waits for the removal
	close(first)
	select {
	case <-late.ready:
	case <-time.After(time.Minute):
		w.containerd.Stacks()
		t.Fatal("the plugin that connected during the removal was not synchronized within a minute")
	}
	close(<-slow.removes)
	if err := <-removed; err != nil {
		t.Error(err)
	}
}

func TestTwoPluginsThatSetOneCpusetAreReported(t *testing.T) {
	w := newWorld(t, byNRI, options{})
	connect(t, w.s, "outsider", "20", well, false)
	b := w.sandbox(pod("bound", withClass("LSR"), guaranteed("1"), allocated(exclusive)))
	err := w.refused(t.Context(), b, "main")
	for _, name := range []string{"20-outsider", "10-" + annotation.NRIPlugin} {
		if err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("the runtime says %q, want %s named in it", err, name)
		}
	}
}

func TestAnAgentThatHangsLetsNoBoundPodPass(t *testing.T) {
	w := newWorld(t, byNRI, options{})
	bound := w.sandbox(pod("bound", withClass("LSR"), guaranteed("1"), allocated(exclusive), fenced))
	plain := w.sandbox(pod("plain"))
	w.agent.Freeze()
	if err := w.refused(t.Context(), bound, "main"); err != nil {
		t.Logf("the runtime says: %v", err)
	}
	// The runtime has dropped the plugin by now: nothing holds others up.
	stage.Await(t, "a plain pod to start while the agent hangs", func() error {
		_, err := plain.Run(t.Context(), "main")
		return err
	})
	w.refused(t.Context(), bound, "main") //nolint:errcheck // it is checked there
	w.agent.Thaw()
	w.awaitConnected()
	stage.Await(t, "the bound pod to start once the agent goes on", func() error {
		c, err := bound.Run(t.Context(), "main")
		if err == nil {
			w.wants(c, exclusive)
			w.never(c, exclusive)
		}
		return err
	})
}
