package cli

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// NewTop returns the verb top.
func NewTop(flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *cobra.Command {
	var list listFlags
	c := &cobra.Command{
		Use:   "top [node | numa]",
		Short: "Show allocated and free CPUs by node or NUMA node",
		Long: `Show allocated and free CPUs, and the largest pod that would still get exclusive CPUs.

REQ is the sum of all requests. LSE and LSR are CPUs that pods hold exclusively, PINNED those that a static kubelet
allocated; LS and BE are the requests of the pods of the two pools. POOL is the size of the LS pool, FREE the CPUs that new
exclusive pods may get, FIT the largest such pod, FIT/NUMA the largest one on one NUMA node.`,
		Example: `  # a row for each node
  tenon top

  # a row for each NUMA node of the nodes with a label, until Ctrl-C
  tenon top numa -l pool=latency -w

  # for programs
  tenon top node -o json`,
		ValidArgs: []string{"node", "numa"},
		RunE: func(c *cobra.Command, args []string) error {
			what, err := topSubject(args)
			if err != nil {
				return err
			}
			if err := list.check(""); err != nil {
				return err
			}
			cl, err := connect(flags)
			if err != nil {
				return err
			}
			return repeat(c.Context(), list.watch, watchInterval, streams.Out, func(w io.Writer) error {
				a, err := cl.load(c.Context(), "", list.selector)
				if err != nil {
					return err
				}
				return printTop(w, a, what, list.format, list.width(streams.Out))
			})
		},
	}
	list.add(c, "nodes")
	return c
}

func topSubject(args []string) (string, error) {
	if len(args) == 0 {
		return "node", nil
	}
	if len(args) > 1 {
		return "", usagef("too many arguments: give node or numa")
	}
	switch args[0] {
	case "node", "nodes", "no":
		return "node", nil
	case "numa":
		return "numa", nil
	}
	return "", usagef("cannot show %q%s: use node or numa", args[0], suggest(args[0], []string{"node", "numa"}))
}

func printTop(out io.Writer, a *account, what, format string, width int) error {
	if what == "numa" {
		rows := []numaLoad{}
		for _, n := range a.nodes {
			rows = append(rows, numaLoads(a.view(n.Name), n.Name)...)
		}
		return printAnswer(out, format, newList("NUMATopList", rows),
			func(w io.Writer) error { return numaTable(w, rows, width) })
	}
	rows := []nodeLoad{}
	for _, n := range a.nodes {
		rows = append(rows, loadOf(a, n))
	}
	return printAnswer(out, format, newList("NodeTopList", rows),
		func(w io.Writer) error { return nodeTable(w, rows, width) })
}

// nodeLoad is the CPU account of one node. Quantities are canonical strings.
type nodeLoad struct {
	Node        string `json:"node"`
	Allocatable string `json:"allocatable"`
	Requested   string `json:"requested"`
	Pods        int    `json:"pods"`
	// LSE, LSR and Kubelet are whole CPUs held exclusively, LS and BE the requests of the pods of the two pools.
	LSE     int    `json:"lse"`
	LSR     int    `json:"lsr"`
	Kubelet int    `json:"kubelet"`
	LS      string `json:"ls"`
	BE      string `json:"be"`
	// SharedPool is the number of CPUs of the LS pool, Free those that new exclusive pods may get.
	SharedPool int `json:"sharedPool"`
	Free       int `json:"free"`
	// LargestFit is the most exclusive CPUs that one more pod would get, LargestOnOneNUMANode when they must be on one
	// NUMA node.
	LargestFit           int    `json:"largestFit"`
	LargestOnOneNUMANode int    `json:"largestOnOneNUMANode"`
	Fault                string `json:"fault,omitempty"`
}

func loadOf(a *account, n *corev1.Node) nodeLoad {
	v := a.view(n.Name)
	out := nodeLoad{Node: n.Name, Pods: len(a.pods[n.Name])}
	var requested, ls, be int64
	for _, p := range a.pods[n.Name] {
		milli := milliCPU(p)
		requested += milli
		switch roleOf(v, p) {
		case qos.SharedPool:
			ls += milli
		case qos.BEPool:
			be += milli
		}
	}
	allocatable := n.Status.Allocatable.Cpu().MilliValue()
	out.Allocatable, out.Requested = milliText(allocatable), milliText(requested)
	out.LS, out.BE = milliText(ls), milliText(be)
	if v.Machine() == nil {
		out.Fault = v.Facts().Fault.Code.String()
		return out
	}
	out.LSE, out.LSR, out.Kubelet = setLen(v.LSE()), setLen(v.LSR()), setLen(v.KubeletStatic())
	out.SharedPool, out.Free = setLen(v.SharedPool()), setLen(v.Allocatable())
	room := min(int64(out.Free), (allocatable-requested)/1000)
	out.LargestFit = largestFit(v, int(room), ledger.NoTopology)
	out.LargestOnOneNUMANode = largestFit(v, int(room), ledger.SingleNUMANode)
	return out
}

// largestFit asks the scheduler's own filter from the largest request downwards: what fits is not monotone where whole
// cores are required.
func largestFit(v *ledger.View, room int, policy ledger.TopologyPolicy) int {
	for n := room; n > 0; n-- {
		r := &place.Request{
			Class: qos.LSR, Role: qos.ExclusiveWithBE, CPUs: n, Containers: []int{n}, KubeletCPUs: n, Topology: policy,
			RequestMilli: int64(n) * 1000, LimitMilli: int64(n) * 1000,
		}
		if place.Fits(v, r).OK() {
			return n
		}
	}
	return 0
}

func setLen(s cpuset.Set) int { return s.Len() }

func milliText(milli int64) string {
	return resource.NewMilliQuantity(milli, resource.DecimalSI).String()
}

func nodeTable(w io.Writer, rows []nodeLoad, width int) error {
	t := columns{width: width, right: map[int]bool{
		1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 7: true,
		8: true, 9: true, 10: true, 11: true,
	}}
	t.add("NODE", "CPU", "REQ", "PODS", "LSE", "LSR", "PINNED", "LS", "BE", "POOL", "FREE", "FIT", "FIT/NUMA")
	for _, r := range rows {
		if r.Fault != "" {
			t.add(r.Node, r.Allocatable, r.Requested, strconv.Itoa(r.Pods), "-", "-", "-", r.LS, r.BE, "-", "-", "-",
				r.Fault)
			continue
		}
		t.add(r.Node, r.Allocatable, r.Requested, strconv.Itoa(r.Pods), strconv.Itoa(r.LSE), strconv.Itoa(r.LSR),
			strconv.Itoa(r.Kubelet),
			r.LS, r.BE, strconv.Itoa(r.SharedPool), strconv.Itoa(r.Free), strconv.Itoa(r.LargestFit),
			strconv.Itoa(r.LargestOnOneNUMANode))
	}
	return t.write(w)
}

// numaLoad is the CPU account of one NUMA node.
type numaLoad struct {
	Node   string `json:"node"`
	NUMA   int    `json:"numaNode"`
	Socket int    `json:"socket"`
	CPUs   int    `json:"cpus"`
	LSE    int    `json:"lse"`
	LSR    int    `json:"lsr"`
	// Kubelet is the CPUs that a static kubelet pinned.
	Kubelet int `json:"kubelet"`
	// SharedPool is the CPUs of the LS pool; Committed of them are promised to pods that are bound to this NUMA node.
	SharedPool int    `json:"sharedPool"`
	Committed  string `json:"committed"`
	Free       int    `json:"free"`
	FreeCores  int    `json:"freeWholeCores"`
}

func numaLoads(v *ledger.View, node string) []numaLoad {
	m := v.Machine()
	if m == nil {
		return nil
	}
	lse, lsr, kubelet := v.LSE(), v.LSR(), v.KubeletStatic()
	var out []numaLoad
	for _, n := range m.CPUNodes() {
		cpus := m.NUMACPUs(n).Intersect(m.Online())
		s := v.Summary().Nodes[n]
		out = append(out, numaLoad{
			Node: node, NUMA: m.NUMAID(n), Socket: m.SocketID(m.NUMASocket(n)), CPUs: cpus.Len(),
			LSE: lse.CountIn(&cpus), LSR: lsr.CountIn(&cpus), Kubelet: kubelet.CountIn(&cpus),
			SharedPool: s.PoolCPUs, Committed: milliText(s.Promised),
			Free: s.Free, FreeCores: wholeCores(v, n),
		})
	}
	return out
}

// wholeCores counts the cores of a NUMA node of which every online CPU is free.
func wholeCores(v *ledger.View, n topo.NUMA) int {
	m, free := v.Machine(), v.Allocatable()
	online := m.Online()
	count := 0
	for _, core := range m.NUMACores(n) {
		whole, some := true, false
		for _, c := range m.CoreCPUs(core) {
			if online.Has(int(c)) {
				some = true
				whole = whole && free.Has(int(c))
			}
		}
		if whole && some {
			count++
		}
	}
	return count
}

func numaTable(w io.Writer, rows []numaLoad, width int) error {
	t := columns{width: width, right: map[int]bool{
		1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 7: true,
		8: true, 9: true, 10: true,
	}}
	t.add("NODE", "NUMA", "SOCKET", "CPUS", "LSE", "LSR", "PINNED", "POOL", "COMMITTED", "FREE", "FREE CORES")
	for _, r := range rows {
		t.add(r.Node, strconv.Itoa(r.NUMA), strconv.Itoa(r.Socket), strconv.Itoa(r.CPUs), strconv.Itoa(r.LSE),
			strconv.Itoa(r.LSR),
			strconv.Itoa(r.Kubelet), strconv.Itoa(r.SharedPool), r.Committed, strconv.Itoa(r.Free),
			strconv.Itoa(r.FreeCores))
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "no node has a CPU topology")
		return err
	}
	return t.write(w)
}
