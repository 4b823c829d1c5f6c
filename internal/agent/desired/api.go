package desired

import (
	"slices"
	"strings"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// FromAPI translates a bound pod. Its UID is the one that the kubelet and the runtime know it by.
func FromAPI(pod *convert.Pod) Pod {
	e := pod.Entry
	e.UID = convert.NodeUID(pod.Pod)
	if e.Guest != nil {
		guest, of := *e.Guest, *e.Guest.Pod
		of.UID, guest.Pod, e.Guest = e.UID, &of, &guest
	}
	p := Pod{
		Entry: e, Pinnable: e.Guest.CPUs() > 0 && MayBePinned(e),
		Uses: e.Role.Binds() || Uses(pod.Labels, pod.Annotations), Malformed: malformed(pod.Problems),
	}
	for _, n := range pod.Allocation.NUMANodeResources {
		for name, q := range n.Resources {
			if convert.IsMemory(name) && !q.IsZero() {
				p.MemoryNUMAIDs = append(p.MemoryNUMAIDs, int(n.Node))
				break // one type is enough
			}
		}
	}
	return p
}

// NodeGrants are grants with the UIDs by which the node knows pods, where the published ones are the API's.
func NodeGrants(given []kubelet.Grant, pods []*convert.Pod) []kubelet.Grant {
	static := map[string]string{}
	for _, pod := range pods {
		if uid := convert.NodeUID(pod.Pod); uid != string(pod.UID) {
			static[string(pod.UID)] = uid
		}
	}
	given = slices.Clone(given)
	for i := range given {
		if uid, ok := static[given[i].UID]; ok {
			given[i].UID = uid
		}
	}
	return given
}

// Uses reports whether labels and annotations of a pod request something of Tenon, or contain its decision.
func Uses(labels, annotations map[string]string) bool {
	if _, ok := labels[annotation.QoSClass]; ok {
		return true
	}
	for key := range annotations {
		switch key {
		case annotation.ResourceSpecKey, annotation.ResourceStatusKey, annotation.NUMATopologySpecKey,
			annotation.DeviceAllocatedKey:
			return true
		}
		if fence, _, _ := strings.Cut(key, "/"); fence == annotation.RequiredPlugins &&
			strings.Contains(annotations[key], annotation.NRIPlugin) {
			return true
		}
	}
	return false
}

// malformed says what is wrong with the allocation that the scheduler wrote; "" when nothing is.
func malformed(problems []convert.Problem) string {
	for _, p := range problems {
		if p.Key == annotation.ResourceStatusKey {
			return "annotation " + p.Key + ": " + p.Text + ": " + p.Value
		}
	}
	return ""
}

// MayBePinned reports whether a pod may run on CPUs that a static kubelet gave it, if it gave any: it has none of ours,
// and its label does not put it on a pool.
func MayBePinned(e ledger.Entry) bool {
	return e.CPUList == "" && (e.Class == qos.None || e.Class == qos.LSE || e.Class == qos.LSR)
}
