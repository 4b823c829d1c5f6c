package inject

import (
	"errors"
	"maps"
	"slices"

	"github.com/tenon-project/tenon/internal/agent/host"
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

// ErrMismatch is that a running container can use other devices than its own. Its text is the reason of an Event.
var ErrMismatch = errors.New("DeviceMismatch")

// Compare returns a *Refusal, with ErrMismatch, for a running container that can use device files of other cards than
// its own, or not those of its own. Where what it can use is known in part, the files that its runtime reports count
// too. Its variables are not compared: those of a container without any device file name cards that it cannot use.
func Compare(n *Node, c *Container, can *host.Access) error {
	sees := *c
	sees.Has = Sight{Privileged: c.Has.Privileged || can.IsPrivileged()}
	if !can.Whole {
		sees.Has.Files = slices.Clone(c.Has.Files)
	}
	for i := range n.Cards.List {
		card := &n.Cards.List[i]
		for _, f := range slices.Concat(card.Files, n.Cards.Common[card.Kind]) {
			if can.Allows(f) {
				sees.Has.Files = append(sees.Has.Files, File{DeviceFile: f})
			}
		}
	}
	want, err := Decide(n, &sees)
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return refuse(ErrMismatch, "%s", refusal.Text)
	}
	for _, f := range want.Files {
		if can.Whole && !can.Allows(f) {
			return refuse(ErrMismatch, "it cannot use %s of its card", f.Path)
		}
	}
	return err
}
