package observe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// over puts the resources over what the kubelet's files say, and returns what they disagree about, "" for nothing. For
// a container that both name the resources count, but where they say that a container has none of something the files
// count: what only one of them contains is taken as allocated. Init containers and pods that just started are only in
// the files. For a pod that the last answer did not name the resources count only without a file.
func (r *resources) over(s probe.KubeletState, k annotation.Kubelet) (probe.KubeletState, string) {
	if len(r.pods) == 0 {
		return s, ""
	}
	static, memoryStatic := k.CPU.Policy == annotation.KubeletPolicyStatic,
		k.Memory.Policy == annotation.KubeletMemoryStatic
	noCPUFile, noMemoryFile, noDeviceFile := s.CPU.Policy == "", s.Memory.Policy == "", s.Devices.Registered == nil
	s.CPU.Containers, s.CPU.Pods = cloned(s.CPU.Containers), cloned(s.CPU.Pods)
	s.Memory.Pods, s.Devices.Pods = cloned(s.Memory.Pods), cloned(s.Devices.Pods)
	var disputes []string
	for _, uid := range slices.Sorted(maps.Keys(r.pods)) {
		pod := r.pods[uid]
		for _, name := range slices.Sorted(maps.Keys(pod.containers)) {
			o := overlay{state: &s, uid: uid, name: name, has: pod.containers[name]}
			if static && (pod.named || noCPUFile) {
				o.cpus()
			}
			if memoryStatic && (pod.named || noMemoryFile) {
				o.memory()
			}
			if pod.named || noDeviceFile {
				o.devices()
			}
			if pod.named {
				disputes = append(disputes, o.disputes...)
			}
		}
	}
	return s, strings.Join(disputes, "; ")
}

// overlay puts what one container has over the records.
type overlay struct {
	state     *probe.KubeletState
	uid, name string
	has       kubeletapi.Container
	disputes  []string
}

func (o *overlay) dispute(what string, has any, file string, recorded any) {
	o.disputes = append(o.disputes, fmt.Sprintf(
		"container %s of the pod with UID %s has %s %v by PodResources, and %v by %s", o.name, o.uid, what, has,
		recorded, file))
}

func (o *overlay) cpus() {
	old := o.state.CPU.Containers[o.uid]
	if _, whole := old[host.WholePod]; whole || slices.Equal(old[o.name], o.has.CPUs) {
		return
	}
	list := func(ids []int) string { return cmp.Or(cpuset.FormatIDs(ids), "none") }
	o.dispute("CPUs", list(o.has.CPUs), "cpu_manager_state", list(old[o.name]))
	if len(o.has.CPUs) > 0 {
		o.state.CPU.Put(o.uid, o.name, o.has.CPUs)
	}
}

func (o *overlay) memory() {
	old := o.state.Memory.Pods[o.uid]
	if _, whole := old[host.WholePod]; whole || equalBlocks(old[o.name], o.has.Memory) {
		return
	}
	o.dispute("memory", o.has.Memory, "memory_manager_state", old[o.name])
	if len(o.has.Memory) > 0 {
		containers := cloned(old)
		containers[o.name] = o.has.Memory
		o.state.Memory.Pods[o.uid] = containers
	}
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

// devices keeps what the file has of a container that has no device by the answer.
func (o *overlay) devices() {
	byResource := map[string][]host.Device{}
	for _, d := range o.has.Devices {
		byResource[d.Resource] = append(byResource[d.Resource], d)
	}
	if len(byResource) == 0 {
		return
	}
	containers := cloned(o.state.Devices.Pods[o.uid])
	old := containers[o.name]
	next := cloned(old)
	for _, kind := range slices.Sorted(maps.Keys(byResource)) {
		if ids := deviceIDs(byResource[kind]); !slices.Equal(ids, deviceIDs(old[kind])) {
			o.dispute(kind, ids, "the device checkpoint", deviceIDs(old[kind]))
		}
		next[kind] = byResource[kind]
	}
	containers[o.name] = next
	o.state.Devices.Pods[o.uid] = containers
}

// cloned is a copy of a map that can be written to.
func cloned[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}

func deviceIDs(devices []host.Device) []string {
	ids := make([]string, 0, len(devices))
	for _, d := range devices {
		ids = append(ids, d.ID)
	}
	slices.Sort(ids)
	return ids
}

// dispute is what the kubelet's files said otherwise at the last comparison, first after the answer of number at.
type dispute struct {
	text string
	at   int
}

// lasting returns what the files have disagreed about with two answers in a row: one of them may just have been a
// moment ahead of the other.
func (d *dispute) lasting(text string, answers int) string {
	if text != d.text {
		*d = dispute{text, answers}
	}
	if answers == d.at {
		return ""
	}
	return text
}
