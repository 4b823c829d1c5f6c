package enforce

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/status"
	"github.com/tenon-project/tenon/internal/view"
)

// Options are what a Tree needs.
type Options struct {
	Node string
	Root host.Root
	// Engine is completed: its tree is the one that is mounted below Root where it has none, its roots are those of
	// both cgroup drivers below CgroupRoot.
	Engine     apply.Options
	CgroupRoot string
	// Allowed: the agent may come to write. Without a tree that is an error.
	Allowed bool
	// Writes reports whether the agent writes now. Unasked reports whether containers start without the agent.
	Writes, Unasked func() bool

	Status  *status.Reporter
	Metrics *status.Metrics
	Clock   clock.Clock
}

// Tree is the cgroup tree of a machine, and the engine that keeps it. It is safe for concurrent use.
type Tree struct {
	*apply.Engine
	o Options
	// mounted: the tree is the kernel's, or files that replace it in tests.
	mounted bool
	engaged chan struct{}
	// Engage lets Run begin.
	Engage func()

	mu       sync.Mutex            // guards the fields below; never held across a call out of the package
	changed  chan struct{}         // closed and replaced when what Writes returns changes
	lastPass time.Time             // when the engine last did something; zero before
	drifts   map[string]view.Drift // the last change of each group by another program
}

// New returns a Tree whose engine knows nothing yet. A machine without a tree is an error where the agent may write.
func New(o Options) (*Tree, error) {
	t := &Tree{o: o, engaged: make(chan struct{}), changed: make(chan struct{}), drifts: map[string]view.Drift{}}
	t.Engage = sync.OnceFunc(func() { close(t.engaged) })
	e := &t.o.Engine
	if e.Cgroup == nil {
		layout, err := host.Cgroups(o.Root)
		if err != nil && o.Allowed {
			return nil, err
		}
		dialect := desired.V2
		if layout.Version == 1 {
			dialect = desired.V1
		}
		e.Cgroup, t.mounted = apply.Mounted(o.Root.Cgroup(), dialect), o.Allowed
		if len(e.Roots) == 0 {
			e.Roots = kubepods(o.CgroupRoot)
		}
	}
	e.Report = func(r apply.Record) {
		t.noteDrift(r)
		o.Status.Record(r)
	}
	e.Timed = func(d time.Duration) {
		t.passed()
		o.Metrics.Apply.WithLabelValues(status.PathReconcile).Observe(d.Seconds())
	}
	t.Engine = apply.New(*e)
	return t, nil
}

// kubepods returns where a kubelet keeps its pods below its cgroupRoot: with the cgroupfs driver, and with the systemd
// driver, where a slice's name contains the names of its parents. One of them is missing.
func kubepods(root string) []string {
	root = strings.Trim(path.Clean("/"+root), "/")
	slice := strings.ReplaceAll(strings.ReplaceAll(root, "-", "_"), "/", "-")
	return []string{path.Join(root, "kubepods"), hook.PodGroup(strings.TrimPrefix(slice+"-kubepods.slice", "-"))}
}

func (t *Tree) passed() {
	now := t.o.Clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastPass = now
}

// LastPass returns when the engine last looked at the tree; zero before it did.
func (t *Tree) LastPass() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastPass
}

// Changed notes that what Writes returns has changed.
func (t *Tree) Changed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.changed)
	t.changed = make(chan struct{})
}

// Run lets the engine work while the agent writes, from Engage on. It returns nil when ctx ends.
func (t *Tree) Run(ctx context.Context) error {
	select {
	case <-t.engaged:
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		t.mu.Lock()
		changed := t.changed
		t.mu.Unlock()
		if !t.o.Writes() {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		t.passed()
		run, stop := context.WithCancel(ctx)
		go func() {
			defer stop()
			select {
			case <-changed:
			case <-run.Done():
			}
		}()
		err := t.Engine.Run(run)
		stop()
		if err != nil {
			return fmt.Errorf("keep the cgroup tree: %w", err)
		}
	}
	return nil
}

// First brings the tree in order for the first time, where the agent writes.
func (t *Tree) First() error {
	if !t.o.Writes() {
		return nil
	}
	return t.Reconcile()
}

// Sweep keeps the engine from remembering every pod that ever ran here, while it does not work on the tree.
func (t *Tree) Sweep(ctx context.Context) {
	if t.o.Writes() {
		return
	}
	if err := t.Engine.Sweep(); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot find the pods whose processes have ended", "node", t.o.Node, "err", err)
	}
}

// Watch lets the engine look for new groups as soon as they appear, while no runtime or proxy asks before containers
// start. Without a watch, as on a machine that has no inotify instance left, pod events and the resync are what
// remains.
func (t *Tree) Watch(ctx context.Context) error {
	if !t.mounted {
		return nil
	}
	var folders []string
	for _, root := range t.o.Engine.Roots {
		folders = append(folders, t.folder(root))
	}
	err := host.WatchGroups(ctx, folders, func(string) {
		if t.o.Unasked() {
			t.Scan()
		}
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot watch cgroups: new ones are seen at pod events and at the next resync",
			"node", t.o.Node)
	}
	return nil
}

// folder is where a group's cpuset files are.
func (t *Tree) folder(group string) string {
	if t.o.Engine.Cgroup.Dialect() == desired.V1 {
		return t.o.Root.Cgroup("cpuset", group)
	}
	return t.o.Root.Cgroup(group)
}
