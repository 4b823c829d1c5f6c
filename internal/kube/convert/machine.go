package convert

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Machine builds the machine that a CPU topology describes. It refuses what contradicts itself and machines on which
// CPU sets cannot be allocated: those with more than topo.MaxNodes NUMA nodes with CPUs. zones is what a
// NodeResourceTopology knows of its shape: distances, and NUMA nodes without CPUs. Amounts of memory are not part of
// it: nodes that differ by a few pages share one machine.
func Machine(d annotation.CPUTopologyDetail, arch string, zones []topo.NUMASpec) (*topo.Machine, error) {
	spec := topo.Spec{Arch: arch, CPUs: make([]topo.CPUSpec, 0, len(d.Detail)), NUMA: zones}
	for _, c := range d.Detail {
		l3 := -1
		if c.L3 != nil {
			l3 = int(*c.L3)
		}
		spec.CPUs = append(spec.CPUs, topo.CPUSpec{
			ID: int(c.ID), Core: int(c.Core), L3: l3, Socket: int(c.Socket), NUMA: int(c.Node),
		})
	}
	m, err := topo.New(spec)
	if err != nil {
		return nil, err
	}
	if m.TooWide() {
		return nil, fmt.Errorf("machine has %d NUMA nodes with CPUs, at most %d are supported", len(m.CPUNodes()),
			topo.MaxNodes)
	}
	return m, nil
}

// Topology describes a machine's online CPUs. Cores are written as dense indices: the kernel's repeat per socket.
// Caches have the kernel's ids, after which the kubelet orders them, and none where they are not known.
func Topology(m *topo.Machine) annotation.CPUTopologyDetail {
	online := m.Online()
	d := annotation.CPUTopologyDetail{Detail: make([]annotation.CPUInfo, 0, online.Len())}
	for i := range online.All() {
		c := topo.CPU(i)
		info := annotation.CPUInfo{
			ID: int32(m.CPUID(c)), Core: int32(m.CoreOf(c)),
			Socket: int32(m.SocketID(m.SocketOf(c))), Node: int32(m.NUMAID(m.NUMAOf(c))),
		}
		if id := m.L3ID(m.L3Of(c)); id >= 0 && id <= math.MaxInt32 {
			l3 := int32(id)
			info.L3 = &l3
		}
		d.Detail = append(d.Detail, info)
	}
	return d
}

// FirstCPUs returns the n CPUs that a kubelet reserves when only an amount is configured: whole cores, lowest socket
// and lowest core first, then single threads. All online CPUs when the machine has no more than n.
func FirstCPUs(m *topo.Machine, n int) cpuset.Set {
	cores := make([]topo.Core, m.NumCores())
	for i := range cores {
		cores[i] = topo.Core(i)
	}
	slices.SortStableFunc(cores, func(a, b topo.Core) int { return cmp.Compare(m.CoreSocket(a), m.CoreSocket(b)) })
	online := m.Online()
	var taken cpuset.Set
	for _, core := range cores {
		for _, c := range m.CoreCPUs(core) {
			if taken.Len() >= n {
				return taken
			}
			if online.Has(int(c)) {
				taken.Add(int(c))
			}
		}
	}
	return taken
}

// maxKnown bounds the texts that Known keeps; far more kinds of machine than a cluster has.
const maxKnown = 512

// Known reads facts and remembers the machines: nodes of one kind publish one text, and a node's text stays while its
// pods come and go. Reading it is nearly all that Facts costs. The machines and kubelets it returns are shared, one
// value for equal ones.
//
// The zero value is ready. It is not safe for concurrent use: the adapter that owns it holds its lock.
type Known struct {
	byText map[topologyText]*topo.Machine
	pool   topo.Pool[*topo.Machine]
	// byKubelet finds the kubelet that a machine with these settings and this inventory has.
	byKubelet map[kubeletText]known
	nodes     topo.Pool[*kubelet.Node]
	// settings and managers are what texts say that equal nodes have in common.
	settings texts[annotation.Kubelet]
	managers texts[annotation.KubeletCPUManager]
	// classes are the kinds of server by their devices, servers their models.
	classes device.Classes
	servers map[serverText][]server
	// model is what is being looked for among servers, compared the devices that are being compared.
	model    model
	compared [2]devicev1alpha1.DeviceInfo
	// reader reads the facts of one node after the other; it is zero in between.
	reader factReader
	// noNode and noTopology are read in the place of absent objects. They have a name while reader reads, and no more.
	noNode     corev1.Node
	noTopology v1alpha2.NodeResourceTopology
}

// texts are values by their texts, of which nothing may be changed.
type texts[V any] map[string]V

// read returns what parse makes of a text, without its warnings. Texts that it refuses are not kept: they are rare.
func (t *texts[V]) read(text string, parse func(string) (V, []annotation.Warning, error)) (V, error) {
	value, found := (*t)[text]
	if found {
		return value, nil
	}
	value, _, err := parse(text)
	if err == nil {
		if *t == nil || len(*t) >= maxKnown {
			*t = texts[V]{}
		}
		(*t)[text] = value
	}
	return value, err
}

type kubeletText struct {
	machine   *topo.Machine
	config    kubelet.Config
	inventory string
}

type known struct {
	node   *kubelet.Node
	reason why.Reason
}

type topologyText struct {
	cpus, arch, zones string
}

func (k *Known) kubelet(m *topo.Machine, c kubelet.Config, inv kubelet.Inventory) (*kubelet.Node, why.Reason) {
	key := kubeletText{m, c, fmt.Sprintf("%#v", inv)} // quotes names, sorts maps
	if n, ok := k.byKubelet[key]; ok {
		return n.node, n.reason
	}
	if k.byKubelet == nil || len(k.byKubelet) >= maxKnown {
		k.byKubelet, k.nodes = map[kubeletText]known{}, topo.Pool[*kubelet.Node]{}
	}
	var n known
	if n.node, n.reason = kubelet.NewNode(m, c, inv); n.node != nil {
		n.node = k.nodes.Intern(n.node.WithBuffers(new(sync.Pool)))
	}
	k.byKubelet[key] = n
	return n.node, n.reason
}

// shapeText returns a text that equal shapes have in common: ids and distances of NUMA nodes.
func shapeText(zones []topo.NUMASpec) string {
	var text []byte
	for i := range zones {
		text = binary.AppendVarint(text, int64(zones[i].ID))
		text = binary.AppendUvarint(text, uint64(len(zones[i].Distances)))
		for _, d := range zones[i].Distances {
			text = binary.AppendVarint(text, int64(d))
		}
	}
	return string(text)
}

func (k *Known) machine(text, arch string, zones []topo.NUMASpec) (*topo.Machine, error) {
	key := topologyText{cpus: text, arch: arch, zones: shapeText(zones)}
	if m, ok := k.byText[key]; ok {
		return m, nil
	}
	detail, _, err := annotation.ParseCPUTopologyDetail(text)
	if err != nil {
		return nil, err
	}
	m, err := Machine(detail, arch, zones)
	if err != nil {
		return nil, err // read again next time: errors are rare and name their place
	}
	if k.byText == nil || len(k.byText) >= maxKnown {
		k.byText, k.pool = map[topologyText]*topo.Machine{}, topo.Pool[*topo.Machine]{}
	}
	m = k.pool.Intern(m)
	k.byText[key] = m
	return m, nil
}
