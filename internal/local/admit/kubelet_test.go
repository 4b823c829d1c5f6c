package admit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a kubelet's machine and folder, which outlive the kubelet.
type world struct {
	machine  *topo.Machine
	settings annotation.Kubelet
	dir      string
	node     *corev1.Node

	mu      sync.Mutex        // guards the fields below
	updated map[string]string // container id to the CPUs that the kubelet set last
	failing int               // so many updates fail
}

// failer is a *testing.T or *rapid.T.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func newWorld(t failer, dir, spec string) *world {
	t.Helper()
	d, _, err := machine.Parse(spec)
	testkit.Check(t, err)
	m := grid.Build(t, d.Spec())
	return &world{
		machine: m, settings: d.Kubelet, dir: filepath.Join(dir, "var/lib/kubelet"),
		node: nodeOf(m, d.Kubelet), updated: map[string]string{},
	}
}

func nodeOf(m *topo.Machine, k annotation.Kubelet) *corev1.Node {
	reserved, _, _ := m.ParseList(k.CPU.Reserved)
	online, memory := m.Online(), int64(0)
	for i := range m.NumNUMA() {
		memory += m.MemoryBytes(topo.NUMA(i))
	}
	return object.Node("n0", map[string]string{corev1.LabelOSStable: "linux"}, "pods", "110",
		"cpu", fmt.Sprint(online.Len()-reserved.Len()), "memory", fmt.Sprint(memory))
}

// boot starts the kubelet. period is the reconciliation's.
func (w *world) boot(t failer, period time.Duration, running containermap.ContainerMap) *Kubelet {
	t.Helper()
	k, err := Open(context.Background(), Options{
		Machine: w.machine, Settings: w.settings, Dir: w.dir, Running: running, Reconcile: period,
		Node: func(context.Context, bool) (*corev1.Node, error) { return w.node, nil },
		Update: func(id, cpus string) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.failing > 0 {
				w.failing--
				return errors.New("not now")
			}
			w.updated[id] = cpus
			return nil
		},
	})
	testkit.Check(t, err)
	return k
}

func (w *world) setTo(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.updated[id]
}

// podOf is a pod of one container, Guaranteed unless its memory is "".
func podOf(name, cpu, memory string) *corev1.Pod {
	p := object.Pod(name, object.UID("uid-"+name), object.Requests("cpu", cpu, "memory", memory))
	if memory != "" {
		p.Spec.Containers[0].Resources.Limits = p.Spec.Containers[0].Resources.Requests
	}
	return p
}

func TestPodsAreRefusedInTheKubeletsWords(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		spec            string
		pod             *corev1.Pod
		reason, message string // of the refusal; none when empty
	}{
		"CPU needs two nodes, memory one": {
			"epyc-2s@restricted,memory-static", podOf("p", "40", "1Gi"),
			"TopologyAffinityError", "Pod was rejected: Resources cannot be allocated with Topology locality",
		},
		"best-effort takes what restricted refuses": {
			"epyc-2s@best-effort,memory-static", podOf("p", "40", "1Gi"), "",
			"",
		},
		"one node cannot hold it": {
			"epyc-2s@single-numa-node", podOf("p", "33", "1Gi"),
			"TopologyAffinityError", "Pod was rejected: Resources cannot be allocated with Topology locality",
		},
		"half a core": {
			"epyc-2s@static,full-pcpus-only", podOf("p", "3", "1Gi"),
			"SMTAlignmentError",
			"Pod was rejected: SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2",
		},
		"more memory than there is": {
			"epyc-2s@memory-static", podOf("p", "1", "600Gi"),
			"UnexpectedAdmissionError", "Pod was rejected: Allocate failed due to [memorymanager]",
		},
		"more exclusive CPUs than there are": {
			"epyc-2s@static", podOf("p", "127", "1Gi"),
			"UnexpectedAdmissionError",
			"Pod was rejected: Allocate failed due to not enough cpus available to satisfy request: requested=127, " +
				"available=126",
		},
		"a fraction too much": {
			"epyc-2s@static", podOf("p", "126500m", "1Gi"),
			"OutOfcpu",
			"Pod was rejected: Node didn't have enough resource: cpu, requested: 126500, used: 0, capacity: 126000",
		},
		"capacity counts: the node with the reserved CPUs is never enough, but another one is": {
			"epyc-2s@restricted", podOf("p", "32", "1Gi"), "", "",
		},
		"a pod that is not Guaranteed has no hints": {"epyc-2s@restricted,memory-static", podOf("p", "40", ""), "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newWorld(t, t.TempDir(), test.spec).boot(t, 10*time.Millisecond, nil)
			defer k.Close()
			got, err := k.Admit(test.pod)
			switch {
			case err != nil:
				t.Fatal(err)
			case test.reason == "" && got != nil:
				t.Errorf("refused with %+v, want the pod to be admitted", *got)
			case test.reason != "" && (got == nil || got.Reason != test.reason ||
				!strings.HasPrefix(got.Message, test.message)):
				t.Errorf("got %+v, want %s: %s", got, test.reason, test.message)
			}
		})
	}
}

