package health_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/health"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestHealthOfANode(t *testing.T) {
	t.Parallel()
	began := now.Add(-time.Hour)
	taint := func(key, value, effect string) []health.NodeTaint { return []health.NodeTaint{{key, value, effect}} }
	having := func(kind, status string) []health.Condition {
		return []health.Condition{{Type: kind, Status: status, Message: "m", Since: began}}
	}
	reported := func(ago time.Duration) *health.Facts {
		return &health.Facts{Reported: now.Add(-ago), Period: time.Minute}
	}
	for name, c := range map[string]struct {
		facts  *health.Facts
		closed health.Cause
		text   string
	}{
		"nothing is known": {&health.Facts{}, "", ""},
		"a ready node":     {&health.Facts{Conditions: having("Ready", "True")}, "", ""},
		"a kubelet that is not ready": {
			&health.Facts{Conditions: having("Ready", "False")}, health.NotReady, "NotReady",
		},
		"a kubelet that is silent": {
			&health.Facts{Conditions: having("Ready", "Unknown")}, health.NotReady, "NotReady",
		},
		"a condition of another program": {&health.Facts{Conditions: having("FrequentRestart", "True")}, "", ""},
		"memory pressure": {
			&health.Facts{Conditions: having("MemoryPressure", "True")}, health.Pressure, "MemoryPressure",
		},
		"pressure that is not known": {&health.Facts{Conditions: having("DiskPressure", "Unknown")}, "", ""},
		"a network that is not available": {
			&health.Facts{Conditions: having("NetworkUnavailable", "True")}, health.Pressure, "NetworkUnavailable",
		},
		"a cordoned node with its taint": {
			&health.Facts{Cordoned: true, Taints: taint("node.kubernetes.io/unschedulable", "", "NoSchedule")},
			health.Cordon, "cordoned",
		},
		"a taint before its condition": {
			&health.Facts{Taints: taint("node.kubernetes.io/unreachable", "", "NoExecute")},
			health.NotReady, "node.kubernetes.io/unreachable:NoExecute",
		},
		"a taint that people set": {
			&health.Facts{Taints: taint("gpu", "yes", "NoSchedule")}, "", "gpu=yes:NoSchedule",
		},
		"a taint that only advises": {&health.Facts{Taints: taint("gpu", "", "PreferNoSchedule")}, "", ""},
		"a report that is due":      {reported(3 * time.Minute), "", ""},
		"an agent that is silent":   {reported(3*time.Minute + time.Second), health.Agent, "agent silent"},
		"a report of no known period": {
			&health.Facts{Reported: now.Add(-time.Hour)}, "", "",
		},
		"an agent that is not ready": {&health.Facts{AgentNotReady: true}, health.Agent, "agent not ready"},
		"the most serious comes first": {
			&health.Facts{
				Cordoned: true, AgentNotReady: true, Taints: taint("gpu", "", "NoSchedule"),
				Conditions: append(having("PIDPressure", "True"), having("Ready", "False")...),
			},
			health.NotReady, "NotReady, cordoned, PIDPressure, agent not ready, gpu:NoSchedule",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := health.Of(c.facts, now)
			if h.Closed != c.closed || h.Text() != c.text {
				t.Errorf("%+v is closed by %q with %q, want %q with %q", c.facts, h.Closed, h.Text(), c.closed, c.text)
			}
		})
	}
}

func TestAFindingSaysSinceWhen(t *testing.T) {
	t.Parallel()
	began, last := now.Add(-time.Hour), now.Add(-time.Minute)
	h := health.Of(&health.Facts{
		Conditions: []health.Condition{{Type: "Ready", Status: "Unknown", Message: "no status", Since: began}},
		Reported:   last, Period: time.Second,
	}, now)
	want := []health.Finding{
		{Cause: health.NotReady, Text: "NotReady", Message: "no status", Since: &began},
		{Cause: health.Agent, Text: "agent silent", Since: &last},
	}
	if diff := cmp.Diff(want, h.Findings); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func TestWhichTaintsAreTemporary(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		"node.kubernetes.io/not-ready":                            true,
		"node.kubernetes.io/disk-pressure":                        true,
		"node.kubernetes.io/unschedulable":                        true,
		"node.cloudprovider.kubernetes.io/uninitialized":          true,
		"DeletionCandidateOfClusterAutoscaler":                    true,
		"startup-taint.cluster-autoscaler.kubernetes.io/not-yet":  true,
		"ignore-taint.cluster-autoscaler.kubernetes.io/gpu-ready": true,
		"nvidia.com/gpu":                        false,
		"node-role.kubernetes.io/control-plane": false,
	} {
		if got := health.IsTemporary(key); got != want {
			t.Errorf("IsTemporary(%q) is %v, want %v", key, got, want)
		}
	}
}
