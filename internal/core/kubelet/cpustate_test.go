package kubelet

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// book is what the kubelet writes down of its CPUs, by definition: the shared pool, and what each container has.
type book struct {
	*plain
	shared cpuset.Set
	pods   map[string]map[string]cpuset.Set
}

func newBook(m *topo.Machine, c Config) *book {
	b := &book{plain: newPlain(m, c), pods: map[string]map[string]cpuset.Set{}}
	b.shared = b.all()
	return b
}

func (b *book) available() cpuset.Set { return b.shared.Minus(b.config.CPU.Reserved) }

// hints asks every mask of nodes in turn.
func (b *book) hints(free, reuse cpuset.Set, n int) hint.List {
	nodes := b.units(byNode, b.all())
	least := len(nodes)
	list := hint.List{}
	for i := 1; i < 1<<len(nodes); i++ {
		var m topo.NodeSet
		var cpus cpuset.Set
		for bit, node := range nodes {
			if i>>bit&1 != 0 {
				m |= 1 << node
				cpus = cpus.Union(b.in(byNode, node, b.all()))
			}
		}
		if cpus.Len() >= n {
			least = min(least, m.Len())
		}
		if reuse.SubsetOf(&cpus) && cpus.CountIn(&free)+reuse.Len() >= n {
			list = append(list, hint.Hint{Mask: m})
		}
	}
	sockets := len(b.units(bySocket, b.all()))
	for i := range list {
		list[i].Preferred = list[i].Mask.Len() == least
		if perSocket := len(nodes) / sockets; b.config.CPU.AlignBySocket && perSocket > 0 {
			spans := len(b.units(bySocket, b.inside(list[i].Mask, b.all(), false)))
			list[i].Preferred = list[i].Preferred || spans == (least+perSocket-1)/perSocket
		}
	}
	return list
}

// inside are the CPUs of a set in the nodes of a mask, or in the sockets of those nodes.
func (b *book) inside(m topo.NodeSet, within cpuset.Set, wholeSockets bool) cpuset.Set {
	var set cpuset.Set
	for node := range topo.MaxNodes {
		if m.Has(topo.NUMA(node)) {
			cpus := b.in(byNode, node, b.all())
			if wholeSockets {
				for _, s := range b.units(bySocket, cpus) {
					cpus = cpus.Union(b.in(bySocket, s, b.all()))
				}
			}
			set = set.Union(cpus.Intersect(within))
		}
	}
	return set
}

// aligned is the check of full-pcpus-only.
func (b *book) aligned(n int) cpuFault {
	if !b.config.CPU.FullPCPUsOnly {
		return cpuOK
	}
	if n%(len(b.cpus)/b.cores) != 0 {
		return cpuOddThreads
	}
	left := b.shared
	for id := range b.config.CPU.Reserved.All() {
		left = left.Minus(b.in(byCore, b.cpus[id].core, b.all()))
	}
	if left.Len() < n {
		return cpuNoWholeCores
	}
	return cpuOK
}

// give allocates n CPUs, those inside a mask first.
func (b *book) give(n int, m topo.NodeSet, reuse cpuset.Set) (cpuset.Set, cpuFault) {
	from := b.available().Union(reuse)
	var taken cpuset.Set
	if m != 0 {
		inside := b.inside(m, from, b.config.CPU.AlignBySocket)
		var fault cpuFault
		if taken, fault = b.take(inside, min(n, inside.Len())); fault != cpuOK {
			return taken, fault
		}
	}
	rest, fault := b.take(from.Minus(taken), n-taken.Len())
	return taken.Union(rest), fault
}

func (b *book) remove(uid string) {
	for _, cpus := range b.pods[uid] {
		b.shared = b.shared.Union(cpus)
	}
	delete(b.pods, uid)
}

func drawPod(t *rapid.T, uid string, most int) *Pod {
	pod := &Pod{
		UID: uid, Guaranteed: rapid.IntRange(0, 9).Draw(t, "qos") > 0,
		PodLevel: rapid.IntRange(0, 9).Draw(t, "spec.resources") == 0,
	}
	roles := rapid.SliceOfN(rapid.SampledFrom([]Role{Init, Init, Sidecar}), 0, 2).Draw(t, "init containers")
	roles = append(roles, make([]Role, rapid.IntRange(1, 2).Draw(t, "app containers"))...)
	for i, role := range roles {
		cpus := rapid.IntRange(0, max(1, most)).Draw(t, "cpus")
		if rapid.Bool().Draw(t, "even") {
			cpus &^= 1
		}
		pod.Containers = append(pod.Containers, Container{Name: fmt.Sprint("c", i), Role: role, CPUs: cpus})
	}
	return pod
}

