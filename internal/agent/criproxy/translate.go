package criproxy

import (
	"cmp"
	"maps"
	"slices"
	"unicode/utf8"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/api/runtime/v1alpha1"
)

func podMeta(m *cri.PodSandboxMetadata) *v1alpha1.PodSandboxMetadata {
	return &v1alpha1.PodSandboxMetadata{
		Name: m.GetName(), Uid: m.GetUid(), Namespace: m.GetNamespace(), Attempt: m.GetAttempt(),
	}
}

// request describes a container of a sandbox to a hook server.
func (c *container) request(s *sandbox) *v1alpha1.ContainerResourceHookRequest {
	return &v1alpha1.ContainerResourceHookRequest{
		PodMeta: s.PodMeta,
		ContainerMeta: &v1alpha1.ContainerMetadata{
			Name: c.meta.GetName(), Attempt: c.meta.GetAttempt(),
			Id: c.id,
		},
		ContainerAnnotations: c.annotations,
		ContainerResources:   toHook(c.resources),
		PodResources:         s.Resources,
		PodAnnotations:       s.Annotations,
		PodLabels:            s.Labels,
		PodCgroupParent:      s.CgroupParent,
	}
}

// envsOf is an environment as the protocol can represent it: the last value of each name, without those that are not
// UTF-8.
func envsOf(envs []*cri.KeyValue) map[string]string {
	out := make(map[string]string, len(envs))
	for _, e := range envs {
		if utf8.Valid(e.GetValue()) {
			out[e.GetKey()] = string(e.GetValue())
		} else {
			delete(out, e.GetKey())
		}
	}
	return out
}

