package app_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// talker is a kubelet that can be asked.
type talker struct {
	mu        sync.Mutex // guards the fields below
	t         testing.TB
	config    kubeletapi.Config
	resources kubeletapi.Resources
	// settingsErr and resourcesErr are the errors of the two questions.
	settingsErr, resourcesErr error
	asked                     []time.Time
	listed                    []time.Time
}

var errDown = errors.New("connection refused")

// ask connects a node's agent to a kubelet.
func (w *world) ask(k *talker) {
	w.options.Kubelet = annotation.Kubelet{}
	k.t, w.options.AskKubelet, w.options.AskResources = w.t, k, k
}

func (k *talker) Config(_ context.Context, node *corev1.Node) (kubeletapi.Config, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = append(k.asked, time.Now())
	if node == nil || node.Name != nodeName {
		k.t.Errorf("asked for the settings of node %v", node)
	}
	return k.config, k.settingsErr
}

func (k *talker) Resources(context.Context) (kubeletapi.Resources, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listed = append(k.listed, time.Now())
	return k.resources, k.resourcesErr
}

// resources answers for a kubelet that is asked for the resources of its pods alone.
type resources func(context.Context) (kubeletapi.Resources, error)

func (r resources) Resources(ctx context.Context) (kubeletapi.Resources, error) { return r(ctx) }

