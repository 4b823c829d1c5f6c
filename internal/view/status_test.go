package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/health"
	"github.com/tenon-project/tenon/internal/testkit"
)

var looked = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// sound is an installation without a fault.
func sound() *Installation {
	ago := func(d time.Duration) time.Time { return looked.Add(-d) }
	ends := looked.Add(10 * time.Second)
	return &Installation{
		Now: looked, DurationText: time.Duration.String, Subject: "Tenon in namespace tenon-system", Client: "v0.2.0",
		Components: []Component{
			{Name: AgentName, Desired: 2, Ready: 2, Versions: []string{"v0.2.0"}},
			{
				Name: ManagerName, Desired: 2, Ready: 2, Versions: []string{"v0.2.0"}, Leader: "tenon-manager-a",
				LeaseEnds: &ends,
			},
			{
				Name: SchedulerName, Desired: 2, Ready: 2, Versions: []string{"v0.2.0"}, Leader: "tenon-scheduler-a",
				LeaseEnds: &ends,
			},
		},
		Certificates: []Certificate{
			{Where: "ConfigMap tenon-ca", From: ago(time.Hour), Until: looked.Add(90 * time.Hour)},
		},
		Nodes: []NodeReport{
			{Name: "a", Ready: true, Topology: ago(48 * time.Hour), Device: ago(time.Minute)},
			{Name: "b", Ready: true, Topology: ago(time.Minute)},
		},
		Webhooks: 5, Tried: true, Unread: map[string]string{},
	}
}

// TestStatusFindsWhatIsWrong: each fault is one finding with a consequence and a remedy, and the others are as they
// were.
func TestStatusFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Installation)
		want   string // "check status: found"; "" where nothing may differ
	}{
		"nothing": {func(*Installation) {}, ""},
		"no scheduler": {
			func(in *Installation) { in.Components = in.Components[:2] }, "tenon-scheduler fail: not installed",
		},
		"a descheduler that is not ready": {
			func(in *Installation) {
				in.Components = append(in.Components, Component{
					Name: DeschedulerName, Desired: 2, Ready: 1,
					Versions: []string{"v0.2.0"},
				})
			},
			"tenon-descheduler warn: 1 of 2 ready",
		},
		"a replica that is not ready": {
			func(in *Installation) { in.Components[1].Ready = 1 }, "tenon-manager warn: 1 of 2 ready",
		},
		"a component without a ready replica": {
			func(in *Installation) { in.Components[2].Ready = 0 }, "tenon-scheduler fail: 0 of 2 ready",
		},
		"an image that is missing": {
			func(in *Installation) {
				in.Components[2].Ready, in.Components[2].Stuck = 0, "ErrImagePull, image tenon-scheduler:v9"
			},
			"tenon-scheduler fail: 0 of 2 ready; ErrImagePull, image tenon-scheduler:v9",
		},
		"an agent that is not ready": {
			func(in *Installation) { in.Components[0].Ready = 1 }, "tenon-agent fail: 1 of 2 ready",
		},
		"a lease that ended": {
			func(in *Installation) {
				past := looked.Add(-time.Minute)
				in.Components[1].LeaseEnds = &past
			},
			`tenon-manager-leader fail: none: the lease of "tenon-manager-a" ended 1m0s ago`,
		},
		"a lease of a pod that is gone": {
			func(in *Installation) { in.Components[2].LeaderGone = true },
			`tenon-scheduler-leader fail: none: the lease is that of pod "tenon-scheduler-a", which is gone`,
		},
		"two versions": {
			func(in *Installation) { in.Components[0].Versions = []string{"v0.1.0", "v0.2.0"} },
			"versions warn: v0.1.0, v0.2.0 at once",
		},
		"an agent of another version than the scheduler that leads": {
			func(in *Installation) {
				in.Components[0].Versions = []string{"v0.1.0", "v0.2.0"}
				in.Components[0].Pods = map[string]int{"v0.1.0": 1, "v0.2.0": 1}
				in.Components[2].LeaderVersion = "v0.2.0"
			},
			"versions warn: v0.1.0, v0.2.0 at once; the scheduler that leads has v0.2.0, tenon-agent v0.1.0 on 1 pod",
		},
		"a command of another version": {
			func(in *Installation) { in.Client = "v0.1.0" }, "versions warn: v0.2.0, this command v0.1.0",
		},
		"a scheduler that cannot be asked": {
			func(in *Installation) { in.Diagnostics = "x509: unknown authority" },
			"diagnostics warn: x509: unknown authority",
		},
		"all nodes without a report": {
			func(in *Installation) {
				in.Nodes[0], in.Nodes[1] = NodeReport{Name: "a", Ready: true}, NodeReport{Name: "b", Ready: true}
			},
			"topology warn: none; not a, b",
		},
		"a node that is left": {func(in *Installation) { in.Left = []string{"c"} }, "left warn: c"},
		"no webhooks":         {func(in *Installation) { in.Webhooks = 0 }, "webhooks fail: none is registered"},
		"webhooks out of reach": {
			func(in *Installation) { in.Admission = "failed calling webhook" }, "webhooks fail: failed calling webhook",
		},
		"a certificate that ends soon": {
			func(in *Installation) { in.Certificates[0].Until = looked.Add(10 * time.Minute) },
			"certificate warn: valid for 10m0s",
		},
		"a certificate that ended": {
			func(in *Installation) { in.Certificates[0].Until = looked.Add(-time.Hour) },
			"certificate fail: ended 1h0m0s ago",
		},
		"a certificate of the future": {
			func(in *Installation) { in.Certificates[0].From = looked.Add(time.Hour) },
			"certificate fail: not valid before 2026-03-01T13:00:00Z: compare the clocks",
		},
		"a place without a certificate": {
			func(in *Installation) { in.Certificates[0] = Certificate{Where: "w"} }, "certificate fail: none",
		},
		"a node without an agent": {
			func(in *Installation) { in.Nodes[1].Ready = false }, "agents warn: ready on 1 of 2 nodes; not b",
		},
		"a node without a topology": {
			func(in *Installation) { in.Nodes[1].Topology = time.Time{} },
			"topology warn: of 1 node, the oldest written 48h0m0s ago (a); not b",
		},
		"a right that is missing": {
			func(in *Installation) { in.Unread["serving-certificate"] = "get on secrets is missing" },
			"serving-certificate unknown: not known: get on secrets is missing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := sound()
			c.change(in)
			status := StatusOf(in)
			var got []string
			for _, f := range status.Findings {
				if f.Status == CheckOK {
					continue
				}
				got = append(got, fmt.Sprintf("%s %s: %s", f.Check, f.Status, f.Found))
				if f.Why == "" || f.Remedy == "" {
					t.Errorf("%s has no consequence or no remedy", f.Check)
				}
			}
			want := slices.DeleteFunc([]string{c.want}, func(s string) bool { return s == "" })
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			healthy := !strings.Contains(c.want, " fail: ")
			if status.Healthy() != healthy || status.IsComplete() && name == "a replica that is not ready" {
				t.Errorf("healthy is %t, complete %t", status.Healthy(), status.IsComplete())
			}
		})
	}
}

