package apply_test

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/local/kernel"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// TestNoInstantOfOverlap runs every kind of event in every order against a simulated kernel that is watched after each
// of its changes.
func TestNoInstantOfOverlap(t *testing.T) {
	for name, c := range map[string]struct {
		dialect    desired.Dialect
		checkpoint func() apply.Checkpoint
	}{
		"v2":                      {desired.V2, func() apply.Checkpoint { return &memo{} }},
		"v1":                      {desired.V1, func() apply.Checkpoint { return &memo{} }},
		"v2 without a checkpoint": {desired.V2, func() apply.Checkpoint { return nil }},
		"v1 without a checkpoint": {desired.V1, func() apply.Checkpoint { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := smallMachine(t)
			rapid.Check(t, func(rt *rapid.T) {
				w := newWorld(rt, m, c.dialect, c.checkpoint())
				w.pinOne()
				actions := w.actions()
				actions[""] = w.check
				rt.Repeat(actions)
				w.checkAtRest()
			})
		})
	}
}

// pinOne starts with a pod that the kubelet's static policy pinned before the agent came.
func (w *world) pinOne() {
	if !rapid.Bool().Draw(w.t, "static") {
		return
	}
	p := &simPod{inAPI: true, pinned: true, Pod: desired.Pod{
		Pinnable: true,
		Entry:    ledger.Entry{UID: "static", Namespace: "ns", Name: "static", Role: qos.SharedPool},
	}}
	w.pods["static"] = p
	w.facts.Given = []tenancy.Grant{{UID: "static", CPUs: cpuset.MustParse("2,8")}}
	w.facts.Model.Config.CPU = kubelet.CPU{Static: true, Reserved: cpuset.MustParse("0,6")}
	l := w.mkdir(p)
	w.must(w.tree.Write(l.Group, desired.Mems, "0-1"))
	w.must(w.tree.Write(l.Group, desired.CPUs, "2,8"))
	w.spawn(l)
	w.boot()
}

func (w *world) spawn(l *simLeaf) {
	_, err := w.tree.Spawn(l.Group)
	w.must(err)
	l.ran = true
}

