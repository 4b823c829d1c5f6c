package describe

import (
	"cmp"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// Quiet says what holds of the isolation of some CPUs of a node, and what does not; nothing where the topology cannot
// be read.
func Quiet(topology *v1alpha2.NodeResourceTopology, cpuList string) []string {
	facts, _ := convert.Facts(nil, topology, convert.DefaultArgs())
	q, _, err := annotation.ParseIsolatedCPUs(cmp.Or(topology.Annotations[annotation.IsolatedCPUsKey], "{}"))
	if facts.Machine == nil || err != nil {
		return nil
	}
	cpus, _, err := facts.Machine.ParseList(cpuList)
	if err != nil || cpus.IsEmpty() {
		return nil
	}
	quiet := convert.Quiet(facts.Machine, &q)
	return view.QuietNotes(facts.Machine, &quiet, cpus, topology.Name)
}