// A kubelet that restarts admits the pods that run anew. Whoever takes an amount off a Node must remove it: at 0 they
// would fail.
func TestAnAmountOfZeroIsRefusedAndAnAbsentOneIsNot(t *testing.T) {
	t.Parallel()
	const gpuCore = "koordinator.sh/gpu-core"
	for shown, want := range map[string]string{
		"": "", "100": "",
		"0": "OutOf" + gpuCore + " Pod was rejected: Node didn't have enough resource: " + gpuCore +
			", requested: 50, used: 0, capacity: 0",
	} {
		w := newWorld(t, t.TempDir(), "arm64-1s")
		if shown != "" {
			w.node.Status.Allocatable[gpuCore] = resource.MustParse(shown)
		}
		k := w.boot(t, 10*time.Millisecond, nil)
		defer k.Close()
		p := podOf("p", "1", "1Gi")
		p.Spec.Containers[0].Resources.Requests[gpuCore] = resource.MustParse("50")
		refusal, err := k.Admit(p)
		got := ""
		if refusal != nil {
			got = refusal.Reason + " " + refusal.Message
		}
		if err != nil || got != want {
			t.Errorf("with %q of it: %q, %v; want %q", shown, got, err, want)
		}
	}
}

func TestContainersGetTheCPUsAndMemoryOfOneNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), "epyc-2s@restricted,memory-static")
	k := w.boot(t, 10*time.Millisecond, nil)
	defer k.Close()
	pinned, shared := podOf("pinned", "30", "20Gi"), podOf("shared", "500m", "")
	for _, p := range []*corev1.Pod{pinned, shared} {
		if refusal, err := k.Admit(p); refusal != nil || err != nil {
			t.Fatal(refusal, err)
		}
	}
	cpus, mems := k.Affinity(pinned, &pinned.Spec.Containers[0])
	if set, _, err := w.machine.ParseList(cpus); err != nil || set.Len() != 30 || mems != "0" {
		t.Errorf("the pinned container runs on %q, memory %q; want 30 CPUs and node 0", cpus, mems)
	}
	if mine := w.machine.NUMACPUs(0); func() bool {
		s, _, _ := w.machine.ParseList(cpus)
		return !s.SubsetOf(&mine)
	}() {
		t.Errorf("CPUs %q are not all on node 0", cpus)
	}
	rest, mems := k.Affinity(shared, &shared.Spec.Containers[0])
	a, _, _ := w.machine.ParseList(rest)
	b, _, _ := w.machine.ParseList(cpus)
	if a.Union(b) != w.machine.Online() || a.Overlaps(&b) || mems != "" {
		t.Errorf("the shared container runs on %q, memory %q; want all CPUs but %q and no memory nodes", rest, mems,
			cpus)
	}
}

