package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
)

// reservationFor is a Reservation for pods with the label app; spec goes into its spec, amounts are its requests and
// limits.
func reservationFor(name, app, labels, amounts, spec string) string {
	return fmt.Sprintf("\n{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: Reservation, metadata: {name: %s}, "+
		"spec: {owners: [{labelSelector: {matchLabels: {app: %s}}}], template: {metadata: {labels: {%s}}, "+
		"spec: {containers: [{name: c, resources: {requests: {%s}, limits: {%[4]s}}}]}}%[5]s}}\n---",
		name, app, labels, amounts, spec)
}

// using is a pod with the label app; annotations are YAML.
func using(name, app, labels, amounts, annotations string) string {
	return fmt.Sprintf("\n{apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {app: %s%s}, annotations: {%s}}, "+
		"spec: {containers: [{name: c, image: i, resources: {requests: {%s}, limits: {%[5]s}}}]}}\n---",
		name, app, labels, annotations, amounts)
}

const (
	lsr    = "koordinator.sh/qosClass: LSR"
	four   = "cpu: 4, memory: 1Gi"
	fourG  = four + ", koordinator.sh/gpu-core: 100, koordinator.sh/gpu-memory-ratio: 100"
	useR   = annotation.ReservationAffinityKey + `: '{"name":"r"}'`
	shares = `, allocateOnce: false`
)

func gpuMachine() string { return machine("n0") + "\n" + deviceOf("n0", twoGPUs) + "\n---" }

func reservationOf(t *testing.T, r Result, name string) Reservation {
	t.Helper()
	for _, one := range r.Reservations {
		if one.Name == name {
			return one
		}
	}
	t.Fatalf("no reservation %s: %+v", name, r.Reservations)
	return Reservation{}
}

// TestAPodGetsTheVeryCPUsAndTheGPUThatWereReserved: a pod that is not an owner gets others, and the rest of a
// reservation for one pod is free once it has one.
func TestAPodGetsTheVeryCPUsAndTheGPUThatWereReserved(t *testing.T) {
	t.Parallel()
	in := gpuMachine() + reservationFor("r", "web", lsr, fourG, "")
	r, _ := simulate(t, in, "-")
	held := reservationOf(t, r, "r")
	if held.Phase != "Available" || held.Node != "n0" || held.CPUSet == "" || len(held.Devices["gpu"]) != 1 {
		t.Fatalf("reserved %+v, want 4 CPUs and a GPU of n0", held)
	}
	r, _ = simulate(t, in+using("foreign", "other", ", "+lsr, fourG, "")+using("web", "web", ", "+lsr, fourG, ""), "-")
	web, foreign, used := stateOf(r, "web"), stateOf(r, "foreign"), reservationOf(t, r, "r")
	if diff := cmp.Diff(held.Devices, web.Devices); web.CPUSet != held.CPUSet || diff != "" {
		t.Errorf("the owner has CPUs %s, want %s, and devices (-want +got):\n%s", web.CPUSet, held.CPUSet, diff)
	}
	if foreign.State != Scheduled || foreign.CPUSet == held.CPUSet || cmp.Equal(foreign.Devices, held.Devices) {
		t.Errorf("another pod has %s and %v: those were reserved", foreign.CPUSet, foreign.Devices)
	}
	if want := `{"name":"r","uid":"reservation-r"}`; web.Annotations[annotation.ReservationAllocatedKey] != want {
		t.Errorf("the owner's annotation is %q, want %s", web.Annotations[annotation.ReservationAllocatedKey], want)
	}
	if used.Phase != "Succeeded" || !cmp.Equal(used.Users, []string{"default/web"}) || used.CPUSet != "" {
		t.Errorf("the reservation is %+v, want it used by default/web", used)
	}
}

