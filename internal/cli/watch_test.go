package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/view"
)

func TestWatchedAnswersArePrintedWhenTheyChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var out strings.Builder
		looks := 0
		err := repeat(ctx, true, time.Second, &out, func(w io.Writer) error {
			if looks++; looks == 5 {
				cancel()
			}
			_, err := fmt.Fprintln(w, "answer", looks/3)
			return err
		})
		if want := "answer 0\nanswer 1\n"; err != nil || out.String() != want || looks != 5 {
			t.Errorf("after %d looks: %q, %v; want %q", looks, out.String(), err, want)
		}
	})
}

// TestAgesAloneDoNotPrintAnAnswerAgain: neither of a pod, whose answer has ages of its data and the number of the
// scheduler's snapshot too, nor of the pods that wait, as a table and as JSON. The phase of a pod does.
func TestAgesAloneDoNotPrintAnAnswerAgain(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"table", "json", "yaml"} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var out strings.Builder
			start, looks := time.Now(), 0
			err := repeat(ctx, true, 2*time.Second, &out, func(w io.Writer) error {
				if looks++; looks == 9 {
					cancel()
				}
				seconds := time.Since(start).Seconds()
				answer := explained{Phase: corev1.PodPending, Pod: view.Pod{
					Pod: "default/a", State: view.Bound, Since: &start,
					RootCause: &why.Wire{Code: why.KubeletRejected, Params: map[string]any{"backoffSeconds": seconds}},
					Rejection: &view.Rejection{Node: "n0", BackoffSeconds: 100 - int64(seconds)},
					Data:      view.Data{Generation: int64(looks), Ages: map[string]float64{"topology": seconds}},
				}}
				if looks > 5 {
					answer.Phase = corev1.PodRunning
				}
				r := renderer{now: time.Now()}
				return printAnswer(w, format, answer, func() string { return r.pod(answer, answer.Phase) })
			})
			if n := strings.Count(out.String(), "default/a"); err != nil || n != 2 || looks != 9 {
				t.Errorf("%s: printed %d times in %d looks, want once for each phase; %v:\n%s", format, n, looks, err,
					out.String())
			}
		})
	}
}

func TestWatchEndsWithTheFirstError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	if err := repeat(t.Context(), true, time.Second, io.Discard,
		func(io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v, want the error", err)
	}
}
