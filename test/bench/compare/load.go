package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
)

// loadSuite is the default profile beside the same with LoadAwareScheduling, on nodes that report what they use.
func loadSuite(tenon string) suite {
	small := workload{cpu: "100m", memory: "128Mi"}
	sizes, set := small, small
	sizes.sizes, set.owner = alternating, "ReplicaSet"
	sets := set
	sets.owners = alternating
	return suite{
		contenders: []contender{
			{name: "without", path: tenon}, {name: "with", path: tenon, also: "LoadAwareScheduling"},
		},
		base: "without", digits: 3, reports: true,
		cases: []benchCase{
			{name: "p", title: "(p) equal pods (promised: CPU ≤ 1.05)", ratioTo: "p", load: small},
			{name: "f", title: "(f) 50 alternating sizes (promised: CPU ≤ 1.05)", ratioTo: "f", load: sizes},
			{name: "e", title: "(e) pods of a ReplicaSet (promised: CPU ≤ 1.05)", ratioTo: "e", load: set},
			{name: "g", title: "(g) 50 alternating ReplicaSets (promised: CPU ≤ 1.05)", ratioTo: "g", load: sets},
		},
	}
}

var nodeMetrics = slo.GroupVersion().WithResource("nodemetrics")

// startReports gives each node a NodeMetric of now, with the use of 30 pods, and renews it each minute until stop.
func (c *cluster) startReports(ctx context.Context, nodes int) (stop func(), err error) {
	exist := c.reports
	c.reports = true
	err = each(ctx, nodes, func(ctx context.Context, i int) error {
		if !exist {
			m := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": slo.GroupVersion().String(), "kind": "NodeMetric",
				"metadata": map[string]any{"name": nodeName(i)}, "spec": map[string]any{},
			}}
			if _, err := c.dynamic.Resource(nodeMetrics).Create(ctx, m, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		return c.report(ctx, i)
	})
	ctx, stop = context.WithCancel(ctx)
	go c.keepReporting(ctx, nodes)
	return stop, err
}

// report renews the NodeMetric of a node.
func (c *cluster) report(ctx context.Context, node int) error {
	use := `{"resources":{"cpu":"1","memory":"1Gi"}}`
	var pods []string
	for i := range 30 {
		pods = append(pods, fmt.Sprintf(`{"namespace":"bench","name":"other-%d","podUsage":%s}`, i,
			`{"resources":{"cpu":"30m","memory":"30Mi"}}`))
	}
	status := fmt.Appendf(nil, `{"status":{"updateTime":%q,"nodeMetric":{"nodeUsage":%s},"podsMetric":[%s]}}`,
		time.Now().UTC().Format(time.RFC3339), use, strings.Join(pods, ","))
	_, err := c.dynamic.Resource(nodeMetrics).Patch(ctx, nodeName(node),
		types.MergePatchType, status, metav1.PatchOptions{}, "status")
	return err
}

// keepReporting renews the reports of the nodes one after the other, each once a minute, until ctx ends.
func (c *cluster) keepReporting(ctx context.Context, nodes int) {
	for i := 0; sleep(ctx, time.Minute/time.Duration(nodes)); i++ {
		if err := c.report(ctx, i%nodes); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "report:", err)
		}
	}
}
