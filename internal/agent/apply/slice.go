package apply

import (
	"path"
	"strings"
)

// SliceGroup returns the group of a slice or of a cgroupfs path, relative to the root of the tree. The name of a slice
// is expanded: a dash in it stands for "inside of".
//
//	kubepods-burstable-pod12.slice ─► kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12.slice
func SliceGroup(cgroup string) string {
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
