package follow

import (
	"testing"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/tenon-project/tenon/internal/kube"
)

// An error that is not counted, as one on the same report was, must not bring back errors that were forgotten.
func TestAnUncountedErrorDoesNotMakeANodeSuspect(t *testing.T) {
	t.Parallel()
	now := time.Now()
	tracker := NewTracker(kube.NewStore(), NewMetrics(func(...metrics.Registerable) {}),
		func() time.Time { return now })
	for report, after := range []time.Duration{0, suspectTime / 2, time.Minute} {
		now = now.Add(after)
		tracker.recordModelError("n", "1.34", int64(report+1))
	}
	if !tracker.Suspects("n") {
		t.Errorf("%d errors within %s do not make a node suspect", suspectAfter, suspectTime)
	}
	now = now.Add(suspectTime / 2)
	tracker.recordModelError("n", "1.34", 3)
	if tracker.Suspects("n") {
		t.Errorf("two errors within %s make a node suspect", suspectTime)
	}
}
