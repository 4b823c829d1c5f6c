package inject

import (
	"maps"
	"slices"
)

// Check returns a *Refusal for a container that is to be created with other devices than its own: its Has, after every
// writer has answered, must be what Decide wants. nil when it is.
func Check(n *Node, c *Container) error {
	want, err := Decide(n, c)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(want.Env)) {
		if !slices.Contains(c.Has.Env, name+"="+want.Env[name]) {
			return refuse(ErrConflict, "it is to be created without %s=%s: the agent was not asked, or another writer "+
				"sets it too", name, want.Env[name])
		}
	}
	for _, f := range want.Files {
		if !slices.ContainsFunc(c.Has.Files, func(g File) bool { return g.DeviceFile == f }) {
			return refuse(ErrConflict, "it is to be created without %s of its card", f.Path)
		}
	}
	for _, name := range want.CDI {
		if !slices.Contains(c.Has.CDI, name) {
			return refuse(ErrConflict, "it is to be created without its CDI device %s", name)
		}
	}
	return nil
}