func TestOthersDoNotGetReservedRoom(t *testing.T) {
	t.Parallel()
	in := plain("n0", 6) + reservationFor("r", "web", "a: b", four, "") // 2 CPUs are left
	r, _ := simulate(t, in+using("foreign", "other", "", "cpu: 3", "")+using("small", "other", "", "cpu: 2", ""), "-")
	if got := stateOf(r, "foreign"); got.State != Unschedulable || len(got.Reasons) == 0 ||
		!strings.Contains(fmt.Sprint(got.Reasons), "reservation") {
		t.Errorf("a pod that is not an owner is %s, %v, want it refused for the sake of the reservation", got.State,
			got.Reasons)
	}
	if got := stateOf(r, "small"); got.State != Scheduled {
		t.Errorf("a pod that fits beside the reservation is %s: %v", got.State, got.Reasons)
	}
}

// TestPoliciesOfReservations are the examples of the guide: 2 CPUs are free beside 4 that are reserved.
func TestPoliciesOfReservations(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ spec, amounts, annotations, want string }{
		"aligned, more than reserved":    {"", "cpu: 6", "", "Scheduled n0"},
		"aligned, more than there is":    {"", "cpu: 7", "", "Unschedulable"},
		"restricted, more than reserved": {", allocatePolicy: Restricted", "cpu: 6", useR, "Unschedulable"},
		"restricted, as much":            {", allocatePolicy: Restricted", "cpu: 4", useR, "Scheduled n0"},
		"restricted, not reserved": {
			", allocatePolicy: Restricted", "cpu: 3, nvidia.com/gpu: 1", useR, "Scheduled n0",
		},
		"restricted, without and with fit": {", allocatePolicy: Restricted", "cpu: 6", "", "Unschedulable"},
		"unschedulable":                    {", unschedulable: true", "cpu: 4", useR, "Unschedulable"},
		"another name": {
			"", "cpu: 4", annotation.ReservationAffinityKey + `: '{"name":"s"}'`, "Unschedulable",
		},
		"a taint": {", taints: [{key: k, effect: NoSchedule}]", "cpu: 4", useR, "Unschedulable"},
		"a taint that is tolerated": {
			", taints: [{key: k, effect: NoSchedule}]", "cpu: 4",
			annotation.ReservationAffinityKey + `: '{"name":"r","tolerations":[{"operator":"Exists"}]}'`,
			"Scheduled n0",
		},
		"expired": {`, expires: "2020-01-01T00:00:00Z"`, "cpu: 6", "", "Scheduled n0"},
	} {
		in := machineWith(gpu, 1)
		in = strings.ReplaceAll(in, "cpu: 200", "cpu: 6")
		in += reservationFor("r", "web", "a: b", "cpu: 4", c.spec) + using("p", "web", "", c.amounts, c.annotations)
		r, _ := simulate(t, in, "-")
		if got := placements(r)["p"]; got != c.want {
			t.Errorf("%s: %s, want %s: %v", name, got, c.want, stateOf(r, "p").Reasons)
		}
	}
}

// TestTheReasonNamesARestrictedReservationThatIsTooSmall also where it may do without.
func TestTheReasonNamesARestrictedReservationThatIsTooSmall(t *testing.T) {
	t.Parallel()
	for _, affinity := range []string{"", useR} {
		in := plain("n0", 6) + reservationFor("r", "web", "a: b", four, ", allocatePolicy: Restricted") +
			using("p", "web", "", "cpu: 6", affinity)
		r, _ := simulate(t, in, "-")
		if got := stateOf(r, "p").Reasons; len(got) == 0 || got[0].Code != why.ReservationRestricted {
			t.Errorf("affinity %q: got %v, want ReservationRestricted first", affinity, got)
		}
	}
}

