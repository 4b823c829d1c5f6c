package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
)

// reservationJSON is a Reservation of four exclusive CPUs and 8Gi.
func reservationJSON(name, annotations, spec, status string) string {
	return fmt.Sprintf(`{"apiVersion":"scheduling.koordinator.sh/v1alpha1","kind":"Reservation",`+
		`"metadata":{"name":%q,"uid":"uid-%s","annotations":{%s}},"spec":{"ttl":"2h","template":{"metadata":{"labels":`+
		`{"koordinator.sh/qosClass":"LSR"}},"spec":{"containers":[{"name":"a","resources":{"requests":`+
		`{"cpu":"4","memory":"8Gi"},"limits":{"cpu":"4","memory":"8Gi"}}}]}},%s},"status":{%s}}`,
		name, name, annotations, spec, status)
}

// reservationList has one that a pod uses, one that waits, one that has ended, and one for a controller.
func reservationList() []string {
	const cpus = `"scheduling.koordinator.sh/resource-status":"{\"cpuset\":\"%s\"}"`
	const on = `"phase":"Available","nodeName":"n","allocatable":{"cpu":"4","memory":"8Gi"}`
	app := `"owners":[{"labelSelector":{"matchLabels":{"app":"web"}}}]`
	return []string{
		reservationJSON("used", fmt.Sprintf(cpus, "0-3"), `"allocateOnce":false,`+app, on+
			`,"currentOwners":[{"namespace":"default","name":"web-0","uid":"uid-web-0"}],"allocated":{"cpu":"2"}`),
		reservationJSON("waits", "", app, `"phase":"Pending","conditions":[{"type":"Scheduled","status":"False",`+
			`"reason":"Unschedulable","message":"0/1 nodes are available: 1 Insufficient cpu."}]`),
		reservationJSON("over", "", `"expires":"2026-03-01T12:00:00Z",`+app, `"phase":"Failed","nodeName":"n",`+
			`"conditions":[{"type":"Ready","status":"False","reason":"Expired","message":"expired at noon"}]`),
		reservationJSON("held", fmt.Sprintf(cpus, "4-7"), `"allocatePolicy":"Restricted","owners":[{"controller":`+
			`{"kind":"ReplicaSet","name":"web-98","namespace":"default"}},`+
			`{"object":{"namespace":"ml","name":"a"}}]`, on),
	}
}

