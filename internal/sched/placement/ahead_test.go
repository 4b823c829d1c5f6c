package placement_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/sched/deviceshare"
	"github.com/tenon-project/tenon/internal/sched/nodenumaresource"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestLookAhead: pods get CPUs now of a node with 16 CPUs, of which a pod has 8 for a while. Another one starts there
// once that one has left. Node follows is the same, but that its kubelet decides; node bare has GPUs alone.
func TestLookAhead(t *testing.T) {
	t.Parallel()
	bind := func(name, policy string, cpus int64) *corev1.Pod {
		p := pod(name, profileName(0), cpus)
		p.Annotations = map[string]string{annotation.ResourceSpecKey: `{"requiredCPUBindPolicy":"` + policy + `"}`}
		return p
	}
	lsr := func(name string, cpus int64) *corev1.Pod { return pod(name, profileName(0), cpus) }
	ls := func(p *corev1.Pod) *corev1.Pod {
		p.Labels[annotation.QoSClass] = "LS"
		return p
	}
	claims := func(p *corev1.Pod, policy string) *corev1.Pod {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c"}}
		p.Annotations = map[string]string{annotation.NUMATopologySpecKey: `{"numaTopologyPolicy":"` + policy + `"}`}
		return p
	}
	guaranteed := object.Pod("p", object.Scheduler(profileName(0)), object.Both("cpu", "2", "memory", "1Gi"))
	const held, unknown, single = "held", "unknown", "SingleNUMANode"
	spread := bind("p", "SpreadByPCPUs", 4)
	for name, c := range map[string]struct {
		pod, starts *corev1.Pod
		second      *corev1.Pod // starts as well, unless it is nil
		node        string      // n0 if empty
		within      bool        // the pod uses the room of the one that leaves, which is a Reservation and remains
		want        string      // "": it starts
	}{
		"enough is left for two":    {pod: lsr("p", 4), starts: lsr("held", 4), second: lsr("b", 6)},
		"too little for the second": {pod: lsr("p", 4), starts: lsr("held", 4), second: lsr("b", 8), want: held},
		"a GPU that it needs": {
			pod: gpuPod("p", profileName(0), "LS", 1, 100), starts: gpuPod("held", profileName(0), "LS", 1, 200),
			node: "bare", want: held,
		},
		"enough is left":                   {pod: lsr("p", 4), starts: lsr("held", 10)},
		"too little is left":               {pod: lsr("p", 4), starts: lsr("held", 12), want: held},
		"whole cores are left":             {pod: spread, starts: bind("held", "FullPCPUs", 8)},
		"threads of cores that it needs":   {pod: spread, starts: bind("held", "FullPCPUs", 10), want: held},
		"the pod does not fit now":         {pod: lsr("p", 10), starts: lsr("held", 2), want: unknown},
		"a kubelet decides":                {pod: guaranteed, starts: lsr("held", 2), node: "follows", want: unknown},
		"a pod without CPUs of its own":    {pod: ls(lsr("p", 4)), starts: lsr("held", 14)},
		"the pod uses a Reservation":       {pod: lsr("p", 4), starts: lsr("held", 6), within: true},
		"and its rest remains reserved":    {pod: lsr("p", 4), starts: lsr("held", 8), within: true, want: held},
		"one that cannot be read starts":   {pod: lsr("p", 4), starts: bind("held", "Unknown", 2)},
		"one without CPUs of its own does": {pod: lsr("p", 4), starts: ls(lsr("held", 100))},
		"CPUs beside devices of its claims": {
			pod: claims(lsr("p", 4), single), starts: lsr("held", 4), want: unknown,
		},
		"CPUs beside devices of claims of a held one": {
			pod: lsr("p", 4), starts: claims(lsr("held", 4), single), want: unknown,
		},
		"CPUs and claims that no policy aligns": {pod: lsr("p", 4), starts: claims(lsr("held", 4), "BestEffort")},
		"one with CPUs on a node that has none": {
			pod: gpuPod("p", profileName(0), "LS", 1, 100), starts: lsr("held", 2), node: "bare",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1, []plugin{{nodenumaresource.Name, 1}, {deviceshare.Name, 1}})
			follows := b.addNode(t, "follows").DeepCopy()
			follows.Status.NodeInfo.KubeletVersion = "v1.36.3"
			follows.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			b.store.PutNode(follows)
			m := grid.Machine{Arch: "amd64", Nodes: 2, Cores: 4, Threads: 2}.Build(t)
			b.store.PutTopology(object.Topology("follows", m, map[string]string{
				annotation.KubeletKey:   `{"cpu":{"policy":"static","reserved":"0"}}`,
				annotation.TopologyMode: annotation.ModeFollow, annotation.ReportKey: `{"gen":1}`,
			}))
			bare := object.Node("bare", nil, "cpu", "16", "pods", "110")
			b.store.PutNode(bare)
			b.addGPUs("bare", 2)
			if c.node == "" {
				c.node = "n0"
			}
			left := lsr("left", 8)
			left.Spec.NodeName = c.node
			left.Annotations = map[string]string{
				annotation.ResourceStatusKey: annotation.Encode(annotation.ResourceStatus{CPUSet: "0-3,8-11"}),
			}
			b.store.PutPod(left)
			info, err := framework.NewPodInfo(left)
			testkit.Check(t, err)
			n, _ := b.store.Node(c.node)
			node := framework.NewNodeInfo(left)
			node.SetNode(n.Object)

			f, cs := b.Profiles[profileName(0)], framework.NewCycleState()
			if _, status, _ := f.RunPreFilterPlugins(t.Context(), cs, c.pod); !status.IsSuccess() {
				t.Fatal(status)
			}
			if c.within {
				placement.Read(cs).Enter(c.node, string(left.UID))
			}
			got := ""
			var starts []fwk.PodInfo
			for _, p := range []*corev1.Pod{c.starts, c.second} {
				if p != nil {
					info, err := framework.NewPodInfo(p)
					testkit.Check(t, err)
					starts = append(starts, info)
				}
			}
			if placement.LookAhead(cs, c.pod, c.node, starts) {
				if !c.within {
					f.RunPreFilterExtensionRemovePod(t.Context(), cs, c.pod, info, node)
					testkit.Check(t, node.RemovePod(klog.Background(), left))
				}
				for _, info := range starts {
					f.RunPreFilterExtensionAddPod(t.Context(), cs, c.pod, info, node)
				}
				if status := f.RunFilterPlugins(t.Context(), cs, c.pod, node); !status.IsSuccess() {
					got = "held"
					t.Log(status.Message())
				}
			} else {
				got = "unknown"
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
