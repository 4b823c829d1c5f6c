package why_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/why"
)

func TestEveryCodeHasAWholeEntry(t *testing.T) {
	t.Parallel()
	entries := why.Registry()
	seen := map[string]bool{}
	camel := regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	for _, e := range entries {
		if !camel.MatchString(e.Name) || seen[e.Name] {
			t.Errorf("name %q is not CamelCase, or used twice", e.Name)
		}
		seen[e.Name] = true
		if e.Class == why.NoClass || e.Plugin == "" || e.Text == "" || e.Chinese == "" {
			t.Errorf("%s: class, plugin, text or Chinese text is missing", e.Name)
		}
		if !slices.ContainsFunc([]rune(e.Chinese), func(r rune) bool { return unicode.Is(unicode.Han, r) }) {
			t.Errorf("%s: the Chinese text %q is not Chinese", e.Name, e.Chinese)
		}
		if !strings.HasSuffix(e.Cause, ".") || !strings.HasSuffix(e.Remedy, ".") {
			t.Errorf("%s: cause and remedy must be sentences", e.Name)
		}
		if (e.Extra == "") != (e.ExtraMeaning == "") {
			t.Errorf("%s: Extra has a name and a meaning, or neither", e.Name)
		}
		if code, ok := why.ParseCode(e.Name); !ok || code.Entry() != e || code.String() != e.Name {
			t.Errorf("%s does not parse back: got %v, %v", e.Name, code, ok)
		}
	}
	if !slices.IsSortedFunc(entries, func(a, b why.Entry) int { return int(a.Class) - int(b.Class) }) {
		t.Error("the registry is not sorted by class")
	}
	if last := why.Code(len(entries)); last.String() == "None" || why.Code(len(entries)+1).Entry().Name != "" {
		t.Errorf("codes are not dense: %v, %v", last, why.Code(len(entries)+1))
	}
}

// TestAnAutoscalerAddsNodesOnlyWhereOneCouldHelp: it acts on one reason, which all codes have but those that a new,
// empty node cannot resolve.
func TestAnAutoscalerAddsNodesOnlyWhereOneCouldHelp(t *testing.T) {
	t.Parallel()
	want := map[string][]string{
		why.BadRequest: {
			"BadAnnotation", "CPURequestNotInteger", "InvalidField", "RequestLimitMismatch", "InvalidDeviceRequest",
			"ClaimTooLarge", "QuotaNotFound", "GangLayerNotFound",
		},
		why.OverQuota:             {"QuotaExceeded"},
		why.WaitingForGang:        {"GangNotFound", "GangGroupNotMutual", "GangNotReady", "GangGated"},
		why.WaitingForReservation: {"ReservationAffinity"},
		why.SchedulingGated:       {"SchedulingGate"},
		why.SchedulerError:        {"PluginFailed"},
	}
	unconditional := []string{ // a Reservation waits, no attempt was made, or the pod has a node
		"NoScheduler", "NotAttempted", "ObjectNotGiven", "AdmissionRefused", "PreAllocationRequired",
		"PreAllocationUnmet", "PreAllocationUnsupported", "PreAllocationClusterDisabled", "Preempted",
		"UnallocatedExclusivePod",
	}
	got := map[string][]string{}
	for _, e := range why.Registry() {
		code, _ := why.ParseCode(e.Name)
		if e.Condition != code.Condition() {
			t.Errorf("%s: the entry has %q, the code %q", e.Name, e.Condition, code.Condition())
		}
		helps := e.NewNode == why.EmptyNode || e.NewNode == why.OtherNode
		if none := e.NewNode == why.NoCondition; !none && helps != (e.Condition == "Unschedulable") ||
			none != slices.Contains(unconditional, e.Name) || !none && !helps && e.NewNode != why.NoNode {
			t.Errorf("%s: a new node helps: %q, with the condition %s; decide for each new code", e.Name, e.NewNode,
				e.Condition)
		}
		if e.Condition != "Unschedulable" {
			got[e.Condition] = append(got[e.Condition], e.Name)
		}
	}
	for _, names := range got {
		slices.Sort(names)
	}
	for _, names := range want {
		slices.Sort(names)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("codes by reason (-want +got):\n%s", d)
	}
	if none := why.None.Condition(); none != "Unschedulable" {
		t.Errorf("got %q without a code", none)
	}
}

func TestReasonsThatRefuse(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]bool{
		"Unschedulable": true, "BadRequest": true, "QuotaExceeded": true, "WaitingForGang": true,
		"WaitingForReservation": true, "SchedulingGated": false, "SchedulerError": false, "": false, "Scheduled": false,
	} {
		if got := why.Refuses(reason); got != want {
			t.Errorf("%q refuses: got %t, want %t", reason, got, want)
		}
	}
}

func TestCodesTravelAsNames(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(map[string]why.Code{"code": why.SMTAlignment})
	if err != nil || string(text) != `{"code":"SMTAlignment"}` {
		t.Errorf("got %s, %v", text, err)
	}
	var code why.Code
	if err := json.Unmarshal([]byte(`"SharedPoolFloor"`), &code); err != nil || code != why.SharedPoolFloor {
		t.Errorf("got %v, %v", code, err)
	}
	if err := json.Unmarshal([]byte(`"NoSuchCode"`), &code); err == nil ||
		!strings.Contains(err.Error(), "NoSuchCode") {
		t.Errorf("an unknown code reads as %v, %v", code, err)
	}
	if got := why.Code(60000).String(); got != "Code(60000)" {
		t.Errorf("an unknown code prints as %q", got)
	}
}

