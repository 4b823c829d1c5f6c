//go:build e2e_guest

package guest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/test/e2e/node/guest/vm"
	"github.com/tenon-project/tenon/test/e2e/node/guest/wire"
)

// two is a machine of two sockets, a NUMA node each.
var two = vm.Shape{
	Name: "numa2", Sockets: 2, Dies: 1, Cores: 4, Threads: 2, MemoryMiB: 1536, Distance: [][]int{{10, 21}, {21, 10}},
}

// residents are pods that run on while everything around them is restarted.
type residents struct {
	lse, lsr, ls, be, plain *corev1.Pod
}

func (r *residents) pods() []*corev1.Pod { return []*corev1.Pod{r.lse, r.lsr, r.ls, r.be, r.plain} }

// sets are the CPUs that the residents have to have beside pods that hold others for themselves.
func (r *residents) sets(t *testing.T, n *node, others ...*corev1.Pod) map[*corev1.Pod]cpuset.Set {
	t.Helper()
	lse, lsr := allocated(t, r.lse), allocated(t, r.lsr)
	pool := n.all().Minus(lse).Minus(lsr)
	best := n.all().Minus(lse)
	for _, p := range others {
		pool, best = pool.Minus(allocated(t, p)), best.Minus(allocated(t, p))
	}
	return map[*corev1.Pod]cpuset.Set{r.lse: lse, r.lsr: lsr, r.ls: pool, r.plain: pool, r.be: best}
}

func TestTwoNodes(t *testing.T) {
	g := begin(t, two)
	check(t, two, "cpuset partitions are only as true as what is read back",
		func(t *testing.T) { partitionsAreOnlyAsTrueAsReadBack(t, g) })
	check(t, two, "the kernel's rules for cgroup v2 are those of the simulated kernel",
		func(t *testing.T) { kernelAgrees(t, g) })
	n := join(t, g, two, KubeletPolicy{CPUManager: "none", Reserved: "0"}, "--resync=2s")

	r := startResidents(t, n)
	check(t, two, "sandboxes keep off the exclusive CPUs of others", func(t *testing.T) { sandboxesKeepOff(t, n, r) })
	check(t, two, "pods with CPUs of their own have no CFS quota, others keep theirs",
		func(t *testing.T) { quotas(t, n, r) })
	check(t, two, "memory comes from the NUMA node of the pod's CPUs",
		func(t *testing.T) { memoryIsLocal(t, n, r.lsr) })
	check(t, two, "a group that was changed by hand is set back", func(t *testing.T) { setBack(t, n, r) })
	check(t, two, "batch pods have the weight and the limits of their batch resources",
		func(t *testing.T) { batchValues(t, n) })
	check(t, two, "best-effort pods give way to a load, on all NUMA nodes, and get all back",
		func(t *testing.T) { bestEffortGivesWay(t, n, r) })
	check(t, two, "while the agent is dead no pod with CPUs of its own starts, and others do",
		func(t *testing.T) { agentDies(t, n, r, annotation.NRIPlugin) })
	check(t, two, "a restart of containerd changes no running pod, and new ones get their CPUs", func(t *testing.T) {
		undisturbed(t, n, r, "after-containerd", func() error {
			return errors.Join(n.Kill(t.Context(), "KILL", "containerd"), n.startContainerd(t.Context()))
		})
	})
	check(t, two, "a restart of the kubelet changes no running pod, and new ones get their CPUs", func(t *testing.T) {
		undisturbed(t, n, r, "after-kubelet", func() error {
			return errors.Join(n.Kill(t.Context(), "TERM", "kubelet"), n.StartKubelet(t.Context()))
		})
	})
	check(t, two, "pools move while pods come and go, and no CPU is ever shared that is exclusive",
		func(t *testing.T) { churn(t, n) })
	check(t, two, "CPUs that go offline and come back are had by the same pods again",
		func(t *testing.T) { offline(t, n, r) })
}

// startResidents is the first case of a node: a pod of each class. The others are about them.
func startResidents(t *testing.T, n *node) *residents {
	t.Helper()
	var r *residents
	check(t, n.Shape, "what the scheduler decided is what the kernel does, for each class", func(t *testing.T) {
		n.create(t, n.pod("lse", "LSE", "4", "64Mi"), n.pod("lsr", "LSR", "2", "64Mi", oneNode),
			n.pod("ls", "LS", "500m", "64Mi"),
			n.pod("be", "BE", "", ""), n.pod("plain", "", "100m", "64Mi"))
		pods := n.running(t, "lse", "lsr", "ls", "be", "plain")
		r = &residents{lse: pods[0], lsr: pods[1], ls: pods[2], be: pods[3], plain: pods[4]}
		n.holds(t, r.sets(t, n))
	})
	if r == nil {
		t.Fatal("there are no pods to go on with")
	}
	return r
}

