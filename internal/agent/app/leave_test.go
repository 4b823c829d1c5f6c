package app_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/testkit"
)

// mark sets the annotation by which the node is to be left, or removes it.
func (w *world) mark(leave bool) {
	w.t.Helper()
	nodes := w.client.CoreV1().Nodes()
	node, err := nodes.Get(w.t.Context(), nodeName, metav1.GetOptions{})
	testkit.Check(w.t, err)
	node.Annotations = map[string]string{}
	if leave {
		node.Annotations[annotation.LeaveKey] = "true"
	}
	if _, err := nodes.Update(w.t.Context(), node, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	later(2 * time.Second)
}

func (w *world) left() (status corev1.ConditionStatus, reason, message string) {
	w.t.Helper()
	node, err := w.client.CoreV1().Nodes().Get(w.t.Context(), nodeName, metav1.GetOptions{})
	testkit.Check(w.t, err)
	for _, c := range node.Status.Conditions {
		if string(c.Type) == event.NodeLeft.Condition() {
			return c.Status, c.Reason, c.Message
		}
	}
	return "", "", ""
}

// groups are the values of a container's group and of its pod's, by file.
func (w *world) groups(c hook.Container) map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for prefix, group := range map[string]string{"": c.Cgroup, "pod/": c.Pod.Cgroup} {
		for _, file := range []string{desired.CPUs, desired.Mems, desired.QuotaV2} {
			text, err := w.tree.Read(group, file)
			testkit.Check(w.t, err)
			out[prefix+file] = text
		}
	}
	return out
}

// TestANodeIsLeftAndComesBack: what runs goes on with what the kubelet gives, nothing is published or held back, also
// by an agent that starts meanwhile, and without the annotation all is as before.
func TestANodeIsLeftAndComesBack(t *testing.T) {
	inWorld(t, "xeon-2s", func(t *testing.T, w *world) {
		var bound, shared hook.Container
		start := func(a *app.Agent, p *corev1.Pod) hook.Container {
			w.create(p)
			c, err := w.start(a, p)
			if err != nil {
				t.Fatalf("start of %s: %v", p.Name, err)
			}
			return c
		}
		check := func(when, boundCPUs, boundMems, quota, sharedCPUs string) {
			t.Helper()
			g := w.groups(bound)
			if g[desired.CPUs] != boundCPUs || g[desired.Mems] != boundMems || g[desired.QuotaV2] != quota ||
				g["pod/"+desired.QuotaV2] != quota || w.cpuset(shared) != sharedCPUs {
				t.Errorf("%s: the bound pod has %v, the other one %s; want CPUs %s, memory %s, quota %s, and %s", when,
					g, w.cpuset(shared), boundCPUs, boundMems, quota, sharedCPUs)
			}
		}
		w.run(func(a *app.Agent) {
			p := pod("bound", "LSR", "4", "")
			p.Annotations[annotation.ResourceStatusKey] = `{"cpuset":"24-25,72-73",` +
				`"numaNodeResources":[{"node":1,"resources":{"cpu":"4","memory":"1Gi"}}]}`
			bound, shared = start(a, p), start(a, pod("shared", "LS", "1", ""))
			later(2 * time.Second)
			check("before", "24-25,72-73", "1", "max 100000", "0-23,26-71,74-95")
			w.mark(true)
			check("left", "0-95", "0-1", "400000 100000", "0-95")
			if status, reason, text := w.left(); status != corev1.ConditionTrue || reason != event.Left ||
				!strings.Contains(text, "default/bound") {
				t.Errorf("condition = %s, %s: %q; want True, Left, and the name of the pod", status, reason, text)
			}
			testkit.Check(t, w.tree.Write(shared.Cgroup, desired.CPUs, "5"))
			testkit.Check(t, w.objects.Tracker().Delete(v1alpha2.Resource(), "", nodeName))
			start(a, pod("unallocated", "LSE", "2", ""))
			later(time.Minute)
			check("another program's cpuset", "0-95", "0-1", "400000 100000", "5")
			if _, err := w.objects.Tracker().Get(v1alpha2.Resource(), "", nodeName); err == nil {
				t.Error("the topology is published again")
			}
		})
		w.run(func(a *app.Agent) {
			if err := a.Ready(); err != nil {
				t.Errorf("an agent that starts on a node that is left: %v, want ready", err)
			}
			later(time.Minute)
			check("another agent", "0-95", "0-1", "400000 100000", "0-95")
			w.mark(false)
			later(15 * time.Second)
			check("back", "24-25,72-73", "0-1", "max 100000", "0-23,26-71,74-95")
			if status, _, _ := w.left(); status != corev1.ConditionFalse {
				t.Errorf("condition = %s once the node is back, want False", status)
			}
			if w.published(annotation.CPUTopology) == "" {
				t.Error("the topology is not published again")
			}
		})
	})
}

