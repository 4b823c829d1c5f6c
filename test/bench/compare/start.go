package main

import (
	"cmp"
	"fmt"
	"io"
	"time"
)

// manyKinds is the number of kinds of server in the cases that have several.
const manyKinds = 50

// startSuite is the start of kube-scheduler and of tenon-scheduler with few pods to bind, on equal servers and on
// many kinds, without and with Devices.
func startSuite(stock, tenon string) suite {
	plain := workload{cpu: "100m", memory: "128Mi"}
	return suite{
		contenders: []contender{{name: "stock", path: stock}, {name: "tenon", path: tenon}},
		base:       "stock", digits: 2,
		cases: []benchCase{
			{name: "s", title: "(s) nodes with topologies", ratioTo: "s", load: plain, starts: true},
			{
				name: "k", title: "(k) servers of 50 kinds", ratioTo: "k", load: plain, starts: true, kinds: manyKinds,
			},
			{
				name: "d", title: "(d) as (s), each with a Device of 8 GPUs", ratioTo: "d", load: plain, starts: true,
				gpus: 1,
			},
			{
				name: "e", title: "(e) as (k), each with a Device of 8 GPUs", ratioTo: "e", load: plain, starts: true,
				kinds: manyKinds, gpus: manyKinds,
			},
		},
	}
}

// startTable writes how long each contender took until its first bind, its CPU until then and until all pods were
// bound, and its memory.
func startTable(w io.Writer, results []result, s suite, sizes []int) {
	fmt.Fprintf(w, "| Nodes | Case | Scheduler | first bind | × %[1]s | CPU until then | × %[1]s | "+
		"until %[2]d binds | × %[1]s | peak memory | × %[1]s |\n"+
		"|---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n", s.base, startPods)
	for _, nodes := range sizes {
		for _, c := range s.cases {
			for _, who := range s.contenders {
				rows := pick(results, c.name, nodes, who.name)
				base := pick(results, c.ratioTo, nodes, cmp.Or(c.ratioOf, s.base))
				first := func(f figures) float64 { return float64(f.Startup) }
				used := func(f figures) float64 { return float64(f.StartCPU) }
				all := func(f figures) float64 { return used(f) + f.SchedulerCPUms*1e6*float64(f.Bound) }
				memory := func(f figures) float64 { return float64(f.PeakMemory) }
				fmt.Fprintf(w, "| %d | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", nodes, c.title, who.name,
					short(time.Duration(median(rows, first))), s.ratio(rows, base, first),
					short(time.Duration(median(rows, used))), s.ratio(rows, base, used),
					short(time.Duration(median(rows, all))), s.ratio(rows, base, all),
					megabytes(median(rows, memory)), s.ratio(rows, base, memory))
			}
		}
	}
}
