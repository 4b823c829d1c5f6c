package apply

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/view"
)

// EnforcerOptions are what an Enforcer needs.
type EnforcerOptions struct {
	Node string
	Root host.Root
	// Engine are the options of the Enforcer's engine. NewEnforcer completes them: a nil Cgroup becomes the tree that
	// is mounted below Root, with the roots of both cgroup drivers below CgroupRoot. The Enforcer takes the engine's
	// reports, and passes them on to Engine.Reports, which must not be nil.
	Engine     Options
	CgroupRoot string
	// Allowed reports whether the agent may write at any time. If it may, a machine without a cgroup tree is an error.
	Allowed bool
	Agent   Agent
	Clock   clock.Clock
}

// Agent is what an Enforcer asks of the agent of its node.
type Agent interface {
	// Writes reports whether the agent writes now.
	Writes() bool
	// IsUnasked reports whether containers start without the agent.
	IsUnasked() bool
}

// Enforcer is the cgroup tree of a machine, with the engine that keeps it as long as the agent may write there. It is
// safe for concurrent use.
type Enforcer struct {
	*Engine
	o       EnforcerOptions
	reports Reports // of the options
	// mounted reports whether NewEnforcer found the tree below Root; false for a Cgroup of the options.
	mounted bool
	engaged chan struct{} // closed by Engage
	engage  sync.Once

	mu       sync.Mutex            // guards the fields below; never held across a call out of the package
	changed  chan struct{}         // closed and replaced when the answer of Agent.Writes changes
	lastPass time.Time             // when the engine last worked on the tree; zero before the first pass
	drifts   map[string]view.Drift // the last change of each group by another program, at most maxDrifts
}

// NewEnforcer returns an Enforcer whose engine knows no pod and no machine yet. A machine without a cgroup tree is an
// error if the agent may write.
func NewEnforcer(o EnforcerOptions) (*Enforcer, error) {
	e := &Enforcer{
		o: o, reports: o.Engine.Reports, engaged: make(chan struct{}), changed: make(chan struct{}),
		drifts: map[string]view.Drift{},
	}
	engine := &e.o.Engine
	if engine.Cgroup == nil {
		layout, err := host.Cgroups(o.Root)
		if err != nil && o.Allowed {
			return nil, err
		}
		dialect := desired.V2
		if layout.Version == 1 {
			dialect = desired.V1
		}
		engine.Cgroup, e.mounted = Mounted(o.Root.Cgroup(), dialect), o.Allowed
		engine.Roots = kubepods(o.CgroupRoot)
	}
	engine.Reports = e
	e.Engine = New(*engine)
	return e, nil
}

// Record implements Reports.
func (e *Enforcer) Record(r Record) {
	e.noteDrift(r)
	e.reports.Record(r)
}

// Timed implements Reports.
func (e *Enforcer) Timed(d time.Duration) {
	e.notePass()
	e.reports.Timed(d)
}

// Engage lets Run begin. Later calls do nothing.
func (e *Enforcer) Engage() { e.engage.Do(func() { close(e.engaged) }) }

// kubepods returns the two groups in which a kubelet may keep its pods below its cgroupRoot: that of the cgroupfs
// driver, and that of the systemd driver, where a slice's name contains the names of its parents. One of them does not
// exist on a machine.
func kubepods(root string) []string {
	root = strings.Trim(path.Clean("/"+root), "/")
	slice := strings.ReplaceAll(strings.ReplaceAll(root, "-", "_"), "/", "-")
	return []string{path.Join(root, "kubepods"), SliceGroup(strings.TrimPrefix(slice+"-kubepods.slice", "-"))}
}

func (e *Enforcer) notePass() {
	now := e.o.Clock.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lastPass = now
}

// LastPass returns when the engine last worked on the tree; zero before its first pass.
func (e *Enforcer) LastPass() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lastPass
}

// Changed lets Run ask Agent.Writes again.
func (e *Enforcer) Changed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.changed)
	e.changed = make(chan struct{})
}

// Run runs the engine while Agent.Writes returns true, from Engage on. It returns nil when ctx ends.
func (e *Enforcer) Run(ctx context.Context) error {
	select {
	case <-e.engaged:
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		e.mu.Lock()
		changed := e.changed
		e.mu.Unlock()
		if !e.o.Agent.Writes() {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		e.notePass()
		run, stop := context.WithCancel(ctx)
		go func() {
			defer stop()
			select {
			case <-changed:
			case <-run.Done():
			}
		}()
		err := e.Engine.Run(run)
		stop()
		if err != nil {
			return fmt.Errorf("keep the cgroup tree: %w", err)
		}
	}
	return nil
}

// First makes the tree equal to the table for the first time, if the agent writes.
func (e *Enforcer) First() error {
	if !e.o.Agent.Writes() {
		return nil
	}
	return e.Reconcile()
}

// Sweep lets the engine forget pods whose processes have ended, while the agent does not write and no pass does so.
func (e *Enforcer) Sweep(ctx context.Context) {
	if e.o.Agent.Writes() {
		return
	}
	if err := e.Engine.Sweep(); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot find the pods whose processes have ended", "node", e.o.Node, "err", err)
	}
}

// Watch makes the engine scan for new groups as soon as they appear, while no runtime and no proxy asks before
// containers start. A machine without a free inotify instance gets no watch: the engine then sees new groups at pod
// events and at the next resync.
func (e *Enforcer) Watch(ctx context.Context) error {
	if !e.mounted {
		return nil
	}
	var folders []string
	for _, root := range e.o.Engine.Roots {
		folders = append(folders, e.folder(root))
	}
	err := host.WatchGroups(ctx, folders, func(string) {
		if e.o.Agent.IsUnasked() {
			e.Scan()
		}
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot watch cgroups: new ones are seen at pod events and at the next resync",
			"node", e.o.Node)
	}
	return nil
}

// folder returns the path of a group's cpuset files.
func (e *Enforcer) folder(group string) string {
	if e.o.Engine.Cgroup.Dialect() == desired.V1 {
		return e.o.Root.Cgroup("cpuset", group)
	}
	return e.o.Root.Cgroup(group)
}
