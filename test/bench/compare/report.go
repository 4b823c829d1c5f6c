package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// result is one measurement.
type result struct {
	Case      string  `json:"case"`
	Nodes     int     `json:"nodes"`
	Round     int     `json:"round"`
	Scheduler string  `json:"scheduler"`
	Figures   figures `json:"figures"`
	Error     string  `json:"error,omitempty"`
}

// table writes the medians per case, size and contender as Markdown, each with its ratio to the base in the same round.
func table(w io.Writer, results []result, s suite, sizes []int) {
	if s.cases = slices.DeleteFunc(slices.Clone(s.cases), benchCase.ofGangs); len(s.cases) == 0 {
		return
	}
	for _, nodes := range sizes {
		fmt.Fprintf(w, "\n### %d nodes\n\n", nodes)
		fmt.Fprintf(w,
			"| Case | Scheduler | CPU-ms/pod | × %[1]s | pods/s | × %[1]s | p50 | p99 | p99 × %[1]s | control plane "+
				"CPU-ms/pod | peak memory |\n", s.base)
		fmt.Fprintln(w, "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
		for _, c := range s.cases {
			for _, who := range s.contenders {
				rows := pick(results, c.name, nodes, who.name)
				if len(rows) == 0 {
					continue
				}
				if bad := slices.IndexFunc(rows, func(r result) bool {
					return r.Error != "" ||
						!r.Figures.complete()
				}); bad >= 0 {
					r := rows[bad]
					fmt.Fprintf(w, "| %s | %s | TIMEOUT bound %d/%d %s | | | | | | | | |\n", c.title, who.name,
						r.Figures.Bound, r.Figures.Of, r.Error)
					continue
				}
				base := pick(results, c.ratioTo, nodes, cmp.Or(c.ratioOf, s.base))
				fmt.Fprintf(w, "| %s | %s | %.*f | %s | %.0f | %s | %s | %s | %s | %.2f | %s |\n", c.title, who.name,
					s.digits, median(rows, func(f figures) float64 { return f.SchedulerCPUms }),
					s.ratio(rows, base, func(f figures) float64 { return f.SchedulerCPUms }),
					median(rows, func(f figures) float64 { return f.PodsPerSecond }),
					s.ratio(rows, base, func(f figures) float64 { return f.PodsPerSecond }),
					short(time.Duration(median(rows, func(f figures) float64 { return float64(f.P50) }))),
					short(time.Duration(median(rows, func(f figures) float64 { return float64(f.P99) }))),
					s.ratio(rows, base, func(f figures) float64 { return float64(f.P99) }),
					median(rows, func(f figures) float64 { return f.PlaneCPUms }),
					megabytes(median(rows, func(f figures) float64 { return float64(f.PeakMemory) })))
			}
		}
	}
	for _, nodes := range sizes {
		for _, c := range s.cases {
			for _, who := range s.contenders {
				slowest := func(f figures) float64 { return f.Gangs.Slowest.Seconds() }
				if rows := pick(results, c.name, nodes, who.name); median(rows, slowest) > 0 {
					fmt.Fprintf(w, "\n- %d nodes, %s, %s: the last gang that fits is bound after %.1f s", nodes,
						c.title, who.name, median(rows, slowest))
				}
			}
		}
	}
	for _, nodes := range sizes {
		for _, c := range s.cases {
			for _, who := range s.contenders {
				rows, base := pick(results, c.name, nodes, who.name), pick(results, c.name, nodes, s.base)
				if c.backlog == 0 || len(rows) == 0 {
					continue
				}
				took := func(f figures) float64 { return f.Refused.Milliseconds }
				fmt.Fprintf(w, "\n- %d nodes, %s, %s: %.0f attempts without a node, %.2f ms each, × %s: %s", nodes,
					c.title, who.name, median(rows, func(f figures) float64 { return f.Refused.Attempts }),
					median(rows, took), s.base, s.ratio(rows, base, took))
			}
		}
	}
	fmt.Fprintf(w, "\nBatching (`scheduler_batch_attempts_total`, last round):\n\n")
	for _, nodes := range sizes {
		for _, c := range s.cases {
			for _, who := range s.contenders {
				rows := pick(results, c.name, nodes, who.name)
				if len(rows) == 0 || len(rows[len(rows)-1].Figures.BatchHints) == 0 {
					continue
				}
				hints := rows[len(rows)-1].Figures.BatchHints
				var parts []string
				for k, v := range hints {
					parts = append(parts, fmt.Sprintf("`%s` %.0f", k, v))
				}
				slices.Sort(parts)
				fmt.Fprintf(w, "- %d nodes, %s, %s: %s\n", nodes, c.title, who.name, strings.Join(parts, ", "))
			}
		}
	}
}

func pick(results []result, kase string, nodes int, scheduler string) []result {
	var out []result
	for _, r := range results {
		if r.Case == kase && r.Nodes == nodes && r.Scheduler == scheduler {
			out = append(out, r)
		}
	}
	return out
}

func median(rows []result, value func(figures) float64) float64 {
	values := make([]float64, 0, len(rows))
	for _, r := range rows {
		values = append(values, value(r.Figures))
	}
	return middle(values)
}

// ratio is the median of the ratios within rounds, with the least and the greatest when there are several.
func (s suite) ratio(rows, base []result, value func(figures) float64) string {
	var values []float64
	for _, r := range rows {
		for _, o := range base {
			if o.Round == r.Round && value(o.Figures) > 0 {
				values = append(values, value(r.Figures)/value(o.Figures))
			}
		}
	}
	if len(values) == 0 {
		return "–"
	}
	m := middle(values)
	if len(values) == 1 {
		return fmt.Sprintf("%.*f", s.digits, m)
	}
	return fmt.Sprintf("%.[1]*[2]f (%.[1]*[3]f–%.[1]*[4]f)", s.digits, m, slices.Min(values), slices.Max(values))
}

func middle(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return (values[n/2-1] + values[n/2]) / 2
}

func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

func megabytes(b float64) string {
	if b == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f MB", b/1e6)
}