// mergeEnvs sets variables over an environment: those that are there keep their place, the rest follows by name.
func mergeEnvs(envs *[]*cri.KeyValue, set map[string]string) bool {
	changed := false
	left := maps.Clone(set)
	for _, e := range *envs {
		value, ok := set[e.GetKey()]
		if !ok {
			continue
		}
		delete(left, e.GetKey())
		if string(e.GetValue()) != value {
			e.Value = []byte(value)
			changed = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(left)) {
		*envs = append(*envs, &cri.KeyValue{Key: key, Value: []byte(left[key])})
		changed = true
	}
	return changed
}

// mergeMap sets keys over a map.
func mergeMap(into *map[string]string, set map[string]string) bool {
	changed := false
	for key, value := range set {
		if old, ok := (*into)[key]; ok && old == value {
			continue
		}
		if *into == nil {
			*into = map[string]string{}
		}
		(*into)[key] = value
		changed = true
	}
	return changed
}

// mergeField sets a value over another, unless it is the zero value: that means unchanged.
func mergeField[T comparable](into *T, set T) bool {
	var zero T
	if set == zero || *into == set {
		return false
	}
	*into = set
	return true
}

// mergeResources sets the fields of a hook's answer that are not zero over those of a request.
func mergeResources(into **cri.LinuxContainerResources, set *v1alpha1.LinuxContainerResources) bool {
	if set == nil {
		return false
	}
	r := cmp.Or(*into, &cri.LinuxContainerResources{})
	changed := mergeField(&r.CpuPeriod, set.GetCpuPeriod())
	changed = mergeField(&r.CpuQuota, set.GetCpuQuota()) || changed
	changed = mergeField(&r.CpuShares, set.GetCpuShares()) || changed
	changed = mergeField(&r.MemoryLimitInBytes, set.GetMemoryLimitInBytes()) || changed
	changed = mergeField(&r.OomScoreAdj, set.GetOomScoreAdj()) || changed
	changed = mergeField(&r.CpusetCpus, set.GetCpusetCpus()) || changed
	changed = mergeField(&r.CpusetMems, set.GetCpusetMems()) || changed
	changed = mergeField(&r.MemorySwapLimitInBytes, set.GetMemorySwapLimitInBytes()) || changed
	changed = mergeMap(&r.Unified, set.GetUnified()) || changed
	changed = mergeHugepages(r, set.GetHugepageLimits()) || changed
	if changed {
		*into = r
	}
	return changed
}

// mergeHugepages sets limits over those of the same page size.
func mergeHugepages(into *cri.LinuxContainerResources, set []*v1alpha1.HugepageLimit) bool {
	changed := false
	for _, l := range set {
		i := slices.IndexFunc(into.HugepageLimits,
			func(h *cri.HugepageLimit) bool { return h.GetPageSize() == l.GetPageSize() })
		if i < 0 {
			into.HugepageLimits = append(into.HugepageLimits,
				&cri.HugepageLimit{PageSize: l.GetPageSize(), Limit: l.GetLimit()})
			changed = true
		} else if into.HugepageLimits[i].Limit != l.GetLimit() {
			into.HugepageLimits[i].Limit = l.GetLimit()
			changed = true
		}
	}
	return changed
}

// toHook puts resources in the terms of the hook protocol.
func toHook(r *cri.LinuxContainerResources) *v1alpha1.LinuxContainerResources {
	if r == nil {
		return nil
	}
	out := &v1alpha1.LinuxContainerResources{
		CpuPeriod: r.GetCpuPeriod(), CpuQuota: r.GetCpuQuota(), CpuShares: r.GetCpuShares(),
		MemoryLimitInBytes: r.GetMemoryLimitInBytes(), OomScoreAdj: r.GetOomScoreAdj(),
		CpusetCpus: r.GetCpusetCpus(), CpusetMems: r.GetCpusetMems(), Unified: r.GetUnified(),
		MemorySwapLimitInBytes: r.GetMemorySwapLimitInBytes(),
	}
	for _, l := range r.GetHugepageLimits() {
		out.HugepageLimits = append(out.HugepageLimits,
			&v1alpha1.HugepageLimit{PageSize: l.GetPageSize(), Limit: l.GetLimit()})
	}
	return out
}

// describeDevices adds what a container is about to see of devices to a question.
func describeDevices(to *v1alpha1.ContainerResourceHookRequest, c *cri.ContainerConfig) {
	to.ContainerEnvs = envsOf(c.GetEnvs())
	to.ContainerPrivileged = c.GetLinux().GetSecurityContext().GetPrivileged()
	for _, d := range c.GetDevices() {
		to.ContainerDevices = append(to.ContainerDevices, &v1alpha1.ContainerDevice{
			ContainerPath: d.GetContainerPath(), HostPath: d.GetHostPath(), Permissions: d.GetPermissions(),
		})
	}
	for _, d := range c.GetCDIDevices() {
		to.ContainerCdiDevices = append(to.ContainerCdiDevices, d.GetName())
	}
}

// mergeDevices sets what a hook server answered of a container's variables, device files, CDI devices and mounts.
func mergeDevices(into *cri.ContainerConfig, answer *v1alpha1.ContainerResourceHookResponse) bool {
	changed := mergeEnvs(&into.Envs, answer.GetContainerEnvs())
	for _, d := range answer.GetContainerDevices() {
		changed = true
		into.Devices = append(slices.DeleteFunc(into.Devices,
			func(old *cri.Device) bool { return old.GetContainerPath() == d.GetContainerPath() }),
			&cri.Device{
				ContainerPath: d.GetContainerPath(), HostPath: d.GetHostPath(), Permissions: d.GetPermissions(),
			})
	}
	for _, name := range answer.GetContainerCdiDevices() {
		if !slices.ContainsFunc(into.CDIDevices, func(old *cri.CDIDevice) bool { return old.GetName() == name }) {
			changed = true
			into.CDIDevices = append(into.CDIDevices, &cri.CDIDevice{Name: name})
		}
	}
	for _, m := range answer.GetContainerMounts() {
		changed = true
		into.Mounts = append(slices.DeleteFunc(into.Mounts,
			func(old *cri.Mount) bool { return old.GetContainerPath() == m.GetContainerPath() }),
			&cri.Mount{ContainerPath: m.GetContainerPath(), HostPath: m.GetHostPath(), Readonly: m.GetReadonly()})
	}
	return changed
}