// admit lets a pod through the CPU manager, on both sides, and compares at each step. It returns the state with what
// the pod got; false when the kubelet refuses it on the way.
func (b *book) admit(t *rapid.T, s *cpuState, pod *Pod) (*cpuState, bool) {
	a := s.admit(pod, new(room))
	var reuse cpuset.Set
	if b.pods[pod.UID] == nil {
		b.pods[pod.UID] = map[string]cpuset.Set{}
	}
	has := b.pods[pod.UID]
	podList := b.podHints(pod)
	sameHints(t, "the pod", a.podHints(), podList)
	podScope := rapid.Bool().Draw(t, "pod scope")
	podMask := drawMask(t, podList, b)
	managed := pod.Guaranteed && (!pod.PodLevel || b.config.Model.Minor == 33)
	for i := range pod.Containers {
		c := &pod.Containers[i]
		cpus, given := has[c.Name]
		n := c.CPUs
		if !managed {
			n = 0
		}
		var list hint.List
		switch {
		case n == 0:
		case given && cpus.Len() != n:
			list = hint.List{}
		case given:
			list = b.hints(cpus, cpuset.Set{}, n)
		default:
			list = b.hints(b.available(), reuse, n)
		}
		sameHints(t, c.Name, a.hints(c), list)
		mask := podMask
		if !podScope {
			mask = drawMask(t, list, b)
		}
		got, fault := a.allocate(c, mask)
		var want cpuset.Set
		wantFault := cpuOK
		if n > 0 {
			if !given || b.config.Model.Minor < 37 {
				wantFault = b.aligned(n)
			}
			if want = cpus; !given && wantFault == cpuOK {
				want, wantFault = b.give(n, mask, reuse)
			}
		}
		if fault != wantFault || fault == cpuOK && got != want {
			t.Fatalf("%s asks %d in %b: got %s, fault %d; want %s, fault %d", c.Name, n, mask, got, fault, want,
				wantFault)
		}
		if fault != cpuOK {
			return a.state(), false
		}
		if n == 0 {
			continue
		}
		if !given && b.isRegular() {
			b.checkGrant(t, c, got, mask, reuse)
		}
		if !given {
			has[c.Name] = want
			b.shared = b.shared.Minus(want)
		}
		if c.Role == Init {
			reuse = reuse.Union(want)
		} else {
			reuse = reuse.Minus(want)
		}
	}
	return a.state(), true
}

func (b *book) podHints(pod *Pod) hint.List {
	if !pod.Guaranteed || pod.PodLevel && b.config.Model.Minor > 33 {
		return nil
	}
	sidecars, n, sum := 0, 0, 0
	for _, c := range pod.Containers {
		switch c.Role {
		case Init:
			n = max(n, sidecars+c.CPUs)
		case Sidecar:
			sidecars += c.CPUs
			sum += c.CPUs
		default:
			sum += c.CPUs
		}
	}
	if n = max(n, sum); n == 0 {
		return nil
	}
	var has cpuset.Set
	for _, c := range pod.Containers {
		if cpus, ok := b.pods[pod.UID][c.Name]; ok {
			if cpus.Len() != c.CPUs {
				return hint.List{}
			}
			has = has.Union(cpus)
		}
	}
	if has.Len() == n {
		return b.hints(has, cpuset.Set{}, n)
	}
	return b.hints(b.available(), has, n)
}

// isRegular: no unit differs from another of its kind and smaller ones are inside one larger one, so no CPU is given
// twice and none is lost.
func (b *book) isRegular() bool {
	for _, l := range []level{byCore, byNode, bySocket} {
		units := b.units(l, b.all())
		for _, unit := range units {
			if held := b.in(l, unit, b.all()); held.Len()*len(units) != len(b.cpus) {
				return false
			}
		}
	}
	inner, outer := level(byNode), level(bySocket)
	if !b.socketFirst() {
		inner, outer = bySocket, byNode
	}
	return b.nests(inner, outer) && (b.nests(byL3, byNode) || !b.config.CPU.AlignL3)
}

