package app_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/testkit"
)

// TestAConflictNamesNoPodThatWasGoneBeforeTheOtherCame: the CPUs of a pod that was deleted go to the next one, while
// the processes of the first may still end.
func TestAConflictNamesNoPodThatWasGoneBeforeTheOtherCame(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		h := w.recordEvents()
		gap := make(chan *watch.RaceFreeFakeWatcher, 1)
		w.client.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
			f := watch.NewRaceFreeFake() // sends no event: the next list shows what happened
			gap <- f
			return true, f, nil
		})
		relist := func() {
			gone := apierrors.NewResourceExpired("the watch is too old").Status()
			(<-gap).Error(&gone)
			later(time.Minute)
		}
		first := pod("first", "LSR", "2", "2-3")
		w.create(first)
		w.run(func(a *app.Agent) {
			if _, err := w.start(a, first); err != nil { // its processes live on
				t.Fatal(err)
			}
			resource := corev1.SchemeGroupVersion.WithResource("pods")
			testkit.Check(t, w.client.Tracker().Delete(resource, "default", "first"))
			w.create(pod("second", "LSR", "2", "2-3"))
			relist()
			if sent := h.notesFor("AllocationConflict"); len(sent) > 0 {
				t.Errorf("Events %q about a pod that was deleted before the other was bound, want none", sent)
			}
			w.create(pod("third", "LSR", "2", "3-4"))
			relist()
			if sent := h.notesFor("AllocationConflict"); len(sent) != 2 {
				t.Errorf("Events %q about two pods that both are there, want one for each", sent)
			}
		})
	})
}

// TestARecordOfADeletedPodDoesNotOverlap: a kubelet forgets a pod in its record later than the API does.
func TestARecordOfADeletedPodDoesNotOverlap(t *testing.T) {
	inWorld(t, "hybrid@static,reserved=0", func(t *testing.T, w *world) {
		w.run(func(a *app.Agent) {
			lsr := pod("lsr", "LSR", "2", "2-3")
			w.create(lsr)
			if _, err := w.start(a, lsr); err != nil {
				t.Fatal(err)
			}
			w.state(
				`{"policyName":"static","defaultCpuSet":"0,4-31","entries":{"uid-old":{"main":"1-2"}},"checksum":1}`)
			later(time.Minute)
			if got := w.condition(event.KubeletStaticActive); got != "" {
				t.Errorf("condition = %q, %q beside the record of a pod that is gone, want none", got,
					w.message(event.KubeletStaticActive))
			}
			w.create(pod("old", "", "2", ""))
			later(time.Minute)
			if got := w.message(event.KubeletStaticActive); !strings.Contains(got, "uid-old") {
				t.Errorf("message %q once the API has the pod, want its UID in it", got)
			}
		})
	})
}
