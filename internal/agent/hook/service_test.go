package hook_test

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/local/kernel"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// machine has 2 NUMA nodes of 4 CPUs: 0-3 and 4-7.
func machine(tb testing.TB) *topo.Machine {
	tb.Helper()
	return grid.Machine{Sockets: 2, Cores: 4, NodeBytes: 1 << 30}.Build(tb)
}

// node is an engine and its service over a simulated kernel, with the runtime played by the test.
type node struct {
	t        testing.TB
	tree     *kernel.Tree
	engine   *apply.Engine
	service  *hook.Service
	clock    *testclock.FakeClock
	facts    ledger.Facts
	degraded string
	writes   bool
	devices  *inject.Node
	trust    hook.Trust
	troubles []hook.Trouble
	// These count updates that were answered with other values, answers about devices and refusals of the validation,
	// and reports of all containers.
	overridden, injected, caught, synced int
}

func (n *node) Writes() bool               { return n.writes }
func (n *node) Leaves() bool               { return false }
func (n *node) WhyDegraded() string        { return n.degraded }
func (n *node) Devices() *inject.Node      { return n.devices }
func (n *node) Trust(*hook.Pod) hook.Trust { return n.trust }
func (n *node) Synced()                    { n.synced++ }
func (n *node) Blocked(x hook.Trouble)     { n.troubles = append(n.troubles, x) }
func (n *node) Overridden()                { n.overridden++ }
func (n *node) Injected(time.Duration)     { n.injected++ }
func (n *node) Caught()                    { n.caught++ }

func newNode(tb testing.TB, change ...func(*node, *hook.Options)) *node {
	tb.Helper()
	n := &node{
		t: tb, writes: true, clock: testclock.NewFakeClock(time.Unix(1e9, 0)),
		facts: ledger.Facts{Machine: machine(tb), MinSharedCPUs: -1},
	}
	tree, err := kernel.Open(kernel.Options{Machine: n.facts.Machine})
	if err != nil {
		tb.Fatal(err)
	}
	n.tree = tree
	n.must(tree.MkdirAll("kubepods/besteffort"))
	n.engine = apply.New(apply.Options{Cgroup: tree, Roots: []string{"kubepods", "kubepods.slice"}})
	o := hook.Options{Engine: n.engine, Agent: n, Reports: n, Clock: n.clock}
	for _, f := range change {
		f(n, &o)
	}
	n.service = hook.New(o)
	return n
}

// ready is a node whose engine knows the machine and that no other pods are there.
func ready(tb testing.TB, change ...func(*node, *hook.Options)) *node {
	tb.Helper()
	n := newNode(tb, change...)
	n.complete()
	return n
}

func (n *node) complete() {
	n.engine.SetFacts(n.facts)
	n.engine.Prune(func(func(string) bool) {})
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// sandbox is a pod as the runtime reports it; class and cpus are "" for a pod without.
func sandbox(uid, class, cpus string) hook.Pod {
	p := hook.Pod{
		ID: "sb-" + uid, UID: uid, Namespace: "ns", Name: "pod-" + uid, Cgroup: "/kubepods/burstable/pod" + uid,
		Labels: map[string]string{}, Annotations: map[string]string{},
	}
	if class != "" {
		p.Labels[annotation.QoSClass] = class
	}
	if cpus != "" {
		p.Annotations[annotation.ResourceStatusKey] = fmt.Sprintf(`{"cpuset":%q}`, cpus)
	}
	return p
}

func in(p hook.Pod, id string) hook.Container {
	return hook.Container{Pod: p, ID: id, Name: "main", Cgroup: p.Cgroup + "/" + id}
}

// object is the pod as the API has it.
func inAPI(p hook.Pod) *corev1.Pod {
	pod := object.Pod(p.Namespace+"/"+p.Name, object.UID(p.UID), object.On("n"), object.Requests("cpu", "1"))
	pod.Labels, pod.Annotations, pod.Status.QOSClass = p.Labels, p.Annotations, corev1.PodQOSBurstable
	return pod
}

// create does what a runtime does up to the creation of a container.
func (n *node) create(c hook.Container) (hook.Resources, []hook.Update, error) {
	n.t.Helper()
	a, updates, err := n.service.Create(n.t.Context(), c)
	if err != nil {
		return a, updates, err
	}
	group := strings.TrimPrefix(c.Cgroup, "/")
	n.must(n.tree.MkdirAll(group))
	if a.CPUs != "" {
		n.must(n.tree.Write(group, desired.CPUs, a.CPUs))
	}
	c.Has.CPUs, c.Has.Mems = a.CPUs, a.Mems
	return a, updates, n.service.Check(n.t.Context(), c)
}

// run starts a container of a pod, from its sandbox on.
func (n *node) run(c hook.Container) error {
	n.t.Helper()
	if err := n.service.RunPod(n.t.Context(), c.Pod); err != nil {
		return err
	}
	if _, _, err := n.create(c); err != nil {
		return err
	}
	if err := n.service.Start(n.t.Context(), c); err != nil {
		return err
	}
	_, err := n.tree.Spawn(strings.TrimPrefix(c.Cgroup, "/"))
	return err
}

func (n *node) cpus(c hook.Container) string {
	n.t.Helper()
	got, err := n.tree.Read(strings.TrimPrefix(c.Cgroup, "/"), desired.CPUs)
	n.must(err)
	return got
}

func want(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %q, want %q", what, got, want)
	}
}

