package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenon-project/tenon/internal/core/why"
)

// Verdict is what every filter said about a pod on one snapshot.
type Verdict struct {
	// Served is true if a profile has the pod's scheduler name; Names are those that profiles have.
	Served bool
	Names  []string
	// Findings holds all refusals: none of the filters was skipped because another had refused.
	Findings []why.Finding
	// Nodes is the number of nodes evaluated, Feasible of them would take the pod.
	Nodes, Feasible int
	Generation      int64
	// Notes are sentences about the verdict.
	Notes []string
}

// PendingGroup is the pods that wait for the same reason.
type PendingGroup struct {
	RootCause string   `json:"rootCause"`
	Class     string   `json:"class"`
	Count     int      `json:"count"`
	Pods      []string `json:"pods"`
	// Oldest is the creation of the pod that waits longest, Example its name and Message its root cause in words.
	Oldest  time.Time `json:"oldest"`
	Example string    `json:"example"`
	Message string    `json:"message"`
}

// Explain returns why a pod that holds no node holds none. queue may be nil.
func Explain(s Subject, v Verdict, queue *Queue) Pod {
	out := s.Head
	out.Queue, out.Nodes = queue, v.Nodes
	out.Data = Data{Source: "scheduler", Generation: v.Generation}
	out.Notes = append(out.Notes, v.Notes...)
	findings := append(queueFindings(s, v, queue), v.Findings...)
	for _, o := range why.Obstacles(findings) {
		out.Obstacles = append(out.Obstacles, o.Wire().Advised())
	}
	for _, s := range why.MinimalSets(findings) {
		out.MinimalSets = append(out.MinimalSets, newSet(s))
	}
	out.Candidates = candidates(findings)
	if root := why.Root(findings); !root.OK() {
		wire := root.Wire().Advised()
		out.RootCause = &wire
	} else if v.Feasible > 0 {
		out.Notes = append(out.Notes, Count(v.Feasible, "node")+
			" would fit the pod now; it waits for its next attempt")
	}
	return out
}

// queueFindings returns the refusals that are not of a filter: no scheduler serves the pod, or it has not passed the
// queue.
func queueFindings(s Subject, v Verdict, queue *Queue) []why.Finding {
	switch {
	case !v.Served:
		return []why.Finding{Unserved(s.Head.Scheduler, v.Names)}
	case len(s.Gates) > 0:
		return []why.Finding{{
			Reason: why.Reason{Code: why.SchedulingGate}, Plugin: "SchedulingGates", Phase: why.PreEnqueue,
			Detail: s.gateText(),
		}}
	case len(v.Findings) == 0 && queue != nil && queue.Attempts == 0:
		return []why.Finding{{Reason: why.Reason{Code: why.NotAttempted}, Phase: why.PreEnqueue}}
	}
	return nil
}

// Unserved is the refusal of a pod whose scheduler is none of the names that are served.
func Unserved(scheduler string, served []string) why.Finding {
	return why.Finding{
		Reason: why.Reason{Code: why.NoScheduler}, Phase: why.PreEnqueue,
		Detail: fmt.Sprintf("spec.schedulerName is %q, served are %s", scheduler, strings.Join(served, ", ")),
	}
}

func (s *Subject) gateText() string {
	return "waiting for scheduling gates: " + strings.Join(s.Gates, ", ")
}

func newSet(s why.Set) Set {
	out := Set{Codes: s.Codes, Nodes: s.Nodes}
	for _, r := range s.Missing {
		if out.Missing == nil {
			out.Missing = map[string]string{}
		}
		out.Missing[missingName(r)] = missingAmount(r)
	}
	return out
}

// missingName is the resource where the code is about a resource of the node, else the code.
func missingName(r why.Reason) string {
	if r.Code.Class() == why.Capacity && r.Resource != why.NoResource {
		return string(r.Resource)
	}
	return r.Code.String()
}

func missingAmount(r why.Reason) string {
	n := r.Asked - max(r.Free, 0)
	switch r.Unit {
	case why.MilliCPU:
		return CPUText(n)
	case why.Bytes:
		return BytesText(n)
	}
	return strconv.FormatInt(n, 10)
}