// now changes what a kubelet says.
func (k *talker) now(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

func none() kubeletapi.Config {
	return kubeletapi.Config{Kubelet: annotation.Kubelet{
		CPU: annotation.KubeletCPU{Policy: "none"}, Memory: annotation.KubeletMemory{Policy: "None"},
		Topology: annotation.KubeletTopology{Policy: "none", Scope: "container"},
	}}
}

func static() kubeletapi.Config {
	c := none()
	c.Kubelet.CPU.Policy = "static"
	return c
}

func (w *world) policy() annotation.KubeletCPUManager {
	w.t.Helper()
	p, _, err := annotation.ParseKubeletCPUManager(w.published(annotation.KubeletCPUManagerPolicy))
	testkit.Check(w.t, err)
	return p
}

// TestTheKubeletsSettingsAreFollowedWhileTheAgentRuns: mode, published policies, reserved CPUs and who keeps memory.
func TestTheKubeletsSettingsAreFollowedWhileTheAgentRuns(t *testing.T) {
	inWorld(t, "xeon-2s", func(t *testing.T, w *world) {
		k := &talker{config: none()}
		w.ask(k)
		w.label(annotation.TopologyMode, "Follow")
		w.run(func(a *app.Agent) {
			if a.Mode() != annotation.ModeOwn || w.policy().Policy != "none" || w.condition(modeConflict) != "True" {
				t.Fatalf("mode %s, policy %q, conflict %q: want what a kubelet without policies gives", a.Mode(),
					w.policy().Policy, w.condition(modeConflict))
			}
			local := pod("local", "LSR", "4", "")
			local.Annotations[annotation.ResourceStatusKey] = `{"cpuset":"24-25,72-73",` +
				`"numaNodeResources":[{"node":1,"resources":{"cpu":"4","memory":"1Gi"}}]}`
			w.create(local)
			if _, err := w.start(a, local); err != nil {
				t.Fatal(err)
			}
			if rows := memoryRows(a); rows != 1 {
				t.Errorf("%d values of cpuset.mems are wanted beside a kubelet that keeps no memory, want 1", rows)
			}

			k.now(func() {
				k.config = static()
				k.config.ReservedMilliCPU = 1500
				k.config.Kubelet.Memory.Policy, k.config.Kubelet.Topology.Policy = "Static", "restricted"
			})
			later(time.Minute)
			got := w.policy()
			if a.Mode() != annotation.ModeFollow || got.Policy != "static" || got.ReservedCPUs != "0,48" ||
				w.condition(modeConflict) != "False" {
				t.Errorf("mode %s, policy %+v, conflict %q: want Follow, and two CPUs of one core reserved", a.Mode(),
					got, w.condition(modeConflict))
			}
			if got := w.published(annotation.KubeletKey); !strings.Contains(got, `"topology":{"policy":"restricted"`) ||
				!strings.Contains(got, `"memory":{"policy":"Static"`) {
				t.Errorf("kubelet = %s, want its new policies", got)
			}
			if rows := memoryRows(a); rows != 0 {
				t.Errorf("%d values of cpuset.mems are wanted beside a kubelet that keeps memory, want none", rows)
			}
			k.now(func() {
				for id := range 96 {
					if id != 0 && id != 1 && id != 48 {
						k.resources.CPUs = append(k.resources.CPUs, id)
					}
				}
			})
			later(time.Minute)
			if got := w.policy().ReservedCPUs; got != "0-1,48" {
				t.Errorf("reserved CPUs = %q, want exactly those that the kubelet may not give", got)
			}
			k.now(func() { k.resources.CPUs = nil }) // before its managers have started
			later(time.Minute)
			if got := w.policy().ReservedCPUs; got != "0-1,48" {
				t.Errorf("reserved CPUs = %q after an empty answer, want those of before", got)
			}
		})
	})
}

func memoryRows(a *app.Agent) (n int) {
	for _, row := range a.Table().Rows {
		if row.File == desired.Mems {
			n++
		}
	}
	return n
}

// TestSettingsOfAKubeletThatDoesNotAnswer: the order is what it says, what it said last, what its files show, none; all
// but the first is a condition.
func TestSettingsOfAKubeletThatDoesNotAnswer(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		k := &talker{config: none(), settingsErr: errDown}
		w.ask(k)
		degraded := func(when, says string) {
			t.Helper()
			if got := w.message(sourceDegraded); w.condition(sourceDegraded) != "True" ||
				!strings.Contains(got, "connection refused") || !strings.Contains(got, says) {
				t.Errorf("%s: condition %q, %q; want one that says %q", when, w.condition(sourceDegraded), got,
					says)
			}
		}
		w.run(func(*app.Agent) {
			degraded("nothing is known", "the policies none")
			if w.policy().Policy != "none" {
				t.Errorf("policy = %q", w.policy().Policy)
			}
		})
		w.state(`{"policyName":"static","defaultCpuSet":"0-3,6-63","entries":{"uid-old":{"main":"4-5"}},"checksum":1}`)
		w.run(func(*app.Agent) {
			degraded("its record is there", "the policies that its state files show")
			if w.policy().Policy != "static" {
				t.Errorf(
					"policy = %q beside a record of a static kubelet, want static: its pods' CPUs would be given to "+
						"others", w.policy().Policy)
			}
			k.now(func() {
				k.settingsErr, k.config = nil, static()
				k.config.Kubelet.CPU.Reserved = "0"
			})
			later(3 * time.Minute)
			if w.condition(sourceDegraded) != "False" || w.policy().ReservedCPUs != "0" {
				t.Errorf("condition %q, reserved %q once it answers", w.condition(sourceDegraded),
					w.policy().ReservedCPUs)
			}
			k.now(func() { k.settingsErr = errDown })
			later(time.Minute)
			degraded("it is down", "the settings that it reported last")
			if w.policy().ReservedCPUs != "0" {
				t.Errorf("reserved %q, want those of the last answer", w.policy().ReservedCPUs)
			}
		})
		w.run(func(*app.Agent) {
			degraded("it is down at the start", "the settings that it reported to an earlier agent")
			if got := w.policy(); got.Policy != "static" || got.ReservedCPUs != "0" {
				t.Errorf("policy = %+v, want that of the last answer", got)
			}
			k.now(func() { k.settingsErr = nil })
			later(3 * time.Minute)
			if w.condition(sourceDegraded) != "False" {
				t.Errorf("condition = %q once it answers", w.condition(sourceDegraded))
			}
		})
		w.file("var/lib/tenon-agent/kubelet.json", `{"Kubelet":`)
		w.run(func(*app.Agent) {
			if got := w.policy(); got.ReservedCPUs != "0" || w.condition(sourceDegraded) != "False" {
				t.Errorf("a torn file of ours: policy = %+v, condition %q", got, w.condition(sourceDegraded))
			}
		})
	})
}

