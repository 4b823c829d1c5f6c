package sim

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/tenon-project/tenon/internal/sched/app"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/testkit"
)

// passing lets time pass for a text. It returns what happens, a line each without its day.
func passing(t *testing.T, in string, until Until) (Result, []string) {
	t.Helper()
	return passingBy(t, nil, in, until)
}

// passingWithoutHolds is passing where no nodes are held until a declared start.
func passingWithoutHolds(t *testing.T, in string, until Until) (Result, []string) {
	t.Helper()
	return passingBy(t, configured(t, coscheduling.Name, "maxHolds: 0"), in, until)
}

// configured returns the default configuration in which one plugin has other arguments, as YAML.
func configured(t *testing.T, plugin, args string) *config.KubeSchedulerConfiguration {
	t.Helper()
	cfg, err := app.DefaultConfig([]string{corev1.DefaultSchedulerName})
	testkit.Check(t, err)
	profile := &cfg.Profiles[0]
	profile.PluginConfig = slices.DeleteFunc(profile.PluginConfig, func(c config.PluginConfig) bool {
		return c.Name == plugin
	})
	profile.PluginConfig = append(profile.PluginConfig, config.PluginConfig{
		Name: plugin, Args: &runtime.Unknown{Raw: []byte(args), ContentType: runtime.ContentTypeYAML},
	})
	return cfg
}

func passingBy(t *testing.T, cfg *config.KubeSchedulerConfiguration, in string, until Until) (Result, []string) {
	t.Helper()
	r, err := Run(t.Context(), Input{
		Paths: []string{stdin}, Stdin: strings.NewReader(in), Warn: io.Discard, Until: until, Config: cfg,
	})
	testkit.Check(t, err)
	return r, linesOf(r.Timeline)
}

// linesOf is what happens, a line each without its day.
func linesOf(t *Timeline) (lines []string) {
	for _, e := range t.Events {
		lines = append(lines, strings.TrimPrefix(
			fmt.Sprintf("%s %s %s", secondsText(e.After), e.Event, strings.TrimPrefix(e.Pod, "default/")), " "))
	}
	return lines
}

// expects declares how long a pod runs.
func expects(d string) string { return ", annotations: {tenon.sh/expected-runtime: " + d + "}" }

// atNode lets a pod run since a time of 4 March 2026.
func atNode(since string) (spec, status string) {
	return ", nodeName: w", "}, status: {phase: Running, startTime: \"2026-03-04T" + since + ":00Z\""
}

func ranSince(name, cpu, head, since, spec string) string {
	node, status := atNode(since)
	return shared(name, cpu, head, node+spec+status)
}

// pair makes a pod one of a gang of two.
const pair = ", labels: {pod-group.scheduling.sigs.k8s.io/name: g, " +
	"pod-group.scheduling.sigs.k8s.io/min-available: '2'}"