func wantCause(t testing.TB, err, cause error) {
	t.Helper()
	if _, ok := errors.AsType[*apply.Blocked](err); !ok && cause != nil || !errors.Is(err, cause) {
		t.Errorf("err = %v, want a *Blocked for %v", err, cause)
	}
}

func TestCreateAnswersWhatThePodIsToHave(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pod        hook.Pod
		cpus, mems string
		lifted     bool
	}{
		"LSE":                     {sandbox("a", "LSE", "2-3"), "2-3", "", true},
		"LSR":                     {sandbox("a", "LSR", "2-3"), "2-3", "", true},
		"a pod of a node policy":  {sandbox("a", "", "2-3"), "2-3", "", true},
		"LS":                      {sandbox("a", "LS", ""), "0-5", "", false},
		"BE beside LSR":           {sandbox("a", "BE", ""), "0-7", "", false},
		"a pod that uses nothing": {sandbox("a", "", ""), "0-5", "", false},
		"a best-effort pod that uses nothing": {func() hook.Pod {
			p := sandbox("a", "", "")
			p.Cgroup = "/kubepods/besteffort/poda"
			return p
		}(), "0-7", "", false},
		"LS on a NUMA node with its memory": {func() hook.Pod {
			p := sandbox("a", "LS", "")
			p.Annotations[annotation.ResourceStatusKey] = `{"numaNodeResources":[{"node":1,"resources":{"cpu":"1",` +
				`"memory":"1Gi"}}]}`
			return p
		}(), "4-5", "1", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := ready(t)
			n.must(n.run(in(sandbox("other", "LSR", "6-7"), "o1")))
			a, updates, err := n.create(in(tt.pod, "c1"))
			n.must(err)
			want(t, "cpus", a.CPUs, tt.cpus)
			want(t, "mems", a.Mems, tt.mems)
			if (a.Quota != nil && *a.Quota == -1) != tt.lifted {
				t.Errorf("quota = %v, lifted %v", a.Quota, tt.lifted)
			}
			if len(updates) > 0 {
				t.Errorf("updates = %v, want none", updates)
			}
		})
	}
}

func TestContainersThatMustNotStart(t *testing.T) {
	t.Parallel()
	malformed := func(class string) hook.Pod {
		p := sandbox("a", class, "")
		p.Annotations[annotation.ResourceStatusKey] = `{"cpuset":[1]}`
		return p
	}
	tests := map[string]struct {
		pod   hook.Pod
		cause error
	}{
		"LSE without CPUs, unknown to the API": {sandbox("a", "LSE", ""), apply.ErrUnallocated},
		"LSR without CPUs, unknown to the API": {sandbox("a", "LSR", ""), apply.ErrUnallocated},
		"LSE on CPUs that are not there":       {sandbox("a", "LSE", "77"), apply.ErrUnallocated},
		"LSE with an allocation that is none":  {malformed("LSE"), apply.ErrMalformed},
		"LS with an allocation that is none":   {malformed("LS"), apply.ErrMalformed},
		"LSE on CPUs that another pod runs on": {sandbox("a", "LSE", "5-6"), apply.ErrHandOverPending},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := ready(t)
			n.must(n.run(in(sandbox("other", "LSE", "6-7"), "o1")))
			err := n.run(in(tt.pod, "c1"))
			wantCause(t, err, tt.cause)
			if len(n.troubles) == 0 || n.troubles[0].LetPass || n.troubles[0].Name != tt.pod.Name ||
				!errors.Is(n.troubles[0].Err, tt.cause) {
				t.Errorf("reported %+v, want the pod with %v", n.troubles, tt.cause)
			}
			if n.must(nil); n.cpus(in(sandbox("other", "LSE", "6-7"), "o1")) != "6-7" {
				t.Error("the other pod lost its CPUs")
			}
		})
	}
}

func TestPodsThatUseNothingAreNeverHeldBack(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pod   hook.Pod
		begin func(*node)
		cause error // for the pod with a label; nil when it may start as well
	}{
		"the engine knows nothing": {sandbox("a", "", ""), func(*node) {}, apply.ErrNotReady},
		"no CPU is left in the pools": {sandbox("a", "", ""), func(n *node) {
			n.facts.NodeReserved = cpuset.MustParse("0-7")
			n.complete()
		}, apply.ErrHandOverPending},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			tt.begin(n)
			if err := n.run(in(tt.pod, "c1")); err != nil {
				t.Errorf("held back: %v", err)
			}
			if _, err := n.service.Update(t.Context(), in(tt.pod, "c1"), hook.Resources{CPUs: "0-7"}); err != nil {
				t.Errorf("its update is held back: %v", err)
			}
			if len(n.troubles) == 0 || !n.troubles[0].LetPass {
				t.Errorf("reported %+v, want that it was let pass", n.troubles)
			}
			wantCause(t, n.run(in(sandbox("b", "LS", ""), "c2")), tt.cause)
		})
	}
}

