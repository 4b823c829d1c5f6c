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

func TestWatchEndsWithTheFirstError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	if err := repeat(t.Context(), true, time.Second, io.Discard,
		func(io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v, want the error", err)
	}
}
