package simnode

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is one simulated node without an API server: a fake one, the real engine, the kubelet under test.
type bench struct {
	t *testing.T
	// live: without a synctest bubble. The kubelet's managers use channels and clocks of their own.
	live bool
	// own: the agent's CPU sets hold, not the kubelet's.
	own    bool
	client *fake.Clientset
	dir    string
	spec   string
	n      *node
	engine *apply.Engine
	events *events.FakeRecorder
	stop   func()
	change func(*node) // of the machine's description, before the kubelet starts
}

func newClient() *fake.Clientset { return fake.NewClientset() }

// play runs f beside a node, in a bubble with a clock of its own.
func playNode(t *testing.T, spec string, f func(*bench)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, own: true, client: fake.NewClientset(), dir: filepath.Join(testkit.Dir(t), "n0"), spec: spec}
		b.boot()
		defer func() { b.stop() }()
		f(b)
	})
}

// owner is the agent of the node of a bench: it decides about cpusets if that is the bench's own.
type owner struct {
	hook.Standalone
	b *bench
}

func (o owner) Writes() bool { return o.b.own }

// playLive runs f beside a node whose kubelet decides with its own managers.
func playLive(t *testing.T, spec string, f func(*bench)) {
	t.Helper()
	t.Parallel()
	b := &bench{t: t, live: true, client: fake.NewClientset(), dir: filepath.Join(testkit.Dir(t), "n0"), spec: spec}
	b.boot()
	defer func() { b.stop() }()
	f(b)
}

// until waits for a pod to be as wanted and returns it.
func (b *bench) until(name, what string, holds func(*corev1.Pod) bool) *corev1.Pod {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) { //nolint:forbidigo // see live
		pod, err := b.client.CoreV1().Pods("default").Get(b.t.Context(), name, metav1.GetOptions{})
		if err == nil && holds(pod) {
			return pod
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("waited a minute until pod %s %s: %+v, %v", name, what, pod.Status, err)
		}
	}
}

func runs(p *corev1.Pod) bool   { return p.Status.Phase == corev1.PodRunning }
func failed(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed }

// boot starts the node's process.
func (b *bench) boot() {
	b.t.Helper()
	d, _, err := machine.Parse(b.spec)
	testkit.Check(b.t, err)
	o := Options{
		Reconcile: 5 * time.Millisecond,
		Nodes:     []Node{{Name: "n0", Machine: d, Dir: b.dir, Client: b.client}},
	}
	if b.n, err = open(o, 0, 10250); err != nil {
		b.t.Fatal(err)
	}
	if b.change != nil {
		b.change(b.n)
	}
	b.events = events.NewFakeRecorder(100)
	b.n.events = b.events
	b.engine = apply.New(apply.Options{Cgroup: b.n.tree, Checkpoint: apply.File(filepath.Join(b.dir, "grants.json"))})
	b.engine.SetFacts(ledger.Facts{Machine: b.n.kubelet.machine, MinSharedCPUs: -1})
	list, err := b.client.CoreV1().Pods("").List(b.t.Context(), metav1.ListOptions{})
	testkit.Check(b.t, err)
	live := map[string]bool{}
	for i := range list.Items {
		b.tell(&list.Items[i])
		live[string(list.Items[i].UID)] = true
	}
	b.engine.Prune(maps.Keys(live))
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	b.n.kubelet.connect(hook.New(hook.Options{Engine: b.engine, Agent: owner{b: b}}))
	go func() {
		defer close(done)
		b.n.kubelet.run(ctx)
	}()
	b.stop = func() {
		cancel()
		<-done
		if managers := b.n.kubelet.gate.kubelet(); managers != nil {
			select {
			case <-managers.Ended(): // else a last turn of theirs writes into the folder that the test removes
			case <-time.After(time.Minute):
			}
		}
	}
	if b.live {
		return
	}
	time.Sleep(time.Second) //nolint:forbidigo // the clock is the bubble's
	synctest.Wait()
}

func (b *bench) tell(pod *corev1.Pod) {
	e, _ := convert.EntryUnder(convert.Args{}, pod)
	b.engine.Update(desired.Pod{Entry: e})
}

// bind puts a bound pod into the API.
func (b *bench) bind(pod *corev1.Pod) *corev1.Pod {
	b.t.Helper()
	b.create(pod)
	return b.after(10*time.Millisecond, pod.Name)
}