func TestLSEPodsNeedFences(t *testing.T) {
	t.Parallel()
	for _, allowed := range []bool{false, true} {
		n := ready(t, func(n *node, o *hook.Options) {
			n.degraded, o.AllowDegraded = "containerd 1.7.2 goes on without a plugin that fails", allowed
		})
		cause := hook.ErrDegraded
		if allowed {
			cause = nil
		}
		lse, lsr := sandbox("a", "LSE", "2"), sandbox("b", "LSR", "3")
		wantCause(t, n.service.RunPod(t.Context(), lse), cause)
		wantCause(t, n.run(in(lse, "c1")), cause)
		wantCause(t, n.run(in(lsr, "c2")), nil)
		wantCause(t, n.run(in(sandbox("c", "", ""), "c3")), nil)
	}
}

func TestAnLSEPodThatRunsIsUpdatedWithoutFences(t *testing.T) {
	t.Parallel()
	n := ready(t)
	lse := in(sandbox("a", "LSE", "6-7"), "c1")
	n.must(n.run(lse))
	n.degraded = "the runtime does not check required plugins any more"
	got, err := n.service.Update(t.Context(), lse, hook.Resources{CPUs: "0-7"})
	n.must(err)
	want(t, "cpus", got.CPUs, "6-7")
}

func TestUpdatesOfTheKubeletUndoNothing(t *testing.T) {
	t.Parallel()
	n := ready(t)
	n.facts.Model.Config.CPU = kubelet.CPU{Static: true, Reserved: cpuset.MustParse("0")}
	n.facts.Given = []tenancy.Grant{{UID: "pinned", CPUs: cpuset.MustParse("1")}}
	n.engine.SetFacts(n.facts)
	lse, ls, pinned := in(sandbox("a", "LSE", "6-7"), "c1"), in(sandbox("b", "LS", ""), "c2"),
		in(sandbox("pinned", "", ""), "c3")
	n.engine.Update(desired.Pod{
		Entry:    ledger.Entry{UID: "pinned", Namespace: "ns", Name: "pod-pinned"},
		Pinnable: true,
	})
	for _, c := range []hook.Container{lse, ls, pinned} {
		n.must(n.run(c))
	}
	quota := int64(50000)
	tests := map[string]struct {
		c         hook.Container
		asked     hook.Resources
		cpus      string
		quotaBack int64 // 0 for none
		overrides int
	}{
		"an exclusive pod":                  {lse, hook.Resources{CPUs: "0-5"}, "6-7", 0, 1},
		"an exclusive pod on its own CPUs":  {lse, hook.Resources{CPUs: "6-7"}, "6-7", 0, 0},
		"a resize of a pod without a quota": {lse, hook.Resources{Quota: &quota}, "6-7", -1, 1},
		"a shared pod":                      {ls, hook.Resources{CPUs: "0-7"}, "0,2-5", 0, 1},
		"a shared pod on its pool":          {ls, hook.Resources{CPUs: "0,2-5"}, "0,2-5", 0, 0},
		"a resize of a shared pod":          {ls, hook.Resources{Quota: &quota}, "0,2-5", 0, 0},
		"a pod that the kubelet pinned":     {pinned, hook.Resources{CPUs: "1"}, "", 0, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := n.overridden
			got, err := n.service.Update(t.Context(), tt.c, tt.asked)
			n.must(err)
			want(t, "cpus", got.CPUs, tt.cpus)
			if got := n.overridden - before; got != tt.overrides {
				t.Errorf("%d overridden updates are reported, want %d", got, tt.overrides)
			}
			back := int64(0)
			if got.Quota != nil {
				back = *got.Quota
			}
			if back != tt.quotaBack {
				t.Errorf("quota = %d, want %d", back, tt.quotaBack)
			}
		})
	}
}

func TestTheValidatorSeesWhatOthersDid(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pod   hook.Pod
		has   hook.Resources
		cause error
	}{
		"as answered": {sandbox("a", "LSE", "6-7"), hook.Resources{CPUs: "6-7"}, nil},
		"another plugin's set": {
			sandbox("a", "LSE", "6-7"),
			hook.Resources{CPUs: "0-7"},
			apply.ErrEnforcement,
		},
		"no set at all": {sandbox("a", "LSE", "6-7"), hook.Resources{}, apply.ErrEnforcement},
		"a shared pod on exclusive CPUs": {
			sandbox("a", "LS", ""),
			hook.Resources{CPUs: "4-7"},
			apply.ErrEnforcement,
		},
		"a pod that uses nothing is left to them": {sandbox("a", "", ""), hook.Resources{CPUs: "1"}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := ready(t)
			c := in(tt.pod, "c1")
			n.must(n.service.RunPod(t.Context(), tt.pod))
			_, _, err := n.service.Create(t.Context(), c)
			n.must(err)
			c.Has = tt.has
			wantCause(t, n.service.Check(t.Context(), c), tt.cause)
		})
	}
}

