package hook_test

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/local/kernel"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// TestNoRuntimeWritesAnOldSetOverAnExclusiveOne runs a runtime's steps in every order: the runtime writes a set that it
// received, pushed or in an answer, some time later, and other containers start meanwhile.
func TestNoRuntimeWritesAnOldSetOverAnExclusiveOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := newRuntime(t, rt)
		actions := r.actions()
		actions[""] = func(t *rapid.T) {
			if r.overlap != "" {
				t.Fatal(r.overlap)
			}
		}
		rt.Repeat(actions)
		r.runUntilIdle()
	})
}

// runtime is a container runtime with its pods.
type runtime struct {
	*node
	t          *rapid.T
	containers map[string]*simContainer
	overlap    string
	made       int
}

type simContainer struct {
	hook.Container
	stored  string // the set that the runtime has for it
	runs    bool
	waiting []simWrite
	// others are sets of other containers that came with the answer to Create. They are written before it starts.
	others []hook.Update
}

// simWrite is a set that the runtime received, and the call that it makes after it has written it.
type simWrite struct {
	cpus string
	done func()
}

func newRuntime(t *testing.T, rt *rapid.T) *runtime {
	r := &runtime{t: rt, containers: map[string]*simContainer{}}
	r.node = newNode(t)
	tree, err := kernel.Open(kernel.Options{Machine: r.facts.Machine, Observe: r.observe})
	r.must(err)
	r.tree = tree
	r.must(tree.MkdirAll("kubepods/burstable"))
	r.engine = apply.New(apply.Options{Cgroup: tree})
	r.service = hook.New(hook.Options{Engine: r.engine, Clock: r.clock})
	r.complete()
	return r
}

func (r *runtime) must(err error) {
	if err != nil {
		r.t.Fatal(err)
	}
}

// observe looks for two pods on the CPUs of one that is to be alone.
func (r *runtime) observe(s []kernel.Group) {
	groups := s
	for _, x := range groups {
		for _, o := range groups {
			if x.Tasks > 0 && o.Tasks > 0 && path.Dir(x.Path) != path.Dir(o.Path) &&
				strings.Contains(x.Path, "/podx") && x.Effective.Overlaps(&o.Effective) && r.overlap == "" {
				r.overlap = fmt.Sprintf("%s runs on %v while %s runs on %v", x.Path, x.Effective, o.Path, o.Effective)
			}
		}
	}
}

func (r *runtime) pod() hook.Pod {
	uid := rapid.SampledFrom([]string{"a", "b", "c", "x1", "x2", "x3"}).Draw(r.t, "pod")
	cpus := map[string]string{"x1": "6-7", "x2": "5-6", "x3": "2"}[uid]
	if cpus == "" {
		return sandbox(uid, "LS", "")
	}
	return sandbox(uid, "LSE", cpus)
}

func (r *runtime) pick(f func(*simContainer) bool) *simContainer {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(r.containers)) {
		if f(r.containers[id]) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return r.containers[rapid.SampledFrom(ids).Draw(r.t, "container")]
}

func (c *simContainer) group() string { return c.Cgroup[1:] }

// write puts a set into a container, in force at once where it runs.
func (r *runtime) write(c *simContainer, cpus string) {
	if c.stored = cpus; c.runs {
		r.must(r.tree.Write(c.group(), desired.CPUs, cpus))
	}
}

func (r *runtime) finish(c *simContainer, i int) {
	w := c.waiting[i]
	c.waiting = slices.Delete(c.waiting, i, i+1)
	r.write(c, w.cpus)
	w.done()
}

// writeOther writes the first set that came with the answer to Create.
func (r *runtime) writeOther(c *simContainer) {
	u := c.others[0]
	c.others = c.others[1:]
	if o := r.containers[u.ContainerID]; o != nil {
		r.write(o, u.CPUs)
	}
}

func (r *runtime) flush(c *simContainer) {
	for len(c.others) > 0 {
		r.writeOther(c)
	}
}

