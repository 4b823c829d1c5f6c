package evict_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/move"
)

// mustBeUsed holds that no limit is exceeded, and that each limit that refuses a pod without a job of its own is shown
// with the numbers of the refusal.
func mustBeUsed(t *rapid.T, uses []evict.Use, refused []evict.Refusal, ownJob bool) {
	for _, u := range uses {
		if u.Have > u.Limit || u.Have <= 0 {
			t.Fatalf("%s %s: %d of %d are used", u.Code, u.Subject, u.Have, u.Limit)
		}
	}
	caps := []evict.Code{evict.CapWorkload, evict.CapNode, evict.CapNamespace, evict.CapDomain, evict.CapGlobal}
	for _, r := range refused {
		shown := func(u evict.Use) bool {
			return u.Code == r.Code && u.Subject == r.Subject && u.Have == r.Have && u.Limit == r.Limit
		}
		if slices.Contains(caps, r.Code) && !ownJob && !slices.ContainsFunc(uses, shown) {
			t.Fatalf("%s is not among %v", r, uses)
		}
		emptyBucket := func(u evict.Use) bool { return u.Code == evict.RateLimited && u.Have == u.Limit }
		if r.Code == evict.RateLimited && !ownJob && !slices.ContainsFunc(uses, emptyBucket) {
			t.Fatalf("%s is not among %v", r, uses)
		}
	}
}

func TestTheLimitsThatAreUsed(t *testing.T) {
	t.Parallel()
	s := web(4)
	if got := s.Uses(limits(evict.Policy{}), now); len(got) > 0 {
		t.Errorf("without jobs %v are used", got)
	}
	for i := range 2 {
		s.SetJob(job(fmt.Sprint("run", i), fmt.Sprint("p", i), func(j *move.Job) { j.Status.Node = "n-p3" }))
	}
	s.SetJob(job("done", "gone", func(j *move.Job) {
		evictAt(j, ago(time.Minute))
		end(j, move.Succeeded, ago(30*time.Second))
	}))
	p := limits(evict.Policy{
		MaxMigratingGlobally: 9, MaxMigratingPerTargetNode: 5, MaxMigratingPerNamespace: 7,
		DomainLimits: []evict.DomainLimit{{"zone", 3}}, EvictInterval: time.Minute, EvictBurst: 3,
		SkipEvictionGates: []string{"MaxMigratingPerNamespace"},
	})
	want := []evict.Use{
		{Code: evict.CapWorkload, Subject: webKey, Have: 3, Limit: 2, Window: 5 * time.Minute},
		{Code: evict.CapNode, Subject: "n-p0", Have: 1, Limit: 2},
		{Code: evict.CapNode, Subject: "n-p1", Have: 1, Limit: 2},
		{Code: evict.CapNode, Subject: "to n-p3", Have: 2, Limit: 5},
		{Code: evict.CapDomain, Subject: "zone=a", Have: 2, Limit: 3},
		{Code: evict.CapGlobal, Subject: "cluster", Have: 2, Limit: 9},
	}
	got := s.Uses(p, now)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("used limits (-want +got):\n%s", diff)
	}
	// The token of an eviction 1 minute ago is back; at the time of the eviction it was missing.
	then := s.Uses(p, ago(time.Minute))
	// An eviction of the current second is recorded as of its end.
	s.SetJob(job("late", "late", func(j *move.Job) {
		evictAt(j, now.Add(time.Second))
		end(j, move.Succeeded, now.Add(time.Second))
	}))
	fast := limits(evict.Policy{EvictInterval: 100 * time.Millisecond, EvictBurst: 1})
	empty := evict.Use{Code: evict.RateLimited, Subject: "cluster", Have: 1, Limit: 1}
	if got := s.Uses(fast, now); !slices.Contains(got, empty) {
		t.Errorf("a bucket of one token: %v", got)
	}
	token := evict.Use{Code: evict.RateLimited, Subject: "cluster", Have: 1, Limit: 3}
	if !slices.Contains(then, token) || slices.Contains(got, token) {
		t.Errorf("tokens: then %v, now %v", then, got)
	}
}
