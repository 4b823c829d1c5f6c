package evict_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/core/evict"
)

// TestSettingsThatCannotBeMeant: each error names the field, the rule and what was given.
func TestSettingsThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	windows := func(key string, w evict.Window) evict.Settings {
		return evict.Settings{Windows: map[string]evict.Window{key: w}}
	}
	rate := "must be a number of 0.0001 to 1000000, per second or with /s, /m or /h, is "
	share := "must be a whole number of at least 1, or 1% to 100%, is "
	for want, s := range map[string]evict.Settings{
		"evictQPS: " + rate + `"fast"`:                                      {EvictQPS: "fast"},
		"evictQPS: " + rate + `"0"`:                                         {EvictQPS: "0"},
		"evictQPS: " + rate + `"-1"`:                                        {EvictQPS: "-1"},
		"evictQPS: " + rate + `"NaN"`:                                       {EvictQPS: "NaN"},
		"evictQPS: " + rate + `"Inf"`:                                       {EvictQPS: "Inf"},
		"evictQPS: " + rate + `"30/d"`:                                      {EvictQPS: "30/d"},
		"evictQPS: " + rate + `"30/"`:                                       {EvictQPS: "30/"},
		"evictBurst: must be a whole number of at least 1, is -1":           {EvictBurst: -1},
		"maxMigratingGlobally: must be a whole number of at least 0, is -1": {MaxMigratingGlobally: pointer(-1)},
		"maxMigratingPerNode: must be a whole number of at least 0, is -1":  {MaxMigratingPerNode: pointer(-1)},
		"maxMigratingPerNamespace: must be a whole number of at least 0, is -1": {
			MaxMigratingPerNamespace: pointer(-1),
		},
		"maxMigratingPerTargetNode: must be a whole number of at least 0, is -1": {
			MaxMigratingPerTargetNode: pointer(-1),
		},
		"maxNoOfPodsToEvictTotal: must be a whole number of at least 0, is -1": {
			MaxPerRound: pointer(-1),
		},
		"maxNoOfPodsToEvictPerNode: must be a whole number of at least 0, is -1": {
			MaxPerRoundAndNode: pointer(-1),
		},
		"maxNoOfPodsToEvictPerNamespace: must be a whole number of at least 0, is -1": {
			MaxPerRoundAndNamespace: pointer(-1),
		},
		"maxMigratingPerWorkload: " + share + `"0"`:      {MaxMigratingPerWorkload: "0"},
		"maxMigratingPerWorkload: " + share + `"101%"`:   {MaxMigratingPerWorkload: "101%"},
		"maxUnavailablePerWorkload: " + share + `"half"`: {MaxUnavailablePerWorkload: "half"},
		"domainLimits[zone].maxMigrating: must be a whole number of at least 1, is 0": {
			DomainLimits: []evict.DomainLimit{{TopologyKey: "zone"}},
		},
		"domainLimits[].topologyKey: must not be empty": {DomainLimits: []evict.DomainLimit{{MaxMigrating: 1}}},
		"namespaces.percent: must be 0 to 100, is 101":  {NamespacePercent: pointer(101)},
		"minPodAge: must not be negative, is -1s":       {MinPodAge: pointer(-time.Second)},
		"returnWindow: must not be negative, is -1s":    {ReturnWindow: pointer(-time.Second)},
		`objectLimiters: must be of workload, namespace, has "node"`: windows("node", evict.Window{
			Duration: time.Minute,
		}),
		"objectLimiters.workload.duration: must be positive, is 0s": windows("workload", evict.Window{}),
		"objectLimiters.workload.burst: must be a whole number of at least 0, is -1": windows("workload", evict.Window{
			Duration: time.Minute, Burst: -1,
		}),
		"objectLimiters.workload.maxMigrating: " + share + `"x"`: windows("workload", evict.Window{
			Duration: time.Minute, MaxMigrating: "x",
		}),
		`objectLimiters.namespace.maxMigrating: must be a whole number of at least 1, is ""`: windows("namespace",
			evict.Window{Duration: time.Minute}),
		`objectLimiters.namespace.maxMigrating: must be a whole number of at least 1, is "9%"`: windows("namespace",
			evict.Window{Duration: time.Minute, MaxMigrating: "9%"}),
		"skipEvictionGates: must be of BarePods, ExpectedReplicas, LabelSelector, LocalStorage, " +
			"MaxMigratingGlobally, MaxMigratingPerNamespace, MaxMigratingPerNode, MaxMigratingPerWorkload, " +
			"MaxUnavailablePerWorkload, Namespaces, NodeFit, PVC, PriorityThreshold, SystemCritical, " +
			`has "Rollout"`: {SkipEvictionGates: []string{"Rollout"}},
	} {
		if _, err := evict.NewPolicy(s); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	_, err := evict.NewPolicy(evict.Settings{EvictQPS: "x", EvictBurst: -1, NamespacePercent: pointer(-1)})
	if got := strings.Count(fmt.Sprint(err), "\n"); got != 2 {
		t.Errorf("got %v, want three errors", err)
	}
}

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
		i, err := evict.ParseIntOrPercent(test.text)
		if got := i.Of(test.replicas); err != nil || got != test.want {
			t.Errorf("%q of %d replicas: got %d, %v; want %d", test.text, test.replicas, got, err, test.want)
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
		settings evict.Settings
		labels   map[string]string
		want     bool
	}{
		"all by default":           {want: true},
		"one that is included":     {settings: evict.Settings{Include: []string{"default"}}, want: true},
		"one that is not included": {settings: evict.Settings{Include: []string{"a"}}},
		"exclude wins over include": {settings: evict.Settings{
			Include: []string{"default"}, Exclude: []string{"default"},
		}},
		"the descheduler's own by default": {settings: evict.Settings{OwnNamespace: "default"}},
		"the descheduler's own when it may be": {
			settings: evict.Settings{OwnNamespace: "default", Exclude: []string{}}, want: true,
		},
		"labels that are selected": {
			settings: evict.Settings{NamespaceSelector: labelled}, labels: map[string]string{"canary": "true"},
			want: true,
		},
		"labels that are not selected": {settings: evict.Settings{NamespaceSelector: labelled}},
		"no percent":                   {settings: evict.Settings{NamespacePercent: pointer(0)}},
		"all percent":                  {settings: evict.Settings{NamespacePercent: pointer(100)}, want: true},
	}
	for name, test := range tests {
		s := web(10)
		s.SetNamespace("default", test.labels)
		got := s.Check(mustPolicy(t, test.settings), "p0", now)
		if (len(got) == 0) != test.want || !test.want && codes(got) != "NamespaceNotInCanary" {
			t.Errorf("%s: got %v, want that it may be touched: %v", name, got, test.want)
		}
	}
}

// TestRetentionCoversEveryWindow.
func TestRetentionCoversEveryWindow(t *testing.T) {
	t.Parallel()
	for want, s := range map[time.Duration]evict.Settings{
		24 * time.Hour: {},
		48 * time.Hour: {ReturnWindow: pointer(48 * time.Hour)},
		72 * time.Hour: {Windows: map[string]evict.Window{"workload": {Duration: 72 * time.Hour}}},
	} {
		if got := mustPolicy(t, s).Retention(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