func TestTimePasses(t *testing.T) {
	quota := "\n{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: ElasticQuota, metadata: {name: team%s}, " +
		"spec: {max: {cpu: 4, memory: 64Gi}}}\n---"
	team := ", labels: {quota.scheduling.koordinator.sh/name: team}"
	job := "\n{apiVersion: batch/v1, kind: Job, metadata: {name: j%s}, spec: {%sparallelism: 2, template: {spec: {" +
		"restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {cpu: 3}}}]}}}}\n---"
	small := strings.ReplaceAll(fmt.Sprintf(job, "", "%s"), "cpu: 3", "cpu: 2")
	for name, tt := range map[string]struct {
		in    string
		until Until
		want  []string
	}{
		"a pod that does not fit starts after the end of another one": {
			shared("a", "3", expects("1h"), "") + shared("b", "3", expects("2h"), ""),
			Until{After: 4 * time.Hour},
			[]string{"0s Started a", "1h0m0s Ended a", "1h0m0s Started b", "3h0m0s Ended b"},
		},
		"what happens at the last moment counts": {
			shared("a", "3", expects("1h"), ""), Until{After: time.Hour}, []string{"0s Started a", "1h0m0s Ended a"},
		},
		"a pod without a run time does not end": {
			shared("a", "3", "", "") + shared("b", "3", "", ""),
			Until{After: 48 * time.Hour},
			[]string{"0s Started a"},
		},
		"a pod that says what it does in a simulation ends then, whatever it declares": {
			shared("a", "3",
				strings.TrimSuffix(expects("1h"), "}")+", tenon.sh/simulate: '{\"runFor\":\"20m\"}'}", ""),
			Until{After: time.Hour},
			[]string{"0s Started a", "20m0s Ended a"},
		},
		"a deadline of a pod is an end": {
			shared("a", "3", expects("1h"), ", activeDeadlineSeconds: 60"),
			Until{After: time.Hour},
			[]string{"0s Started a", "1m0s Ended a"},
		},
		"the annotation of a Job is that of its pods": {
			fmt.Sprintf(job, expects("1h"), ""),
			Until{After: 90 * time.Minute},
			[]string{"0s Started j-0", "1h0m0s Ended j-0", "1h0m0s Started j-1"},
		},
		"the deadline of a Job is an end": {
			fmt.Sprintf(job, "", "activeDeadlineSeconds: 600, "),
			Until{After: 15 * time.Minute},
			[]string{"0s Started j-0", "10m0s Ended j-0", "10m0s Started j-1"},
		},
		"pods of a Job use held room that end in time by its deadline": {
			shared("a", "2", expects("1h"), "") + shared("b", "3", "", "") +
				fmt.Sprintf(small, "activeDeadlineSeconds: 1500, "),
			Until{After: 90 * time.Minute},
			[]string{
				"0s Started a", "0s Started j-0", "25m0s Ended j-0", "25m0s Started j-1", "50m0s Ended j-1",
				"1h0m0s Ended a", "1h0m0s Started b",
			},
		},
		"pods of a Job without a run time use no held room": {
			shared("a", "2", expects("1h"), "") + shared("b", "3", "", "") + fmt.Sprintf(small, ""),
			Until{After: 90 * time.Minute},
			[]string{"0s Started a", "1h0m0s Ended a", "1h0m0s Started b"},
		},
		"a quota has a default": {
			fmt.Sprintf(quota, expects("2h")) + shared("a", "3", team, ""),
			Until{After: 3 * time.Hour},
			[]string{"0s Started a", "2h0m0s Ended a"},
		},
		"a quota is free after the end of a pod that held it": {
			plain("m", 8) + fmt.Sprintf(quota, expects("2h")) + shared("a", "3", team, "") + shared("b", "3", team, ""),
			Until{After: 3 * time.Hour},
			[]string{"0s Started a", "2h0m0s Ended a", "2h0m0s Started b"},
		},
		"a pod that runs ends after the rest of its time": {
			ranSince("r", "3", expects("1h"), "11:20", "") + ranSince("s", "1", expects("3h"), "12:00", "") +
				shared("a", "3", "", ""),
			Until{At: time.Date(2026, 3, 4, 13, 0, 0, 0, time.UTC)},
			[]string{"20m0s Ended r", "20m0s Started a"},
		},
		"a pod that has outlived its time stays": {
			ranSince("r", "3", expects("10m"), "11:20", "") + ranSince("s", "1", expects("3h"), "12:00", "") +
				shared("a", "3", "", ""),
			Until{After: time.Hour},
			nil,
		},
		"a pod that has outlived its time ends by its deadline": {
			ranSince("r", "3", expects("10m"), "11:20", ", activeDeadlineSeconds: 3600") +
				ranSince("s", "1", expects("3h"), "12:00", "") + shared("a", "3", "", ""),
			Until{After: time.Hour},
			[]string{"20m0s Ended r", "20m0s Started a"},
		},
		"a pod arrives when it is created": {
			shared("a", "1", ", creationTimestamp: \"2026-03-04T12:00:00Z\"", "") +
				shared("b", "1", ", creationTimestamp: \"2026-03-04T12:05:00Z\"", "") +
				shared("late", "1", ", creationTimestamp: \"2026-03-04T14:00:00Z\"", ""),
			Until{After: time.Hour},
			[]string{"0s Started a", "5m0s Arrived b", "5m0s Started b"},
		},
		"a gang starts as a whole": {
			shared("r", "2", expects("1h")+strings.ReplaceAll(pair, "g,", "o,"), "") +
				shared("s", "2", expects("2h")+strings.ReplaceAll(pair, "g,", "o,"), "") +
				shared("g-0", "2", pair, "") + shared("g-1", "2", pair, ""),
			Until{After: 3 * time.Hour},
			[]string{
				"0s Started r", "0s Started s", "1h0m0s Ended r", "2h0m0s Ended s", "2h0m0s Started g-0",
				"2h0m0s Started g-1",
			},
		},
		"a pod of a higher priority preempts one, which does not end again": {
			shared("a", "3", expects("1h"), "") + "\n{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, " +
				"metadata: {name: high}, value: 10}\n---" +
				shared("b", "3", ", creationTimestamp: \"2000-01-01T00:30:00Z\"", ", priorityClassName: high") +
				shared("c", "1", ", creationTimestamp: \"2000-01-01T00:00:00Z\"", ""),
			Until{After: 2 * time.Hour},
			[]string{
				"0s Started a", "0s Started c", "30m0s Arrived b", "30m0s Preempted a", "30m0s Started b",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, got := passing(t, plain("w", 4)+tt.in, tt.until)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			again, _ := passing(t, plain("w", 4)+tt.in, tt.until)
			if diff := cmp.Diff(r, again); diff != "" {
				t.Errorf("another run differs (-first +second):\n%s", diff)
			}
		})
	}
}