func reservationServer(t *testing.T) *httptest.Server {
	t.Helper()
	user := pod("web-0", "LSR", "2", "n", `{"cpuset":"0-1"}`)
	user.Annotations[annotation.ReservationAllocatedKey] = `{"name":"used","uid":"uid-used"}`
	rest := apiServer(t, []corev1.Node{node("n", "16", nil)}, []corev1.Pod{user},
		[]v1alpha2.NodeResourceTopology{topology(t, "n", shape{1, 1, 16, 1}, nil)}).Config.Handler
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/scheduling.koordinator.sh/v1alpha1/reservations" {
			rest.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"apiVersion":"scheduling.koordinator.sh/v1alpha1","kind":"ReservationList",`+
			`"items":[%s]}`, strings.Join(reservationList(), ","))
	}))
	t.Cleanup(s.Close)
	return s
}

func TestReservationsAsGolden(t *testing.T) {
	config := kubeconfig(t, reservationServer(t).URL)
	for file, args := range map[string][]string{
		"reservation.txt": {"reservation"}, "reservation-wide.txt": {"reservation", "-o", "wide"},
		"reservation.json": {"reservation", "-o", "json"}, "reservation-one.txt": {"reservation", "held"},
		"reservation-explained.txt": {"explain", "reservation/waits"},
		"reservation-placed.txt":    {"explain", "reservation/used"}, "reservation-top.txt": {"top"},
	} {
		code, out, errOut := run(t, "tenon", append(args, "--kubeconfig", config)...)
		if code != ExitOK {
			t.Errorf("%v: exit code %d\n%s", args, code, errOut)
		}
		golden(t, file, out)
	}
}

func TestAnUnknownReservationIsRefusedByName(t *testing.T) {
	config := kubeconfig(t, reservationServer(t).URL)
	for _, args := range [][]string{{"reservation", "hel"}, {"explain", "reservation/hel"}} {
		code, _, errOut := run(t, "tenon", append(args, "--kubeconfig", config)...)
		if code != ExitUsage || !strings.Contains(errOut, `reservation "hel" not found`) ||
			!strings.Contains(errOut, "held") {
			t.Errorf("%v: exit code %d\n%s", args, code, errOut)
		}
	}
}

// TestAReservationWhoseRoomIsTakenSaysSo: the room is compared with the Node and its pods, whatever the status says.
func TestAReservationWhoseRoomIsTakenSaysSo(t *testing.T) {
	a := newAccount([]corev1.Node{node("n", "8", nil)}, []corev1.Pod{pod("grown", "", "6", "n", "")}, nil)
	r, err := kube.ReadReservation([]byte(reservationJSON("r", "", `"owners":[{"labelSelector":{"matchLabels":`+
		`{"app":"web"}}}]`, `"phase":"Available","nodeName":"n","conditions":[{"type":"Ready","status":"False",`+
		`"reason":"RoomTaken","message":"keeps 4 cpu for owners"}]`)))
	testkit.Check(t, err)
	a.reserved.Put(r)
	one := a.reservations()[0]
	text := drawReservation(&one, paint{}, 120)
	if !strings.Contains(text, "left    cpu 2, memory 8Gi") || !strings.Contains(text, "lacks   keeps 4 cpu") {
		t.Errorf("the Reservation is shown as\n%s", text)
	}
}

// What a Reservation keeps is not free on its node, whether a scheduler is asked or not.
func TestTheAccountOfANodeHasReservations(t *testing.T) {
	a := newAccount([]corev1.Node{node("n", "16", nil)}, nil, []v1alpha2.NodeResourceTopology{
		topology(t, "n", shape{1, 1, 16, 1}, nil),
	})
	for _, text := range reservationList() {
		r, err := kube.ReadReservation([]byte(text))
		testkit.Check(t, err)
		a.reserved.Put(r)
	}
	if pool := a.node("n").SharedPool; pool != "8-15" {
		t.Errorf("the shared pool is %s, want 8-15: the CPUs of two Reservations are reserved", pool)
	}
}

// TestReservationsAreFollowedByHeldNodes: in the table of all of them. A scheduler that does not answer is said.
func TestReservationsAreFollowedByHeldNodes(t *testing.T) {
	t.Parallel()
	const hold = "hold: gang/ml/train, since 3m: n0, n1 until it starts, at the latest at 14:00 by declared run times"
	config, silent := kubeconfig(t, reservationServer(t).URL), "http://127.0.0.1:1"
	server := httptest.NewServer(queueWorld{t: t})
	t.Cleanup(server.Close)
	for name, c := range map[string]struct {
		address     string
		args        []string
		holds, says bool
	}{
		"all":                   {server.URL, nil, true, false},
		"wide":                  {server.URL, []string{"-o", "wide"}, true, false},
		"for programs":          {server.URL, []string{"-o", "json"}, false, false},
		"one":                   {server.URL, []string{"held"}, false, false},
		"without its scheduler": {silent, nil, false, true},
	} {
		args := append([]string{"reservation", "--kubeconfig", config, "--diagnostics", c.address}, c.args...)
		code, out, errOut := run(t, "tenon", args...)
		const note = "note: nodes held for pending pods are not shown: "
		if holds, says := strings.Contains(out, hold), strings.Contains(errOut, note); code != ExitOK ||
			holds != c.holds || says != c.says || !strings.Contains(out, "held") {
			t.Errorf("%s: code %d\n%s%s", name, code, out, errOut)
		}
	}
}
