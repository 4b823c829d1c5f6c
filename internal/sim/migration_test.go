package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// moving is a PodMigrationJob for a pod of the namespace default; spec goes into its spec.
func moving(name, pod, spec string) string {
	return fmt.Sprintf("\n{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: PodMigrationJob, metadata: "+
		"{name: %s}, spec: {podRef: {namespace: default, name: %s}%s}}\n---", name, pod, spec)
}

// deployment has pods with the label app; head ends its metadata.
func deployment(name string, replicas int, labels, amounts, head string) string {
	return fmt.Sprintf("\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s%[5]s, spec: "+
		"{replicas: %[2]d, selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: "+
		"%[1]s%[3]s}}, spec: {containers: [{name: c, image: i, resources: {requests: {%[4]s}, "+
		"limits: {%[4]s}}}]}}}}\n---", name, replicas, labels, amounts, head)
}

const ready = "}"

// budget permits so many disruptions of the pods of an app.
func budget(app string, allowed int) string {
	return fmt.Sprintf("\n{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: %[1]s}, spec: "+
		"{minAvailable: 1, selector: {matchLabels: {app: %[1]s}}}, status: {disruptionsAllowed: %[2]d, "+
		"currentHealthy: 2, desiredHealthy: 1, expectedPods: 2}}\n---", app, allowed)
}

// TestAJobMovesItsPodToTheVeryCPUsAndGPUThatWereHeldForIt: the room is reserved on the other machine before the pod
// goes, and its successor has what the Reservation had.
func TestAJobMovesItsPodToTheVeryCPUsAndGPUThatWereHeldForIt(t *testing.T) {
	t.Parallel()
	in := machine("n0") + "\n" + deviceOf("n0", twoGPUs) + "\n---" + machine("n1") + "\n" + deviceOf("n1", twoGPUs) +
		"\n---" + deployment("web", 2, ", "+lsr, fourG, ready)
	before, _ := simulate(t, in, "-")
	r, _ := simulate(t, in+moving("m", "web-0", ""), "-")
	from := stateOf(before, "web-0").Node
	to := map[string]string{"n0": "n1", "n1": "n0"}[from]
	want := []Migration{{Name: "m", Namespace: "default", Pod: "web-0", From: from, To: to, Phase: "Succeeded"}}
	if diff := cmp.Diff(want, r.Migrations); diff != "" {
		t.Fatalf("migrations (-want +got):\n%s", diff)
	}
	web, room := stateOf(r, "web-0"), reservationOf(t, r, "migration-m")
	if web.State != Scheduled || web.Node != to || web.CPUSet == "" || len(web.Devices["gpu"]) != 1 {
		t.Errorf("the successor is %+v, want it on %s with CPUs and a GPU", web, to)
	}
	if room.Phase != "Succeeded" || room.Node != to || !cmp.Equal(room.Users, []string{"default/web-0"}) {
		t.Errorf("the reservation is %+v, want it used by default/web-0", room)
	}
	if diff := cmp.Diff(stateOf(before, "web-1"), stateOf(r, "web-1")); diff != "" {
		t.Errorf("a pod without a job changes (-before +after):\n%s", diff)
	}
	again, _ := simulate(t, in+moving("m", "web-0", ""), "-")
	if diff := cmp.Diff(printed(t, r, "json"), printed(t, again, "json")); diff != "" {
		t.Errorf("the same input gives other bytes:\n%s", diff)
	}
}