// TestATimelineSaysWhatItLeavesOut: pods without an end, waits, and what is used on average.
func TestATimelineSaysWhatItLeavesOut(t *testing.T) {
	in := plain("w", 4) + ranSince("old", "1", expects("10m"), "11:20", "") +
		ranSince("now", "1", expects("1h"), "12:00", "") +
		shared("a", "1", "", "") + shared("b", "2", "", "") + shared("c", "4", "", "")
	r, _ := passing(t, in, Until{After: 2 * time.Hour})
	got := r.Timeline
	got.Events = nil
	want := &Timeline{
		From: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC), To: time.Date(2026, 3, 4, 14, 0, 0, 0, time.UTC),
		Waits: Waits{
			Started: 2, Mean: 1800, P95: 3600, Longest: 3600, Waiting: 1, LongestWaiting: 7200,
		},
		Use: []Use{
			{"cpu", 3.5, 4}, {"memory", 3 << 30, 64 << 30},
		},
		WithoutEnd: []string{"default/a", "default/b"}, Outlived: []string{"default/old"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	states := map[string]string{
		"old": "Existing w", "now": "Ended w", "a": "Scheduled w", "b": "Scheduled w", "c": "Unschedulable",
	}
	if diff := cmp.Diff(states, placements(r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestATimelineAgreesWithAList: random pods of one priority on one node start as in a list that is tried from its head
// after each end.
func TestATimelineAgreesWithAList(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		type job struct{ cpu, runs, ends int }
		jobs, in := make([]job, 2+rng.IntN(6)), plain("w", 8)
		for i := range jobs {
			jobs[i] = job{1 + rng.IntN(8), 1 + rng.IntN(5), -1}
			in += shared(fmt.Sprint("p", i), fmt.Sprint(jobs[i].cpu), expects(fmt.Sprintf("%dm", jobs[i].runs)), "")
		}
		var want []string
		for now, free := 0, 8; now <= 20; now++ {
			for i := range jobs {
				if jobs[i].ends == now {
					free += jobs[i].cpu
					want = append(want, fmt.Sprintf("%s Ended p%d", time.Duration(now)*time.Minute, i))
				}
			}
			for i := range jobs {
				if jobs[i].ends < 0 && jobs[i].cpu <= free {
					free -= jobs[i].cpu
					jobs[i].ends = now + jobs[i].runs
					want = append(want, fmt.Sprintf("%s Started p%d", time.Duration(now)*time.Minute, i))
				}
			}
		}
		_, got := passingWithoutHolds(t, in, Until{After: 20 * time.Minute})
		for _, lines := range [][]string{want, got} { // pods that end together end one after the other
			slices.Sort(lines)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s\n(-want +got):\n%s", in, diff)
		}
	}
}

func TestUntilIsRead(t *testing.T) {
	for text, want := range map[string]Until{
		"90m": {After: 90 * time.Minute}, "2026-03-04T12:00:00Z": {At: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)},
	} {
		if got, err := ParseUntil(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0s", "-1h", "tomorrow", "1e9h", "2026-03-04"} {
		if _, err := ParseUntil(text); err == nil || !strings.Contains(err.Error(), "use a duration above 0") {
			t.Errorf("%q: got %v", text, err)
		}
	}
	_, err := Run(t.Context(), Input{
		Paths: []string{stdin}, Stdin: strings.NewReader(plain("w", 4)), Warn: io.Discard,
		Until: Until{At: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)},
	})
	if err == nil || !strings.Contains(err.Error(), "the simulation starts at 2000-01-01T00:00:00Z") {
		t.Errorf("got %v", err)
	}
}

func TestATimelineIsDrawn(t *testing.T) {
	r, _ := passingWithoutHolds(t, plain("w", 4)+shared("a", "3", expects("1h"), "")+shared("b", "4", "", "")+
		shared("g-0", "2", pair+expects("30m"), "")+shared("g-1", "2", pair+expects("30m"), ""),
		Until{After: 2 * time.Hour})
	var out strings.Builder
	testkit.Check(t, Print(&out, r, "table"))
	_, got, _ := strings.Cut(out.String(), "on 1 node\n")
	want := `
from 2000-01-01T00:00:00Z for 2h0m0s
AFTER   EVENT    NAME       WAITED  RUNS     NODE
0s      Started  default/a  0s      1h0m0s   w
1h0m0s  Ended    default/a  -       -        w
1h0m0s  Started  default/b  1h0m0s  unknown  w

waits: 2 started, mean 30m0s, p95 1h0m0s, longest 1h0m0s; 2 waiting, up to 2h0m0s
use: 88 % of cpu, 2 % of memory
no declared run time, so no end: default/b
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFirstEstimatesAreNoted: those of pods that wait when a forecast is made, once each. They decide nothing.
func TestFirstEstimatesAreNoted(t *testing.T) {
	in := cpuNode("n0", 4) + shared("a", "4", expects("1h"), "") + shared("b", "4", expects("1h"), "") +
		shared("c", "4", expects("1h"), "")
	play := func(every time.Duration) *Timeline {
		r, err := Run(t.Context(), Input{
			Paths: []string{stdin}, Stdin: strings.NewReader(in), Warn: io.Discard, Until: Until{After: 4 * time.Hour},
			EstimateEvery: every,
		})
		testkit.Check(t, err)
		return r.Timeline
	}
	with, without := play(25*time.Minute), play(0)
	want := []Estimate{
		{After: 1500, Earliest: 3600, Latest: 3600, Pods: []string{"default/b"}},
		{After: 1500, Earliest: 7200, Latest: 7200, Pods: []string{"default/c"}},
	}
	for i := range with.Estimates { // the clock of the pods is ahead by some milliseconds
		e := &with.Estimates[i]
		e.Earliest, e.Latest = math.Round(e.Earliest), math.Round(e.Latest)
	}
	if diff := cmp.Diff(want, with.Estimates); diff != "" {
		t.Errorf("(-want +got) %s", diff)
	}
	if diff := cmp.Diff(without.Events, with.Events); diff != "" {
		t.Errorf("forecasts change what happens: (-without +with) %s", diff)
	}
}