func TestAContainerThatTheProxyDoesNotKnowTheGroupOfIsFoundByItsID(t *testing.T) {
	t.Parallel()
	for name, group := range map[string]string{
		"cgroupfs": "kubepods/burstable/poda/c1d2e3",
		"systemd":  "kubepods.slice/kubepods-poda.slice/cri-containerd-c1d2e3.scope",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := ready(t)
			p := sandbox("a", "LSE", "6-7")
			p.Cgroup = "/" + path.Dir(group)
			n.must(n.service.RunPod(t.Context(), p))
			a, _, err := n.service.Create(t.Context(), hook.Container{Pod: p, Name: "main"})
			n.must(err)
			want(t, "cpus", a.CPUs, "6-7")
			c := hook.Container{Pod: p, Name: "main", ID: "c1d2e3"}
			n.must(n.tree.MkdirAll(path.Dir(group)))
			wantCause(t, n.service.Start(t.Context(), c), apply.ErrEnforcement)
			n.must(n.tree.MkdirAll(group))
			n.must(n.service.Start(t.Context(), c))
			got, err := n.tree.Read(group, desired.CPUs)
			n.must(err)
			want(t, "the kernel's set", got, "6-7")
		})
	}
}

// drain plays the runtime that takes pushed updates.
func (n *node) drain() map[string]string {
	n.t.Helper()
	pushed := map[string]string{}
	for updates := n.service.NextUpdates(); len(updates) > 0; updates = n.service.NextUpdates() {
		for _, u := range updates {
			pushed[u.ContainerID] = u.CPUs
		}
		n.service.UpdatesDone(updates)
	}
	return pushed
}

func TestChangedSetsArePushedToTheRuntime(t *testing.T) {
	t.Parallel()
	n := ready(t)
	a, b := in(sandbox("a", "LS", ""), "c1"), in(sandbox("b", "", ""), "c2")
	n.must(n.run(a))
	n.must(n.run(b))
	if pushed := n.drain(); len(pushed) > 0 {
		t.Fatalf("pushed %v, want nothing: the runtime has what it was answered", pushed)
	}
	n.engine.Update(desired.FromAPI(convert.ReadPod(inAPI(sandbox("x", "LSE", "6-7")))))
	n.must(n.engine.Reconcile())
	if diff := cmp.Diff(map[string]string{"c1": "0-5", "c2": "0-5"}, n.drain()); diff != "" {
		t.Errorf("pushed (-want +got):\n%s", diff)
	}
	n.must(n.engine.Verify())
	if pushed := n.drain(); len(pushed) > 0 {
		t.Errorf("pushed %v again", pushed)
	}
}

func TestAnExclusiveContainerWaitsForWhatTheRuntimeIsStillWriting(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*node, hook.Container){
		"it is written":         func(n *node, c hook.Container) { n.service.Updated(c) },
		"it was never written":  func(n *node, _ hook.Container) { n.clock.Step(5 * time.Second) },
		"the container is gone": func(n *node, c hook.Container) { n.service.Remove(c) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := ready(t)
			ls := in(sandbox("a", "LS", ""), "c1")
			n.must(n.run(ls))
			answer, err := n.service.Update(t.Context(), ls, hook.Resources{CPUs: "0-7"})
			n.must(err)
			want(t, "answer", answer.CPUs, "0-7") // and the time of the write is unknown
			lse := in(sandbox("b", "LSE", "6-7"), "c2")
			wantCause(t, n.run(lse), apply.ErrHandOverPending)
			end(n, ls)
			n.must(n.service.Start(t.Context(), lse))
		})
	}
}

// What the runtime has written meanwhile is undone before the container starts.
func TestAnExclusiveContainerStartsOnceTheRuntimeHasReportedItsWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := ready(t, func(_ *node, o *hook.Options) { o.WriteWait = 25 * time.Millisecond })
		ls := in(sandbox("a", "LS", ""), "c1")
		n.must(n.run(ls))
		answer, err := n.service.Update(t.Context(), ls, hook.Resources{CPUs: "0-7"})
		n.must(err)
		lse := in(sandbox("b", "LSE", "6-7"), "c2")
		wantCause(t, n.run(lse), apply.ErrHandOverPending) // no report comes
		started := make(chan error, 1)
		go func() { started <- n.service.Start(t.Context(), lse) }()
		synctest.Wait()
		if len(started) > 0 {
			t.Fatalf("Start = %v before the runtime reported its write", <-started)
		}
		n.must(n.tree.Write(ls.Cgroup[1:], desired.CPUs, answer.CPUs))
		n.service.Updated(ls)
		n.must(<-started)
		want(t, "the set of the other container", n.cpus(ls), "0-5")
	})
}

func TestOthersLeaveBeforeTheKernelHasHeardOfThePod(t *testing.T) {
	t.Parallel()
	n := ready(t)
	ls, be := in(sandbox("a", "LS", ""), "c1"), in(sandbox("b", "BE", ""), "c2")
	n.must(n.run(ls))
	n.must(n.run(be))
	lsr := sandbox("c", "LSR", "6-7")
	n.engine.Update(desired.FromAPI(convert.ReadPod(inAPI(lsr)))) // and no pass comes
	_, updates, err := n.create(in(lsr, "c3"))
	n.must(err)
	if diff := cmp.Diff([]hook.Update{{ContainerID: "c1", Resources: hook.Resources{CPUs: "0-5"}}},
		updates); diff != "" {
		t.Errorf("updates (-want +got):\n%s", diff)
	}
}

