package reserving

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestPodsWakeForAReservationThatOpens: its owners do, when it has become available, has more left or other owners.
func TestPodsWakeForAReservationThatOpens(t *testing.T) {
	t.Parallel()
	p := reservedFor(t, 2)
	now, _ := p.reservations.Find("u0")
	changed := func(change func(*v1alpha1.Reservation)) *v1alpha1.Reservation {
		was := now.DeepCopy()
		change(was)
		return was
	}
	allocated := func(cpu string) func(*v1alpha1.Reservation) {
		return func(r *v1alpha1.Reservation) { r.Status.Allocated = object.List("cpu", cpu) }
	}
	using := changed(allocated("2"))
	for name, c := range map[string]struct {
		old, object any
		app         string
		want        bool
	}{
		"it is there":        {nil, now, "web", true},
		"of another owner":   {nil, now, "other", false},
		"it gets a node":     {changed(func(r *v1alpha1.Reservation) { r.Status.Phase = "Pending" }), now, "web", true},
		"a user leaves":      {using, now, "web", true},
		"one of two leaves":  {changed(allocated("3")), using, "web", true},
		"a user comes":       {now, using, "web", false},
		"it has other specs": {changed(func(r *v1alpha1.Reservation) { r.Generation = 7 }), now, "web", true},
		"nothing new":        {now.DeepCopy(), now, "web", false},
		"it has no node": {
			nil, changed(func(r *v1alpha1.Reservation) { r.Status.Phase = "Pending" }), "web", false,
		},
		"it is gone":          {now, nil, "web", false},
		"a pod":               {nil, object.Pod("p"), "web", false},
		"another on its node": {nil, changed(func(r *v1alpha1.Reservation) { r.UID = "u1" }), "web", false},
	} {
		mayUse := p.Opened(c.old, c.object)
		pod := object.Pod("p", object.Label("app", c.app), object.Requests("cpu", "1"))
		if got := mayUse != nil && mayUse(pod); got != c.want {
			t.Errorf("%s: the pod wakes: %t, want %t", name, got, c.want)
		}
		if mayUse != nil && mayUse(&corev1.Pod{}) {
			t.Errorf("%s: a pod without labels wakes", name)
		}
	}
}
