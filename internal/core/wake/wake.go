package wake

// Event is what has happened.
type Event uint8

// Events.
const (
	// Other is an event about something else than a pod, such as a node or a volume, or a pod without a node that
	// changed.
	Other Event = iota
	// PodCame: a pod without a node was created.
	PodCame
	// PodBound: a pod got a node.
	PodBound
	// PodChanged: a pod with a node changed.
	PodChanged
	// PodLeft: a pod with a node was deleted, or has ended.
	PodLeft
	// MemberLeft is PodLeft for a member of a gang, or for a pod whose node is not known.
	MemberLeft
)

// Counts reports whether an event may let a refused pod fit. An event that only takes room does not: a pod with
// affinity to others, which may fit then too, is asked about it nevertheless.
func (e Event) Counts() bool { return e != PodCame && e != PodBound }

// isOfPlaced reports whether the event is about a pod with a node.
func (e Event) isOfPlaced() bool { return e >= PodBound }

// Refusal is what is known of the last attempt on a pod. The zero value is that of a pod about which nothing is known.
type Refusal struct {
	// BySiblings: only the plugin of its gang has refused the pod, for the sake of others that start with it.
	BySiblings bool
	// ByAmounts: all nodes have refused the pod, each for reasons of its own, and a plugin can compare amounts.
	ByAmounts bool
}

// Answer is what is done about a refused pod.
type Answer uint8

// Answers.
const (
	Sleep   Answer = iota // the pod is not tried
	Ask                   // the hints of the plugins that refused the pod decide
	Compare               // Room decides whether the hints are asked
)

// After returns what is done about the pod after an event.
func (r Refusal) After(e Event) Answer {
	switch {
	case !e.isOfPlaced():
		return Ask
	case r.BySiblings:
		return Sleep
	case e == PodLeft && r.ByAmounts:
		return Compare
	}
	return Ask
}

// Room is how what a pod asks for compares with a node that another pod has left, once all pods of lower priority than
// its own have left too.
type Room struct {
	// Nominated: the pod is nominated to the node. It may have waited for the pod that left.
	Nominated bool
	// Unknown: the plugin could not compare.
	Unknown bool
	// Fits: the amounts suffice.
	Fits bool
}

// Answer returns whether the hints are asked.
func (r Room) Answer() Answer {
	if r.Nominated || r.Unknown || r.Fits {
		return Ask
	}
	return Sleep
}