// TestSharedPodsDoNotGetBackTheCPUsOfAPodThatStartedMeanwhile: a set of another container came with the answer to
// Create, and the runtime writes it after a second exclusive pod was bound and started.
func TestSharedPodsDoNotGetBackTheCPUsOfAPodThatStartedMeanwhile(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*node, hook.Container){
		"its container starts":     func(n *node, c hook.Container) { _ = n.service.Start(n.t.Context(), c) },
		"its container is removed": func(n *node, c hook.Container) { n.service.Remove(c) },
		"it was never written":     func(n *node, _ hook.Container) { n.clock.Step(5 * time.Second) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := ready(t)
			n.must(n.run(in(sandbox("a", "LS", ""), "c1")))
			first, second := sandbox("b", "LSR", "6-7"), sandbox("c", "LSR", "4-5")
			n.engine.Update(desired.FromAPI(convert.ReadPod(inAPI(first)))) // and no pass comes
			_, updates, err := n.create(in(first, "c2"))
			n.must(err)
			if len(updates) != 1 || updates[0].CPUs != "0-5" {
				t.Fatalf("updates = %v, want 0-5 for c1", updates)
			}
			wantCause(t, n.run(in(second, "c3")), apply.ErrHandOverPending)
			end(n, in(first, "c2"))
			n.must(n.service.Start(t.Context(), in(second, "c3")))
		})
	}
}

func TestOfTwoSetsOnTheirWayToAContainerBothAreAwaited(t *testing.T) {
	t.Parallel()
	n := ready(t)
	ls := in(sandbox("a", "LS", ""), "c1")
	n.must(n.run(ls))
	update := func(want string) {
		answer, err := n.service.Update(t.Context(), ls, hook.Resources{CPUs: "0-7"})
		if n.must(err); answer.CPUs != want {
			t.Fatalf("answer %s, want %s", answer.CPUs, want)
		}
	}
	update("0-7")
	lse := in(sandbox("b", "LSE", "6-7"), "c2")
	n.engine.Update(desired.FromAPI(convert.ReadPod(inAPI(lse.Pod))))
	update("0-5")
	wantCause(t, n.run(lse), apply.ErrHandOverPending)
	n.service.Updated(ls) // of one of the two
	wantCause(t, n.service.Start(t.Context(), lse), apply.ErrHandOverPending)
	n.service.Updated(ls)
	n.must(n.service.Start(t.Context(), lse))
}

func TestAPodThatOnlyTheRuntimeKnowsEndsWithItsLastSandbox(t *testing.T) {
	t.Parallel()
	n := ready(t)
	first := sandbox("a", "LSE", "6-7")
	second := first
	second.ID = "sb-2"
	c := in(first, "c1")
	n.must(n.run(c))
	n.must(n.service.RunPod(t.Context(), second))
	n.service.RemovePod(first)
	n.must(n.tree.Kill("kubepods/burstable/poda/c1"))
	n.service.Stop(c)
	n.must(n.engine.Verify())
	if got := n.engine.View().CPUsOf("a"); got != cpuset.MustParse("6-7") {
		t.Errorf("with one sandbox left it has %v, want 6-7", got)
	}
	n.service.RemovePod(second)
	n.must(n.engine.Verify())
	if got := n.engine.View().CPUsOf("a"); !got.IsEmpty() {
		t.Errorf("without a sandbox it has %v, want none", got)
	}
}

func TestWhatTheAPISaysCountsMoreThanWhatTheRuntimeSays(t *testing.T) {
	t.Parallel()
	n := ready(t)
	p := sandbox("a", "LSE", "6-7")
	moved := inAPI(p)
	moved.Annotations = map[string]string{annotation.ResourceStatusKey: `{"cpuset":"4-5"}`}
	n.engine.Update(desired.FromAPI(convert.ReadPod(moved)))
	n.must(n.service.RunPod(t.Context(), p))
	a, _, err := n.create(in(p, "c1"))
	n.must(err)
	want(t, "cpus", a.CPUs, "4-5")
	n.engine.Delete("a")
	n.must(n.service.RunPod(t.Context(), p)) // an old sandbox does not bring it back
	_, _, err = n.create(in(p, "c2"))
	wantCause(t, err, apply.ErrUnknownPod)
}

func TestAStaticPodIsOnePod(t *testing.T) {
	t.Parallel()
	n := ready(t)
	p := sandbox("0123abcd", "LSR", "6-7") // a static pod's manifest can say so, if its author has kept the CPUs free
	mirror := inAPI(p)
	mirror.UID = "the-api-servers"
	mirror.Annotations = maps.Clone(p.Annotations)
	mirror.Annotations[corev1.MirrorPodAnnotationKey] = "0123abcd"
	n.must(n.run(in(p, "c1")))
	n.engine.Update(desired.FromAPI(convert.ReadPod(mirror)))
	n.must(n.engine.Verify())
	if got := slices.Collect(n.engine.View().Entries()); len(got) != 1 || got[0].UID != "0123abcd" {
		t.Errorf("the account has %v, want the static pod once", got)
	}
	n.must(n.run(in(p, "c2")))
}