func (b *bench) create(pod *corev1.Pod) {
	b.t.Helper()
	pod.Spec.NodeName = "n0"
	pod.UID = types.UID("uid-" + pod.Name)
	pod.Namespace = "default"
	if pod.Status.QOSClass == "" {
		_, _, kube := convert.PodQoS(pod)
		pod.Status.QOSClass = []corev1.PodQOSClass{
			corev1.PodQOSBestEffort, corev1.PodQOSBurstable,
			corev1.PodQOSGuaranteed,
		}[kube]
	}
	if b.own {
		b.tell(pod)
	}
	if _, err := b.client.CoreV1().Pods("default").Create(b.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

// after lets time pass and returns the pod; nil when it is gone.
func (b *bench) after(d time.Duration, name string) *corev1.Pod {
	b.t.Helper()
	time.Sleep(d) //nolint:forbidigo // the clock is the bubble's
	synctest.Wait()
	pod, err := b.client.CoreV1().Pods("default").Get(b.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	testkit.Check(b.t, err)
	return pod
}

// leaves returns group → cpuset.cpus of every group that holds a task.
func (b *bench) leaves() map[string]string {
	out := map[string]string{}
	for _, g := range b.n.tree.Snapshot() {
		if g.Tasks > 0 {
			out[g.Path] = b.n.kubelet.machine.FormatList(g.CPUs)
		}
	}
	return out
}

func (b *bench) delete(name string) {
	found, err := b.client.CoreV1().Pods("default").Get(b.t.Context(), name, metav1.GetOptions{})
	testkit.Check(b.t, err)
	pod := found.DeepCopy()
	now := metav1.Now()
	pod.DeletionTimestamp = &now
	pod.Finalizers = nil
	testkit.Check(b.t, b.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), pod, "default"))
}

func podOf(name string, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := object.Pod(name, object.UID(""), object.Container("main", "app"), policy(corev1.RestartPolicyAlways))
	pod.Namespace = ""
	if cpu != "" {
		object.Both("cpu", cpu, "memory", "1Gi")(pod)
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func class(name string) func(*corev1.Pod) { return object.Class(name) }

func allocated(cpus string) func(*corev1.Pod) { return object.CPUs(cpus) }

func simulate(text string) func(*corev1.Pod) { return object.Annotation(annotation.SimulateKey, text) }

func policy(r corev1.RestartPolicy) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.RestartPolicy = r }
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func TestBoundPodRunsOnItsCPUsAndTheOthersDoNot(t *testing.T) {
	playNode(t, "arm64-1s", func(b *bench) {
		shared := b.bind(podOf("shared", "1", class("LS")))
		bound := b.bind(podOf("bound", "4", class("LSE"), allocated("0-3")))
		for _, p := range []*corev1.Pod{shared, bound} {
			if p.Status.Phase != corev1.PodRunning || !isReady(p) || !strings.HasPrefix(p.Status.PodIP, "10.") {
				t.Errorf("pod %s is %s, ready %t, address %q", p.Name, p.Status.Phase, isReady(p), p.Status.PodIP)
			}
		}
		for group, cpus := range b.leaves() {
			want := "4-63"
			if strings.Contains(group, "uid-bound") {
				want = "0-3"
			}
			if cpus != want {
				t.Errorf("%s runs on %q, want %q", group, cpus, want)
			}
			if quota, _ := b.n.tree.Read(group, desired.QuotaV2); want == "0-3" && quota != "max 100000" {
				t.Errorf("%s has the quota %q beside its cpuset", group, quota)
			}
		}
	})
}

func TestPodIsReadyOnceItsReadinessGatesHold(t *testing.T) {
	playNode(t, "arm64-1s", func(b *bench) {
		const first, second = "example.com/first", "example.com/second"
		b.bind(podOf("gated", "1", class("LS"), func(p *corev1.Pod) {
			p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: first}, {ConditionType: second}}
		}))
		set := func(kind corev1.PodConditionType, status corev1.ConditionStatus) *corev1.Pod {
			pod := b.after(time.Second, "gated").DeepCopy()
			podutil.UpdatePodCondition(&pod.Status, &corev1.PodCondition{Type: kind, Status: status})
			_, err := b.client.CoreV1().Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
			testkit.Check(t, err)
			return b.after(time.Second, "gated")
		}
		for _, c := range []struct {
			gate   corev1.PodConditionType
			status corev1.ConditionStatus
			ready  bool
		}{
			{first, corev1.ConditionTrue, false}, // the second is missing
			{second, corev1.ConditionFalse, false},
			{second, corev1.ConditionTrue, true},
			{first, corev1.ConditionFalse, false},
		} {
			pod := set(c.gate, c.status)
			_, ready := podutil.GetPodCondition(&pod.Status, corev1.PodReady)
			_, containers := podutil.GetPodCondition(&pod.Status, corev1.ContainersReady)
			if isReady(pod) != c.ready || !c.ready && ready.Reason != "ReadinessGatesNotReady" ||
				containers.Status != corev1.ConditionTrue || pod.Status.Phase != corev1.PodRunning {
				t.Errorf("after %s is %s, ready is %+v, containers ready %+v; want ready %t", c.gate, c.status, ready,
					containers, c.ready)
			}
		}
	})
}

