package apply_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/local/kernel"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// smallMachine has 2 NUMA nodes of 3 cores with 2 threads: CPU c and c+6 are siblings.
func smallMachine(tb testing.TB, offline ...int) *topo.Machine {
	tb.Helper()
	return grid.Machine{Sockets: 2, Cores: 3, Threads: 2, Offline: offline, NodeBytes: 1 << 30}.Build(tb)
}

// wire is the Cgroup that the engine under test sees: the simulated kernel with a connection that can fail.
type wire struct {
	*kernel.Tree
	// before runs before every call; an error is the call's answer. It may panic with crash{}.
	before func(op kernel.Op, group, file string) error
	writes []string
	// refused collects what the kernel itself refused.
	refused []string
}

// memo is a Checkpoint in memory.
type memo struct{ held map[string]apply.Grant }

func (c *memo) Load() (map[string]apply.Grant, error) {
	if c.held == nil {
		return nil, fs.ErrNotExist
	}
	return maps.Clone(c.held), nil
}

func (c *memo) Save(held map[string]apply.Grant) error {
	c.held = maps.Clone(held)
	return nil
}

// crash is the panic of an agent that dies in the middle of a call.
type crash struct{}

func (w *wire) ask(op kernel.Op, group, file string) error {
	if w.before == nil {
		return nil
	}
	return w.before(op, group, file)
}

func (w *wire) Read(group, file string) (string, error) {
	if err := w.ask(kernel.OpRead, group, file); err != nil {
		return "", err
	}
	return w.Tree.Read(group, file)
}

func (w *wire) Children(group string) ([]string, error) {
	if err := w.ask(kernel.OpList, group, ""); err != nil {
		return nil, err
	}
	return w.Tree.Children(group)
}

func (w *wire) Write(group, file, value string) error {
	if err := w.ask(kernel.OpWrite, group, file); err != nil {
		return err
	}
	w.writes = append(w.writes, group+"/"+file+"="+value)
	err := w.Tree.Write(group, file, value)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EBUSY) {
		w.refused = append(w.refused, fmt.Sprintf("%s/%s=%q: %v", group, file, value, err))
	}
	return err
}

// simPod is a pod of the world.
type simPod struct {
	desired.Pod
	inAPI     bool
	delivered bool // the engine has the state of inAPI
	pinned    bool
	edited    bool // a user changed its allocation
}

// simLeaf is a container of the world.
type simLeaf struct {
	apply.Container
	pod      *simPod
	answer   []desired.Row
	answered bool
	starting bool // Start was asked
	cleared  bool // and said yes
	ran      bool
	tampered bool
}

// world is a node: an API, a runtime, a kernel, and the engine in the middle.
type world struct {
	t       *rapid.T
	m       *topo.Machine
	dialect desired.Dialect
	slices  bool // groups are named as the systemd driver does
	tree    *kernel.Tree
	wire    *wire
	engine  *apply.Engine
	facts   ledger.Facts
	// checkpoint outlives the engine; nil when the agent has none
	checkpoint apply.Checkpoint
	pods       map[string]*simPod
	leaves     map[string]*simLeaf
	serial     int
	broken     string // first violation that the observer saw
}

func newWorld(t *rapid.T, m *topo.Machine, d desired.Dialect, c apply.Checkpoint) *world {
	w := &world{
		checkpoint: c, t: t, m: m, dialect: d, slices: rapid.Bool().Draw(t, "slices"),
		pods: map[string]*simPod{}, leaves: map[string]*simLeaf{},
	}
	tree, err := kernel.Open(kernel.Options{Dialect: d, Machine: m, Observe: w.observe})
	testkit.Check(t, err)
	w.tree, w.wire = tree, &wire{Tree: tree}
	besteffort := path.Dir(w.groupOf(&simPod{Pod: desired.Pod{Entry: ledger.Entry{UID: "x", Role: qos.BEPool}}}))
	testkit.Check(t, tree.MkdirAll(path.Join(besteffort, "x")))
	testkit.Check(t, tree.Rmdir(path.Join(besteffort, "x")))
	w.facts = ledger.Facts{Machine: m, MinSharedCPUs: -1}
	w.boot()
	return w
}

