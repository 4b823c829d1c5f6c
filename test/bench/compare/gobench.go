package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// benchmark is a Go benchmark as a row of the second table.
type benchmark struct {
	title        string
	binary, name string        // of the test binary; without "Benchmark"
	promised     time.Duration // 0 where nothing is
	beside       time.Duration // a figure of others
	to           string        // the benchmark that a ratio is formed to, in the same binary
	base         string        // the case of whose CPU per pod, without the plugin, it is a share
}

// speed is one round of a benchmark.
type speed struct{ nanoseconds, allocations float64 }

var benchmarkLine = regexp.MustCompile(`(?m)^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op.*?\s(\d+) allocs/op`)

// runBenchmarks runs benchmarks in interleaved rounds and returns what each took, by name.
func runBenchmarks(ctx context.Context, folder string, list []benchmark, rounds int) (map[string][]speed, error) {
	speeds := map[string][]speed{}
	for round := range rounds {
		for _, b := range list {
			var pattern []string
			for part := range strings.SplitSeq("Benchmark"+b.name, "/") {
				pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
			}
			run := exec.CommandContext(ctx, filepath.Join(folder, b.binary), "-test.run=^$",
				"-test.bench="+strings.Join(pattern, "/"), "-test.benchtime=100ms", "-test.benchmem")
			text, err := run.Output()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", b.binary, err)
			}
			found := benchmarkLine.FindSubmatch(text)
			if found == nil || string(found[1]) != b.name {
				return nil, fmt.Errorf("%s has no benchmark %s", b.binary, b.name)
			}
			nanoseconds, err := strconv.ParseFloat(string(found[2]), 64)
			if err != nil {
				return nil, err
			}
			allocations, err := strconv.ParseFloat(string(found[3]), 64)
			if err != nil {
				return nil, err
			}
			speeds[b.name] = append(speeds[b.name], speed{nanoseconds, allocations})
			fmt.Fprintf(os.Stderr, "%s round=%d %s %.0f ns, %.0f allocations, load=%s\n",
				time.Now().Format(time.TimeOnly), round, b.name, nanoseconds, allocations, load())
		}
	}
	return speeds, nil
}

// benchmarkTable writes the medians as Markdown, and their ratios.
func benchmarkTable(w io.Writer, s suite, speeds map[string][]speed, results []result, nodes int) {
	if len(s.benchmarks) == 0 {
		return
	}
	fmt.Fprintf(w, "\n### Parts alone\n\n| What | Time | Allocations | Ratio | Promised |\n|---|---:|---:|---:|---|\n")
	shareOf := func(name string, value func(speed) float64) float64 {
		var values []float64
		for _, one := range speeds[name] {
			values = append(values, value(one))
		}
		return middle(values)
	}
	nanoseconds := func(s speed) float64 { return s.nanoseconds }
	for _, b := range s.benchmarks {
		took, ratio, promised := shareOf(b.name, nanoseconds), "", ""
		base := pick(results, b.base, nodes, s.base)
		switch {
		case b.beside > 0:
			ratio = fmt.Sprintf("%.2f of %v", took/float64(b.beside), b.beside)
		case b.to != "":
			ratio = fmt.Sprintf("%.2f × %s", took/shareOf(b.to, nanoseconds), b.to)
		case len(base) > 0:
			cpu := median(base, func(f figures) float64 { return f.SchedulerCPUms })
			ratio = fmt.Sprintf("%.2f %% of %.3f CPU-ms/pod", took/cpu/1e4, cpu)
		}
		if b.promised > 0 {
			promised = fmt.Sprintf("≤ %v, 0 allocations", b.promised)
		}
		fmt.Fprintf(w, "| %s | %v | %.0f | %s | %s |\n", b.title, rounded(took),
			shareOf(b.name, func(s speed) float64 { return s.allocations }), ratio, promised)
	}
}

// rounded has three digits.
func rounded(nanoseconds float64) time.Duration {
	d, unit := time.Duration(nanoseconds), time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}