func TestSharedContainersLeaveCPUsThatWereGivenAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), "arm64-1s@static,reserved=0")
	w.failing = 1
	shared := podOf("shared", "1", "")
	shared.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", ContainerID: "tenon://1234",
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	running := containermap.NewContainerMap()
	running.Add(string(shared.UID), "main", "1234")
	k := w.boot(t, 5*time.Millisecond, running)
	defer k.Close()
	pinned := podOf("pinned", "4", "1Gi")
	for _, p := range []*corev1.Pod{shared, pinned} {
		if refusal, err := k.Admit(p); refusal != nil || err != nil {
			t.Fatal(refusal, err)
		}
	}
	k.Settled()
	await(t, "the shared container has left CPUs 1-4", func() bool { return w.setTo("1234") == "0,5-63" })
	k.Forget(pinned.UID)
	await(t, "it has them back", func() bool { return w.setTo("1234") == "0-63" })
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	//nolint:forbidigo // the managers have no clock to inject
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute until %s", what)
		}
	}
}

// On hybrid machines the kubelet takes the average of one thread per core for every core's size (kubernetes #140495): a
// core of two threads is whole to it when one of them is free, and it gives both away.
func TestFaultsOfTheKubeletAreKept(t *testing.T) {
	t.Parallel()
	k := newWorld(t, t.TempDir(), "hybrid@static,reserved=0").boot(t, 10*time.Millisecond, nil)
	defer k.Close()
	p := podOf("p", "2", "1Gi")
	if refusal, err := k.Admit(p); refusal != nil || err != nil {
		t.Fatal(refusal, err)
	}
	if cpus, _ := k.Affinity(p, &p.Spec.Containers[0]); cpus != "0-1" {
		t.Errorf("the pod has the CPUs %s, a kubelet would give it 0-1 although 0 is reserved", cpus)
	}
}

func TestPanicOfTheKubeletsCodeIsAnError(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), "arm64-1s@static")
	w.node = nil // the fit check reads it
	k := w.boot(t, 10*time.Millisecond, nil)
	defer k.Close()
	refusal, err := k.Admit(podOf("p", "1", "1Gi"))
	var broken *Panic
	if refusal != nil || !errors.As(err, &broken) || !strings.Contains(err.Error(), "nil pointer") {
		t.Errorf("got %v, %v; want a *Panic that says what happened", refusal, err)
	}
}

func TestKubeletThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*world){
		"without reserved CPUs":   func(w *world) { w.settings.CPU.Reserved = "" },
		"without reserved memory": func(w *world) { w.settings.Memory.Reserved = nil },
		"with an unknown policy":  func(w *world) { w.settings.Topology.Policy = "strict" },
	} {
		w := newWorld(t, t.TempDir(), "arm64-1s@restricted,memory-static")
		change(w)
		if k, err := Open(t.Context(), Options{Machine: w.machine, Settings: w.settings, Dir: w.dir}); err == nil {
			t.Errorf("%s: %v starts", name, k)
		}
	}
}

func TestStateOfOtherSettingsIsDiscarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), "arm64-1s@restricted,memory-static")
	first := w.boot(t, 10*time.Millisecond, nil)
	if refusal, err := first.Admit(podOf("p", "4", "1Gi")); refusal != nil || err != nil {
		t.Fatal(refusal, err)
	}
	first.Close()
	w.settings.CPU.Policy, w.settings.CPU.Reserved = "none", ""
	second := w.boot(t, 10*time.Millisecond, nil)
	defer second.Close()
	state, err := host.ReadCPUState(host.Root{Dir: filepath.Join(w.dir, "../../..")})
	if err != nil || state.Policy != "none" || len(state.Pods) != 0 {
		t.Errorf("the state is %+v, %v; want an empty one of the policy none", state, err)
	}
}

// allocation is what one container holds, as the files say.
type allocation struct {
	cpus   []int
	nodes  []int
	memory int64
}

