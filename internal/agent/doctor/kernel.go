package doctor

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/agent/host"
)

// kernelV2 is the first kernel whose cgroup v2 does all that containers need; it is what Kubernetes asks for too.
var kernelV2 = [2]int{5, 8} //nolint:gochecknoglobals // a constant

func (m *machine) kernel() []Finding {
	const check, file = "kernel", "proc/sys/kernel/osrelease"
	release := m.line(file)
	if release == "" {
		return []Finding{unknown(check, below(file), "the release cannot be read")}
	}
	version, readable := twoNumbers(release)
	f := ok(check, below(file), "Linux %s", release)
	layout, err := host.Cgroups(m.o.Root)
	switch {
	case !readable:
		f = unknown(check, below(file), "%q is not a Linux release", release)
	case err == nil && layout.Version == 2 && slices.Compare(version[:], kernelV2[:]) < 0:
		f = f.because(Fail, "cgroup v2 of kernels before 5.8 lacks what container runtimes and the kubelet rely on",
			"update the kernel to 5.8 or newer")
	}
	return []Finding{f}
}

// twoNumbers reads the first two numbers of a version such as "6.12.1-cloud" or "v2.2.0".
func twoNumbers(text string) (v [2]int, ok bool) {
	parts := strings.SplitN(strings.TrimPrefix(text, "v"), ".", 3)
	if len(parts) < 2 {
		return v, false
	}
	for i := range v {
		digits := strings.IndexFunc(parts[i], func(r rune) bool { return r < '0' || r > '9' })
		if digits < 0 {
			digits = len(parts[i])
		}
		n, err := strconv.Atoi(parts[i][:digits])
		if err != nil {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

func (m *machine) cgroups() []Finding {
	const check = "cgroup"
	layout, err := host.Cgroups(m.o.Root)
	if err != nil {
		return []Finding{ok(check, below("sys/fs/cgroup"), "%v", err).because(Fail,
			"without the cpuset controller pods cannot be pinned to CPUs",
			"mount cgroup v2 at /sys/fs/cgroup (systemd does so by default)")}
	}
	if layout.Version == 1 {
		return []Finding{m.cgroupV1()}
	}
	const file = "sys/fs/cgroup/cgroup.controllers"
	f := ok(check, below(file), "v2 with %s", m.line(file))
	for _, need := range []string{"cpuset", "cpu"} {
		if !slices.Contains(strings.Fields(m.line(file)), need) {
			return []Finding{f.because(Fail, "containers cannot be given CPUs without the controller "+need,
				"take the controller "+need+" out of cgroup_disable= and cgroup v1 mounts, and boot again")}
		}
	}
	return []Finding{f}
}

func (m *machine) cgroupV1() Finding {
	f := ok("cgroup", below("sys/fs/cgroup/cpuset"), "v1")
	k := m.kubelet
	fails := k.failCgroupV1 == nil || *k.failCgroupV1
	_, runs := m.running("kubelet")
	switch {
	case k.usable() && fails && !runs:
		return f.because(Fail, "a kubelet from 1.35 on does not start on cgroup v1 by default",
			"boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1), or set failCgroupV1: false in "+k.where)
	case k.usable() && !fails:
		return f.because(Warn, "it works, but Kubernetes and containerd are about to drop cgroup v1",
			"boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)")
	}
	return f.because(Warn,
		"kubelets from 1.35 on refuse to start on cgroup v1 unless failCgroupV1 is false, and containerd is about to "+
			"drop it",
		"boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)")
}

func (m *machine) offline() []Finding {
	const check, file = "cpus-offline", "sys/devices/system/cpu/offline"
	text, err := m.read(file)
	if err != nil {
		return []Finding{unknown(check, below(file), "which CPUs are offline cannot be read: %v", bare(err))}
	}
	list := strings.TrimSpace(string(text))
	if list == "" {
		return []Finding{ok(check, below(file), "none")}
	}
	f := ok(check, below(file), "%s", list)
	if m.kubelet.config.Kubelet.CPUPolicy != "static" {
		return []Finding{f}
	}
	return []Finding{f.because(Warn,
		"a kubelet with the CPU policy static ends when CPUs go or come while it has a record of them",
		"take CPUs offline or online on a drained node alone, and delete /var/lib/kubelet/cpu_manager_state before "+
			"the kubelet starts")}
}
