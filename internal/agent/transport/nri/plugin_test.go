package nri_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	testclock "k8s.io/utils/clock/testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/transport"
	"github.com/tenon-project/tenon/internal/agent/transport/nri"
	"github.com/tenon-project/tenon/internal/testkit"
)

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %q, want %q", what, got, want)
	}
}

func wantRefusal(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("err = %v, want one with %q", err, text)
	}
}

func TestAContainerIsMadeWithWhatWasDecided(t *testing.T) {
	t.Parallel()
	tree, m := newTree(t)
	r := newRuntime(t, tree)
	a := startAgent(t, r, m)
	shared, err := r.deploy(pod("b", "", ""), "c1")
	testkit.Check(t, err)
	want(t, "the shared container's set", r.cpus(shared), "0-7")
	p := pod("a", "LSE", "6-7")
	b, err := r.deploy(p, "c2")
	testkit.Check(t, err)
	want(t, "its set", r.cpus(b), "6-7")
	want(t, "its spec", b.Linux.Resources.Cpu.Cpus, "6-7")
	if q := b.Linux.Resources.Cpu.Quota.GetValue(); q != -1 {
		t.Errorf("quota = %d, want -1", q)
	}
	want(t, "the shared container's set", r.cpus(shared), "0-5")
	want(t, "the runtime", a.runtime.Load().Name+" "+a.runtime.Load().Version, "containerd 2.4.2")
	if a.fenced.Load() == 0 {
		t.Error("the runtime's validator was not seen")
	}
	r.end(p, b)
	eventually(t, "the pool grows", func() bool { return r.cpus(shared) == "0-7" })
	eventually(t, "the runtime receives the set", func() bool { return r.lastPushed("c1") == "0-7" })
	r.remove(p)
}

func TestAnUpdateOfTheKubeletIsOverridden(t *testing.T) {
	t.Parallel()
	tree, m := newTree(t)
	r := newRuntime(t, tree)
	startAgent(t, r, m)
	p := pod("a", "LSR", "6-7")
	b, err := r.deploy(p, "c1")
	testkit.Check(t, err)
	asked := &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: "0-7", Quota: api.Int64(50000)}}
	testkit.Check(t, r.resize(p, b, asked))
	want(t, "its set", r.cpus(b), "6-7")
	testkit.Check(t, r.resize(p, b, &api.LinuxResources{Memory: &api.LinuxMemory{Limit: api.Int64(1 << 30)}}))
	want(t, "its set after a resize of memory", r.cpus(b), "6-7")
}

func TestARestartedAgentTakesUpWhatRuns(t *testing.T) {
	t.Parallel()
	tree, m := newTree(t)
	r := newRuntime(t, tree)
	first := startAgent(t, r, m)
	p := pod("a", "LSE", "6-7")
	b, err := r.deploy(p, "c1")
	testkit.Check(t, err)
	shared, err := r.deploy(pod("b", "LS", ""), "c2")
	testkit.Check(t, err)
	first.stop()
	want(t, "its set without an agent", r.cpus(b), "6-7")
	startAgent(t, r, m)
	eventually(t, "the account", func() bool { return r.cpus(shared) == "0-5" && r.cpus(b) == "6-7" })
	next := pod("c", "LSE", "6")
	eventually(t, "the new connection", func() bool { return r.run(next) == nil })
	held, err := r.create(next, "c3")
	testkit.Check(t, err)
	wantRefusal(t, r.start(next, held), "CPUHandOverPending")
	r.end(p, b)
	b, err = r.create(next, "c4")
	testkit.Check(t, err)
	eventually(t, "the start", func() bool { return r.start(next, b) == nil })
}

func TestARestartedRuntimeIsFoundAgain(t *testing.T) {
	t.Parallel()
	tree, m := newTree(t)
	r := newRuntime(t, tree)
	a := startAgent(t, r, m)
	b, err := r.deploy(pod("a", "LSE", "6-7"), "c1")
	testkit.Check(t, err)
	r.nri.Stop()
	r.cut()
	eventually(t, "the loss", func() bool { return a.lost.Load() > 0 })
	r.boot()
	before := r.synced.Load()
	eventually(t, "the connection", func() bool { return r.synced.Load() > before })
	want(t, "its set", r.cpus(b), "6-7")
	_, err = r.deploy(pod("b", "LSR", "4-5"), "c2")
	testkit.Check(t, err)
}