// boot starts a new engine without any state, and gives it what a started agent reads.
func (w *world) boot() {
	w.engine = apply.New(apply.Options{
		Cgroup: w.wire, Checkpoint: w.checkpoint,
		Roots: []string{"kubepods", "kubepods.slice"},
	})
	w.engine.SetFacts(w.facts)
	for _, p := range w.sorted() {
		if p.inAPI {
			p.delivered = true
			w.engine.Update(p.Pod)
		}
	}
	w.engine.Prune(func(yield func(string) bool) {
		for uid, p := range w.pods {
			if p.inAPI && !yield(uid) {
				return
			}
		}
	})
}

func (w *world) sorted() []*simPod {
	var out []*simPod
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		out = append(out, w.pods[uid])
	}
	return out
}

// guard runs f; when the agent crashes in it, a new one boots.
func (w *world) guard(f func()) (survived bool) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case crash:
			w.boot()
		default:
			panic(r)
		}
	}()
	f()
	return true
}

// account is what the scheduler believes: the API's pods, and nothing of what lives on.
func (w *world) account() *ledger.View {
	var entries []ledger.Entry
	for _, p := range w.sorted() {
		if p.inAPI {
			entries = append(entries, p.Entry)
		}
	}
	return ledger.New(w.facts, entries...).View()
}

// bind lets the scheduler place a new pod; nil when none fits.
func (w *world) bind(role qos.Role) *simPod {
	w.serial++
	uid := fmt.Sprintf("u-%d", w.serial)
	p := &simPod{inAPI: true, Pod: desired.Pod{Entry: ledger.Entry{
		UID: uid, Namespace: "ns", Name: "p" + uid,
		Role: role,
	}}}
	switch role {
	case qos.Exclusive, qos.ExclusiveWithBE:
		p.Entry.Class = qos.LSE
		if role == qos.ExclusiveWithBE {
			p.Entry.Class = qos.LSR
		}
		view := w.account()
		free := view.Allocatable().Slice()
		n := rapid.IntRange(1, 3).Draw(w.t, "cpus")
		if len(free) < n+view.Floor() {
			return nil
		}
		at := rapid.IntRange(0, len(free)-n).Draw(w.t, "first")
		p.Entry.CPUList = cpuset.FormatIDs(free[at : at+n])
	case qos.SharedPool:
		p.Entry.Class = qos.LS
		if rapid.Bool().Draw(w.t, "constrained") {
			p.Entry.NUMAIDs = []int{rapid.IntRange(0, 1).Draw(w.t, "numa")}
		}
	case qos.BEPool:
		p.Entry.Class = qos.BE
	}
	w.pods[uid] = p
	return p
}

func (w *world) groupOf(p *simPod) string {
	if w.slices {
		uid := strings.ReplaceAll(p.Entry.UID, "-", "_")
		if p.Entry.Role == qos.BEPool {
			return "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + uid + ".slice"
		}
		return "kubepods.slice/kubepods-pod" + uid + ".slice"
	}
	if p.Entry.Role == qos.BEPool {
		return "kubepods/besteffort/pod" + p.Entry.UID
	}
	return "kubepods/pod" + p.Entry.UID
}

// observe is the proof: at no instant does the group of a pod have a CPU that another one has for itself.
func (w *world) observe(s []kernel.Group) {
	type set struct {
		path string
		pod  *simPod
		cpus cpuset.Set
	}
	var populated []set
	for _, g := range s {
		if g.Tasks == 0 {
			continue
		}
		l := w.leafOf(g.Path)
		if l != nil && !l.tampered {
			populated = append(populated, set{g.Path, l.pod, g.Effective})
		}
	}
	for _, a := range populated {
		if !a.pod.Entry.Role.Binds() || w.broken != "" {
			continue
		}
		for _, b := range populated {
			if a.pod == b.pod || a.pod.Entry.Role == qos.ExclusiveWithBE && b.pod.Entry.Role == qos.BEPool {
				continue
			}
			if a.cpus.Overlaps(&b.cpus) {
				w.broken = fmt.Sprintf("%v pod %s has %v in %s, and %v pod %s has %v in %s", a.pod.Entry.Class,
					a.pod.Entry.UID,
					a.cpus, a.path, b.pod.Entry.Class, b.pod.Entry.UID, b.cpus, b.path)
			}
		}
	}
}

