package convert

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// maxKnown bounds the texts that Known keeps; far more kinds of machine than a cluster has.
const maxKnown = 512

// Known reads facts and remembers the machines: nodes of one kind publish one text, and a node's text stays while its
// pods come and go. Reading it is nearly all that Facts costs. The machines and kubelets it returns are shared, one
// value for equal ones.
//
// The zero value is ready. It is not safe for concurrent use: the adapter that owns it holds its lock.
type Known struct {
	byText map[topologyText]*topo.Machine
	pool   topo.Pool
	// byKubelet finds the kubelet that a machine with these settings and this inventory has.
	byKubelet map[kubeletText]known
	nodes     kubelet.Pool
}

// kubeletText is all that a kubelet is made of.
type kubeletText struct {
	machine   *topo.Machine
	config    kubelet.Config
	inventory string
}

type known struct {
	node   *kubelet.Node
	reason why.Reason
}

// topologyText is all that a machine is read from.
type topologyText struct {
	cpus, arch, zones string
}

// Facts is the package's Facts.
func (k *Known) Facts(node *corev1.Node, nrt *v1alpha2.NodeResourceTopology, args Args) (ledger.Facts, []Problem) {
	return k.Read(Sources{Node: node, Topology: nrt}, args)
}

// Read is Facts of all sources.
func (k *Known) Read(s Sources, args Args) (ledger.Facts, []Problem) {
	return facts(s, args, k.machine, k.kubelet)
}

func (k *Known) kubelet(m *topo.Machine, c kubelet.Config, inv kubelet.Inventory) (*kubelet.Node, why.Reason) {
	key := kubeletText{m, c, inventoryText(&inv)}
	if n, ok := k.byKubelet[key]; ok {
		return n.node, n.reason
	}
	if k.byKubelet == nil || len(k.byKubelet) >= maxKnown {
		k.byKubelet, k.nodes = map[kubeletText]known{}, kubelet.Pool{}
	}
	var n known
	if n.node, n.reason = kubelet.NewNode(m, c, inv); n.node != nil {
		n.node = k.nodes.Intern(n.node)
	}
	k.byKubelet[key] = n
	return n.node, n.reason
}

// inventoryText writes all that NewNode reads of an inventory.
func inventoryText(inv *kubelet.Inventory) string {
	var b strings.Builder
	number := func(n int64) { b.WriteString(strconv.FormatInt(n, 10)); b.WriteByte(' ') }
	for _, z := range inv.Zones {
		for _, kind := range slices.Sorted(maps.Keys(z.Allocatable)) {
			b.WriteString(strconv.Quote(kind))
			number(z.Allocatable[kind])
		}
		b.WriteByte('\n')
	}
	for _, d := range inv.Devices {
		b.WriteString(strconv.Quote(d.Resource))
		b.WriteString(strconv.FormatUint(uint64(d.Nodes), 16))
		b.WriteByte(' ')
		number(int64(d.Registered))
		number(int64(d.Healthy))
	}
	return b.String()
}

func (k *Known) machine(text, arch string, zones []v1alpha2.Zone) (*topo.Machine, error) {
	key := topologyText{cpus: text, arch: arch, zones: zonesText(zones)}
	if m, ok := k.byText[key]; ok {
		return m, nil
	}
	m, err := readMachine(text, arch, zones)
	if err != nil {
		return nil, err // read again next time: errors are rare and name their place
	}
	if k.byText == nil || len(k.byText) >= maxKnown {
		k.byText = map[topologyText]*topo.Machine{}
	}
	m = k.pool.Intern(m)
	k.byText[key] = m
	return m, nil
}

// zonesText writes what numaSpecs reads of zones. Names are quoted, so that lists which differ never read alike.
func zonesText(zones []v1alpha2.Zone) string {
	var b strings.Builder
	for _, z := range zones {
		b.WriteString(strconv.Quote(z.Type))
		b.WriteString(strconv.Quote(z.Name))
		for _, c := range z.Costs {
			b.WriteString(strconv.Quote(c.Name))
			b.WriteString(strconv.FormatInt(c.Value, 10))
		}
		b.WriteByte('\n')
	}
	return b.String()
}
