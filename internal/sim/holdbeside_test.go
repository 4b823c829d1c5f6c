package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestOtherRulesBesideAHold: a pod of one hour runs on 4 of 8 CPUs, and a larger one, which is before all others, holds
// the node until the hour is over. Reservations, claims and preemption keep their rules meanwhile.
func TestOtherRulesBesideAHold(t *testing.T) {
	t.Parallel()
	const high = "\n{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 10}\n---"
	web := func(name, annotations string) string { return using(name, "web", "", "cpu: 2", annotations) }
	reserved := reservationFor("r", "web", "a: b", "cpu: 2", "")
	exactly := reservationFor("r", "web", lsr, four, "")
	born := func(minute string) string { return ", creationTimestamp: \"2000-01-01T00:" + minute + ":00Z\"" }
	a, old := shared("a", "4", expects("1h"), ""), shared("a", "4", born("20")+expects("1h"), "")
	const own = "\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: own}, spec: {spec: " +
		"{devices: {requests: [{name: r, exactly: {deviceClassName: card}}]}}}}\n---"
	claims := func(name, cpu, head string) string {
		return shared(name, cpu, head, ", resourceClaims: ["+ownClaim+"]")
	}
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"a Reservation on a held node is used at once": {
			reserved + a + shared("b", "6", "", "") + web("web", "") + shared("other", "2", "", ""),
			[]string{"0s Started a", "0s Started web", "1h0m0s Ended a", "1h0m0s Started b"},
		},
		"a Reservation beside pods that never end is used at once": {
			reserved + a + shared("old", "1", "", "") + shared("b", "5", "", "") + web("web", ""),
			[]string{"0s Started a", "0s Started old", "0s Started web", "1h0m0s Ended a", "1h0m0s Started b"},
		},
		"one that asks for more than its Reservation has": {
			reserved + a + shared("b", "6", "", "") + using("web", "web", "", "cpu: 3", ""),
			[]string{"0s Started a", "1h0m0s Ended a", "1h0m0s Started b"},
		},
		"a Reservation with exclusive CPUs is used at once": {
			machine("n0") + exactly + exclusive("a", 20, "LSR", expects("1h"), "") +
				exclusive("b", 26, "LSR", "", "") + using("web", "web", ", "+lsr, four, ""),
			[]string{"0s Started a", "0s Started web", "1h0m0s Ended a", "1h0m0s Started b"},
		},
		"a pod with a run time uses its Reservation on a held node": {
			reserved + a + shared("b", "6", "", "") + web("web", "tenon.sh/expected-runtime: 5m"),
			[]string{"0s Started a", "0s Started web", "5m0s Ended web", "1h0m0s Ended a", "1h0m0s Started b"},
		},
		"a Reservation that comes later takes no held room": {
			a + shared("b", "8", "", "") +
				strings.Replace(reserved, "{name: r}", `{name: r, creationTimestamp: "2000-01-01T00:10:00Z"}`, 1) +
				shared("short", "2", expects("30m"), ""),
			[]string{"0s Started a", "0s Started short", "30m0s Ended short", "1h0m0s Ended a", "1h0m0s Started b"},
		},
		"what is reserved is not held": {
			reserved + a + shared("b", "8", "", "") + shared("c", "6", "", ""),
			[]string{"0s Started a", "1h0m0s Ended a", "1h0m0s Started c"},
		},
		"an urgent pod uses held room and evicts no pod": {
			high + old + shared("b", "8", born("21"), "") +
				shared("urgent", "2", born("30"), ", priorityClassName: high"),
			[]string{
				"0s Started a", "1m0s Arrived b", "10m0s Arrived urgent", "10m0s Started urgent", "1h0m0s Ended a",
			},
		},
		"one that needs more evicts": {
			high + old + shared("b", "8", born("21"), "") +
				shared("urgent", "6", born("30")+expects("10m"), ", priorityClassName: high"),
			[]string{
				"0s Started a", "1m0s Arrived b", "10m0s Arrived urgent", "10m0s Preempted a", "10m0s Started urgent",
				"20m0s Ended urgent", "20m0s Started b",
			},
		},
		"one that may evict holds nothing": {
			high + a + shared("b", "8", "", ", priorityClassName: high") + shared("c", "2", "", ""),
			[]string{"0s Started b"},
		},
		"a pod with a claim uses held room that ends in time": {
			cardsOf("w", 1) + "\n" + classes + "\n---" + own + a + shared("b", "8", "", "") +
				claims("c", "4", "") + claims("short", "4", expects("30m")),
			[]string{"0s Started a", "0s Started short", "30m0s Ended short", "1h0m0s Ended a", "1h0m0s Started b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, got := passing(t, plain("w", 8)+c.in, Until{After: 2 * time.Hour})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
