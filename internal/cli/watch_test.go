package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/terminal"
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

// TestTextsBesideTablesFitTheTerminal: also in an answer that is watched. Wide answers are as long as they are.
func TestTextsBesideTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	const long = "note: the forecast ended after 10 s; the starts of some pods were not estimated\n"
	for format, want := range map[string]string{
		"table": "note: the forecast ended after 10 s; the\n  starts of some pods were not estimated\n", wide: long,
	} {
		answer := watched{width: 40}
		err := printAnswer(&answer, format, struct{}{}, func() string { return long })
		if got := answer.String(); got != want || err != nil {
			t.Errorf("-o %s: got %q, %v; want %q", format, got, err, want)
		}
	}
}

// TestAWatchedAnswerHasTheWidthOfItsTerminal: an answer was as wide as its longest line once it was watched.
func TestAWatchedAnswerHasTheWidthOfItsTerminal(t *testing.T) {
	t.Parallel()
	screen, _ := terminal.Open(t, 72)
	ctx, cancel := context.WithCancel(t.Context())
	err := repeat(ctx, true, time.Hour, screen, func(w io.Writer) error {
		defer cancel()
		if got := terminalWidth(w); got != 72 {
			t.Errorf("got %d columns, want 72", got)
		}
		return nil
	})
	if got := terminalWidth(screen); got != 72 || err != nil {
		t.Errorf("got %d columns without --watch, %v, want 72", got, err)
	}
}

// TestHelpFitsTheTerminal has the help of every verb, on a terminal of 80 columns.
func TestHelpFitsTheTerminal(t *testing.T) {
	t.Parallel()
	root := NewRoot("tenon", genericiooptions.NewTestIOStreamsDiscard(), doctors)
	for _, verb := range append(root.Commands(), root) {
		screen, shown := terminal.Open(t, 80)
		verb.SetOut(screen)
		wide := make(chan string)
		go func() {
			lines, bad := bufio.NewScanner(shown), ""
			for lines.Scan() {
				if line := strings.TrimRight(lines.Text(), "\r"); utf8.RuneCountInString(line) > 80 {
					bad += line + "\n"
				}
			}
			wide <- bad
		}()
		testkit.Check(t, verb.Help())
		testkit.Check(t, screen.Close())
		if bad := <-wide; bad != "" {
			t.Errorf("help of %s:\n%s", verb.Name(), bad)
		}
	}
}
