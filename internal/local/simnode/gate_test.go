package simnode

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	nodeutil "k8s.io/kubernetes/pkg/util/node"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/local/admit"
	"github.com/tenon-project/tenon/internal/testkit"
)

// onMemory changes the memory that a pod asks for.
func onMemory(amount string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		r := &p.Spec.Containers[0].Resources
		r.Requests[corev1.ResourceMemory] = resource.MustParse(amount)
		r.Limits = r.Requests
	}
}

// in returns the cpuset and the memory nodes of a pod's only container.
func (b *bench) in(pod *corev1.Pod) (cpus, mems string) {
	b.t.Helper()
	id := strings.TrimPrefix(pod.Status.ContainerStatuses[0].ContainerID, "tenon://")
	group := filepath.Join(groupOf(pod), id)
	read := func(file string) string {
		text, err := b.n.tree.Read(group, file)
		testkit.Check(b.t, err)
		return strings.TrimSpace(text)
	}
	return read(desired.CPUs), read(desired.Mems)
}

func size(t *testing.T, list string) int {
	t.Helper()
	ids, err := cpuset.ParseIDs(list)
	testkit.Check(t, err)
	return len(ids)
}

func TestPodThatCannotBeAlignedFailsWithTheKubeletsReason(t *testing.T) {
	playLive(t, "epyc-2s@static,restricted,memory-static", func(b *bench) {
		b.create(podOf("torn", "40")) // two nodes of CPUs, one of memory
		torn := b.until("torn", "fails", failed)
		if torn.Status.Reason != "TopologyAffinityError" ||
			torn.Status.Message != "Pod was rejected: Resources cannot be allocated with Topology locality" {
			t.Errorf("status is %s: %s", torn.Status.Reason, torn.Status.Message)
		}
		b.create(podOf("whole", "16", onMemory("20Gi")))
		whole := b.until("whole", "runs", runs)
		if cpus, mems := b.in(whole); size(t, cpus) != 16 || mems != "0" {
			t.Errorf("the aligned pod runs on %q and memory of %q, want 16 CPUs and node 0", cpus, mems)
		}
		select {
		case e := <-b.events.Events:
			if !strings.Contains(e, "TopologyAffinityError") {
				t.Errorf("the Event says %q", e)
			}
		default:
			t.Error("no Event was sent")
		}
		if len(b.leaves()) != 1 {
			t.Errorf("these run: %v, want the aligned pod alone", b.leaves())
		}
	})
}

func TestKubeletsReasonsReachThePod(t *testing.T) {
	for name, test := range map[string]struct {
		spec   string
		pod    *corev1.Pod
		reason string
	}{
		"more than the node, with the policy none": {"xeon-2s", podOf("p", "97"), "OutOfcpu"},
		"half a core":             {"xeon-2s@static,full-pcpus-only", podOf("p", "3"), "SMTAlignmentError"},
		"too many exclusive CPUs": {"xeon-2s@static", podOf("p", "96"), "UnexpectedAdmissionError"},
		"too many CPUs":           {"xeon-2s@static", podOf("p", "94500m"), "OutOfcpu"},
		"more than a node's memory": {
			"xeon-2s@memory-static,single-numa-node,none", podOf("p", "1", onMemory("250Gi")),
			"TopologyAffinityError",
		},
		"a label that the node has not": {"xeon-2s@static", podOf("p", "1", func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{"disk": "fast"}
		}), "NodeAffinity"},
	} {
		t.Run(name, func(t *testing.T) {
			playLive(t, test.spec, func(b *bench) {
				testkit.Check(t, b.n.register(t.Context()))
				b.create(test.pod)
				if p := b.until("p", "fails", failed); p.Status.Reason != test.reason ||
					!strings.HasPrefix(p.Status.Message, "Pod was rejected: ") {
					t.Errorf("status is %s: %s, want %s", p.Status.Reason, p.Status.Message, test.reason)
				}
			})
		})
	}
}

