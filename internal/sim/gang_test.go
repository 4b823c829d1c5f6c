package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
)

// inGang is a Pod whose metadata has more, as YAML that begins with a comma.
func inGang(name, more string) string {
	return fmt.Sprintf("\n{apiVersion: v1, kind: Pod, metadata: {name: %s%s}, "+
		"spec: {containers: [{name: c, image: i}]}}\n---", name, more)
}

// says is what a pod says of its gang in annotations.
func says(gang string, least int) string {
	return fmt.Sprintf(`, annotations: {gang.scheduling.koordinator.sh/name: %s, `+
		`gang.scheduling.koordinator.sh/min-available: "%d"}`, gang, least)
}

func TestGangsAreTriedWhenAllTheirMembersExist(t *testing.T) {
	const label = ", labels: {pod-group.scheduling.sigs.k8s.io: %s}"
	in := machineWith(gpu, 1) +
		inGang("a0", says("a", 2)) + inGang("a1", says("a", 2)) +
		inGang("b0", says("b", 2)) +
		inGang("c0", fmt.Sprintf(label, "c")) + inGang("c1", fmt.Sprintf(label, "c")) +
		inGang("d0", fmt.Sprintf(label, "d")) +
		"\n{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: PodGroup, metadata: {name: c}, " +
		"spec: {minMember: 2}}\n---" +
		inGang("e0", ", labels: {scheduling.x-k8s.io/pod-group: e}") +
		"\n{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: e}, spec: {minMember: 1}}"
	r, _ := simulate(t, in, "-")
	want := map[string]string{
		"a0": Scheduled, "a1": Scheduled, "b0": "GangNotReady", "c0": Scheduled, "c1": Scheduled, "d0": "GangNotFound",
		"e0": Scheduled,
	}
	for _, p := range r.Pods {
		got := p.State
		if got == Waiting && len(p.Reasons) == 1 {
			got = p.Reasons[0].Code.String()
		}
		if got != want[p.Name] {
			t.Errorf("%s is %s %v, want %s", p.Name, p.State, p.Reasons, want[p.Name])
		}
	}
	gangs := []Gang{
		{Name: "default/a", State: gang.StatusBound, Members: 2, MinMember: 2, Bound: 2},
		{Name: "default/b", State: gang.StatusWaiting, Members: 1, MinMember: 2},
		{Name: "default/c", State: gang.StatusBound, Members: 2, MinMember: 2, Bound: 2},
		{Name: "default/d", State: gang.StatusWaiting, Members: 1, MinMember: 1},
		{Name: "default/e", State: gang.StatusBound, Members: 1, MinMember: 1, Bound: 1},
	}
	if diff := cmp.Diff(gangs, r.Gangs); diff != "" {
		t.Errorf("gangs (-want +got):\n%s", diff)
	}
}

func TestAGangWhoseSettingsCannotBeReadIsRefused(t *testing.T) {
	r, _ := simulate(t, machineWith(gpu, 1)+inGang("p", says("g", 0)), "-")
	reasons := r.Pods[0].Reasons
	if r.Pods[0].State != Refused || len(reasons) != 1 || reasons[0].Code != why.BadAnnotation ||
		!strings.Contains(reasons[0].Message, "min-available") {
		t.Errorf("the pod is %s, %v", r.Pods[0].State, reasons)
	}
}