// TestTheReasonIsThatOfTheRoomThatTheOwnerHas: an owner has 4 reserved CPUs and 2 that are free, any other pod these 2.
func TestTheReasonIsThatOfTheRoomThatTheOwnerHas(t *testing.T) {
	t.Parallel()
	fill := strings.Replace(occupant("fill", "cpu: 2, memory: 1Gi", annotation.ResourceStatusKey+
		`: '{"cpuset":"6-7"}'`), "app: web", "app: fill, "+lsr, 1)
	others := reservationFor("s", "other", "a: b", "cpu: 2", "")
	for name, c := range map[string]struct{ spec, beside, owner, labels, amounts, want string }{
		"an owner, more than both":        {"", fill, "web", "a: b", "cpu: 7", "InsufficientCPU"},
		"an owner, the last CPUs":         {"", fill, "web", lsr, "cpu: 6", "SharedPoolFloor"},
		"another pod":                     {"", fill, "foreign", "a: b", "cpu: 7", "InsufficientCPU"},
		"another pod that would fit else": {"", fill, "foreign", "a: b", "cpu: 6", "ReservedForOthers"},
		"an owner that would fit else":    {"", others, "web", "a: b", "cpu: 8", "ReservedForOthers"},
		"an owner of a Reservation that gives no more": {
			", allocatePolicy: Restricted", others, "web", "a: b", "cpu: 8", "ReservationRestricted",
		},
	} {
		r, err := simulated(t, following("none")+c.beside+reservationFor("r", "web", lsr, four, c.spec)+
			using("p", c.owner, ", "+c.labels, c.amounts+", memory: 1Gi", ""), func(*engine) {})
		testkit.Check(t, err)
		got := stateOf(r, "p").Reasons
		isForOthers := func(r Reason) bool { return r.Code == why.ReservedForOthers }
		if len(got) == 0 || got[0].Code.String() != c.want ||
			slices.ContainsFunc(got[1:], isForOthers) {
			t.Errorf("%s: %v, want %s first", name, got, c.want)
		}
	}
}

func TestOfTwoOwnersOneUsesAReservationForOnePod(t *testing.T) {
	t.Parallel()
	owners := using("a", "web", "", "cpu: 4", useR) + using("b", "web", "", "cpu: 4", useR)
	r, _ := simulate(t, plain("n0", 32)+reservationFor("r", "web", "a: b", four, "")+owners, "-")
	if got := placements(r); got["a"] != "Scheduled n0" || got["b"] != "Unschedulable" {
		t.Errorf("placed %v, want a alone", got)
	}
	if got := reservationOf(t, r, "r"); !cmp.Equal(got.Users, []string{"default/a"}) {
		t.Errorf("owners %v, want default/a", got.Users)
	}
	if message := fmt.Sprint(stateOf(r, "b").Reasons); !strings.Contains(message, "no reservations match") {
		t.Errorf("the other owner is refused with %s", message)
	}
}

func TestSeveralOwnersShareAReservation(t *testing.T) {
	t.Parallel()
	owners := ""
	for _, name := range []string{"a", "b", "c"} {
		owners += using(name, "web", ", "+lsr, "cpu: 2, memory: 64Mi", useR)
	}
	restricted := reservationFor("r", "web", lsr, four, shares+", allocatePolicy: Restricted")
	r, _ := simulate(t, machine("n0")+restricted+owners, "-")
	if got := placements(r); got["a"] != "Scheduled n0" || got["b"] != "Scheduled n0" || got["c"] != "Unschedulable" {
		t.Errorf("placed %v, want two of three pods of 2 CPUs in 4", got)
	}
	if a, b := stateOf(r, "a"), stateOf(r, "b"); a.CPUSet == b.CPUSet || a.CPUSet == "" {
		t.Errorf("a has CPUs %s, b %s", a.CPUSet, b.CPUSet)
	}
	got := reservationOf(t, r, "r")
	if got.Phase != "Available" || got.Allocated["cpu"] != "4" || got.Allocated["memory"] != "128Mi" ||
		got.CPUSet != "" {
		t.Errorf("the reservation is %+v", got)
	}
}

