package cli

import (
	"cmp"

	"github.com/tenon-project/tenon/api/annotation"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/ledger"
)

// onlyVolcano is Assumed of a node that only Volcano's exporter describes.
const onlyVolcano = "only Volcano's exporter describes this node; the age of its data is not known, so it may be " +
	"stale. " +
	"Options of the kubelet, its scope, its memory manager and the ids of its reserved CPUs are assumed"

// imported sets the fields that a Numatopology reports and no other source does.
func (o *machineView) imported(n *nodeinfo.Numatopology, f *ledger.Facts) {
	from := origin{Source: fromNuma}
	o.Mode.Mode, o.Mode.From = f.Mode.String(), origin{Source: fromAssumption}
	k := &o.Kubelet
	k.Assumed = onlyVolcano
	if k.CPU.From.Source == fromAssumption {
		k.CPU = managerView{
			Policy: cmp.Or(n.Spec.Policies[nodeinfo.CPUManagerPolicy], annotation.KubeletPolicyNone),
			From:   from,
		}
		if f.Machine != nil {
			k.CPU.Reserved = f.Machine.FormatList(f.Kubelet.Reserved)
		}
	}
	if k.Topology.From.Source == fromAssumption {
		k.Topology.Policy, k.Topology.From = cmp.Or(n.Spec.Policies[nodeinfo.TopologyManagerPolicy],
			annotation.KubeletTopologyNone), from
	}
}

// holderOf names the pod of a pin: exporters tell its UID alone, or its name alone.
func holderOf(v *ledger.View, pin ledger.Pin) (namespace, name string) {
	if e, known := v.Entry(pin.UID); known {
		return e.Namespace, e.Name
	}
	if pin.Name == "" {
		return "", pin.UID
	}
	return pin.Namespace, pin.Name
}
