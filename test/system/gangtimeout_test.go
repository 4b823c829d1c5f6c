package system

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// aNonStrictGangThatTimesOutIsTriedAgain: one of two members fits and waits as long as the gang may. Its condition
// says why it was given back, and it starts with another one that fits.
func aNonStrictGangThatTimesOutIsTriedAgain(t *testing.T, l *local) {
	t.Helper()
	member := func(i int, cpus int64) {
		l.submit(t, pod(fmt.Sprint("late-", i), object.Gang("late", "2"),
			object.Annotation(annotation.GangMode, "NonStrict"),
			object.Annotation(annotation.GangWaitingTime, "1s"), object.Requests("cpu", fmt.Sprint(cpus))))
	}
	member(0, 1)
	member(1, 100)
	waitFor(t, time.Minute, "the condition of late-0 to say that the waiting time is over", func() error {
		p, err := l.client.CoreV1().Pods("default").Get(t.Context(), "late-0", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if _, c := podutil.GetPodCondition(&p.Status, corev1.PodScheduled); c == nil ||
			!strings.Contains(c.Message, "GangTimeout") || p.Annotations[annotation.GangTimeout] != "true" {
			return fmt.Errorf("%v %+v", p.Annotations, c)
		}
		return nil
	})
	testkit.Check(t, l.client.CoreV1().Pods("default").Delete(t.Context(), "late-1", metav1.DeleteOptions{}))
	member(2, 1)
	waitFor(t, time.Minute, "both to start", func() error {
		for _, name := range []string{"late-0", "late-2"} {
			p, err := l.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if p.Spec.NodeName == "" {
				return fmt.Errorf("%s: %+v", name, p.Status.Conditions)
			}
		}
		return nil
	})
}