func (w *world) actions() map[string]func(*rapid.T) {
	live := func(l *simLeaf) bool { return w.populated(l) && !l.pod.pinned }
	return map[string]func(*rapid.T){
		"bind": func(t *rapid.T) {
			w.bind(rapid.SampledFrom([]qos.Role{
				qos.Exclusive, qos.ExclusiveWithBE, qos.SharedPool, qos.BEPool,
				qos.SystemPool,
			}).Draw(t, "role"))
		},
		"deploy": func(t *rapid.T) { // a whole start without disturbance, so that the rest meets a node at work
			if p := w.bind(rapid.SampledFrom([]qos.Role{
				qos.Exclusive, qos.ExclusiveWithBE, qos.SharedPool,
				qos.BEPool,
			}).Draw(t, "role")); p != nil {
				w.deploy(t, p)
			}
		},
		"deliver": func(*rapid.T) { // the watch delivers
			if p := w.pickPod("pod", func(p *simPod) bool { return p.inAPI != p.delivered }); p != nil {
				w.deliver(p)
			}
		},
		"resync": func(*rapid.T) { w.resync() }, // the runtime connects anew
		"create": func(t *rapid.T) {
			p := w.pickPod("pod", func(p *simPod) bool { return p.inAPI && !p.pinned })
			if p == nil {
				return
			}
			l := w.mkdir(p)
			if rapid.Bool().Draw(t, "the runtime reports the pod") {
				w.engine.Introduce(p.Pod)
				w.engine.Visit(p.Entry.UID)
			}
			rows, err := w.engine.Create(l.Container)
			l.answer, l.answered = rows, err == nil
		},
		"runtime writes": func(*rapid.T) {
			if l := w.pick("leaf", func(l *simLeaf) bool { return l.answered && !l.cleared }); l != nil {
				w.applyAnswer(l)
			}
		},
		"start": func(t *rapid.T) {
			if l := w.pick("leaf", func(l *simLeaf) bool { return l.answered && !l.cleared && !l.ran }); l != nil {
				w.start(t, l)
			}
		},
		"run": func(*rapid.T) {
			if l := w.pick("leaf", func(l *simLeaf) bool { return l.cleared && !l.ran }); l != nil {
				if w.dialect == desired.V1 {
					w.must(w.tree.Write(l.Group, desired.Mems, "0-1"))
				}
				w.spawn(l)
			}
		},
		"nest": func(t *rapid.T) {
			l := w.pick("leaf", func(l *simLeaf) bool { return live(l) && w.dialect == desired.V1 })
			if l == nil {
				return
			}
			sub := path.Join(l.Group, "sub")
			if w.tree.Mkdir(sub) != nil {
				return
			}
			cpus, err := w.tree.Read(l.Group, desired.CPUs)
			w.must(err)
			w.must(w.tree.Write(sub, desired.CPUs, cpus))
		},
		"exit": func(*rapid.T) {
			if l := w.pick("leaf", live); l != nil {
				w.must(w.tree.Kill(l.Group))
			}
		},
		"stop hook": func(*rapid.T) {
			if l := w.pick("leaf", func(l *simLeaf) bool { return l.ran && !w.populated(l) }); l != nil {
				w.engine.Stop(l.Container)
			}
		},
		"remove": func(t *rapid.T) {
			l := w.pick("leaf", func(l *simLeaf) bool { return !w.populated(l) && (l.ran || !l.cleared) })
			if l == nil {
				return
			}
			w.remove(l)
			if rapid.Bool().Draw(t, "hook") {
				w.engine.Remove(l.Container)
			}
		},
		"delete": func(t *rapid.T) { // with processes alive it is a forced one
			if p := w.pickPod("pod", func(p *simPod) bool { return p.inAPI && !p.pinned }); p != nil {
				p.inAPI = false
			}
		},
		"drift": func(t *rapid.T) {
			// What another program did before a crash is known to the checkpoint alone, and of pods that are gone from
			// the API that is all there is to know.
			l := w.pick("leaf", func(l *simLeaf) bool { return live(l) && l.pod.inAPI })
			if l == nil || w.checkpoint == nil || w.tampered() > 0 {
				return
			}
			l.tampered = true
			_ = w.tree.Write(l.Group, desired.CPUs,
				rapid.SampledFrom([]string{"0-11", "3", "5-7", "0,6"}).Draw(t, "value"))
		},
		"throttle": func(t *rapid.T) { // another program writes quotas; a v1 kernel refuses those above the pod's
			l := w.pick("leaf", func(l *simLeaf) bool { return live(l) && l.pod.inAPI && l.pod.Entry.Role.Binds() })
			if l == nil {
				return
			}
			file, _ := w.dialect.Quota()
			for _, group := range []string{l.Group, l.PodGroup} {
				_ = w.tree.Write(group, file, rapid.SampledFrom([]string{"50000", "200000"}).Draw(t, "quota"))
			}
		},
		"reallocate": func(t *rapid.T) { // a user edits the annotation of a pod, to whatever CPUs
			p := w.pickPod("pod", func(p *simPod) bool { return p.inAPI && p.delivered && p.Entry.Role.Binds() })
			if p == nil || w.checkpoint == nil {
				return
			}
			p.edited = true
			lists := []string{"1", "2-3", "4,10", "7-9", "", "40", p.Entry.CPUList}
			p.Entry.CPUList = rapid.SampledFrom(lists).Draw(t, "cpus")
			w.engine.Update(p.Pod)
		},
		"reconcile": func(t *rapid.T) { w.disturbed(t, func() { _ = w.engine.Reconcile() }) },
		"verify": func(*rapid.T) {
			if w.engine.Verify() == nil {
				w.untamper()
			}
		},
		"disturbed verify": func(t *rapid.T) { w.disturbed(t, func() { _ = w.engine.Verify() }) },
		"crash":            func(*rapid.T) { w.boot() },
	}
}