func TestTextsThatUsersSearchForAreKept(t *testing.T) {
	t.Parallel()
	tests := map[string]why.Reason{
		"the requested CPUs must be integer":                                    {Code: why.CPURequestNotInteger},
		"node(s) invalid CPU Topology":                                          {Code: why.InvalidTopology},
		"node(s) requested cpus not multiple cpus per core":                     {Code: why.SMTAlignment},
		"node(s) cpu bind policy conflicts with pod's required cpu bind policy": {Code: why.BindPolicyConflict},
		"node(s) NUMA Topology policy not match":                                {Code: why.TopologyPolicy},
		"not enough cpus available to satisfy request":                          {Code: why.InsufficientExclusiveCPU},
		"insufficient CPUs to satisfy required cpu bind policy FullPCPUs": {
			Code:  why.InsufficientExclusiveCPU,
			Extra: 1,
		},
		"insufficient CPUs to satisfy required cpu bind policy SpreadByPCPUs": {
			Code:  why.InsufficientExclusiveCPU,
			Extra: 2,
		},
		"Insufficient cpu":           {Code: why.InsufficientCPU},
		"Insufficient memory":        {Code: why.InsufficientMemory},
		"Too many pods":              {Code: why.InsufficientPods},
		"node(s) were unschedulable": {Code: why.NodeUnschedulable},
		"node(s) didn't match Pod's node affinity/selector":          {Code: why.NodeAffinity},
		"node(s) didn't have free ports for the requested pod ports": {Code: why.NodePorts},
		"node(s) didn't match the requested node name":               {Code: why.NodeName},
		"node(s) didn't match pod topology spread constraints":       {Code: why.PodTopologySpread},
		"Insufficient gpu devices":                                   {Code: why.InsufficientDevices, Resource: "gpu"},
		"node(s) cpu usage exceed threshold":                         {Code: why.UsageThreshold, Resource: why.CPU},
		"node(s) memory aggregated usage exceed threshold": {
			Code: why.UsageThreshold, Resource: why.Memory, Extra: why.ByPercentile,
		},
		"Insufficient example.com/card": {
			Code: why.InsufficientExtended, Resource: "example.com/card",
		},
		"Insufficient extended resource":                                     {Code: why.InsufficientExtended},
		"node(s) kubelet would hang":                                         {Code: why.KubeletWouldHang},
		"node(s) kubelet would hang (merging its NUMA hints takes too long)": {Code: why.KubeletWouldHang, Extra: 1},
		"node(s) kubelet would crash on the machine's NUMA node ids":         {Code: why.KubeletPanics},
		"node(s) kubelet would crash on a hugepage size that the machine does not have": {
			Code: why.KubeletPanics, Resource: "hugepages-1Gi",
		},
	}
	for want, reason := range tests {
		if got := reason.Text(); got != want {
			t.Errorf("%v: got %q, want %q", reason.Code, got, want)
		}
	}
	if got := (why.Reason{}).Text(); got != "" {
		t.Errorf("no refusal reads %q", got)
	}
}

func TestHaveNeed(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	tests := map[string]why.Reason{
		"7/8 cores on numa 1": {
			Code: why.InsufficientExclusiveCPU, Unit: why.Cores, Asked: 8, Free: 7,
			Where: why.Where{Scope: why.NUMA, Index: 1},
		},
		"0/4 CPUs":                {Code: why.InsufficientExclusiveCPU, Unit: why.CPUs, Asked: 4},
		"0.5/1.25 CPUs":           {Code: why.InsufficientCPU, Unit: why.MilliCPU, Asked: 1250, Free: 500},
		"3/4 GiB":                 {Code: why.InsufficientMemory, Unit: why.Bytes, Asked: 4 * gib, Free: 3 * gib},
		"0.5/4 GiB":               {Code: why.InsufficientMemory, Unit: why.Bytes, Asked: 4 * gib, Free: gib / 2},
		"1023/1024 MiB":           {Code: why.InsufficientMemory, Unit: why.Bytes, Asked: gib, Free: gib - 1<<20},
		"5/9 B":                   {Code: why.InsufficientMemory, Unit: why.Bytes, Asked: 9, Free: 5},
		"1073741823/1073741824 B": {Code: why.InsufficientMemory, Unit: why.Bytes, Asked: gib, Free: gib - 1},
		"40/50 %":                 {Code: why.InsufficientExtended, Unit: why.Percent, Asked: 50, Free: 40},
		"110/111":                 {Code: why.InsufficientPods, Unit: why.Count, Asked: 111, Free: 110},
		"1/2 CPUs on socket 3": {
			Code: why.TopologyPolicy, Unit: why.CPUs, Asked: 2, Free: 1,
			Where: why.Where{Scope: why.Socket, Index: 3},
		},
		"": {Code: why.SMTAlignment, Unit: why.CPUs, Asked: 3, Extra: 2},
	}
	for want, reason := range tests {
		if got := reason.HaveNeed(); got != want {
			t.Errorf("%+v: got %q, want %q", reason, got, want)
		}
	}
}

func TestNamesOfSmallTypes(t *testing.T) {
	t.Parallel()
	got := []string{
		why.Bytes.String(), why.NoUnit.String(),
		why.Reserve.String(), why.Admission.String(), why.Placement.String(), why.Victims.String(),
		why.NoClass.String(),
		why.Where{}.String(), why.Where{Scope: why.CoreScope, Index: 5}.String(),
	}
	want := []string{"bytes", "", "Reserve", "Admission", "Placement", "Preemption", "", "", "core 5"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}