func TestStatusOfWhatMayNotBeReadAccusesNoComponent(t *testing.T) {
	t.Parallel()
	in := &Installation{Now: looked, DurationText: time.Duration.String, Subject: "s", Unread: map[string]string{}}
	for _, check := range []string{
		"deployments", "daemonsets", "pods", "nodes", "webhooks", "admission", "diagnostics",
	} {
		in.Unread[check] = "the right is missing"
	}
	status := StatusOf(in)
	for _, f := range status.Findings {
		if f.Status != CheckUnknown {
			t.Errorf("%s is %s: %s", f.Check, f.Status, f.Found)
		}
	}
	if len(status.Findings) != len(in.Unread) {
		t.Errorf("%d findings of %d reads", len(status.Findings), len(in.Unread))
	}
}

func TestStatusThatAskedNoWebhookSaysHowManyThereAre(t *testing.T) {
	t.Parallel()
	in := sound()
	in.Tried = false
	status := StatusOf(in)
	i := slices.IndexFunc(status.Findings, func(f Finding) bool { return f.Check == "webhooks" })
	if i < 0 || status.Findings[i].Found != "5 are registered; tenon status tries a pod" || !status.IsComplete() {
		t.Errorf("got %+v", status.Findings)
	}
}

func TestStatusAsATable(t *testing.T) {
	t.Parallel()
	status := StatusOf(sound())
	var out strings.Builder
	testkit.Check(t, status.Print(&out, 0))
	for _, want := range []string{
		"tenon-scheduler  2/2   v0.2.0\n", "ok      tenon-scheduler-leader  tenon-scheduler-a\n",
		"Tenon in namespace tenon-system\n",
		"ok      devices ", "of 1 node, the oldest written 1m0s ago (a)", " 0 unknown, 0 warn, 0 fail\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestStatusIsNotWellWhenEveryNodeIsLeft: no node has a topology, and none is due.
func TestStatusIsNotWellWhenEveryNodeIsLeft(t *testing.T) {
	t.Parallel()
	in := Installation{
		Now: looked, DurationText: time.Duration.String, Local: true, Left: []string{"a", "b"}, Webhooks: 1,
		Unread: map[string]string{},
	}
	status := StatusOf(&in)
	got := map[string]string{}
	for _, f := range status.Findings {
		got[f.Check] = string(f.Status) + ": " + f.Found
	}
	if got["topology"] != "warn: none" || got["left"] != "warn: a, b" {
		t.Errorf("found %v", got)
	}
}

// The reports of topologies are due from all nodes, those of devices from none; each has its oldest one.
func TestStatusCountsReports(t *testing.T) {
	t.Parallel()
	in := sound()
	in.Nodes = append(in.Nodes, NodeReport{Name: "c", Ready: true})
	status := StatusOf(in)
	oldest, only := looked.Add(-48*time.Hour), looked.Add(-time.Minute)
	want := []Reports{
		{Kind: "topology", Nodes: 2, Of: 3, Oldest: &oldest, OldestNode: "a"},
		{Kind: "devices", Nodes: 1, Of: 1, Oldest: &only, OldestNode: "a"},
	}
	if diff := cmp.Diff(want, status.Reports); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if status.SchedulerVersion != "v0.2.0" {
		t.Errorf("the scheduler has version %q", status.SchedulerVersion)
	}
	in.Components[2].Versions, in.Components[2].LeaderVersion = []string{"v0.2.0", "v0.3.0"}, "v0.3.0"
	if status = StatusOf(in); status.SchedulerVersion != "v0.3.0" {
		t.Errorf("the scheduler that leads has version %q", status.SchedulerVersion)
	}
	in.Components[2].LeaderVersion = ""
	if status = StatusOf(in); status.SchedulerVersion != "" {
		t.Errorf("of two versions the one of the leader is %q", status.SchedulerVersion)
	}
}

func TestStatusNamesNodesThatNewPodsCannotUse(t *testing.T) {
	t.Parallel()
	ailing := func(closed health.Cause, texts ...string) (h health.Health) {
		h.Closed = closed
		for _, text := range texts {
			cause := closed
			if strings.Contains(text, ":") {
				cause = health.Taint
			}
			h.Findings = append(h.Findings, health.Finding{Cause: cause, Text: text})
		}
		return h
	}
	cordoned := ailing(health.Cordon, "cordoned")
	for name, c := range map[string]struct {
		nodes []health.Health // of a, b, c…
		want  string          // "status: found"
	}{
		"healthy nodes": {[]health.Health{{}, {}}, "ok: new pods can use 2 of 2 nodes"},
		"no node":       {nil, "ok: new pods can use 0 of 0 nodes"},
		"a taint": {
			[]health.Health{{}, ailing("", "gpu:NoSchedule")}, "ok: new pods can use 2 of 2 nodes; gpu:NoSchedule: b",
		},
		"two causes, and a taint last": {
			[]health.Health{
				ailing("", "gpu:NoSchedule"), ailing(health.NotReady, "NotReady", "agent silent"),
				cordoned,
			},
			"warn: new pods can use 1 of 3 nodes; NotReady: b; agent silent: b; cordoned: c; gpu:NoSchedule: a",
		},
		"more than five nodes": {
			append(slices.Repeat([]health.Health{cordoned}, 6), health.Health{}),
			"warn: new pods can use 1 of 7 nodes; cordoned: a, b, c, d, e and 1 more",
		},
		"no node that new pods can use": {
			[]health.Health{cordoned}, "fail: new pods can use 0 of 1 node; cordoned: a",
		},
	} {
		in := sound()
		in.Nodes = nil
		for i, h := range c.nodes {
			in.Nodes = append(in.Nodes, NodeReport{Name: string(rune('a' + i)), Health: h})
		}
		status := StatusOf(in)
		at := slices.IndexFunc(status.Findings, func(f Finding) bool { return f.Check == "nodes" })
		if at < 0 {
			t.Fatalf("%s: no finding about nodes in %+v", name, status.Findings)
		}
		f := status.Findings[at]
		if got := string(f.Status) + ": " + f.Found; got != c.want || (f.Remedy == "") != (f.Status == CheckOK) {
			t.Errorf("%s:\ngot  %q, do %q\nwant %q", name, got, f.Remedy, c.want)
		}
	}
}
