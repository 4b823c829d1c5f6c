package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/view"
)

type queueOptions struct{ format, address, quota string }

func newQueue(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var o queueOptions
	c := help.Command(texts, "queue", &cobra.Command{
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: completeArgument(flags, "pod", "gang"),
		RunE: func(c *cobra.Command, args []string) error {
			kind, name, err := named(args, "pod", "gang")
			if err == nil && name != "" && o.quota != "" {
				err = usagef("--quota and a name exclude each other")
			}
			if err != nil {
				return err
			}
			namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
			if err != nil {
				return err
			}
			if name != "" {
				name = qualified(namespace, name)
			}
			return showQueue(c.Context(), &o, kind, name, flags, streams.Out)
		},
	})
	outputFlag(c, &o.format)
	c.Flags().StringVar(&o.quota, "quota", "", "show only pods and gangs of this quota, and of those below it")
	utilruntime.Must(c.RegisterFlagCompletionFunc("quota", completeNames(flags, "quota")))
	diagnosticsFlag(c, &o.address)
	return c
}

// askForecast asks the scheduler for its queue.
func askForecast(ctx context.Context, flags *genericclioptions.ConfigFlags, address string) (*view.Forecast, error) {
	scheduler, err := findDiagnostics(flags, address)
	if err != nil {
		return nil, err
	}
	answer, err := askWhatIf(ctx, scheduler, &view.WhatIf{Ask: view.Ask{Mode: view.PlayForward}})
	if err != nil {
		return nil, err
	}
	if answer.Forecast == nil {
		return nil, errors.New("the scheduler answers without a forecast: it is older than this command")
	}
	return answer.Forecast, nil
}

// showQueue prints the units that wait, or the one that has a pod or gang of a name.
func showQueue(ctx context.Context, o *queueOptions, kind, name string, flags *genericclioptions.ConfigFlags,
	out io.Writer,
) error {
	f, err := askForecast(ctx, flags, o.address)
	if err != nil {
		return err
	}
	length := len(f.Queue)
	f.Queue = slices.DeleteFunc(f.Queue, func(u view.WaitingUnit) bool {
		return o.quota != "" && !slices.Contains(u.QuotaPath, o.quota) ||
			kind == "pod" && name != "" && !slices.Contains(u.Pods, name) ||
			kind == "gang" && name != "" && u.Name != "gang/"+name
	})
	if name != "" && len(f.Queue) == 0 {
		return usagef("%s/%s is not in the queue: it has a node, is gated, is held back, or does not exist", kind, name)
	}
	return printAnswer(out, o.format, struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		*view.Forecast
	}{apiVersion, "Forecast", f}, func() string { return drawQueue(f, length, terminalWidth(out)) })
}

// drawQueue draws a line for each unit. length is how many wait in all.
func drawQueue(f *view.Forecast, length, width int) string {
	if length == 0 {
		return "no pod waits\n"
	}
	if len(f.Queue) == 0 {
		return fmt.Sprintf("no pod of this quota waits (length of the queue: %d)\n", length)
	}
	c := columns{width: width}
	c.add("POSITION", "NAME", "PODS", "QUOTA", "PRIORITY", "SINCE", "RUNS", "WAITS FOR", "EXPECTED START")
	for _, u := range f.Queue {
		waits := "its first attempt"
		if u.Waits != nil {
			waits = u.Waits.Code.String()
		}
		if u.HeldBack != nil {
			waits = "held node " + u.HeldBack.Node
		}
		quota := "-"
		if n := len(u.QuotaPath); n > 0 {
			quota = u.QuotaPath[n-1]
		}
		c.add(fmt.Sprintf("%d of %d", u.Position, length+f.Hidden), u.Name, len(u.Pods), quota, u.Priority,
			age(f.At.Sub(u.Since)), runs(u.RunTime), waits, u.Start.Text(f.At.In(time.Local)))
	}
	var out strings.Builder
	out.WriteString(c.String())
	drawHolds(&out, f)
	if f.Bound != "" {
		fmt.Fprintf(&out, "note: the forecast ended after %s; the starts of some were not estimated\n", f.Bound)
	}
	if f.Hidden > 0 {
		fmt.Fprintf(&out, "note: %d more that you may not read\n", f.Hidden)
	}
	for _, n := range f.Notes {
		fmt.Fprintf(&out, "note: %s\n", n)
	}
	return out.String()
}

// drawHolds writes which units hold nodes, and which wait for them.
func drawHolds(out *strings.Builder, f *view.Forecast) {
	out.WriteString(holdsText(f))
	now, held, more := f.At.In(time.Local), []string{}, 0
	for _, u := range f.Queue {
		const most = 5
		if h := u.HeldBack; h != nil && len(held) == most {
			more++
		} else if h != nil {
			held = append(held, fmt.Sprintf("held back: %s: %s\n", u.Name, h.Text(now)))
		}
	}
	out.WriteString(strings.Join(held, ""))
	for _, o := range f.Overdue {
		fmt.Fprintf(out, "late: pod/%s: %s\n", o.Pod, o.Text())
	}
	if more > 0 {
		fmt.Fprintf(out, "note: %d more are held back\n", more)
	}
}

// holdsText has a line for each unit that holds nodes.
func holdsText(f *view.Forecast) (text string) {
	for _, u := range f.Queue {
		if h := u.Hold; h != nil {
			text += fmt.Sprintf("hold: %s, since %s: %s\n", u.Name, age(f.At.Sub(h.Since)), h.Text(f.At.In(time.Local)))
		}
	}
	return text
}

// runs is a run time and where it comes from: "1h30m0s" where it is declared.
func runs(r *view.RunTime) string {
	switch {
	case r == nil:
		return "unknown"
	case !r.IsLearned():
		return r.Likely
	case r.Likely == r.Late:
		return r.Likely + " (learned)"
	}
	return r.Likely + " to " + r.Late + " (learned)"
}
