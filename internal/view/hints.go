package view

import (
	"slices"
	"strings"

	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Hints describes how the NUMA nodes of one machine satisfy a pod: by the kubelet's hints and their merge, and, where
// Tenon chooses, by its own enumeration. NUMA nodes are the kernel's ids.
type Hints struct {
	Node string `json:"node"`
	// Mode is Own, Follow or Blind: whose choice of CPUs holds on the node.
	Mode string `json:"mode"`
	// Kubelet is absent where the kubelet's managers are off or its answers cannot be predicted.
	Kubelet *KubeletHints `json:"kubelet,omitempty"`
	// Alignment is absent where Tenon chooses no NUMA nodes for the pod.
	Alignment *Alignment `json:"alignment,omitempty"`
	Notes     []string   `json:"notes,omitempty"`
}

// KubeletHints is one admission by the kubelet, as it is predicted.
type KubeletHints struct {
	// Release is the kubelet's minor version; Policy and Scope are its Topology Manager's.
	Release string `json:"release"`
	Policy  string `json:"policy"`
	Scope   string `json:"scope"`
	// Assumed is what the prediction takes for granted, a phrase each: a release, an option or a feature gate that the
	// model does not know, settings that only a foreign exporter reports.
	Assumed []string   `json:"assumed,omitempty"`
	Steps   []HintStep `json:"steps"`
	// Status is status.reason of the pod that the kubelet would reject; absent when it would run it. Refusal says why.
	Status    string    `json:"status,omitempty"`
	Container string    `json:"container,omitempty"`
	Refusal   *why.Wire `json:"refusal,omitempty"`
}

// HintStep is one merge: of the whole pod, or of one container.
type HintStep struct {
	// Container is "" for the whole pod.
	Container string         `json:"container,omitempty"`
	Resources []HintResource `json:"resources,omitempty"`
	// Merged is the merged hint; absent where no hints are made.
	Merged *MergedHint `json:"merged,omitempty"`
	// Cause names what kept the merge from a preferred answer, Text says it in a line.
	Cause string `json:"cause,omitempty"`
	Text  string `json:"text,omitempty"`
	// Seconds is about how long the kubelet takes for the merge.
	Seconds float64 `json:"seconds,omitempty"`
	// Given is what the container gets; absent when it gets nothing.
	Given *Given `json:"given,omitempty"`
}

// HintResource is what one provider answers for one resource.
type HintResource struct {
	Resource string `json:"resource"`
	// Needs is the least number of NUMA nodes that the resource prefers, 0 when it prefers none.
	Needs int `json:"needs"`
	// Any is true if the resource accepts any NUMA nodes.
	Any bool `json:"any,omitempty"`
	// Hints are its masks, the preferred ones first, then by size. At most maxHints are listed; More counts the others.
	Hints []Hint `json:"hints"`
	More  int    `json:"more,omitempty"`
}

// Hint is one mask of NUMA nodes.
type Hint struct {
	NUMA      []int `json:"numa"`
	Preferred bool  `json:"preferred"`
}

// MergedHint is what a merge comes to; no NUMA node = any.
type MergedHint struct {
	Hint
	Admitted bool `json:"admitted"`
	// Certainty is exact or uncertain.
	Certainty string `json:"certainty"`
}

// Given is what a container has or gets.
type Given struct {
	CPUs    string       `json:"cpus,omitempty"`
	NUMA    []int        `json:"numa"`
	Memory  []GivenBlock `json:"memory,omitempty"`
	Devices []GivenBlock `json:"devices,omitempty"`
}

// GivenBlock is an amount of memory in bytes or of devices, from NUMA nodes.
type GivenBlock struct {
	Resource string `json:"resource"`
	Amount   int64  `json:"amount"`
	NUMA     []int  `json:"numa"`
}

// Alignment is Tenon's own enumeration.
type Alignment struct {
	// Policy is the tighter of the node's and the pod's, Allows the number of NUMA nodes that it permits.
	Policy string         `json:"policy"`
	Allows int            `json:"allows"`
	NUMA   []int          `json:"numa"`
	Rows   []AlignmentRow `json:"rows"`
	// Chosen are the NUMA nodes that the pod gets, none with a Refusal.
	Chosen  []int     `json:"chosen"`
	Refusal *why.Wire `json:"refusal,omitempty"`
}

// AlignmentRow is one resource: what is asked, and what each of NUMA can give.
type AlignmentRow struct {
	Resource string  `json:"resource"`
	Need     int64   `json:"need"`
	Have     []int64 `json:"have"`
	// Needs is the number of NUMA nodes that the request needs on an empty machine; 0 where that plays no part.
	Needs int `json:"needs,omitempty"`
}

// maxHints bounds the masks that one resource lists: 8 NUMA nodes have 255.
const maxHints = 255

// HintsOf explains the pod of r on the node of v. A pod that holds the node already is taken off first: the answer is
// what would be decided now. r is nil for a pod whose request cannot be read; detail then says why.
func HintsOf(node string, v *ledger.View, r *place.Request, detail string) Hints {
	out := Hints{Node: node}
	if v == nil {
		out.Notes = append(out.Notes, "nothing is known of node "+node)
		return out
	}
	f := v.Facts()
	out.Mode = f.Mode.String()
	if r == nil {
		out.Notes = append(out.Notes, detail)
		return out
	}
	if _, held := v.Entry(r.UID); held {
		v = v.Without(r.UID)
		out.Notes = append(out.Notes, "the pod holds the node: this is what would be decided without it")
	}
	m := v.Machine()
	if m == nil {
		out.Notes = append(out.Notes, (&why.Finding{Reason: f.Fault, Object: node}).Phrase())
		return out
	}
	if f.Imported {
		out.Notes = append(out.Notes,
			"only Volcano's exporter describes this node, which exports no time stamp: the answer may be stale")
	}
	out.Kubelet = kubeletHints(v, r, node)
	if out.Kubelet == nil {
		out.Notes = append(out.Notes, unpredicted(f, r))
	}
	if a, ok := place.Align(v, r); ok {
		out.Alignment = alignmentOf(m, &a, node)
	} else if reason := place.Fits(v, r); reason.Code == why.PoolNotConfined {
		out.Notes = append(out.Notes, (&why.Finding{Reason: reason, Object: node}).Phrase())
	}
	return out
}

func unpredicted(f *ledger.Facts, r *place.Request) string {
	switch {
	case !f.Model.Fault.OK():
		return "the kubelet cannot run such pods: " + (&why.Finding{Reason: f.Model.Fault}).Phrase()
	case f.Mode == ledger.Blind:
		return "the kubelet is not asked on this node (mode Blind)"
	case !f.Model.Predicts() && len(f.Model.Assumed) > 0:
		return "the kubelet's answers are not predicted: " + strings.Join(f.Model.Assumed, "; ")
	case !f.Model.Predicts():
		return "the kubelet makes no hints here: its CPU and memory managers and its topology policy are none, or " +
			"its settings are unknown"
	case r.Kubelet == nil || !f.Model.Concerns(r.Kubelet):
		return "the kubelet allocates nothing exclusively to this pod, so it creates no hints"
	}
	return ""
}

func kubeletHints(v *ledger.View, r *place.Request, node string) *KubeletHints {
	model, state := &v.Facts().Model, v.Kubelet()
	if state == nil || !model.Concerns(r.Kubelet) {
		return nil
	}
	m := v.Machine()
	topology := state.Node().Config().Topology
	out := &KubeletHints{
		Release: model.Release(), Policy: topology.Policy.String(), Scope: "container",
		Assumed: model.Assumed, Steps: []HintStep{},
	}
	if topology.PodScope {
		out.Scope = "pod"
	}
	e := state.Explain(r.Kubelet)
	for i := range e.Steps {
		out.Steps = append(out.Steps, stepOf(m, &e.Steps[i]))
	}
	if e.Refusal != nil {
		out.Status, out.Container, out.Refusal = e.Refusal.Status, e.Refusal.Container, wireOf(e.Refusal.Reason, node)
	}
	return out
}

func wireOf(r why.Reason, node string) *why.Wire {
	finding := why.Finding{Reason: r, Plugin: "NodeNUMAResource", Phase: why.Filter, Object: node}
	for _, o := range why.Obstacles([]why.Finding{finding}) {
		w := o.Wire()
		return &w
	}
	return nil
}

func stepOf(m *topo.Machine, s *kubelet.Step) HintStep {
	out := HintStep{Container: s.Container, Seconds: s.Cost.Seconds()}
	for _, named := range s.Lists {
		out.Resources = append(out.Resources, resourceOf(m, named, s.Table.Lines))
	}
	if s.Lists != nil {
		answer := s.Table.Answer
		out.Merged = &MergedHint{
			Hint:     Hint{NUMA: numaIDs(m, answer.Hint.Mask), Preferred: answer.Hint.Preferred},
			Admitted: answer.Admitted, Certainty: "exact",
		}
		if s.Uncertain {
			out.Merged.Certainty = "uncertain"
		}
		out.Cause, out.Text = s.Table.Cause.String(), s.Table.String()
	}
	if s.Given != nil {
		out.Given = givenOf(m, s.Given)
	}
	return out
}

func resourceOf(m *topo.Machine, named hint.Named, lines []hint.Line) HintResource {
	out := HintResource{Resource: named.Resource, Hints: []Hint{}}
	for _, l := range lines {
		if l.Resource == named.Resource {
			out.Needs, out.Any = l.Least, !l.Care
		}
	}
	list := slices.Clone(named.List)
	slices.SortStableFunc(list, func(a, b hint.Hint) int {
		switch {
		case a.Preferred == b.Preferred:
			return a.Mask.Len() - b.Mask.Len()
		case a.Preferred:
			return -1
		}
		return 1
	})
	for i, h := range list {
		if h.Mask == 0 {
			continue
		}
		if len(out.Hints) == maxHints {
			out.More = len(list) - i
			break
		}
		out.Hints = append(out.Hints, Hint{NUMA: numaIDs(m, h.Mask), Preferred: h.Preferred})
	}
	return out
}

func givenOf(m *topo.Machine, g *kubelet.Given) *Given {
	out := &Given{CPUs: m.FormatList(g.CPUs), NUMA: numaIDs(m, m.NodesOf(&g.CPUs))}
	for _, b := range g.Memory {
		out.Memory = append(out.Memory, GivenBlock{b.Type, b.Bytes, numaIDs(m, b.Nodes)})
	}
	for _, d := range g.Devices {
		out.Devices = append(out.Devices, GivenBlock{d.Resource, int64(d.Count), numaIDs(m, d.Nodes)})
	}
	return out
}

// numaIDs are the kernel's ids of NUMA nodes; [] for none.
func numaIDs(m *topo.Machine, nodes topo.NodeSet) []int { return append([]int{}, m.NodeIDs(nodes)...) }

func alignmentOf(m *topo.Machine, a *place.Alignment, node string) *Alignment {
	out := &Alignment{
		Policy: a.Policy.Label(), Allows: a.Spread, NUMA: numaIDs(m, m.NodesWithCPUs()), Rows: []AlignmentRow{},
		Chosen: numaIDs(m, a.Nodes),
	}
	for _, r := range a.Rows {
		out.Rows = append(out.Rows, AlignmentRow{Resource: r.Resource, Need: r.Need, Have: r.Have, Needs: r.Least})
	}
	if !a.Reason.OK() {
		out.Refusal = wireOf(a.Reason, node)
	}
	return out
}
