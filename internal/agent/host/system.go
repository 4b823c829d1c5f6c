package host

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"
)

// BootID returns the kernel's boot id, which changes with every boot; "" when the tree has none.
func BootID(root Root) (id string, err error) {
	err = within(root, func(t *tree) { id = t.text("proc/sys/kernel/random/boot_id") })
	return id, err
}

// Driver is how the kubelet names cgroups.
type Driver string

// Drivers. UnknownDriver: no kubelet has made its groups yet.
const (
	UnknownDriver Driver = ""
	Cgroupfs      Driver = "cgroupfs"
	Systemd       Driver = "systemd"
)

// Layout is the cgroup hierarchy of a machine.
type Layout struct {
	// Version is 1 or 2: where the cpuset controller lives. 0 when no hierarchy is mounted.
	Version int
	Driver  Driver
}

// Cgroups detects the cgroup version by the hierarchy that has the cpuset controller, and the driver by the top group
// that the kubelet made.
func Cgroups(root Root) (l Layout, err error) {
	err = within(root, func(t *tree) {
		const base = "sys/fs/cgroup"
		switch {
		case t.has(path.Join(base, "cpuset")):
			l = Layout{Version: 1, Driver: t.driver(path.Join(base, "cpuset"))}
		case t.has(path.Join(base, "cgroup.controllers")):
			l = Layout{Version: 2, Driver: t.driver(base)}
		case !t.has(base):
			t.fail(base, errors.New("is missing: no cgroup hierarchy is mounted"))
		default:
			t.fail(base, errors.New("has neither a cpuset hierarchy nor cgroup.controllers"))
		}
	})
	return l, err
}

func (t *tree) driver(dir string) Driver {
	switch {
	case t.has(path.Join(dir, "kubepods.slice")):
		return Systemd
	case t.has(path.Join(dir, "kubepods")):
		return Cgroupfs
	}
	return UnknownDriver
}

// Presence returns what the kernel says of which CPUs and NUMA nodes there are and work, in a few small files: a change
// means that Read would find another machine. Machines whose kernel does not say never change.
func Presence(root Root) (string, error) {
	var parts []string
	err := within(root, func(t *tree) {
		for _, name := range []string{
			path.Join(cpuDir, "present"), path.Join(cpuDir, "online"), path.Join(nodeDir, "online"),
			path.Join(nodeDir, "has_memory"),
		} {
			parts = append(parts, t.text(name))
		}
	})
	return strings.Join(parts, ";"), err
}

// Socket identifies one of the sockets that a path has over time. Sockets can be compared.
type Socket struct {
	inode uint64
	// Made is when it was made, in UTC.
	Made time.Time
}

// PodResourcesSocket returns the socket of the kubelet's PodResources, which a kubelet makes anew when it starts; false
// while there is none.
func PodResourcesSocket(root Root) (Socket, bool) {
	s, err := os.Lstat(root.Path(path.Join(path.Dir(cpuStateFile), podsDir, podsSocket)))
	if err != nil || s.Mode().Type() != fs.ModeSocket {
		return Socket{}, false
	}
	made := Socket{Made: s.ModTime().UTC()}
	if stat, ok := s.Sys().(*syscall.Stat_t); ok {
		made.inode = stat.Ino
	}
	return made, true
}
