package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// benchCase is one row of the table.
type benchCase struct {
	name, title string
	ratioTo     string // the case whose stock figures count
	load        workload
	perSecond   int      // of an open loop; 0 is none
	early       bool     // gangs beside an open loop may start before it
	perNode     bool     // one pod fills a node: as many pods as nodes, at most
	leaves      int      // of the tree of ElasticQuotas in the cluster; 0 is none
	kinds       int      // of server, which differ by their CPU topology; 0 is one
	gpus        int      // kinds of server with GPUs, which all nodes have; 0 is none
	cards       bool     // all nodes have ResourceSlices
	ratioOf     string   // the contender that ratios are formed against, in place of the suite's
	among       []string // contenders; all if empty
	gangs       func(nodes int) gangs
	arrive      bool     // gangs come one after the other to a warm scheduler
	beside      workload // of gangs that come while an open loop lasts
	besidePods  int      // plain pods that come each second beside gangs that arrive
	backlog     int      // pods beside an open loop that fit nowhere
	ownSizes    bool     // no two pods of the backlog request the same
	churn       int      // changes of nodes and bound pods each second beside an open loop
	starts      bool     // the start alone counts: few pods
}

// suite is what is measured beside what.
type suite struct {
	contenders []contender
	base       string   // the contender that ratios are formed against
	beside     []string // those that ratios of gangs are formed against
	plane      []string // more flags of the API server
	cases      []benchCase
	reports    bool // each node has a NodeMetric, which is renewed each minute
	digits     int  // of ratios, after the point
	benchmarks []benchmark
}

var lsr = map[string]string{"koordinator.sh/qosClass": "LSR"}

var stockCases = []benchCase{
	{name: "a", title: "(a) plain pods", ratioTo: "a", load: workload{cpu: "100m", memory: "128Mi"}},
	{
		name: "b", title: "(b) LSR pods of 4 CPUs, beside stock's plain pods", ratioTo: "a",
		load: workload{
			cpu: "4", memory: "4Gi", labels: lsr, limits: true,
			annotations: map[string]string{
				"scheduling.koordinator.sh/resource-spec": `{"preferredCPUBindPolicy":"FullPCPUs"}`,
			},
		},
	},
	{
		name: "c", title: "(c) one class, one pod fills a node", ratioTo: "c", perNode: true,
		load: workload{cpu: "20", memory: "1Gi"},
	},
	{
		name: "e", title: "(e) plain pods of a ReplicaSet", ratioTo: "e",
		load: workload{cpu: "100m", memory: "128Mi", owner: "ReplicaSet"},
	},
	{
		name: "f", title: "(f) 50 alternating sizes", ratioTo: "f",
		load: workload{cpu: "100m", memory: "128Mi", sizes: alternating},
	},
	{
		name: "g", title: "(g) 50 alternating ReplicaSets, Services for half", ratioTo: "g",
		load: workload{cpu: "100m", memory: "128Mi", owner: "ReplicaSet", owners: alternating},
	},
	{
		name: "h", title: "(h) plain pods of a StatefulSet", ratioTo: "h",
		load: workload{cpu: "100m", memory: "128Mi", owner: "StatefulSet"},
	},
	{
		name: "i", title: "(i) plain pods of an indexed Job", ratioTo: "i",
		load: workload{cpu: "100m", memory: "128Mi", owner: "Job"},
	},
	{
		name: "d", title: "(d) 100 pods/s, open loop", ratioTo: "d", perSecond: 100,
		load: workload{cpu: "100m", memory: "128Mi"},
	},
}

func stockSuite(stock, tenon string) suite {
	return suite{
		contenders: []contender{{name: "binder"}, {name: "stock", path: stock}, {name: "tenon", path: tenon}},
		base:       "stock", cases: slices.Clone(stockCases), digits: 2,
	}
}

