package annotation

import (
	"time"
)

// ExpectedRuntime is an annotation of a Pod, its template, its Job or an ElasticQuota: how long the pod runs from its
// start, as a Go duration from 1s to 8760h. That of the pod wins over that of its Job; that of the quota, or of the
// closest quota above it, counts for pods without any, and without activeDeadlineSeconds. The webhook writes
// that of a Job, or the Job's activeDeadlineSeconds where these are less, to pods that the Job creates.
const ExpectedRuntime = "tenon.sh/expected-runtime"

// ExpectedStart is the condition of a PodGroup that says when its gang, which waits, is expected to start: True where
// the start is known, False where the gang would not fit if no other pod ran, and Unknown otherwise. A gang that has
// started has none.
const ExpectedStart = "tenon.sh/ExpectedStart"

// Bounds of ExpectedRuntime.
const (
	shortestRuntime = time.Second
	longestRuntime  = 8760 * time.Hour
)

// ParseExpectedRuntime reads a duration.
func ParseExpectedRuntime(text string) (time.Duration, []Warning, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < shortestRuntime || d > longestRuntime {
		return 0, nil, invalid(text, "must be a Go duration from 1s to 8760h, such as 90s, 1h30m or 48h")
	}
	return d, nil, nil
}
