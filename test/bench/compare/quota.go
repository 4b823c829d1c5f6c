package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
)

const (
	// quotaNamespace has no pods: the quotas are those that pods name.
	quotaNamespace = "quotas"
	// leaves of the tree in the cases with quotas, and children of each parent.
	leaves, fanout = 1000, 10
)

// quotaSuite is the default profile with ElasticQuota beside the same with DefaultPreemption in its place.
func quotaSuite(tenon string) suite {
	plain := workload{cpu: "100m", memory: "128Mi"}
	member := plain
	member.leaves = leaves
	return suite{
		contenders: []contender{
			{name: "without", path: tenon, instead: map[string]string{"ElasticQuota": "DefaultPreemption"}},
			{name: "with", path: tenon},
		},
		base: "without", digits: 3,
		cases: []benchCase{
			{
				name: "p", title: "(p) pods of no quota, no ElasticQuota (promised: CPU ≤ 1.01)", ratioTo: "p",
				load: plain,
			},
			{
				name: "n", title: "(n) pods of no quota beside 1,000 leaves (promised: CPU ≤ 1.01)", ratioTo: "n",
				load: plain, leaves: leaves,
			},
			{
				name: "q", title: "(q) pods of 1,000 leaves (promised: CPU ≤ 1.03, pods/s ≥ 0.97)", ratioTo: "q",
				load: member, leaves: leaves,
			},
		},
		benchmarks: []benchmark{
			{title: "divide 10 children", binary: core, name: divide(10), promised: 5 * time.Microsecond},
			{title: "divide 100 children", binary: core, name: divide(100), promised: 30 * time.Microsecond},
			{title: "divide 1,000 children", binary: core, name: divide(1000), promised: 500 * time.Microsecond},
			{
				title:  "divide 2,000 children in 2 dimensions (Koordinator, measured elsewhere: 7.25 ms)",
				binary: core, name: "Refresh", beside: 7250 * time.Microsecond,
			},
			{title: "a pod comes, is admitted, goes: 100 leaves", binary: core, name: "Admission/leaves=100"},
			{
				title: "a pod comes, is admitted, goes: 1,000 leaves", binary: core, name: "Admission/leaves=1000",
				to: "Admission/leaves=100",
			},
			{
				title: "a pod comes, is admitted, goes: 10,000 leaves", binary: core, name: "Admission/leaves=10000",
				to: "Admission/leaves=100",
			},
			{
				title: "all that the plugin does for a pod of no quota, no ElasticQuota", binary: plugin,
				name: "Pod/of=none/leaves=0", base: "p",
			},
			{
				title: "all that the plugin does for a pod of no quota beside 1,000 leaves", binary: plugin,
				name: "Pod/of=none/leaves=1000", base: "n",
			},
			{
				title: "all that the plugin does for a pod of 1,000 leaves", binary: plugin,
				name: "Pod/of=leaf/leaves=1000", base: "q",
			},
		},
	}
}

// core and plugin are test binaries.
const core, plugin = "quota.test", "elasticquota.test"

func divide(n int) string { return fmt.Sprintf("Divide/n=%d", n) }

func leafName(i int) string { return quotaName(0, i) }

func quotaName(level, i int) string { return fmt.Sprintf("bench-%d-%05d", level, i) }

// setTree makes the cluster's ElasticQuotas a tree with the given number of leaves. A leaf may use more than the pods
// of a burst ask for, and is guaranteed less: it borrows.
func (c *cluster) setTree(ctx context.Context, leaves int) error {
	if leaves == c.leaves {
		return nil
	}
	c.leaves = leaves
	quotas := c.dynamic.Resource(v1alpha1.Resource(v1alpha1.GroupName)).Namespace(quotaNamespace)
	if leaves == 0 {
		return quotas.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	}
	for level, n, below := 0, leaves, int64(1); ; level, n, below = level+1, (n+fanout-1)/fanout, below*fanout {
		err := each(ctx, n, func(ctx context.Context, i int) error {
			labels := map[string]any{annotation.QuotaIsParent: fmt.Sprint(level > 0)}
			if n > fanout {
				labels[annotation.QuotaParent] = quotaName(level+1, i/fanout)
			}
			q := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": v1alpha1.GroupName + "/v1alpha1", "kind": "ElasticQuota",
				"metadata": map[string]any{"name": quotaName(level, i), "labels": labels},
				"spec": map[string]any{
					"min": map[string]any{
						string(corev1.ResourceCPU):              fmt.Sprintf("%dm", 200*below),
						string(corev1.ResourceMemory):           fmt.Sprintf("%dMi", 256*below),
						string(corev1.ResourceEphemeralStorage): fmt.Sprintf("%dGi", below),
					},
					"max": map[string]any{
						string(corev1.ResourceCPU):              "100k",
						string(corev1.ResourceMemory):           "1Pi",
						string(corev1.ResourceEphemeralStorage): "1Pi",
					},
				},
			}}
			_, err := quotas.Create(ctx, q, metav1.CreateOptions{})
			return err
		})
		if err != nil || n <= fanout {
			return err
		}
	}
}
