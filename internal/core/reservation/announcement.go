package reservation

import "slices"

// Announcement is what became of the pod that the status of a reservation for one pod names. The pod is named before
// its Binding, so that the reservation is used once even if the pod is deleted while no scheduler runs.
type Announcement uint8

const (
	// NotAnnounced means that no pod is named, or that a pod uses the reservation.
	NotAnnounced Announcement = iota
	// Void means that the named pod exists without a node, and the reservation is not kept for it: its Binding failed
	// or was not sent. No pod may use the reservation until the announcement is withdrawn.
	Void
	// Spent means that the named pod is gone, or has a node and does not use the reservation, which counts as used.
	Spent
)

// Announcement returns what became of the pod that a reservation names.
func (a *Account) Announcement(uid string) Announcement {
	if h := a.announced[uid]; h != nil {
		return a.announcement(h)
	}
	return NotAnnounced
}

// announcement returns whether a Reservation for one pod was given away: not at all, to a pod that came to nothing, or
// for good.
func (a *Account) announcement(h *held) Announcement {
	switch {
	case !h.Once || len(h.Announced) == 0 || len(h.users) > 0:
		return NotAnnounced
	case slices.ContainsFunc(h.Announced, func(pod string) bool { return a.pending[pod] }):
		return Void
	}
	return Spent
}

// isOpen reports whether further pods may use a reservation. One whose announcement is void may be open soon.
func (a *Account) isOpen(h *held) bool {
	return !h.Waiting && (!h.Once || len(h.users) == 0) && a.announcement(h) != Spent
}

// Announce returns the UID of the reservation for one pod that has to name a pod before its Binding; "" for a pod that
// is named, or uses no such reservation. It returns ErrUsed if the reservation names another pod.
func (a *Account) Announce(pod string) (uid string, err error) {
	h := a.byUID[a.users[pod].reservation]
	switch {
	case h == nil || !h.Once || h.Node == "" || slices.Contains(h.Announced, pod):
		return "", nil
	case len(h.Announced) > 0:
		return "", ErrUsed
	}
	return h.UID, nil
}

// SetPending records whether a pod exists without a node, and returns the UIDs of the reservations that name it,
// sorted; nil if that was known.
func (a *Account) SetPending(pod string, pending bool) (named []string) {
	if a.pending[pod] == pending {
		return nil
	}
	a.setPending(pod, pending)
	for uid, h := range a.announced {
		if slices.Contains(h.Announced, pod) {
			named = append(named, uid)
		}
	}
	slices.Sort(named)
	return named
}

// setPending records whether a pod is pending.
func (a *Account) setPending(pod string, pending bool) {
	if pending {
		a.pending[pod] = true
	} else {
		delete(a.pending, pod)
	}
}