func TestAPodThatTheKubeletPinnedIsLeftAloneThoughOnlyTheRuntimeKnowsIt(t *testing.T) {
	t.Parallel()
	n := ready(t)
	n.facts.Model.Config.CPU = kubelet.CPU{Static: true, Reserved: cpuset.MustParse("0")}
	n.facts.Given = []tenancy.Grant{{UID: "static", CPUs: cpuset.MustParse("1")}}
	n.engine.SetFacts(n.facts)
	p := sandbox("static", "", "")
	p.Cgroup = "/kubepods/podstatic"
	c := in(p, "c1")
	n.must(n.tree.MkdirAll("kubepods/podstatic/c1"))
	n.must(n.tree.Write("kubepods/podstatic/c1", desired.CPUs, "1"))
	a, _, err := n.create(c)
	n.must(err)
	want(t, "cpus", a.CPUs, "")
	n.must(n.service.Start(t.Context(), c))
	n.must(n.engine.Verify())
	want(t, "the kernel's set", n.cpus(c), "1")
}

// A kubelet that was restarted with the policy none gives a restarted container no CPUs, while those that run keep
// theirs.
func TestAContainerThatRestartsAfterTheStaticKubeletHasThePoolOfItsClass(t *testing.T) {
	t.Parallel()
	n := ready(t)
	n.facts.Given = []tenancy.Grant{
		{UID: "pinned", CPUs: cpuset.MustParse("1")},
		{UID: "entitled", CPUs: cpuset.MustParse("2")},
	}
	n.engine.SetFacts(n.facts)
	n.must(n.run(in(sandbox("x", "LSE", "6-7"), "c0")))
	p := sandbox("pinned", "", "")
	n.engine.Update(desired.Pod{
		Entry:    ledger.Entry{UID: "pinned", Namespace: "ns", Name: "pod-pinned"},
		Pinnable: true,
	})
	runs, restarted := in(p, "c1"), in(p, "c2")
	runs.Name = "other"
	n.must(n.tree.MkdirAll("kubepods/burstable/podpinned/c1"))
	n.must(n.tree.Write("kubepods/burstable/podpinned/c1", desired.CPUs, "1"))
	_, err := n.tree.Spawn("kubepods/burstable/podpinned/c1")
	n.must(err)
	runs.Running = true
	n.service.Sync([]hook.Pod{p}, []hook.Container{runs})
	n.must(n.engine.Verify())

	a, _, err := n.create(restarted)
	n.must(err)
	want(t, "the CPUs of the container that restarts", a.CPUs, "0,3-5")
	// The pool is smaller by the time it starts.
	n.must(n.run(in(sandbox("y", "LSE", "4-5"), "c3")))
	n.must(n.service.Start(t.Context(), restarted))
	want(t, "the kernel's set of the container that restarts", n.cpus(restarted), "0,3")
	_, err = n.tree.Spawn("kubepods/burstable/podpinned/c2")
	n.must(err)
	n.must(n.engine.Verify())
	want(t, "the kernel's set of the container that restarted", n.cpus(restarted), "0,3")
	want(t, "the kernel's set of the one that runs", n.cpus(runs), "1")
	answer, err := n.service.Update(t.Context(), runs, hook.Resources{CPUs: "1"})
	n.must(err)
	want(t, "what an update of the one that runs is answered", answer.CPUs, "")

	through := late(p, "c4")
	through.Name = "third"
	through, err = n.admit(through)
	n.must(err)
	want(t, "the CPUs of one behind a proxy", through.Has.CPUs, "0,3")

	n.engine.Update(desired.Pod{Entry: ledger.Entry{
		UID: "entitled", Namespace: "ns", Name: "pod-entitled",
		Class: qos.LSE, Role: qos.Exclusive,
	}, Pinnable: true, Uses: true})
	_, _, err = n.service.Create(t.Context(), in(sandbox("entitled", "LSE", ""), "c5"))
	wantCause(t, err, apply.ErrUnallocated)
}

func TestAResynchronisationIsTheWholeTruth(t *testing.T) {
	t.Parallel()
	n := ready(t)
	gone, stays := in(sandbox("a", "LSE", "6-7"), "c1"), in(sandbox("b", "LS", ""), "c2")
	n.must(n.run(gone))
	n.must(n.run(stays))
	n.must(n.tree.Kill("kubepods/burstable/poda/c1"))
	stays.Running, stays.Has.CPUs = true, "0-7"
	n.service.Sync([]hook.Pod{stays.Pod}, []hook.Container{stays})
	n.must(n.engine.Verify())
	n.must(n.engine.Verify())
	want(t, "the shared container's set", n.cpus(stays), "0-7")
	if pushed := n.drain(); len(pushed) > 0 {
		t.Errorf("pushed %v, want nothing", pushed)
	}
	n.engine.Update(desired.FromAPI(convert.ReadPod(inAPI(sandbox("c", "LSE", "4-5")))))
	n.must(n.engine.Reconcile())
	if diff := cmp.Diff(map[string]string{"c2": "0-3,6-7"}, n.drain()); diff != "" {
		t.Errorf("pushed (-want +got):\n%s", diff)
	}
}

