package comparison

// Outcome is what a comparison comes to.
type Outcome string

// Outcomes.
const (
	// Same: Tenon would have chosen the same node. Equal: another one, which scores as high.
	Same  Outcome = "Same"
	Equal Outcome = "Equal"
	// Better: Tenon would have chosen another node, which scores higher.
	Better Outcome = "Better"
	// Refused: Tenon would have refused the node, and chosen another one.
	Refused Outcome = "Refused"
	// Nowhere: Tenon would have refused all nodes, so that the pod would wait.
	Nowhere Outcome = "Nowhere"
)

// Candidate is a node that passes the filters for a pod. Score is 0 where fewer than two nodes do: none is scored then.
type Candidate struct {
	Node  string
	Score int64
}

// Of compares the node to which a pod is bound with the one that Tenon would have chosen. bound is nil if Tenon refuses
// the pod's node, chosen if it refuses all nodes.
func Of(bound, chosen *Candidate) Outcome {
	switch {
	case chosen == nil:
		return Nowhere
	case bound == nil:
		return Refused
	case bound.Node == chosen.Node:
		return Same
	case bound.Score >= chosen.Score:
		return Equal
	}
	return Better
}
