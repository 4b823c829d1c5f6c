package apply

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/cpuset"
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
		// A pass that fails elsewhere says nothing about this container: the check comes after it. As in Start, only
		// who is to be alone needs to know what everybody has.
		pass := e.reconcile
		if e.Binds(c.PodUID) {
			pass = e.verify
		}
		err := pass("")
		if blocked := unbegun(c, err); blocked != nil {
			return blocked
		}
		it, err := e.expected(c)
		if it == nil || err != nil {
			return err
		}
		return e.clear(c, it, cpus)
	})
}

// expected is the leaf that a container will have; nil for one that the table has no set for.
func (e *Engine) expected(c Container) (*item, error) {
	view, pod, err := e.meet(c)
	if err != nil {
		return nil, err
	}
	pod = newcomer(view, pod)
	t := e.tableOf(c, view, pod)
	if len(t.Refused) > 0 {
		return nil, refused(c, t.Refused[0].Reason)
	}
	for _, row := range t.Rows {
		if row.Path != c.Group || row.File != desired.CPUs {
			continue
		}
		it := &item{leaf: &leaf{uid: c.PodUID, container: c.Name}, role: pod.Entry.Role, want: row.CPUs, has: true}
		if row.Cause == desired.UnallocatedShared {
			it.role = qos.SharedPool
		}
		return it, nil
	}
	return nil, nil
}

// clear refuses a future leaf on whose CPUs another pod can run, or that the runtime will give other CPUs. The caller
// holds turn.
func (e *Engine) clear(c Container, it *item, cpus string) error {
	m := e.machine
	p := e.plan(m, "")
	if p.foreign() {
		return &Blocked{c, ErrNotReady, errAnotherMachine.Error()}
	}
	given, _, err := m.ParseList(cpus)
	if err != nil || cpus == "" {
		return &Blocked{c, ErrEnforcement, fmt.Sprintf("the runtime is to write cpuset.cpus %q, want %q", cpus,
			m.FormatList(it.want))}
	}
	if it.role.Binds() {
		return e.clearOwn(c, it, p, given)
	}
	free, ok := p.free(it)
	switch {
	case !ok:
		return &Blocked{c, ErrHandOverPending, "no CPU of its pool is free yet"}
	case !given.SubsetOf(&free):
		return &Blocked{
			c, ErrHandOverPending,
			fmt.Sprintf("the runtime is to write cpuset.cpus %q, and only %q is free",
				cpus, m.FormatList(free)),
		}
	}
	return nil
}

// clearOwn is clear for exclusive CPUs. They are the pod's from here on.
func (e *Engine) clearOwn(c Container, it *item, p *pass, given cpuset.Set) error {
	if x := p.conflict(it); x != nil {
		claim := x.claim()
		return &Blocked{
			c, ErrHandOverPending,
			fmt.Sprintf("%s still has CPUs %s", x.path, p.m.FormatList(claim.Intersect(it.want))),
		}
	}
	if given != it.want {
		return &Blocked{c, ErrEnforcement, fmt.Sprintf("the runtime is to write cpuset.cpus %q, want %q",
			p.m.FormatList(given), p.m.FormatList(it.want))}
	}
	if err := e.remember(it.uid, e.grantOf(it)); err != nil {
		return &Blocked{c, ErrEnforcement, err.Error()}
	}
	return nil
}
