package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/internal/view"
)

// NewTopology returns the verb topology.
func NewTopology(flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *cobra.Command {
	var list listFlags
	var color string
	c := &cobra.Command{
		Use:   "topology [NODE | node/NODE]",
		Short: "Show sockets, NUMA nodes, cores and threads with the pods on them",
		Long: `Show sockets, NUMA nodes, cores and threads with the pods on them.

Without a name: a line for each node. FREE are the CPUs that new exclusive pods may get, HOLDERS the pods that hold CPUs
or are confined to NUMA nodes.

With a name: the map of the machine. Above it are its mode (Follow: the kubelet chooses CPUs and NUMA nodes; Own: Tenon
chooses), the managers of its kubelet with their policies, scope and options, and the policies of the scheduler, each
with its source: a label of the node, its agent, another exporter's NodeResourceTopology, the scheduler's default, or
none (assumed). A NUMA node shows the free part of its CPUs and memory, and its row of the distances.`,
		Example: `  # a line for each node of the cluster
  tenon topology -o wide

  # one machine, down to the thread
  tenon topology node/epyc-2s-0

  # for programs
  tenon topology epyc-2s-0 -o json`,
		RunE: func(c *cobra.Command, args []string) error {
			_, node, err := named(args, "node")
			if err != nil {
				return err
			}
			if err := list.check(node); err != nil {
				return err
			}
			p, err := newPaint(color, streams.Out, os.Getenv)
			if err != nil {
				return err
			}
			cl, err := connect(flags)
			if err != nil {
				return err
			}
			return repeat(c.Context(), list.watch, watchInterval, streams.Out, func(w io.Writer) error {
				a, err := cl.load(c.Context(), node, list.selector)
				if err != nil {
					return err
				}
				return printTopology(w, a, node, list.format, p, list.width(streams.Out))
			})
		},
	}
	list.add(c, "nodes")
	c.ValidArgsFunction = fromCluster(flags, nodeNames)
	c.Flags().StringVar(&color, "color", colorAuto, "auto, always or never")
	return c
}

// printTopology shows the map of one node, or a line for each of them.
func printTopology(out io.Writer, a *account, node, format string, p paint, width int) error {
	var views []view.Node
	for _, n := range a.nodes {
		views = append(views, a.node(n.Name))
	}
	if node != "" && len(views) == 1 {
		return printAnswer(out, format, topologyObject{apiVersion, "Topology", views[0]}, func(w io.Writer) error {
			_, err := io.WriteString(w, drawMachine(views[0], p, width))
			return err
		})
	}
	return printAnswer(out, format, newList("TopologyList", views), func(w io.Writer) error {
		return machineTable(w, views, p, width, format == wide)
	})
}

// machineTable writes a line for each node; more adds the columns that few ask for.
func machineTable(w io.Writer, views []view.Node, p paint, width int, more bool) error {
	if len(views) == 0 {
		_, err := fmt.Fprintln(w, "no nodes")
		return err
	}
	t := columns{width: width, paint: p, right: map[int]bool{1: true, 2: true, 3: true, 4: true, 5: true}}
	head := []string{"NODE", "CPUS", "CORES", "NUMA", "FREE", "HOLDERS", "MODE", "KUBELET", "PROBLEM"}
	if more {
		head = append(head, "ARCH", "TOPOLOGY POLICY", "CPU BIND POLICY", "LS POOL")
	}
	t.add(head...)
	for _, v := range views {
		row := []string{
			v.Name, strconv.Itoa(v.CPUs), strconv.Itoa(v.Cores), strconv.Itoa(v.NUMANodes), strconv.Itoa(freeCPUs(v)),
			strconv.Itoa(len(v.Pods)), v.Mode.Mode, v.KubeletPolicy, cmp.Or(problemOf(v), "-"),
		}
		if more {
			row = append(row, v.Arch, v.Policies.NUMATopology, cmp.Or(v.Policies.CPUBind, "None"), v.SharedPool)
		}
		t.add(row...)
	}
	return t.write(w)
}

// freeCPUs is the number of CPUs that new exclusive pods may get.
func freeCPUs(v view.Node) int {
	free := 0
	for _, s := range v.Sockets {
		for _, n := range s.NUMA {
			free += n.Free
		}
	}
	return free
}

// problemOf is the first thing that is wrong with a node.
func problemOf(v view.Node) string {
	if v.Fault != "" || len(v.Problems) == 0 {
		return v.Fault
	}
	return strings.TrimSpace(v.Problems[0].Pod + " " + v.Problems[0].Text)
}

type topologyObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	view.Node
}
