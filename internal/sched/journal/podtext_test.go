package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// randomPod returns one of few specs and states under one of many names, so that parts are shared and confused parts
// are seen.
func randomPod(random *rand.Rand) *corev1.Pod {
	one := func(values ...string) string { return values[random.IntN(len(values))] }
	pod := object.Pod(one("a", `q"uo\te`, "<ü>\u2028", "")+fmt.Sprint(random.IntN(50)), object.UID(one("u", "v&")),
		object.Both("cpu", one("1", "0.5", "500m")))
	pod.Namespace = one("", "ns", "ns\n")
	if random.IntN(2) == 0 {
		pod.Labels = map[string]string{one("l", "m"): one("", "<x>"), "z": "1"}
		pod.Annotations = map[string]string{"scheduling.koordinator.sh/a": one(`{"a":1}`, "b")}
		pod.OwnerReferences = []metav1.OwnerReference{
			{Name: "r", UID: types.UID(one("r", "s")), Controller: ptr.To(true)},
		}
		pod.CreationTimestamp = metav1.NewTime(start.Add(time.Duration(random.IntN(3)) * time.Second))
	}
	pod.Generation = int64(random.IntN(2))
	pod.Spec.NodeName = one("", "n")
	pod.Spec.Priority = []*int32{nil, ptr.To[int32](0), ptr.To[int32](1)}[random.IntN(3)]
	pod.Spec.NodeSelector = []map[string]string{nil, {"a": "b"}, {"a": "b", "c": "d"}}[random.IntN(3)]
	pod.Status.Phase = corev1.PodPhase(one("", "Pending", "Running"))
	if random.IntN(2) == 0 {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionStatus(one("True", "False")), Reason: one("", "R"),
			LastTransitionTime: metav1.NewTime(start.Add(time.Duration(random.IntN(3)) * time.Second)),
		}}
	}
	return pod
}

// TestPodsAreEncodedAsJSONDoes compares the remembered texts with encoding/json for random pods, whose parts repeat.
func TestPodsAreEncodedAsJSONDoes(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var w writer
	for i := range 5_000 {
		if i%1000 == 999 { // the next part does not fit
			w.pods.size = textSize
		}
		pod := randomPod(random)
		if i == 0 {
			pod = &corev1.Pod{} // all of whose parts have an empty protocol buffer
		}
		op := []string{Put, Change, Delete}[random.IntN(3)]
		e := &entry{gen: uint64(i), at: start.Add(time.Duration(random.Int64N(1e12))), op: op, object: pod}
		got, err := w.appendPodEvent(nil, e, pod)
		testkit.Check(t, err)
		event, err := Encode(op, pod)
		testkit.Check(t, err)
		want, err := json.Marshal(&Record{Type: EventType, Gen: e.gen, Time: e.at, Event: event})
		testkit.Check(t, err)
		if diff := cmp.Diff(decoded(t, want), decoded(t, got)); diff != "" {
			t.Fatalf("pod %d, %s (-want +got)\n%s", i, op, diff)
		}
	}
	if w.pods.size > textSize {
		t.Errorf("texts of %d bytes are remembered, want at most %d", w.pods.size, textSize)
	}
}

// decoded returns the value of a JSON text. An empty name or UID is like none.
func decoded(t *testing.T, text []byte) any {
	t.Helper()
	var record struct {
		T     string
		Gen   uint64
		TS    string
		Event struct {
			Op, Kind string
			Object   struct {
				Metadata     map[string]any
				Spec, Status any
			}
		}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	testkit.Check(t, d.Decode(&record))
	for _, key := range []string{"name", "uid"} {
		if record.Event.Object.Metadata[key] == "" {
			delete(record.Event.Object.Metadata, key)
		}
	}
	return record
}

// BenchmarkPod records a pod of a ReplicaSet that is created, decided about and bound: 3 records.
func BenchmarkPod(b *testing.B) {
	for _, names := range []string{"shared", "own"} {
		b.Run("spec="+names, func(b *testing.B) {
			r := New(b.TempDir(), Snapshot{}, func(...metrics.Registerable) {})
			w := &writer{recorder: r, logger: klog.Background()}
			h := r.handler(cache.ResourceEventHandlerFuncs{})
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				was := object.Pod("a", object.UID(fmt.Sprint(i)), object.Both("cpu", "100m"))
				was.Generation = 1
				was.CreationTimestamp = metav1.NewTime(start)
				was.Labels = map[string]string{"app": "a", "pod-template-hash": "1234"}
				if names == "own" {
					was.Spec.NodeSelector = map[string]string{"own": fmt.Sprint(i)}
				}
				now := was.DeepCopy()
				now.Spec.NodeName = "n"
				now.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: "True"}}
				h.OnAdd(was, false)
				r.Begin(was, 1)
				r.decision.Node, r.decision.Feasible, r.decision.Of = "n", 500, 500
				r.decision.Samples = map[int][]string{1: {"n", "m", "o"}}
				r.order.Lock()
				r.end()
				r.order.Unlock()
				h.OnUpdate(was, now)
				h.OnDelete(now)
				w.drain()
			}
		})
	}
}