// TestAReservationAndItsOwnerMayNameGPUsInTwoWays: a quota counts a GPU once, for the Reservation or for its owner, and
// the owner may ask for exactly what is reserved.
func TestAReservationAndItsOwnerMayNameGPUsInTwoWays(t *testing.T) {
	t.Parallel()
	const percent = "{cpu: 40, memory: 100Gi, koordinator.sh/gpu-core: 100, koordinator.sh/gpu-memory-ratio: 100}"
	const inQuota = "quota.scheduling.koordinator.sh/name: q"
	names := map[string]string{
		"koordinator.sh/gpu":      ", koordinator.sh/gpu: 100",
		"kubernetes.io/gpu":       ", kubernetes.io/gpu: 100",
		"koordinator.sh/gpu-core": ", koordinator.sh/gpu-core: 100, koordinator.sh/gpu-memory-ratio: 100",
		"nvidia.com/gpu":          ", nvidia.com/gpu: 1",
	}
	for reserved, has := range names {
		for asked, asks := range names {
			exact := annotation.ExactMatchReservationKey + `: '{"resourceNames":["` + asked + `"]}', ` + useR
			in := gpuMachine() + elastic(koordinator, "q", "", percent, percent) +
				reservationFor("r", "web", inQuota, four+has, shares) +
				using("a", "web", ", "+inQuota, four+asks, exact)
			r, _ := simulate(t, in, "-")
			if got := placements(r)["a"]; got != "Scheduled n0" {
				t.Errorf("%s for %s: %s: %v", asked, reserved, got, stateOf(r, "a").Reasons)
			}
			left := reservationOf(t, r, "r").Left
			delete(left, "koordinator.sh/gpu.shared") // which a whole GPU does not count
			if len(left) > 0 {
				t.Errorf("%s for %s: the reservation has %v left, want nothing", asked, reserved, left)
			}
			if used := r.Quotas[0].Used["koordinator.sh/gpu-core"]; used != "100" {
				t.Errorf("%s for %s: the quota counts %s, want 100", asked, reserved, used)
			}
		}
	}
}

func TestAReservationThatFitsNowhereSaysWhy(t *testing.T) {
	t.Parallel()
	r, _ := simulate(t, plain("n0", 4)+reservationFor("r", "web", "a: b", "cpu: 8", ""), "-")
	got := reservationOf(t, r, "r")
	if got.Phase != "Pending" || len(got.Reasons) != 1 ||
		!strings.Contains(got.Reasons[0].Message, "Insufficient cpu") {
		t.Errorf("the reservation is %+v, want it pending for CPU", got)
	}
}

func TestAReservationOnOneNodeGoesThere(t *testing.T) {
	t.Parallel()
	in := plain("n0", 4) + plain("n1", 4) + "\n{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: Reservation, " +
		"metadata: {name: r}, spec: {owners: [{object: {name: p}}], template: {spec: {nodeName: n1, " +
		"containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}}"
	r, _ := simulate(t, in, "-")
	if got := reservationOf(t, r, "r"); got.Node != "n1" {
		t.Errorf("reserved on %q, want n1", got.Node)
	}
}

