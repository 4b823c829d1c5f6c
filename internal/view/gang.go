package view

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Gang is what is known of a gang, under the names of seed 003 and of Koordinator's endpoints; those at the end are
// ours.
type Gang struct {
	Name           string           `json:"name"`     // namespace/name
	WaitTime       time.Duration    `json:"waitTime"` // nanoseconds
	CreateTime     time.Time        `json:"createTime"`
	Mode           gang.Mode        `json:"mode"`
	MatchPolicy    gang.MatchPolicy `json:"gangMatchPolicy"`
	Min            int              `json:"minRequiredNumber"`
	Total          int              `json:"totalChildrenNum"`
	Group          []string         `json:"gangGroup"`
	Members        []string         `json:"children"` // namespace/name, as the next ones
	Pending        []string         `json:"pendingChildren"`
	Waiting        []string         `json:"waitingForBindChildren"`
	Bound          []string         `json:"boundChildren"`
	Started        bool             `json:"onceResourceSatisfied"`
	RoundValid     bool             `json:"scheduleCycleValid"` // always: a round that fails ends at once
	Round          int              `json:"scheduleCycle"`
	RoundsOfMember map[string]int   `json:"childrenScheduleRoundMap"`
	From           string           `json:"gangFrom"` // GangFromObject, GangFromNative or GangFromPods
	Initialized    bool             `json:"hasGangInit"`

	// Rule is by which rule of operators' objects the gang was made; "" for a declared one.
	Rule         string      `json:"rule,omitempty"`
	State        gang.Status `json:"state"`
	Reason       string      `json:"reason,omitempty"` // the code of why members wait
	Message      string      `json:"message,omitempty"`
	RootCausePod string      `json:"rootCausePod,omitempty"`
	Degraded     bool        `json:"degraded,omitempty"`
	Phase        string      `json:"phase,omitempty"`    // of the PodGroup's status
	Deadline     *time.Time  `json:"deadline,omitempty"` // until which reserved members wait
	Network      []string    `json:"network,omitempty"`  // in which domains its members are, a text for each rule
	Tried        *Domains    `json:"domains,omitempty"`  // in which its members did not fit
	LastPlan     *Plan       `json:"lastPlan,omitempty"`
	// Held is the sum of what its members have reserved and are not bound with, by resource.
	Held map[string]string `json:"held,omitempty"`
	// Hold is the nodes that are kept for its members; absent where none are.
	Hold *Hold `json:"hold,omitempty"`
}

// Plan is how the last plan of a gang's group ended, or of a NonStrict one the attempt on a member.
type Plan struct {
	At     time.Time `json:"at"`
	Gang   string    `json:"gang,omitempty"` // that lacked members; empty where none did
	Placed int       `json:"placed"`         // of that gang; of all gangs where none lacked any
	Needed int       `json:"needed"`
}

// Domains is how many domains there are, in how many of them members were tried, and in which most fit.
type Domains struct {
	Of    string `json:"of"` // a layer, or a label of nodes
	Many  int    `json:"many"`
	Tried int    `json:"tried"`
	Best  string `json:"best,omitempty"`
}

// Where a gang is described.
const (
	GangFromObject = "GangFromPodGroupCrd"
	GangFromNative = "GangFromNativePodGroup"
	GangFromPods   = "GangFromPodAnnotation"
)

// GangOf describes a gang; nil for one that does not exist, and for a PodGroup whose pods are not a gang.
func GangOf(s *gang.State, id string) *Gang {
	r, known := s.Find(id)
	if !known || r.Object != nil && r.Object.Plain {
		return nil
	}
	out := &Gang{
		Name: id, WaitTime: r.Settings.Wait, CreateTime: r.Created, Mode: r.Settings.Mode,
		MatchPolicy: r.Settings.Policy, Min: r.Settings.Min, Total: r.Settings.Total, Group: r.Settings.Group,
		Members: names(r.Members), Pending: names(r.In(gang.Pending)),
		Waiting: names(r.In(gang.Waiting, gang.Returning, gang.Allowed)), Bound: names(r.In(gang.Bound)),
		Started: r.Started, RoundValid: true, Round: r.Cycle, RoundsOfMember: map[string]int{},
		From: GangFromPods, Initialized: true,
		State: r.Status(), Degraded: r.Degraded,
	}
	if r.Object != nil {
		out.Phase, out.Rule = r.Object.Phase, r.Object.Rule
		if out.From = GangFromObject; r.Object.Native {
			out.From = GangFromNative
		}
	}
	if r.Why.Code != why.None {
		out.Reason, out.Message, out.RootCausePod = r.Why.Code.String(), r.Why.String(), r.Why.Pod
	} else {
		out.Message = progressText(out)
	}
	for _, g := range r.Rules {
		text := "prefers few domains of " + g.String()
		if g.Must {
			text = "in one domain of " + g.String()
		}
		if g.Multiple > 0 {
			text += fmt.Sprintf(", members in multiples of %d", g.Multiple)
		}
		if !s.Layers().Knows(g) {
			text += ", which no ClusterNetworkTopology named default defines"
		}
		out.Network = append(out.Network, text)
	}
	out.Tried = DomainsOf(r.Why.Tried)
	if last := r.Last; !last.At.IsZero() {
		out.LastPlan = &Plan{last.At, last.Gang, last.Placed, last.Needed}
	}
	if !r.Deadline.IsZero() {
		out.Deadline = &r.Deadline
	}
	for _, h := range s.Holds() {
		if slices.Contains(strings.Split(h.Rank.Name, ","), id) {
			out.Hold = HoldOf(h, s.HoldRules())
		}
	}
	for _, m := range r.Members {
		out.RoundsOfMember[m.Namespace+"/"+m.Name] = m.Cycle
	}
	return out
}

// progressText says how far a gang is that is bound in part or holds reservations, and names a pending member; ""
// for any other gang.
func progressText(g *Gang) string {
	if len(g.Bound)+len(g.Waiting) == 0 || len(g.Pending)+len(g.Waiting) == 0 {
		return ""
	}
	text := fmt.Sprintf("%d of %d members bound", len(g.Bound), len(g.Members))
	if n := len(g.Waiting); n > 0 {
		text += fmt.Sprintf(", %d holding reservations", n)
	}
	if n := len(g.Pending); n > 0 {
		text += fmt.Sprintf(", %d pending: see tenon explain pod/%s", n, path.Base(g.Pending[0]))
	}
	return text
}

// DomainsOf returns where a plan failed; nil where it was not bound to domains.
func DomainsOf(t gang.Tried) *Domains {
	if t == (gang.Tried{}) {
		return nil
	}
	return &Domains{cmp.Or(t.Rule.Layer, t.Rule.Label), t.Many, t.Domains, t.Best}
}

func names(members []gang.Member) []string {
	out := make([]string, len(members))
	for i, m := range members {
		out[i] = m.Namespace + "/" + m.Name
	}
	return out
}
