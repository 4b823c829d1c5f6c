package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/view"
)

type roomOptions struct {
	format, address string
	dryRun          bool
	moves           int
}

func newMakeRoom(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var o roomOptions
	c := help.Command(texts, "make-room", &cobra.Command{
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: completeArgument(flags, "pod", "gang"),
		RunE: func(c *cobra.Command, args []string) error {
			kind, name, err := named(args, "pod", "gang")
			if err == nil && name == "" {
				err = usagef("name what needs room: pod/NAME or gang/NAME")
			}
			if err == nil {
				err = checkFormat(o.format)
			}
			if err == nil && o.format != "table" && !o.dryRun {
				err = usagef("-o needs --dry-run: without it, the moves are made and shown as they go on")
			}
			if err != nil {
				return err
			}
			namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
			if err != nil {
				return err
			}
			request := view.RoomRequest{MaxMoves: o.moves, Pods: []string{namespace + "/" + name}}
			if kind == "gang" {
				request.Pods, request.Gang = nil, gangName(namespace, name)
			}
			answer, err := askForRoom(c.Context(), flags, o.address, &request)
			if err != nil {
				return err
			}
			if o.dryRun || len(answer.Moves) == 0 {
				err := printAnswer(streams.Out, o.format, struct {
					APIVersion string `json:"apiVersion"`
					Kind       string `json:"kind"`
					*view.RoomAnswer
				}{apiVersion, "RoomPlan", answer}, func() string { return drawRoom(answer) })
				if err == nil && !o.dryRun && !answer.Found {
					err = errUnhealthy
				}
				return err
			}
			_, _ = io.WriteString(streams.Out, drawRoom(answer)+"\n")
			cl, err := connect(flags)
			if err != nil {
				return err
			}
			return cl.makeRoom(c.Context(), streams.Out, answer)
		},
	})
	outputFlag(c, &o.format)
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "show the moves, and make none")
	c.Flags().IntVar(&o.moves, "max-moves", 2, "how many pods may move, 1 to 8")
	deschedulerFlag(c, &o.address)
	return c
}

func deschedulerFlag(c *cobra.Command, address *string) {
	c.Flags().StringVar(address, "descheduler", "",
		"address of the descheduler (default: from the kubeconfig, else the replica that leads)")
}

func askForRoom(ctx context.Context, flags *genericclioptions.ConfigFlags, address string, r *view.RoomRequest,
) (*view.RoomAnswer, error) {
	to, err := findDescheduler(flags, address, r)
	if err != nil {
		return nil, err
	}
	answer := &view.RoomAnswer{}
	return answer, to.get(ctx, answer, "/apis/v1/makeroom", "")
}

// drawRoom draws a plan, or why there is none.
func drawRoom(a *view.RoomAnswer) string {
	var out strings.Builder
	need, bound := strings.Join(a.Pods, ", "), ""
	if a.Bound != "" {
		bound = " (bound: " + a.Bound + ")"
	}
	switch {
	case a.Found && len(a.Moves) == 0:
		fmt.Fprintf(&out, "%s: there is room already, on %s\n", need, strings.Join(nodesOf(a), ", "))
		return out.String()
	case a.Found:
		fmt.Fprintf(&out, "Room for %s on %s:\n\n", need, strings.Join(nodesOf(a), ", "))
		c := columns{indent: "  "}
		c.add("MOVE", "FROM", "TO", "COST", "PRIORITY")
		for _, m := range a.Moves {
			c.add(m.Pod, m.Node, m.Target, m.Cost, m.Priority)
		}
		for _, line := range c.lines() {
			out.WriteString(line + "\n")
		}
		if a.Proven {
			fmt.Fprintf(&out, "\nNo smaller set of moves helps (%d sets were looked at).\n", a.Looked)
		} else {
			fmt.Fprintf(&out, "\nThe search was cut short after %d sets%s: a smaller set may exist.\n", a.Looked, bound)
		}
	case a.Proven:
		fmt.Fprintf(&out, "%s: no set of at most %s helps\n", need, view.Count(a.MaxMoves, "move"))
	default:
		fmt.Fprintf(&out, "%s: none of the %d sets of at most %s that were looked at helps%s\n", need, a.Looked,
			view.Count(a.MaxMoves, "move"), bound)
	}
	if len(a.Unschedulable) > 0 && a.Unschedulable[0].RootCause != nil {
		fmt.Fprintf(&out, "Now: %s\n", a.Unschedulable[0].RootCause.Message)
	}
	drawKept(&out, a.Movable, a.Kept)
	return out.String()
}

// drawKept draws a line for each code by which pods may not be moved, with the first pod as an example.
func drawKept(out *strings.Builder, movable int, kept []view.KeptPod) {
	fmt.Fprintf(out, "\n%s may be moved now, %d may not.\n", view.Count(movable, "pod"), len(kept))
	var groups refusalGroups
	for _, k := range kept {
		groups.add("", k)
	}
	groups.draw(out)
}

// refusalGroup is pods that were refused by the same code.
type refusalGroup struct {
	plugin, code, example, text string
	pods                        int
}

type refusalGroups []*refusalGroup

func (g *refusalGroups) add(plugin string, k view.KeptPod) {
	first := k.Reasons[0]
	i := slices.IndexFunc(*g, func(r *refusalGroup) bool { return r.plugin == plugin && r.code == first.Code })
	if i < 0 {
		i = len(*g)
		*g = append(*g, &refusalGroup{plugin: plugin, code: first.Code, example: k.Pod, text: first.Message})
	}
	(*g)[i].pods++
}

// draw draws the groups, the largest first. The column of plugins is left out where no group has one.
func (g refusalGroups) draw(out *strings.Builder) {
	if len(g) == 0 {
		return
	}
	slices.SortFunc(g, func(x, y *refusalGroup) int {
		return cmp.Or(y.pods-x.pods, strings.Compare(x.plugin, y.plugin), strings.Compare(x.code, y.code))
	})
	c, plugins := columns{indent: "  "}, g[0].plugin != ""
	row := func(pods any, code, plugin, example, reason string) {
		if plugins {
			c.add(pods, code, plugin, example, reason)
		} else {
			c.add(pods, code, example, reason)
		}
	}
	row("PODS", "CODE", "PLUGIN", "EXAMPLE", "REASON")
	for _, r := range g {
		row(r.pods, r.code, r.plugin, r.example, strings.TrimPrefix(r.text, r.code+": "))
	}
	for _, line := range c.lines() {
		out.WriteString(line + "\n")
	}
}

// nodesOf returns the nodes on which the pods will be, each once.
func nodesOf(a *view.RoomAnswer) (nodes []string) {
	for _, p := range a.Placements {
		if !slices.Contains(nodes, p.Node) {
			nodes = append(nodes, p.Node)
		}
	}
	return nodes
}
