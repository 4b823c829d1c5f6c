package hook

import (
	"path"
	"strings"

	"github.com/tenon-project/tenon/internal/agent/apply"
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
		return apply.SliceGroup(cgroup)
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
	return path.Join(apply.SliceGroup(slice), id+".scope")
}
