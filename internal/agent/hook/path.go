package hook

import (
	"path"
	"strings"
)

// groupOf returns the group of a container, relative to the root of the tree, from the path that the runtime reports:
//
//	/kubepods/burstable/pod12/ID               the cgroupfs driver
//	kubepods-burstable-pod12.slice:crio:ID     the systemd driver: slice, prefix of the scope, id
//
// It is "" where the runtime reports none.
func groupOf(cgroup string) string {
	slice, rest, scoped := strings.Cut(cgroup, ":")
	if !scoped {
		return PodGroup(cgroup)
	}
	prefix, id, _ := strings.Cut(rest, ":")
	if prefix != "" {
		id = prefix + "-" + id
	}
	if strings.Contains(id, "/") {
		return "" // no unit has such a name
	}
	if slice == "" {
		slice = "system.slice" // systemd's own default
	}
	return path.Join(PodGroup(slice), id+".scope")
}

// PodGroup returns the group of a pod, relative to the root of the tree. The name of a slice is expanded: a dash in it
// stands for "inside of".
//
//	kubepods-burstable-pod12.slice ─► kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12.slice
func PodGroup(cgroup string) string {
	cgroup = strings.Trim(path.Clean("/"+cgroup), "/")
	name, isSlice := strings.CutSuffix(cgroup, ".slice")
	switch {
	case cgroup == "" || strings.Contains(cgroup, "/") || !isSlice:
		return cgroup
	case name == "-":
		return "" // the root slice
	}
	var at string
	words := strings.Split(name, "-")
	for i := range words {
		at = path.Join(at, strings.Join(words[:i+1], "-")+".slice")
	}
	return at
}
