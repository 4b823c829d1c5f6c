//go:build linux

package stage

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/test/e2e/node/cgroupfs"
)

// host is what tests could leave behind on a machine, by what it is.
type host map[string][]string

// look reads the state of the machine that must not change.
func look() host {
	h := host{}
	if text, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		for _, line := range strings.Split(string(text), "\n") {
			if f := strings.Fields(line); len(f) > 4 {
				h["mount"] = append(h["mount"], f[4])
			}
		}
	}
	if addresses, err := net.InterfaceAddrs(); err == nil {
		for _, a := range addresses {
			h["address"] = append(h["address"], a.String())
		}
	}
	for _, path := range kept() {
		if _, err := os.Lstat(path); err == nil {
			h["path"] = append(h["path"], path)
		}
	}
	for name := range sysctls() {
		if text, err := os.ReadFile("/proc/sys/" + name); err == nil {
			h["sysctl"] = append(h["sysctl"], name+"="+strings.TrimSpace(string(text)))
		}
	}
	if hierarchies, err := cgroupfs.Mounted(); err == nil {
		own := group()
		for _, name := range hierarchies.Left() {
			if name == own {
				h["cgroup"] = append(h["cgroup"], name)
			}
		}
	}
	for _, list := range h {
		slices.Sort(list)
	}
	return h
}

// kept are the paths that runtime, kubelet and agent make on a machine that is theirs.
func kept() []string {
	return []string{
		"/run/containerd", "/run/runc", "/run/nri", "/var/run/nri", "/run/tenon", "/run/cni", "/run/netns",
		"/var/run/netns",
		"/var/lib/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/lib/tenon-agent", "/var/log/pods",
		"/var/log/containers",
		"/etc/cni", "/opt/cni", "/opt/containerd", "/opt/nri", "/etc/containerd",
	}
}

// sysctls are what a kubelet writes, by the values that it wants.
func sysctls() map[string]string {
	return map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	}
}

// QuietSysctls puts files in the place of the sysctls that kubelets write until the test ends: they belong to the whole
// machine.
func (s *Stage) QuietSysctls() {
	s.t.Helper()
	for name, value := range sysctls() {
		Bind(s.t, s.Write("sysctl/"+strings.ReplaceAll(name, "/", "."), value+"\n"), "/proc/sys/"+name)
	}
}

// compare reports what is there after a run that was not before, and the other way round.
func (h host) compare(after host) []string {
	var differences []string
	for _, kind := range []string{"mount", "address", "path", "sysctl", "cgroup"} {
		for _, x := range after[kind] {
			if !slices.Contains(h[kind], x) {
				differences = append(differences, fmt.Sprintf("%s %s", kind, x))
			}
		}
		for _, x := range h[kind] {
			if !slices.Contains(after[kind], x) {
				differences = append(differences, fmt.Sprintf("%s %s is gone", kind, x))
			}
		}
	}
	return differences
}
