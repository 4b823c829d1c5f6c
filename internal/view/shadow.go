package view

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenon-project/tenon/internal/core/comparison"
	"github.com/tenon-project/tenon/internal/core/why"
)

// ShadowPod compares where another scheduler bound a pod with what Tenon would have decided.
type ShadowPod struct {
	Pod       string             `json:"pod"` // namespace/name
	UID       string             `json:"uid"`
	Scheduler string             `json:"scheduler"`
	Outcome   comparison.Outcome `json:"outcome"`
	// BoundAt is when the pod was bound, to the second, and LagSeconds how much later it was compared. Later is the
	// number of pods that were bound in between: they were left out of the comparison.
	BoundAt    time.Time `json:"boundAt"`
	LagSeconds float64   `json:"lagSeconds"`
	Later      int       `json:"later"`
	// Feasible of Nodes nodes pass every filter of Tenon.
	Feasible int `json:"feasible"`
	Nodes    int `json:"nodes"`
	// Bound is the node where the pod is, and Tenon the one that Tenon would have chosen; absent for Nowhere.
	Bound ShadowNode  `json:"bound"`
	Tenon *ShadowNode `json:"tenon,omitempty"`
	// RootCause is why no node takes the pod, for Nowhere.
	RootCause *why.Wire `json:"rootCause,omitempty"`
	// Rejected is the reason with which the pod's kubelet has rejected it since; "" while it has not.
	Rejected string `json:"rejected,omitempty"`
}

// ShadowNode is a node for a pod, and what the pod would have there if Tenon placed it. Of a node that Tenon
// refuses, only Node, Refusals and Kubelet are there.
type ShadowNode struct {
	Node string `json:"node"`
	// Score is absent if fewer than two nodes are feasible: then none is scored.
	Score *Score `json:"score,omitempty"`
	// NUMA is the number of NUMA nodes of the CPUs that the pod has for itself, or that its kubelet gives it; 0 for a
	// pod that shares CPUs, or a node whose topology is not known.
	NUMA    int                 `json:"numaNodes,omitempty"`
	CPUSet  string              `json:"cpuset,omitempty"`
	Devices map[string][]Device `json:"devices,omitempty"`
	// Links is 100 × the PCIe or NVLink lanes between the devices, as tenon explain has it.
	Links int64 `json:"links,omitempty"`
	// Lost is how much more of the free GPUs, or of the free CPUs of NUMA nodes, is unusable for the pods that are
	// expected once the pod is there, in thousandths of one.
	Lost     int64     `json:"lost"`
	Refusals []Refusal `json:"refusals,omitempty"`
	// Kubelet is why the node's kubelet would reject the pod; absent if it would run the pod, or is not known.
	Kubelet *why.Wire `json:"kubelet,omitempty"`
}

// Worth says in words what the other decision is worth; "" where both are the same.
func (p *ShadowPod) Worth() string {
	var parts []string
	add := func(name, bound, tenon string) {
		if bound != tenon {
			parts = append(parts, fmt.Sprintf("%s %s → %s", name, bound, tenon))
		}
	}
	switch {
	case p.RootCause != nil:
		return p.RootCause.Message
	case p.Tenon == nil:
		return ""
	}
	if p.Outcome == comparison.Refused {
		for i := range p.Bound.Refusals {
			parts = append(parts, p.Bound.Refusals[i].Message)
		}
		return strings.Join(parts, "; ")
	}
	if p.Bound.Score != nil && p.Tenon.Score != nil {
		add("score", CountText(p.Bound.Score.Total), CountText(p.Tenon.Score.Total))
	}
	add("NUMA nodes", strconv.Itoa(p.Bound.NUMA), strconv.Itoa(p.Tenon.NUMA))
	add("links", strconv.FormatInt(p.Bound.Links, 10), strconv.FormatInt(p.Tenon.Links, 10))
	add("unusable", milliText(p.Bound.Lost), milliText(p.Tenon.Lost))
	return strings.Join(parts, ", ")
}

func milliText(n int64) string { return fmt.Sprintf("%+.2f", float64(n)/1000) }

// ShadowReport is what tenon shadow reports.
type ShadowReport struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Since      time.Time `json:"since"`
	Until      time.Time `json:"until"`
	// Nodes were there at the end; Topologies of them have a known CPU topology, and Inventories known devices: CPUs,
	// NUMA nodes and devices of others are not compared.
	Nodes       int `json:"nodes"`
	Topologies  int `json:"topologies"`
	Inventories int `json:"inventories"`
	// Compared counts the pods that were compared. Pods has the last ones, the Summary is about all of them.
	Compared int         `json:"compared"`
	Pods     []ShadowPod `json:"pods"`
	// Skipped counts pods that got a node and were not compared, by the reason.
	Skipped map[string]int `json:"skipped"`
	Summary ShadowSummary  `json:"summary"`
}

