package view_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

func TestPlacementShowsPredictedAndActualAllocation(t *testing.T) {
	t.Parallel()
	m := machine(t)
	behaviour, _ := kubelet.ModelOf("v1.36.0")
	node, reason := kubelet.NewNode(m, kubelet.Config{
		Model: behaviour, CPU: kubelet.CPU{Static: true}, Topology: kubelet.Topology{Policy: hint.Restricted},
	}, kubelet.Inventory{})
	if !reason.OK() {
		t.Fatalf("NewNode: %+v", reason)
	}
	guest := &kubelet.Pod{UID: "u", Guaranteed: true, Containers: []kubelet.Container{{Name: "c", CPUs: 2}}}
	held := func(cpus string, numa ...int) kubelet.Held {
		return kubelet.Held{Container: "c", NUMAIDs: numa, Preferred: true, CPUList: cpus}
	}
	entry := ledger.Entry{
		UID: "u", Namespace: "d", Name: "p", Class: qos.LSR, Role: qos.ExclusiveWithBE,
		Guest: &tenancy.Guest{Pod: guest, Prediction: &tenancy.Prediction{
			Model: "1.36", Gen: 1,
			Held: []kubelet.Held{held("0,8", 0)},
		}},
	}
	const written = `{"model":"1.36","gen":1,"containers":{"c":{"mask":[0],"preferred":true,"cpus":"0,8"}}}`
	placed := func(cpus string, numa int) view.Containers {
		return view.Containers{"c": {Mask: []int{numa}, Preferred: true, CPUs: cpus}}
	}
	tests := map[string]struct {
		report []tenancy.Grant // nil: the node has not reported the pod
		pod    func(*corev1.Pod)
		want   view.Placement
	}{
		"predicted, not reported yet": {want: view.Placement{Predicted: placed("0,8", 0)}},
		"reported as predicted": {
			report: []tenancy.Grant{{UID: "u", Placement: kubelet.PlacementOf(m, []kubelet.Held{held("0,8", 0)})}},
			want:   view.Placement{Predicted: placed("0,8", 0), Actual: placed("0,8", 0)},
		},
		"reported with other CPUs of the same NUMA node": {
			report: []tenancy.Grant{{UID: "u", Placement: kubelet.PlacementOf(m, []kubelet.Held{held("1,9", 0)})}},
			want:   view.Placement{Predicted: placed("0,8", 0), Actual: placed("1,9", 0), Differs: []string{"cpus"}},
		},
		"reported on another NUMA node": {
			report: []tenancy.Grant{{UID: "u", Placement: kubelet.PlacementOf(m, []kubelet.Held{held("4,12", 1)})}},
			want:   view.Placement{Predicted: placed("0,8", 0), Actual: placed("4,12", 1), Differs: []string{"mask"}},
		},
		"an annotation that cannot be read": {
			pod:  func(p *corev1.Pod) { p.Annotations[annotation.PredictedPlacementKey] = "{" },
			want: view.Placement{},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := ledger.New(ledger.Facts{
				Machine: m, MinSharedCPUs: -1, Mode: ledger.Follow,
				Model: kubelet.Facts{
					Node: node, Config: node.Config(), Gen: 2, Assumed: []string{"a guess"},
				},
				Given: tt.report,
			}, entry).View()
			pod := object.Pod("d/p", object.UID("u"), object.On("n"),
				object.Annotation(annotation.PredictedPlacementKey, written))
			if tt.pod != nil {
				tt.pod(pod)
			}
			got := describe.Placement(pod, v)
			if diff := cmp.Diff(tt.want, view.Placement{
				Predicted: got.Predicted, Actual: got.Actual,
				Differs: got.Differs,
			}); diff != "" {
				t.Errorf("placement (-want +got):\n%s", diff)
			}
			if !slices.Equal(got.Assumed, []string{"a guess"}) {
				t.Errorf("assumed %q, want what is taken for granted of the kubelet", got.Assumed)
			}
			if got.Pool != "" || got.CPUSet != "" {
				t.Errorf("the kubelet reports no CPUs, but the placement is %s %s%s", got.Pool, got.PoolCPUs,
					got.CPUSet)
			}
			alone := describe.Placement(pod, nil)
			if !cmp.Equal(alone.Predicted, tt.want.Predicted) || alone.Actual != nil {
				t.Errorf("without an account of the node: %+v", alone)
			}
		})
	}
}