// candidates groups nodes that refuse for the same reasons with the same numbers, nearest miss first.
func candidates(findings []why.Finding) []Candidate {
	byNode := map[string][]why.Finding{}
	for _, f := range findings {
		if f.Object != "" && f.Phase != why.Preemption {
			byNode[f.Object] = append(byNode[f.Object], f)
		}
	}
	groups := map[string]*group{}
	for node, list := range byNode {
		key, g := newGroup(node, list)
		if known := groups[key]; known != nil {
			known.Count++
			known.Node = min(known.Node, node)
			continue
		}
		groups[key] = g
	}
	sorted := slices.SortedFunc(maps.Values(groups), func(a, b *group) int {
		return cmp.Or(
			cmp.Compare(a.constrained, b.constrained), cmp.Compare(len(a.Reasons), len(b.Reasons)),
			cmp.Compare(a.shortfall, b.shortfall), cmp.Compare(b.Count, a.Count), strings.Compare(a.Node, b.Node),
		)
	})
	out := make([]Candidate, len(sorted))
	for i, g := range sorted {
		out[i] = g.Candidate
	}
	return out
}

// group is a set of nodes that answer alike, under the first of their names.
type group struct {
	Candidate
	constrained int     // 1 when a rule keeps the pod off whatever becomes free
	shortfall   float64 // the largest over the reasons
}

// newGroup returns the group of one node, and what equal groups have in common.
func newGroup(node string, findings []why.Finding) (key string, g *group) {
	g = &group{Candidate: Candidate{Node: node, Count: 1}}
	obstacles := why.Obstacles(findings)
	slices.SortFunc(obstacles, func(a, b why.Obstacle) int {
		return cmp.Or(cmp.Compare(a.Code.Class(), b.Code.Class()), strings.Compare(a.Code.String(), b.Code.String()))
	})
	for _, o := range obstacles {
		o.Nodes, o.Object = 0, ""
		key += o.Flat() + "|" + o.Phrase() + "|"
		g.Reasons = append(g.Reasons, Refusal{o.Wire(), o.HaveNeed()})
		g.Closest = cmp.Or(g.Closest, o.HaveNeed())
		if o.Code.Class() == why.Constraint || o.LacksAll() {
			g.constrained = 1
		}
		g.shortfall = max(g.shortfall, shortfall(o.Reason))
	}
	return key, g
}

// shortfall is the missing part of what was asked, 1 for a code that is not about an amount.
func shortfall(r why.Reason) float64 {
	if r.HaveNeed() == "" || r.Asked <= 0 {
		return 1
	}
	return float64(r.Asked-max(r.Free, 0)) / float64(r.Asked)
}

// IDs writes ids: "0,2".
func IDs(ids []int) string { return strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]") }

// CPUs names the CPUs of a list: "CPU 3", "CPUs 0-3,8".
func CPUs(list string) string {
	if strings.ContainsAny(list, ",-") {
		return "CPUs " + list
	}
	return "CPU " + list
}

// Count writes a number of things: "1 node", "2 nodes".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// FromObject explains a pod by what its object says, for when no scheduler can be asked: its gates, and the condition
// that the scheduler left.
func FromObject(s Subject) Pod {
	out := s.Head
	out.Data = Data{Source: "objects"}
	switch out.State {
	case Gated:
		out.RootCause = wire(why.SchedulingGate, why.PreEnqueue, s.gateText())
		out.RootCause.Plugin = "SchedulingGates"
	case Pending:
		out.RootCause = fromCondition(s.Said)
	}
	if out.RootCause != nil {
		*out.RootCause = out.RootCause.Advised()
		out.Obstacles = append(out.Obstacles, *out.RootCause)
	}
	return out
}

// fromCondition reads the scheduler's last message. It ends in the JSON of the root cause; a message of another
// scheduler has none, and is shown as it is.
func fromCondition(said *string) *why.Wire {
	if said == nil {
		return wire(why.NotAttempted, why.PreEnqueue, "no scheduler has said anything about the pod yet")
	}
	if w, ok := why.ParseMessage(*said); ok {
		return &w
	}
	return wire(why.UpstreamFilter, why.Filter, *said)
}

func wire(code why.Code, phase why.Phase, message string) *why.Wire {
	return &why.Wire{Code: code, Class: code.Class().String(), Phase: phase.String(), Message: message}
}
