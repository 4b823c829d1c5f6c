package deviceshare

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/fragment"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/follow"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// profile is all that the plugin asks of its profile: the snapshot of the cycle.
type profile struct {
	fwk.Handle
	snapshot *cache.Snapshot
}

func (p *profile) SnapshotSharedLister() fwk.SharedLister { return p.snapshot }

// pluginOn returns the plugin of a profile whose snapshot has the nodes. devices are the entries of their Device
// objects, in JSON.
func pluginOn(t *testing.T, nodes []*corev1.Node, devices map[string]string) *Plugin {
	t.Helper()
	store := kube.NewStore()
	for _, n := range nodes {
		store.PutNode(n)
	}
	for node, list := range devices {
		const object = `{"metadata":{"name":%q,"annotations":{%q:"Own"}},"spec":{"devices":[%s]}}`
		d, err := kube.ReadDevice(fmt.Appendf(nil, object, node, annotation.DeviceModeKey, list))
		testkit.Check(t, err)
		store.PutDevice(d)
	}
	registry := metrics.NewKubeRegistry()
	tracker := follow.NewTracker(store, follow.NewMetrics(registry.MustRegister), time.Now)
	d := placement.NewDecisions(store, placement.NewMetrics(registry.MustRegister), tracker)
	h := &profile{snapshot: cache.NewSnapshot(nil, nodes)}
	return &Plugin{Plugin: d.Join(h, Name), handle: h, learner: newLearner()}
}

// entry is one of a Device object. more follows its other fields.
func entry(kind string, i int, more string) string {
	return fmt.Sprintf(`{"type":%q,"id":"%[1]s-%d","minor":%[2]d,"health":true,"labels":`+
		`{"node.koordinator.sh/gpu-model":"A"}%s}`, kind, i, more)
}

// TestWhatIsFreeIsThatOfTheNodesThatTakePods: with a single GPU or several, and not of a cordoned node.
func TestWhatIsFreeIsThatOfTheNodesThatTakePods(t *testing.T) {
	t.Parallel()
	cordoned := object.Node("cordoned", nil)
	cordoned.Spec.Unschedulable = true
	two := entry("gpu", 0, "") + "," + entry("gpu", 1, "")
	for name, tc := range map[string]struct {
		node    *corev1.Node
		devices string
		want    int64
	}{
		"one GPU":                   {object.Node("n", nil), entry("gpu", 0, ""), 1000},
		"two GPUs":                  {object.Node("n", nil), two, 2000},
		"two GPUs of a closed node": {cordoned, two, 0},
		"an adapter":                {object.Node("n", nil), entry("rdma", 0, ""), 0},
	} {
		p := pluginOn(t, []*corev1.Node{tc.node}, map[string]string{tc.node.Name: tc.devices})
		if diff := cmp.Diff(fragment.Supply{tc.want}, p.free()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestANodeWhoseDeviceIsLikelyToFailScoresLess, although the pod asks for no certain device.
func TestANodeWhoseDeviceIsLikelyToFailScoresLess(t *testing.T) {
	t.Parallel()
	const degraded = `,"conditions":[{"type":"Degraded","status":"True"}]`
	nodes := []*corev1.Node{object.Node("healthy", nil, "cpu", "8"), object.Node("degraded", nil, "cpu", "8")}
	for name, tc := range map[string]struct{ kind, resource, amount string }{
		"a GPU":      {"gpu", "koordinator.sh/gpu", "100"},
		"an adapter": {"rdma", "koordinator.sh/rdma", "100"},
	} {
		p := pluginOn(t, nodes, map[string]string{
			"healthy": entry(tc.kind, 0, ""), "degraded": entry(tc.kind, 0, degraded),
		})
		cs := framework.NewCycleState()
		pod := object.Pod("p", object.UID("p"), object.Both("cpu", "1", tc.resource, tc.amount))
		if _, status := p.PreFilter(t.Context(), cs, pod, nil); !status.IsSuccess() {
			t.Fatalf("%s: %v", name, status)
		}
		if status := p.PreScore(t.Context(), cs, pod, nil); !status.IsSuccess() {
			t.Fatalf("%s: %v", name, status)
		}
		var scores [2]int64
		for i, node := range nodes {
			n, err := p.handle.SnapshotSharedLister().NodeInfos().Get(node.Name)
			testkit.Check(t, err)
			scores[i], _ = p.Score(t.Context(), cs, pod, n)
		}
		if less := scores[0] - scores[1]; less != degradedPenalty {
			t.Errorf("%s: the node scores %d less, want %d", name, less, degradedPenalty)
		}
	}
}
