package view

import (
	"fmt"
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

	State        gang.Status `json:"state"`
	Reason       string      `json:"reason,omitempty"` // the code of why members wait
	Message      string      `json:"message,omitempty"`
	RootCausePod string      `json:"rootCausePod,omitempty"`
	Degraded     bool        `json:"degraded,omitempty"`
	Phase        string      `json:"phase,omitempty"`    // of the PodGroup's status
	Deadline     *time.Time  `json:"deadline,omitempty"` // until which reserved members wait
	Network      []Gather    `json:"network,omitempty"`  // in which domains its members are
	Tried        *Domains    `json:"domains,omitempty"`  // in which its members did not fit
}

// Gather is a rule about the domains of a layer of the network, or of a label of nodes.
type Gather struct {
	Layer    string `json:"layer,omitempty"`
	Label    string `json:"label,omitempty"`
	Must     bool   `json:"must"` // all members are in one; else in as few as possible
	Multiple int    `json:"podCountMultiple,omitempty"`
	Unknown  bool   `json:"unknown,omitempty"` // no ClusterNetworkTopology defines the layer
}

// String says the rule.
func (g Gather) String() string {
	text := "prefers few domains of "
	if g.Must {
		text = "in one domain of "
	}
	text += gang.Gather{Layer: g.Layer, Label: g.Label}.String()
	if g.Multiple > 0 {
		text += fmt.Sprintf(", members in multiples of %d", g.Multiple)
	}
	if g.Unknown {
		text += ", which no ClusterNetworkTopology named default defines"
	}
	return text
}

// Domains is how many domains there are that keep the rules, how many may have enough room, and where most members fit.
type Domains struct {
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
		out.Phase = r.Object.Phase
		if out.From = GangFromObject; r.Object.Native {
			out.From = GangFromNative
		}
	}
	if r.Why.Code != why.None {
		out.Reason, out.Message, out.RootCausePod = r.Why.Code.String(), r.Why.String(), r.Why.Pod
	}
	for _, g := range r.Settings.Gather {
		out.Network = append(out.Network, Gather{g.Layer, g.Label, g.Must, g.Multiple, !s.Layers().Knows(g)})
	}
	if t := r.Why.Tried; t != (gang.Tried{}) {
		out.Tried = &Domains{t.Many, t.Domains, t.Best}
	}
	if !r.Deadline.IsZero() {
		out.Deadline = &r.Deadline
	}
	for _, m := range r.Members {
		out.RoundsOfMember[m.Namespace+"/"+m.Name] = m.Cycle
	}
	return out
}

func names(members []gang.Member) []string {
	out := make([]string, len(members))
	for i, m := range members {
		out[i] = m.Namespace + "/" + m.Name
	}
	return out
}
