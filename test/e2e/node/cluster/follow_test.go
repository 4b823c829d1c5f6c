//go:build linux && e2e_cluster

package fabricated

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
)

// compareFollow compares what the scheduler predicted with what the kubelet's managers recorded, with what the kubelet
// reports through PodResources, and with the CPUs of the containers.
func (n *node) compareFollow(ctx context.Context, pods []corev1.Pod) []string {
	var differences []string
	differ := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }
	state, err := n.cpuState()
	if err != nil {
		return append(differences, err.Error())
	}
	reported, err := n.podResources(ctx)
	if err != nil {
		return append(differences, err.Error())
	}
	for i := range pods {
		if p := &pods[i]; p.Spec.NodeName == n.name && !ended(p) {
			n.comparePlacement(p, state.Entries[string(p.UID)], reported[p.Name], differ)
		}
	}
	leaves, err := n.leaves()
	if err != nil {
		differ("%v", err)
	}
	for _, l := range leaves {
		n.compareFollowed(l, pods, state, differ)
	}
	return differences
}

// comparePlacement compares the long-running containers of a pod: init containers give back what they had.
func (n *node) comparePlacement(p *corev1.Pod, recorded map[string]string, reported map[string]given,
	differ func(string, ...any),
) {
	var predicted annotation.PredictedPlacement
	if text := p.Annotations[annotation.PredictedPlacementKey]; text != "" {
		var err error
		if predicted, _, err = annotation.ParsePredictedPlacement(text); err != nil {
			differ("%s: %v", title(p), err)
			return
		}
	}
	for _, c := range lasting(p) {
		want := predicted.Containers[c]
		if got := recorded[c]; !n.sameCPUs(got, want.CPUs) {
			differ("%s, container %s: predicted CPUs %q, cpu_manager_state has %q", title(p), c, want.CPUs, got)
		}
		got, ok := reported[c]
		if !ok {
			differ("%s, container %s: PodResources does not have it", title(p), c)
			continue
		}
		if !n.sameCPUs(got.cpus, want.CPUs) {
			differ("%s, container %s: predicted CPUs %q, PodResources has %q", title(p), c, want.CPUs, got.cpus)
		}
		memory := map[string]int64{}
		for group, q := range want.Memory {
			memory[group] = q.Value()
		}
		if !maps.Equal(memory, got.memory) {
			differ("%s, container %s: predicted memory %v, PodResources has %v", title(p), c, memory, got.memory)
		}
	}
}

// lasting are the long-running containers: the usual ones and sidecars.
func lasting(p *corev1.Pod) []string {
	var names []string
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil {
			names = append(names, c.Name)
		}
	}
	for _, c := range p.Spec.Containers {
		names = append(names, c.Name)
	}
	return names
}

func (n *node) sameCPUs(a, b string) bool { return n.cpus(a) == n.cpus(b) }

// compareFollowed compares one group with the kubelet's record. The agent writes nothing in this mode.
func (n *node) compareFollowed(l leaf, pods []corev1.Pod, state managers, differ func(string, ...any)) {
	i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return string(p.UID) == l.uid })
	if i < 0 {
		differ("a process lives in group %s of pod %s, which should be gone", l.id, l.uid)
		return
	}
	p := &pods[i]
	for _, e := range l.log {
		if e.By == byAgent {
			differ("%s, group %.8s: the agent wrote CPUs %q", title(p), l.id, e.CPUs)
		}
	}
	name := containerName(p, l.id)
	if name == "" {
		return // the sandbox: a kubelet leaves it alone
	}
	want := state.Entries[l.uid][name]
	if want == "" {
		want = state.Default
	}
	if !n.sameCPUs(l.virtual.CPUs, want) {
		differ("%s, container %s: has CPUs %q, the kubelet's record says %s; set by %s", title(p), name,
			l.virtual.CPUs, want, history(l.log))
	}
}

// containerName finds a container by its id; "" where none has it.
func containerName(p *corev1.Pod, id string) string {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if s.ContainerID == "containerd://"+id {
			return s.Name
		}
	}
	return ""
}
