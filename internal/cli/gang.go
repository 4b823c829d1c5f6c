package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/view"
)

type gangOptions struct {
	format, color, address string
	namespace              string // of the gangs; "" is all
	watch                  bool
}

func newGang(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var o gangOptions
	c := help.Command(texts, "gang", &cobra.Command{
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeFirst(completeNames(flags, "gang")),
		RunE: func(c *cobra.Command, args []string) error {
			name := ""
			if len(args) > 0 {
				namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
				if err != nil {
					return err
				}
				name = qualified(namespace, args[0])
			} else {
				o.namespace = givenNamespace(c, flags)
			}
			return repeat(c.Context(), o.watch, watchInterval, streams.Out, func(w io.Writer) error {
				to := streams
				to.Out = w
				return showGangs(c.Context(), &o, name, flags, to, widthFor(o.format, streams.Out))
			})
		},
	})
	outputFlag(c, &o.format, wide, nameFormat)
	c.Flags().BoolVarP(&o.watch, "watch", "w", false, "print the answer again when something other than an age changes")
	c.Flags().StringVar(&o.color, "color", colorAuto, "auto, always or never")
	diagnosticsFlag(c, &o.address)
	allNamespacesFlag(c)
	return c
}

func showGangs(ctx context.Context, o *gangOptions, name string, flags *genericclioptions.ConfigFlags,
	streams genericiooptions.IOStreams, width int,
) error {
	p, err := newPaint(o.color, streams.Out, os.Getenv)
	if err != nil {
		return err
	}
	scheduler, err := findDiagnostics(flags, o.address)
	if err != nil {
		return err
	}
	gangs, err := scheduler.gangs(ctx, flags, o.namespace, streams.ErrOut)
	if err != nil {
		return err
	}
	if name == "" {
		return printAnswer(streams.Out, o.format, newList("GangList", gangs),
			func() string { return drawGangs(gangs, o.format == wide, p, width) },
			namesOf("gang", gangs, func(g *view.Gang) string { return g.Name })...)
	}
	g, err := gangOf(gangs, name)
	if err != nil {
		return err
	}
	answer := struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		view.Gang
	}{apiVersion, "Gang", *g}
	return printAnswer(streams.Out, o.format, answer, func() string { return drawGang(g, p, width) },
		"gang/"+g.Name)
}

// qualified returns the full name of a gang or pod that is named as NAME or NAMESPACE/NAME.
func qualified(namespace, name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return namespace + "/" + name
}

func gangOf(gangs []view.Gang, name string) (*view.Gang, error) {
	i := slices.IndexFunc(gangs, func(g view.Gang) bool { return g.Name == name })
	if i < 0 {
		return nil, unknownOf("gang", name, gangs, func(g view.Gang) string { return g.Name })
	}
	return &gangs[i], nil
}

// drawGangs draws a line for each gang; more adds the columns that few ask for.
func drawGangs(gangs []view.Gang, more bool, p paint, width int) string {
	if len(gangs) == 0 {
		return "no pod is in a gang, and no PodGroup exists\n"
	}
	c := columns{paint: p, width: width}
	head := []any{"GANG", "STATE", "MIN", "MEMBERS", "BOUND", "RESERVED", "PENDING", "AGE"}
	if more {
		head = append(head, "FROM", "MODE", "POLICY", "WAIT", "GROUP", "NETWORK")
	}
	c.add(append(head, "MESSAGE")...)
	for _, g := range gangs {
		created := "-"
		if !g.CreateTime.IsZero() {
			created = age(time.Since(g.CreateTime))
		}
		row := []any{
			g.Name, stateOf(&g), g.Min, len(g.Members), len(g.Bound), len(g.Waiting), len(g.Pending), created,
		}
		if more {
			group := "-"
			if len(g.Group) > 1 {
				group = strings.Join(g.Group, ",")
			}
			row = append(row, sourceOf(&g), g.Mode, g.MatchPolicy, age(g.WaitTime), group,
				cmp.Or(strings.Join(g.Network, "; "), "-"))
		}
		c.add(append(row, g.Message)...)
	}
	return c.String()
}