// TestTheKubeletIsNotAskedHotly: at every resync while it answers, ever more rarely while it does not, and at once when
// another kubelet may run.
func TestTheKubeletIsNotAskedHotly(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		k := &talker{config: static()}
		w.ask(k)
		w.options.Resync = 30 * time.Second
		count := func(times *[]time.Time) int {
			k.mu.Lock()
			defer k.mu.Unlock()
			n := len(*times)
			*times = nil
			return n
		}
		w.run(func(*app.Agent) {
			count(&k.asked)
			count(&k.listed)
			later(10 * time.Minute)
			if asked, listed := count(&k.asked), count(&k.listed); asked != 20 || listed != 20 {
				t.Errorf("asked %d and %d times in ten minutes, want once each resync", asked, listed)
			}
			k.now(func() { k.settingsErr, k.resourcesErr = errDown, errDown })
			later(10 * time.Minute)
			if asked, listed := count(&k.asked),
				count(&k.listed); asked > 15 || listed > 15 || asked < 5 || listed < 5 {
				t.Errorf("asked %d and %d times in ten minutes without an answer, want 5 to 15", asked, listed)
			}
			k.now(func() { k.settingsErr, k.resourcesErr = nil, nil })
			later(3 * time.Minute)
			count(&k.asked)
			node, err := w.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
			testkit.Check(t, err)
			node.Status.NodeInfo.KubeletVersion = "v1.37.0"
			if _, err := w.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			later(2 * time.Second)
			if asked := count(&k.asked); asked != 1 {
				t.Errorf("asked %d times after the Node's kubelet changed, want once, at once", asked)
			}
			w.state(`{"policyName":"none","defaultCpuSet":"","checksum":1}`)
			w.create(pod("any", "LS", "1", "")) // something to look at the record for
			later(3 * time.Second)
			if asked := count(&k.asked); asked != 1 {
				t.Errorf("asked %d times after a record of another policy came, want once", asked)
			}
			later(30 * time.Second)
			count(&k.listed)
			for i := range 40 { // four changes a second
				w.create(pod("pod-"+string(rune('a'+i/26))+string(rune('a'+i%26)), "LS", "1", ""))
				later(150 * time.Millisecond)
			}
			later(2 * time.Second)
			k.mu.Lock()
			defer k.mu.Unlock()
			for i := 1; i < len(k.listed); i++ {
				if gap := k.listed[i].Sub(k.listed[i-1]); gap < time.Second {
					t.Errorf("two questions for resources within %v, want a second between them", gap)
				}
			}
			if len(k.listed) < 8 {
				t.Errorf("%d questions for resources in twelve seconds of changes", len(k.listed))
			}
		})
	})
}

// TestAKubeletThatKeepsItsPodsElsewhereEndsTheAgent: the next one knows.
func TestAKubeletThatKeepsItsPodsElsewhereEndsTheAgent(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		k := &talker{config: none()}
		k.config.CgroupRoot = "/tenon"
		w.ask(k)
		a, err := app.New(w.options)
		testkit.Check(t, err)
		if err := a.Run(t.Context()); !errors.Is(err, app.ErrCgroupRoot) ||
			!strings.Contains(err.Error(), "/tenon, and not /") {
			t.Errorf("Run = %v, want ErrCgroupRoot with both groups", err)
		}
		w.run(func(*app.Agent) { later(time.Minute) })
		w.options.CgroupRoot = "/chosen" // by flag
		w.run(func(*app.Agent) { later(time.Minute) })
	})
}

// started returns a pod that the kubelet began with an hour ago.
func started(p *corev1.Pod) *corev1.Pod {
	at := metav1.NewTime(time.Now().Add(-time.Hour))
	p.Status.StartTime = &at
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name:  "main",
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
	}}
	return p
}

func has(cpus ...int) map[string]kubeletapi.Container {
	return map[string]kubeletapi.Container{"main": {CPUs: cpus}}
}

