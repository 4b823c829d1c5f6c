package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

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
				ratioTo: "a", ratioOf: "tenon", load: plain, gpus: 1, among: []string{"tenon"},
			},
			{
				name: "g", title: "(g) pods with a whole GPU, beside stock's (a) (promised: CPU ≤ 1.5)", ratioTo: "a",
				load: asking(100), gpus: 1, among: []string{"tenon"},
			},
			{
				name: "s", title: "(s) pods with half a GPU, beside stock's (a) (promised: CPU ≤ 1.5)", ratioTo: "a",
				load: asking(50), gpus: 1, among: []string{"tenon"},
			},
		},
	}
}

// setDevices gives all nodes GPUs that Tenon gives out, or takes them away: pairs with four lanes on two NUMA nodes.
// Each GPU has an id of its own. Addresses and the size of memory are those of the kind of server; 0 kinds are none.
func (c *cluster) setDevices(ctx context.Context, nodes, kinds int) error {
	if kinds == c.gpus {
		return nil
	}
	devices := c.dynamic.Resource(v1alpha1.Resource())
	if c.gpus > 0 {
		if err := devices.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			return err
		}
	}
	c.gpus = kinds
	if kinds == 0 {
		return nil
	}
	return each(ctx, nodes, func(ctx context.Context, i int) error {
		_, err := devices.Create(ctx, deviceOf(i, i%kinds), metav1.CreateOptions{})
		return err
	})
}

// deviceOf returns the Device of a node that is a server of this kind.
func deviceOf(node, kind int) *unstructured.Unstructured {
	var list []any
	var links, ids []string
	for i := range gpusOfNode {
		id := sha256.Sum256(fmt.Appendf(nil, "%s/%d", nodeName(node), i))
		ids = append(ids, fmt.Sprintf("GPU-%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16]))
		if i%2 == 1 {
			links = append(links, fmt.Sprintf(`{"ids":["%s","%s"],"type":"NVLink","count":4}`, ids[i-1], ids[i]))
		}
		list = append(list, map[string]any{
			"type": "gpu", "id": ids[i], "minor": int64(i), "health": true,
			"resources": map[string]any{
				"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": fmt.Sprintf("%dGi", 80+kind),
			},
			"topology": map[string]any{
				"socketID": int64(i * 2 / gpusOfNode), "nodeID": int64(i * 2 / gpusOfNode),
				"pcieID": fmt.Sprintf("pci%04x:%d0", kind, i), "busID": fmt.Sprintf("%04x:%d1:00.0", kind, i),
			},
		})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": "Device",
		"metadata": map[string]any{"name": nodeName(node), "annotations": map[string]any{
			annotation.DeviceModeKey:  annotation.DeviceOwn,
			annotation.DeviceLinksKey: `{"links":[` + strings.Join(links, ",") + `]}`,
		}},
		"spec": map[string]any{"devices": list},
	}}
}