// workloadSuite is many alternating workloads in kube-scheduler and in tenon-scheduler.
func workloadSuite(stock, tenon string) suite {
	s := suite{
		contenders: []contender{{name: "stock", path: stock}, {name: "tenon", path: tenon}}, base: "stock", digits: 2,
	}
	for _, n := range []int{alternating, 200, 1000} {
		sizes, sets := fmt.Sprint("f", n), fmt.Sprint("g", n)
		s.cases = append(s.cases, benchCase{
			name: sizes, title: fmt.Sprintf("(%s) %d alternating sizes", sizes, n), ratioTo: sizes,
			load: workload{cpu: "100m", memory: "128Mi", sizes: n},
		}, benchCase{
			name: sets, title: fmt.Sprintf("(%s) %d alternating ReplicaSets, Services for half", sets, n),
			ratioTo: sets, load: workload{cpu: "100m", memory: "128Mi", owner: "ReplicaSet", owners: n},
		})
	}
	s.cases = append(s.cases, benchCase{
		name: "s", title: "(s) pods spread over zones by DoNotSchedule", ratioTo: "s",
		load: workload{cpu: "100m", memory: "128Mi", even: true},
	}, benchCase{
		name: "x", title: "(x) pods of which each node may have one", ratioTo: "x", perNode: true,
		load: workload{cpu: "100m", memory: "128Mi", apart: true},
	}, benchCase{
		name: "v", title: "(v) pods with a bound claim each, volumes of one zone, limits of a CSI driver", ratioTo: "v",
		load: workload{cpu: "100m", memory: "128Mi", volumes: true},
	})
	return s
}

