package observe

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// resources are what the kubelet allocated to each pod, from the PodResources API. They are not changed any more.
type resources struct {
	// cpus are the CPUs that a static kubelet may assign; nil before the first answer.
	cpus []int
	// devices are all devices of plugins, with Unhealthy set for those that the kubelet does not assign; nil before the
	// first answer.
	devices []host.Device
	// pods are the allocations by the UID by which the kubelet knows the pod. A pod that the last answer did not name
	// keeps its earlier entry until it ends.
	pods map[string]podResources
	// holders are the pods of the last answer that have devices. twice has the names that two pods have in
	// that answer.
	holders []kubeletapi.Pod
	twice   map[string]bool
	// answers is the number of answers that were used.
	answers int
}

// podResources is what the kubelet reported of one pod. Invariant: it is not of another pod of that name.
type podResources struct {
	containers map[string]kubeletapi.Container
	// named reports that the last answer named the pod; otherwise an earlier one did.
	named bool
}

// readResources asks the kubelet for the resources of its pods when that is due. A failure never means that nothing is
// allocated.
func (b *Observer) readResources(ctx context.Context) error {
	if b.o.AskResources == nil || !b.o.Switches.QueryKubelet {
		return nil
	}
	return b.resources.Refresh(ctx, func(last resources) (resources, error) {
		at, machine, node := b.o.Clock.Now(), b.o.Agent.Machine(), b.o.Agent.CurrentNode()
		answer, err := b.o.AskResources.Resources(ctx)
		if err == nil {
			err = checkResources(answer, machine)
		}
		if err != nil {
			return last, err
		}
		return last.with(answer, b.o.Agent.Pods(), at, node), nil
	})
}

// checkResources refuses an answer about another machine.
func checkResources(r kubeletapi.Resources, m *topo.Machine) error {
	known := func(ids []int, whose string) error {
		for _, id := range ids {
			if _, ok := m.CPUByID(id); !ok {
				return fmt.Errorf("PodResources: %s CPU %d, which the machine does not have", whose, id)
			}
		}
		return nil
	}
	if err := known(r.CPUs, "the kubelet may give"); err != nil {
		return err
	}
	for _, p := range r.Pods {
		for name, c := range p.Containers {
			if err := known(c.CPUs, "container "+name+" of pod "+p.Namespace+"/"+p.Name+" has"); err != nil {
				return err
			}
			for _, b := range c.Memory {
				for _, id := range b.NUMAIDs {
					if _, ok := m.NUMAByID(id); !ok {
						return fmt.Errorf(
							"PodResources: container %s of pod %s/%s has memory of NUMA node %d, which the machine "+
								"does not have", name, p.Namespace, p.Name, id)
					}
				}
			}
		}
	}
	return nil
}

// with returns the resources after an answer to a question of a moment. A pod that the answer does not name, because it
// is not of that moment or because the kubelet has just been restarted, keeps what was known of it until it ends.
func (r resources) with(answer kubeletapi.Resources, pods []*convert.Pod, at time.Time, node *corev1.Node) resources {
	r.answers++
	if len(answer.CPUs) > 0 { // before its managers have started a static kubelet reports none
		r.cpus = answer.CPUs
	}
	r.devices = withLost(answer.Devices, r.devices, node)
	named := map[string]map[string]kubeletapi.Container{}
	twice := map[string]bool{} // a pod and one that was deleted by force: the names are equal
	for _, p := range answer.Pods {
		key := p.Namespace + "/" + p.Name
		_, again := named[key]
		twice[key] = twice[key] || again
		named[key] = p.Containers
	}
	next := map[string]podResources{}
	for _, pod := range pods {
		if convert.Ended(pod.Pod) {
			continue
		}
		uid := convert.NodeUID(pod.Pod)
		key := pod.Namespace + "/" + pod.Name
		containers, ok := named[key]
		if ok && !twice[key] && startedBefore(pod.Pod, at) {
			next[uid] = podResources{containers, true}
		} else if old, kept := r.pods[uid]; kept {
			next[uid] = podResources{old.containers, false}
		}
	}
	r.pods, r.twice = next, twice
	r.holders = slices.DeleteFunc(slices.Clone(answer.Pods), func(p kubeletapi.Pod) bool {
		has := func(c kubeletapi.Container) bool { return len(c.Devices) > 0 }
		return !slices.ContainsFunc(slices.Collect(maps.Values(p.Containers)), has)
	})
	return r
}

// startedBefore reports whether the kubelet had begun with a pod before a moment for sure: an answer of that moment
// cannot be about an earlier pod of the same name. The API has whole seconds.
func startedBefore(pod *corev1.Pod, at time.Time) bool {
	return pod.Status.StartTime != nil && !pod.Status.StartTime.Add(time.Second).After(at)
}

// withLost adds, as unhealthy, the devices that were reported before, as long as the Node's capacity counts them: the
// kubelet reports only healthy ones.
func withLost(now, before []host.Device, node *corev1.Node) []host.Device {
	type unit struct{ resource, id string }
	have := map[unit]bool{}
	counts := map[string]int64{}
	for _, d := range now {
		have[unit{d.Resource, d.ID}] = true
		counts[d.Resource]++
	}
	all := slices.Clone(now)
	for _, d := range before {
		if node == nil || have[unit{d.Resource, d.ID}] {
			continue
		}
		capacity := node.Status.Capacity[corev1.ResourceName(d.Resource)]
		if counts[d.Resource] >= capacity.Value() {
			continue
		}
		counts[d.Resource]++
		d.Unhealthy = true
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b host.Device) int {
		return strings.Compare(a.Resource+"\x00"+a.ID, b.Resource+"\x00"+b.ID)
	})
	return all
}