// The manager writes amounts of batch pods into the Node, and a kubelet admits by the Node of the API server.
func TestABatchPodIsAdmittedByTheAmountsOfTheNode(t *testing.T) {
	playLive(t, "xeon-2s", func(b *bench) {
		testkit.Check(t, b.n.register(t.Context()))
		nodes := b.n.Client.CoreV1().Nodes()
		node, err := nodes.Get(t.Context(), b.n.Name, metav1.GetOptions{})
		testkit.Check(t, err)
		node.Status.Allocatable["kubernetes.io/batch-cpu"] = resource.MustParse("15k")
		_, err = nodes.UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
		testkit.Check(t, err)
		batch := func(amount string) func(*corev1.Pod) {
			return func(p *corev1.Pod) {
				asked := corev1.ResourceList{"kubernetes.io/batch-cpu": resource.MustParse(amount)}
				p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: asked, Limits: asked}
			}
		}
		b.create(podOf("small", "1", batch("10k")))
		b.until("small", "runs", runs)
		b.create(podOf("large", "1", batch("6k")))
		if p := b.until("large", "fails", failed); p.Status.Reason != "OutOfkubernetes.io/batch-cpu" {
			t.Errorf("status is %s: %s", p.Status.Reason, p.Status.Message)
		}
		b.create(podOf("plain", "1"))
		b.until("plain", "runs", runs)
	})
}

// What a pod held is free again when it is gone, containers of the shared pool get out of the way, and the agent reads
// it all from the files of the kubelet.
func TestCPUsGoFromPodToPod(t *testing.T) {
	playLive(t, "arm64-1s@static,reserved=0", func(b *bench) {
		b.create(podOf("shared", "", policy(corev1.RestartPolicyAlways)))
		shared := b.until("shared", "runs", runs)
		b.create(podOf("first", "60"))
		first := b.until("first", "runs", runs)
		if cpus, _ := b.in(first); cpus != "1-60" {
			t.Errorf("the first pod runs on %q, want 1-60", cpus)
		}
		b.until("shared", "has left the CPUs",
			func(*corev1.Pod) bool { cpus, _ := b.in(shared); return cpus == "0,61-63" })
		b.create(podOf("second", "20"))
		if p := b.until("second", "fails", failed); p.Status.Reason != "UnexpectedAdmissionError" {
			t.Errorf("the second pod fails with %s", p.Status.Reason)
		}
		b.delete("first")
		b.until("shared", "has the CPUs back",
			func(*corev1.Pod) bool { cpus, _ := b.in(shared); return cpus == "0-63" })
		b.create(podOf("third", "20"))
		third := b.until("third", "runs", runs)
		state, err := host.ReadCPUState(b.n.root)
		testkit.Check(t, err)
		cpus, _ := b.in(third)
		if got := cpuset.FormatIDs(state.Pods[string(third.UID)]); got != cpus || len(state.Pods) != 1 {
			t.Errorf("the agent reads %v, the container runs on %s", state.Pods, cpus)
		}
	})
}

func TestAgentThatOwnsTheCPUsHasTheLastWord(t *testing.T) {
	t.Parallel()
	b := &bench{
		t: t, live: true, own: true, client: nil, dir: filepath.Join(t.TempDir(), "n0"),
		spec: "arm64-1s@static,reserved=0",
	}
	b.client = newClient()
	b.boot()
	defer func() { b.stop() }()
	b.create(podOf("shared", "1", class("LS"), func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = nil }))
	shared := b.until("shared", "runs", runs)
	b.create(podOf("bound", "4", class("LSE"), allocated("8-11")))
	bound := b.until("bound", "runs", runs)
	if cpus, _ := b.in(bound); cpus != "8-11" {
		t.Errorf("the pod runs on %q, the agent wants 8-11", cpus)
	}
	state, err := host.ReadCPUState(b.n.root)
	if err != nil || len(state.Pods[string(bound.UID)]) != 4 {
		t.Errorf("the kubelet has given %v (%v), want 4 CPUs of its own choice", state.Pods, err)
	}
	time.Sleep(50 * time.Millisecond) //nolint:forbidigo // ten reconciliations of the kubelet
	if cpus, _ := b.in(shared); cpus != "0-7,12-63" {
		t.Errorf("the shared container runs on %q, the agent wants 0-7,12-63", cpus)
	}
}