// nests reports whether every unit of the inner level is in one of the outer.
func (b *book) nests(inner, outer level) bool {
	for _, unit := range b.units(inner, b.all()) {
		if len(b.units(outer, b.in(inner, unit, b.all()))) > 1 {
			return false
		}
	}
	return true
}

// checkGrant: what is given is free or may be reused, is not reserved, is as many as asked, and lies inside the mask as
// far as that goes.
func (b *book) checkGrant(t *rapid.T, c *Container, got cpuset.Set, m topo.NodeSet, reuse cpuset.Set) {
	from := b.available().Union(reuse)
	if !got.SubsetOf(&from) || got.Len() != c.CPUs || got.Overlaps(&b.config.CPU.Reserved) {
		t.Fatalf("%s asks %d and gets %s of %s, reserved %s", c.Name, c.CPUs, got, from, b.config.CPU.Reserved)
	}
	inside := b.inside(m, from, b.config.CPU.AlignBySocket)
	if got.CountIn(&inside) != min(c.CPUs, inside.Len()) {
		t.Fatalf("%s asks %d in %s and gets %s", c.Name, c.CPUs, inside, got)
	}
}

// drawMask draws what a merge may come to: a hint, no mask, any other mask.
func drawMask(t *rapid.T, list hint.List, b *book) topo.NodeSet {
	if len(list) > 0 && rapid.IntRange(0, 3).Draw(t, "hint") > 0 {
		return rapid.SampledFrom(list).Draw(t, "mask").Mask
	}
	var m topo.NodeSet
	for _, node := range b.units(byNode, b.all()) {
		if rapid.Bool().Draw(t, "node") {
			m |= 1 << node
		}
	}
	return m
}

func sameHints(t *rapid.T, what string, got, want hint.List) {
	t.Helper()
	byMask := func(a, b hint.Hint) int { return cmp.Compare(a.Mask, b.Mask) }
	slices.SortFunc(got, byMask)
	slices.SortFunc(want, byMask)
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("hints of %s are %v, want %v", what, got, want)
	}
}

// compare checks the state against the book.
func (b *book) compare(t *rapid.T, s *cpuState) {
	if s.available != b.available() {
		t.Fatalf("available are %s, want %s", s.available, b.available())
	}
	for node, free := range s.free {
		cpus := b.in(byNode, node, b.all())
		if available := b.available(); int(free) != cpus.CountIn(&available) ||
			int(s.policy.capacity[node]) != cpus.Len() {
			t.Fatalf("node %d counts %d of %d CPUs free, available are %s of %s", node, free, s.policy.capacity[node],
				available, cpus)
		}
	}
	pods := 0
	for uid, has := range b.pods {
		if len(has) > 0 {
			pods++
		}
		grants := grantsIn(s, uid)
		if len(grants) != len(has) {
			t.Fatalf("pod %s has %v, want %v", uid, grants, has)
		}
		for _, g := range grants {
			if has[g.container] != g.cpus {
				t.Fatalf("container %s of pod %s has %s, want %s", g.container, uid, g.cpus, has[g.container])
			}
		}
	}
	if len(s.pods) != pods {
		t.Fatalf("%d pods have CPUs, want %d", len(s.pods), pods)
	}
}

func TestAdmissionsAreWhatTheDefinitionSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := grid.Build(t, drawSpec(t))
		c := drawConfig(t, m)
		b, s := newBook(m, c), newCPUPolicy(m, c).empty()
		online := m.Online()
		for i := range rapid.IntRange(1, 6).Draw(t, "steps") {
			uid := fmt.Sprint("pod", rapid.IntRange(0, i).Draw(t, "pod"))
			if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
				s = s.without(uid)
				b.remove(uid)
			} else {
				before, known := *s, len(b.pods[uid]) > 0
				pod := drawPod(t, uid, online.Len()/3)
				next, ok := b.admit(t, s, pod)
				if !reflect.DeepEqual(before, *s) {
					t.Fatalf("the state that admission started from changed: %+v, before %+v", *s, before)
				}
				switch {
				case ok && !known && b.isRegular():
					if gone := next.without(uid); !reflect.DeepEqual(gone.available, s.available) ||
						!reflect.DeepEqual(gone.free, s.free) {
						t.Fatalf("admitted and removed, the pod leaves %s, before %s", gone.available, s.available)
					}
				case !ok: // the kubelet drops what a refused pod left behind before it looks at the next one
					next = next.without(uid)
					b.remove(uid)
				}
				s = next
			}
			b.compare(t, s)
		}
	})
}

