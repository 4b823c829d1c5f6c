package progress

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgressIsShownAfterTwoSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		ctx, end := show(t.Context(), &out, "simulate", "attempts")
		for range 3 {
			Step(ctx)
		}
		time.Sleep(3*time.Second + interval/2) //nolint:forbidigo // the clock is the bubble's
		end()
		text := out.String()
		if !strings.HasPrefix(text, erase) || !strings.Contains(text, " simulate: 3 attempts, 2s") ||
			!strings.Contains(text, ", 3s") || !strings.HasSuffix(text, erase) {
			t.Errorf("after 3 s: %q", text)
		}
	})
}

func TestProgressOfAShortCommandIsNotShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		_, end := show(t.Context(), &out, "simulate", "attempts")
		time.Sleep(patience - interval) //nolint:forbidigo // the clock is the bubble's
		end()
		if out.Len() > 0 {
			t.Errorf("before 2 s: %q", out.String())
		}
	})
}

func TestProgressIsShownOnTerminalsAlone(t *testing.T) {
	t.Parallel()
	pipe, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, out := range []interface{ Write([]byte) (int, error) }{pipe, &text} {
		ctx, end := Show(t.Context(), out, "simulate", "attempts")
		if ctx != t.Context() {
			t.Errorf("%T: counted", out)
		}
		Step(ctx)
		end()
	}
	Step(context.Background())
}