// A runtime that ends after it has answered the registration of a plugin never configures it.
func TestARuntimeThatEndsBeforeItConfiguresTheAgentIsFoundAgain(t *testing.T) {
	t.Parallel()
	tree, m := newTree(t)
	r := newRuntime(t, tree)
	r.mute.Store(true)
	a := startAgent(t, r, m)
	if got := a.lost.Load(); got != 1 {
		t.Errorf("%d connections were lost, want the first", got)
	}
	_, err := r.deploy(pod("a", "LSR", "6-7"), "c1")
	testkit.Check(t, err)
}

func TestWhileNoAgentIsThereTheFenceHolds(t *testing.T) {
	t.Parallel()
	tree, m := newTree(t)
	r := newRuntime(t, tree)
	startAgent(t, r, m).stop()
	fenced := pod("a", "LSE", "6-7")
	fenced.Annotations[annotation.RequiredPlugins] = `["` + annotation.NRIPlugin + `"]`
	testkit.Check(t, r.tree.MkdirAll("kubepods/burstable/poda"))
	// What comes while the runtime has not noticed the end may fail for that cause.
	eventually(t, "the refusal", func() bool {
		_, err := r.create(fenced, "c1")
		return err != nil && strings.Contains(err.Error(), `required plugin "tenon-agent" not present`)
	})
	_, err := r.deploy(pod("b", "", ""), "c2")
	testkit.Check(t, err)
}

func TestTwoPluginsThatSetOneFieldMakeNoContainer(t *testing.T) {
	t.Parallel()
	tree, m := newTree(t)
	r := newRuntime(t, tree)
	startAgent(t, r, m)
	(&rival{create: func(a *api.ContainerAdjustment) { a.SetLinuxCPUSetCPUs("0-7") }}).join(t, r)
	p := pod("a", "LSE", "6-7")
	testkit.Check(t, r.run(p))
	tries := 0
	eventually(t, "the refusal", func() bool { // the rival takes part soon after it was synchronized
		tries++
		_, err := r.create(p, fmt.Sprint("c", tries))
		return err != nil && strings.Contains(err.Error(), "both tried to set") &&
			strings.Contains(err.Error(), "10-tenon-agent")
	})
}

// faulty is a Handler whose Create goes wrong.
type faulty struct {
	hook.Handler
	create func() error
}

func (f *faulty) Create(ctx context.Context, c hook.Container) (hook.Resources, []hook.Update, error) {
	if err := f.create(); err != nil {
		return hook.Resources{}, nil, err
	}
	return f.Handler.Create(ctx, c)
}

func TestAnErrorKeepsTheContainerFromBeingMade(t *testing.T) {
	t.Parallel()
	tree, m := newTree(t)
	r := newRuntime(t, tree)
	a := startAgent(t, r, m, func(o *transport.NRIOptions) {
		o.Handler = &faulty{o.Handler, func() error { return errors.New("the table is on fire") }}
	})
	_, err := r.deploy(pod("a", "LSE", "6-7"), "c1")
	wantRefusal(t, err, "the table is on fire")
	if a.lost.Load() != 0 {
		t.Error("the connection was lost over it")
	}
}

func TestAnAgentThatIsTooSlowSaysSoBeforeTheRuntimeGoesOn(t *testing.T) {
	t.Parallel()
	tree, m := newTree(t)
	r := newRuntime(t, tree)
	clock := testclock.NewFakeClock(time.Unix(1e9, 0))
	release := make(chan struct{})
	var stuck atomic.Bool
	stuck.Store(true)
	a := startAgent(t, r, m, func(o *transport.NRIOptions) {
		o.Clock = clock
		o.Handler = &faulty{o.Handler, func() error {
			if stuck.Load() {
				<-release
			}
			return nil
		}}
	})
	p := pod("a", "LSE", "6-7")
	testkit.Check(t, r.run(p))
	done := make(chan error, 1)
	go func() { _, err := r.create(p, "c1"); done <- err }()
	eventually(t, "the guard's timer", clock.HasWaiters)
	clock.Step(1500 * time.Millisecond)
	wantRefusal(t, <-done, "did not decide in time")
	plain := pod("b", "", "")
	testkit.Check(t, r.run(plain))
	go func() { _, err := r.create(plain, "c0"); done <- err }()
	eventually(t, "the guard's timer", clock.HasWaiters)
	clock.Step(1500 * time.Millisecond)
	testkit.Check(t, <-done) // a pod that uses nothing of Tenon
	if a.slow.Load() == 0 {
		t.Error("the call was not counted as slow")
	}
	stuck.Store(false)
	close(release)
	b, err := r.create(p, "c2")
	testkit.Check(t, err)
	want(t, "its set", b.Linux.Resources.Cpu.Cpus, "6-7")
	if a.lost.Load() != 0 {
		t.Error("the connection was lost over it")
	}
}