// TestExternalGrantsComeAndGo: after any grants, repeated or in any order, the available CPUs are those of no pod.
func TestExternalGrantsComeAndGo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := grid.Build(t, drawSpec(t))
		p := newCPUPolicy(m, drawConfig(t, m))
		s, granted := p.empty(), map[string][]cpuGrant{}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			uid := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "uid")
			var grants []cpuGrant
			for i := range rapid.IntRange(0, 2).Draw(t, "containers") {
				grants = append(grants, cpuGrant{fmt.Sprint(i), drawCPUs(t, m.All(), "cpus", 30)})
			}
			s = s.with(uid, grants)
			granted[uid] = grants
			if rapid.Bool().Draw(t, "remove") {
				uid = rapid.SampledFrom([]string{"a", "b", "unknown"}).Draw(t, "gone")
				s = s.without(uid)
				delete(granted, uid)
			}
			want := p.online.Minus(p.reserved)
			for uid, grants := range granted {
				for _, g := range grants {
					want = want.Minus(g.cpus)
				}
				if got := grantsIn(s, uid); !slices.Equal(got, grants) {
					t.Fatalf("pod %s has %v, want %v", uid, got, grants)
				}
			}
			if s.available != want {
				t.Fatalf("available are %s, want %s; granted %v", s.available, want, granted)
			}
			for node, free := range s.free {
				cpus := m.NUMACPUs(topo.NUMA(node))
				if cpus.CountIn(&want) != int(free) {
					t.Fatalf("node %d has %d free, available are %s", node, free, want)
				}
			}
		}
	})
}

