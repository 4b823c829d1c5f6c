package evict_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/core/evict"
)

// TestLimitsOfAWorkload: the table of defaults, and percentages that are rounded down, at least 1 and at most all.
func TestLimitsOfAWorkload(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text           string
		replicas, want int
	}{
		{"", 0, 0},
		{"", 1, 1},
		{"", 2, 1},
		{"", 3, 1},
		{"", 4, 2},
		{"", 10, 2},
		{"", 11, 1},
		{"", 19, 1},
		{"", 20, 2},
		{"", 29, 2},
		{"", 30, 3},
		{"", 1000, 100},
		{"1%", 1, 1},
		{"1%", 99, 1},
		{"1%", 199, 1},
		{"1%", 200, 2},
		{"50%", 3, 1},
		{"100%", 7, 7},
		{"100%", 0, 0},
		{"1", 0, 0},
		{"1", 1, 1},
		{"3", 2, 2},
		{"3", 3, 3},
		{"3", 4, 3},
	} {
		if got := share(test.text).Of(test.replicas); got != test.want {
			t.Errorf("%q of %d replicas: got %d, want %d", test.text, test.replicas, got, test.want)
		}
	}
}

// TestTheRampOnlyGrows: a higher percentage adds namespaces, none is taken away, 0 has none and 100 all.
func TestTheRampOnlyGrows(t *testing.T) {
	t.Parallel()
	count := make([]int, 101)
	for n := range 2000 {
		name, was := fmt.Sprintf("team-%d", n), false
		for percent := range count {
			in := evict.InRamp(name, percent)
			if was && !in {
				t.Fatalf("namespace %s is in the ramp of %d percent, not in that of %d", name, percent-1, percent)
			}
			if was = in; in {
				count[percent]++
			}
		}
	}
	if count[0] != 0 || count[100] != 2000 || count[50] < 900 || count[50] > 1100 {
		t.Errorf("got %d, %d, %d of 2000 namespaces at 0, 50, 100 percent; want 0, about 1000, 2000",
			count[0], count[50], count[100])
	}
}

// TestWhichNamespacesAreTouched: D7.
func TestWhichNamespacesAreTouched(t *testing.T) {
	t.Parallel()
	labelled := func(l map[string]string) bool { return l["canary"] == "true" }
	tests := map[string]struct {
		settings evict.Policy
		labels   map[string]string
		want     bool
	}{
		"all by default":           {want: true},
		"one that is included":     {settings: evict.Policy{Include: []string{"default"}}, want: true},
		"one that is not included": {settings: evict.Policy{Include: []string{"a"}}},
		"exclude wins over include": {settings: evict.Policy{
			Include: []string{"default"}, Exclude: []string{"default"},
		}},
		"labels that are selected": {
			settings: evict.Policy{NamespaceSelector: labelled}, labels: map[string]string{"canary": "true"},
			want: true,
		},
		"labels that are not selected": {settings: evict.Policy{NamespaceSelector: labelled}},
		"no percent":                   {settings: evict.Policy{NamespacePercent: pointer(0)}},
		"all percent":                  {settings: evict.Policy{NamespacePercent: pointer(100)}, want: true},
	}
	for name, test := range tests {
		s := web(10)
		s.SetNamespace("default", test.labels)
		got := s.Check(limits(test.settings), "p0", now)
		if (len(got) == 0) != test.want || !test.want && codes(got) != "NamespaceNotInCanary" {
			t.Errorf("%s: got %v, want that it may be touched: %v", name, got, test.want)
		}
	}
}

// TestRetentionCoversEveryWindow.
func TestRetentionCoversEveryWindow(t *testing.T) {
	t.Parallel()
	for want, s := range map[time.Duration]evict.Policy{
		24 * time.Hour: {},
		48 * time.Hour: {ReturnWindow: 48 * time.Hour},
		72 * time.Hour: {WorkloadWindow: &evict.Window{Duration: 72 * time.Hour}},
	} {
		if got := limits(s).Retention(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
