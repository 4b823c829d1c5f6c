package fabricated

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// The image of all containers: it prints its CPUs and waits; with "once" it ends at once.
const (
	probeImage = "localhost/probe:1"
	once       = "once"
)

// box is a container that is asked for. cpu is the request; limit "" is the same, "-" is none.
type box struct {
	cpu, memory, limit string
	// init containers come before the others; restarts makes one a sidecar.
	init, restarts bool
}

// wish is a pod that is asked for.
type wish struct {
	kind  string // for the table
	class string // the label's value, "" for none
	spec  string // of the annotation resource-spec
	numa  string // of the annotation numa-topology-spec
	boxes []box
}

// pods draws the waves of pods for a machine.
func (d drawer) pods(m machine.Description, follow bool) [][]wish {
	cpus := len(m.Spec().CPUs)
	draw := d.ownPod
	if follow {
		draw = d.followPod
	}
	var waves [][]wish
	for _, n := range []int{6, 4} {
		wave := []wish{d.first(cpus, follow)}
		for len(wave) < n {
			wave = append(wave, draw(cpus))
		}
		waves = append(waves, wave)
	}
	return waves
}

// first draws the pod that comes first: it finds room for CPUs of its own.
func (d drawer) first(cpus int, follow bool) wish {
	n := d.units(d.between(1, max(1, cpus/4)))
	w := wish{kind: "integer", boxes: []box{{cpu: fmt.Sprint(n), memory: "64Mi"}}}
	if !follow {
		w.class = pick(d, "LSE", "LSR")
		w.kind = w.class
	}
	return w
}

// whole draws a number of CPUs, now and then one that is not a multiple of the unit.
func (d drawer) whole(most int) string {
	n := d.between(1, max(1, most))
	if d.chance(85) {
		n = d.units(n)
	}
	return fmt.Sprint(n)
}

// units rounds up to whole units.
func (d drawer) units(n int) int { return (n + d.unit - 1) / d.unit * d.unit }

func (d drawer) memory() string { return pick(d, "64Mi", "64Mi", "128Mi", "256Mi", "1Gi", "2Gi") }

// ownPod draws a pod for a node in own mode.
func (d drawer) ownPod(cpus int) wish {
	third := cpus / 3
	switch d.IntN(11) {
	case 0:
		return wish{kind: "LSE", class: "LSE", boxes: []box{{cpu: d.whole(third), memory: d.memory()}}}
	case 1, 2:
		w := wish{kind: "LSR", class: "LSR", boxes: []box{{cpu: d.whole(third), memory: d.memory()}}}
		w.spec = pick(d, "", `{"preferredCPUBindPolicy":"FullPCPUs"}`, `{"preferredCPUBindPolicy":"SpreadByPCPUs"}`,
			`{"requiredCPUBindPolicy":"FullPCPUs"}`,
			`{"preferredCPUBindPolicy":"SpreadByPCPUs","preferredCPUExclusivePolicy":"PCPULevel"}`)
		w.numa = pick(d, "", "", `{"numaTopologyPolicy":"SingleNUMANode"}`, `{"numaTopologyPolicy":"Restricted"}`,
			`{"numaTopologyPolicy":"BestEffort"}`)
		return w
	case 3:
		return wish{kind: "LSR, two containers", class: "LSR", boxes: []box{
			{cpu: "1", memory: "64Mi", init: true},
			{cpu: d.whole(third / 2), memory: d.memory()},
			{cpu: "1", memory: "64Mi"},
		}}
	case 4:
		return wish{kind: "LS", class: "LS", boxes: []box{{cpu: "200m", memory: "64Mi", limit: "2"}}}
	case 5:
		return wish{kind: "LS with a sidecar", class: "LS", boxes: []box{
			{cpu: "100m", memory: "64Mi", init: true, restarts: true},
			{cpu: "1", memory: "64Mi", init: true},
			{cpu: "1500m", memory: "64Mi"},
		}}
	case 6:
		return wish{
			kind: "LS on one NUMA node", class: "LS", spec: `{"preferredCPUBindPolicy":"ConstrainedBurst"}`,
			boxes: []box{{cpu: "1", memory: "64Mi", limit: "2"}},
		}
	case 7:
		return wish{kind: "BE", class: "BE", boxes: []box{{}}}
	case 8:
		return wish{kind: "plain, integer", boxes: []box{{cpu: d.whole(third / 2), memory: d.memory()}}}
	case 9:
		return wish{
			kind:  "plain, fractional",
			boxes: []box{{cpu: "300m", memory: "64Mi"}, {cpu: "1200m", memory: "64Mi"}},
		}
	}
	return wish{kind: "plain, best effort", boxes: []box{{}}}
}

// followPod draws a pod for a node whose kubelet is followed.
func (d drawer) followPod(cpus int) wish {
	third := cpus / 3
	switch d.IntN(9) {
	case 0, 1, 2:
		return wish{kind: "integer", boxes: []box{{cpu: d.whole(third), memory: d.memory()}}}
	case 3:
		return wish{kind: "two integer", boxes: []box{
			{cpu: d.whole(third / 2), memory: d.memory()},
			{cpu: d.whole(third / 2), memory: d.memory()},
		}}
	case 4:
		return wish{
			kind:  "integer beside fractional",
			boxes: []box{{cpu: d.whole(third), memory: "128Mi"}, {cpu: "500m", memory: "64Mi"}},
		}
	case 5:
		return wish{kind: "integer after a larger init", boxes: []box{
			{cpu: d.whole(third), memory: "256Mi", init: true}, {cpu: d.whole(third / 2), memory: d.memory()},
		}}
	case 6:
		return wish{kind: "integer with an integer sidecar", boxes: []box{
			{cpu: d.whole(1), memory: "64Mi", init: true, restarts: true},
			{cpu: d.whole(third / 2), memory: d.memory()},
		}}
	case 7:
		return wish{kind: "fractional", boxes: []box{{cpu: "1500m", memory: "128Mi"}}}
	}
	return wish{kind: "burstable", boxes: []box{{cpu: "1", memory: "64Mi", limit: "2"}}}
}

// pod makes the object.
func (w wish) pod(name, node string) *corev1.Pod {
	// The grace period: the object goes when the kubelet has ended the containers.
	p := object.Pod(name, object.Grace(1), object.Class(w.class), object.Annotation(kindKey, w.kind),
		object.Annotation(annotation.ResourceSpecKey, w.spec),
		object.Annotation(annotation.NUMATopologySpecKey, w.numa))
	p.Spec.HostNetwork, p.Spec.EnableServiceLinks, p.Spec.AutomountServiceAccountToken = true, new(bool), new(bool)
	p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	for i, b := range w.boxes {
		c := b.container(fmt.Sprintf("c%d", i))
		if b.init {
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
			continue
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

func (b box) container(name string) corev1.Container {
	c := corev1.Container{Name: name, Image: probeImage, ImagePullPolicy: corev1.PullNever}
	if b.cpu != "" {
		c.Resources.Requests = object.List("cpu", b.cpu, "memory", b.memory)
		limit := b.limit
		if limit == "" {
			limit = b.cpu
		}
		c.Resources.Limits = object.List("cpu", limit, "memory", b.memory)
	}
	if b.init && !b.restarts {
		c.Args = []string{once}
	}
	if b.restarts {
		always := corev1.ContainerRestartPolicyAlways
		c.RestartPolicy = &always
	}
	return c
}

// sorted joins lists of ids.
func sorted(lists ...[]int) []int {
	ids := slices.Concat(lists...)
	slices.Sort(ids)
	return slices.Compact(ids)
}