func TestHintsOfCPUs(t *testing.T) {
	t.Parallel()
	type list = hint.List
	two := grid.Machine{Sockets: 2, Nodes: 1, Cores: 8, Threads: 2}
	four := grid.Machine{Sockets: 2, Nodes: 2, Cores: 4, Threads: 1}
	ask := func(role Role, cpus int) *Pod {
		return &Pod{UID: "p", Guaranteed: true, Containers: []Container{{Name: "c", Role: role, CPUs: cpus}}}
	}
	pods := func(pod *Pod, change func(*Pod)) *Pod { change(pod); return pod }
	tests := map[string]struct {
		frame    grid.Machine
		cpu      CPU
		minor    int // 0 = 36
		given    []cpuGrant
		others   string
		pod      *Pod
		want     list
		podScope bool
	}{
		"reserved CPUs count as capacity": {
			frame: two, cpu: CPU{Reserved: cpuset.Of(0, 8)}, pod: ask(App, 16), want: list{{Mask: 3}},
		},
		"both nodes have room": {
			frame: two, pod: ask(App, 16), want: list{
				{Mask: 1, Preferred: true},
				{Mask: 2, Preferred: true},
				{Mask: 3},
			},
		},
		"used CPUs count as capacity": {
			frame: two, others: "0-14", pod: ask(App, 17), want: list{{Mask: 3, Preferred: true}},
		},
		"more than the machine has": {frame: two, pod: ask(App, 33), want: list{}},
		"a pod that is not guaranteed": {
			frame: two, pod: pods(ask(App, 4), func(p *Pod) { p.Guaranteed = false }),
		},
		"a fraction": {frame: two, pod: ask(App, 0)},
		"spec.resources in 1.34": {
			frame: two, minor: 34, pod: pods(ask(App, 4), func(p *Pod) { p.PodLevel = true }),
		},
		"spec.resources in 1.33": {
			frame: two, minor: 33, others: "0-7,16-23", pod: pods(ask(App, 4), func(p *Pod) { p.PodLevel = true }),
			want: list{{Mask: 2, Preferred: true}, {Mask: 3}},
		},
		"what it has already": {
			frame: two, given: []cpuGrant{{"c", cpuset.Of(9, 25)}}, pod: ask(App, 2),
			want: list{{Mask: 2, Preferred: true}, {Mask: 3}},
		},
		"another number than it has already": {
			frame: two, given: []cpuGrant{{"c", cpuset.Of(9, 25)}}, pod: ask(App, 4), want: list{},
		},
		"aligned by socket": {
			frame: four, cpu: CPU{AlignBySocket: true}, others: "0-1,8", pod: ask(App, 4), want: list{
				{Mask: 2, Preferred: true},
				{Mask: 3, Preferred: true},
				{Mask: 5},
				{Mask: 6},
				{Mask: 7},
				{Mask: 8, Preferred: true},
				{Mask: 9},
				{Mask: 10},
				{Mask: 11},
				{Mask: 12, Preferred: true},
				{Mask: 13},
				{Mask: 14},
				{Mask: 15},
			},
		},
		"a pod's init containers and apps do not add up": {
			frame: two, podScope: true,
			pod: &Pod{Guaranteed: true, Containers: []Container{
				{Name: "i", Role: Init, CPUs: 16},
				{Name: "c", CPUs: 12},
			}},
			want: list{{Mask: 1, Preferred: true}, {Mask: 2, Preferred: true}, {Mask: 3}},
		},
		"a pod's sidecars run beside what follows them": {
			frame: two, podScope: true,
			pod: &Pod{Guaranteed: true, Containers: []Container{
				{Name: "i", Role: Init, CPUs: 2},
				{Name: "s", Role: Sidecar, CPUs: 1},
				{Name: "j", Role: Init, CPUs: 16},
				{Name: "c", CPUs: 3},
			}},
			want: list{{Mask: 3, Preferred: true}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			minor := tt.minor
			if minor == 0 {
				minor = 36
			}
			tt.cpu.Static = true
			s := newCPUPolicy(tt.frame.Build(t), Config{Model: minorModel(minor), CPU: tt.cpu}).empty()
			if tt.others != "" {
				s = s.with("others", []cpuGrant{{"c", cpuset.MustParse(tt.others)}})
			}
			a := s.with(tt.pod.UID, tt.given).admit(tt.pod, new(room))
			got := a.hints(&tt.pod.Containers[0])
			if tt.podScope {
				got = a.podHints()
			}
			slices.SortFunc(got, func(a, b hint.Hint) int { return cmp.Compare(a.Mask, b.Mask) })
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestAdmissionOfCPUs(t *testing.T) {
	t.Parallel()
	two := grid.Machine{Sockets: 2, Nodes: 1, Cores: 4, Threads: 2}
	four := grid.Machine{Sockets: 2, Nodes: 2, Cores: 4, Threads: 1}
	tests := map[string]struct {
		frame      grid.Machine
		cpu        CPU
		minor      int // 0 = 36
		others     string
		given      []cpuGrant
		containers []Container
		mask       topo.NodeSet
		want       []string // by container
		fault      cpuFault // of the last container
	}{
		"what a mask lacks comes from anywhere": {
			frame: two, others: "0,8", containers: []Container{{Name: "c", CPUs: 8}}, mask: 1,
			want: []string{"1-4,9-11,12"},
		},
		"an app container takes what an init container had": {
			frame: two, containers: []Container{
				{Name: "i", Role: Init, CPUs: 4},
				{Name: "c", CPUs: 2},
				{Name: "d", CPUs: 4},
			}, mask: 1,
			want: []string{"0-1,8-9", "0,8", "1-2,9-10"},
		},
		"a sidecar keeps its own": {
			frame: two, containers: []Container{{Name: "i", Role: Sidecar, CPUs: 4}, {Name: "c", CPUs: 2}}, mask: 1,
			want: []string{"0-1,8-9", "2,10"},
		},
		"a sidecar takes what an init container had": {
			frame: two, containers: []Container{
				{Name: "i", Role: Init, CPUs: 2},
				{Name: "s", Role: Sidecar, CPUs: 2},
				{Name: "c", CPUs: 2},
			}, mask: 2,
			want: []string{"4,12", "4,12", "5,13"},
		},
		"align-by-socket widens the mask": {
			frame: four, cpu: CPU{AlignBySocket: true}, containers: []Container{{Name: "c", CPUs: 6}}, mask: 1,
			want: []string{"0-5"},
		},
		"half a core": {
			frame: two, cpu: CPU{FullPCPUsOnly: true}, containers: []Container{{Name: "c", CPUs: 3}},
			fault: cpuOddThreads,
		},
		"cores with a reserved thread are not whole": {
			frame: two, cpu: CPU{FullPCPUsOnly: true, Reserved: cpuset.Of(0, 1)},
			containers: []Container{{Name: "c", CPUs: 14}},
			fault:      cpuNoWholeCores,
		},
		"too many": {frame: two, others: "0-5", containers: []Container{{Name: "c", CPUs: 12}}, fault: cpuShort},
		"1.36 checks what is given already": {
			frame: two, cpu: CPU{FullPCPUsOnly: true}, given: []cpuGrant{{"c", cpuset.Of(3)}},
			containers: []Container{{Name: "c", CPUs: 1}},
			fault:      cpuOddThreads,
		},
		"1.37 keeps what is given already": {
			frame: two, cpu: CPU{FullPCPUsOnly: true}, minor: 37, given: []cpuGrant{{"c", cpuset.Of(3)}},
			containers: []Container{{Name: "c", CPUs: 1}}, want: []string{"3"},
		},
		"an init container that was there before is reused": {
			frame: two, others: "0-2,4-10,12-15", given: []cpuGrant{{"i", cpuset.Of(3, 11)}},
			containers: []Container{{Name: "i", Role: Init, CPUs: 2}, {Name: "c", CPUs: 2}},
			want:       []string{"3,11", "3,11"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			minor := tt.minor
			if minor == 0 {
				minor = 36
			}
			tt.cpu.Static = true
			pod := &Pod{UID: "p", Guaranteed: true, Containers: tt.containers}
			s := newCPUPolicy(tt.frame.Build(t), Config{Model: minorModel(minor), CPU: tt.cpu}).empty()
			if tt.others != "" {
				s = s.with("others", []cpuGrant{{"c", cpuset.MustParse(tt.others)}})
			}
			a := s.with("p", tt.given).admit(pod, new(room))
			var got []string
			for i := range pod.Containers {
				cpus, fault := a.allocate(&pod.Containers[i], tt.mask)
				if fault != tt.fault || fault == cpuOK && i < len(tt.want) && cpus != cpuset.MustParse(tt.want[i]) {
					t.Fatalf("container %s: got %s, fault %d; want %q, fault %d", pod.Containers[i].Name, cpus, fault,
						tt.want, tt.fault)
				}
				if fault == cpuOK {
					got = append(got, cpus.String())
				}
			}
			if len(got) != len(tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestHybridMachineGivesACPUTwice is kubernetes#140495: the freed CPU is available although a pod still has it.
func TestHybridMachineGivesACPUTwice(t *testing.T) {
	t.Parallel()
	p := newCPUPolicy(grid.Build(t, hybrid(2, 2)),
		Config{Model: minorModel(36), CPU: CPU{Static: true, Reserved: cpuset.Of(5)}})
	s := p.empty()
	for _, step := range []struct {
		uid  string
		cpus int
		want string
	}{
		{"a", 1, "4"}, {"b", 1, "0"}, {"c", 3, "0-2"},
	} {
		pod := &Pod{UID: step.uid, Guaranteed: true, Containers: []Container{{Name: "c", CPUs: step.cpus}}}
		a := s.admit(pod, new(room))
		if got, fault := a.allocate(&pod.Containers[0], 0); fault != cpuOK || got != cpuset.MustParse(step.want) {
			t.Fatalf("pod %s got %s, fault %d, want %s", step.uid, got, fault, step.want)
		}
		s = a.state()
	}
	if got := s.without("c").available; got != cpuset.MustParse("0-3") {
		t.Errorf("available are %s, want 0-3: the kubelet frees all that c had", got)
	}
	external := s.with("c", grantsIn(s, "c"))
	if got := external.without("c").available; got != cpuset.MustParse("1-3") {
		t.Errorf("available are %s, want 1-3: b keeps the rest of an external placement", got)
	}
}

// grantsIn returns what a pod has, in the order in which it was given.
func grantsIn(s *cpuState, uid string) []cpuGrant {
	if i, ok := s.find(uid); ok {
		return s.pods[i].grants
	}
	return nil
}
