package convert

import (
	"fmt"
	"sync"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/kubelet"
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
	pool   topo.Pool[*topo.Machine]
	// byKubelet finds the kubelet that a machine with these settings and this inventory has.
	byKubelet map[kubeletText]known
	nodes     topo.Pool[*kubelet.Node]
	// classes are the kinds of server by their devices.
	classes device.Classes
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

func (k *Known) machine(text, arch string, zones []topo.NUMASpec) (*topo.Machine, error) {
	key := topologyText{cpus: text, arch: arch, zones: fmt.Sprint(zones)}
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
