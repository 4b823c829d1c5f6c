package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/view"
)

func newTopology(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var list listFlags
	var color string
	c := help.Command(texts, "topology", &cobra.Command{
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
			return list.show(c.Context(), flags, streams.Out, node, func(w io.Writer, a *account) error {
				return printTopology(w, a, node, list.format, p, list.width(streams.Out))
			})
		},
	})
	list.add(c, "nodes")
	c.ValidArgsFunction = completeArgument(flags, "node")
	c.Flags().StringVar(&color, "color", colorAuto, "auto, always or never")
	return c
}

func printTopology(out io.Writer, a *account, node, format string, p paint, width int) error {
	var views []view.Node
	for _, n := range a.nodes {
		views = append(views, a.node(n.Name))
	}
	if node != "" && len(views) == 1 {
		answer := struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			view.Node
		}{apiVersion, "Topology", views[0]}
		return printAnswer(out, format, answer, func() string { return drawMachine(views[0], p, width) },
			"node/"+node)
	}
	return printAnswer(out, format, newList("TopologyList", views), func() string {
		if len(views) == 0 {
			return "no nodes\n"
		}
		t := columns{width: width, paint: p, right: 5}
		addMachines(&t, views, format == wide)
		return t.String()
	}, namesOf("node", views, func(n *view.Node) string { return n.Name })...)
}

// modes returns the mode of each node.
func (a *account) modes() []view.ModeOfNode {
	modes := []view.ModeOfNode{}
	for _, n := range a.nodes {
		v := a.node(n.Name)
		modes = append(modes, view.ModeOfNode{Node: v.Name, Mode: v.Mode, KubeletPolicy: v.KubeletPolicy})
	}
	return modes
}

// addMachines adds a line for each node; more adds the columns that few ask for.
func addMachines(t *columns, views []view.Node, more bool) {
	head := []any{"NODE", "CPUS", "CORES", "NUMA", "FREE", "HOLDERS", "MODE", "KUBELET", "PROBLEM"}
	if more {
		head = append(head, "ARCH", "TOPOLOGY POLICY", "CPU BIND POLICY", "LS POOL")
	}
	t.add(head...)
	for _, v := range views {
		free := 0 // CPUs that new exclusive pods may get
		for _, s := range v.Sockets {
			for _, n := range s.NUMA {
				free += n.Free
			}
		}
		problem := v.Fault
		if problem == "" && len(v.Problems) > 0 {
			problem = strings.TrimSpace(v.Problems[0].Pod + " " + v.Problems[0].Text)
		}
		mode := v.Mode.Mode
		if t := v.Mode.Takeover; t != nil {
			mode += fmt.Sprintf(" (phase %d)", t.Phase)
		}
		row := []any{
			withHealth(v.Name, &v.Health), v.CPUs, v.Cores, v.NUMANodes, free, len(v.Pods), mode, v.KubeletPolicy,
			cmp.Or(problem, "-"),
		}
		if more {
			row = append(row, v.Arch, v.Policies.NUMATopology, cmp.Or(v.Policies.CPUBind, "None"), v.SharedPool)
		}
		t.add(row...)
	}
}
