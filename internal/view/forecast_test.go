package view_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/forecast"
	. "github.com/tenon-project/tenon/internal/view"
)

func TestExpectedStartInWords(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 31, 22, 0, 0, 0, time.UTC)
	ten := 10 * time.Minute
	never := forecast.Range{Early: forecast.Never, Late: forecast.Never}
	for want, e := range map[string]forecast.Estimate{
		"not estimated": {},
		"now":           {Tried: true},
		"unknown: pods without a known end hold the room": {Tried: true, Start: never},
		"never: it would not fit if no other pod ran": {
			Tried: true, Hopeless: true, Start: never,
		},
		"22:00, after a":      {Tried: true, After: []string{"a"}},
		"from 22:00, after a": {Tried: true, After: []string{"a"}, Start: forecast.Range{Late: forecast.Never}},
		"22:10 to 23:00, after a, b, c, 2 others": {
			Tried: true, After: []string{"a", "b", "c", "d", "e"},
			Start: forecast.Range{Early: 10 * time.Minute, Late: time.Hour},
		},
		"22:10":            {Tried: true, Start: forecast.Range{Early: ten, Late: ten + time.Second}},
		"Jan 1 2027 00:00": {Tried: true, Start: forecast.Range{Early: 2 * time.Hour, Late: 2 * time.Hour}},
	} {
		if got := ExpectedStartOf(e, now).Text(now); got != want {
			t.Errorf("%+v: got %q, want %q", e, got, want)
		}
	}
	yesterday, later := now.AddDate(0, 0, -1), forecast.Range{Early: 2 * time.Hour, Late: 2 * time.Hour}
	day := ExpectedStartOf(forecast.Estimate{Tried: true, Start: later}, yesterday)
	if got := day.Text(yesterday); got != "Dec 31 00:00" {
		t.Errorf("tomorrow: got %q", got)
	}
}

// TestAForecastHidesNamespaces: what waits there, what is waited for there, and members there of gangs of others.
func TestAForecastHidesNamespaces(t *testing.T) {
	t.Parallel()
	f := &Forecast{Queue: []WaitingUnit{
		{Name: "pod/secret/a", Pods: []string{"secret/a"}},
		{Name: "gang/open/g", Pods: []string{"open/g-0", "secret/g-1"}},
		{
			Name: "pod/open/b", Pods: []string{"open/b"},
			Start: &ExpectedStart{After: []string{"job/open/x", "job/secret/y"}},
		},
		{Name: "pod/open/c", Pods: []string{"open/c"}},
	}}
	got := f.For(func(namespace string) bool { return namespace == "open" })
	want := &Forecast{Hidden: 2, Queue: []WaitingUnit{
		{Name: "pod/open/b", Pods: []string{"open/b"}, Start: &ExpectedStart{After: []string{"job/open/x"}}},
		{Name: "pod/open/c", Pods: []string{"open/c"}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if after := strings.Join(f.Queue[2].Start.After, " "); after != "job/open/x job/secret/y" || len(f.Queue) != 4 {
		t.Errorf("the forecast of others has changed: %v", f)
	}
}