func (w *world) update(p *corev1.Pod) {
	w.t.Helper()
	if _, err := w.client.CoreV1().Pods(p.Namespace).Update(w.t.Context(), p, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	later(100 * time.Millisecond)
}

func (w *world) remove(p *corev1.Pod) {
	w.t.Helper()
	testkit.Check(w.t, w.client.CoreV1().Pods(p.Namespace).Delete(w.t.Context(), p.Name, metav1.DeleteOptions{}))
	later(100 * time.Millisecond)
}

// TestAnAnswerThatFailsNeverMeansThatNothingIsAllocated: a dead socket, a busy kubelet, one that names no pod after a
// restart, an answer about another machine.
func TestAnAnswerThatFailsNeverMeansThatNothingIsAllocated(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		gpus := []host.Device{
			{Resource: "x/gpu", ID: "g0", NUMAIDs: []int{0}},
			{Resource: "x/gpu", ID: "g1", NUMAIDs: []int{0}},
		}
		main := kubeletapi.Container{CPUs: []int{4, 5}, Devices: gpus[:1]}
		k := &talker{config: static(), resources: kubeletapi.Resources{Devices: gpus, Pods: []kubeletapi.Pod{
			{Namespace: "default", Name: "a", Containers: map[string]kubeletapi.Container{"main": main}},
			{Namespace: "default", Name: "unknown", Containers: has(8, 9)},
		}}}
		w.ask(k)
		w.label(annotation.TopologyMode, "Follow")
		a := started(pod("a", "", "2", ""))
		w.create(a)
		w.run(func(*app.Agent) {
			later(time.Minute)
			const want = `{"devices":{"x/gpu":[{"numa":[0],"total":2,"free":1}]},` +
				`"pods":{"uid-a":{"main":{"cpus":"4-5","devices":{"x/gpu":{"mask":[0],"count":1}}}}}}`
			if got := w.published(annotation.NUMAStateKey); got != want {
				t.Fatalf("numa-state = %s, want %s", got, want)
			}
			for name, fault := range map[string]struct {
				play     func()
				degraded bool
			}{
				"a dead socket":  {func() { k.resourcesErr = errDown }, true},
				"a busy kubelet": {func() { k.resourcesErr = kubeletapi.ErrBusy }, true},
				"a CPU of another machine": {func() {
					k.resources.Pods = []kubeletapi.Pod{{
						Namespace: "default",
						Name:      "a", Containers: has(4000),
					}}
				}, true},
				"no pod, as after a restart": {func() { k.resources.Pods = nil }, false},
			} {
				var before kubeletapi.Resources
				k.now(func() { before = k.resources; fault.play() })
				later(3 * time.Minute)
				if got := w.published(annotation.NUMAStateKey); got != want {
					t.Errorf("%s: numa-state = %s, want the last good one", name, got)
				}
				if got := w.condition(sourceDegraded) == "True"; got != fault.degraded {
					t.Errorf("%s: SourceDegraded = %v, want %v: %s", name, got, fault.degraded,
						w.message(sourceDegraded))
				}
				k.now(func() { k.resourcesErr, k.resources = nil, before })
				later(3 * time.Minute)
				if w.condition(sourceDegraded) == "True" {
					t.Errorf("%s: still degraded: %s", name, w.message(sourceDegraded))
				}
			}
			w.remove(a)
			later(time.Minute)
			if got := w.published(annotation.NUMAStateKey); strings.Contains(got, "uid-a") {
				t.Errorf("numa-state = %s of a pod that is gone", got)
			}
		})
	})
}

// TestOneRefusalOfABusyKubeletIsNotReported: the next question is answered.
func TestOneRefusalOfABusyKubeletIsNotReported(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		k := &talker{config: static()}
		w.ask(k)
		asks := 0
		w.options.AskResources = resources(func(ctx context.Context) (kubeletapi.Resources, error) {
			if asks++; asks == 2 {
				return kubeletapi.Resources{}, kubeletapi.ErrBusy
			}
			return k.Resources(ctx)
		})
		w.run(func(*app.Agent) {
			later(time.Minute)
			if asks < 3 || w.condition(sourceDegraded) != "" {
				t.Errorf("condition %q after %d questions, want none", w.condition(sourceDegraded), asks)
			}
		})
	})
}