func TestADeadSandboxHoldsNoCPUs(t *testing.T) {
	t.Parallel()
	n := ready(t) // an agent that has just started: the API does not have these pods
	dead, empty, lives := in(sandbox("a", "LSE", "6-7"), "c1"), sandbox("b", "LSR", "4-5"),
		in(sandbox("c", "LSE", "2-3"), "c3")
	dead.Ended = true
	lives.Running, lives.Has.CPUs = true, "2-3"
	n.must(n.tree.MkdirAll("kubepods/burstable/podc/c3"))
	n.must(n.tree.Write("kubepods/burstable/podc/c3", desired.CPUs, "2-3"))
	_, err := n.tree.Spawn("kubepods/burstable/podc/c3")
	n.must(err)
	n.service.Sync([]hook.Pod{dead.Pod, empty, lives.Pod}, []hook.Container{dead, lives})
	n.must(n.engine.Verify())
	if got := n.engine.View().SharedPool(); got != cpuset.MustParse("0-1,4-7") {
		t.Errorf("the shared pool is %v, want 0-1,4-7: all but those of the pod that lives", got)
	}
	a, _, err := n.create(in(empty, "c2")) // a container makes its sandbox a living one
	n.must(err)
	want(t, "the CPUs of the sandbox's first container", a.CPUs, "4-5")
	if got := n.engine.View().SharedPool(); got != cpuset.MustParse("0-1,6-7") {
		t.Errorf("with that container the shared pool is %v, want 0-1,6-7", got)
	}
}

func TestAnAgentThatWritesNoCPUSetsSaysNothing(t *testing.T) {
	t.Parallel()
	n := ready(t, func(n *node, _ *hook.Options) { n.writes = false })
	c := in(sandbox("a", "LSE", ""), "c1")
	n.must(n.service.RunPod(t.Context(), c.Pod))
	a, updates, err := n.service.Create(t.Context(), c)
	n.must(err)
	u, err := n.service.Update(t.Context(), c, hook.Resources{CPUs: "0-3"})
	n.must(err)
	if a != (hook.Resources{}) || u != (hook.Resources{}) || len(updates) > 0 {
		t.Errorf("answers %v, %v, %v, want nothing", a, updates, u)
	}
	n.must(n.service.Check(t.Context(), c))
	n.must(n.service.Start(t.Context(), c))
}

// TestWhatCameWhileTheAgentWroteNothingIsKnownWhenItDoes: which groups are containers, and which a sandbox that makes
// room.
func TestWhatCameWhileTheAgentWroteNothingIsKnownWhenItDoes(t *testing.T) {
	t.Parallel()
	n := ready(t, func(n *node, _ *hook.Options) { n.writes = false })
	n.facts.Model.Config.CPU = kubelet.CPU{Static: true, Reserved: cpuset.MustParse("0")}
	n.facts.Given = []tenancy.Grant{{UID: "pinned", CPUs: cpuset.MustParse("1")}}
	n.engine.SetFacts(n.facts)
	p := sandbox("pinned", "", "")
	n.engine.Update(desired.Pod{
		Entry:    ledger.Entry{UID: "pinned", Namespace: "ns", Name: "pod-pinned"},
		Pinnable: true,
	})
	n.must(n.service.RunPod(t.Context(), p))
	for group, cpus := range map[string]string{"pause": "", "c1": "1"} {
		n.must(n.tree.MkdirAll("kubepods/burstable/podpinned/" + group))
		n.must(n.tree.Write("kubepods/burstable/podpinned/"+group, desired.CPUs, cpus))
		_, err := n.tree.Spawn("kubepods/burstable/podpinned/" + group)
		n.must(err)
	}
	n.must(n.service.Start(t.Context(), in(p, "c1")))
	n.writes = true
	n.must(n.engine.Verify())
	n.must(n.run(in(sandbox("x", "LSE", "6-7"), "c2")))
	want(t, "the kernel's set of the pinned container", n.cpus(in(p, "c1")), "1")
}

