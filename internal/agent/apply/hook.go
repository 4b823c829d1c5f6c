package apply

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Container names one container to the hooks.
type Container struct {
	PodUID string
	// ID is the container's, where the runtime has given it one. It finds the group of a container whose Group is "".
	ID string
	// Name is the container's; "" for a sandbox.
	Name string
	// Group is its cgroup, "" while it is unknown; PodGroup is that of its pod, "" to leave what is known.
	Group, PodGroup string
}

// Causes of a Blocked container.
var (
	// ErrHandOverPending: CPUs that the container is to run on are still in use by a pod that must not share them.
	ErrHandOverPending = errors.New("CPUHandOverPending")
	// ErrUnallocated: the pod is entitled to exclusive CPUs and no scheduler allocated any.
	ErrUnallocated = errors.New("UnallocatedExclusivePod")
	// ErrUnknownPod: neither the API nor the runtime has reported the pod yet.
	ErrUnknownPod = errors.New("UnknownPod")
	// ErrEnforcement: the kernel did not take the values.
	ErrEnforcement = errors.New("EnforcementFailed")
	// ErrMalformed: what was decided for the pod cannot be read.
	ErrMalformed = errors.New("BadAnnotation")
)

// NotReady is the detail of a Blocked with ErrNotReady.
const NotReady = "the agent does not know the machine and all its pods yet"

// Blocked is the error of a container that must not start now. The runtime or kubelet tries again. errors.Is finds its
// cause, whose text is the reason of the Event.
type Blocked struct {
	Container Container
	Cause     error // one of the errors above, ErrNotReady, or what a caller of the Engine found
	Detail    string
}

// Error returns the cause, the container and the detail.
func (b *Blocked) Error() string {
	return fmt.Sprintf("%v: container %q of pod %s: %s", b.Cause, b.Container.Name, b.Container.PodUID, b.Detail)
}

// Unwrap returns the cause.
func (b *Blocked) Unwrap() error { return b.Cause }

// Blocked is the error of the container for a cause.
func (c Container) Blocked(cause error, format string, args ...any) *Blocked {
	return &Blocked{c, cause, fmt.Sprintf(format, args...)}
}

// Create answers, from memory and without touching the tree, the values that the runtime must set on a container before
// its first process. No rows mean that the container is none of the Engine's business. Where the container's group is
// not known yet the rows have no path. Its cost does not depend on the number of pods. The error is a *Blocked.
func (e *Engine) Create(c Container) ([]desired.Row, error) {
	in, err := e.inputForStart(c)
	if err != nil {
		return nil, err
	}
	return rows(c, in)
}

// Peek is Create for a container that exists already.
func (e *Engine) Peek(c Container) ([]desired.Row, error) {
	in, err := e.registerLeaf(Container{PodUID: c.PodUID, Name: c.Name})
	if err != nil {
		return nil, err
	}
	in.Pods[0].Leaves[0].Path = c.Group
	return rows(c, in)
}

// inputForStart is registerLeaf for a container that is to start. Once the kubelet pins no more, containers that run
// keep what it gave them, and containers that start later get no CPUs from it: without a set of its pod's class such a
// container would run on the CPUs of others.
func (e *Engine) inputForStart(c Container) (desired.Input, error) {
	in, err := e.registerLeaf(c)
	if err == nil {
		in.Pods[0].Pinnable = in.Pods[0].Pinnable && in.View.Facts().Model.Config.CPU.Static
	}
	return in, err
}

// rows are those of the container that an input is of.
func rows(c Container, in desired.Input) ([]desired.Row, error) {
	t := desired.Compute(in)
	if len(t.Refused) > 0 {
		return nil, refused(c, t.Refused[0].Reason)
	}
	return slices.DeleteFunc(t.Rows, func(r desired.Row) bool {
		return r.Path != c.Group || desired.IsBurst(r.File) // no runtime takes a burst: the pass at Start writes it
	}), nil
}