// sandboxesKeepOff is polled: a runtime lets no plugin set the CPUs of a sandbox, the agent follows behind.
func sandboxesKeepOff(t *testing.T, n *node, r *residents) {
	t.Helper()
	exclusive := allocated(t, r.lse)
	await(t, "sandboxes to keep off", func() error {
		groups := n.look(t)
		for _, p := range []*corev1.Pod{r.lsr, r.ls, r.be, r.plain} {
			_, sandbox := Containers(groups, p.UID)
			if len(sandbox) == 0 {
				return fmt.Errorf("pod %s has no sandbox", p.Name)
			}
			for _, g := range sandbox {
				if cpus := parse(t, g.Files["cpuset.cpus.effective"]); cpus.Overlaps(&exclusive) {
					return fmt.Errorf("the sandbox of %s has %v, which overlaps %v of lse", p.Name, cpus, exclusive)
				}
			}
		}
		return nil
	})
}

func quotas(t *testing.T, n *node, r *residents) {
	t.Helper()
	await(t, "the quotas", func() error {
		groups := n.look(t)
		for p, want := range map[*corev1.Pod]string{
			r.lse: "max 100000", r.lsr: "max 100000", r.ls: "50000 100000",
			r.plain: "10000 100000",
		} {
			own, _ := Containers(groups, p.UID)
			for _, g := range own {
				for _, name := range []string{"cpu.max", "../cpu.max"} {
					if g.Files[name] != want {
						return fmt.Errorf("pod %s: %s of %s is %q, want %q", p.Name, name, g.Path, g.Files[name], want)
					}
				}
			}
		}
		return nil
	})
}

// memoryIsLocal holds from the first page on: the nodes are set before the container starts and never again.
func memoryIsLocal(t *testing.T, n *node, p *corev1.Pod) {
	t.Helper()
	status, _, err := annotation.ParseResourceStatus(p.Annotations[annotation.ResourceStatusKey])
	if err != nil {
		t.Fatal(err)
	}
	if len(status.NUMANodeResources) != 1 {
		t.Fatalf("pod %s: resources of %d NUMA nodes in %v, want 1", p.Name, len(status.NUMANodeResources), status)
	}
	home := int(status.NUMANodeResources[0].Node)
	first, last := n.Shape.NodeCPUs(home)
	cpus, local := allocated(t, p), cpuset.Span(first, last)
	if !cpus.SubsetOf(&local) {
		t.Errorf("pod %s has the CPUs %v and its memory on NUMA node %d with %v", p.Name, cpus, home, local)
	}
	own, _ := Containers(n.look(t), p.UID)
	want := fmt.Sprint(home)
	for _, g := range own {
		if g.Files["cpuset.mems"] != want || g.Files["cpuset.mems.effective"] != want {
			t.Errorf("%s: cpuset.mems %q, effective %q, want %q", g.Path, g.Files["cpuset.mems"],
				g.Files["cpuset.mems.effective"], want)
		}
		for _, process := range g.Processes {
			if process.Mems != want {
				t.Errorf("process %s may use memory of %q, want %q", process.Name, process.Mems, want)
			}
			pages := maps.Clone(process.Anonymous)
			if pages[home] == 0 {
				t.Errorf("process %s has no anonymous memory on NUMA node %d: %v", process.Name, home, pages)
			}
			if delete(pages, home); len(pages) > 0 {
				t.Errorf("process %s has anonymous memory on other NUMA nodes than %d: %v pages", process.Name, home,
					pages)
			}
		}
	}
}

func setBack(t *testing.T, n *node, r *residents) {
	t.Helper()
	own, _ := Containers(n.look(t), r.ls.UID)
	script(t, n.Guest, "echo "+n.all().String()+" >/sys/fs/cgroup"+own[0].Path+"/cpuset.cpus")
	n.holds(t, r.sets(t, n))
	n.awaitEvent(t, r.ls.Name, func(e *corev1.Event) bool {
		return e.Reason == "Drifted" ||
			e.Reason == "DriftRepaired"
	})
}