// TestPodsThatEndLeaveTheirAddress to others: a node has 253, and the API keeps pods that have ended.
func TestPodsThatEndLeaveTheirAddress(t *testing.T) {
	playNode(t, "arm64-1s", func(b *bench) {
		for i := range 260 {
			name := fmt.Sprint("ends-", i)
			b.bind(podOf(name, "1", class("LS"), policy(corev1.RestartPolicyNever), simulate(`{"runFor":"1s"}`)))
			if p := b.after(5*time.Second, name); p.Status.Phase != corev1.PodSucceeded || p.Status.PodIP == "" {
				t.Fatalf("pod %s is %s, with the address %q", name, p.Status.Phase, p.Status.PodIP)
			}
		}
		runs := b.bind(podOf("runs", "1", class("LS")))
		b.stop()
		b.boot()
		if p := b.after(time.Minute, "runs"); p.Status.PodIP == "" || p.Status.PodIP != runs.Status.PodIP {
			t.Errorf("after a restart the address of a pod is %q, was %q", p.Status.PodIP, runs.Status.PodIP)
		}
	})
}

func TestDeletedPodLeavesNothing(t *testing.T) {
	playNode(t, "arm64-1s", func(b *bench) {
		b.bind(podOf("bound", "4", class("LSE"), allocated("0-3")))
		b.delete("bound")
		if p := b.after(time.Second, "bound"); p != nil {
			t.Errorf("the pod is still there: %v", p.Status)
		}
		if left, err := b.n.tree.Children("kubepods"); err != nil || len(left) > 0 {
			t.Errorf("groups %v are left (%v)", left, err)
		}
	})
}

func TestForceDeletedPodLeavesNothing(t *testing.T) {
	playNode(t, "arm64-1s", func(b *bench) {
		b.bind(podOf("bound", "4", class("LSE"), allocated("0-3")))
		testkit.Check(t, b.client.CoreV1().Pods("default").Delete(t.Context(), "bound", metav1.DeleteOptions{}))
		b.after(time.Second, "bound")
		if len(b.leaves()) > 0 {
			t.Errorf("groups %v are left", b.leaves())
		}
	})
}

func TestContainerThatCannotBeEnforcedDoesNotStart(t *testing.T) {
	playNode(t, "arm64-1s", func(b *bench) {
		p := b.bind(podOf("foreign", "4", class("LSE")))
		waiting := p.Status.ContainerStatuses[0].State.Waiting
		if p.Status.Phase != corev1.PodPending || waiting == nil || waiting.Reason != "UnallocatedExclusivePod" {
			t.Errorf("status is %s, %+v; want Pending and UnallocatedExclusivePod", p.Status.Phase, waiting)
		}
		select {
		case e := <-b.events.Events:
			if !strings.Contains(e, "UnallocatedExclusivePod") {
				t.Errorf("the Event says %q", e)
			}
		default:
			t.Error("no Event was sent")
		}
		if len(b.leaves()) > 0 {
			t.Errorf("something runs: %v", b.leaves())
		}
	})
}

func TestContainersEndAsTheirPolicySays(t *testing.T) {
	job := func(p *corev1.Pod) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "j", Controller: &yes}}
	}
	tests := map[string]struct {
		pod      *corev1.Pod
		after    time.Duration
		phase    corev1.PodPhase
		restarts int32
	}{
		"a pod runs until it is deleted": {podOf("p", "1"), time.Hour, corev1.PodRunning, 0},
		"a Job's pod runs for a moment": {
			podOf("p", "1", job, policy(corev1.RestartPolicyNever)),
			900 * time.Millisecond, corev1.PodRunning, 0,
		},
		"a Job's pod succeeds after a second": {
			podOf("p", "1", job, policy(corev1.RestartPolicyNever)),
			1100 * time.Millisecond, corev1.PodSucceeded, 0,
		},
		"a failed container is not restarted on Never": {podOf("p", "1", simulate(`{"runFor":"5s","exitCode":1}`),
			policy(corev1.RestartPolicyNever)), 6 * time.Second, corev1.PodFailed, 0},
		"a failed container is restarted on OnFailure": {podOf("p", "1", simulate(`{"runFor":"5s","exitCode":1}`),
			policy(corev1.RestartPolicyOnFailure)), 6 * time.Second, corev1.PodRunning, 1},
		"a good end stays on OnFailure": {podOf("p", "1", simulate(`{"runFor":"5s"}`),
			policy(corev1.RestartPolicyOnFailure)), 6 * time.Second, corev1.PodSucceeded, 0},
		"every end is followed by a start on Always": {
			podOf("p", "1", simulate(`{"runFor":"5s"}`)), 20 * time.Second,
			corev1.PodRunning, 3,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			playNode(t, "arm64-1s", func(b *bench) {
				b.bind(tt.pod)
				p := b.after(tt.after, "p")
				if got := p.Status.ContainerStatuses[0].RestartCount; p.Status.Phase != tt.phase || got != tt.restarts {
					t.Errorf("phase %s after %d restarts, want %s after %d", p.Status.Phase, got, tt.phase, tt.restarts)
				}
				if running := len(b.leaves()) > 0; running != (tt.phase == corev1.PodRunning) {
					t.Errorf("phase is %s, and these run: %v", p.Status.Phase, b.leaves())
				}
			})
		})
	}
}

