package explanation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/api/explanation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/view"
)

// failed is the answer to a question without a pod.
func failed(text string) *v1alpha1.ScheduleExplanationStatus {
	return &v1alpha1.ScheduleExplanationStatus{FailedMessage: text}
}

// answerOf returns the status that says what is known of a pod, and what the answer to a question in mode Preempt says;
// nil where none was asked. Victims are named in the pod's namespace alone.
func answerOf(said *view.Pod, preempted *view.WhatIfAnswer) *v1alpha1.ScheduleExplanationStatus {
	var d v1alpha1.DomainExplanation
	now := &d.ScheduleExplanation
	switch {
	case said.Rejection != nil:
		now.FailedMessage = said.Rejection.Reason + ": " + said.Rejection.Message
	case said.Placement != nil:
		now.Schedulable = true
		now.FeasibleSchedulingResult = []v1alpha1.PodOnNode{{
			PodKey:   keyOf(said.Pod, said.UID),
			NodeName: said.Placement.Node,
		}}
	case said.RootCause == nil:
		now.Schedulable = true
	default:
		now.FailedMessage = reasonOf(said.RootCause)
		if c := said.Candidates; len(c) > 0 && c[0].Closest != "" {
			now.FailedMessage += "; " + c[0].Node + " has " + c[0].Closest
		}
		if said.RootCause.Do != "" {
			now.FailedMessage += ". " + said.RootCause.Do
		}
		obstacles := slices.SortedStableFunc(slices.Values(said.Obstacles), func(a, b why.Wire) int {
			return cmp.Compare(b.Nodes, a.Nodes)
		})
		for i := range obstacles {
			now.NodeFailedDetails = append(now.NodeFailedDetails, refusalOf(&obstacles[i]))
		}
	}
	if preempted != nil {
		d.PreemptExplanation, d.NodePossibleVictims = preemption(said, preempted)
		d.SchedulableAfterPreemption = d.PreemptExplanation.Schedulable
	}
	d.Schedulable, d.FailedMessage = now.Schedulable, now.FailedMessage
	return &v1alpha1.ScheduleExplanationStatus{
		Schedulable: d.Schedulable, SchedulableAfterPreemption: d.SchedulableAfterPreemption,
		FailedMessage: d.FailedMessage, DetailedExplanation: []v1alpha1.DomainExplanation{d},
	}
}

// mayPreempt reports whether evictions can end a root cause.
func mayPreempt(root why.Code) bool {
	switch root.Class() {
	case why.Attention, why.Gate, why.Gang:
		return false // what the pod waits for is not on a node
	}
	return root.Entry().Resolvable
}

// preemption returns where the pod goes once others are evicted, and those of its namespace, by node.
func preemption(said *view.Pod, answer *view.WhatIfAnswer) (out v1alpha1.NodeExplanation,
	victims []v1alpha1.NodeVictims,
) {
	for i := range answer.Unschedulable {
		if root := answer.Unschedulable[i].RootCause; root != nil {
			out.FailedMessage = reasonOf(root)
		}
	}
	for _, p := range answer.Placements {
		out.Schedulable = true
		out.FeasibleSchedulingResult = append(out.FeasibleSchedulingResult,
			v1alpha1.PodOnNode{PodKey: keyOf(p.Pod, said.UID), NodeName: p.Node})
	}
	byNode, hidden := map[string]int{}, 0
	own, _, _ := strings.Cut(said.Pod, "/")
	for _, v := range answer.Victims {
		key := keyOf(v.Pod, "")
		if key.Namespace != own {
			hidden++
			continue
		}
		at, known := byNode[v.Node]
		if !known {
			at = len(victims)
			byNode[v.Node] = at
			victims = append(victims, v1alpha1.NodeVictims{NodeName: v.Node})
		}
		victims[at].PossibleVictims = append(victims[at].PossibleVictims, v1alpha1.PossibleVictim{PodKey: key})
	}
	if hidden > 0 {
		out.FailedMessage = view.Count(hidden, "victim") + " in other namespaces"
	}
	return out, victims
}

// refusalOf returns an obstacle.
func refusalOf(o *why.Wire) v1alpha1.NodeRefusal {
	out := v1alpha1.NodeRefusal{
		FailedPlugin: o.Plugin, Reason: reasonOf(o), PreemptMightHelp: o.Code.Entry().Resolvable,
	}
	if o.Nodes > 0 && o.Example != "" {
		out.FailedNodes = []string{o.Example}
	}
	return out
}

// reasonOf is the code and the text of an obstacle, with its number of nodes.
func reasonOf(o *why.Wire) string {
	text := fmt.Sprintf("%s: %s", o.Code, o.Message)
	if o.Nodes > 0 {
		text += " (" + view.Count(o.Nodes, "node") + ")"
	}
	return text
}

// keyOf reads namespace/name.
func keyOf(pod, uid string) v1alpha1.PodKey {
	namespace, name, _ := strings.Cut(pod, "/")
	return v1alpha1.PodKey{Namespace: namespace, Name: name, UID: uid}
}