// stateOf returns the state, or how a gang has ended all of whose pods have.
func stateOf(g *view.Gang) string {
	if len(g.Members) == 0 && v1alpha1.PodGroupPhase(g.Phase).IsFinal() {
		return g.Phase
	}
	return string(g.State)
}

// sourceOf names where a gang is described.
func sourceOf(g *view.Gang) string {
	switch {
	case g.Rule != "":
		return "rule " + g.Rule
	case g.From == view.GangFromObject:
		return "PodGroup"
	case g.From == view.GangFromNative:
		return "PodGroup of Kubernetes"
	}
	return "annotations of its pods"
}

// drawGang draws one gang with its members.
func drawGang(g *view.Gang, p paint, width int) string {
	text := fmt.Sprintf("gang %s   %s   %d must start together, %d exist\n", g.Name, stateOf(g), g.Min, len(g.Members))
	c := columns{paint: p, width: width, indent: "  "}
	c.add("says", fmt.Sprintf("%s · %s · %s · waiting time %s", sourceOf(g), g.Mode, g.MatchPolicy, g.WaitTime))
	if len(g.Group) > 1 {
		c.add("group", strings.Join(g.Group, ", "))
	}
	for _, rule := range g.Network {
		c.add("network", rule)
	}
	if g.Reason != "" {
		c.add("waits", g.Reason+": "+g.Message)
	}
	if g.Hold != nil {
		c.add("holds", g.Hold.Text(time.Now())+"; since "+age(time.Since(g.Hold.Since)))
	}
	if g.Degraded {
		c.add("degraded", "it has started, and fewer than the minimum run")
	}
	for _, m := range []struct {
		label string
		names []string
	}{{"bound", g.Bound}, {"reserved", g.Waiting}, {"pending", g.Pending}} {
		if len(m.names) > 0 {
			c.add(m.label, strings.Join(m.names, ", "))
		}
	}
	return text + c.String()
}

// gangs asks the scheduler, and falls back on what the objects say.
func (d diagnostics) gangs(ctx context.Context, flags *genericclioptions.ConfigFlags, namespace string, warn io.Writer,
) ([]view.Gang, error) {
	gangs, err := ofPlugin[view.Gang](ctx, d, "Coscheduling", "gangs", "", warn)
	if err == nil && gangs == nil {
		return gangsOfObjects(ctx, flags, namespace)
	}
	return slices.DeleteFunc(gangs, func(g view.Gang) bool {
		return namespace != "" && !strings.HasPrefix(g.Name, namespace+"/")
	}), err
}

// gangsOfObjects reads what the API says, as a scheduler with default arguments would.
func gangsOfObjects(ctx context.Context, flags *genericclioptions.ConfigFlags, namespace string) ([]view.Gang, error) {
	c, err := connect(flags)
	if err != nil {
		return nil, err
	}
	within := c
	within.namespace = namespace
	s := kube.NewGangs().UseDefaults()
	table := accounts.Accounts{Gangs: s}.Table()
	if _, err := within.read(ctx, table.Of("PodGroup"), "", table.Put); err != nil {
		return nil, err
	}
	_, err = c.read(ctx, table.Of("ClusterNetworkTopology"), "", table.Put)
	if err != nil && (namespace == "" || !apierrors.IsForbidden(err)) { // it is of the whole cluster
		return nil, err
	}
	pods, err := c.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		table.Put(&pods.Items[i])
	}
	return gangsOf(s), nil
}

func gangsOf(s *kube.Gangs) []view.Gang {
	gangs := []view.Gang{}
	s.Read(func(state *gang.State) {
		for _, id := range state.Gangs() {
			gangs = append(gangs, *view.GangOf(state, id))
		}
	})
	return gangs
}