// TestWhatAJobDoes: a job that does not move its pod leaves it where it is, and says why by the descheduler's codes.
func TestWhatAJobDoes(t *testing.T) {
	t.Parallel()
	two := plain("n0", 8) + plain("n1", 8)
	web := two + deployment("web", 2, "", four, ready)
	const own = `, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: u, controller: true}]`
	for name, c := range map[string]struct {
		in, want, message string
		stays             bool // the pod is where it was
	}{
		"a pod of a Deployment": {web + moving("m", "web-0", ""), "Succeeded", "", false},
		"without a reservation": {
			web + moving("m", "web-0", ", mode: EvictDirectly"), "Succeeded", "",
			true, // its node is the best one for the next pod too
		},
		"no other node has room": {
			plain("n0", 8) + plain("n1", 2) + deployment("web", 2, "", four, ready) + moving("m", "web-0", ""),
			"Running Unschedulable", "nodes are available", true,
		},
		"a budget of zero": {
			web + budget("web", 0) + moving("m", "web-0", ""),
			"Pending PDBViolation", ": web allows 0 disruptions", true,
		},
		"a budget of one": {
			web + budget("web", 1) + moving("m", "web-0", ""), "Succeeded", "", false,
		},
		"the only replica": {
			two + deployment("web", 1, "", four, ready) + moving("m", "web-0", ""), "Failed ForbiddenMigratePod",
			"ExpectedReplicas", true,
		},
		"a rollout": {
			two + deployment("web", 2, "", four,
				", generation: 1}, status: {observedGeneration: 1, replicas: 3, updatedReplicas: 1}") +
				moving("m", "web-0", ""), "Pending RolloutInProgress", "web", true,
		},
		"a bare pod": {
			two + shared("web-0", "4", "", "") + moving("m", "web-0", ""), "Failed ForbiddenMigratePod",
			"BarePod", true,
		},
		"an owner that the input does not have": {
			two + shared("web-0", "4", own, ", nodeName: n0") + moving("m", "web-0", ""), "Pending LookupFailed",
			"ReplicaSet default/web is not known", true,
		},
		"a pod that does not exist": {two + moving("m", "web-0", ""), "Failed MissingPod", "does not exist", true},
		"paused": {
			web + moving("m", "web-0", ", paused: true"), "Pending Paused", "takes no step", true,
		},
		"a second pod of the workload within five minutes": {
			two + deployment("web", 2, "", "cpu: 2", ready) + moving("a", "web-1", "") +
				moving("m", "web-0", ""),
			"Pending CapWorkload", "web", true,
		},
		"a named reservation that does not exist": {
			web +
				moving("m", "web-0", ", reservationOptions: {reservationRef: {name: r}}"), "Failed MissingReservation",
			"does not exist", true,
		},
	} {
		r, _ := simulate(t, c.in, "-")
		const v1alpha1Job = "apiVersion: scheduling.koordinator.sh/v1alpha1, kind: PodMigrationJob"
		before, _ := simulate(t, strings.ReplaceAll(c.in, v1alpha1Job, "apiVersion: v1, kind: ConfigMap"), "-")
		got := r.Migrations[len(r.Migrations)-1]
		state := strings.TrimSpace(got.Phase + " " + got.Reason)
		if state != c.want || !strings.Contains(got.Message, c.message) {
			t.Errorf("%s: the job is %q: %s\nwant %q with %q", name, state, got.Message, c.want, c.message)
		}
		was, now := placements(before)["web-0"], placements(r)["web-0"]
		if stays := was == now; stays != c.stays {
			t.Errorf("%s: the pod was %q and is %q", name, was, now)
		}
		if got.Phase == "Failed" && len(r.Reservations) > 0 {
			t.Errorf("%s: the failed job leaves %+v", name, r.Reservations)
		}
	}
}

// TestTwoWorkloadsMoveOneAfterTheOther: arbitration lets two workloads move in one simulation.
func TestTwoWorkloadsMoveOneAfterTheOther(t *testing.T) {
	t.Parallel()
	in := plain("n0", 8) + plain("n1", 8) + plain("n2", 8) + deployment("web", 2, "", "cpu: 2", ready) +
		deployment("db", 2, "", "cpu: 2", ready) + moving("a", "web-0", "") + moving("b", "db-0", "")
	r, _ := simulate(t, in, "-")
	for _, m := range r.Migrations {
		if m.Phase != "Succeeded" || m.From == m.To || placements(r)[m.Pod] != "Scheduled "+m.To {
			t.Errorf("%+v, and the pod is %s", m, placements(r)[m.Pod])
		}
	}
}

func TestAJobThatIsWrongIsBadInput(t *testing.T) {
	t.Parallel()
	bad := func(spec string) string { return moving("m", "p", spec) }
	for name, c := range map[string]struct{ in, want string }{
		"no pod": {
			strings.ReplaceAll(bad(""), "podRef: {namespace: default, name: p}", "paused: true"),
			"spec.podRef: must be set: the namespace and name of a pod",
		},
		"no namespace": {
			strings.ReplaceAll(bad(""), "namespace: default, ", ""), "spec.podRef.namespace: must be set",
		},
		"a mode": {
			bad(", mode: Fast"), `spec.mode: Unsupported value "Fast": supported ReservationFirst, EvictDirectly`,
		},
		"both": {
			bad(", mode: EvictDirectly, reservationOptions: {reservationRef: {name: r}}"),
			"spec.reservationOptions: must not be set with mode EvictDirectly",
		},
		"a bad room": {
			bad(", reservationOptions: {template: {spec: {allocateOnce: false}}}"), "spec.allocateOnce: must be true",
		},
		"a template of another shape": {
			bad(", reservationOptions: {template: {spec: {owners: 1}}}"),
			"spec.reservationOptions.template.spec: byte 11: owners: want a list",
		},
		"the same name": {bad("") + moving("m", "q", ""), "metadata.name: Duplicate value"},
	} {
		_, err := Run(t.Context(), Input{
			Paths: []string{"-"}, Stdin: strings.NewReader(plain("n0", 4) + c.in), Warn: &strings.Builder{},
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %q", name, err, c.want)
		}
	}
}
