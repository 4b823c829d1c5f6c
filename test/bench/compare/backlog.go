package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// backlogPods is the number of pods that fit nowhere.
	backlogPods = 500
	// churnPerSecond is the number of nodes and bound pods that change each second.
	churnPerSecond = 50
)

// backlogSuite is plain pods of an open loop beside pods that fit nowhere, in kube-scheduler and in tenon-scheduler.
func backlogSuite(stock, tenon string) suite {
	plain := workload{cpu: "100m", memory: "128Mi"}
	return suite{
		contenders: []contender{{name: "stock", path: stock}, {name: "tenon", path: tenon}},
		base:       "stock", digits: 2,
		cases: []benchCase{
			{
				name: "n", title: "(n) 100 pods/s, no backlog", ratioTo: "n", load: plain, perSecond: 100,
			},
			{
				name: "q", title: "(q) 100 pods/s beside 500 pods that fit nowhere", ratioTo: "q", load: plain,
				perSecond: 100, backlog: backlogPods,
			},
			{
				name: "c", title: "(c) the same, and 50 nodes or pods change a second", ratioTo: "c", load: plain,
				perSecond: 100, backlog: backlogPods, churn: churnPerSecond,
			},
			{
				name: "o", title: "(o) 100 pods/s beside 500 pods of as many sizes that fit nowhere", ratioTo: "o",
				load: plain, perSecond: 100, backlog: backlogPods, ownSizes: true,
			},
		},
	}
}

// shapes are the pods of a backlog, in round robin: more than a node has of CPUs or memory, a label that no node has,
// and more than the pod that each node runs has left, of CPUs alone and of both.
var shapes = []struct {
	workload
	selector map[string]string
}{
	{workload: workload{cpu: "64", memory: "1Gi"}},
	{workload: workload{cpu: "1", memory: "512Gi"}},
	{workload: workload{cpu: "1", memory: "1Gi"}, selector: map[string]string{"example.com/disk": "none"}},
	{workload: workload{cpu: "30", memory: "1Gi"}},
	{workload: workload{cpu: "30", memory: "250Gi"}},
}

// addRunning creates a pod of 4 CPUs and 16 GiB on each node.
func (c *cluster) addRunning(ctx context.Context, run string, nodes int) error {
	return each(ctx, nodes, func(ctx context.Context, i int) error {
		pod := workload{cpu: "4", memory: "16Gi"}.pod(run+"-runs", i)
		pod.Namespace, pod.Spec.NodeName = fillNamespace, nodeName(i)
		_, err := c.kube.CoreV1().Pods(fillNamespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
}

// addBacklog creates n pods that fit nowhere. With ownSizes no two of them request the same memory.
func (c *cluster) addBacklog(ctx context.Context, run string, n int, ownSizes bool) error {
	return each(ctx, n, func(ctx context.Context, i int) error {
		shape := shapes[i%len(shapes)]
		if ownSizes {
			memory := resource.MustParse(shape.memory)
			memory.Add(*resource.NewQuantity(int64(i)<<20, resource.BinarySI))
			shape.memory = memory.String()
		}
		pod := shape.pod(run+"-waits", i)
		pod.Namespace, pod.Spec.NodeSelector = fillNamespace, shape.selector
		_, err := c.kube.CoreV1().Pods(fillNamespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
}

// churn makes perSecond changes a second until ctx ends: every second one deletes the first pod of the open loop that
// is bound, the others, and all while none is bound, set a label of a node.
func (c *cluster) churn(ctx context.Context, run string, nodes, perSecond int, seen *binds) {
	grace, pod := int64(0), 0
	first := time.Now()
	for i := 0; ; i++ {
		if !sleep(ctx, time.Until(first.Add(time.Duration(i)*time.Second/time.Duration(perSecond)))) {
			return
		}
		change := func() error {
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"example.com/churn":"%d"}}}`, i)
			_, err := c.kube.CoreV1().Nodes().Patch(ctx, nodeName(i*7%nodes), types.MergePatchType, patch,
				metav1.PatchOptions{})
			return err
		}
		if name := podName(run, pod); i%2 == 1 && seen.isBound(name) {
			pod++
			change = func() error {
				return c.kube.CoreV1().Pods(namespace).Delete(ctx, name,
					metav1.DeleteOptions{GracePeriodSeconds: &grace})
			}
		}
		go func() {
			if err := change(); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "change:", err)
			}
		}()
	}
}
