package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type coded struct{ error }

func (coded) ExitCode() int { return 5 }

func TestExitCodes(t *testing.T) {
	t.Parallel()
	pods := schema.GroupResource{Resource: "pods"}
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"done":                   {nil, ExitOK},
		"bad usage":              {fmt.Errorf("verb: %w", usagef("no")), ExitUsage},
		"a negative answer":      {errNegative, ExitNegative},
		"forbidden":              {fmt.Errorf("list: %w", apierrors.NewForbidden(pods, "a", nil)), ExitUnreachable},
		"connection refused":     {&url.Error{Op: "Get", URL: "http://x", Err: errors.New("refused")}, ExitUnreachable},
		"interrupted":            {fmt.Errorf("list: %w", context.Canceled), ExitInterrupted},
		"interrupted in a call":  {&url.Error{Op: "Get", URL: "http://x", Err: context.Canceled}, ExitInterrupted},
		"an error with its code": {fmt.Errorf("verb: %w", coded{errors.New("no")}), 5},
		"anything else":          {errors.New("no"), ExitUnexpected},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}