// ShadowSummary adds up pods.
type ShadowSummary struct {
	// Outcomes counts pods by their outcome.
	Outcomes map[comparison.Outcome]int `json:"outcomes"`
	// Refusals counts the pods on nodes that Tenon refuses, by the first code, KubeletRefusals those of them that the
	// kubelet would reject, and Rejected those that a kubelet has rejected, by its reason.
	Refusals        map[string]int `json:"refusals"`
	KubeletRefusals int            `json:"kubeletRefusals"`
	Rejected        map[string]int `json:"rejected"`
	// Both counts the pods for which both nodes are known to Tenon, and the fields below are their sums, where the pods
	// are and where Tenon would have put them.
	Both  int         `json:"both"`
	Bound ShadowTotal `json:"bound"`
	Tenon ShadowTotal `json:"tenon"`
	// LagSeconds is the longest one.
	LagSeconds float64 `json:"lagSeconds"`
}

// ShadowTotal is the sum over pods of what ShadowNode has.
type ShadowTotal struct {
	Score int64 `json:"score"`
	NUMA  int   `json:"numaNodes"`
	Links int64 `json:"links"`
	Lost  int64 `json:"lost"`
}

func (t *ShadowTotal) add(n *ShadowNode) {
	if n.Score != nil {
		t.Score += n.Score.Total
	}
	t.NUMA, t.Links, t.Lost = t.NUMA+n.NUMA, t.Links+n.Links, t.Lost+n.Lost
}

// NewShadowReport returns a report without pods.
func NewShadowReport(since time.Time) *ShadowReport {
	return &ShadowReport{
		APIVersion: "cli.tenon.sh/v1", Kind: "ShadowReport", Since: since.UTC(), Pods: []ShadowPod{},
		Skipped: map[string]int{}, Summary: ShadowSummary{
			Outcomes: map[comparison.Outcome]int{}, Refusals: map[string]int{}, Rejected: map[string]int{},
		},
	}
}

// Add adds a compared pod, and keeps the last ones, at most most of them.
func (r *ShadowReport) Add(p *ShadowPod, most int) {
	if len(r.Pods) >= most {
		r.Pods = slices.Delete(r.Pods, 0, len(r.Pods)-most+1)
	}
	r.Pods = append(r.Pods, *p)
	r.Compared++
	s := &r.Summary
	s.Outcomes[p.Outcome]++
	s.LagSeconds = max(s.LagSeconds, p.LagSeconds)
	if p.Rejected != "" {
		s.Rejected[p.Rejected]++
	}
	if len(p.Bound.Refusals) > 0 {
		s.Refusals[p.Bound.Refusals[0].Code.String()]++
	}
	if p.Bound.Kubelet != nil {
		s.KubeletRefusals++
	}
	if p.Tenon != nil && p.Outcome != comparison.Refused {
		s.Both++
		s.Bound.add(&p.Bound)
		s.Tenon.add(p.Tenon)
	}
}

// Reject notes why the kubelet of a pod has rejected it, if the pod is among the last ones.
func (r *ShadowReport) Reject(uid, reason string) {
	i := slices.IndexFunc(r.Pods, func(p ShadowPod) bool { return p.UID == uid })
	if i >= 0 && r.Pods[i].Rejected == "" {
		r.Pods[i].Rejected = reason
		r.Summary.Rejected[reason]++
	}
}

// Text is the report below the rows of its pods.
func (r *ShadowReport) Text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	s := &r.Summary
	line("%s compared from %s to %s, on %s", Count(r.Compared, "pod"), r.Since.UTC().Format(time.TimeOnly),
		r.Until.UTC().Format(time.TimeOnly), Count(r.Nodes, "node"))
	for _, o := range []struct {
		name  comparison.Outcome
		means string
	}{
		{comparison.Same, "Tenon chooses the same node"},
		{comparison.Equal, "Tenon chooses another node with the same score"},
		{comparison.Better, "Tenon chooses another node with a higher score"},
		{comparison.Refused, "Tenon refuses the node and chooses another one"},
		{comparison.Nowhere, "Tenon finds no node: the pod would wait"},
	} {
		if n := s.Outcomes[o.name]; n > 0 {
			line("  %-8s %4d  %s", o.name, n, o.means)
		}
	}
	if len(s.Refusals) > 0 {
		line("Refused nodes: %s; %d of them would be rejected by the kubelet", counts(s.Refusals), s.KubeletRefusals)
	}
	if len(s.Rejected) > 0 {
		line("Rejected by their kubelets: %s", counts(s.Rejected))
	}
	if s.Both > 0 {
		line("Both nodes are possible for %s, in sum (there → Tenon):", Count(s.Both, "pod"))
		line("  score %d → %d, NUMA nodes %d → %d, links %d → %d, unusable %s → %s", s.Bound.Score, s.Tenon.Score,
			s.Bound.NUMA, s.Tenon.NUMA, s.Bound.Links, s.Tenon.Links, milliText(s.Bound.Lost), milliText(s.Tenon.Lost))
	}
	line("Lag: each pod was compared at most %.1f s after its binding, without the pods that were bound later. Pods "+
		"that ended and nodes that changed in between count as they are then.", s.LagSeconds)
	if len(r.Skipped) > 0 {
		line("Not compared: %s", counts(r.Skipped))
	}
	if r.Topologies < r.Nodes {
		line("The CPUs of %s are not known (no NodeResourceTopology): NUMA nodes and kubelets are not compared there.",
			Count(r.Nodes-r.Topologies, "node"))
	}
	return b.String()
}

// counts lists names with their numbers, the most frequent first.
func counts(all map[string]int) string {
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		if all[a] != all[b] {
			return all[b] - all[a]
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, all[name])
	}
	return strings.Join(names, ", ")
}
