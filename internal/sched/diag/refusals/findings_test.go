package refusals

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/why"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// TestNumbersInRefusalsAreThoseOfTheNode: of each resource that NodeResourcesFit refuses, the finding has what the node
// has free. There are no numbers if that is enough; then the members of the gang that take it are named.
func TestNumbersInRefusalsAreThoseOfTheNode(t *testing.T) {
	t.Parallel()
	list := func(n [4]int64) corev1.ResourceList {
		return corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewMilliQuantity(n[0], resource.DecimalSI), corev1.ResourceMemory: count(n[1]),
			corev1.ResourceEphemeralStorage: count(n[2]), "nvidia.com/gpu": count(n[3]),
		}
	}
	refused := []string{
		"Insufficient cpu", "Insufficient memory", "Insufficient ephemeral-storage", "Insufficient nvidia.com/gpu",
	}
	rapid.Check(t, func(rt *rapid.T) {
		var has, used, asks [4]int64
		for i := range has {
			has[i] = rapid.Int64Range(0, 9).Draw(rt, "has")
			used[i] = rapid.Int64Range(0, 9).Draw(rt, "used")
			asks[i] = rapid.Int64Range(1, 9).Draw(rt, "asks")
		}
		node := framework.NewNodeInfo(asksFor(list(used)))
		node.SetNode(&corev1.Node{Status: corev1.NodeStatus{Allocatable: list(has)}})
		pod := asksFor(list(asks))
		status := fwk.NewStatus(fwk.Unschedulable, refused...)
		status.SetPlugin(names.NodeResourcesFit)
		beside := fwk.NewStatus(fwk.Unschedulable).WithError(&Beside{Status: status, Members: []string{"default/a"}})
		beside.SetPlugin(names.NodeResourcesFit)
		findings := Findings(pod, node, why.Filter, beside, "")
		if len(findings) != len(refused) {
			rt.Fatalf("got %+v", findings)
		}
		for i, f := range findings {
			if free := has[i] - used[i]; free >= asks[i] {
				if f.HaveNeed() != "" || !strings.HasSuffix(f.Detail, "other members take it: default/a") {
					rt.Fatalf("%d are free of %d that are asked for, got %+v", free, asks[i], f)
				}
			} else if f.Free != max(free, 0) || f.Asked != asks[i] || strings.Contains(f.Detail, "members") {
				rt.Fatalf("%d are free of %d that are asked for, got %+v", free, asks[i], f)
			}
		}
		if plain := Findings(pod, node, why.Filter, status, ""); plain[0].Reason != findings[0].Reason {
			rt.Fatalf("got %+v alone and %+v beside a member", plain[0], findings[0])
		}
	})
}

func count(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }

func asksFor(list corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Requests: list},
	}}}}
}