// recorded reads the state files: the CPUs with the agent's reader.
func (w *world) recorded(t failer) (map[types.UID]allocation, []int) {
	t.Helper()
	cpu, err := host.ReadCPUState(host.Root{Dir: filepath.Join(w.dir, "../../..")})
	if err != nil || cpu.Policy != "static" {
		t.Fatalf("read cpu_manager_state: %+v, %v", cpu, err)
	}
	text, err := os.ReadFile(filepath.Join(w.dir, "memory_manager_state"))
	testkit.Check(t, err)
	var memory struct {
		PolicyName string
		Entries    map[types.UID]map[string][]struct {
			NUMAAffinity []int
			Type         string
			Size         int64
		}
	}
	if err := json.Unmarshal(text, &memory); err != nil || memory.PolicyName != "Static" {
		t.Fatalf("read memory_manager_state: %s: %v", text, err)
	}
	out := map[types.UID]allocation{}
	for uid, ids := range cpu.Pods {
		out[types.UID(uid)] = allocation{cpus: ids}
	}
	for uid, containers := range memory.Entries {
		a := out[uid]
		for _, block := range containers["main"] {
			a.nodes, a.memory = block.NUMAAffinity, block.Size
		}
		out[uid] = a
	}
	return out, cpu.Default
}

// Whatever comes, goes and restarts: no CPU belongs to two, none is reserved, amounts are exact, what is gone is freed
// by the next admission, and a restart changes nothing.
func TestAdmissionsOfARandomHistory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	specs := []string{
		"snc2@best-effort,memory-static", "snc2@restricted,memory-static",
		"snc2@single-numa-node,memory-static,full-pcpus-only",
		"snc2@restricted,memory-static,pod-scope,distribute-cpus-across-numa",
		"xeon-2s@restricted,memory-static,strict-cpu-reservation",
		"epyc-2s@best-effort,memory-static,prefer-align-cpus-by-uncorecache,prefer-closest-numa-nodes",
	}
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		h := &history{
			world: newWorld(t, filepath.Join(dir, fmt.Sprint(run)), rapid.SampledFrom(specs).Draw(t, "spec")),
			live:  map[types.UID]*corev1.Pod{},
		}
		h.kubelet = h.boot(t, time.Millisecond, nil)
		h.kubelet.Settled()
		defer func() { h.kubelet.Close() }()
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"admit", "admit", "admit", "forget", "restart"}).Draw(t, "step") {
			case "admit":
				h.admit(t)
			case "forget":
				h.forget(t)
			case "restart":
				h.restart(t)
			}
		}
		for _, uid := range slices.Sorted(maps.Keys(h.live)) {
			h.kubelet.Forget(uid)
			delete(h.live, uid)
		}
		h.sweep(t)
		pool := h.machine.Online()
		if h.settings.CPU.Options["strict-cpu-reservation"] != "" {
			reserved, _, _ := h.machine.ParseList(h.settings.CPU.Reserved)
			pool = pool.Minus(reserved)
		}
		if got, free := h.recorded(t); len(got) != 0 || cpuset.FormatIDs(free) != h.machine.FormatList(pool) {
			t.Fatalf("of no pod %v is left and %v is free", got, free)
		}
	})
}

type history struct {
	*world
	kubelet *Kubelet
	live    map[types.UID]*corev1.Pod
	number  int
}

func (h *history) admit(t *rapid.T) {
	h.number++
	p := podOf(fmt.Sprint("p", h.number), fmt.Sprint(rapid.IntRange(1, 40).Draw(t, "cpu")),
		fmt.Sprint(rapid.IntRange(1, 150).Draw(t, "GiB"), "Gi"))
	p.CreationTimestamp = metav1.Unix(int64(h.number), 0)
	refusal, err := h.kubelet.Admit(p)
	testkit.Check(t, err)
	if refusal == nil {
		h.live[p.UID] = p
	} else if !slices.Contains([]string{
		"TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError",
		"OutOfcpu", "OutOfmemory",
	}, refusal.Reason) {
		t.Fatalf("refused with %+v", *refusal)
	}
	h.sweep(t)
	h.check(t)
}

// sweep lets an admission pass that changes nothing: it frees what pods that are gone held.
func (h *history) sweep(t *rapid.T) {
	sweep := podOf("sweep", "0", "")
	if refusal, err := h.kubelet.Admit(sweep); refusal != nil || err != nil {
		t.Fatal(refusal, err)
	}
	h.kubelet.Forget(sweep.UID)
}