func TestAPodThatUsesNothingStartsBesideAnAgentThatKnowsNothing(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	r := newRuntime(t, tree)
	startAgent(t, r, nil, func(o *transport.NRIOptions) {
		o.Handler = asking{o.Handler, func() bool { return true }}
	})
	_, err := r.deploy(pod("a", "", ""), "c1")
	testkit.Check(t, err)
	_, err = r.deploy(pod("b", "LS", ""), "c2")
	wantRefusal(t, err, "AgentNotReady")
}

// asking is a Handler with its own word on whether it is ready.
type asking struct {
	hook.Handler
	ready func() bool
}

func (a asking) Ready() bool { return a.ready() }

func TestAnAgentThatKnowsNothingDoesNotConnect(t *testing.T) {
	t.Parallel()
	tree, _ := newTree(t)
	r := newRuntime(t, tree)
	var asked atomic.Int64
	before := r.synced.Load()
	o := transport.NRIOptions{
		Socket: r.socket, Handler: asking{ready: func() bool { asked.Add(1); return false }},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- nri.Run(ctx, o) }()
	eventually(t, "some questions", func() bool { return asked.Load() > 3 })
	cancel()
	testkit.Check(t, <-done)
	if got := r.synced.Load(); got != before {
		t.Errorf("connected %d times, want none", got-before)
	}
}

func TestAStaticPodHasTheSharedPool(t *testing.T) {
	t.Parallel()
	tree, m := newTree(t)
	r := newRuntime(t, tree)
	startAgent(t, r, m)
	_, err := r.deploy(pod("a", "LSE", "6-7"), "c1")
	testkit.Check(t, err)
	static := pod("0123abcd", "", "")
	static.Annotations["kubernetes.io/config.source"] = "file"
	b, err := r.deploy(static, "c2")
	testkit.Check(t, err)
	want(t, "its set", r.cpus(b), "0-5")
	sandbox := &box{group: "kubepods/burstable/pod0123abcd/sb-0123abcd"}
	eventually(t, "its sandbox's set", func() bool { return r.cpus(sandbox) == "0-5" })
}

func TestANodeFullOfContainersIsTakenUp(t *testing.T) {
	t.Parallel()
	tree, m := newTree(t)
	r := newRuntime(t, tree)
	for i := range 250 {
		p := pod(fmt.Sprint("p", i), "", "")
		testkit.Check(t, r.run(p))
		b, err := r.create(p, fmt.Sprint("c", i))
		testkit.Check(t, err)
		testkit.Check(t, tree.Write(b.group, "cpuset.cpus", "0-7"))
		testkit.Check(t, r.start(p, b))
	}
	exclusive := pod("x", "LSE", "6-7")
	startAgent(t, r, m)
	testkit.Check(t, r.run(exclusive))
	tries := 0
	eventually(t, "the exclusive container", func() bool { // the runtime may be writing an older set at that moment
		tries++
		b, err := r.create(exclusive, fmt.Sprint("x", tries))
		testkit.Check(t, err)
		return r.start(exclusive, b) == nil
	})
	for _, id := range []string{"c0", "c249"} {
		want(t, id, r.cpus(r.boxes[id]), "0-5")
	}
	left := ""
	defer func() { t.Log(left) }()
	eventually(t, "all sets are pushed", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for i := range 250 {
			if got := r.boxes[fmt.Sprint("c", i)].Linux.Resources.Cpu.Cpus; got != "0-5" {
				left = fmt.Sprintf("c%d has %q stored", i, got)
				return false
			}
		}
		return true
	})
}

// containerd 1.7 closes the connection of a plugin that names an event it does not know.
func TestARuntimeWithoutValidatorsIsNotAskedForThem(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{"v2.4.2": true, "v2.1.5": false, "1.7.35": false} {
		events := nri.Events(transport.ParseRuntime("containerd", version))
		if got := events == 0 || events.IsSet(api.Event_VALIDATE_CONTAINER_ADJUSTMENT); got != want {
			t.Errorf("containerd %s: asks for the validation of adjustments: %v, want %v", version, got, want)
		}
		if events != 0 && !events.IsSet(api.Event_CREATE_CONTAINER) {
			t.Errorf("containerd %s: events %s, want CreateContainer among them", version, events.PrettyString())
		}
	}
}
