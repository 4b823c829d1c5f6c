package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
)

// runs is a pod on the node n0 with the label app: other; annotations are YAML.
func runs(name, cpu string, priority int, annotations string) string {
	pod := using(name, "other", "", cpu, annotations)
	return strings.Replace(pod, "spec: {", fmt.Sprintf("spec: {nodeName: n0, priority: %d, ", priority), 1)
}

// TestAReservationEvictsPodsOnlyIfItIsAskedTo: 2 of 6 CPUs are free for a Reservation of 4.
func TestAReservationEvictsPodsOnlyIfItIsAskedTo(t *testing.T) {
	t.Parallel()
	const above, never = ", priority: 100", ", priority: 100, preemptionPolicy: Never"
	for name, c := range map[string]struct {
		preempts            bool
		template, running   string
		reservation, evicts string
	}{
		"by default":                        {false, above, runs("low", "cpu: 4", 0, ""), "Pending", ""},
		"with enablePreemption":             {true, above, runs("low", "cpu: 4", 0, ""), "Available", "low"},
		"of the same priority":              {true, "", runs("low", "cpu: 4", 0, ""), "Pending", ""},
		"of a template that never preempts": {true, never, runs("low", "cpu: 4", 0, ""), "Pending", ""},
		"the smaller of two pods is enough": {
			true, above, runs("a", "cpu: 2", 0, "") + runs("b", "cpu: 1", 1, ""), "Available", "a",
		},
		"a pod of higher priority remains": {true, above, runs("high", "cpu: 4", 200, ""), "Pending", ""},
	} {
		in := plain("n0", 6) + c.running + strings.Replace(reservationFor("r", "web", "a: b", "cpu: 4", ""),
			"spec: {containers", "spec: {"+strings.TrimPrefix(c.template+", ", ", ")+"containers", 1)
		r, err := simulated(t, in, func(e *engine) {
			if e.api.reserved.Preempts = c.preempts; c.preempts {
				for _, object := range e.api.reservations.List() {
					e.api.reserved.Put(object.(*v1alpha1.Reservation))
				}
			}
		})
		testkit.Check(t, err)
		evicted := ""
		for _, p := range r.Pods {
			if p.State == Preempted {
				evicted += p.Name
			}
		}
		if got := reservationOf(t, r, "r"); got.Phase != c.reservation || evicted != c.evicts {
			t.Errorf("%s: the Reservation is %s, %q evicted, want %s, %q: %v", name, got.Phase, evicted, c.reservation,
				c.evicts, got.Reasons)
		}
	}
}

// TestNoPodIsEvictedWhoseRoomAReservationGetsBack: the pod that preempts could not use it.
func TestNoPodIsEvictedWhoseRoomAReservationGetsBack(t *testing.T) {
	t.Parallel()
	const used = annotation.ReservationAllocatedKey + `: '{"name":"r","uid":"reservation-r"}'`
	high := strings.Replace(using("high", "other", "", "cpu: 4", ""), "spec: {", "spec: {priority: 100, ", 1)
	for name, c := range map[string]struct{ spec, want string }{
		"for many":    {", allocateOnce: false", Unschedulable},
		"for one pod": {"", Scheduled},
	} {
		reserved := reservationFor("r", "web", "a: b", "cpu: 4", c.spec)
		at := strings.LastIndex(reserved, "}")
		reserved = reserved[:at] + ", status: {phase: Available, nodeName: n0}" + reserved[at:]
		r, _ := simulate(t, plain("n0", 6)+reserved+runs("user", "cpu: 4", 0, used)+high, "-")
		if got := stateOf(r, "high"); got.State != c.want {
			t.Errorf("%s: %s, want %s: %v", name, got.State, c.want, got.Reasons)
		}
	}
}
