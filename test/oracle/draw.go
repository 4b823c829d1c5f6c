package oracle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
)

// Coverage of a run. The merge of the kubelet grows with the product of the hint lists, so most machines are small.
const (
	maxPods      = 12
	combinations = 1e5 // the most that one merge may try in a run of many states
)

// Draw returns case number index of a run. Equal arguments give equal cases.
func Draw(kubelet string, seed, index uint64) Case {
	d := &drawer{Rand: rand.New(rand.NewPCG(seed, index))}
	c := Case{Kubelet: kubelet}
	d.machine(&c.Machine)
	d.settings(&c.Machine)
	d.devices(&c.Machine)
	c.Machine.Cap, c.Machine.Trace = combinations, d.chance(5)
	d.steps(&c)
	return c
}

type drawer struct {
	*rand.Rand
	cpus, threads int // of the machine, and of its largest core
}

// chance is true in p of 100 draws.
func (d *drawer) chance(p int) bool { return d.IntN(100) < p }

// between draws from first to last.
func (d *drawer) between(first, last int) int { return first + d.IntN(last-first+1) }

// pick draws one of the choices, each as often as it is named.
func pick[T any](d *drawer, choices ...T) T { return choices[d.IntN(len(choices))] }

const (
	kib = int64(1) << 10
	mib = kib << 10
	gib = mib << 10
)

func (d *drawer) machine(m *Machine) {
	nodes := pick(d, 1, 1, 2, 2, 2, 2, 2, 2, 2, 3, 4, 4, 4, 5, 5, 6, 6, 6, 8, 10) // 45 % ≤ 2, 50 % 4 to 10
	ids := d.nodeIDs(nodes)
	m.Sockets = pick(d, 1, 1, 2, 2, nodes, nodes)
	if nodes%m.Sockets != 0 && m.Sockets%nodes != 0 {
		m.Sockets = 1
	}
	cores := d.cores(m, nodes)
	d.number(cores)
	d.renumberL3(cores)
	distances := d.distances(nodes)
	uneven := d.chance(30)
	base := pick(d, 1, 2, 4, 16)
	sizes := pick(d, nil, nil, nil, []int64{2048}, []int64{1048576}, []int64{2048, 1048576})
	for i := range nodes {
		n := NUMA{ID: ids[i], Distances: distances[i], Cores: cores[i], Memory: int64(base) * gib}
		if uneven {
			n.Memory = int64(d.between(0, 2*base)) * gib / 2
		}
		for _, size := range sizes {
			if n.Hugepages == nil {
				n.Hugepages = map[int64]int64{}
			}
			n.Hugepages[size] = int64(d.IntN(3)) * n.Memory / 8 / (size * kib)
		}
		m.NUMA = append(m.NUMA, n)
	}
}

func (d *drawer) nodeIDs(nodes int) []int {
	ids := make([]int, nodes)
	next := 0
	sparse := d.chance(12)
	for i := range ids {
		if sparse {
			next += d.IntN(3)
		}
		ids[i] = next
		next++
	}
	if sparse && d.chance(10) {
		ids[nodes-1] = pick(d, 62, 63)
	}
	return ids
}

// cores draws the cores of every node, without thread numbers: Threads has the right length.
func (d *drawer) cores(m *Machine, nodes int) [][]Core {
	most := map[int]int{1: 16, 2: 10, 3: 6, 4: 5, 5: 4, 6: 4, 8: 4, 10: 3}[nodes]
	count := d.between(1, most)
	uneven, cpuless := d.chance(25), nodes > 1 && d.chance(12)
	d.threads = pick(d, 1, 1, 2, 2, 2, 2, 2, 2, 2, 4)
	hybrid := d.threads > 1 && d.chance(12)
	groups := pick(d, 1, 1, 2, 2, 4) // L3 groups of a node
	l3 := pick(d, "unknown", "node", "node", "node", "socket", "uneven")
	out := make([][]Core, nodes)
	core, first := 0, 0
	for i := range out {
		n := count
		if uneven {
			n = d.between(1, most)
		}
		if cpuless && i > 0 && d.chance(40) {
			n = 0
		}
		for c := range n {
			k := Core{ID: core, Socket: i * m.Sockets / nodes, Threads: make([]int, d.threads)}
			if m.Sockets > nodes {
				k.Socket += c * (m.Sockets / nodes) / n
			}
			if hybrid && d.chance(50) {
				k.Threads = k.Threads[:1]
			}
			switch l3 {
			case "unknown":
				k.L3 = -1
			case "socket":
				k.L3 = k.Socket
			case "uneven":
				k.L3 = first + d.IntN(groups)
			default:
				k.L3 = first + c*groups/n
			}
			out[i] = append(out[i], k)
			d.cpus += len(k.Threads)
			core++
		}
		first += groups
	}
	// A socket without CPUs does not exist for the kubelet.
	seen := map[int]bool{}
	for _, list := range out {
		for _, k := range list {
			seen[k.Socket] = true
		}
	}
	m.Sockets = len(seen)
	return out
}