// podOf returns the pod of a container that may start. The caller holds mu.
func (e *Engine) podOf(c Container, unknown string) (*pod, error) {
	p := e.pods[c.PodUID]
	if p == nil || p.gone {
		return nil, &Blocked{c, ErrUnknownPod, unknown}
	}
	if p.Malformed != "" {
		return nil, &Blocked{c, ErrMalformed, p.Malformed}
	}
	if c.PodGroup != "" {
		p.Cgroup = c.PodGroup
	}
	return p, nil
}

// registerLeaf registers the group of a container, and returns the input for its own table at this moment.
func (e *Engine) registerLeaf(c Container) (desired.Input, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, err := e.podOf(c, "the agent has not received this pod from the API yet")
	if err != nil {
		return desired.Input{}, err
	}
	if c.Group != "" && e.leaves[c.Group] == nil {
		e.leaves[c.Group] = &leaf{path: c.Group, uid: c.PodUID, container: c.Name}
	}
	in := e.inputOf(p.Pod)
	if in.View.Machine() == nil {
		return in, &Blocked{c, ErrNotReady, NotReady}
	}
	in.Pods[0].Leaves = []desired.Leaf{{Path: c.Group, Container: c.Name}}
	return in, nil
}

// AddStarted adds a container that the runtime started, or is about to start, before the Engine was asked. Such a
// container holds its CPUs, unless it has ended.
func (e *Engine) AddStarted(c Container, ended bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.pods[c.PodUID]; p != nil && c.PodGroup != "" {
		p.Cgroup = c.PodGroup
	}
	l := e.leaves[c.Group]
	if l == nil {
		l = &leaf{path: c.Group, uid: c.PodUID, phase: started}
		e.leaves[c.Group] = l
		e.wake()
	}
	l.container = c.Name
	if ended {
		l.phase = stopped
	}
}

func refused(c Container, r why.Reason) *Blocked {
	if r.Code == why.UnallocatedExclusivePod {
		return c.Blocked(ErrUnallocated,
			"no resource-status with CPUs of this machine: it was not bound by Tenon's scheduler")
	}
	return c.Blocked(ErrHandOverPending, "no CPU of its pool is free")
}

// Start is the last gate before a container's first process. It sets and reads back the container's values and returns
// nil only when the kernel has them and no process that must not share its CPUs can run on them. The error is a
// *Blocked; a container whose Start failed must not run.
func (e *Engine) Start(ctx context.Context, c Container) error {
	return e.inTurn(ctx, func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if c.Group, err = e.Locate(c); err != nil {
			return err
		}
		exclusive, err := e.registerStart(c)
		if err != nil {
			return err
		}
		for range startPasses {
			passErr := e.run(c.Group, exclusive)
			if blocked := blockedByPass(c, passErr); blocked != nil {
				return blocked
			}
			if err = e.checkStart(ctx, c, passErr); passErr != nil || !errors.Is(err, ErrEnforcement) {
				break
			}
		}
		return err
	})
}

// startPasses is how many passes a Start may take: a pod that is bound after one that set all moves the pools before
// the verdict.
const startPasses = 3

// blockedByPass is the verdict on a container after a pass that did not begin; nil when it did.
func blockedByPass(c Container, err error) error {
	if errors.Is(err, ErrNotReady) {
		return &Blocked{c, ErrNotReady, NotReady}
	}
	if errors.Is(err, errAnotherMachine) {
		return c.Blocked(ErrNotReady, "%v", errAnotherMachine)
	}
	if u, ok := errors.AsType[*unreadable](err); ok {
		return c.Blocked(ErrEnforcement, "%v", u)
	}
	return nil
}