func TestRestartedKubeletKeepsWhatItGave(t *testing.T) {
	playLive(t, "epyc-2s@restricted,memory-static", func(b *bench) {
		b.create(podOf("a", "30", onMemory("100Gi")))
		b.create(podOf("b", "8", onMemory("100Gi")))
		was := map[string]string{}
		for _, name := range []string{"a", "b"} {
			cpus, mems := b.in(b.until(name, "runs", runs))
			was[name] = cpus + " " + mems
		}
		b.stop()
		b.boot()
		b.create(podOf("c", "2", onMemory("100Gi")))
		b.until("c", "runs", runs)
		for name, before := range was {
			p := b.until(name, "runs", runs)
			if cpus, mems := b.in(p); cpus+" "+mems != before || p.Status.ContainerStatuses[0].RestartCount != 0 {
				t.Errorf("pod %s had %s, has %s %s after %d restarts", name, before, cpus, mems,
					p.Status.ContainerStatuses[0].RestartCount)
			}
		}
		state, err := os.ReadFile(filepath.Join(b.dir, "var/lib/kubelet/memory_manager_state"))
		if err != nil || strings.Count(string(state), `"main"`) != 3 {
			t.Errorf("memory_manager_state is %s (%v), want three containers", state, err)
		}
	})
}

func TestPolicyNoneKeepsNoAllocationsOfAnEarlierPolicy(t *testing.T) {
	t.Parallel()
	b := &bench{t: t, live: true, client: newClient(), dir: filepath.Join(t.TempDir(), "n0"), spec: "arm64-1s@static"}
	b.boot()
	b.create(podOf("p", "4"))
	b.until("p", "runs", runs)
	b.stop()
	b.spec = "arm64-1s"
	b.boot()
	defer func() { b.stop() }()
	b.create(podOf("q", "1"))
	b.until("q", "runs", runs) // the managers have started
	if state, err := host.ReadCPUState(b.n.root); err != nil || state.Policy != "none" || len(state.Pods) > 0 {
		t.Errorf("the agent reads %+v (%v) of a kubelet that pins nothing", state, err)
	}
}

func TestBrokenKubeletIsTheNodesConditionAndNotTheProcesssEnd(t *testing.T) {
	playLive(t, "arm64-1s@static", func(b *bench) {
		testkit.Check(t, b.n.register(t.Context()))
		if c := b.n.kubelet.gate.ready(time.Now()); c.Status != corev1.ConditionTrue {
			t.Errorf("a node that works is %+v", c)
		}
		b.n.kubelet.gate.fail(t.Context(), "KubeletPanicked", &admit.Panic{Value: "index out of range"})
		node, err := b.client.CoreV1().Nodes().Get(t.Context(), "n0", metav1.GetOptions{})
		testkit.Check(t, err)
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && (c.Status != corev1.ConditionFalse || c.Reason != "KubeletPanicked" ||
				!strings.Contains(c.Message, "index out of range")) {
				t.Errorf("the node is %+v", c)
			}
		}
	})
}

func TestNodeThatWasTakenForDeadIsReadyAgain(t *testing.T) {
	playLive(t, "arm64-1s", func(b *bench) {
		nodes := b.client.CoreV1().Nodes()
		testkit.Check(t, b.n.register(t.Context()))
		late := []byte(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown"}]}}`)
		if _, err := nodes.PatchStatus(t.Context(), "n0", late); err != nil {
			t.Fatal(err)
		}
		testkit.Check(t, b.n.updateReady(t.Context()))
		node, err := nodes.Get(t.Context(), "n0", metav1.GetOptions{})
		if err != nil || !nodeutil.IsNodeReady(node) {
			t.Errorf("the node's conditions are %+v (%v), want it ready", node.Status.Conditions, err)
		}
	})
}

func TestKubeletThatDoesNotStartIsTheNodesCondition(t *testing.T) {
	t.Parallel()
	b := &bench{t: t, live: true, client: newClient(), dir: filepath.Join(t.TempDir(), "n0"), spec: "arm64-1s@static"}
	b.change = func(n *node) { n.Machine.Kubelet.Topology.Policy = "strict" }
	b.boot()
	defer func() { b.stop() }()
	b.create(podOf("p", "1"))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) { //nolint:forbidigo // see live
		c := b.n.kubelet.gate.ready(time.Now())
		if c.Status == corev1.ConditionFalse {
			if c.Reason != "KubeletDoesNotStart" || !strings.Contains(c.Message, `unknown policy: "strict"`) {
				t.Errorf("the node is %+v", c)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the node stays ready")
		}
	}
	if p, err := b.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{}); err != nil || runs(p) {
		t.Errorf("pod is %+v (%v): want no start without admission", p.Status, err)
	}
}