// TestANodeIsLeftThatAStaticKubeletHas: groups have what the kubelet's record says.
func TestANodeIsLeftThatAStaticKubeletHas(t *testing.T) {
	inWorld(t, "arm64-1s@static,reserved=0", func(t *testing.T, w *world) {
		w.state(`{"policyName":"static","defaultCpuSet":"0-1,6-63","entries":{"uid-bound":{"main":"2-5"}},` +
			`"checksum":0}`)
		w.run(func(a *app.Agent) {
			bound, shared := pod("bound", "LSR", "4", "10-13"), pod("shared", "LS", "1500m", "")
			groups := map[string]hook.Container{}
			for _, p := range []*corev1.Pod{bound, shared} {
				w.create(p)
				c, err := w.start(a, p)
				testkit.Check(t, err)
				groups[p.Name] = c
			}
			later(time.Second)
			w.mark(true)
			if b, s := w.cpuset(groups["bound"]), w.cpuset(groups["shared"]); b != "2-5" || s != "0-1,6-63" {
				t.Errorf("cpusets = %s and %s, want those of the kubelet's record: 2-5 and 0-1,6-63", b, s)
			}
		})
	})
}

// TestAKernelThatRefusesHoldsALeavingNode: it is reported, tried again, and the node is left once it works.
func TestAKernelThatRefusesHoldsALeavingNode(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		broken := &brokenTree{Cgroup: w.tree}
		w.options.Cgroup = broken
		w.run(func(a *app.Agent) {
			p := pod("bound", "LSR", "4", "0-3")
			w.create(p)
			c, err := w.start(a, p)
			testkit.Check(t, err)
			broken.refuse.Store(c.Cgroup)
			w.mark(true)
			if _, reason, text := w.left(); reason != "CgroupsRemain" || !strings.Contains(text, "permission denied") {
				t.Errorf("condition: %s, %q; want CgroupsRemain and the kernel's answer", reason, text)
			}
			broken.refuse.Store("")
			later(2 * time.Minute)
			if _, reason, _ := w.left(); reason != event.Left {
				t.Errorf("condition: %s once the kernel takes values, want Left", reason)
			}
		})
	})
}

// TestPodsThatNeedTheAgentHoldALeavingNode: without a runtime that is known to ignore the fence, fenced pods hold.
func TestPodsThatNeedTheAgentHoldALeavingNode(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		w.unasked, w.options.NRISocket = true, "/nonexistent/nri.sock"
		w.run(func(*app.Agent) {
			fenced, allocated := pod("fenced", "LSR", "4", "0-3"), pod("gpu", "", "1", "")
			fenced.Annotations[annotation.RequiredPlugins] = `["tenon-agent"]`
			allocated.Annotations[annotation.DeviceAllocatedKey] = `{"gpu":[{"minor":0,"id":"GPU-0","resources":` +
				`{"koordinator.sh/gpu-core":"100"}}]}`
			w.create(fenced)
			w.create(allocated)
			w.mark(true)
			for _, name := range []string{"default/fenced", "default/gpu"} {
				if _, reason, text := w.left(); reason != "AgentNeeded" || !strings.Contains(text, name) {
					t.Errorf("condition: %s, %q; want AgentNeeded and %s", reason, text, name)
				}
			}
			for _, p := range []*corev1.Pod{fenced, allocated} {
				err := w.client.CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{})
				testkit.Check(t, err)
			}
			later(15 * time.Second)
			if _, reason, text := w.left(); reason != event.Left {
				t.Errorf("condition: %s, %q once the pods are gone, want Left", reason, text)
			}
		})
	})
}

// TestALeftNodeHasNoOtherConditions: what the agent would report is true of no agent.
func TestALeftNodeHasNoOtherConditions(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		w.run(func(*app.Agent) {
			w.mark(true)
			w.client.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
				t.Errorf("a write of the Node: %s", a.(clienttesting.PatchAction).GetPatch())
				return false, nil, nil
			})
			w.label(annotation.TopologyMode, annotation.ModeFollow) // a wish that cannot be met
			later(time.Minute)
		})
	})
}

// TestContainersOfALeftNodeSeeDevices: those with an allocation get it as long as there is an agent, and no other one
// is kept from what the kubelet gives it.
func TestContainersOfALeftNodeSeeDevices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newAccelerated(t)
		w.mode("Own")
		w.run(func(a *app.Agent) {
			wantVisible(t, a, "before", "void", "GPU-a")
			w.mark(true)
			wantVisible(t, a, "while the node is left", "-", "GPU-a")
			w.mark(false)
			wantVisible(t, a, "back", "void", "GPU-a")
		})
	})
}
