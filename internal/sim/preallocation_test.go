package sim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/testkit"
)

// occupant is a pod on the node n0 with the label app: web; annotations are YAML.
func occupant(name, cpu, annotations string) string {
	return strings.Replace(using(name, "web", "", cpu, annotations), "spec: {", "spec: {nodeName: n0, ", 1)
}

// occupied returns the pods that say that they use the Reservation r, or that hold room for it.
func occupied(e *engine) string {
	var names []string
	for _, p := range podsOf(e) {
		if strings.Contains(p.Annotations[annotation.ReservationAllocatedKey], `"name":"r"`) {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, "")
}

// TestAReservationIsPlacedOnTheRoomOfRunningPods: 2 of 8 CPUs are free for a Reservation of 4.
func TestAReservationIsPlacedOnTheRoomOfRunningPods(t *testing.T) {
	t.Parallel()
	const pre, several = ", preAllocation: true", ", preAllocation: true, preAllocationPolicy: {enableMultiple: true}"
	first := annotation.PreAllocatablePriority + `: "5"`
	pair := occupant("a", "cpu: 1", "") + occupant("b", "cpu: 1", "") + runs("c", "cpu: 4", 0, "")
	three := occupant("a", "cpu: 3", "") + occupant("b", "cpu: 2", "") + runs("c", "cpu: 1", 0, "")
	const cluster = ", preAllocation: true, preAllocationPolicy: {mode: Cluster}"
	offered := occupant("a", "cpu: 3", "") + strings.Replace(runs("c", "cpu: 3", 0, ""), "labels: {",
		"labels: {"+annotation.IsPreAllocatable+`: "true", `, 1)
	for name, c := range map[string]struct {
		spec, labels, running string
		phase, occupants      string
		left                  string // of CPU
		reason                string
	}{
		"without preAllocation":     {"", "", three, "Pending", "", "", ""},
		"the pod that leaves least": {pre, "", three, "Waiting", "a", "1", "pod default/a has not ended"},
		"the pod of highest priority": {
			pre, "", occupant("a", "cpu: 3", "") + occupant("b", "cpu: 3", first), "Waiting", "b", "1", "",
		},
		"no single pod is enough": {
			pre, "", pair, "Pending", "",
			"", "node(s) no pod(s) to meet the pre-allocation requirements",
		},
		"two pods together are": {
			several, "", pair, "Waiting",
			"ab", "2", "pods default/a, default/b have not ended",
		},
		"no running pod matches": {pre, "", runs("c", "cpu: 6", 0, ""), "Pending", "", "", ""},
		"enough is free":         {pre, "", occupant("a", "cpu: 1", ""), "Available", "", "4", ""},
		"enough is free, but running pods are required": {
			pre, "required", occupant("a", "cpu: 1", ""), "Waiting", "a", "3", "",
		},
		"a pod of any owner, which the arguments do not allow": {
			cluster, "", offered, "Pending", "", "",
			"reservation requires cluster mode pre-allocation which is disabled",
		},
		"a pod of any owner": {cluster, "allowed", offered, "Waiting", "c", "1", ""},
		"no pod is offered":  {cluster, "allowed", three, "Pending", "", "", ""},
		"running pods are required, and none matches": {
			pre, "required", runs("c", "cpu: 1", 0, ""), "Pending", "", "",
			"node(s) no pod match reservation with pre allocation required",
		},
	} {
		reserved := reservationFor("r", "web", "a: b", "cpu: 4", c.spec)
		if c.labels == "required" {
			reserved = strings.Replace(reserved, "{name: r}", "{name: r, labels: {"+annotation.PreAllocationRequired+
				`: "true"}}`, 1)
		}
		var last *engine
		r, err := simulated(t, plain("n0", 8)+c.running+reserved, func(e *engine) {
			last, e.api.reserved.ClusterMode = e, c.labels == "allowed"
		})
		testkit.Check(t, err)
		got := reservationOf(t, r, "r")
		if got.Phase != c.phase || occupied(last) != c.occupants || got.Left["cpu"] != c.left ||
			!strings.Contains(fmt.Sprint(got.Reasons, got.Message), c.reason) {
			t.Errorf("%s: %s on the room of %q, %s CPUs left, want %s, %q, %s: %v", name, got.Phase, occupied(last),
				got.Left["cpu"], c.phase, c.occupants, c.left, got.Reasons)
		}
	}
}

// TestTheRoomOfAGuaranteedPodIsTakenOverUnlessItHasCPUsOfItsOwn: 2 of 8 CPUs are free for a Reservation of 4.
func TestTheRoomOfAGuaranteedPodIsTakenOverUnlessItHasCPUsOfItsOwn(t *testing.T) {
	t.Parallel()
	const guaranteed = "cpu: 6, memory: 1Gi"
	own := strings.Replace(occupant("a", guaranteed, annotation.ResourceStatusKey+`: '{"cpuset":"0-5"}'`),
		"app: web", "app: web, "+lsr, 1)
	for name, c := range map[string]struct{ node, pod, want string }{
		"on a node of which nothing is known":   {plain("n0", 8), occupant("a", guaranteed, ""), "Waiting a"},
		"on a node whose kubelet pins no CPUs":  {following("none"), occupant("a", guaranteed, ""), "Waiting a"},
		"on a node whose kubelet pins its CPUs": {following("static"), occupant("a", guaranteed, ""), "Pending "},
		"on such a node, without whole CPUs": {
			following("static"), occupant("a", "cpu: 5500m, memory: 1Gi", ""), "Waiting a",
		},
		"with CPUs that Tenon has allocated to it": {following("none"), own, "Pending "},
	} {
		var last *engine
		r, err := simulated(t, c.node+c.pod+reservationFor("r", "web", "a: b", "cpu: 4", ", preAllocation: true"),
			func(e *engine) { last = e })
		testkit.Check(t, err)
		if got := reservationOf(t, r, "r"); got.Phase+" "+occupied(last) != c.want {
			t.Errorf("%s: %s on the room of %q, want %s: %v", name, got.Phase, occupied(last), c.want, got.Reasons)
		}
	}
}

// TestAWaitingReservationGetsTheRoomOfItsPodsWhenTheyEnd: until then no pod uses it, and then no other pod gets it. A
// scheduler may be killed between any two steps.
func TestAWaitingReservationGetsTheRoomOfItsPodsWhenTheyEnd(t *testing.T) {
	t.Parallel()
	in := plain("n0", 8) + occupant("a", "cpu: 3", "") + runs("c", "cpu: 3", 0, "")
	reserved := reservationFor("r", "web", "a: b", "cpu: 4", ", preAllocation: true")
	next := using("next", "web", "", "cpu: 4", useR) + using("foreign", "other", "", "cpu: 2", "")
	type kill struct{ write, left string }
	var kills []kill
	_, err := simulated(t, in+reserved, func(e *engine) {
		e.api.fault = func(r *http.Request, body []byte) error {
			if r.Method != http.MethodGet {
				kills = append(kills, kill{fmt.Sprint(r.Method, " ", r.URL.Path), objectsOf(t, e)})
			}
			return nil
		}
	})
	testkit.Check(t, err)
	var end *engine
	if _, err := simulated(t, in+reserved, func(e *engine) { end = e }); err != nil {
		t.Fatal(err)
	}
	kills = append(kills, kill{"nothing more", objectsOf(t, end)})
	for _, k := range kills {
		var last *engine
		r, err := simulated(t, plain("n0", 8)+k.left+next, func(e *engine) { last = e })
		testkit.Check(t, err)
		got := reservationOf(t, r, "r")
		if p := placements(r); got.Phase != "Waiting" || occupied(last) != "a" || p["next"] != "Unschedulable" ||
			p["foreign"] != "Unschedulable" {
			t.Errorf("killed before %s: it is %s on the room of %q, pods are %v", k.write, got.Phase, occupied(last), p)
		}
		left := objectsWithout(t, last, "a", "next", "foreign")
		r, _ = simulate(t, plain("n0", 8)+left+next, "-")
		if p := placements(r); p["next"] != "Scheduled n0" || p["foreign"] != "Unschedulable" {
			t.Errorf("killed before %s, and its pod ended: pods are %v, want next alone: %+v", k.write, p,
				reservationOf(t, r, "r"))
		}
	}
	if len(kills) < 3 {
		t.Errorf("%d writes, want node and annotation: %v", len(kills), kills)
	}
}

// objectsWithout are those of objectsOf without some pods.
func objectsWithout(t *testing.T, e *engine, pods ...string) string {
	t.Helper()
	for _, name := range pods {
		for _, o := range e.api.pods.GetStore().List() {
			if p := o.(*corev1.Pod); p.Name == name {
				testkit.Check(t, e.api.pods.GetStore().Delete(p))
			}
		}
	}
	return objectsOf(t, e)
}
