package sim

import (
	"strings"
	"testing"
)

// TestGangsOfRulesInQuotas: a RayCluster of a head and two workers, of 1 CPU each, in ElasticQuotas. It starts whole
// where its quota may borrow, and not at all where the quota has room for two of three.
func TestGangsOfRulesInQuotas(t *testing.T) {
	t.Parallel()
	inQuota := func(text string) string {
		return strings.ReplaceAll(text, "{spec: {schedulerName",
			"{metadata: {labels: {quota.scheduling.koordinator.sh/name: team}}, spec: {schedulerName")
	}
	quotas := func(floor, ceiling string) string {
		return elastic(koordinator, "team", "", floor, ceiling) + "\n" +
			elastic(koordinator, "other", "", "{cpu: 3}", "{cpu: 8}") + "\n"
	}
	cluster := inQuota(rayCluster("", "", workers("a", "replicas: 2")))
	used := "{apiVersion: v1, kind: Pod, metadata: {name: o, labels: {quota.scheduling.koordinator.sh/name: other}}, " +
		"spec: {schedulerName: tenon-scheduler, containers: [{name: c, image: i, resources: {requests: {cpu: 3}}}]}}" +
		"\n---\n"
	for name, c := range map[string]struct{ in, want string }{
		"within its min": {quotas("{cpu: 3}", "{cpu: 3}") + cluster, "Scheduled: r-a-worker-0 r-a-worker-1 r-head-0"},
		"borrowing above its min": {
			quotas("{cpu: 1}", "{cpu: 8}") + cluster, "Scheduled: r-a-worker-0 r-a-worker-1 r-head-0",
		},
		"above its max": {
			quotas("{cpu: 1}", "{cpu: 2}") + cluster, "Waiting GangSiblingFailed: r-a-worker-0 r-a-worker-1 r-head-0",
		},
		"while the owner of a min uses it": {
			quotas("{cpu: 1}", "{cpu: 8}") + used + cluster,
			"Scheduled: o; Waiting GangSiblingFailed: r-a-worker-0 r-a-worker-1 r-head-0",
		},
	} {
		r, _ := simulate(t, oneNode(5)+c.in, "-")
		if got := statesOf(r); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}
