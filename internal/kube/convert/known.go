package convert

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// maxKnown bounds the texts that Known keeps; far more kinds of machine than a cluster has.
const maxKnown = 512

// Known reads facts and remembers the machines: nodes of one kind publish one text, and a node's text stays while its
// pods come and go. Reading it is nearly all that Facts costs. The machines it returns are shared, one value for equal
// ones.
//
// The zero value is ready. It is not safe for concurrent use: the adapter that owns it holds its lock.
type Known struct {
	byText map[topologyText]*topo.Machine
	pool   topo.Pool
}

// topologyText is all that a machine is read from.
type topologyText struct {
	cpus, arch, zones string
}

// Facts is the package's Facts.
func (k *Known) Facts(node *corev1.Node, nrt *v1alpha2.NodeResourceTopology, args Args) (ledger.Facts, []Problem) {
	return facts(node, nrt, args, k.machine)
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