const (
	// startPods wait for a scheduler whose start alone counts.
	startPods = 20
	// collect has the control plane collect its garbage, which it does by itself beyond planeMemory bytes only.
	collect     = syscall.SIGUSR1
	planeMemory = 6 << 30
	// collecting is how long that may take.
	collecting = 2 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 3 && args[0] == "bind" { // hidden: the trivial binder's process
		nodes, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return bindAll(ctx, args[1], nodes)
	}
	if len(args) >= 2 && args[0] == "plane" { // hidden: the control plane's process
		// It shares the CPUs with the schedulers. A collection takes up to 0.75 CPU-seconds, and would hit some cases
		// and not others.
		debug.SetGCPercent(-1)
		debug.SetMemoryLimit(planeMemory)
		pages := make([]byte, planeMemory/2) // the first cases get them from here, not one by one from the kernel
		for i := 0; i < len(pages); i += os.Getpagesize() {
			pages[i] = 1
		}
		runtime.GC()
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, collect)
		go func() {
			for range asked {
				runtime.GC()
			}
		}()
		return servePlane(ctx, args[1], args[2:])
	}
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	suiteName := flags.String("suite", "stock", "what is compared: stock (kube-scheduler with tenon-scheduler), quota "+
		"(tenon-scheduler's default profile without and with ElasticQuota), gang (gangs in both and in "+
		"scheduler-plugins), device (pods with GPUs and plain pods, without and with GPUs on the nodes), "+
		"reservation (plain pods without and with Reservations in the cluster), load (tenon-scheduler's default "+
		"profile without and with LoadAwareScheduling), workloads (50, 200 and 1,000 alternating sizes and "+
		"ReplicaSets, and pods that have no ranking), "+
		"backlog (plain pods beside pods that fit nowhere), start (time, CPU and memory until the first bind), "+
		"claims (pods without and with ResourceClaims) or "+
		"journal (plain pods without and with a journal)")
	stock := flags.String("stock", "bin/kube-scheduler", "the stock kube-scheduler")
	community := flags.String("community", "bin/scheduler-plugins", "kube-scheduler with scheduler-plugins")
	tenon := flags.String("tenon", "bin/tenon-scheduler", "tenon-scheduler")
	others := flags.String("others", "", "more tenon-schedulers to measure, as in bin/before,bin/after")
	base := flags.String("base", "", "the scheduler that ratios are formed against, in place of the suite's")
	sizes := flags.String("nodes", "1000,5000", "numbers of nodes")
	pods := flags.Int("pods", 5000, "pods of a burst")
	paced := flags.Int("paced-pods", 1500, "pods of an open loop")
	rounds := flags.Int("rounds", 3, "interleaved rounds")
	limit := flags.Duration("limit", 5*time.Minute, "bound on one case of one scheduler")
	without := flags.String("without", "", "schedulers to leave out, as in binder")
	only := flags.String("cases", "", "cases to run, as in a,b; default all")
	goTests := flags.String("go-tests", "bin", "folder of the test binaries whose benchmarks the suite has")
	profiles := flags.String("profiles", "",
		"store CPU and heap profiles of bursts in this folder; the figures of such a run count for less")
	asJSON := flags.String("json", "", "also write every measurement to this file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var chosen suite
	switch *suiteName {
	case "stock":
		chosen = stockSuite(*stock, *tenon)
	case "quota":
		chosen = quotaSuite(*tenon)
	case "gang":
		chosen = gangSuite(*stock, *community, *tenon, strings.Split(*only, ","))
	case "device":
		chosen = deviceSuite(*stock, *tenon)
	case "reservation":
		chosen = reservationSuite(*tenon)
	case "load":
		chosen = loadSuite(*tenon)
	case "workloads":
		chosen = workloadSuite(*stock, *tenon)
	case "backlog":
		chosen = backlogSuite(*stock, *tenon)
	case "start":
		chosen = startSuite(*stock, *tenon)
	case "claims":
		chosen = claimSuite(*stock, *tenon)
	case "journal":
		folder, err := os.MkdirTemp("", "tenon-bench-journal-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(folder) }() // it is temporary anyway
		chosen = journalSuite(*tenon, folder)
	default:
		return fmt.Errorf("--suite: %q is not stock, quota, gang, device, reservation, load, workloads, backlog, "+
			"start, claims or journal", *suiteName)
	}
	for _, path := range strings.FieldsFunc(*others, func(c rune) bool { return c == ',' }) {
		chosen.contenders = append(chosen.contenders, contender{name: filepath.Base(path), path: path})
	}
	if *base != "" {
		if !slices.ContainsFunc(chosen.contenders, func(c contender) bool { return c.name == *base }) {
			return fmt.Errorf("--base: the suite has no scheduler %q", *base)
		}
		chosen.base = *base
	}
	chosen.contenders = slices.DeleteFunc(chosen.contenders, func(c contender) bool {
		return slices.Contains(strings.Split(*without, ","), c.name)
	})
	chosen.cases = slices.DeleteFunc(chosen.cases, func(c benchCase) bool {
		return *only != "" && !slices.Contains(strings.Split(*only, ","), c.name)
	})
	var counts []int
	for _, s := range strings.Split(*sizes, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return fmt.Errorf("--nodes: %q is not a positive number", s)
		}
		counts = append(counts, n)
	}

	speeds, err := runBenchmarks(ctx, *goTests, chosen.benchmarks, *rounds)
	if err != nil {
		return err
	}
	var results []result
	for _, nodes := range counts {
		b := &bench{nodes: nodes, self: self, limit: *limit, profiles: *profiles}
		more, err := series(ctx, b, *rounds, *pods, *paced, chosen)
		results = append(results, more...)
		if err != nil {
			return err
		}
	}
	if slices.ContainsFunc(chosen.cases, benchCase.ofGangs) {
		gangTable(out, results, chosen, counts)
	}
	if *suiteName == "start" {
		startTable(out, results, chosen, counts)
	} else {
		table(out, results, chosen, counts)
	}
	benchmarkTable(out, chosen, speeds, results, counts[0])
	if *asJSON == "" {
		return nil
	}
	text, err := json.MarshalIndent(results, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(*asJSON, text, 0o644)
}

// series measures all rounds at one number of nodes on a control plane of its own.
func series(ctx context.Context, b *bench, rounds, pods, paced int, s suite) (results []result, err error) {
	scratch, err := os.MkdirTemp("", "tenon-bench-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(scratch)
		}
	}()
	plane, err := start(ctx, filepath.Join(scratch, "plane.log"), b.self,
		append([]string{"plane", filepath.Join(scratch, "plane")}, s.plane...)...)
	if err != nil {
		return nil, err
	}
	defer plane.stop()
	kubeconfig := filepath.Join(scratch, "plane", "kubeconfig")
	if err := appears(ctx, kubeconfig, plane); err != nil {
		return nil, fmt.Errorf("%w; see %s", err, filepath.Join(scratch, "plane.log"))
	}
	c, err := connect(kubeconfig, plane.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	if err := c.waitReady(ctx); err != nil {
		return nil, err
	}
	owners := alternating
	for _, kase := range s.cases {
		owners = max(owners, kase.load.owners)
	}
	if err := c.addNodes(ctx, b.nodes, owners); err != nil {
		return nil, err
	}
	b.cluster, b.scratch = c, scratch
	contenders := slices.Clone(s.contenders)
	for i := range contenders {
		if contenders[i].config, err = b.configure(ctx, contenders[i]); err != nil {
			return nil, err
		}
	}
	for round := range rounds {
		order := slices.Clone(contenders)
		if round%2 == 1 { // what grows or ages during a round must not count against the same contender in all
			slices.Reverse(order)
		}
		for _, kase := range s.cases {
			if err := c.setTree(ctx, kase.leaves); err != nil {
				return results, fmt.Errorf("create quotas: %w", err)
			}
			if err := c.setKinds(ctx, b.nodes, max(kase.kinds, 1)); err != nil {
				return results, fmt.Errorf("update topologies: %w", err)
			}
			if err := c.setVolumes(ctx, b.nodes, pods, kase.load.volumes); err != nil {
				return results, fmt.Errorf("create volumes: %w", err)
			}
			if err := c.setDevices(ctx, b.nodes, kase.gpus); err != nil {
				return results, fmt.Errorf("create Devices: %w", err)
			}
			if err := c.setCards(ctx, b.nodes, kase.cards); err != nil {
				return results, fmt.Errorf("create ResourceSlices: %w", err)
			}
			for _, who := range order {
				if len(kase.among) > 0 && !slices.Contains(kase.among, who.name) {
					continue
				}
				if err := c.setReservations(ctx, who.reservations, b.nodes); err != nil {
					return results, fmt.Errorf("create Reservations: %w", err)
				}
				if kase.load.claims {
					if err := c.freeClaims(ctx, pods); err != nil {
						return results, fmt.Errorf("create ResourceClaims: %w", err)
					}
				}
				stopReports := func() {}
				if s.reports {
					if stopReports, err = c.startReports(ctx, b.nodes); err != nil {
						return results, fmt.Errorf("write NodeMetrics: %w", err)
					}
				}
				r := result{Case: kase.name, Nodes: b.nodes, Round: round, Scheduler: who.name}
				n := pods
				switch {
				case kase.perNode:
					n = min(pods, b.nodes)
				case kase.starts:
					n = startPods
				}
				id := fmt.Sprintf("%s-%s-%d", kase.name, who.name, round)
				switch {
				case kase.perSecond > 0 && who.path == "":
					continue // the binder binds what is there; it has no loop
				case kase.perSecond > 0:
					r.Figures, err = b.openLoop(ctx, who, id, kase, paced)
				case kase.ofGangs():
					r.Figures, err = b.gangs(ctx, who, id, kase)
				default:
					r.Figures, err = b.burst(ctx, who, id, kase.load, n, n)
				}
				stopReports()
				if ctx.Err() != nil {
					return results, ctx.Err()
				}
				if err != nil {
					r.Error = err.Error()
				}
				results = append(results, r)
				fmt.Fprintf(os.Stderr,
					"%s nodes=%d round=%d case=%s %-7s bound=%d/%d %.0f pods/s cpu=%.2f plane=%.2f ms/pod p50=%s "+
						"p99=%s rss=%s load=%s %s\n",
					time.Now().Format(time.TimeOnly), b.nodes, round, kase.name, who.name, r.Figures.Bound,
					r.Figures.Of, r.Figures.PodsPerSecond,
					r.Figures.SchedulerCPUms, r.Figures.PlaneCPUms, short(r.Figures.P50), short(r.Figures.P99),
					megabytes(float64(r.Figures.PeakMemory)), load(), r.Error)
				if kase.gangs != nil {
					fmt.Fprintf(os.Stderr, "    %+v\n", r.Figures.Gangs)
				}
				if kase.backlog > 0 {
					fmt.Fprintf(os.Stderr, "    %+v\n", r.Figures.Refused)
				}
				if err := c.clean(ctx); err != nil {
					return results, fmt.Errorf("clean up: %w", err)
				}
				if err := syscall.Kill(c.pid, collect); err != nil {
					return results, fmt.Errorf("collect garbage: %w", err)
				}
				sleep(ctx, collecting)
			}
		}
	}
	return results, nil
}

// appears waits for a file that another process makes.
func appears(ctx context.Context, path string, p *process) error {
	for {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		select {
		case err := <-p.done:
			p.done <- err
			return errors.New("the control plane ended")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