// A kubelet takes back what an init container had when it has ended, and reports it no more.
func TestEndedInitContainerIsNotADifference(t *testing.T) {
	t.Parallel()
	m := machine(t)
	behaviour, _ := kubelet.ModelOf("v1.36.0")
	node, reason := kubelet.NewNode(m, kubelet.Config{Model: behaviour, CPU: kubelet.CPU{Static: true}},
		kubelet.Inventory{})
	if !reason.OK() {
		t.Fatalf("NewNode: %+v", reason)
	}
	guest := &kubelet.Pod{UID: "u", Guaranteed: true, Containers: []kubelet.Container{
		{Name: "i", Role: kubelet.Init, CPUs: 4}, {Name: "c", CPUs: 2},
	}}
	held := func(container, cpus string) kubelet.Held { return kubelet.Held{Container: container, CPUList: cpus} }
	entry := ledger.Entry{UID: "u", Guest: &tenancy.Guest{Pod: guest, Prediction: &tenancy.Prediction{
		Model: "1.36", Gen: 1, Held: []kubelet.Held{held("i", "0-1,8-9"), held("c", "0,8")},
	}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: corev1.PodSpec{NodeName: "n"}}
	for name, tt := range map[string]struct {
		report []kubelet.Held
		want   []string
	}{
		"it runs":           {[]kubelet.Held{held("i", "0-1,8-9"), held("c", "0,8")}, nil},
		"it has ended":      {[]kubelet.Held{held("c", "0,8")}, nil},
		"it runs elsewhere": {[]kubelet.Held{held("i", "2-3,10-11"), held("c", "0,8")}, []string{"cpus"}},
		"it has ended, and another one is elsewhere": {[]kubelet.Held{held("c", "2,10")}, []string{"cpus"}},
	} {
		v := ledger.New(ledger.Facts{
			Machine: m, MinSharedCPUs: -1, Mode: ledger.Follow,
			Model: kubelet.Facts{
				Node: node, Config: node.Config(), Gen: 2,
			},
			Given: []tenancy.Grant{{UID: "u", Placement: kubelet.PlacementOf(m, tt.report)}},
		}, entry).View()
		if diff := cmp.Diff(tt.want, describe.Placement(pod, v).Differs); diff != "" {
			t.Errorf("%s: differences (-want +got):\n%s", name, diff)
		}
	}
}

func TestRejectedPodHasTheKubeletsReason(t *testing.T) {
	t.Parallel()
	pod := func(reason string, phase corev1.PodPhase) *corev1.Pod {
		p := object.Pod("d/p", object.On("n"))
		p.Status = corev1.PodStatus{Phase: phase, Reason: reason, Message: "no alignment"}
		return p
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want *view.Rejection
	}{
		"by the topology manager": {
			pod("TopologyAffinityError", corev1.PodFailed),
			&view.Rejection{Node: "n", Reason: "TopologyAffinityError", Message: "no alignment"},
		},
		"by the node's other checks": {
			pod("OutOfcpu", corev1.PodFailed),
			&view.Rejection{Node: "n", Reason: "OutOfcpu", Message: "no alignment"},
		},
		"failed by itself":            {pod("", corev1.PodFailed), nil},
		"running with an odd message": {pod("TopologyAffinityError", corev1.PodRunning), nil},
	} {
		if diff := cmp.Diff(c.want, describe.Pod(c.pod).Head.Rejection); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got := describe.Placement(c.pod, ledger.New(
			ledger.Facts{Machine: machine(t)}).View()); c.pod.Status.Phase == corev1.PodFailed &&
			(got.Pool != "" || got.Node != "n") {
			t.Errorf("%s: a pod that has ended is said to run on %+v", name, got)
		}
	}
}
