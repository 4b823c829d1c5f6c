package desired

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// FromAPI translates a bound pod. Its UID is the one that the kubelet and the runtime know it by.
func FromAPI(pod *convert.Pod) Pod {
	e := pod.Entry
	e.UID = convert.NodeUID(pod.Pod)
	if e.Guest != nil {
		guest, asked := *e.Guest, *e.Guest.Pod
		asked.UID, guest.Pod, e.Guest = e.UID, &asked, &guest
	}
	p := newPod(e, pod.Labels, pod.Annotations, pod.Allocation, pod.Problems)
	p.Pinnable = e.Guest.CPUs() > 0 && MayBePinned(e)
	p.Devices = deviceTypes(&pod.Spec)
	p.Batch, p.WholeBatch = convert.BatchAmounts(pod.Pod)
	p.Limits, p.Limit = convert.LowerCPULimits(pod.Pod)
	if e.Role.Binds() {
		p.MilliCPUs, p.MilliCPU = convert.CPULimits(pod.Pod)
	}
	return p
}

// FromSandbox translates a pod that only the container runtime has reported. A kubelet's record of CPUs pinned for a
// Guaranteed pod is followed, whatever the pod requests.
func FromSandbox(s convert.Sandbox) Pod {
	e, allocation, problems := convert.ReadSandbox(s)
	p := newPod(e, s.Labels, s.Annotations, allocation, problems)
	p.Pinnable = s.Kube == qos.Guaranteed && MayBePinned(e)
	p.Batch = convert.SandboxBatch(s.Annotations)
	return p
}

// newPod returns a pod with what its labels and annotations say.
func newPod(e ledger.Entry, labels, annotations map[string]string, allocation annotation.ResourceStatus,
	problems []convert.Problem,
) Pod {
	p := Pod{
		Entry: e, Uses: e.Role.Binds() || Uses(labels, annotations), Malformed: malformed(problems),
	}
	if text, ok := annotations[annotation.CPUBurstKey]; ok {
		p.Burst, _, _ = annotation.ParseCPUBurst(text) // the node's strategy holds where it cannot be read
	}
	p.Asks, _ = annotation.ReadTuning(annotations)
	for _, n := range allocation.NUMANodeResources {
		for name, q := range n.Resources {
			if convert.IsMemory(name) && !q.IsZero() {
				p.MemoryNUMAIDs = append(p.MemoryNUMAIDs, int(n.Node))
				break // one type is enough
			}
		}
	}
	return p
}

// deviceTypes returns the types of device that containers request.
func deviceTypes(spec *corev1.PodSpec) []annotation.DeviceType {
	var types []annotation.DeviceType
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			for name, q := range list {
				if kind := deviceType(device.Canonical(string(name))); kind != "" && !q.IsZero() {
					types = append(types, kind)
				}
			}
		}
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// deviceType returns the type of device that a canonical resource name requests; "" for none.
func deviceType(name string) annotation.DeviceType {
	switch {
	case name == device.RDMAShare:
		return annotation.DeviceRDMA
	case name == device.FPGAShare:
		return annotation.DeviceFPGA
	case device.IsWholeGPU(name), strings.HasPrefix(name, "nvidia.com/mig-"), name == device.GPUPercent,
		strings.HasPrefix(name, device.GPUPercent+"-"), strings.HasPrefix(name, device.GPUPercent+"."):
		return annotation.DeviceGPU
	}
	return ""
}

// NodeGrants are grants with the UIDs by which the node knows pods, where the published ones are the API's.
func NodeGrants(given []tenancy.Grant, pods []*convert.Pod) []tenancy.Grant {
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
	}
	return convert.IsFenced(annotations)
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
