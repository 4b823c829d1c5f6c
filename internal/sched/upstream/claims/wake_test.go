package claims

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

// hinted is a queue with hints.
type hinted struct {
	queue.SchedulingQueue
	queueingHintMap queue.QueueingHintMapPerProfile
}

// TestADeletedClaimWakesThePodItWasMadeFor, and no other pod; neither does any other change of a claim, nor does the
// hint of another plugin change.
func TestADeletedClaimWakesThePodItWasMadeFor(t *testing.T) {
	t.Parallel()
	claim := func(made string, controls bool) *resourcev1.ResourceClaim {
		return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "c",
			Annotations:     map[string]string{resourcev1.ExtendedResourceClaimAnnotation: made},
			OwnerReferences: []metav1.OwnerReference{{Name: "p", UID: "uid-p", Controller: &controls}},
		}}
	}
	made, other := claim("true", true), types.NamespacedName{Namespace: "ns", Name: "other"}
	for name, c := range map[string]struct {
		was, now any
		uid      types.UID
		wakes    bool
		names    bool
	}{
		"the claim of the pod":        {made, nil, "uid-p", true, true},
		"of another pod of that name": {made, nil, "uid-q", false, true},
		"of a template":               {claim("", true), nil, "uid-p", false, false},
		"of no pod":                   {claim("true", false), nil, "uid-p", false, false},
		"it has changed":              {made, made, "uid-p", false, false},
		"it was created":              {nil, made, "uid-p", false, false},
		"its last state is not known": {cache.DeletedFinalStateUnknown{Obj: made}, nil, "uid-p", false, false},
	} {
		hint := func(plugin string) *queue.QueueingHintFunction {
			return &queue.QueueingHintFunction{
				PluginName: plugin,
				QueueingHintFn: func(klog.Logger, *corev1.Pod, any, any) (fwk.QueueingHint, error) {
					return fwk.QueueSkip, nil
				},
				PreQueueingHintFn: func(klog.Logger, any, any) (fwk.PreQueueingHintResult, error) {
					return fwk.PreQueueingHintResult{Pods: []types.NamespacedName{other}}, nil
				},
			}
		}
		own, nodes, foreign := hint(names.DynamicResources), hint(names.DynamicResources), hint("Other")
		bare := &queue.QueueingHintFunction{PluginName: names.DynamicResources, QueueingHintFn: own.QueueingHintFn}
		on := func(r fwk.EventResource) fwk.ClusterEvent {
			return fwk.ClusterEvent{Resource: r, ActionType: fwk.All}
		}
		testkit.Check(t, Wake(&hinted{queueingHintMap: queue.QueueingHintMapPerProfile{"default": {
			on(fwk.ResourceClaim): {own, foreign, bare}, on(fwk.Node): {nodes},
		}}}))
		pod := testobject.Pod("p", testobject.UID(string(c.uid)))
		asks := func(h *queue.QueueingHintFunction) (wakes bool, pods []types.NamespacedName) {
			got, err := h.QueueingHintFn(klog.Background(), pod, c.was, c.now)
			testkit.Check(t, err)
			if h.PreQueueingHintFn != nil {
				found, err := h.PreQueueingHintFn(klog.Background(), c.was, c.now)
				testkit.Check(t, err)
				pods = found.Pods
			}
			return got == fwk.Queue, pods
		}
		want := []types.NamespacedName{other}
		if c.names {
			want = append(want, types.NamespacedName{Namespace: "ns", Name: "p"})
		}
		if wakes, pods := asks(own); wakes != c.wakes || !slices.Equal(pods, want) {
			t.Errorf("%s: wakes %t and names %v, want %t and %v", name, wakes, pods, c.wakes, want)
		}
		if wakes, pods := asks(bare); wakes != c.wakes || pods != nil {
			t.Errorf("%s: a hint that names no pods wakes %t and names %v", name, wakes, pods)
		}
		for _, h := range []*queue.QueueingHintFunction{nodes, foreign} {
			if wakes, pods := asks(h); wakes || len(pods) != 1 {
				t.Errorf("%s: a hint of %s about something else wakes %t and names %v", name, h.PluginName, wakes, pods)
			}
		}
	}
	if Wake(&struct{ queue.SchedulingQueue }{}) == nil {
		t.Error("a queue without hints was taken")
	}
}