// resync gives the engine all that the runtime has, pods that are gone from the API included.
func (w *world) resync() {
	has := map[*simPod]bool{}
	for _, l := range w.leaves {
		has[l.pod] = true
	}
	for _, p := range w.sorted() {
		if has[p] {
			w.engine.Introduce(p.Pod)
		} else {
			w.engine.Withdraw(p.Entry.UID)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(w.leaves)) {
		if l := w.leaves[at]; l.answered {
			w.engine.AddStarted(l.Container, l.ran && !w.populated(l))
		}
	}
	w.engine.Recheck()
}

func (w *world) deploy(t *rapid.T, p *simPod) {
	w.deliver(p)
	l := w.mkdir(p)
	rows, err := w.engine.Create(l.Container)
	if l.answer, l.answered = rows, err == nil; !l.answered {
		return
	}
	w.applyAnswer(l)
	if l.cleared = w.engine.Start(t.Context(), l.Container) == nil; l.cleared {
		w.spawn(l)
	}
}

func (w *world) deliver(p *simPod) {
	p.delivered = p.inAPI
	if p.inAPI {
		w.engine.Update(p.Pod)
	} else {
		w.engine.Delete(p.Entry.UID)
	}
}

func (w *world) start(t *rapid.T, l *simLeaf) {
	l.starting = true // the runtime has written what Create answered, and waits
	defer func() { l.starting = false }()
	var err error
	if !w.disturbed(t, func() { err = w.engine.Start(t.Context(), l.Container) }) {
		return // the agent died: the runtime never got an answer
	}
	if l.cleared = err == nil; l.cleared {
		return
	}
	var blocked *apply.Blocked
	if !errors.As(err, &blocked) {
		t.Fatalf("Start answered %v, want a *Blocked", err)
	}
}

// disturbed runs f while the tree misbehaves: unreadable files, refusals, groups that vanish, containers that die and
// other programs that write old values in between, and at last the agent's own death.
func (w *world) disturbed(t *rapid.T, f func()) bool {
	budget := rapid.IntRange(0, 3).Draw(t, "disturbances")
	w.wire.before = func(op kernel.Op, group, file string) error {
		if budget == 0 || rapid.IntRange(0, 7).Draw(t, "here") != 0 {
			return nil
		}
		budget--
		switch rapid.IntRange(0, 5).Draw(t, "disturbance") {
		case 0:
			return syscall.EIO
		case 1:
			if op == kernel.OpWrite {
				return syscall.EBUSY
			}
		case 2:
			if l := w.pick("dying leaf", func(l *simLeaf) bool { return w.populated(l) && !l.pod.pinned }); l != nil {
				w.must(w.tree.Kill(l.Group))
			}
		case 3:
			if l := w.pick("vanishing leaf", func(l *simLeaf) bool {
				return !w.populated(l) && (l.ran || !l.cleared) &&
					!l.pod.pinned && !l.starting
			}); l != nil {
				w.remove(l)
			}
		case 4:
			if l := w.pick("late leaf", func(l *simLeaf) bool {
				return l.answered && !l.cleared &&
					!l.starting
			}); l != nil {
				w.applyAnswer(l)
			}
		case 5:
			w.wire.before = nil
			panic(crash{})
		}
		return nil
	}
	survived := w.guard(f)
	w.wire.before = nil
	return survived
}

// tampered counts the leaves that other programs changed.
func (w *world) tampered() int {
	n := 0
	for _, l := range w.leaves {
		if l.tampered {
			n++
		}
	}
	return n
}

// untamper forgets what other programs did to the leaves that are repaired.
func (w *world) untamper() {
	for _, row := range w.engine.Table().Rows {
		l := w.leaves[row.Path]
		if l == nil || row.File != desired.CPUs {
			continue
		}
		if got, err := w.tree.Read(row.Path, row.File); err == nil && got == row.Value {
			l.tampered = false
		}
	}
}

// deleteContradictions deletes pods whose allocation was edited, and others until no two that are left claim one CPU,
// and each has a claim that can be met and leaves the shared pool a CPU, as the scheduler sees to.
func (w *world) deleteContradictions() {
	for _, p := range w.sorted() {
		if !p.inAPI || !p.Entry.Role.Binds() {
			continue
		}
		view := w.account()
		claim := view.CPUsOf(p.Entry.UID)
		pool := view.SharedPool()
		kept := !p.edited && !claim.IsEmpty() && !pool.IsEmpty()
		for _, problem := range view.Problems() {
			kept = kept && problem.UID != p.Entry.UID && problem.Other != p.Entry.UID
		}
		p.inAPI = kept
	}
}

// checkAtRest ends all disturbance and checks that the tree is what the table says (N2), without further writes (N3),
// and that the kubelet's leaves were never written (N5).
func (w *world) checkAtRest() {
	w.deleteContradictions()
	for _, p := range w.sorted() {
		w.deliver(p)
	}
	for _, at := range slices.Sorted(maps.Keys(w.leaves)) {
		l := w.leaves[at]
		if !l.pod.inAPI && w.populated(l) {
			w.must(w.tree.Kill(l.Group))
		}
		if !l.pod.inAPI || !l.ran {
			w.remove(l)
			w.engine.Remove(l.Container)
		}
	}
	w.boot() // no back-off is left
	w.resync()
	w.must(w.engine.Verify())
	w.untamper()
	w.must(w.engine.Verify())
	w.check(w.t)
	view := w.account()
	if got := w.engine.View(); got.SharedPool() != view.SharedPool() || got.BEPool() != view.BEPool() {
		w.t.Fatalf("pools are %v and %v, want %v and %v", got.SharedPool(), got.BEPool(), view.SharedPool(),
			view.BEPool())
	}
	rows := 0
	for _, row := range w.engine.Table().Rows {
		got, err := w.tree.Read(row.Path, row.File)
		if err != nil {
			w.t.Fatal(err)
		}
		if got, _, _ = strings.Cut(got, " "); got != row.Value {
			w.t.Fatalf("%s/%s is %q, want %q (%v)", row.Path, row.File, got, row.Value, row.Cause)
		}
		rows++
	}
	w.must(w.engine.Verify())
	if len(w.wire.writes) > 0 {
		w.t.Fatalf("nothing changed, and yet: %v", w.wire.writes)
	}
	for _, l := range w.leaves {
		if l.pod.pinned {
			if got, _ := w.tree.Read(l.Group, desired.CPUs); got != "2,8" {
				w.t.Fatalf("the kubelet's leaf is %q", got)
			}
		}
	}
}
