package system

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// races are Reservations for one pod, each with two owners that may be placed in it alone.
type races struct {
	*local
	made int
}

const raceNamespace = "races"

func newRaces(t *testing.T, l *local) *races {
	t.Helper()
	_, err := l.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: raceNamespace},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	return &races{local: l}
}

func raceName(i int) string { return fmt.Sprintf("race-%d", i) }

// create creates a Reservation and its owners.
func (r *races) create(t *testing.T) {
	t.Helper()
	name := raceName(r.made)
	r.made++
	text := fmt.Appendf(nil, `{"apiVersion":"scheduling.koordinator.sh/v1alpha1","kind":"Reservation","metadata":{`+
		`"name":%q},"spec":{"owners":[{"labelSelector":{"matchLabels":{"race":%[1]q}}}],"template":{"metadata":{`+
		`"labels":{"koordinator.sh/qosClass":"LSR"}},"spec":{"schedulerName":"tenon-scheduler","containers":[{`+
		`"name":"main","resources":{"requests":{"cpu":"2","memory":"64Mi"},"limits":{"cpu":"2","memory":"64Mi"}}}]}}}}`,
		name)
	waitFor(t, time.Minute, "Reservation "+name+" to be created", func() error {
		err := r.client.CoreV1().RESTClient().Post().AbsPath(racePath("")).Body(text).Do(t.Context()).Error()
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	for _, owner := range []string{"a", "b"} {
		p := pod(name+"-"+owner, object.Class("LSR"), object.Both("cpu", "2", "memory", "64Mi"),
			object.Label("race", name), object.Annotation(annotation.ReservationAffinityKey, `{"name":"`+name+`"}`))
		p.Namespace = raceNamespace
		r.submit(t, p)
	}
}

func racePath(name string) string {
	at := v1alpha1.Resource()
	return "/apis/" + at.Group + "/" + at.Version + "/" + at.Resource + "/" + name
}

// check waits until each Reservation has been used, by one of its owners and with the CPUs that were reserved; the
// other one waits.
func (r *races) check(t *testing.T) {
	t.Helper()
	for i := range r.made {
		waitFor(t, 2*time.Minute, raceName(i)+" to be decided", func() error { return r.decided(t, raceName(i)) })
	}
}

func (r *races) decided(t *testing.T, name string) error {
	text, err := r.client.CoreV1().RESTClient().Get().AbsPath(racePath(name)).DoRaw(t.Context())
	if err != nil {
		return err
	}
	reservation, err := kube.ReadReservation(text)
	if err != nil {
		return err
	}
	ofRace := metav1.ListOptions{LabelSelector: "race=" + name}
	pods, err := r.client.CoreV1().Pods(raceNamespace).List(t.Context(), ofRace)
	if err != nil {
		return err
	}
	var users []string
	for i := range pods.Items {
		p := &pods.Items[i]
		text, uses := p.Annotations[annotation.ReservationAllocatedKey]
		if uses != (p.Spec.NodeName != "") {
			return fmt.Errorf("pod %s is on node %q and uses %q", p.Name, p.Spec.NodeName, text)
		}
		if !uses {
			continue
		}
		users = append(users, p.Name)
		used, _, err := annotation.ParseReservationAllocated(text)
		if err != nil || used.UID != reservation.UID {
			return fmt.Errorf("pod %s uses %s, %w", p.Name, text, err)
		}
		reserved, _, err := annotation.ParseResourceStatus(reservation.Annotations[annotation.ResourceStatusKey])
		if err != nil || factOf(p).cpuset != reserved.CPUSet || p.Spec.NodeName != reservation.Status.NodeName {
			return fmt.Errorf("pod %s has CPUs %s on %s, reserved are %s on %s: %w", p.Name, factOf(p).cpuset,
				p.Spec.NodeName, reserved.CPUSet, reservation.Status.NodeName, err)
		}
	}
	if len(users) != 1 || reservation.Status.Phase != v1alpha1.ReservationSucceeded ||
		len(reservation.Status.CurrentOwners) != 1 {
		return fmt.Errorf("used by %v, %s with owners %v", users, reservation.Status.Phase,
			reservation.Status.CurrentOwners)
	}
	return nil
}
