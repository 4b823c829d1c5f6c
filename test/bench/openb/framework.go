package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/fragment"
	"github.com/tenon-project/tenon/internal/sim"
)

// throughFramework compares the replay of the first seed with what the scheduler makes of the same nodes and pods: its
// plugins in the framework of kube-scheduler, with its default profile. The pods have no controller, then ReplicaSets.
func throughFramework(out io.Writer, t *trace, settings fragment.Settings) error {
	want, err := replay(t, "rollout", settings, firstSeed)
	if err != nil {
		return err
	}
	for _, pods := range []string{"bare", "ReplicaSets"} {
		start := time.Now()
		got, err := schedule(t, firstSeed, pods != "bare")
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "framework: pods=%s seed=%d alloc100=%.2f replay=%.2f time=%.0fs\n", pods, firstSeed, got,
			want.at100, time.Since(start).Seconds())
		if math.Abs(got-want.at100) > tolerance {
			return fmt.Errorf("framework: %.2f; must be within %.1f of %.2f", got, tolerance, want.at100)
		}
	}
	return nil
}

// schedule lets the pods of a trace arrive in the order of a seed until they ask for all GPUs, and returns which part
// of these is allocated, in percent. Pods of equal specs are of one ReplicaSet where they are owned.
func schedule(t *trace, seed uint64, owned bool) (at100 float64, err error) {
	var in bytes.Buffer
	write := json.NewEncoder(&in)
	add := func(o any) {
		if err == nil {
			err = write.Encode(o)
			in.WriteString("---\n")
		}
	}
	for i := range t.nodes {
		node, devices := t.nodes[i].objects(t.models)
		add(node)
		add(devices)
	}
	sets, arrived := map[int]bool{}, int64(0)
	for i, p := range t.arrivals(rand.New(rand.NewPCG(seed, 0))) {
		set := ""
		if owned {
			set = fmt.Sprintf("set-%d", p.kind)
			if !sets[p.kind] {
				add(replicaSet(set))
			}
			sets[p.kind] = true
		}
		pod, faulty := p.object(fmt.Sprintf("pod-%05d", i), set, t.models)
		if faulty != nil {
			return 0, faulty
		}
		add(pod)
		if arrived += p.demand(); arrived >= t.capacity {
			break
		}
	}
	if err != nil {
		return 0, err
	}
	result, err := sim.Run(context.Background(), sim.Input{
		Paths: []string{"-"}, Stdin: &in, Warn: io.Discard,
	})
	if err != nil {
		return 0, err
	}
	percent := int64(0)
	for i := range result.Pods {
		for _, d := range result.Pods[i].Devices[string(device.GPU)] {
			n, err := strconv.ParseInt(d.Resources[device.GPUCore], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("pod %s: %w", result.Pods[i].Name, err)
			}
			percent += n
		}
	}
	return 100 * float64(percent*fragment.Whole/100) / float64(t.capacity), nil
}

type object = map[string]any

func meta(name string, more object) object {
	more["name"] = name
	return more
}

// objects are the Node, and the Device with its GPUs.
func (n *node) objects(models []string) (node, devices object) {
	has := object{"cpu": fmt.Sprintf("%dm", n.MilliCPU), "memory": fmt.Sprintf("%dMi", n.memory), "pods": "10000"}
	var gpus []object
	for i := range n.Free {
		gpus = append(gpus, object{
			"type": "gpu", "id": fmt.Sprintf("%s-%02d", n.name, i), "minor": i, "health": true,
			"labels":    object{annotation.GPUModelLabel: models[n.Model]},
			"resources": object{device.GPUCore: "100", device.GPUMemory: "16Gi"},
		})
	}
	node = object{
		"apiVersion": "v1", "kind": "Node", "status": object{"capacity": has, "allocatable": has},
		"metadata": meta(n.name, object{"labels": object{"kubernetes.io/hostname": n.name}}),
	}
	devices = object{
		"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device", "spec": object{"devices": gpus},
		"metadata": meta(n.name, object{"annotations": object{annotation.DeviceModeKey: annotation.DeviceOwn}}),
	}
	return node, devices
}

// object is the Pod, of a ReplicaSet unless that is "".
func (p *pod) object(name, set string, models []string) (object, error) {
	asks := object{"cpu": fmt.Sprintf("%dm", p.MilliCPU), "memory": fmt.Sprintf("%dMi", p.memory)}
	limits, annotations, more := object{}, object{}, object{}
	if p.GPUs > 0 {
		if p.Milli%10 != 0 {
			return nil, fmt.Errorf("gpu_milli is %d; must be a multiple of 10: the scheduler counts percent", p.Milli)
		}
		amount := strconv.FormatInt(p.demand()/10, 10)
		asks[device.GPUPercent], limits[device.GPUPercent] = amount, amount
	}
	if p.Models != 0 {
		var allowed []string
		for i, model := range models {
			if p.runsOn(fragment.Model(i)) {
				allowed = append(allowed, `"`+model+`"`)
			}
		}
		annotations[annotation.DeviceAllocateHintKey] = `{"gpu":{"selector":{"matchExpressions":[{"key":"` +
			annotation.GPUModelLabel + `","operator":"In","values":[` + strings.Join(allowed, ",") + `]}]}}}`
	}
	if more["annotations"] = annotations; set != "" {
		more["labels"] = object{"app": set}
		more["ownerReferences"] = []object{{
			"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": set, "controller": true,
		}}
	}
	return object{
		"apiVersion": "v1", "kind": "Pod", "metadata": meta(name, more),
		"spec": object{"containers": []object{container(object{"requests": asks, "limits": limits})}},
	}, nil
}

func container(resources object) object {
	return object{"name": "main", "image": "main", "resources": resources}
}

// replicaSet is one that has no replicas of its own: pods that name it count as its.
func replicaSet(name string) object {
	labels := object{"app": name}
	return object{
		"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta(name, object{}),
		"spec": object{"replicas": 0, "selector": object{"matchLabels": labels}, "template": object{
			"metadata": object{"labels": labels}, "spec": object{"containers": []object{container(object{})}},
		}},
	}
}