func TestInitContainersRunBeforeTheOthersAndSidecarsKeepRunning(t *testing.T) {
	playNode(t, "arm64-1s", func(b *bench) {
		always := corev1.ContainerRestartPolicyAlways
		pod := podOf("p", "1", simulate(`{"runFor":"5s"}`), policy(corev1.RestartPolicyNever), func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: &always}, {Name: "prepare"}}
		})
		p := b.bind(pod)
		if got := p.Status.ContainerStatuses[0].State.Waiting; got == nil || p.Status.Phase != corev1.PodPending {
			t.Errorf("the main container is %+v in phase %s before the init container ended",
				p.Status.ContainerStatuses[0].State, p.Status.Phase)
		}
		if n := len(b.leaves()); n != 2 {
			t.Errorf("%d containers run, want the sidecar and the init container", n)
		}
		p = b.after(time.Second, "p")
		if !isReady(p) || p.Status.InitContainerStatuses[1].State.Terminated == nil ||
			p.Status.InitContainerStatuses[0].State.Running == nil {
			t.Errorf("after the init container: %+v", p.Status)
		}
		p = b.after(5*time.Second, "p")
		if p.Status.Phase != corev1.PodSucceeded || len(b.leaves()) > 0 {
			t.Errorf("phase is %s and %v run, want Succeeded and nothing: a sidecar ends with the last main container",
				p.Status.Phase, b.leaves())
		}
	})
}

func TestRestartedProcessTakesContainersUp(t *testing.T) {
	playNode(t, "arm64-1s", func(b *bench) {
		b.bind(podOf("bound", "4", class("LSE"), allocated("0-3")))
		before := b.bind(podOf("shared", "1", class("LS")))
		was := b.leaves()
		gone := b.bind(podOf("gone", "1", class("LS")))
		b.stop()
		testkit.Check(t, b.client.CoreV1().Pods("default").Delete(t.Context(), gone.Name, metav1.DeleteOptions{}))
		time.Sleep(time.Minute) //nolint:forbidigo // the clock is the bubble's
		b.boot()
		after := b.after(time.Minute, "shared")
		if got := b.leaves(); !maps.Equal(was, got) {
			t.Errorf("running groups were %v, are %v", was, got)
		}
		old, now := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]
		if old.ContainerID != now.ContainerID || now.RestartCount != 0 || before.Status.PodIP != after.Status.PodIP {
			t.Errorf("the container was %s on %s, is %s on %s after %d restarts", old.ContainerID, before.Status.PodIP,
				now.ContainerID, after.Status.PodIP, now.RestartCount)
		}
	})
}

func TestContainersKeepTheirNamesAfterTheProcessIsKilled(t *testing.T) {
	playNode(t, "arm64-1s", func(b *bench) {
		b.bind(podOf("bound", "4", class("LSE"), allocated("0-3")))
		b.bind(podOf("shared", "1", class("LS")))
		names := func(pod string) (out []string) {
			sights, err := b.engine.Inspect("uid-" + pod)
			testkit.Check(t, err)
			for _, s := range sights {
				out = append(out, s.Container)
			}
			return out
		}
		was := map[string][]string{"bound": names("bound"), "shared": names("shared")}
		b.stop()
		b.boot()
		b.after(time.Minute, "bound")
		for pod, want := range was {
			if got := names(pod); !slices.Contains(want, "main") || !slices.Equal(got, want) {
				t.Errorf("pod %s: the containers of its groups were %q, are %q", pod, want, got)
			}
		}
	})
}

func TestKubectlGetsAClearText(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/containerLogs/default/p/main": "no logs",
		"/exec/default/p/main":          "nothing can be executed",
		"/attach/default/p/main":        "nothing can be executed",
	} {
		w := httptest.NewRecorder()
		handler(metrics.NewKubeRegistry(), nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if !strings.Contains(w.Body.String(), want) || !strings.HasPrefix(w.Body.String(), "simulated container: ") {
			t.Errorf("%s answers %q, want a text with %q", path, w.Body.String(), want)
		}
	}
}