// awaitEvent waits for an Event of a pod.
func (n *node) awaitEvent(t *testing.T, pod string, wanted func(*corev1.Event) bool) {
	t.Helper()
	await(t, "an Event that reports it", func() error {
		list, err := n.plane.client.CoreV1().Events(n.Name).List(t.Context(),
			metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
		if err != nil {
			return err
		}
		var texts []string
		for i := range list.Items {
			if wanted(&list.Items[i]) {
				return nil
			}
			texts = append(texts, list.Items[i].Reason+": "+list.Items[i].Message)
		}
		return fmt.Errorf("there are only %q", texts)
	})
}

// lives returns the processes of pods by what distinguishes them from their successors.
func lives(groups []wire.Group, pods []*corev1.Pod) map[string]string {
	found := map[string]string{}
	for _, p := range pods {
		own, sandbox := Containers(groups, p.UID)
		for _, g := range append(own, sandbox...) {
			for _, process := range g.Processes {
				found[g.Path] += fmt.Sprintf("%d@%s ", process.PID, process.Started)
			}
		}
	}
	return found
}

func same(t *testing.T, before, after map[string]string) {
	t.Helper()
	for path, processes := range before {
		if after[path] != processes {
			t.Errorf("%s had the processes %q and has %q now", path, processes, after[path])
		}
	}
}

// agentDies: what refuses containers in its place says so in words that hold says.
func agentDies(t *testing.T, n *node, r *residents, says string) {
	t.Helper()
	before := lives(n.look(t), r.pods())
	if err := n.Kill(t.Context(), "KILL", "tenon-agent"); err != nil {
		t.Fatal(err)
	}
	dead := true
	defer func() {
		if dead { // the cases that follow need it
			_ = n.startAgent(context.Background())
		}
	}()
	n.create(t, n.pod("late", "LSE", "2", "64Mi"), n.pod("meanwhile", "", "100m", "64Mi"))
	n.running(t, "meanwhile")
	n.awaitEvent(t, "late", func(e *corev1.Event) bool {
		return e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, says)
	})
	p, err := n.plane.client.CoreV1().Pods(n.Name).Get(t.Context(), "late", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s := p.Status.ContainerStatuses; len(s) == 1 &&
		(s[0].State.Running != nil || s[0].State.Terminated != nil || s[0].RestartCount > 0) {
		t.Fatalf("pod late started without the agent: %s", state(p))
	}
	// What runs keeps what it had.
	groups := n.look(t)
	for p, cpus := range r.sets(t, n) {
		if err := Confined(groups, p, cpus); err != nil {
			t.Error(err)
		}
	}
	if err := n.startAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	dead = false
	late := n.running(t, "late")[0]
	want := r.sets(t, n, late)
	want[late] = allocated(t, late)
	n.holds(t, want)
	same(t, before, lives(n.look(t), r.pods()))
	n.remove(t, "late", "meanwhile")
	n.holds(t, r.sets(t, n))
}

// undisturbed restarts something under running pods, and starts a pod after it.
func undisturbed(t *testing.T, n *node, r *residents, name string, restart func() error) {
	t.Helper()
	before := lives(n.look(t), r.pods())
	if err := restart(); err != nil {
		t.Fatal(err)
	}
	n.create(t, n.pod(name, "LSE", "2", "64Mi"))
	late := n.running(t, name)[0]
	want := r.sets(t, n, late)
	want[late] = allocated(t, late)
	n.holds(t, want)
	same(t, before, lives(n.look(t), r.pods()))
	n.remove(t, name)
	n.holds(t, r.sets(t, n))
}

// churn lets pods of all classes come and go under a watch.
func churn(t *testing.T, n *node) {
	t.Helper()
	const rounds = 3
	n.watch(t)
	for i := range rounds {
		var names []string
		for j, class := range []string{"LSE", "LS", "LSR"} {
			name := fmt.Sprintf("churn-%d-%d", i, j)
			names = append(names, name)
			n.create(t, n.pod(name, class, fmt.Sprint(1+(i+j)%2), "32Mi"))
		}
		n.running(t, names...)
		n.remove(t, names...)
	}
	w := n.watched(t)
	for _, problem := range w.Problems {
		t.Error(problem)
	}
	// Two owners run all the time, and each round adds two, with pools that make room and take it back.
	if w.Owners < 2+2*rounds || len(w.Pools) < 1+rounds || w.Rounds < 100 {
		t.Errorf("%d looks saw %d owners of CPUs and the pools %v: too few to mean anything", w.Rounds, w.Owners,
			w.Pools)
	}
	t.Logf("%d looks, %d owners, pools %v", w.Rounds, w.Owners, w.Pools)
}

// offline takes one CPU of the pool away, and one of those that are lse's own.
func offline(t *testing.T, n *node, r *residents) {
	t.Helper()
	before := r.sets(t, n)
	own := before[r.lse].Slice()
	pool := before[r.ls].Slice()
	gone := cpuset.Of(own[len(own)-1], pool[len(pool)-1])
	toggle := func(value string) {
		for _, cpu := range gone.Slice() {
			script(t, n.Guest, fmt.Sprintf("echo %s >/sys/devices/system/cpu/cpu%d/online", value, cpu))
		}
	}
	toggle("0")
	await(t, "the kernel and the agent to do without the CPUs", func() error {
		groups := n.look(t)
		for p, cpus := range before {
			own, _ := Containers(groups, p.UID)
			for _, g := range own {
				if want := cpus.Minus(gone).String(); g.Files["cpuset.cpus.effective"] != want {
					return fmt.Errorf("pod %s: cpuset.cpus.effective of %s is %q, want %q", p.Name, g.Path,
						g.Files["cpuset.cpus.effective"], want)
				}
			}
		}
		return nil
	})
	toggle("1")
	n.holds(t, before)
}
