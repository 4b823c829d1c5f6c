package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// NewTopology returns the verb topology.
func NewTopology(flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *cobra.Command {
	var format, color string
	c := &cobra.Command{
		Use:   "topology [NODE | node/NODE]",
		Short: "Show sockets, NUMA nodes, cores and threads with the pods on them",
		Long: `Show sockets, NUMA nodes, cores and threads with the pods on them.

Above each machine stand its mode (Follow: the kubelet chooses CPUs and NUMA nodes; Own: Tenon does), the managers of its
kubelet with their policies, scope and options, and the policies of the scheduler, each with where it comes from: a label
of the node, its agent, what another exporter wrote into the NodeResourceTopology, the scheduler's own default, or nobody
(assumed). A NUMA node shows what is free of its CPUs and its memory, and its row of the distances.`,
		Example: `  # every node of the cluster
  tenon topology

  # one machine, down to the thread
  tenon topology node/epyc-2s-0

  # for programs
  tenon topology epyc-2s-0 -o json`,
		RunE: func(c *cobra.Command, args []string) error {
			node, err := named(args, "node")
			if err != nil {
				return err
			}
			if err := checkFormat(format); err != nil {
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
			a, err := cl.load(c.Context(), node)
			if err != nil {
				return err
			}
			return printTopology(streams.Out, a, node, format, p)
		},
	}
	c.Flags().StringVarP(&format, "output", "o", "table", "table, json or yaml")
	c.Flags().StringVar(&color, "color", colorAuto, "auto, always or never")
	return c
}

// printTopology shows one node, or all of them as a list.
func printTopology(out io.Writer, a *account, node, format string, p paint) error {
	var views []machineView
	for _, n := range a.nodes {
		views = append(views, newMachineView(a, n.Name))
	}
	picture := func(w io.Writer) error {
		if len(views) == 0 {
			_, err := fmt.Fprintln(w, "no nodes")
			return err
		}
		for i, v := range views {
			if i > 0 {
				if _, err := fmt.Fprintln(w); err != nil {
					return err
				}
			}
			if _, err := io.WriteString(w, drawMachine(v, p, terminalWidth(out))); err != nil {
				return err
			}
		}
		return nil
	}
	if node != "" && len(views) == 1 {
		return printAnswer(out, format, topologyObject{apiVersion, "Topology", views[0]}, picture)
	}
	return printAnswer(out, format, newList("TopologyList", views), picture)
}

type topologyObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	machineView
}
