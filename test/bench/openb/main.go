package main

import (
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tenon-project/tenon/internal/core/fragment"
)

const (
	firstSeed  = 42
	checkSeeds = 10
	tolerance  = 0.3 // percent
)

// published returns the medians of ten seeds for a trace, in percent: figures of the FGD paper's artefact.
func published(trace string) map[string]float64 {
	switch trace {
	case "default":
		return map[string]float64{"random": 86.25, "bestfit": 92.91, "fgd": 95.23}
	case "cpu050":
		return map[string]float64{"random": 88.98, "bestfit": 93.58, "fgd": 95.00}
	case "gpushare100":
		return map[string]float64{"random": 78.93, "bestfit": 84.60, "fgd": 86.64}
	case "multigpu50":
		return map[string]float64{"random": 81.39, "bestfit": 95.58, "fgd": 97.09}
	}
	return nil
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "openb:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	settings := fragment.Standard()
	flags := flag.NewFlagSet("openb", flag.ContinueOnError)
	nodes := flags.String("nodes", "", "`FILE` with sn, cpu_milli, memory_mib, gpu, model")
	pods := flags.String("pods", "", "`FILE,…` with name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec")
	seeds := flags.Int("seeds", 10, "number of replays")
	name := flags.String("policy", "rollout", "rollout, fgd, bestfit, random or least")
	check := flags.Bool("check", true, "compare three policies with published figures first")
	models := flags.String("models", "", "`PERCENT:DRAW` or all: compare rollout with fgd where pods name models")
	framework := flags.Bool("framework", false, "compare the first seed of rollout with the scheduler (minutes)")
	room := flags.Bool("room", false, "measure what making room for pods that wait adds (minutes)")
	waits := flags.String("waiting", "", "`PERCENT,…` of load: replay in time with gangs, and measure waits (minutes)")
	times := flags.String("times", "", "`FILE` with creation_time and deletion_time, for -waiting")
	results := flags.String("results", "", "`FILE` that -waiting writes its tables to")
	byLoad := flags.Bool("burst", false, "measure a burst of pods on nodes that report late; reads no trace")
	flags.IntVar(&settings.Sequences, "sequences", settings.Sequences, "sequences that rollout offers to a state")
	flags.Int64Var(&settings.MultiGPU, "multi-gpu", settings.MultiGPU, "thousandths of FGD's measure that rollout adds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *byLoad && *seeds > 0 {
		bursts(out, *seeds)
		return nil
	}
	if *nodes == "" || *pods == "" || *seeds < 1 {
		return fmt.Errorf("-nodes and -pods are required, and -seeds must be 1 or more")
	}
	if *waits != "" {
		return replayWaits(out, *nodes, strings.Split(*pods, ","), *times, *waits, *results, *framework)
	}
	var variants []variant
	if *models != "" {
		var err error
		if variants, err = variantsOf(*models); err != nil {
			return err
		}
	}
	for path := range strings.SplitSeq(*pods, ",") {
		t, err := load(*nodes, path)
		if err != nil {
			return err
		}
		kind := kindOf(path)
		if *check {
			if err := compare(out, t, kind); err != nil {
				return err
			}
		}
		switch {
		case *room:
			err = compareRoom(out, t, kind, *name, settings, *seeds)
		case *models != "":
			err = compareVariants(out, t, variants, settings, *seeds)
		default:
			err = summarize(out, t, kind, *name, settings, *seeds, *framework)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// kindOf returns the name of a trace by that of its file.
func kindOf(path string) string {
	return strings.TrimPrefix(strings.TrimSuffix(filepath.Base(path), ".csv"), "openb_pod_list_")
}

// summarize prints what a policy allocates of a trace.
func summarize(out io.Writer, t *trace, kind, name string, s fragment.Settings, seeds int, framework bool) error {
	if framework {
		if err := throughFramework(out, t, s); err != nil {
			return err
		}
	}
	m, err := measure(out, t, name, s, seeds)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "openb trace=%s seeds=%d alloc100=%.2f min=%.2f max=%.2f\n", kind, seeds, median(m), m[0],
		m[len(m)-1])
	return nil
}

// compare replays the policies whose figures are published for a trace.
func compare(out io.Writer, t *trace, kind string) error {
	want := published(kind)
	if want == nil {
		fmt.Fprintf(out, "check: nothing is published for trace %s\n", kind)
		return nil
	}
	for _, name := range []string{"random", "bestfit", "fgd"} {
		m, err := measure(io.Discard, t, name, fragment.Standard(), checkSeeds)
		if err != nil {
			return err
		}
		got := median(m)
		fmt.Fprintf(out, "check: %s alloc100=%.2f published=%.2f\n", name, got, want[name])
		if math.Abs(got-want[name]) > tolerance {
			return fmt.Errorf("check: %s is %.2f; must be within %.1f of %.2f", name, got, tolerance, want[name])
		}
	}
	return nil
}

// measure replays a trace with some seeds, and returns what is allocated at 100 percent, ascending.
func measure(out io.Writer, t *trace, name string, settings fragment.Settings, seeds int) (at100 []float64, err error) {
	for seed := range uint64(seeds) {
		start := time.Now()
		a, err := replay(t, name, settings, firstSeed+seed)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(out, "%s seed=%d alloc100=%.2f alloc130=%.2f time=%.2fs\n", name, firstSeed+seed, a.at100, a.at130,
			time.Since(start).Seconds())
		at100 = append(at100, a.at100)
	}
	slices.Sort(at100)
	return at100, nil
}

// median of ascending numbers.
func median(m []float64) float64 { return (m[(len(m)-1)/2] + m[len(m)/2]) / 2 }