// Locate returns the group of a container. Of one that is known by its id alone it is the one below its pod's whose
// name has the id. The error is a *Blocked.
func (e *Engine) Locate(c Container) (string, error) {
	if c.Group != "" {
		return c.Group, nil
	}
	e.mu.Lock()
	parent := c.PodGroup
	if p := e.pods[c.PodUID]; p != nil && parent == "" {
		parent = p.Cgroup
	}
	e.mu.Unlock()
	if parent == "" || c.ID == "" {
		return "", c.Blocked(ErrEnforcement,
			"the runtime does not report its cgroup, and neither the pod's nor the container's id")
	}
	names, err := e.o.Cgroup.Children(parent)
	if err != nil {
		return "", c.Blocked(ErrEnforcement, "%v", err)
	}
	for _, name := range names {
		if strings.Contains(name, c.ID) {
			return path.Join(parent, name), nil
		}
	}
	return "", c.Blocked(ErrNoGroup, "%s has no group of container %s", parent, c.ID)
}

// registerStart registers a container whose Create another agent process may have answered.
func (e *Engine) registerStart(c Container) (exclusive bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, err := e.podOf(c, "the API does not have this pod")
	if err != nil {
		return false, err
	}
	l := e.leaves[c.Group]
	if l == nil {
		l = &leaf{path: c.Group, uid: c.PodUID}
		e.leaves[c.Group] = l
	}
	l.container, l.phase = c.Name, created
	e.visits[c.PodUID] = true
	return p.Entry.Role.Binds(), nil
}

// checkStart decides, after a pass, whether a container may start. The leaf counts as started from here on, unless ctx
// has ended.
func (e *Engine) checkStart(ctx context.Context, c Container, passErr error) error {
	p := e.plan(e.machine, c.Group)
	if p.isOutdated() {
		return c.Blocked(ErrNotReady, "%v", errAnotherMachine)
	}
	at := slices.IndexFunc(p.items, func(it *item) bool { return it.path == c.Group })
	if at < 0 {
		return c.Blocked(ErrEnforcement, "its cgroup does not exist")
	}
	it := p.items[at]
	switch {
	case !it.has && it.role != qos.KubeletPinned:
		return e.whyRefused(c)
	case it.role.Binds():
		if err := p.checkConflict(c, it); err != nil {
			return err
		}
		if !it.settled() {
			return notEnforced(c, it, p, passErr)
		}
		if err := e.saveGrant(it.uid, e.grantOf(it)); err != nil {
			return c.Blocked(ErrEnforcement, "%v", err)
		}
	case it.has:
		free, ok := p.free(it)
		if !ok {
			return c.Blocked(ErrHandOverPending, "no CPU of its pool is free yet")
		}
		if it.kernel.cpus.IsEmpty() || !it.kernel.effective.SubsetOf(&free) {
			return notEnforced(c, it, p, passErr)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	it.leaf.phase = started
	e.mu.Unlock()
	it.phase = started
	p.noteExclusive()
	return nil
}

// checkConflict blocks an exclusive container while another pod has a claim on CPUs of its row.
func (p *pass) checkConflict(c Container, it *item) error {
	if x := p.conflict(it); x != nil {
		return c.Blocked(ErrHandOverPending, "%s", p.describeConflict(x, it))
	}
	return nil
}

func (e *Engine) whyRefused(c Container) error {
	t, m := e.compute()
	if m == nil {
		return c.Blocked(ErrNotReady, "%v", errAnotherMachine)
	}
	for _, r := range t.Refused {
		if r.UID == c.PodUID {
			return refused(c, r.Reason)
		}
	}
	return c.Blocked(ErrUnknownPod, "the pod went away")
}

func notEnforced(c Container, it *item, p *pass, passErr error) error {
	detail := fmt.Sprintf("cpuset.cpus is %q (effective %q), want %q", p.m.FormatList(it.kernel.cpus),
		p.m.FormatList(it.kernel.effective), p.m.FormatList(it.want))
	if passErr != nil {
		detail += ": " + passErr.Error()
	}
	return c.Blocked(ErrEnforcement, "%s", detail)
}

// Stop records that a container's processes have ended.
func (e *Engine) Stop(c Container) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.leaves[c.Group]; l != nil {
		l.phase = stopped
		e.wake()
	}
}

// Remove drops a container whose cgroup is gone.
func (e *Engine) Remove(c Container) { e.change(func() { delete(e.leaves, c.Group) }) }