// TestAPodThatIsMadeAnewGetsNothingOfItsNamesake: the kubelet reports names, and the API's pod of that name may be a
// later one.
func TestAPodThatIsMadeAnewGetsNothingOfItsNamesake(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		k := &talker{config: static(), resources: kubeletapi.Resources{Pods: []kubeletapi.Pod{{
			Namespace: "default",
			Name:      "db-0", Containers: has(4, 5),
		}}}}
		w.ask(k)
		w.label(annotation.TopologyMode, "Follow")
		first := started(pod("db-0", "", "2", ""))
		w.create(first)
		w.run(func(*app.Agent) {
			later(time.Minute)
			if got := w.published(annotation.NUMAStateKey); !strings.Contains(got,
				`"uid-db-0":{"main":{"cpus":"4-5"}}`) {
				t.Fatalf("numa-state = %s", got)
			}
			w.remove(first)
			second := pod("db-0", "", "2", "")
			second.UID = "uid-second"
			w.create(second)
			later(time.Minute) // the kubelet has not begun with it, and still ends the first
			if got := w.published(annotation.NUMAStateKey); strings.Contains(got, "4-5") {
				t.Errorf("numa-state = %s: what an earlier pod of that name has is given to the later one", got)
			}
			at := metav1.NewTime(time.Now())
			second.Status.StartTime = &at
			w.update(second)
			k.now(func() { k.resources.Pods[0].Containers = has(6, 7) })
			later(time.Minute)
			if got := w.published(annotation.NUMAStateKey); !strings.Contains(got,
				`"uid-second":{"main":{"cpus":"6-7"}}`) {
				t.Errorf("numa-state = %s, want what the second pod has", got)
			}
			// The first was deleted by force: the kubelet still ends it.
			k.now(func() {
				k.resources.Pods = append(k.resources.Pods,
					kubeletapi.Pod{Namespace: "default", Name: "db-0", Containers: has(4, 5)})
			})
			later(time.Minute)
			if got := w.published(annotation.NUMAStateKey); !strings.Contains(got,
				`"uid-second":{"main":{"cpus":"6-7"}}`) {
				t.Errorf("numa-state = %s, want what the second pod had: two pods of its name are reported", got)
			}
		})
	})
}

// TestTheKubeletsFilesFillInWhatItDoesNotReport: init containers, pods that just started. Where both contain a
// container and disagree, the answer counts and a condition reports it.
func TestTheKubeletsFilesFillInWhatItDoesNotReport(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		k := &talker{config: static(), resources: kubeletapi.Resources{Pods: []kubeletapi.Pod{{
			Namespace: "default",
			Name:      "a", Containers: has(4, 5),
		}}}}
		w.ask(k)
		w.label(annotation.TopologyMode, "Follow")
		w.state(
			`{"policyName":"static","defaultCpuSet":"0-3,10-63","entries":{"uid-a":{"init":"6-7","main":"4-5"},` +
				`"uid-b":{"main":"8-9"}},"checksum":0}`)
		w.create(started(pod("a", "", "2", "")))
		w.create(pod("b", "", "2", ""))
		w.run(func(*app.Agent) {
			later(time.Minute)
			const want = `{"pods":{"uid-a":{"init":{"cpus":"6-7"},"main":{"cpus":"4-5"}},` +
				`"uid-b":{"main":{"cpus":"8-9"}}}}`
			if got := w.published(annotation.NUMAStateKey); got != want ||
				w.condition(contradictory) != "" {
				t.Errorf("numa-state = %s (contradictory %q), want %s", got, w.message(contradictory), want)
			}
			k.now(func() { k.resources.Pods[0].Containers = has(10, 11) })
			later(time.Minute)
			if got := w.published(annotation.NUMAStateKey); !strings.Contains(got, `"main":{"cpus":"10-11"}`) {
				t.Errorf("numa-state = %s, want what the kubelet answers", got)
			}
			if got := w.message(contradictory); w.condition(contradictory) != "True" ||
				!strings.Contains(got,
					"container main of the pod with UID uid-a has CPUs 10-11 by PodResources, and 4-5 by "+
						"cpu_manager_state") {
				t.Errorf("condition %q, %q: want one that names both", w.condition(contradictory), got)
			}
			k.now(func() { k.resources.Pods[0].Containers = has() })
			later(time.Minute)
			if got := w.published(annotation.NUMAStateKey); got != want ||
				w.condition(contradictory) != "True" {
				t.Errorf("numa-state = %s, condition %q: what only one of them knows of is given", got,
					w.condition(contradictory))
			}
			k.now(func() { k.resources.Pods[0].Containers = has(4, 5) })
			later(time.Minute)
			if w.condition(contradictory) != "False" {
				t.Errorf("condition = %q once they agree", w.condition(contradictory))
			}
			w.state(
				`{"policyName":"static","defaultCpuSet":"0-3,10-63","entries":{"uid-b":{"main":"8-9"}},` +
					`"podEntries":{"uid-a":{"cpuSet":"4-7"}},"checksum":1}`)
			later(time.Minute)
			if got := w.published(annotation.PodCPUAllocsKey); !strings.Contains(got, `"uid":"uid-a","cpuset":"4-7"`) ||
				w.condition(contradictory) != "False" {
				t.Errorf("allocations = %s, condition %q: want the whole pod's CPUs", got,
					w.condition(contradictory))
			}
		})
	})
}

