package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/api/annotation"
)

// memberUsing is a member of a gang that needs so many members, with the label app: web.
func memberUsing(name string, least int, labels, amounts, annotations string) string {
	return using(name, "web", labels, amounts, fmt.Sprintf("%s: g, %s: '%d'%s", annotation.GangName,
		annotation.GangMinAvailable, least, annotations))
}

// TestEachMemberOfAGangUsesAReservation: all of the cluster is reserved, and any member may use any Reservation.
func TestEachMemberOfAGangUsesAReservation(t *testing.T) {
	t.Parallel()
	in := ""
	for i := range 4 {
		in += plain(fmt.Sprint("n", i), 4) + reservationFor(fmt.Sprint("r", i), "web", "a: b", "cpu: 4", "")
	}
	for i := range 4 {
		in += memberUsing(fmt.Sprint("m", i), 4, "", "cpu: 4", "")
	}
	r, _ := simulate(t, in, "-")
	used := map[string]bool{}
	for i := range 4 {
		m := stateOf(r, fmt.Sprint("m", i))
		if m.State != Scheduled {
			t.Errorf("%s is %s: %v", m.Name, m.State, m.Reasons)
		}
		used[m.Annotations[annotation.ReservationAllocatedKey]] = true
		if got := reservationOf(t, r, fmt.Sprint("r", i)); got.Phase != "Succeeded" || len(got.Users) != 1 {
			t.Errorf("reservation %s is %s with users %v, want one user", got.Name, got.Phase, got.Users)
		}
	}
	if len(used) != 4 || used[""] {
		t.Errorf("the members use %v, want four Reservations", used)
	}
}

// TestAGangThatLacksAReservationTakesNone: three Reservations for a gang of four.
func TestAGangThatLacksAReservationTakesNone(t *testing.T) {
	t.Parallel()
	in := ""
	for i := range 3 {
		in += plain(fmt.Sprint("n", i), 4) + reservationFor(fmt.Sprint("r", i), "web", "a: b", "cpu: 4", "")
	}
	for i := range 4 {
		in += memberUsing(fmt.Sprint("m", i), 4, "", "cpu: 4", "")
	}
	r, _ := simulate(t, in+using("foreign", "other", "", "cpu: 1", ""), "-")
	for i := range 4 {
		if m := stateOf(r, fmt.Sprint("m", i)); m.Node != "" {
			t.Errorf("%s is %s on %s", m.Name, m.State, m.Node)
		}
	}
	for i := range 3 {
		if got := reservationOf(t, r, fmt.Sprint("r", i)); got.Phase != "Available" || len(got.Users) != 0 ||
			got.Left["cpu"] != "4" {
			t.Errorf("reservation %s is %s with users %v, %v left, want it untouched", got.Name, got.Phase, got.Users,
				got.Left)
		}
	}
	if got := stateOf(r, "foreign").State; got != Unschedulable {
		t.Errorf("a pod that is not an owner is %s beside the Reservations", got)
	}
}

// TestWhatAReservationLeavesIsForTheNextMember: a Reservation for one pod is twice what a member asks for. All that is
// free of the cluster is reserved, also for the rule of the PodGroup.
func TestWhatAReservationLeavesIsForTheNextMember(t *testing.T) {
	t.Parallel()
	in := plain("n0", 4) + reservationFor("r", "web", "a: b", "cpu: 4", "") +
		"\n{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: PodGroup, metadata: {name: g}, " +
		"spec: {minMember: 2, minResources: {cpu: 4}}}\n---"
	for i := range 2 {
		in += using(fmt.Sprint("m", i), "web", ", pod-group.scheduling.sigs.k8s.io: g", "cpu: 2", "")
	}
	r, _ := simulate(t, in, "-")
	if diff := cmp.Diff(map[string]string{"m0": "Scheduled n0", "m1": "Scheduled n0"}, placements(r)); diff != "" {
		t.Errorf("placed (-want +got):\n%s\n%v", diff, stateOf(r, "m0").Reasons)
	}
}

// TestMembersOfAGangShareAReservation: the CPUs of the members are those that were reserved, each once.
func TestMembersOfAGangShareAReservation(t *testing.T) {
	t.Parallel()
	restricted := reservationFor("r", "web", lsr, "cpu: 8, memory: 2Gi", shares+", allocatePolicy: Restricted")
	for name, c := range map[string]struct {
		members, placed int
	}{"as many as fit": {2, 2}, "one too many": {3, 0}} {
		in := machine("n0") + restricted
		held := reservationOf(t, first(simulate(t, in, "-")), "r")
		for i := range c.members {
			in += memberUsing(fmt.Sprint("m", i), c.members, ", "+lsr, four, ", "+useR)
		}
		r, _ := simulate(t, in, "-")
		cpus, placed := map[string]bool{}, 0
		for i := range c.members {
			if m := stateOf(r, fmt.Sprint("m", i)); m.State == Scheduled {
				placed++
				cpus[m.CPUSet] = true
			}
		}
		got := reservationOf(t, r, "r")
		if placed != c.placed || len(cpus) != c.placed || len(got.Users) != c.placed {
			t.Errorf("%s: %d members on CPUs %v, used by %v, want %d", name, placed, cpus, got.Users, c.placed)
		}
		if want := map[bool]string{true: "", false: held.CPUSet}[c.placed > 0]; got.CPUSet != want {
			t.Errorf("%s: the Reservation has CPUs %q, want %q", name, got.CPUSet, want)
		}
	}
}