// TestReservationsSurviveARestart: an engine that starts from the objects that another one left decides as that one
// would: the owner gets the reserved CPUs and GPU, and a pod that uses a reservation keeps it from others.
func TestReservationsSurviveARestart(t *testing.T) {
	t.Parallel()
	var left string
	keep := func(in string) Result {
		var last *engine
		r, err := simulated(t, in, func(e *engine) { last = e })
		testkit.Check(t, err)
		left = objectsOf(t, last)
		return r
	}
	first := keep(gpuMachine() + reservationFor("r", "web", lsr, fourG, "") +
		reservationFor("s", "job", lsr, four, shares))
	held := reservationOf(t, first, "r")
	second := keep(gpuMachine() + left + using("web", "web", ", "+lsr, fourG, "") + using("job", "job", ", "+lsr,
		"cpu: 2, memory: 64Mi", ""))
	web, job := stateOf(second, "web"), stateOf(second, "job")
	if diff := cmp.Diff(held.Devices, web.Devices); web.CPUSet != held.CPUSet || diff != "" {
		t.Errorf("the owner has CPUs %s, want %s, and devices (-want +got):\n%s", web.CPUSet, held.CPUSet, diff)
	}
	third := keep(gpuMachine() + left + using("web2", "web", ", "+lsr, fourG, useR))
	if got := stateOf(third, "web2").State; got != Unschedulable {
		t.Errorf("a second pod of a used reservation is %s", got)
	}
	if got := reservationOf(t, third, "s"); got.Allocated["cpu"] != "2" ||
		!cmp.Equal(got.Users, []string{"default/job"}) || got.CPUSet == "" ||
		strings.Contains(job.CPUSet, got.CPUSet) {
		t.Errorf("the reservation of %s is %+v", job.CPUSet, got)
	}
}

// TestAReservationForOnePodIsUsedOnceThoughItsPodIsGoneAtARestart: the scheduler is killed before each of its writes,
// and its owner is deleted or not before the next scheduler starts, which finds a second pod for the Reservation.
func TestAReservationForOnePodIsUsedOnceThoughItsPodIsGoneAtARestart(t *testing.T) {
	t.Parallel()
	owner := func(name string) string { return using(name, "web", ", "+lsr, four, useR) }
	type kill struct{ write, left string }
	var kills []kill
	_, err := simulated(t, machine("n0")+reservationFor("r", "web", lsr, four, "")+owner("web"), func(e *engine) {
		e.api.fault = func(r *http.Request, body []byte) error {
			kills = append(kills, kill{fmt.Sprint(r.Method, " ", r.URL.Path, " ", string(body)), objectsOf(t, e)})
			return nil
		}
	})
	testkit.Check(t, err)
	if len(kills) != 5 || !strings.Contains(kills[2].write, `{"currentOwners":[`) ||
		!strings.Contains(kills[3].write, "/binding ") || !strings.Contains(kills[4].write, `"Succeeded"`) {
		t.Fatalf("%d writes, want CPUs, node, owner, Binding and Succeeded: %+v", len(kills), kills)
	}
	for i, k := range kills {
		for deleted, what := range map[bool]string{false: "is there", true: "was deleted"} {
			objects := ""
			for _, object := range strings.SplitAfter(k.left, "\n---") {
				if !deleted || !strings.Contains(object, `"kind":"Pod"`) {
					objects += object
				}
			}
			var last *engine
			r, err := simulated(t, machine("n0")+objects+owner("web2"), func(e *engine) { last = e })
			testkit.Check(t, err)
			users := ""
			for _, p := range podsOf(last) {
				if p.Annotations[annotation.ReservationAllocatedKey] != "" {
					users += p.Name
				}
			}
			want := "web"
			if deleted {
				want = []string{"web2", "web2", "web2", "", ""}[i] // announced before the fourth write
			}
			if got := reservationOf(t, r, "r"); users != want || got.Phase != "Succeeded" {
				t.Errorf("killed before %s, and the owner %s: pods %q use the Reservation, want %q; it is %+v", k.write,
					what, users, want, got)
			}
		}
	}
}

// objectsOf are the pods and Reservations that an engine leaves in its API server.
func objectsOf(t *testing.T, e *engine) (out string) {
	t.Helper()
	add := func(o any) {
		text, err := json.Marshal(o)
		testkit.Check(t, err)
		out += "\n" + string(text) + "\n---"
	}
	for _, r := range e.api.reservations.List() {
		add(r)
	}
	for _, o := range e.api.pods.GetStore().List() {
		pod := o.(*corev1.Pod).DeepCopy()
		pod.APIVersion, pod.Kind = "v1", "Pod"
		add(pod)
	}
	return out
}
