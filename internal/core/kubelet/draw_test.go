package kubelet_test

import (
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// model returns the model of a kubelet minor.
func model(minor int) kubelet.Model {
	m, ok := kubelet.ModelOf(fmt.Sprintf("v1.%d.0", minor))
	if !ok {
		panic("no such model")
	}
	return m
}

// fataler is a testing.TB or a rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// even is a machine of equal NUMA nodes, one socket each, with two threads on each core.
func even(tb fataler, nodes, cpusPerNode int) *topo.Machine {
	tb.Helper()
	return grid.Machine{Sockets: nodes, Cores: cpusPerNode / 2, Threads: 2, CoresL3: cpusPerNode / 2}.Build(tb)
}

func node(tb fataler, m *topo.Machine, c kubelet.Config, inv kubelet.Inventory) *kubelet.Node {
	tb.Helper()
	n, reason := kubelet.NewNode(m, c, inv)
	if !reason.OK() {
		tb.Fatalf("NewNode: %+v", reason)
	}
	return n.WithBuffers(new(sync.Pool))
}

// memoryZones are equal zones of one type.
func memoryZones(nodes int, bytes int64) []map[string]int64 {
	zones := make([]map[string]int64, nodes)
	for i := range zones {
		zones[i] = map[string]int64{"memory": bytes}
	}
	return zones
}

// static is a kubelet with every manager on, that reserves CPUs 0 and 1.
func static(policy hint.Policy) kubelet.Config {
	return kubelet.Config{
		Model:    model(36),
		CPU:      kubelet.CPU{Static: true, Reserved: cpuset.Of(0, 1)},
		Memory:   kubelet.Memory{Static: true},
		Topology: kubelet.Topology{Policy: policy},
	}
}

// pod is a Guaranteed pod.
func pod(uid string, containers ...kubelet.Container) *kubelet.Pod {
	return &kubelet.Pod{UID: uid, Guaranteed: true, Containers: containers}
}

// app is an app container with CPUs and memory.
func app(name string, cpus int, bytes int64) kubelet.Container {
	c := kubelet.Container{Name: name, CPUs: cpus}
	if bytes > 0 {
		c.Memory = []kubelet.Amount{{Name: "memory", N: bytes}}
	}
	return c
}

// before makes a container one that runs before the app containers.
func before(role kubelet.Role, c kubelet.Container) kubelet.Container {
	c.Role = role
	return c
}

// and adds devices to a container.
func and(c kubelet.Container, resource string, n int64) kubelet.Container {
	c.Devices = append(c.Devices[:len(c.Devices):len(c.Devices)], kubelet.Amount{Name: resource, N: n})
	return c
}

// admit is an admission that must succeed.
func admit(tb testing.TB, s *kubelet.State, p *kubelet.Pod) (*kubelet.State, kubelet.Placement) {
	tb.Helper()
	next, placement, refusal := s.Admit(p)
	if refusal != nil {
		tb.Fatalf("Admit(%s) is refused: %+v", p.UID, *refusal)
	}
	return next, placement
}

// world draws what a property needs: a machine, a kubelet and a state in the middle of its life.
type world struct {
	*rapid.T
	node  *kubelet.Node
	state *kubelet.State
	pods  []*kubelet.Pod // that state holds
	types []string
	kinds []string
	count int
}

func drawWorld(t *rapid.T) *world {
	w := &world{T: t}
	w.node = w.drawNode()
	w.state = w.node.Empty()
	for range rapid.IntRange(0, 8).Draw(t, "steps") {
		w.step()
	}
	return w
}

func (w *world) flip(what string) bool { return rapid.Bool().Draw(w.T, what) }

func (w *world) upTo(n int, what string) int { return rapid.IntRange(0, n).Draw(w.T, what) }

func (w *world) drawMachine() *topo.Machine {
	var spec topo.Spec
	nodes := rapid.SampledFrom([]int{1, 2, 2, 2, 3, 4, 4, 8}).Draw(w.T, "nodes")
	threads := rapid.SampledFrom([]int{1, 2, 2, 2, 4}).Draw(w.T, "threads")
	perSocket := rapid.IntRange(1, nodes).Draw(w.T, "nodes per socket")
	ragged, core, id := w.flip("ragged"), 0, 0
	for i := range nodes {
		cores := 4
		if ragged {
			cores = w.upTo(5, "cores")
		}
		if i == 0 {
			cores = max(cores, 1)
		}
		for range cores {
			own := threads
			if ragged && w.flip("other core") {
				own = rapid.IntRange(1, threads).Draw(w.T, "threads of the core")
			}
			for range own {
				spec.CPUs = append(spec.CPUs, topo.CPUSpec{
					ID: id, Core: core, L3: core / 2, Socket: i / perSocket, NUMA: i,
				})
				id++
			}
			core++
		}
		spec.NUMA = append(spec.NUMA, topo.NUMASpec{ID: i})
	}
	if w.flip("distances") {
		for i := range nodes {
			for j := range nodes {
				d := 10
				if i != j {
					d = rapid.SampledFrom([]int{12, 21, 32}).Draw(w.T, "distance")
				}
				spec.NUMA[i].Distances = append(spec.NUMA[i].Distances, d)
			}
		}
	}
	return grid.Build(w, spec)
}

func (w *world) drawNode() *kubelet.Node {
	m := w.drawMachine()
	c := kubelet.Config{Model: model(rapid.IntRange(33, 37).Draw(w.T, "minor"))}
	c.Topology = kubelet.Topology{
		Policy: hint.Policy(w.upTo(3, "policy")), PodScope: w.flip("pod scope"), PreferClosest: w.flip("closest"),
	}
	c.CPU.Static = w.upTo(4, "no static CPUs") > 0
	c.CPU.Reserved.Add(0)
	for range w.upTo(2, "reserved") {
		c.CPU.Reserved.Add(w.upTo(m.NumCPUs()-1, "reserved CPU"))
	}
	switch w.upTo(7, "options") {
	case 0:
		c.CPU.FullPCPUsOnly = true
	case 1:
		c.CPU.DistributeAcrossNUMA = true
	case 2:
		c.CPU.AlignBySocket = m.NumSockets() <= m.NumNUMA()
	case 3:
		c.CPU.AlignL3 = true
	case 4:
		c.CPU.DistributeAcrossCores = true
	}
	c.Memory.Static = w.flip("static memory")
	var inv kubelet.Inventory
	w.types = []string{"memory"}
	if w.flip("hugepages") {
		w.types = []string{"hugepages-2Mi", "memory"}
	}
	for range m.NumNUMA() {
		z := map[string]int64{}
		for _, name := range w.types {
			z[name] = int64(rapid.SampledFrom([]int{0, 6, 10, 10, 10}).Draw(w.T, name))
		}
		inv.Zones = append(inv.Zones, z)
	}
	all := int(topo.FirstNodes(m.NumNUMA()))
	for _, name := range []string{"example.com/gpu", "example.com/nic"}[:w.upTo(2, "kinds")] {
		w.kinds = append(w.kinds, name)
		for range w.upTo(4, "sets") {
			nodes := topo.NodeSet(w.upTo(all, "device nodes"))
			if w.flip("on one node") {
				nodes = 1 << w.upTo(m.NumNUMA()-1, "device node")
			}
			registered := w.upTo(3, "registered")
			inv.Devices = append(inv.Devices, kubelet.DeviceSet{
				Resource: name, Nodes: nodes, Registered: registered,
				Healthy: registered - w.upTo(registered, "broken")/2,
			})
		}
	}
	n, reason := kubelet.NewNode(m, c, inv)
	if !reason.OK() {
		w.Fatalf("NewNode: %+v", reason)
	}
	return n
}

func (w *world) drawPod() *kubelet.Pod {
	w.count++
	p := &kubelet.Pod{UID: fmt.Sprintf("pod-%02d", w.count), Guaranteed: w.upTo(5, "burstable") > 0}
	p.PodLevel = w.upTo(9, "pod level") == 0
	for i := range w.upTo(2, "init containers") {
		c := w.drawContainer(fmt.Sprintf("i%d", i))
		c.Role = kubelet.Init
		if w.flip("sidecar") {
			c.Role = kubelet.Sidecar
		}
		p.Containers = append(p.Containers, c)
	}
	for i := range 1 + w.upTo(2, "more app containers")/2 {
		p.Containers = append(p.Containers, w.drawContainer(fmt.Sprintf("c%d", i)))
	}
	return p
}

func (w *world) drawContainer(name string) kubelet.Container {
	c := kubelet.Container{Name: name, CPUs: rapid.SampledFrom([]int{0, 1, 2, 2, 4, 4, 6, 9, 16}).Draw(w.T, "CPUs")}
	for _, name := range w.types {
		if name == "memory" || w.upTo(3, "no hugepages") == 0 {
			n := rapid.SampledFrom([]int64{1, 2, 3, 5, 9, 15}).Draw(w.T, name)
			c.Memory = append(c.Memory, kubelet.Amount{Name: name, N: n})
		}
	}
	for _, kind := range append([]string{"example.com/absent"}, w.kinds...) {
		if w.upTo(2, "no device") == 0 {
			c.Devices = append(c.Devices, kubelet.Amount{Name: kind, N: int64(w.upTo(3, kind))})
		}
	}
	return c
}

// step admits a pod, or removes one.
func (w *world) step() {
	if len(w.pods) > 0 && w.upTo(3, "remove") == 0 {
		i := w.upTo(len(w.pods)-1, "which")
		w.state = w.state.Without(w.pods[i].UID)
		w.pods = append(w.pods[:i:i], w.pods[i+1:]...)
		return
	}
	p := w.drawPod()
	if next, _, refusal := w.state.Admit(p); refusal == nil {
		w.state = next
		w.pods = append(w.pods, p)
	}
}

// rejects reports whether Admit can reject a pod with this code.
func rejects(c why.Code) bool {
	switch c {
	case why.KubeletTopologyAffinity, why.KubeletSMTAlignment, why.KubeletAdmission, why.KubeletWouldHang:
		return true
	}
	return false
}
