package apply

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// ErrNoGroup is the cause of a Blocked that Start returns for a container whose group it was not told and does not find:
// it does not exist yet, or not any more.
var ErrNoGroup = errors.New("NoGroup")

// Admit is Start for a container whose group the runtime makes no earlier than its first process, and in one go with it.
// cpus is the set that the runtime will write, in list format. Admit returns nil only when that set is the container's and
// nobody who must not share it can run on it; Start, once the group is there, sees what became of it. Who else may start
// meanwhile is for the caller to keep apart. The error is a *Blocked.
func (e *Engine) Admit(ctx context.Context, c Container, cpus string) error {
	return e.inTurn(func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		// A pass that fails elsewhere says nothing about this container: the check comes after it. As in Start, only who is to
		// be alone needs to know what everybody has.
		pass := e.reconcile
		if e.Binds(c.PodUID) {
			pass = e.verify
		}
		err := pass("")
		if errors.Is(err, ErrNotReady) {
			return &Blocked{c, ErrNotReady, notReady}
		}
		if errors.Is(err, errAnotherMachine) {
			return &Blocked{c, ErrNotReady, errAnotherMachine.Error()}
		}
		if u, ok := errors.AsType[*unreadable](err); ok {
			return &Blocked{c, ErrEnforcement, u.Error()}
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

// clear refuses a leaf-to-be on whose CPUs somebody else can run, or that the runtime will give other ones. The caller
// holds turn.
func (e *Engine) clear(c Container, it *item, cpus string) error {
	m := e.machine
	p := e.plan(m, "")
	if p.foreign() {
		return &Blocked{c, ErrNotReady, errAnotherMachine.Error()}
	}
	told, _, err := m.ParseList(cpus)
	if err != nil || cpus == "" {
		return &Blocked{c, ErrEnforcement, fmt.Sprintf("the runtime is to write cpuset.cpus %q, want %q", cpus, m.FormatList(it.want))}
	}
	if it.role.Binds() {
		return e.clearOwn(c, it, p, told)
	}
	free, ok := p.free(it)
	switch {
	case !ok:
		return &Blocked{c, ErrHandOverPending, "no CPU of its pool is free yet"}
	case !told.SubsetOf(&free):
		return &Blocked{c, ErrHandOverPending, fmt.Sprintf("the runtime is to write cpuset.cpus %q, and only %q is free",
			cpus, m.FormatList(free))}
	}
	return nil
}

// clearOwn is clear for exclusive CPUs. They are the pod's from here on.
func (e *Engine) clearOwn(c Container, it *item, p *pass, told cpuset.Set) error {
	if x := p.conflict(it); x != nil {
		reach := x.kernel.reach()
		return &Blocked{c, ErrHandOverPending, fmt.Sprintf("%s still has CPUs %s", x.path, p.m.FormatList(reach.Intersect(it.want)))}
	}
	if told != it.want {
		return &Blocked{c, ErrEnforcement, fmt.Sprintf("the runtime is to write cpuset.cpus %q, want %q", p.m.FormatList(told), p.m.FormatList(it.want))}
	}
	if err := e.remember(it.uid, p.grantOf(it)); err != nil {
		return &Blocked{c, ErrEnforcement, err.Error()}
	}
	return nil
}
