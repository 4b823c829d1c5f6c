package sim

import (
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/testkit"
)

// TestADeviceOfAClaimIsFreeWhenItsPodsHaveEnded: node w has some devices. Pods that wait for one start when the pods
// that have it end, as a forecast says before.
func TestADeviceOfAClaimIsFreeWhenItsPodsHaveEnded(t *testing.T) {
	t.Parallel()
	const (
		one   = "{devices: {requests: [{name: r, exactly: {deviceClassName: card}}]}}"
		two   = "{devices: {requests: [{name: r, exactly: {deviceClassName: card, count: 2}}]}}"
		named = "\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: "
	)
	in := "\n" + classes + "\n---\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: " +
		"{name: own}, spec: {spec: " + one + "}}\n---\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, " +
		"metadata: {name: two}, spec: {spec: " + two + "}}\n---" + named + "s1}, spec: " + one + "}\n---" + named +
		"s2}, spec: " + one + "}\n---"
	pod := func(name, claim, head string) string {
		return shared(name, "1", head, ", resourceClaims: ["+claim+"]")
	}
	const both, x, y = "{name: o, resourceClaimTemplateName: two}", "{name: s, resourceClaimName: s1}",
		"{name: s, resourceClaimName: s2}"
	bothEnd := []string{"0s Started a", "0s Started c", "1h0m0s Ended a", "2h0m0s Ended c", "2h0m0s Started b"}
	for name, c := range map[string]struct {
		devices        int
		in             string
		want           []string
		after, expects float64
	}{
		"a claim of a template": {
			1, pod("a", ownClaim, expects("1h")) + pod("b", ownClaim, ""),
			[]string{"0s Started a", "1h0m0s Ended a", "1h0m0s Started b"},
			1500, 3600,
		},
		"claims by name": {
			1, pod("a", x, expects("1h")) + pod("b", y, ""),
			[]string{"0s Started a", "1h0m0s Ended a", "1h0m0s Started b"},
			1500, 3600,
		},
		"a claim that two pods share": {
			1, pod("a", x, expects("1h")) + pod("c", x, expects("2h")) + pod("b", ownClaim, ""),
			bothEnd, 1500, 7200,
		},
		"two devices": {
			2, pod("a", ownClaim, expects("1h")) + pod("c", ownClaim, expects("2h")) + pod("b", both, ""),
			bothEnd, 1500, 7200,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Run(t.Context(), Input{
				Paths: []string{stdin}, Stdin: strings.NewReader(plain("w", 8) + cardsOf("w", c.devices) + in + c.in),
				Warn: io.Discard, Until: Until{After: 3 * time.Hour}, EstimateEvery: 25 * time.Minute,
			})
			testkit.Check(t, err)
			if diff := cmp.Diff(c.want, linesOf(r.Timeline)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			var got Estimate
			for _, e := range r.Timeline.Estimates {
				if e.Pods[0] == "default/b" {
					got = e
				}
			}
			if got.After != c.after || math.Round(got.Earliest) != c.expects || math.Round(got.Latest) != c.expects {
				t.Errorf("the forecast says %+v", got)
			}
		})
	}
}