// TestADeviceOfAnUnlistedResourceIsItsPods: a plugin may be gone while its devices are still in use.
func TestADeviceOfAnUnlistedResourceIsItsPods(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		gone := kubeletapi.Container{Devices: []host.Device{
			{Resource: "y/gone", ID: "u0", NUMAIDs: []int{0}},
			{Resource: "y/gone", ID: "u1"},
		}}
		k := &talker{config: none(), resources: kubeletapi.Resources{Pods: []kubeletapi.Pod{
			{Namespace: "default", Name: "a", Containers: map[string]kubeletapi.Container{"main": gone}},
		}}}
		w.ask(k)
		w.create(started(pod("a", "", "2", "")))
		w.run(func(*app.Agent) {
			later(time.Minute)
			const want = `{"pods":{"uid-a":{"main":{"devices":{"y/gone":{"mask":[0],"count":2,"split":[{"mask":[],` +
				`"count":1},{"mask":[0],"count":1}]}}}}}}`
			if got := w.published(annotation.NUMAStateKey); got != want || w.condition(sourceDegraded) != "" {
				t.Errorf("numa-state = %s (%s), want %s", got, w.message(sourceDegraded), want)
			}
		})
	})
}

// TestDevicesThatAreLostAreUnhealthy: the kubelet reports only healthy ones, its Node's capacity counts all.
func TestDevicesThatAreLostAreUnhealthy(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		gpus := []host.Device{
			{Resource: "x/gpu", ID: "g0", NUMAIDs: []int{0}},
			{Resource: "x/gpu", ID: "g1", NUMAIDs: []int{0}},
		}
		k := &talker{config: none(), resources: kubeletapi.Resources{Devices: gpus}}
		w.ask(k)
		capacity := func(n string) {
			node, err := w.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
			testkit.Check(t, err)
			node.Status.Capacity = object.List("x/gpu", n)
			if _, err := w.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		capacity("2")
		w.run(func(*app.Agent) {
			later(time.Minute)
			k.now(func() { k.resources.Devices = gpus[:1] })
			later(time.Minute)
			if got := w.published(
				annotation.NUMAStateKey); got != `{"devices":{"x/gpu":[{"numa":[0],"total":2,"free":1,`+
				`"unhealthy":1}]}}` {
				t.Errorf("numa-state = %s, want two devices, one of them unhealthy", got)
			}
			capacity("1")
			later(time.Minute)
			if got := w.published(
				annotation.NUMAStateKey); got != `{"devices":{"x/gpu":[{"numa":[0],"total":1,"free":1}]}}` {
				t.Errorf("numa-state = %s, want the one device that is left", got)
			}
		})
	})
}