func TestSlowDecisionIsSaid(t *testing.T) {
	t.Parallel()
	g := newGate(nil)
	began := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	g.setBusy(types.NamespacedName{}, began)
	if c := g.ready(began.Add(5 * time.Second)); strings.Contains(c.Message, "deciding") {
		t.Errorf("after five seconds: %s", c.Message)
	}
	if c := g.ready(began.Add(time.Minute)); c.Status != corev1.ConditionTrue ||
		!strings.Contains(c.Message, "since 10:00:00") {
		t.Errorf("after a minute: %+v", c)
	}
	g.setBusy(types.NamespacedName{}, time.Time{})
	if c := g.ready(began.Add(time.Minute)); strings.Contains(c.Message, "deciding") {
		t.Errorf("afterwards: %s", c.Message)
	}
}

func TestUpdatesFindTheirContainer(t *testing.T) {
	playLive(t, "arm64-1s@static", func(b *bench) {
		g := b.n.kubelet.gate
		if err := g.update("unknown", "0-3"); !errors.Is(err, errNoContainer) {
			t.Errorf("update of an unknown container: %v", err)
		}
		b.n.kubelet.connect(nil)
		if err := g.update("unknown", "0-3"); !errors.Is(err, errNoAgent) {
			t.Errorf("update while no agent runs: %v, want it to be tried again", err)
		}
	})
}

func TestNodeSaysWhatItsMachineIs(t *testing.T) {
	playLive(t, "xeon-2s@follow,memory-static,version=1.37.1", func(b *bench) {
		for range 2 { // the second time the Node is there already
			testkit.Check(t, b.n.register(t.Context()))
		}
		got, err := b.client.CoreV1().Nodes().Get(t.Context(), "n0", metav1.GetOptions{})
		testkit.Check(t, err)
		s := got.Status
		if c, a := s.Capacity.Cpu().Value(),
			s.Allocatable.Cpu().Value(); c != 96 || a != 94 || got.Labels[corev1.LabelArchStable] != "amd64" {
			t.Errorf("%d CPUs, %d to give, labels %v; want 96, 94 and amd64", c, a, got.Labels)
		}
		if c, a := s.Capacity.Memory().Value(), s.Allocatable.Memory().Value(); c != 384<<30 || a != 383<<30 {
			t.Errorf("%d bytes of memory, %d to give, want 384 and 383 GiB", c, a)
		}
		if s.NodeInfo.KubeletVersion != "v1.37.1" || got.Labels[annotation.TopologyMode] != annotation.ModeFollow {
			t.Errorf("kubelet %s, labels %v; want v1.37.1 and the wish to follow", s.NodeInfo.KubeletVersion,
				got.Labels)
		}
		go b.n.lease().Run(t.Context())
		if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) {
				leases := b.client.CoordinationV1().Leases("kube-node-lease")
				l, err := leases.Get(ctx, "n0", metav1.GetOptions{})
				return err == nil && *l.Spec.LeaseDurationSeconds == leaseSeconds, nil
			}); err != nil {
			t.Error("the node has no lease")
		}
	})
}

func TestWishToFollowDoesNotOverrulePeople(t *testing.T) {
	for had, want := range map[string]string{"": "Follow", "Own": "Own"} {
		t.Run("the label is "+had, func(t *testing.T) {
			playLive(t, "arm64-1s@follow", func(b *bench) {
				labels := map[string]string{}
				if had != "" {
					labels[annotation.TopologyMode] = had
				}
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0", Labels: labels}}
				if _, err := b.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				testkit.Check(t, errors.Join(b.n.register(t.Context()), b.n.labelFollow(t.Context())))
				got, err := b.client.CoreV1().Nodes().Get(t.Context(), "n0", metav1.GetOptions{})
				if err != nil || got.Labels[annotation.TopologyMode] != want {
					t.Errorf("labels are %v (%v), want %s", got.Labels, err, want)
				}
			})
		})
	}
}
