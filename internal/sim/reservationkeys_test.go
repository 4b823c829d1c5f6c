package sim

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/api/annotation"
)

// TestWhichReservationAPodUses: of two on one node, r before s by age and name.
func TestWhichReservationAPodUses(t *testing.T) {
	t.Parallel()
	exact := annotation.ExactMatchReservationKey + `: '{"resourceNames":["cpu"]}'`
	for name, c := range map[string]struct{ orderR, orderS, cpuR, cpuS, labels, annotations, want string }{
		"equal ones, by name":                          {"0", "0", "4", "4", "", "", "r"},
		"the lowest order comes first":                 {"2", "1", "4", "4", "", "", "s"},
		"no order comes last":                          {"0", "7", "4", "4", "", "", "s"},
		"the order comes before the rest that is left": {"2", "1", "4", "8", "", "", "s"},
		"the smallest rest that is left":               {"0", "0", "8", "4", "", "", "s"},
		"exactly what is requested":                    {"1", "2", "8", "4", "", exact, "s"},
		"none has exactly what is requested":           {"1", "2", "8", "6", "", exact, ""},
		"reservations are ignored": {
			"1", "2", "4", "4", ", " + annotation.ReservationIgnored + `: "true"`, "", "",
		},
	} {
		in := plain("n0", 32)
		for _, one := range [][3]string{{"r", c.orderR, c.cpuR}, {"s", c.orderS, c.cpuS}} {
			in += strings.Replace(reservationFor(one[0], "web", "a: b", "cpu: "+one[2], ""), "metadata: {name: "+one[0],
				"metadata: {name: "+one[0]+", labels: {"+annotation.ReservationOrder+`: "`+one[1]+`"}`, 1)
		}
		r, _ := simulate(t, in+using("p", "web", c.labels, "cpu: 4", c.annotations), "-")
		used := ""
		for _, one := range r.Reservations {
			if cmp.Equal(one.Users, []string{"default/p"}) {
				used += one.Name
			}
		}
		if got := placements(r)["p"]; used != c.want || got != "Scheduled n0" {
			t.Errorf("%s: the pod is %s and uses %q, want %q", name, got, used, c.want)
		}
	}
}

// TestPreemptionTakesNothingFromAReservation: 4 of 6 CPUs are kept, and a pod of high priority asks for 3. It gets the room
// of a pod that can be evicted, although what keeps the 4 CPUs would be the least important victim without a priority.
func TestPreemptionTakesNothingFromAReservation(t *testing.T) {
	t.Parallel()
	low := strings.Replace(runs("low", "cpu: 4", 10, ""), "n0", "n1", 1)
	for name, c := range map[string]struct{ in, want string }{
		"a Reservation for one pod": {reservationFor("r", "web", "a: b", "cpu: 4", ""), "Unschedulable"},
		"a Reservation for many":    {reservationFor("r", "web", "a: b", "cpu: 4", shares), "Unschedulable"},
		"a pod":                     {runs("r", "cpu: 4", 0, ""), "Scheduled n0"},
		"a Reservation, and a pod on another node": {
			plain("n1", 6) + low + reservationFor("r", "web", "a: b", "cpu: 4", ""), "Scheduled n1",
		},
	} {
		if at := strings.LastIndex(c.in, "}"); strings.Contains(c.in, "Reservation") {
			c.in = c.in[:at] + ", status: {phase: Available, nodeName: n0}" + c.in[at:]
		}
		high := strings.Replace(using("high", "other", "", "cpu: 3", ""), "spec: {", "spec: {priority: 1000, ", 1)
		r, _ := simulate(t, plain("n0", 6)+c.in+high, "-")
		if got := placements(r)["high"]; got != c.want {
			t.Errorf("%s: the pod of high priority is %s, want %s", name, got, c.want)
		}
	}
}
