package reservation

import "time"

// Phase is how far a reservation is. Succeeded and Failed are final.
type Phase string

// Phases, as Koordinator writes them.
const (
	Pending   Phase = "Pending"   // it has no node
	Waiting   Phase = "Waiting"   // it waits until the pods end on whose room it was placed
	Available Phase = "Available" // it keeps room on its node
	Succeeded Phase = "Succeeded" // the one pod that it was for uses it
	Failed    Phase = "Failed"    // it has expired, or its node was deleted
)

// IsFinal reports whether the phase never changes again.
func (p Phase) IsFinal() bool { return p == Succeeded || p == Failed }

// Course is what decides the phase of a reservation.
type Course struct {
	Now, Expires time.Time // Expires is the zero time for one that never does
	Node         string    // "" before it has one
	NodeGone     bool      // Node was deleted
	Once, Used   bool      // one pod may use it; a bound pod uses it
	Occupied     bool      // pods run on whose room it was placed, and it has waited since for them to end
}

// Next returns the phase after p, and for Failed the cause.
func (p Phase) Next(c Course) (next Phase, cause string) {
	switch {
	case p.IsFinal():
		return p, ""
	case c.Node != "" && c.Once && c.Used && !c.Occupied:
		return Succeeded, ""
	case c.IsExpired():
		return Failed, "expired at " + c.Expires.UTC().Format(time.RFC3339)
	case c.NodeGone:
		return Failed, "node " + c.Node + " was deleted"
	case c.Node != "" && c.Occupied:
		return Waiting, ""
	case c.Node != "":
		return Available, ""
	}
	return Pending, ""
}

// IsExpired reports whether the time of the reservation is over.
func (c *Course) IsExpired() bool { return !c.Expires.IsZero() && !c.Now.Before(c.Expires) }
