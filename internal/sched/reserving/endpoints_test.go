package reserving

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

func TestTheReservationsOfANodeAreInKoordinatorsShape(t *testing.T) {
	t.Parallel()
	p := &Plugin{reservations: kube.NewReservations(nil, time.Now)}
	nodes := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().Nodes()
	p.nodes = nodes.Lister()
	for _, name := range []string{"n", "empty"} {
		testkit.Check(t, nodes.Informer().GetStore().Add(object.Node(name, nil)))
	}
	r, err := kube.ReadReservation([]byte(`{"metadata":{"name":"r1","uid":"u1"},"spec":{"allocateOnce":false,` +
		`"allocatePolicy":"Restricted","owners":[{"controller":{"kind":"Job","name":"j"}}],"template":{"spec":` +
		`{"containers":[{"resources":{"requests":{"cpu":"4"}}}]}}},"status":{"phase":"Available","nodeName":"n"}}`))
	testkit.Check(t, err)
	p.reservations.Put(r)
	for _, namespace := range []string{"open", "closed"} {
		user := object.Pod("p", object.UID("uid-"+namespace), object.On("n"), object.Both("cpu", "1"),
			object.Annotation(annotation.ReservationAllocatedKey, `{"name":"r1","uid":"u1"}`))
		user.Namespace = namespace
		p.reservations.PutPod(user)
	}
	ask := func(node string) string {
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		request.SetPathValue("nodeName", node)
		text, err := json.Marshal(p.Diagnostics().Endpoints[0].Answer(request,
			func(namespace string) bool { return namespace == "open" }))
		testkit.Check(t, err)
		return string(text)
	}
	for node, want := range map[string]string{
		"unknown": "null", "empty": `{"items":[]}`,
		"n": `{"items":[{"name":"r1","uid":"u1","kind":"Reservation","available":true,"allocateOnce":false,` +
			`"allocatable":{"cpu":"4"},"allocated":{"cpu":"2"},"owners":[{"controller":{"kind":"Job","name":"j"}}],` +
			`"allocatePolicy":"Restricted","assignedPods":[{"namespace":"open","name":"p","uid":"uid-open"}],` +
			`"podsHidden":1}]}`,
	} {
		if got := ask(node); got != want {
			t.Errorf("node %s:\n got %s\nwant %s", node, got, want)
		}
	}
}
