package nri

import (
	"math"
	"slices"
	"strconv"

	"github.com/containerd/nri/pkg/api"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/inject"
)

func podOf(p *api.PodSandbox) hook.Pod {
	return hook.Pod{
		ID: p.GetId(), UID: p.GetUid(), Namespace: p.GetNamespace(), Name: p.GetName(),
		Labels: p.GetLabels(), Annotations: p.GetAnnotations(), Cgroup: p.GetLinux().GetCgroupParent(),
	}
}

func containerOf(p *api.PodSandbox, c *api.Container) hook.Container {
	return hook.Container{
		Pod: podOf(p), ID: c.GetId(), Name: c.GetName(), Cgroup: c.GetLinux().GetCgroupsPath(),
		Has: resourcesOf(c.GetLinux().GetResources()), Devices: sightOf(c),
		Running: c.GetState() == api.ContainerState_CONTAINER_RUNNING ||
			c.GetState() == api.ContainerState_CONTAINER_PAUSED,
		Ended: c.GetState() == api.ContainerState_CONTAINER_STOPPED,
	}
}

func resourcesOf(r *api.LinuxResources) (out hook.Resources) {
	adjust(&out, r)
	return out
}

// adjust overwrites what r sets.
func adjust(to *hook.Resources, r *api.LinuxResources) {
	if cpus := r.GetCpu().GetCpus(); cpus != "" {
		to.CPUs = cpus
	}
	if mems := r.GetCpu().GetMems(); mems != "" {
		to.Mems = mems
	}
	if q := r.GetCpu().GetQuota(); q != nil {
		to.Quota = &q.Value
	}
	if s := r.GetCpu().GetShares().GetValue(); s != 0 {
		to.Shares = int64(min(s, math.MaxInt64))
	}
	if limit := r.GetMemory().GetLimit().GetValue(); limit > 0 {
		to.Memory = limit
	}
}

// adjustment returns what is to be set on a new container; nil when nothing is.
func adjustment(r hook.Resources, d inject.Answer) *api.ContainerAdjustment {
	if r == (hook.Resources{}) && d.IsEmpty() {
		return nil
	}
	out := &api.ContainerAdjustment{}
	set(out, r)
	setDevices(out, d)
	return out
}

// set puts resources into an adjustment or an update.
func set(to interface {
	SetLinuxCPUSetCPUs(string)
	SetLinuxCPUSetMems(string)
	SetLinuxCPUQuota(int64)
	SetLinuxCPUShares(uint64)
	SetLinuxMemoryLimit(int64)
	AddLinuxUnified(key, value string)
}, r hook.Resources,
) {
	if r.CPUs != "" {
		to.SetLinuxCPUSetCPUs(r.CPUs)
	}
	if r.Mems != "" {
		to.SetLinuxCPUSetMems(r.Mems)
	}
	if r.Quota != nil {
		to.SetLinuxCPUQuota(*r.Quota)
	}
	if r.Shares > 0 {
		to.SetLinuxCPUShares(uint64(r.Shares))
	}
	if r.Weight > 0 {
		to.AddLinuxUnified(desired.WeightV2, strconv.FormatInt(r.Weight, 10))
	}
	if r.Memory > 0 {
		to.SetLinuxMemoryLimit(r.Memory)
	}
}

// toAPI translates updates. An update of a container that was removed meanwhile does not fail the call.
func toAPI(updates []hook.Update) []*api.ContainerUpdate {
	out := make([]*api.ContainerUpdate, 0, len(updates))
	for _, u := range updates {
		x := &api.ContainerUpdate{}
		x.SetContainerId(u.ContainerID)
		set(x, u.Resources)
		x.SetIgnoreFailure()
		out = append(out, x)
	}
	return out
}

// defaultValidator is the runtime's own plugin that checks the annotation required-plugins.noderesource.dev.
const defaultValidator = "default-validator"

// fenced reports whether the runtime's own validator was among those asked.
func fenced(req *api.ValidateContainerAdjustmentRequest) bool {
	return slices.ContainsFunc(req.GetPlugins(),
		func(p *api.PluginInstance) bool { return p.GetName() == defaultValidator })
}
