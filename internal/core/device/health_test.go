package device_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/device"
)

// probed is one probe of a history.
type probed struct {
	device.Probe
	at time.Time
}

// history answers by reading all probes again, from the rules as they are written down. down are the answers until now.
type history struct {
	p    []probed
	down []bool
}

// isDown reports whether the device is unusable after probe i.
func (h *history) isDown(i int) bool {
	if i < len(h.down) {
		return i >= 0 && h.down[i]
	}
	return h.breaks(i) || h.isDown(i-1) && !h.recovers(i)
}

// breaks reports whether probe i makes or keeps the device unusable.
func (h *history) breaks(i int) bool {
	switch h.p[i].Probe {
	case device.Works:
		return false
	case device.Fails:
		third := i >= 2 && h.p[i-1].Probe == device.Fails && h.p[i-2].Probe == device.Fails
		return i == 0 || h.isDown(i-1) || third
	}
	return true
}

func (h *history) recovers(i int) bool {
	first := i + 1
	for first > 0 && h.p[first-1].Probe == device.Works {
		first--
	}
	for j := range i {
		if h.p[j].Probe == device.Damages {
			return false
		}
	}
	return i-first >= 2 && h.p[i].at.Sub(h.p[first].at) >= h.wait(first-1)
}

// wait is how long the device must work that probe i left unusable.
func (h *history) wait(i int) time.Duration {
	for i > 0 && h.isDown(i-1) && h.p[i-1].Probe != device.Works {
		i-- // to the probe that made it so
	}
	before := i - 1 // the last probe that is of an earlier time of being unusable
	for before >= 0 && !h.isDown(before) {
		before--
	}
	switch {
	case before < 0:
		return time.Minute
	case before < i-1 && h.p[i].at.Sub(h.p[before+1].at) >= time.Hour: // it recovered at before+1
		return time.Minute
	}
	for h.p[before].Probe == device.Works {
		before--
	}
	return min(2*h.wait(before), 30*time.Minute)
}

func TestHealthFollowsItsRules(t *testing.T) {
	t.Parallel()
	seen := map[device.HealthState]int{}
	longest := time.Duration(0)
	rapid.Check(t, func(t *rapid.T) {
		all := &history{}
		var h device.Health
		now := time.Unix(1_000_000, 0)
		pauses := []time.Duration{10 * time.Second, 30 * time.Second, 5 * time.Minute, 50 * time.Minute}
		mostly := []device.Probe{device.Works, device.Works, device.Works, device.Fails, device.Fails, device.Breaks}
		for range rapid.IntRange(1, 40).Draw(t, "probes") {
			now = now.Add(rapid.SampledFrom(pauses).Draw(t, "pause"))
			p := rapid.SampledFrom(mostly).Draw(t, "probe")
			if rapid.IntRange(0, 99).Draw(t, "damages") == 0 {
				p = device.Damages
			}
			all.p = append(all.p, probed{p, now})
			h = h.After(p, now)
			seen[h.State]++
			longest = max(longest, h.Wait)
			down := all.isDown(len(all.p) - 1)
			if h.IsUsable() == down {
				t.Fatalf("after %+v: %+v is usable %t, want %t", all.p, h, h.IsUsable(), !down)
			}
			all.down = append(all.down, down)
			if h.Wait != 0 && (h.Wait < time.Minute || h.Wait > 30*time.Minute) {
				t.Fatalf("after %+v: it waits %v, want 1 to 30 minutes", all.p, h.Wait)
			}
		}
		h.Damaged = false // as a person says who has repaired it
		for range 4 * 35 {
			now = now.Add(15 * time.Second)
			h = h.After(device.Works, now)
		}
		if h.State != device.Healthy {
			t.Fatalf("after 35 good minutes: %+v, want it healthy", h)
		}
	})
	for _, s := range []device.HealthState{device.Healthy, device.Suspect, device.Unhealthy, device.Recovering} {
		if seen[s] == 0 {
			t.Errorf("no draw is %s: the test says too little", s)
		}
	}
	if longest != 30*time.Minute && !testing.Short() {
		t.Errorf("the longest wait is %v: no draw relapses often enough", longest)
	}
}

// A clock that was set back must not keep a device unusable for as long as it was set back.
// TestADeviceRelapsesWithinAnHour: one that breaks later has to work as long as one that breaks the first time.
func TestADeviceRelapsesWithinAnHour(t *testing.T) {
	t.Parallel()
	recovered := time.Unix(1_000_000, 0)
	for after, want := range map[time.Duration]time.Duration{
		time.Hour - time.Second: 8 * time.Minute,
		time.Hour:               time.Minute,
	} {
		h := device.Health{State: device.Healthy, Wait: 4 * time.Minute, Recovered: recovered}
		if got := h.After(device.Breaks, recovered.Add(after)); got.Wait != want || got.State != device.Unhealthy {
			t.Errorf("broken after %v, it must work for %v, want %v (%v)", after, got.Wait, want, got.State)
		}
	}
}

func TestRecoveryOutlivesAClockThatIsSetBack(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	h := device.Health{}.After(device.Works, now).After(device.Breaks, now).After(device.Works, now)
	now = now.Add(-24 * time.Hour)
	for range 6 {
		h = h.After(device.Works, now)
		now = now.Add(30 * time.Second)
	}
	if h.State != device.Healthy {
		t.Errorf("got %+v, want it healthy after three good minutes", h)
	}
}
