package cli

import (
	"io"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/internal/view"
)

func newTop(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var list listFlags
	c := &cobra.Command{
		Use:   "top [node | numa]",
		Short: "Show allocated and free CPUs by node or NUMA node",
		Long: `Show allocated and free CPUs, and the largest pod that would still get exclusive CPUs.

REQ is the sum of all requests. LSE and LSR are CPUs that pods hold exclusively, PINNED those that a static kubelet
allocated; LS and BE are the requests of the pods of the two pools. POOL is the size of the LS pool, FREE the CPUs that
new exclusive pods may get, FIT the largest such pod, FIT/NUMA the largest one on one NUMA node.`,
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
			return list.show(c.Context(), flags, streams.Out, "", func(w io.Writer, a *account) error {
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
		rows := []view.NUMALoad{}
		for _, n := range a.nodes {
			rows = append(rows, view.NUMALoadsOf(a.view(n.Name), n.Name)...)
		}
		return printAnswer(out, format, newList("NUMATopList", rows), func() string { return numaTable(rows, width) })
	}
	rows := []view.Load{}
	for _, n := range a.nodes {
		cpu := n.Status.Allocatable.Cpu().MilliValue()
		rows = append(rows, view.LoadOf(n.Name, cpu, a.view(n.Name), a.pods[n.Name]))
	}
	return printAnswer(out, format, newList("NodeTopList", rows), func() string { return nodeTable(rows, width) })
}

func nodeTable(rows []view.Load, width int) string {
	t := columns{width: width, right: 11}
	t.add("NODE", "CPU", "REQ", "PODS", "LSE", "LSR", "PINNED", "LS", "BE", "POOL", "FREE", "FIT", "FIT/NUMA")
	for _, r := range rows {
		if r.Fault != "" {
			t.add(r.Node, r.Allocatable, r.Requested, r.Pods, "-", "-", "-", r.LS, r.BE, "-", "-", "-", r.Fault)
			continue
		}
		t.add(r.Node, r.Allocatable, r.Requested, r.Pods, r.LSE, r.LSR, r.Kubelet, r.LS, r.BE, r.SharedPool, r.Free,
			r.LargestFit, r.LargestOnOneNUMANode)
	}
	return t.String()
}

func numaTable(rows []view.NUMALoad, width int) string {
	if len(rows) == 0 {
		return "no node has a CPU topology\n"
	}
	t := columns{width: width, right: 10}
	t.add("NODE", "NUMA", "SOCKET", "CPUS", "LSE", "LSR", "PINNED", "POOL", "COMMITTED", "FREE", "FREE CORES")
	for _, r := range rows {
		t.add(r.Node, r.NUMA, r.Socket, r.CPUs, r.LSE, r.LSR, r.Kubelet, r.SharedPool, r.Committed, r.Free, r.FreeCores)
	}
	return t.String()
}
