package host

import (
	"errors"
	"path"
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
