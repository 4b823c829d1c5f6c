package apply

import (
	"context"
	"errors"
	"slices"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// ErrNoGroup is the cause of a Blocked that Start returns for a container whose group is neither given nor found: it
// does not exist yet, or not any more.
var ErrNoGroup = errors.New("NoGroup")

// Admit is Start for a container whose group the runtime makes no earlier than its first process, and in one go with
// it. cpus is the set that the runtime will write, in list format. Admit returns nil only when that set is the
// container's and no process that must not share it can run on it; Start verifies the group once it exists. The caller
// must prevent conflicting starts in between. The error is a *Blocked.
func (e *Engine) Admit(ctx context.Context, c Container, cpus string) error {
	return e.inTurn(ctx, func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		// A pass that fails elsewhere says nothing about this container, which is checked after it. As in Start, all
		// leaves are read again only for a container with exclusive CPUs.
		if blocked := blockedByPass(c, e.run("", e.Binds(c.PodUID))); blocked != nil {
			return blocked
		}
		it, err := e.expectedItem(c)
		if it == nil || err != nil {
			return err
		}
		return e.checkAdmission(c, it, cpus)
	})
}

// expectedItem returns the leaf that a container will have; nil if the table has no set for it.
func (e *Engine) expectedItem(c Container) (*item, error) {
	in, err := e.inputForStart(c)
	if err != nil {
		return nil, err
	}
	rows, err := rows(c, in)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(rows, func(r desired.Row) bool { return r.File == desired.CPUs })
	if i < 0 {
		return nil, nil
	}
	role := in.Pods[0].Entry.Role
	if rows[i].Cause == desired.UnallocatedShared {
		role = qos.SharedPool
	}
	return &item{leaf: &leaf{uid: c.PodUID, container: c.Name}, role: role, want: rows[i].CPUs, has: true}, nil
}

// checkAdmission blocks a container, of the future leaf it, if another pod can run on its CPUs or if the runtime will
// give it other CPUs. Exclusive CPUs are the pod's from here on. The caller holds turn.
func (e *Engine) checkAdmission(c Container, it *item, cpus string) error {
	m := e.machine
	p := e.plan(m, "")
	if p.isOutdated() {
		return c.Blocked(ErrNotReady, "%v", errAnotherMachine)
	}
	given, _, err := m.ParseList(cpus)
	if err != nil || cpus == "" {
		return c.Blocked(ErrEnforcement, "the runtime is to write cpuset.cpus %q, want %q", cpus, m.FormatList(it.want))
	}
	if it.role.Binds() {
		if err := p.checkConflict(c, it); err != nil {
			return err
		}
		if given != it.want {
			return c.Blocked(ErrEnforcement, "the runtime is to write cpuset.cpus %q, want %q", m.FormatList(given),
				m.FormatList(it.want))
		}
		if err := e.saveGrant(it.uid, e.grantOf(it)); err != nil {
			return c.Blocked(ErrEnforcement, "%v", err)
		}
		return nil
	}
	free, ok := p.free(it)
	switch {
	case !ok:
		return c.Blocked(ErrHandOverPending, "no CPU of its pool is free yet")
	case !given.SubsetOf(&free):
		return c.Blocked(ErrHandOverPending, "the runtime is to write cpuset.cpus %q, and only %q is free", cpus,
			m.FormatList(free))
	}
	return nil
}
