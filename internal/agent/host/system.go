package host

import (
	"fmt"
	"path"
)

// BootID returns the kernel's boot id, which changes with every boot; "" when the tree has none.
func BootID(root Root) (string, error) {
	t, err := open(root)
	if err != nil {
		return "", err
	}
	defer t.close()
	return t.text("proc/sys/kernel/random/boot_id")
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
func Cgroups(root Root) (Layout, error) {
	t, err := open(root)
	if err != nil {
		return Layout{}, err
	}
	defer t.close()
	const base = "sys/fs/cgroup"
	switch {
	case t.has(path.Join(base, "cpuset")):
		return Layout{Version: 1, Driver: t.driver(path.Join(base, "cpuset"))}, nil
	case t.has(path.Join(base, "cgroup.controllers")):
		return Layout{Version: 2, Driver: t.driver(base)}, nil
	case !t.has(base):
		return Layout{}, fmt.Errorf("%s: is missing: no cgroup hierarchy is mounted", root.Cgroup())
	}
	return Layout{}, fmt.Errorf("%s: has neither a cpuset hierarchy nor cgroup.controllers", root.Cgroup())
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