func (w *world) leafOf(group string) *simLeaf {
	for at, l := range w.leaves {
		if group == at || strings.HasPrefix(group, at+"/") {
			return l
		}
	}
	return nil
}

func (w *world) check(t *rapid.T) {
	if w.broken != "" {
		t.Fatal(w.broken)
	}
	for _, write := range w.wire.writes {
		if strings.HasSuffix(write, "=") {
			t.Fatalf("an empty value was written: %s", write)
		}
	}
	if len(w.wire.refused) > 0 {
		t.Fatalf("the kernel refused: %v", w.wire.refused)
	}
	w.wire.writes = nil
}

// mkdir makes the groups of a new container, as the runtime does before it asks.
func (w *world) mkdir(p *simPod) *simLeaf {
	w.serial++
	group := w.groupOf(p)
	name := fmt.Sprintf("c%d", w.serial)
	if w.slices {
		name = "cri-containerd-" + name + ".scope"
	}
	c := apply.Container{PodUID: p.Entry.UID, Name: "c", PodGroup: group, Group: path.Join(group, name)}
	if _, err := w.tree.Read(group, desired.CPUs); err != nil { // the pod's first container
		w.must(w.tree.MkdirAll(group))
		w.limit(p, group, 4)
	}
	w.must(w.tree.MkdirAll(c.Group))
	w.limit(p, c.Group, 3)
	l := &simLeaf{Container: c, pod: p}
	w.leaves[c.Group] = l
	return l
}

// limit gives a group the quota that the kubelet gives to pods with limits: so many whole CPUs. A v1 kernel refuses it
// while another program holds the pod to less.
func (w *world) limit(p *simPod, group string, cpus int) {
	if p.Entry.Role.Binds() {
		file, _ := w.dialect.Quota()
		_ = w.tree.Write(group, file, strconv.Itoa(100000*cpus))
	}
}

// applyAnswer does what the runtime does with the answer to Create: it may be old by now.
func (w *world) applyAnswer(l *simLeaf) {
	if w.dialect == desired.V1 {
		w.must(w.tree.Write(l.Group, desired.Mems, "0-1"))
	}
	for _, row := range l.answer {
		w.must(w.tree.Write(row.Path, row.File, row.Value))
	}
	if w.dialect == desired.V1 && len(l.answer) == 0 {
		w.must(w.tree.Write(l.Group, desired.CPUs, "0-11"))
	}
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) populated(l *simLeaf) bool {
	live := false
	for _, g := range w.tree.Snapshot() {
		if g.Tasks > 0 && (g.Path == l.Group || strings.HasPrefix(g.Path, l.Group+"/")) {
			live = true
		}
	}
	return live
}

// pick draws one leaf for which ok holds; nil when there is none.
func (w *world) pick(label string, ok func(*simLeaf) bool) *simLeaf {
	var fit []string
	for _, at := range slices.Sorted(maps.Keys(w.leaves)) {
		if ok(w.leaves[at]) {
			fit = append(fit, at)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	return w.leaves[rapid.SampledFrom(fit).Draw(w.t, label)]
}

func (w *world) pickPod(label string, ok func(*simPod) bool) *simPod {
	var fit []*simPod
	for _, p := range w.sorted() {
		if ok(p) {
			fit = append(fit, p)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	return rapid.SampledFrom(fit).Draw(w.t, label)
}

// remove takes a dead container away.
func (w *world) remove(l *simLeaf) {
	names, err := w.tree.Children(l.Group)
	w.must(err)
	for _, name := range names {
		w.must(w.tree.Rmdir(path.Join(l.Group, name)))
	}
	w.must(w.tree.Rmdir(l.Group))
	delete(w.leaves, l.Group)
}
