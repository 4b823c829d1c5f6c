package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/agent/status"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// resources are the last good view of what the kubelet allocated to each pod, from the PodResources API.
type resources struct {
	// cpus are those that a static kubelet may give; nil while it has not said.
	cpus []int
	// devices are all that plugins have, those that the kubelet keeps back as Unhealthy; nil while it has not said.
	devices []host.Device
	// pods maps the UID by which the kubelet knows a pod to what it has.
	pods map[string]podResources
	pace pace
	// busy counts the refusals in a row of a kubelet that is asked too often.
	busy int
	// answers counts the good ones. disputed is what the kubelet's files said otherwise at the last comparison, first
	// after the answer of number disputedAt.
	answers, disputedAt int
	disputed            string
}

// podResources is what the kubelet reported of one pod. Invariant: it is not of another pod of that name.
type podResources struct {
	containers map[string]kubeletapi.Container
	// named: the last answer named the pod; else an earlier one did.
	named bool
}

// readResources asks the kubelet for the resources of its pods when that is due. A failure leaves the last good view in
// force and is a condition: it never means that nothing is allocated.
func (a *Agent) readResources(ctx context.Context) error {
	if a.o.AskResources == nil || !a.o.Switches.QueryKubelet {
		return nil
	}
	at := a.o.Clock.Now()
	a.mu.Lock()
	r := &a.resources
	due, machine, node := r.pace.due(at), a.machine, a.node
	a.mu.Unlock()
	if !due {
		return nil
	}
	answer, err := a.o.AskResources(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the agent ends: not the kubelet's fault
	}
	if err == nil {
		err = checkResources(answer, machine)
	}
	pods := a.podList()
	a.mu.Lock()
	if errors.Is(err, kubeletapi.ErrBusy) && r.busy == 0 {
		r.busy++
		r.pace.failed(a.o.Clock.Now())
		a.mu.Unlock()
		return nil // the next question is a second away
	}
	if err == nil {
		r.take(answer, pods, at, node)
		r.busy = 0
		r.pace.answered(a.o.Clock.Now(), a.o.Resync)
	} else {
		r.pace.failed(a.o.Clock.Now())
	}
	a.mu.Unlock()
	set := a.status.Source("resources")
	if err != nil {
		return errors.Join(err, set(ctx, status.SourceDegraded, true, "PodResourcesUnavailable",
			err.Error()+": the last good answer and the kubelet's files count"))
	}
	return set(ctx, status.SourceDegraded, false, "Usable", "the kubelet reports the resources of its pods")
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

// take makes an answer to a question of a moment the view. A pod that the answer does not name, because it is not of
// that moment or because the kubelet has just been restarted, keeps what the view had of it until it ends.
func (r *resources) take(answer kubeletapi.Resources, pods []*corev1.Pod, at time.Time, node *corev1.Node) {
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
		if convert.Ended(pod) {
			continue
		}
		uid := probe.StateUID(pod)
		key := pod.Namespace + "/" + pod.Name
		containers, ok := named[key]
		if ok && !twice[key] && startedBefore(pod, at) {
			next[uid] = podResources{containers, true}
		} else if old, kept := r.pods[uid]; kept {
			next[uid] = podResources{old.containers, false}
		}
	}
	r.pods = next
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

// overlay puts the view over what the kubelet's files say, and returns what they disagree about, "" for nothing. For a
// container that both name the view counts, but where it says that a container has none of something the files count:
// what only one of them contains is taken as allocated. Init containers and pods that just started are only in the
// files. For a pod that the last answer did not name the view counts only without a file.
func (r *resources) overlay(s probe.KubeletState, k host.Kubelet) (probe.KubeletState, string) {
	var disputes []string
	static, memoryStatic := k.CPUPolicy == annotation.KubeletPolicyStatic,
		k.MemoryPolicy == annotation.KubeletMemoryStatic
	noCPUFile, noMemoryFile, noDeviceFile := s.CPU.Policy == "", s.Memory.Policy == "", s.Devices.Registered == nil
	s.CPU.Containers, s.CPU.Pods = maps.Clone(s.CPU.Containers), maps.Clone(s.CPU.Pods)
	s.Memory.Pods, s.Devices.Pods = maps.Clone(s.Memory.Pods), maps.Clone(s.Devices.Pods)
	for _, uid := range slices.Sorted(maps.Keys(r.pods)) {
		pod := r.pods[uid]
		for _, name := range slices.Sorted(maps.Keys(pod.containers)) {
			c := pod.containers[name]
			var found []string
			if static && (pod.named || noCPUFile) {
				found = append(found, overlayCPUs(&s.CPU, uid, name, c.CPUs)...)
			}
			if memoryStatic && (pod.named || noMemoryFile) {
				found = append(found, overlayMemory(&s.Memory, uid, name, c.Memory)...)
			}
			if pod.named || noDeviceFile {
				found = append(found, overlayDevices(&s.Devices, uid, name, c.Devices)...)
			}
			if pod.named {
				disputes = append(disputes, found...)
			}
		}
	}
	return s, strings.Join(disputes, "; ")
}

func overlayCPUs(s *host.CPUState, uid, name string, cpus []int) []string {
	old := s.Containers[uid]
	if _, whole := old[host.WholePod]; whole || slices.Equal(old[name], cpus) {
		return nil
	}
	dispute := []string{fmt.Sprintf(
		"container %s of the pod with UID %s has CPUs %s by PodResources, and %s by cpu_manager_state",
		name, uid, orNone(cpuset.FormatIDs(cpus), "none"), orNone(cpuset.FormatIDs(old[name]), "none"))}
	if len(cpus) == 0 {
		return dispute
	}
	next := maps.Clone(old)
	if next == nil {
		next = map[string][]int{}
	}
	next[name] = cpus
	if s.Containers == nil {
		s.Containers, s.Pods = map[string]map[string][]int{}, map[string][]int{}
	}
	s.Containers[uid] = next
	var all []int
	for _, ids := range next {
		all = append(all, ids...)
	}
	slices.Sort(all)
	s.Pods[uid] = slices.Compact(all)
	return dispute
}

func overlayMemory(s *host.MemoryState, uid, name string, blocks []host.MemoryBlock) []string {
	old := s.Pods[uid]
	if _, whole := old[host.WholePod]; whole || equalBlocks(old[name], blocks) {
		return nil
	}
	dispute := []string{fmt.Sprintf(
		"container %s of the pod with UID %s has memory %v by PodResources, and %v by memory_manager_state", name, uid,
		blocks, old[name])}
	if len(blocks) == 0 {
		return dispute
	}
	next := maps.Clone(old)
	if next == nil {
		next = map[string][]host.MemoryBlock{}
	}
	next[name] = blocks
	if s.Pods == nil {
		s.Pods = map[string]map[string][]host.MemoryBlock{}
	}
	s.Pods[uid] = next
	return dispute
}

// equalBlocks compares blocks in any order.
func equalBlocks(a, b []host.MemoryBlock) bool {
	text := func(blocks []host.MemoryBlock) []string {
		var out []string
		for _, b := range blocks {
			out = append(out, fmt.Sprint(b.Type, b.NUMAIDs, b.Bytes))
		}
		slices.Sort(out)
		return out
	}
	return slices.Equal(text(a), text(b))
}

func overlayDevices(s *host.DeviceState, uid, name string, devices []host.Device) []string {
	byResource := map[string][]host.Device{}
	for _, d := range devices {
		byResource[d.Resource] = append(byResource[d.Resource], d)
	}
	old := s.Pods[uid][name]
	next := maps.Clone(old)
	if next == nil {
		next = map[string][]host.Device{}
	}
	var disputes []string
	for _, kind := range slices.Sorted(maps.Keys(byResource)) {
		if ids := deviceIDs(byResource[kind]); !slices.Equal(ids, deviceIDs(old[kind])) {
			disputes = append(disputes, fmt.Sprintf(
				"container %s of the pod with UID %s has %s %v by PodResources, and %v by the device checkpoint",
				name, uid, kind, ids, deviceIDs(old[kind])))
		}
		next[kind] = byResource[kind]
	}
	if len(byResource) == 0 {
		return nil // what the file has is kept
	}
	containers := maps.Clone(s.Pods[uid])
	if containers == nil {
		containers = map[string]map[string][]host.Device{}
	}
	containers[name] = next
	if s.Pods == nil {
		s.Pods = map[string]map[string]map[string][]host.Device{}
	}
	s.Pods[uid] = containers
	return disputes
}

func deviceIDs(devices []host.Device) []string {
	ids := make([]string, 0, len(devices))
	for _, d := range devices {
		ids = append(ids, d.ID)
	}
	slices.Sort(ids)
	return ids
}

// dispute returns what the files have disagreed about with two answers in a row: one of them may just have been a
// moment ahead of the other.
func (r *resources) dispute(now string) string {
	if now != r.disputed {
		r.disputed, r.disputedAt = now, r.answers
	}
	if r.answers == r.disputedAt {
		return ""
	}
	return now
}

// inventory returns the devices of the node's plugins; nil while they are unknown.
func (a *Agent) inventory() []host.Device {
	if a.o.Devices != nil {
		return a.o.Devices()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.resources.devices
}

// hintKubelet makes the agent ask the kubelet soon: it may have restarted, or has recorded something.
func (a *Agent) hintKubelet(restarted bool) {
	a.mu.Lock()
	a.resources.pace.hint()
	if restarted {
		a.settings.pace.hint()
	}
	a.mu.Unlock()
	a.touch()
}

// wantResources makes the agent ask for resources soon: pods have changed.
func (a *Agent) wantResources() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resources.pace.want()
}

// askAgain returns how long until a source wants to be asked before the next resync.
func (a *Agent) askAgain() (time.Duration, bool) {
	if !a.o.Switches.QueryKubelet {
		return 0, false
	}
	now := a.o.Clock.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	least, found := time.Duration(0), false
	for _, source := range []struct {
		pace *pace
		used bool
	}{{&a.settings.pace, a.o.AskKubelet != nil && a.node != nil}, {&a.resources.pace, a.o.AskResources != nil}} {
		if wait, wanted := source.pace.wait(now); source.used && wanted && (!found || wait < least) {
			least, found = wait, true
		}
	}
	return least, found
}
