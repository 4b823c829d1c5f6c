package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tenon-project/tenon/internal/testkit"
)

func TestWorkloadsLeadToTheirPodsAndToTheRefusalOfThoseNeverMade(t *testing.T) {
	labels := map[string]string{"app": "web"}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	three := int32(3)
	meta := func(name, uid, owner string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid), Labels: labels}
		if owner != "" {
			yes := true
			m.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner), Controller: &yes}}
		}
		return m
	}
	waits := func(name, owner, message string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: meta(name, "uid-"+name, owner)}
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Message: message,
		}}
		return p
	}
	failed := func(name, uid, message string, minute int) *corev1.Event {
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Reason: "FailedCreate", Message: message,
			InvolvedObject: corev1.ObjectReference{UID: types.UID(uid)},
			LastTimestamp:  metav1.NewTime(born.Add(time.Duration(minute) * time.Minute)),
		}
	}
	ended := func(name string, c batchv1.JobCondition) *batchv1.Job {
		return &batchv1.Job{
			ObjectMeta: meta(name, "j-"+name, ""), Spec: batchv1.JobSpec{Selector: selector},
			Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobSuccessCriteriaMet}, c}},
		}
	}
	runs := &corev1.Pod{ObjectMeta: meta("ran-1", "uid-ran-1", "j-ran")}
	runs.Spec.NodeName, runs.Status.Phase = "n1", corev1.PodRunning
	objects := []runtime.Object{
		&appsv1.Deployment{
			ObjectMeta: meta("web", "d", ""),
			Spec:       appsv1.DeploymentSpec{Replicas: &three, Selector: selector},
		},
		&appsv1.ReplicaSet{
			ObjectMeta: meta("web-1", "r", "d"),
			Spec:       appsv1.ReplicaSetSpec{Replicas: &three, Selector: selector},
		},
		&batchv1.Job{ObjectMeta: meta("ran", "j-ran", ""), Spec: batchv1.JobSpec{Selector: selector}},
		runs,
		&batchv1.Job{ObjectMeta: meta("once", "j", ""), Spec: batchv1.JobSpec{Selector: selector}},
		ended("done", batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}),
		ended("lost", batchv1.JobCondition{
			Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded",
			Message: "it has reached its limit",
		}),
		failed("before", "j-lost", "quota exceeded", 1),
		waits("web-1-a", "r", "SMTAlignment: not whole cores {}"),
		waits("web-1-b", "r", "SMTAlignment: not whole cores {}"),
		waits("external", "other", "InsufficientCPU: too few {}"),
		failed("old", "r", "an older word", 1),
		failed("new", "r",
			`admission webhook "validate-new.pods.tenon.sh" denied the request: CPURequestNotInteger`, 2),
		failed("external", "other", "of another", 3),
	}
	e := explanation{cluster: cluster{core: fake.NewClientset(objects...)}, namespace: "default", warn: io.Discard}
	for title, c := range map[string]struct {
		kind, name string
		want, not  []string
	}{
		"a Deployment, through its ReplicaSet": {
			"deployment", "web",
			[]string{
				"deployment default/web   2 of 3 pods",
				"not made      admission webhook \"validate-new.pods.tenon.sh\" denied the request: CPURequestNotInteger",
				"pod default/web-1-a   Pending", "SMTAlignment", "  do            ", "  also          default/web-1-b",
			},
			[]string{"external", "older", "pod default/web-1-b", "InsufficientCPU"},
		},
		"a Job whose pod runs": {
			"job", "ran", []string{"pod default/ran-1   Running"}, []string{"Bound"},
		},
		"a Job without pods": {
			"job", "once",
			[]string{"job default/once   0 of 1 pod\n"},
			[]string{"not made", "web-1"},
		},
		"a Job that is complete": {
			"job", "done", []string{"job default/done   Complete\n"}, []string{"of 1 pod", "not made"},
		},
		"a Job that has failed": {
			"job", "lost",
			[]string{"job default/lost   Failed: BackoffLimitExceeded: it has reached its limit\n"},
			[]string{"of 1 pod", "not made"},
		},
	} {
		t.Run(title, func(t *testing.T) {
			answer, err := e.explainWorkload(t.Context(), c.kind, c.name)
			testkit.Check(t, err)
			r := renderer{now: born}
			text := r.workload(answer)
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("lacks %q:\n%s", want, text)
				}
			}
			for _, not := range c.not {
				if strings.Contains(text, not) {
					t.Errorf("has %q:\n%s", not, text)
				}
			}
		})
	}
	if _, err := e.explainWorkload(t.Context(), "statefulset", "web"); err == nil ||
		!strings.Contains(err.Error(), `statefulset "web" not found in namespace "default"`) {
		t.Errorf("an unknown workload: got %v", err)
	}
}

// TestAPodThatHasEndedIsExplainedByItsObject: a scheduler forgets it, and is not asked.
func TestAPodThatHasEndedIsExplainedByItsObject(t *testing.T) {
	t.Parallel()
	nodes, _, topologies := example(t)
	ended := pod("done", "LSR", "2", "epyc", `{"cpuset":"0-1"}`)
	ended.Status.Phase = corev1.PodSucceeded
	api := apiServer(t, nodes, []corev1.Pod{ended}, topologies)
	scheduler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the scheduler is asked for %s", r.URL)
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(scheduler.Close)
	code, out, errOut := run(t, "tenon", "explain", "pod/done", "--kubeconfig", kubeconfig(t, api.URL, scheduler.URL))
	if code != ExitOK || !strings.HasPrefix(out, "pod default/done   Finished") || errOut != "" {
		t.Errorf("exit code %d, standard error %q:\n%s", code, errOut, out)
	}
}
