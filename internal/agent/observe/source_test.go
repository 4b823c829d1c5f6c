package observe_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/agent/observe"
)

var errDown, errBusy = errors.New("down"), errors.New("busy")

// well is a source of numbers.
type well struct {
	*observe.Source[int]
	reads   int
	err     error
	reports []string
}

func newWell(pace observe.Pace) *well {
	w := &well{}
	w.Source = observe.NewSource(0, observe.SourceOptions[int]{
		Report: func(_ context.Context, holds bool, reason, message string) error {
			if holds {
				reason = "!" + reason
			}
			w.reports = append(w.reports, reason+" "+message)
			return nil
		},
		Failed: "Dry", Usable: "Wet", Text: "it flows", Instead: func() string { return "the last one counts" },
		Excused: func(err error) bool { return errors.Is(err, errBusy) },
		Pace:    pace, Clock: clock.RealClock{},
	})
	return w
}

func (w *well) refresh(t *testing.T) error {
	t.Helper()
	return w.Refresh(t.Context(), func(last int) (int, error) {
		w.reads++
		if w.err != nil {
			return last, w.err
		}
		return last + 1, nil
	})
}

func TestLastGoodValueCountsWhileTheSourceFails(t *testing.T) {
	t.Parallel()
	w := newWell(observe.Pace{})
	for i, step := range []struct {
		err       error
		value     int
		reported  bool
		condition string
	}{
		{nil, 1, false, "Wet it flows"},
		{errDown, 1, true, "!Dry down: the last one counts"},
		{errDown, 1, true, "!Dry down: the last one counts"},
		{nil, 2, false, "Wet it flows"},
		{errBusy, 2, false, ""}, // alone it says nothing
		{errBusy, 2, true, "!Dry busy: the last one counts"},
		{nil, 3, false, "Wet it flows"},
	} {
		w.err, w.reports = step.err, nil
		err := w.refresh(t)
		if (err != nil) != step.reported || w.Value() != step.value {
			t.Errorf("step %d: value %d, %v; want %d, an error: %v", i, w.Value(), err, step.value, step.reported)
		}
		var want []string
		if step.condition != "" {
			want = []string{step.condition}
		}
		if diff := cmp.Diff(want, w.reports); diff != "" {
			t.Errorf("step %d: reports (-want +got):\n%s", i, diff)
		}
	}
}

func TestAnAgentThatEndsReportsNothing(t *testing.T) {
	t.Parallel()
	w := newWell(observe.Pace{})
	ctx, cancel := context.WithCancel(t.Context())
	err := w.Refresh(ctx, func(int) (int, error) { cancel(); return 7, context.Canceled })
	if err != nil || w.Value() != 0 || len(w.reports) > 0 {
		t.Errorf("Refresh = %v with value %d and reports %q, want nothing of the three", err, w.Value(), w.reports)
	}
}

func TestPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWell(observe.Pace{Least: time.Second, Resync: time.Minute})
		// For a time a source is refreshed ten times a second.
		play := func(what string, d time.Duration, want int) {
			t.Helper()
			w.reads = 0
			for range int(d / (100 * time.Millisecond)) {
				_ = w.refresh(t)
				time.Sleep(100 * time.Millisecond) //nolint:forbidigo // the clock is the bubble's
			}
			if w.reads != want {
				t.Errorf("%s: %d readings in %v, want %d", what, w.reads, d, want)
			}
		}
		play("it answers", 10*time.Minute, 10)
		if wait, wanted := w.Wait(); wanted {
			t.Errorf("wants to be read in %v, want no reading before the resync", wait)
		}
		w.Hint()
		play("a hint", 30*time.Second, 1)
		w.err = errDown
		w.Want()
		play("it fails", 63*time.Second, 6) // after 1, 2, 4, 8, 16 and 32 s
		w.Want()
		play("what is wanted does not shorten the pause", 10*time.Second, 1)
		w.Hint()
		play("a hint begins a new series", 7*time.Second, 3)
		if _, wanted := w.Wait(); !wanted {
			t.Error("wants no reading after a failure")
		}
	})
}
