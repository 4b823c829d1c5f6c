package host

import (
	"path"
	"strings"
)

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
