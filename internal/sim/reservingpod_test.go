package sim

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/api/annotation"
)

// keeper is a pod of mode Reservation for pods with the label app.
func keeper(name, app, amounts string) string {
	return using(name, "keeper", ", "+lsr+", "+annotation.OperatingMode+": Reservation", amounts,
		annotation.ReservationOwnersKey+`: '[{"labelSelector":{"matchLabels":{"app":"`+app+`"}}}]'`)
}

// TestAPodGetsTheVeryCPUsAndTheGPUOfAReservingPod: the reserving pod is deleted before the pod is bound, and a pod that
// is not an owner gets others.
func TestAPodGetsTheVeryCPUsAndTheGPUOfAReservingPod(t *testing.T) {
	t.Parallel()
	in := gpuMachine() + keeper("r", "web", fourG)
	r, _ := simulate(t, in, "-")
	held := stateOf(r, "r")
	if held.State != Scheduled || held.CPUSet == "" || len(held.Devices["gpu"]) != 1 {
		t.Fatalf("the reserving pod is %+v, want 4 CPUs and a GPU of n0", held)
	}
	in += using("foreign", "other", ", "+lsr, fourG, "") + using("web", "web", ", "+lsr, fourG, useR)
	var writes []string
	r, err := simulated(t, in, func(e *engine) {
		e.api.fault = func(r *http.Request, _ []byte) error {
			writes = append(writes, fmt.Sprint(r.Method, " ", r.URL.Path))
			return nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	web, foreign := stateOf(r, "web"), stateOf(r, "foreign")
	if diff := cmp.Diff(held.Devices, web.Devices); web.CPUSet != held.CPUSet || diff != "" {
		t.Errorf("the owner has CPUs %s, want %s, and devices (-want +got):\n%s", web.CPUSet, held.CPUSet, diff)
	}
	if foreign.State != Scheduled || foreign.CPUSet == held.CPUSet || cmp.Equal(foreign.Devices, held.Devices) {
		t.Errorf("another pod has %s and %v: those were reserved", foreign.CPUSet, foreign.Devices)
	}
	if got := web.Annotations[annotation.ReservationAllocatedKey]; !strings.Contains(got, `{"name":"r","uid":"`) {
		t.Errorf("the owner's annotation is %q", got)
	}
	if got := stateOf(r, "r"); got.State != Preempted || !strings.Contains(fmt.Sprint(got.Reasons), "default/web") {
		t.Errorf("the reserving pod is %s, %v: its room is used", got.State, got.Reasons)
	}
	want := "DELETE /api/v1/namespaces/default/pods/r"
	if all := strings.Join(writes, "\n"); !strings.Contains(all, want) ||
		strings.Index(all, want) > strings.Index(all, "/pods/web/binding") {
		t.Errorf("writes are\n%s\nwant the reserving pod deleted before the Binding of the owner", all)
	}
}

func TestOnePodUsesTheRoomOfAReservingPod(t *testing.T) {
	t.Parallel()
	owners := using("a", "web", "", "cpu: 4", useR) + using("b", "web", "", "cpu: 4", useR)
	r, _ := simulate(t, machine("n0")+keeper("r", "web", four)+owners, "-")
	if got := placements(r); got["a"] != "Scheduled n0" || got["b"] != "Unschedulable" {
		t.Errorf("placed %v, want a alone", got)
	}
}

// TestOthersDoNotGetTheRoomOfAReservingPod: and what one leaves that goes without an owner is free.
func TestOthersDoNotGetTheRoomOfAReservingPod(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ app, amounts, annotations, want string }{
		"no owner":                    {"other", "cpu: 3", "", "Unschedulable"},
		"no owner, beside it":         {"other", "cpu: 2", "", "Scheduled n0"},
		"an owner":                    {"web", "cpu: 4", "", "Scheduled n0"},
		"an owner that asks for more": {"web", "cpu: 6", "", "Scheduled n0"},
		"an owner that ignores it":    {"web", "cpu: 3", "", "Unschedulable"},
	} {
		labels := ""
		if strings.Contains(name, "ignores") {
			labels = ", " + annotation.ReservationIgnored + `: "true"`
		}
		in := plain("n0", 6) + strings.ReplaceAll(keeper("r", "web", "cpu: 4"), lsr, "a: b") +
			using("p", c.app, labels, c.amounts, c.annotations)
		r, _ := simulate(t, in, "-")
		if got := placements(r)["p"]; got != c.want {
			t.Errorf("%s: %s, want %s: %v", name, got, c.want, stateOf(r, "p").Reasons)
		}
	}
}

// TestAReservingPodIsUsedOnceWhateverIsKilled: the scheduler is killed before each of its writes, and the next one
// starts from what is there: the pod gets the CPUs that were kept as long as the reserving pod is there, and these CPUs
// are never given to two pods.
func TestAReservingPodIsUsedOnceWhateverIsKilled(t *testing.T) {
	t.Parallel()
	type kill struct{ write, left string }
	var kills []kill
	in := machine("n0") + keeper("r", "web", four) + using("web", "web", ", "+lsr, four, "")
	first, err := simulated(t, in, func(e *engine) {
		e.api.fault = func(r *http.Request, body []byte) error {
			kills = append(kills, kill{fmt.Sprint(r.Method, " ", r.URL.Path, " ", string(body)), objectsOf(t, e)})
			return nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	held := stateOf(first, "web").CPUSet
	var writes []string
	for _, k := range kills {
		writes = append(writes, k.write)
		r, err := simulated(t, machine("n0")+k.left, func(*engine) {})
		if err != nil {
			t.Fatal(err)
		}
		web := stateOf(r, "web")
		if web.State == Unschedulable && strings.Contains(k.left, annotation.ReservationCurrentOwnerKey) {
			continue // the announcement of the killed scheduler is withdrawn later
		}
		if web.CPUSet != held || web.State != Scheduled && web.State != Existing {
			t.Errorf("killed before %s: the owner is %s with CPUs %s, want %s: %v", k.write, web.State, web.CPUSet,
				held, web.Reasons)
		}
	}
	if all := strings.Join(writes, "\n"); strings.Count(all, "binding") != 2 || strings.Count(all, "DELETE") != 1 {
		t.Errorf("writes:\n%s", all)
	}
}

// TestNoOtherPodGetsTheRoomThatAReservingPodHasLeft: the scheduler is killed when the reserving pod has ended and its
// owner is not bound yet. Another pod waits longer.
func TestNoOtherPodGetsTheRoomThatAReservingPodHasLeft(t *testing.T) {
	t.Parallel()
	left := ""
	in := plain("n0", 6) + strings.ReplaceAll(keeper("r", "web", "cpu: 4"), lsr, "a: b") +
		using("web", "web", "", "cpu: 4", "")
	_, err := simulated(t, in, func(e *engine) {
		e.api.fault = func(r *http.Request, _ []byte) error {
			if strings.HasSuffix(r.URL.Path, "/pods/web/binding") {
				left = objectsOf(t, e)
			}
			return nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if left == "" || strings.Contains(left, "name: r\n") {
		t.Fatalf("the reserving pod has not ended before the Binding:\n%s", left)
	}
	r, _ := simulate(t, plain("n0", 6)+using("first", "other", "", "cpu: 3", "")+left, "-")
	if got := placements(r); got["web"] != "Scheduled n0" || got["first"] != "Unschedulable" {
		t.Errorf("placed %v, want web alone; what is left:\n%s", got, left)
	}
}

// TestAReservingPodUsesNoReservation: what it left to the pod that uses it would belong to two.
func TestAReservingPodUsesNoReservation(t *testing.T) {
	t.Parallel()
	in := machine("n0") + reservationFor("s", "keeper", lsr, four, shares) + keeper("r", "web", four)
	r, _ := simulate(t, in, "-")
	if got := reservationOf(t, r, "s"); len(got.Users) > 0 || stateOf(r, "r").CPUSet == got.CPUSet {
		t.Errorf("the reserving pod on %s uses %+v", stateOf(r, "r").CPUSet, got)
	}
}
