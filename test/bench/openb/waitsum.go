package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/internal/core/forecast"
	"github.com/tenon-project/tenon/internal/core/fragment"
	"github.com/tenon-project/tenon/internal/sim"
)

// tolerated is by how much a start may miss its estimate.
const tolerated = 5 * time.Minute

// waits are how long the jobs of a kind waited that arrived in the time that is measured, and by how much their first
// estimates were wrong, in seconds. Jobs that have not started count as if they started at the end.
type waits struct {
	waited, off []float64
	waiting     int // have not started
}

// waitSum is what a replay in time measured.
type waitSum struct {
	large, small waits
	gpuTime      float64 // GPU seconds used in the time that is measured
	orders       int
}

// add adds what became of jobs.
func (w *waitSum) add(t *trace, jobs []timed, all []played) {
	w.orders++
	for i, j := range jobs {
		start, started := all[i].start, all[i].start < forecast.Never
		start = min(start, t.end)
		ran := min(start+j.runs, t.to) - max(start, t.from)
		w.gpuTime += j.gpus() * max(0, ran).Seconds()
		if j.arrives < t.from || j.arrives >= t.to {
			continue
		}
		size := &w.small
		if j.members > 0 {
			size = &w.large
		}
		size.waited = append(size.waited, (start - j.arrives).Seconds())
		if !started {
			size.waiting++
		}
		if all[i].estimated < forecast.Never {
			size.off = append(size.off, (start - all[i].expected).Abs().Seconds())
		}
	}
}

// waitColumns are those of the table.
func waitColumns() []string {
	return []string{
		"Load", "Rule", "Large wait, mean", "p95", "not started", "Small wait, mean", "p95", "not started", "GPUs used",
		"Estimate off, large", "small", "within 5 min",
	}
}

// cells are a row of the table, with times in minutes.
func (w waitSum) cells(load int, rule string, t *trace) []string {
	minutes := func(seconds float64) string { return fmt.Sprintf("%.1f", seconds/60) }
	row := []string{fmt.Sprintf("%d %%", load), rule}
	for _, size := range []waits{w.large, w.small} {
		mean, p95, _ := sim.SumUp(size.waited)
		row = append(row, minutes(mean), minutes(p95), fmt.Sprintf("%d of %d", size.waiting, len(size.waited)))
	}
	row = append(row, fmt.Sprintf("%.1f %%", 100*w.gpuTime/t.gpuTime()/float64(w.orders)))
	hits, all := 0, slices.Concat(w.large.off, w.small.off)
	for _, off := range all {
		if off <= tolerated.Seconds() {
			hits++
		}
	}
	for _, size := range []waits{w.large, w.small} {
		if len(size.off) == 0 {
			row = append(row, "-")
			continue
		}
		row = append(row, minutes(median(slices.Sorted(slices.Values(size.off)))))
	}
	return append(row, fmt.Sprintf("%d of %d", hits, len(all)))
}

// waitTable is the rows of a trace.
type waitTable struct {
	Name     string     `json:"name"`
	Recorded string     `json:"recorded"`
	Columns  []string   `json:"columns"`
	Rows     [][]string `json:"rows"`
}

// writeWaits writes tables into a file of test/bench/results.
func writeWaits(path string, t *trace, tables []waitTable) error {
	commit, err := exec.CommandContext(context.Background(), "git", "rev-parse", "--short=8", "HEAD").Output()
	if err != nil {
		return fmt.Errorf("read the commit: %w", err)
	}
	for i := range tables {
		tables[i].Recorded = strings.TrimSpace(string(commit))
	}
	text, err := yaml.Marshal(map[string]any{
		"title": "How long large and small pods wait",
		"repeat": []string{"go run -tags nomsgpack ./test/bench/openb -nodes openb_node_list_gpu_node.csv " +
			"-pods openb_pod_list_default.csv,openb_pod_list_multigpu50.csv -times openb_pod_list_default.csv " +
			"-waiting 80,95,110 -results test/bench/results/waiting.yaml"},
		"conditions": t.conditions(),
		"tables":     tables,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// conditions are those of the tables.
func (t *trace) conditions() string {
	return fmt.Sprintf("Simulated time: no figure depends on the machine. One of %d nodes of the trace: %d nodes, %d "+
		"GPUs. Pods run as long as in the trace, %.0f minutes to %.0f hours: shorter ones are left out, longer ones "+
		"cut. Gangs of 16 and 64 GPUs, half of each by GPU time, ask for %d percent of the load. Large are gangs, "+
		"small are pods. Jobs arrive at random for %.0f hours; those of hours %.0f to %.0f count, of %d orders from "+
		"%d on. Waits and errors in minutes; what has not started counts until the end. Estimates are the first ones, "+
		"of forecasts every %.0f minutes; errors are medians.", everyNode, len(t.nodes), t.capacity/fragment.Whole,
		shortestRun.Minutes(), longestRun.Hours(), gangPart, t.end.Hours(), t.from.Hours(), t.to.Hours(), orders,
		firstSeed, estimateEvery.Minutes())
}
