package kubelet

import "github.com/tenon-project/tenon/internal/core/why"

// Refusal is a pod that the kubelet would not run.
type Refusal struct {
	// Status is status.reason of the rejected pod: TopologyAffinityError, SMTAlignmentError, UnexpectedAdmissionError.
	Status string
	// Container is the one that failed; "" for pod scope.
	Container string
	Reason    why.Reason
}

// State is what a node's kubelet has given to whom. It is immutable.
type State struct{}

// Node returns the node.
func (s *State) Node() *Node { panic("not built") }

// Fits tells whether Admit would admit p. It answers from counters where they decide and allocates nothing then.
func (s *State) Fits(p *Pod) why.Reason { panic("not built") }

// Admit predicts the admission of p: the state with it and what it gets, or why the kubelet refuses it.
func (s *State) Admit(p *Pod) (*State, Placement, *Refusal) { panic("not built") }

// With returns s where the pod has what pl says, whatever it had before: what the kubelet reports counts, even where it
// contradicts the rest. Units that two pods have count once as taken.
func (s *State) With(p *Pod, pl Placement) *State { panic("not built") }

// Without returns s where the pod has nothing. Unknown UIDs change nothing.
func (s *State) Without(uid string) *State { panic("not built") }