// TestTheGPUsOfAGangAreThoseThatWereReserved: gangs get GPUs jointly, reserved ones come first.
func TestTheGPUsOfAGangAreThoseThatWereReserved(t *testing.T) {
	t.Parallel()
	in := gpuMachine() + reservationFor("r", "web", lsr, fourG, "") + reservationFor("s", "web", lsr, fourG, "")
	before, _ := simulate(t, in, "-")
	for i := range 2 {
		in += memberUsing(fmt.Sprint("m", i), 2, ", "+lsr, fourG, "")
	}
	after, _ := simulate(t, in, "-")
	held := map[string]string{}
	for _, name := range []string{"r", "s"} {
		r := reservationOf(t, before, name)
		held[fmt.Sprintf(`{"name":%q,"uid":"reservation-%[1]s"}`, name)] = fmt.Sprint(r.CPUSet, r.Devices)
	}
	got := map[string]string{}
	for i := range 2 {
		m := stateOf(after, fmt.Sprint("m", i))
		got[m.Annotations[annotation.ReservationAllocatedKey]] = fmt.Sprint(m.CPUSet, m.Devices)
	}
	if diff := cmp.Diff(held, got); diff != "" {
		t.Errorf("CPUs and GPUs by Reservation (-reserved +used):\n%s", diff)
	}
}

func first[A, B any](a A, _ B) A { return a }

// TestAGangCountsItsReservationOnceInItsQuota: with the Reservation and all members counted apart, the gang would ask
// for more than the max of its quota.
func TestAGangCountsItsReservationOnceInItsQuota(t *testing.T) {
	t.Parallel()
	const in = "quota.scheduling.koordinator.sh/name: q"
	quota := "\n{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: ElasticQuota, metadata: {name: q}, " +
		"spec: {min: {cpu: 8}, max: {cpu: 8}}}\n---"
	for name, c := range map[string]struct{ reserved, members int }{
		"a member beside the Reservation": {4, 4}, "a Reservation for the whole gang": {8, 4},
		"a part of a member": {3, 4}, "one member alone": {2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := plain("n0", 32) + quota +
				reservationFor("r", "web", in, fmt.Sprintf("cpu: %d", c.reserved), shares)
			for i := range c.members {
				objects += memberUsing(fmt.Sprint("m", i), c.members, ", "+in, "cpu: 2", "")
			}
			r, _ := simulate(t, objects, "-")
			for i := range c.members {
				if m := stateOf(r, fmt.Sprint("m", i)); m.State != Scheduled {
					t.Errorf("%s is %s: %v", m.Name, m.State, m.Reasons)
				}
			}
		})
	}
}

// TestAGangPrefersItsReservations to a node that is as good, also where its members were queued before the Reservations
// had their room, and where the devices of the members are chosen together.
func TestAGangPrefersItsReservations(t *testing.T) {
	t.Parallel()
	gang := fmt.Sprintf("%s: g, %s: '2'", annotation.GangName, annotation.GangMinAvailable)
	for _, amounts := range []string{four, fourG} {
		for _, labels := range []string{"a: b", lsr} {
			for _, group := range []string{"", gang} {
				in := ""
				for _, node := range []string{"n0", "n1"} {
					in += machine(node) + "\n" + deviceOf(node, twoGPUs) + "\n---"
				}
				for i := range 2 {
					r := reservationFor(fmt.Sprint("r", i), fmt.Sprint("app", i), labels, amounts, "")
					in += strings.Replace(r, "spec: {containers", "spec: {nodeName: n1, containers", 1)
				}
				for i := range 2 {
					in += using(fmt.Sprint("m", i), fmt.Sprint("app", i), ", "+labels, amounts, group)
				}
				r, _ := simulate(t, in, "-")
				for i := range 2 {
					m := stateOf(r, fmt.Sprint("m", i))
					want := fmt.Sprintf(`{"name":"r%d","uid":"reservation-r%[1]d"}`, i)
					if got := m.Annotations[annotation.ReservationAllocatedKey]; m.Node != "n1" || got != want {
						t.Errorf("%s, %s, %s: %s is %s on %s with reservation %q, want %s", amounts, labels, group,
							m.Name, m.State, m.Node, got, want)
					}
				}
			}
		}
	}
}