func (r *runtime) actions() map[string]func(*rapid.T) {
	runs := func(c *simContainer) bool { return c.runs }
	return map[string]func(*rapid.T){
		"bind":   func(*rapid.T) { r.engine.Update(desired.FromAPI(convert.ReadPod(inAPI(r.pod())))) },
		"delete": func(*rapid.T) { r.engine.Delete(r.pod().UID) },
		"create": func(t *rapid.T) {
			p := r.pod()
			r.must(r.service.RunPod(t.Context(), p))
			r.made++
			c := &simContainer{Container: in(p, fmt.Sprint("c", r.made))}
			a, updates, err := r.service.Create(t.Context(), c.Container)
			if err != nil {
				return
			}
			c.stored, c.others = a.CPUs, updates
			r.containers[c.ID] = c
		},
		"start": func(t *rapid.T) {
			c := r.pick(func(c *simContainer) bool { return !c.runs })
			if c == nil {
				return
			}
			r.flush(c)
			r.must(r.tree.MkdirAll(c.group()))
			r.must(r.tree.Write(c.group(), desired.CPUs, c.stored))
			c.Has.CPUs = c.stored
			if r.service.Start(t.Context(), c.Container) != nil {
				r.must(r.tree.Rmdir(c.group()))
				r.remove(c)
				return
			}
			_, err := r.tree.Spawn(c.group())
			r.must(err)
			c.runs = true
		},
		"update": func(t *rapid.T) {
			c := r.pick(runs)
			if c == nil {
				return
			}
			a, err := r.service.Update(t.Context(), c.Container, hook.Resources{CPUs: "0-7"})
			if err != nil || a.CPUs == "" {
				return
			}
			c.waiting = append(c.waiting, simWrite{a.CPUs, func() { r.service.Updated(c.Container) }})
		},
		"push": func(*rapid.T) {
			for _, u := range r.service.NextUpdates() {
				c := r.containers[u.ContainerID]
				if c == nil {
					r.service.UpdatesDone([]hook.Update{u})
					continue
				}
				c.waiting = append(c.waiting, simWrite{u.CPUs, func() { r.service.UpdatesDone([]hook.Update{u}) }})
			}
		},
		"write": func(t *rapid.T) {
			if c := r.pick(func(c *simContainer) bool { return len(c.waiting) > 0 }); c != nil {
				r.finish(c, rapid.IntRange(0, len(c.waiting)-1).Draw(t, "which"))
			}
		},
		"write others": func(*rapid.T) {
			if c := r.pick(func(c *simContainer) bool { return len(c.others) > 0 }); c != nil {
				r.writeOther(c)
			}
		},
		"exit": func(*rapid.T) {
			if c := r.pick(runs); c != nil {
				r.end(c)
			}
		},
		"connect": func(t *rapid.T) { r.connect() },
		"pass":    func(*rapid.T) { r.must(r.engine.Reconcile()) },
		"look":    func(*rapid.T) { r.must(r.engine.Verify()) },
	}
}

func (r *runtime) end(c *simContainer) {
	for len(c.waiting) > 0 {
		r.finish(c, 0)
	}
	r.must(r.tree.Kill(c.group()))
	r.service.Stop(c.Container)
	r.must(r.tree.Rmdir(c.group()))
	c.runs = false
	r.remove(c)
}

func (r *runtime) remove(c *simContainer) {
	r.flush(c)
	r.service.Remove(c.Container)
	delete(r.containers, c.ID)
}

// connect reports everything that the runtime has, after the sets received over the previous connection are written.
func (r *runtime) connect() {
	var pods []hook.Pod
	var all []hook.Container
	ids := slices.Sorted(maps.Keys(r.containers))
	for _, id := range ids {
		c := r.containers[id]
		for len(c.waiting) > 0 {
			r.finish(c, 0)
		}
		r.flush(c)
	}
	for _, id := range ids {
		c := r.containers[id]
		c.Has.CPUs, c.Running = c.stored, c.runs
		pods, all = append(pods, c.Pod), append(all, c.Container)
	}
	r.service.Sync(pods, all)
}

// runUntilIdle lets all of it come to rest: the kernel has what is wanted, and the runtime what the kernel has.
func (r *runtime) runUntilIdle() {
	for _, id := range slices.Sorted(maps.Keys(r.containers)) {
		if c := r.containers[id]; !c.runs {
			r.remove(c) // it was never started
		}
	}
	for range 10 {
		r.clock.Step(10 * time.Second)
		r.must(r.engine.Verify())
		for _, id := range slices.Sorted(maps.Keys(r.containers)) {
			for c := r.containers[id]; len(c.waiting) > 0; {
				r.finish(c, 0)
			}
		}
		for updates := r.service.NextUpdates(); len(updates) > 0; updates = r.service.NextUpdates() {
			for _, u := range updates {
				r.write(r.containers[u.ContainerID], u.CPUs)
			}
			r.service.UpdatesDone(updates)
		}
	}
	want := map[string]string{}
	for _, row := range r.engine.Table().Rows {
		if row.File == desired.CPUs {
			want[row.Path] = row.Value
		}
	}
	for _, c := range r.containers {
		if !c.runs {
			continue
		}
		got, err := r.tree.Read(c.group(), desired.CPUs)
		r.must(err)
		if got != want[c.group()] || c.stored != got {
			r.t.Fatalf("%s has %q in the end, the runtime %q, want %q", c.group(), got, c.stored, want[c.group()])
		}
	}
}