// TestNoSetsArePushedForContainersThatHaveEnded: a runtime keeps them until their pod is removed, and writes every set
// that it receives.
func TestNoSetsArePushedForContainersThatHaveEnded(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*node, hook.Container, hook.Container){
		"the runtime reported the end": func(n *node, ended, _ hook.Container) { n.service.Stop(ended) },
		"it found out when it connected": func(n *node, ended, runs hook.Container) {
			ended.Ended, runs.Running, ended.Has.CPUs, runs.Has.CPUs = true, true, "0-7", "0-7"
			n.service.Sync([]hook.Pod{runs.Pod}, []hook.Container{ended, runs})
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := ready(t)
			p := sandbox("a", "LS", "")
			ended, runs := in(p, "c1"), in(p, "c2")
			ended.Name = "init"
			n.must(n.run(ended))
			n.must(n.tree.Kill("kubepods/burstable/poda/c1"))
			n.must(n.run(runs))
			end(n, ended, runs)
			n.must(n.tree.Rmdir("kubepods/burstable/poda/c1"))
			n.must(n.engine.Verify())
			lse := in(sandbox("x", "LSE", "6-7"), "c3")
			n.engine.Update(desired.FromAPI(convert.ReadPod(inAPI(lse.Pod)))) // and no pass comes
			_, updates, err := n.create(lse)
			n.must(err)
			if diff := cmp.Diff([]hook.Update{{ContainerID: "c2", Resources: hook.Resources{CPUs: "0-5"}}},
				updates); diff != "" {
				t.Errorf("updates (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNoSetsArePushedWhileTheAgentWritesNothing: a set that the kubelet sends to the runtime meanwhile is replaced when
// the agent writes again.
func TestNoSetsArePushedWhileTheAgentWritesNothing(t *testing.T) {
	t.Parallel()
	n := ready(t)
	ls := in(sandbox("a", "LS", ""), "c1")
	n.must(n.run(ls))
	n.engine.Update(desired.FromAPI(convert.ReadPod(inAPI(sandbox("x", "LSE", "6-7")))))
	n.must(n.engine.Reconcile())
	n.writes = false
	if pushed := n.drain(); len(pushed) > 0 {
		t.Errorf("pushed %v while the agent writes nothing", pushed)
	}
	_, err := n.service.Update(t.Context(), ls, hook.Resources{CPUs: "0-5"}) // by chance what the agent wants
	n.must(err)
	n.writes = true
	n.must(n.engine.Verify())
	if pushed := n.drain(); len(pushed) > 0 {
		t.Errorf("pushed %v, want nothing: the kubelet has set the same", pushed)
	}
	n.writes = false
	_, err = n.service.Update(t.Context(), ls, hook.Resources{CPUs: "1"})
	n.must(err)
	n.writes = true
	n.must(n.engine.Verify())
	if diff := cmp.Diff(map[string]string{"c1": "0-5"}, n.drain()); diff != "" {
		t.Errorf("pushed (-want +got):\n%s", diff)
	}
}

// TestAPodThatTriesAgainAndAgainIsRememberedOnce: a runtime proxy reports neither sandboxes that it could not run, nor
// containers that it removes.
func TestAPodThatTriesAgainAndAgainIsRememberedOnce(t *testing.T) {
	t.Parallel()
	n := ready(t)
	p := sandbox("a", "LS", "")
	for i := range 100 {
		p.ID = fmt.Sprint("a/", i)
		n.must(n.service.RunPod(t.Context(), p))
	}
	n.must(n.tree.MkdirAll(p.Cgroup[1:]))
	other := late(p, "other")
	other.Name = "sidecar"
	_, err := n.admit(other)
	n.must(err)
	for i := range 100 {
		c, err := n.admit(late(p, fmt.Sprint("c", i)))
		n.must(err)
		n.must(n.begin(c))
		n.must(n.tree.Kill(p.Cgroup[1:] + "/" + c.ID))
		n.must(n.tree.Rmdir(p.Cgroup[1:] + "/" + c.ID))
	}
	if sandboxes, containers := hook.Size(n.service); sandboxes != 1 || containers != 2 {
		t.Errorf("%d sandboxes and %d containers are remembered, want 1 and 2", sandboxes, containers)
	}
}

// BenchmarkCreate: the runtime holds all container operations of the node while it waits for this answer.
func BenchmarkCreate(b *testing.B) {
	for _, pods := range []int{10, 250} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			n := ready(b)
			for i := range pods {
				n.must(n.run(in(sandbox(fmt.Sprint("p", i), "LS", ""), fmt.Sprint("c", i))))
			}
			exclusive := in(sandbox("x", "LSE", "6-7"), "x1")
			n.must(n.run(exclusive))
			slowest := time.Duration(0)
			took := make([]time.Duration, 0, 1000)
			b.ReportAllocs()
			for b.Loop() {
				began := time.Now()
				if _, _, err := n.service.Create(b.Context(), exclusive); err != nil {
					b.Fatal(err)
				}
				d := time.Since(began)
				slowest = max(slowest, d)
				took = append(took, d)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// BenchmarkStart: the last gate, which reads the kernel: of one group for a shared container, of all for an exclusive
// one.
func BenchmarkStart(b *testing.B) {
	for name, c := range map[string]hook.Container{
		"shared":    in(sandbox("x", "LS", ""), "x1"),
		"exclusive": in(sandbox("x", "LSE", "6-7"), "x1"),
	} {
		b.Run(name+"/pods=250", func(b *testing.B) {
			n := ready(b)
			for i := range 250 {
				n.must(n.run(in(sandbox(fmt.Sprint("p", i), "LS", ""), fmt.Sprint("c", i))))
			}
			n.must(n.run(c))
			b.ReportAllocs()
			for b.Loop() {
				if err := n.service.Start(b.Context(), c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
