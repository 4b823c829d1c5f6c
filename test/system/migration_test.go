package system

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	migrationv1alpha1 "github.com/tenon-project/tenon/api/migration/v1alpha1"
	reservationv1alpha1 "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// ofMigration are the objects of one migration, with the versions at which they changed.
type ofMigration struct {
	job    migrationv1alpha1.PodMigrationJob
	place  reservationv1alpha1.Reservation
	target *corev1.Pod
	// held is the version at which the Reservation had its node, evicted that at which the old pod was to go.
	held, evicted string
}

// move moves a pod with a job, and follows it until the job has ended.
func move(t *testing.T, l *local, old *corev1.Pod, eachStep func()) *ofMigration {
	t.Helper()
	m, rest := &ofMigration{}, l.client.CoreV1().RESTClient()
	const jobs = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"
	body := fmt.Sprintf(`{"apiVersion":"scheduling.koordinator.sh/v1alpha1","kind":"PodMigrationJob","metadata":`+
		`{"name":%q},"spec":{"podRef":{"namespace":%q,"name":%q,"uid":%q}}}`, "move-"+string(old.UID), old.Namespace,
		old.Name, old.UID)
	testkit.Check(t, rest.Post().AbsPath(jobs).Body([]byte(body)).Do(t.Context()).Error())
	watched, err := l.client.CoreV1().Pods(old.Namespace).Watch(t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=" + old.Name, ResourceVersion: old.ResourceVersion,
	})
	testkit.Check(t, err)
	defer watched.Stop()
	places := placed(t, l)
	phase := m.job.Status.Status
	waitFor(t, 2*time.Minute, "the job to end", func() error {
		text, err := rest.Get().AbsPath(jobs, "move-"+string(old.UID)).DoRaw(t.Context())
		testkit.Check(t, err)
		testkit.Check(t, json.Unmarshal(text, &m.job))
		if s := m.job.Status.Status; s != phase {
			phase = s
			eachStep()
		}
		if !m.job.Status.Phase.IsFinal() {
			return fmt.Errorf("it is %+v", m.job.Status)
		}
		return nil
	})
	for m.held == "" {
		if r := <-places; r.Name == m.job.Spec.ReservationOptions.ReservationRef.Name {
			m.place, m.held = r, r.ResourceVersion
		}
	}
	for m.evicted == "" {
		e := <-watched.ResultChan()
		if p, ok := e.Object.(*corev1.Pod); ok && p.UID == old.UID && p.DeletionTimestamp != nil {
			m.evicted = p.ResourceVersion
		}
	}
	if m.job.Status.Phase != migrationv1alpha1.PodMigrationJobSucceeded {
		t.Fatalf("the job has %+v", m.job.Status)
	}
	m.target, err = l.client.CoreV1().Pods(old.Namespace).Get(t.Context(), m.job.Status.PodRef.Name,
		metav1.GetOptions{})
	testkit.Check(t, err)
	return m
}

// placed returns the versions of Reservations that have a node and no user.
func placed(t *testing.T, l *local) <-chan reservationv1alpha1.Reservation {
	t.Helper()
	at := reservationv1alpha1.Resource()
	stream, err := l.client.CoreV1().RESTClient().Get().AbsPath("/apis", at.Group, at.Version, at.Resource).
		Param("watch", "true").Stream(t.Context())
	testkit.Check(t, err)
	found := make(chan reservationv1alpha1.Reservation, 100)
	go func() {
		defer stream.Close()
		for decoder := json.NewDecoder(stream); ; {
			var e struct {
				Object reservationv1alpha1.Reservation
			}
			if decoder.Decode(&e) != nil {
				return
			}
			if e.Object.Status.Phase == reservationv1alpha1.ReservationAvailable {
				found <- e.Object
			}
		}
	}()
	return found
}

// successorHasWhatWasHeld: the successor of a pod has the very CPUs and GPU that its Reservation had before the pod was
// evicted, whatever becomes of the controller in between.
func successorHasWhatWasHeld(t *testing.T, l *local) {
	defer rooms{l, "default"}.end(t)
	pods := func(labels string) (list []corev1.Pod) {
		all, err := l.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: labels})
		testkit.Check(t, err)
		return slices.DeleteFunc(all.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	}
	podSpec := pod("p", object.Both("cpu", "4", "memory", "1Gi", "koordinator.sh/gpu", "100"))
	template := func(app string) corev1.PodTemplateSpec {
		labels := map[string]string{"app": app, annotation.QoSClass: "LSR"}
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec.Spec}
	}
	selector := func(app string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	_, err := l.client.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(3)), Selector: selector("web"), Template: template("web"),
		},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	_, err = l.client.AppsV1().StatefulSets("default").Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec:       appsv1.StatefulSetSpec{Replicas: new(int32(3)), Selector: selector("db"), Template: template("db")},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	for app, killed := range map[string]bool{"app=web": false, "app=db": true} {
		waitFor(t, 2*time.Minute, "the pods of "+app, func() error {
			list := pods(app)
			if len(list) != 3 || slices.ContainsFunc(list, func(p corev1.Pod) bool { return !isReady(&p) }) {
				return fmt.Errorf("%d pods", len(list))
			}
			return nil
		})
		old := pods(app)[0]
		m := move(t, l, &old, func() {
			if killed { // the next descheduler goes on
				pids, err := l.processes("__descheduler")
				testkit.Check(t, err)
				if pid := pids[0]; pid > 0 { // else it is not back yet
					testkit.Check(t, syscall.Kill(pid, syscall.SIGKILL))
				}
			}
		})
		if len(m.held) == 0 || len(m.held) > len(m.evicted) || len(m.held) == len(m.evicted) && m.held > m.evicted {
			t.Errorf("%s: the place was held at version %q, the pod evicted at %q", app, m.held, m.evicted)
		}
		if m.target.UID == old.UID || m.target.Spec.NodeName == old.Spec.NodeName || !isReady(m.target) {
			t.Errorf("%s: pod %s of node %s moved to %s on node %s", app, old.UID, old.Spec.NodeName, m.target.UID,
				m.target.Spec.NodeName)
		}
		for _, key := range []string{annotation.ResourceStatusKey, annotation.DeviceAllocatedKey} {
			if held := m.place.Annotations[key]; held == "" || !sameJSON(t, held, m.target.Annotations[key]) {
				t.Errorf("%s: %s was held as %s, and the successor has %s", app, key, held, m.target.Annotations[key])
			}
		}
		if strings.HasPrefix(app, "app=db") != (m.target.Name == old.Name) {
			t.Errorf("%s: pod %s was followed by %s", app, old.Name, m.target.Name)
		}
	}
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// sameJSON compares the CPUs and devices of two annotations.
func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	canonical := func(text string) string {
		var value any
		testkit.Check(t, json.Unmarshal([]byte(text), &value))
		out, err := json.Marshal(value)
		testkit.Check(t, err)
		return string(out)
	}
	return canonical(a) == canonical(b)
}