// number gives the threads their CPU ids.
func (d *drawer) number(nodes [][]Core) {
	var all []*Core
	for i := range nodes {
		for j := range nodes[i] {
			all = append(all, &nodes[i][j])
		}
	}
	switch pick(d, "siblings far", "siblings far", "siblings adjacent", "round robin", "shuffled") {
	case "siblings adjacent":
		next := 0
		for _, k := range all {
			for t := range k.Threads {
				k.Threads[t] = next
				next++
			}
		}
		return
	case "round robin":
		slices.SortStableFunc(all, func(a, b *Core) int { return a.ID%2 - b.ID%2 })
	case "shuffled":
		d.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	next, gap := 0, 0
	if d.chance(5) {
		gap = 1 // CPUs that are offline
	}
	for t := range d.threads {
		for _, k := range all {
			if t < len(k.Threads) {
				k.Threads[t] = next
				next += 1 + d.IntN(gap+1)
			}
		}
	}
}

// renumberL3 gives the L3 groups ids: ascending in the order of their lowest CPUs, as kernels do on most machines, or
// any, as on those that derive them from APIC ids.
func (d *drawer) renumberL3(nodes [][]Core) {
	lowest := map[int]int{}
	for _, list := range nodes {
		for _, k := range list {
			first := slices.Min(k.Threads)
			if old, ok := lowest[k.L3]; k.L3 >= 0 && (!ok || first < old) {
				lowest[k.L3] = first
			}
		}
	}
	order := slices.SortedFunc(maps.Keys(lowest), func(a, b int) int { return lowest[a] - lowest[b] })
	if d.chance(25) {
		d.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	step := pick(d, 1, 1, 1, 2)
	for i := range nodes {
		for j := range nodes[i] {
			if k := &nodes[i][j]; k.L3 >= 0 {
				k.L3 = step * slices.Index(order, k.L3)
			}
		}
	}
}

func (d *drawer) distances(nodes int) [][]uint64 {
	out := make([][]uint64, nodes)
	for i := range out {
		out[i] = make([]uint64, nodes)
	}
	flat := d.chance(30)
	for i := range out {
		out[i][i] = 10
		for j := range i {
			v := uint64(20)
			if !flat {
				v = pick[uint64](d, 11, 12, 16, 17, 21, 32)
			}
			out[i][j], out[j][i] = v, v
			if d.chance(2) {
				out[i][j]++ // a firmware that contradicts itself
			}
		}
	}
	return out
}

func (d *drawer) settings(m *Machine) {
	m.TopologyPolicy = pick(d, "none", "best-effort", "best-effort", "best-effort", "restricted", "restricted",
		"restricted", "single-numa-node", "single-numa-node", "single-numa-node")
	if len(m.NUMA) >= largeMachine && d.chance(70) {
		m.TopologyPolicy = pick(d, "best-effort", "restricted") // single-numa-node looks at few combinations
	}
	m.TopologyScope = pick(d, "container", "container", "pod")
	dense := m.NUMA[len(m.NUMA)-1].ID == len(m.NUMA)-1
	m.TopologyOptions = map[string]string{}
	if dense && d.chance(30) {
		m.TopologyOptions["prefer-closest-numa-nodes"] = "true"
	}
	if nodes := len(m.NUMA); d.chance(5) || nodes > 8 {
		m.TopologyOptions["max-allowable-numa-nodes"] = pick(d, "10", "12")
	}
	d.cpuSettings(m)
	m.MemoryPolicy = "None"
	var total int64
	for _, n := range m.NUMA {
		total += free(n)
	}
	if total == 0 || d.chance(30) {
		return
	}
	m.MemoryPolicy = "Static"
	d.reserveMemory(m)
}

// free is the memory of a node that is not in huge pages.
func free(n NUMA) int64 {
	bytes := n.Memory
	for size, pages := range n.Hugepages {
		bytes -= size * kib * pages
	}
	return bytes
}

func (d *drawer) reserveMemory(m *Machine) {
	reserved := false
	for i := range m.NUMA {
		n := &m.NUMA[i]
		if most := free(*n); most > 0 && d.chance(60) {
			n.Reserved = map[string]int64{"memory": min(most, int64(d.between(1, 8))*128*mib)}
			reserved = true
		}
	}
	if !reserved { // the kubelet wants some
		i := slices.IndexFunc(m.NUMA, func(n NUMA) bool { return free(n) > 0 })
		m.NUMA[i].Reserved = map[string]int64{"memory": min(free(m.NUMA[i]), 256*mib)}
	}
	for i := range m.NUMA {
		for _, size := range sizesOf(m) {
			if pages := m.NUMA[i].Hugepages[size]; pages > 0 && d.chance(20) {
				if m.NUMA[i].Reserved == nil {
					m.NUMA[i].Reserved = map[string]int64{}
				}
				m.NUMA[i].Reserved[hugepages(size)] = size * kib * d.Int64N(pages+1)
			}
		}
	}
}

// sizesOf are the sizes of huge pages in KiB; every node has all of them.
func sizesOf(m *Machine) []int64 {
	var sizes []int64
	for size := range m.NUMA[0].Hugepages {
		sizes = append(sizes, size)
	}
	slices.Sort(sizes)
	return sizes
}

// hugepages is the resource of a page size in KiB.
func hugepages(size int64) string {
	if size%(1<<20) == 0 {
		return fmt.Sprintf("hugepages-%dGi", size>>20)
	}
	return fmt.Sprintf("hugepages-%dMi", size>>10)
}

func (d *drawer) cpuSettings(m *Machine) {
	m.CPUPolicy = "static"
	if d.chance(8) || d.cpus < 2 {
		m.CPUPolicy = "none"
		return
	}
	m.CPUOptions = map[string]string{}
	set := func(name string, p int) bool {
		if !d.chance(p) {
			return false
		}
		m.CPUOptions[name] = "true"
		return true
	}
	full := set("full-pcpus-only", 30)
	l3 := set("prefer-align-cpus-by-uncorecache", 30)
	spread := !l3 && set("distribute-cpus-across-numa", 35)
	if !full && !l3 && !spread {
		set("distribute-cpus-across-cores", 30)
	}
	set("strict-cpu-reservation", 25)
	withCPUs := 0
	for _, n := range m.NUMA {
		if len(n.Cores) > 0 {
			withCPUs++
		}
	}
	if m.TopologyPolicy != "single-numa-node" && m.Sockets <= withCPUs {
		set("align-by-socket", 20)
	}
	most := max(1, d.cpus/4)
	if d.chance(50) {
		m.ReservedCPU = int64(d.between(1, 1000*min(4, most)))
		return
	}
	var ids []int
	for _, n := range m.NUMA {
		for _, k := range n.Cores {
			ids = append(ids, k.Threads...)
		}
	}
	d.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	ids = ids[:d.between(1, min(6, most))]
	if full && spread && d.chance(70) {
		ids = d.oneOfEach(m)
	}
	slices.Sort(ids)
	for i, id := range ids {
		if i > 0 {
			m.ReservedIDs += ","
		}
		m.ReservedIDs += strconv.Itoa(id)
	}
}

// oneOfEach draws one thread of every node: free counts are odd then, which distributed allocation of whole cores
// cannot distribute.
func (d *drawer) oneOfEach(m *Machine) []int {
	var ids []int
	for _, n := range m.NUMA {
		if len(n.Cores) > 1 {
			ids = append(ids, n.Cores[d.IntN(len(n.Cores))].Threads[0])
		}
	}
	if len(ids) == 0 {
		ids = append(ids, m.NUMA[0].Cores[0].Threads[0])
	}
	return ids
}

var resources = []string{"nvidia.com/gpu", "example.com/nic", "example.com/fpga"}

func (d *drawer) devices(m *Machine) {
	m.Stubborn = d.chance(15)
	kinds := pick(d, 0, 0, 1, 1, 2, 3)
	if len(m.NUMA) >= largeMachine { // merges are hard where many resources meet many nodes
		kinds = pick(d, 0, 1, 2, 2, 2, 3)
	}
	for _, resource := range resources[:kinds] {
		hosts := d.between(1, len(m.NUMA))
		multi, detached, sick := d.chance(20), d.chance(15), d.chance(25)
		next := 0
		for _, h := range d.Perm(len(m.NUMA))[:hosts] {
			for range d.between(1, 4) {
				v := Device{
					Resource: resource, ID: fmt.Sprintf("%c%d", resource[len(resource)-1], next),
					Nodes: []int{m.NUMA[h].ID},
				}
				next++
				if other := m.NUMA[d.IntN(len(m.NUMA))].ID; multi && d.chance(50) && other != v.Nodes[0] {
					v.Nodes = append(v.Nodes, other)
					slices.Sort(v.Nodes)
				}
				if detached && d.chance(40) {
					v.Nodes = nil
				}
				v.Unhealthy = sick && d.chance(35)
				m.Devices = append(m.Devices, v)
			}
		}
	}
}

func (d *drawer) steps(c *Case) {
	pods := d.between(1, maxPods)
	for i := range pods {
		c.Steps = append(c.Steps, Step{Admit: d.pod(&c.Machine, fmt.Sprintf("p%d", i))})
		if d.chance(35) {
			c.Steps = append(c.Steps, Step{Delete: fmt.Sprintf("p%d", d.IntN(i+1))})
		}
		if d.chance(2) {
			c.Steps = append(c.Steps, Step{Restart: true})
		}
	}
}

func (d *drawer) pod(m *Machine, uid string) *Pod {
	p := &Pod{UID: uid, Guaranteed: d.chance(90), PodLevel: d.chance(3)}
	add := func(role string, n int) {
		for range n {
			k := Container{Name: fmt.Sprintf("%s%d", role, len(p.Containers)), Role: role}
			d.ask(m, p, &k)
			p.Containers = append(p.Containers, k)
		}
	}
	if d.chance(25) {
		for range d.between(1, 3) {
			add(pick(d, RoleInit, RoleInit, RoleSidecar), 1)
		}
	}
	add(RoleApp, pick(d, 1, 1, 1, 1, 2, 2, 3))
	return p
}

func (d *drawer) ask(m *Machine, p *Pod, k *Container) {
	perNode := max(1, d.cpus/len(m.NUMA))
	if p.Guaranteed || d.chance(70) {
		cpus := pick(d, 1, 1, 2, 2, 3, d.threads, d.threads, d.threads*2, d.between(1, perNode), d.between(1, perNode),
			perNode/2, perNode/2, perNode, d.between(1, d.cpus))
		if m.CPUOptions["full-pcpus-only"] != "" && m.CPUOptions["distribute-cpus-across-numa"] != "" &&
			d.chance(10*len(m.NUMA)) {
			cpus = (d.cpus/d.threads - d.between(len(m.NUMA), 2*len(m.NUMA))) * d.threads // close to all
		}
		k.CPU = int64(max(1, cpus)) * 1000
		if d.chance(10) {
			k.CPU = pick[int64](d, 100, 500, 1500, 2750)
		}
		k.Memory = map[string]int64{"memory": d.bytes(m)}
	}
	for _, size := range sizesOf(m) {
		if d.chance(20) && k.CPU > 0 {
			k.Memory[hugepages(size)] = d.pages(m, size) * size * kib
			if d.chance(10) {
				k.Memory[hugepages(size)] = 0
			}
		}
	}
	if k.CPU > 0 && d.IntN(300) == 0 {
		k.Memory["hugepages-32Mi"] = 0 // a size that no machine has
	}
	seen, asked := map[string]bool{}, 30
	if len(m.NUMA) >= largeMachine {
		asked = 80
	}
	for _, v := range m.Devices {
		if !seen[v.Resource] && d.chance(asked) {
			if k.Devices == nil {
				k.Devices = map[string]int64{}
			}
			k.Devices[v.Resource] = int64(pick(d, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 5, 5, 0))
		}
		seen[v.Resource] = true
	}
	if d.chance(2) {
		k.Devices = map[string]int64{"example.com/absent": 1}
	}
}

// bytes draws a size of memory: mostly a part of a node, now and then more than one has.
func (d *drawer) bytes(m *Machine) int64 {
	n := m.NUMA[d.IntN(len(m.NUMA))].Memory
	switch d.IntN(20) {
	case 0:
		return max(mib, n)
	case 1:
		return max(mib, n+d.Int64N(n+1))
	case 2, 3, 4:
		return max(mib, n/2+d.Int64N(n/4+1))
	default:
		return mib + d.Int64N(n/6+1)
	}
}

func (d *drawer) pages(m *Machine, size int64) int64 {
	most := int64(0)
	for _, n := range m.NUMA {
		most = max(most, n.Hugepages[size])
	}
	return max(1, d.Int64N(most+most/2+2)/pick[int64](d, 1, 2, 4))
}
