package system

import (
	"context"
	"fmt"
	"strings"
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

// aPodTakesRoomThatComesLater: a Reservation and its owner wait for the room of one pod. The Reservation gets it, and
// the owner, which only the amounts of the node had refused, starts there.
func aPodTakesRoomThatComesLater(t *testing.T, l *local) {
	t.Helper()
	pods, rest := l.client.CoreV1().Pods("default"), l.client.CoreV1().RESTClient()
	nodes, err := l.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	size := nodes.Items[0].Status.Allocatable.Cpu().Value()
	state := func(name string, want func(*corev1.Pod) bool) func() error {
		return func() error {
			p, err := pods.Get(t.Context(), name, metav1.GetOptions{})
			if err == nil && !want(p) {
				err = fmt.Errorf("it is on node %q with the conditions %v", p.Spec.NodeName, p.Status.Conditions)
			}
			return err
		}
	}
	bound := func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }
	create := func(name string, cpus int64) {
		p := pod(name, object.Requests("cpu", fmt.Sprint(cpus)), object.Label("app", name))
		_, err := pods.Create(t.Context(), p, metav1.CreateOptions{})
		testkit.Check(t, err)
	}
	create("others", size-14)
	create("leaves", 10)
	for _, name := range []string{"others", "leaves"} {
		waitFor(t, time.Minute, name+" to be bound", state(name, bound))
	}
	text := `{"apiVersion":"scheduling.koordinator.sh/v1alpha1","kind":"Reservation","metadata":{"name":"later"},` +
		`"spec":{"owners":[{"labelSelector":{"matchLabels":{"app":"owner"}}}],"template":{"spec":{"schedulerName":` +
		`"tenon-scheduler","containers":[{"name":"main","resources":{"requests":{"cpu":"10"}}}]}}}}`
	testkit.Check(t, rest.Post().AbsPath(racePath("")).Body([]byte(text)).Do(t.Context()).Error())
	t.Cleanup(func() { _ = rest.Delete().AbsPath(racePath("later")).Do(context.WithoutCancel(t.Context())).Error() })
	waitFor(t, time.Minute, "the Reservation to be refused", func() error {
		text, err := rest.Get().AbsPath(racePath("later")).DoRaw(t.Context())
		if err == nil && !strings.Contains(string(text), "Insufficient") {
			err = fmt.Errorf("it is %s", text)
		}
		return err
	})
	create("owner", 10)
	waitFor(t, time.Minute, "owner to be refused", state("owner", func(p *corev1.Pod) bool {
		return len(p.Status.Conditions) > 0 && p.Status.Conditions[0].Status == corev1.ConditionFalse
	}))
	testkit.Check(t, pods.Delete(t.Context(), "leaves", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	waitFor(t, time.Minute, "owner to be bound", state("owner", bound))
}
