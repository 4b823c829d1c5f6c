package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/device/v1alpha1"
)

// gpusOfNode is the number of GPUs that each node has in the cases with devices.
const gpusOfNode = 8

// gpuName is the resource that pods with GPUs ask for, in percent.
const gpuName = "koordinator.sh/gpu"

// deviceSuite is pods with GPUs in tenon-scheduler beside plain pods in both, without and with GPUs on the nodes.
func deviceSuite(stock, tenon string) suite {
	plain := workload{cpu: "100m", memory: "128Mi"}
	asking := func(percent int64) workload {
		w := plain
		w.percent = percent
		return w
	}
	return suite{
		contenders: []contender{{name: "stock", path: stock}, {name: "tenon", path: tenon}},
		base:       "stock", digits: 2,
		cases: []benchCase{
			{name: "a", title: "(a) plain pods, no GPUs", ratioTo: "a", load: plain},
			{
				name: "p", title: "(p) plain pods on nodes with GPUs, beside tenon's (a) (promised: CPU ≤ 1.05)",
				ratioTo: "a", ratioOf: "tenon", load: plain, gpus: true, among: []string{"tenon"},
			},
			{
				name: "g", title: "(g) pods with a whole GPU, beside stock's (a) (promised: CPU ≤ 1.5)", ratioTo: "a",
				load: asking(100), gpus: true, among: []string{"tenon"},
			},
			{
				name: "s", title: "(s) pods with half a GPU, beside stock's (a) (promised: CPU ≤ 1.5)", ratioTo: "a",
				load: asking(50), gpus: true, among: []string{"tenon"},
			},
		},
	}
}

// setDevices gives all nodes GPUs that Tenon gives out, or takes them away: pairs with four lanes on two NUMA nodes.
func (c *cluster) setDevices(ctx context.Context, nodes int, wanted bool) error {
	if wanted == c.gpus {
		return nil
	}
	c.gpus = wanted
	devices := c.dynamic.Resource(v1alpha1.Resource())
	if !wanted {
		return devices.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	}
	var list, links []any
	for i := range gpusOfNode {
		id := fmt.Sprintf("GPU-%d", i)
		if i%2 == 1 {
			links = append(links, fmt.Sprintf(`{"ids":["GPU-%d","%s"],"type":"NVLink","count":4}`, i-1, id))
		}
		list = append(list, map[string]any{
			"type": "gpu", "id": id, "minor": int64(i), "health": true,
			"resources": map[string]any{"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "80Gi"},
			"topology": map[string]any{
				"socketID": int64(i * 2 / gpusOfNode), "nodeID": int64(i * 2 / gpusOfNode),
				"pcieID": fmt.Sprintf("pci0000:%d0", i), "busID": fmt.Sprintf("0000:%d1:00.0", i),
			},
		})
	}
	linked := fmt.Sprintf(`{"links":[%s,%s,%s,%s]}`, links...)
	return each(ctx, nodes, func(ctx context.Context, i int) error {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion().String(), "kind": "Device",
			"metadata": map[string]any{"name": nodeName(i), "annotations": map[string]any{
				annotation.DeviceModeKey: annotation.DeviceOwn, annotation.DeviceLinksKey: linked,
			}},
			"spec": map[string]any{"devices": list},
		}}
		_, err := devices.Create(ctx, o, metav1.CreateOptions{})
		return err
	})
}
