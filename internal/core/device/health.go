package device

import "time"

// How a device that failed becomes usable again.
const (
	failuresAllowed = 2 // in a row, before a device is unhealthy
	goodNeeded      = 3 // in a row, before it is healthy again
	// A device must work for firstWait before it is healthy again. A relapse within relapseTime doubles that.
	firstWait   = time.Minute
	longestWait = 30 * time.Minute
	relapseTime = time.Hour
)

// HealthState is whether a device works, by what was last seen of it.
type HealthState string

// States. Only healthy and suspect devices can be used.
const (
	Healthy    HealthState = "Healthy"
	Suspect    HealthState = "Suspect"    // its last probes failed
	Unhealthy  HealthState = "Unhealthy"  // three probes in a row failed, or one event says so
	Recovering HealthState = "Recovering" // unhealthy before, its last probes were good
)

// Probe is what one look at a device, or one event, says of it.
type Probe uint8

// Probes, each worse than the one before.
const (
	Works   Probe = iota
	Fails         // counts from the third in a row on
	Breaks        // makes the device unhealthy at once
	Damages       // and for as long as the machine is not restarted, or a person does not clear it
)

// Health is the state of one device. The zero value is a device that was not probed yet: it is what its first probe
// says. A device that was unhealthy is healthy after three good probes in a row over Wait, which each relapse within an
// hour doubles.
type Health struct {
	State HealthState `json:"state"`
	// Row counts the failed probes of a suspect device, and the good ones of a recovering one.
	Row int `json:"row,omitempty"`
	// Since is the first good probe of a recovering device.
	Since time.Time `json:"since,omitzero"`
	// Wait is how long good probes must go on. Invariant: 1…30 minutes once the device was unhealthy.
	Wait time.Duration `json:"wait,omitempty"`
	// Recovered is when it was last healthy again.
	Recovered time.Time `json:"recovered,omitzero"`
	// Damaged devices do not recover.
	Damaged bool `json:"damaged,omitempty"`
}

// IsUsable reports whether pods may have the device.
func (h Health) IsUsable() bool { return h.State == Healthy || h.State == Suspect }

// After returns the health after a probe.
func (h Health) After(p Probe, now time.Time) Health {
	switch {
	case p == Works && h.Damaged:
		return h
	case p == Works:
		return h.improved(now)
	case p == Fails && h.IsUsable() && h.Row < failuresAllowed:
		h.State, h.Row = Suspect, h.Row+1
		return h
	}
	h.Damaged = h.Damaged || p == Damages
	if h.State == Unhealthy {
		return h
	}
	relapse := h.State == Recovering || !h.Recovered.IsZero() && now.Sub(h.Recovered) < relapseTime
	if h.Wait = min(2*h.Wait, longestWait); !relapse {
		h.Wait = firstWait
	}
	h.State, h.Row, h.Since = Unhealthy, 0, time.Time{}
	return h
}

// improved returns the health after a good probe.
func (h Health) improved(now time.Time) Health {
	switch {
	case h.State != Unhealthy && h.State != Recovering:
		h.State, h.Row = Healthy, 0
		return h
	case h.State == Unhealthy || now.Before(h.Since): // the clock was set back
		h.State, h.Row, h.Since = Recovering, 0, now
	}
	h.Row = min(h.Row+1, goodNeeded)
	if h.Row == goodNeeded && now.Sub(h.Since) >= h.Wait {
		h.State, h.Row, h.Since, h.Recovered = Healthy, 0, time.Time{}, now
	}
	return h
}