func (h *history) forget(t *rapid.T) {
	if len(h.live) == 0 {
		return
	}
	uid := rapid.SampledFrom(slices.Sorted(maps.Keys(h.live))).Draw(t, "gone")
	delete(h.live, uid)
	h.kubelet.Forget(uid)
	h.sweep(t)
	h.check(t)
}

func (h *history) restart(t *rapid.T) {
	before, free := h.recorded(t)
	if inTwoGroups(before) || h.checksAgain(before, len(free)) {
		return
	}
	h.kubelet.Close()
	h.kubelet = h.boot(t, time.Millisecond, nil)
	pods := slices.SortedFunc(maps.Values(h.live),
		func(a, b *corev1.Pod) int { return cmp.Compare(a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix()) })
	for _, p := range pods {
		if refusal, err := h.kubelet.Admit(p); refusal != nil || err != nil {
			t.Fatalf("pod %s, which ran, is not admitted again: %+v, %v", p.Name, refusal, err)
		}
	}
	h.kubelet.Settled()
	h.sweep(t)
	after, _ := h.recorded(t)
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Fatalf("before the restart %v, after it %v", before, after)
	}
}

// checksAgain reports whether a pod may have more CPUs than whole cores are free. A kubelet before 1.37 with
// full-pcpus-only then refuses it at its next start, although the pod has its CPUs already.
func (h *history) checksAgain(held map[types.UID]allocation, free int) bool {
	reserved, _, _ := h.machine.ParseList(h.settings.CPU.Reserved)
	return h.settings.CPU.Options["full-pcpus-only"] != "" &&
		slices.ContainsFunc(slices.Collect(maps.Values(held)), func(a allocation) bool {
			return len(a.cpus) > free-2*reserved.Len() // of a reserved CPU its sibling does not count either
		})
}

// inTwoGroups reports whether the memory of a NUMA node is given out alone and together with other nodes'. The kubelet
// gives back in the order of a Go map what of it pods leave, and may refuse its own files at the next start.
func inTwoGroups(held map[types.UID]allocation) bool {
	groups := map[int]string{}
	for _, a := range held {
		for _, n := range a.nodes {
			if group := fmt.Sprint(a.nodes); cmp.Or(groups[n], group) != group {
				return true
			}
			groups[n] = fmt.Sprint(a.nodes)
		}
	}
	return false
}

func (h *history) check(t *rapid.T) {
	got, free := h.recorded(t)
	reserved, err := cpuset.ParseIDs(h.settings.CPU.Reserved)
	testkit.Check(t, err)
	owner := map[int]types.UID{}
	for _, c := range free {
		owner[c] = "unowned"
	}
	if len(got) != len(h.live) {
		t.Fatalf("the files name %v, the live pods are %v", got, slices.Sorted(maps.Keys(h.live)))
	}
	for uid, p := range h.live {
		a, want := got[uid], p.Spec.Containers[0].Resources.Requests
		if len(a.cpus) != int(want.Cpu().Value()) || a.memory != want.Memory().Value() || len(a.nodes) == 0 {
			t.Fatalf("pod %s asks for %s and %s, it got %+v", uid, want.Cpu(), want.Memory(), a)
		}
		for _, c := range a.cpus {
			if owner[c] != "" || slices.Contains(reserved, c) {
				t.Fatalf("CPU %d of pod %s is reserved, or belongs to %s too", c, uid, owner[c])
			}
			owner[c] = uid
		}
		if cpus, mems := h.kubelet.Affinity(p, &p.Spec.Containers[0]); cpus != cpuset.FormatIDs(a.cpus) ||
			mems != cpuset.FormatIDs(a.nodes) {
			t.Fatalf("pod %s starts on %s and %s, the files say %+v", uid, cpus, mems, a)
		}
	}
	if kept := len(owner); kept != h.machine.NumCPUs() && h.settings.CPU.Options["strict-cpu-reservation"] == "" {
		t.Fatalf("%d CPUs are held or shared, the machine has %d", len(owner), h.machine.NumCPUs())
	}
}
