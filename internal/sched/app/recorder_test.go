package app

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// sentEvents are the Events that were sent, as lines.
type sentEvents []string

func (s *sentEvents) WithLogger(klog.Logger) events.EventRecorderLogger { return s }

func (s *sentEvents) Eventf(regarding, related runtime.Object, _, reason, _, note string, args ...any) {
	name := func(o runtime.Object) string {
		switch o := o.(type) {
		case *corev1.ObjectReference:
			return fmt.Sprintf("%s %s %s %s", o.APIVersion, o.Kind, o.Name, o.UID)
		case *corev1.Pod:
			return "Pod " + o.Name
		}
		return "-"
	}
	text := fmt.Sprintf(note, args...)
	*s = append(*s, fmt.Sprintf("%s | %s | %s: %s", name(regarding), name(related), reason, text))
}

// TestEventsOfAReservationAreNotAboutAPodThatDoesNotExist: upstream names the reserve pod, whose name is the UID.
func TestEventsOfAReservationAreNotAboutAPodThatDoesNotExist(t *testing.T) {
	t.Parallel()
	sent := &sentEvents{}
	r := (&recorder{sent, kube.NewReservations(nil, time.Now)}).WithLogger(klog.Background()).(*recorder)
	known := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: "web-next", UID: "uid-1"}}
	r.reserved.Put(known)
	gone := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: "gone", UID: "uid-2"}}
	for _, reservation := range []*v1alpha1.Reservation{known, gone} {
		pod := convert.PendingReservePod(reservation, SchedulerName, true)
		r.Eventf(pod, nil, "Normal", "Scheduled", "Binding", "Successfully assigned %v/%v to %v", pod.Namespace,
			pod.Name, "n1")
		r.Eventf(testPod("victim"), pod, "Normal", "Preempted", "Preempting", "for pod %s, %d%%",
			klog.KObj(pod), 100)
	}
	r.Eventf(testPod("web"), nil, "Normal", "Scheduled", "Binding", "Successfully assigned %s to %s", "default/web",
		"n1")
	web := "scheduling.koordinator.sh/v1alpha1 Reservation web-next uid-1"
	want := sentEvents{
		web + " | - | Scheduled: Successfully assigned Reservation web-next to n1",
		"Pod victim | " + web + " | Preempted: for Reservation web-next, 100%",
		"Pod victim | Pod uid-2 | Preempted: for pod default/uid-2, 100%",
		"Pod web | - | Scheduled: Successfully assigned default/web to n1",
	}
	if diff := cmp.Diff(want, *sent); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
}