// TestTheWholeTakeOver goes through the phases of a take-over: the kubelet keeps the CPUs, new pods are ours, the
// kubelet's policy becomes none, and the last pod that it pinned ends.
func TestTheWholeTakeOver(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		recorder := events.NewFakeRecorder(100)
		w.options.Recorder = recorder
		k := &talker{config: static()}
		k.config.Kubelet.CPU.Reserved = "0"
		w.ask(k)
		w.state(
			`{"policyName":"static","defaultCpuSet":"0-3,8-63","entries":{"uid-old":{"main":"4-5"},` +
				`"uid-older":{"main":"6-7"}},"checksum":1}`)
		old, older := started(pod("old", "", "2", "")), started(pod("older", "", "2", ""))
		w.create(old)
		w.create(older)
		takeover := func() annotation.Takeover {
			t.Helper()
			text := w.published(annotation.TakeoverKey)
			if text == "" {
				return annotation.Takeover{}
			}
			got, _, err := annotation.ParseTakeover(text)
			testkit.Check(t, err)
			return got
		}
		w.options.Switches = probe.Switches{}
		w.run(func(*app.Agent) {
			later(time.Minute)
			if len(k.asked)+len(k.listed) > 0 || takeover().Phase != 1 ||
				strings.Contains(w.published(annotation.PodCPUAllocsKey), "uid-old") {
				t.Errorf("phase 1: asked %d times, take-over %+v, allocations %s: want the topology alone",
					len(k.asked)+len(k.listed), takeover(), w.published(annotation.PodCPUAllocsKey))
			}
		})
		w.options.Switches = probe.Switches{QueryKubelet: true, CPUSetAllocator: true}
		w.run(func(a *app.Agent) {
			later(time.Minute)
			if got := takeover(); got.Phase != 2 || got.RemainingPods != 2 || got.KubeletPolicy != "static" ||
				got.PinnableCPUs != "1-3,8-63" {
				t.Errorf("phase 2: take-over %+v, want two pods that remain", got)
			}
			young := pod("young", "", "2", "")
			w.create(young)
			c, err := w.start(a, young)
			if err != nil || w.cpuset(c) != "0-3,8-63" {
				t.Errorf("a new pod of a static kubelet runs on %q (%v), want the shared pool", w.cpuset(c), err)
			}
			began := takeover().Since
			// The kubelet does not start with another policy as long as its record is there.
			testkit.Check(t, os.Remove(w.root.Path("var/lib/kubelet/cpu_manager_state")))
			later(time.Minute)
			if got := takeover(); got.RemainingPods != 2 || w.condition(unreadable) != "True" {
				t.Errorf("its record is gone: take-over %+v, unreadable %q; want two pods that remain, and True",
					got, w.condition(unreadable))
			}
			k.now(func() { k.config = none(); k.config.Kubelet.CPU.Reserved = "0" })
			w.state(`{"policyName":"none","defaultCpuSet":"","checksum":1}`)
			later(time.Minute)
			if got := takeover(); got.Phase != 2 || got.RemainingPods != 2 || got.KubeletPolicy != "none" ||
				got.PinnableCPUs != "" || !got.Since.Equal(&began) {
				t.Errorf("the policy is none: take-over %+v, want two pods that remain", got)
			}
			if got := w.published(annotation.CPUSharedPoolsKey); !strings.Contains(got, `"cpuset":"0-3,8-63"`) ||
				w.policy().Policy != "none" || w.policy().ReservedCPUs != "" {
				t.Errorf("the policy is %+v: shared pool %s, want it without the CPUs of running pods", w.policy(), got)
			}
			w.remove(older)
			later(time.Minute)
			if got := takeover(); got.RemainingPods != 1 ||
				!strings.Contains(w.published(annotation.CPUSharedPoolsKey), `"cpuset":"0-3,6-63"`) {
				t.Errorf("one has ended: take-over %+v, shared pool %s", got, w.published(annotation.CPUSharedPoolsKey))
			}
		})
		w.run(func(*app.Agent) { // a restart: the kubelet's record is gone
			later(time.Minute)
			if got := takeover(); got.Phase != 2 || got.RemainingPods != 1 || got.Since.IsZero() {
				t.Errorf("after a restart: take-over %+v, want the pod that remains", got)
			}
			restarted := old.DeepCopy()
			restarted.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(time.Now())
			w.update(restarted) // the new container is not pinned
			later(time.Minute)
			if got := takeover(); got.Phase != 0 ||
				!strings.Contains(w.published(annotation.CPUSharedPoolsKey), `"cpuset":"0-63"`) {
				t.Errorf("the last has ended: take-over %+v, shared pool %s: want none, and all CPUs", got,
					w.published(annotation.CPUSharedPoolsKey))
			}
			for _, name := range []string{"takeover.json", "pinned.json"} {
				if _, err := os.Stat(w.root.Path("var/lib/tenon-agent", name)); err == nil {
					t.Errorf("%s is left", name)
				}
			}
		})
		close(recorder.Events)
		var sent []string
		for e := range recorder.Events {
			if strings.Contains(e, "TakeoverPhase") || strings.Contains(e, "KubeletSettingsChanged") {
				sent = append(sent, e)
			}
		}
		all := strings.Join(sent, "\n")
		for _, want := range []string{
			"TakeoverPhase phase 2", "the kubelet's settings are cpuManagerPolicy none",
			"the take-over has ended",
		} {
			if strings.Count(all, want) != 1 {
				t.Errorf("Events:\n%s\nwant %q once", all, want)
			}
		}
	})
}

// TestPinsDoNotOutliveAReboot: no container does.
func TestPinsDoNotOutliveAReboot(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		k := &talker{config: static()}
		w.ask(k)
		w.state(`{"policyName":"static","defaultCpuSet":"0-3,6-63","entries":{"uid-old":{"main":"4-5"}},"checksum":1}`)
		w.create(started(pod("old", "", "2", "")))
		w.run(func(*app.Agent) { later(time.Minute) })
		k.now(func() { k.config = none() })
		w.file("proc/sys/kernel/random/boot_id", "another\n")
		w.run(func(*app.Agent) {
			later(time.Minute)
			if got := w.published(annotation.CPUSharedPoolsKey); !strings.Contains(got, `"cpuset":"0-63"`) {
				t.Errorf("shared pool = %s after a reboot, want all CPUs", got)
			}
		})
	})
}

