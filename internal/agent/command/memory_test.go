package command

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestMemoryOfTheStartIsReleasedOnceReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, asked := time.Now(), 0
		releaseStart(t.Context(), func() error {
			if asked++; asked < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		if asked != 3 || time.Since(began) != 2*readyPoll {
			t.Errorf("asked %d times in %v, want 3 in %v", asked, time.Since(began), 2*readyPoll)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		releaseStart(ended, func() error { return errors.New("never") })
	})
}
