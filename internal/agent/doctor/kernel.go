//go:build linux

package doctor

import (
	"slices"
	"strings"

	"github.com/tenon-project/tenon/internal/agent/host"
)

// kernelV2 is the first kernel whose cgroup v2 does all that containers need; it is what Kubernetes asks for too.
const kernelV2 = "5.8"

func (m *machine) kernel() Finding {
	const file = "proc/sys/kernel/osrelease"
	release := m.line(file)
	if release == "" {
		return unknown(below(file), "the release cannot be read")
	}
	old, readable := isBefore(release, kernelV2)
	f := ok(below(file), "Linux %s", release)
	layout, err := host.Cgroups(m.o.Root)
	switch {
	case !readable:
		f = unknown(below(file), "%q is not a Linux release", release)
	case err == nil && layout.Version == 2 && old:
		f = f.Because(Fail, "cgroup v2 of kernels before 5.8 lacks what container runtimes and the kubelet rely on",
			"update the kernel to 5.8 or newer")
	}
	return f
}

func (m *machine) cgroups() Finding {
	layout, err := host.Cgroups(m.o.Root)
	if err != nil {
		return ok(below("sys/fs/cgroup"), "%v", err).Because(Fail,
			"without the cpuset controller pods cannot be pinned to CPUs",
			"mount cgroup v2 at /sys/fs/cgroup (systemd does so by default)")
	}
	if layout.Version == 1 {
		return m.cgroupV1()
	}
	const file = "sys/fs/cgroup/cgroup.controllers"
	f := ok(below(file), "v2 with %s", m.line(file))
	for _, need := range []string{"cpuset", "cpu"} {
		if !slices.Contains(strings.Fields(m.line(file)), need) {
			return f.Because(Fail, "containers cannot be given CPUs without the controller "+need,
				"take the controller "+need+" out of cgroup_disable= and cgroup v1 mounts, and boot again")
		}
	}
	return f
}

func (m *machine) cgroupV1() Finding {
	f := ok(below("sys/fs/cgroup/cpuset"), "v1")
	k := m.kubelet
	fails := k.failCgroupV1 == nil || *k.failCgroupV1
	_, runs := m.running("kubelet")
	switch {
	case k.usable() && fails && !runs:
		return f.Because(Fail, "a kubelet from 1.35 on does not start on cgroup v1 by default",
			"boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1), or set failCgroupV1: false in "+k.where)
	case k.usable() && !fails:
		return f.Because(Warn, "it works, but Kubernetes and containerd are about to drop cgroup v1",
			"boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)")
	}
	return f.Because(Warn,
		"kubelets from 1.35 on refuse to start on cgroup v1 unless failCgroupV1 is false, and containerd is about to "+
			"drop it", "boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)")
}

func (m *machine) offline() Finding {
	const file = "sys/devices/system/cpu/offline"
	text, err := m.read(file)
	if err != nil {
		return unknown(below(file), "which CPUs are offline cannot be read: %v", bare(err))
	}
	list := strings.TrimSpace(string(text))
	if list == "" {
		return ok(below(file), "none")
	}
	f := ok(below(file), "%s", list)
	if m.kubelet.config.Kubelet.CPU.Policy != "static" {
		return f
	}
	return f.Because(Warn,
		"a kubelet with the CPU policy static ends when CPUs go or come while it has a record of them",
		"take CPUs offline or online on a drained node alone, and delete /var/lib/kubelet/cpu_manager_state before "+
			"the kubelet starts")
}