// TestNothingIsWrittenWhileNothingChanges counts every write to the API.
func TestNothingIsWrittenWhileNothingChanges(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		k := &talker{config: static(), resourcesErr: errDown}
		w.ask(k)
		w.state(`{"policyName":"static","defaultCpuSet":"0-3,6-63","entries":{"uid-a":{"main":"4-5"}},"checksum":1}`)
		w.create(started(pod("a", "", "2", "")))
		w.create(pod("b", "LSR", "2", "8-9"))
		w.run(func(a *app.Agent) {
			if _, err := w.start(a, pod("b", "LSR", "2", "8-9")); err != nil {
				t.Fatal(err)
			}
			later(time.Minute)
			w.client.ClearActions()
			w.objects.ClearActions()
			later(time.Hour)
			for _, action := range append(w.client.Actions(), w.objects.Actions()...) {
				switch action.GetVerb() {
				case "get", "list", "watch":
				default:
					t.Errorf("%s %s %s while nothing changed", action.GetVerb(), action.GetResource().Resource,
						action.GetSubresource())
				}
			}
		})
	})
}

// TestAnAnswerThatIsAMomentOldDoesNotContradict: files are read more often than the kubelet is asked.
func TestAnAnswerThatIsAMomentOldDoesNotContradict(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		k := &talker{config: static(), resources: kubeletapi.Resources{Pods: []kubeletapi.Pod{{
			Namespace: "default",
			Name:      "a", Containers: has(4, 5),
		}}}}
		w.ask(k)
		w.label(annotation.TopologyMode, "Follow")
		w.state(`{"policyName":"static","defaultCpuSet":"0-3,6-63","entries":{"uid-a":{"main":"4-5"}},"checksum":1}`)
		w.create(started(pod("a", "", "2", "")))
		w.run(func(*app.Agent) {
			later(time.Minute)
			w.create(pod("first", "LS", "1", "")) // the kubelet is asked
			k.now(func() { k.resources.Pods[0].Containers = has() })
			w.state(`{"policyName":"static","defaultCpuSet":"0-63","entries":{},"checksum":1}`)
			for i := range 8 { // each is a look at the files, within a second
				w.create(pod("later-"+string(rune('a'+i)), "LS", "1", ""))
			}
			later(time.Minute)
			if got := w.message(contradictory); got != "" {
				t.Errorf("message = %q, want none", got)
			}
		})
	})
}

// TestAKubeletThatTheModelDoesNotKnowIsACondition: it was taken for the newest that the model knows, and
// nothing said so.
func TestAKubeletThatTheModelDoesNotKnowIsACondition(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		k := &talker{config: none()}
		w.ask(k)
		runs := func(version string) {
			t.Helper()
			node, err := w.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
			testkit.Check(t, err)
			node.Status.NodeInfo.KubeletVersion = version
			if _, err := w.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			later(time.Minute)
		}
		w.run(func(*app.Agent) {
			runs("v1.38.0")
			if got := w.condition(event.KubeletAssumed); got != "" {
				t.Errorf("condition %q of a kubelet whose managers are off", got)
			}
			k.now(func() {
				k.config = static()
				k.config.Kubelet.CPU.Options = map[string]string{"pack": "true"}
				k.config.Kubelet.Gates = map[string]bool{"PodLevelResourceManagers": true}
			})
			later(3 * time.Minute)
			const want = "kubelet 1.38 is newer than the newest model, 1.37; " +
				"CPU manager option pack=true is not known; " +
				"feature gate PodLevelResourceManagers=true is not in the model"
			if got := w.message(event.KubeletAssumed); w.condition(event.KubeletAssumed) != "True" || got != want {
				t.Errorf("condition %q, %q, want %q", w.condition(event.KubeletAssumed), got, want)
			}
			k.now(func() { k.config = static() })
			later(3 * time.Minute)
			runs("v1.36.3")
			if got := w.condition(event.KubeletAssumed); got != "False" {
				t.Errorf("condition %q of a kubelet that the model knows", got)
			}
		})
	})
}
