package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/progress"
	"github.com/tenon-project/tenon/internal/sched/app"
	"github.com/tenon-project/tenon/internal/sched/journal"
	"github.com/tenon-project/tenon/internal/view"
)

// differentError ends replay with exit code 1.
type differentError struct{ *Difference }

func (d differentError) Error() string {
	text := fmt.Sprintf("%s: line %d: the decision about pod %s differs in %s\n  recorded: %s\n  replayed: %s",
		d.File, d.Line, d.Pod, d.Field, d.Recorded, d.Replayed)
	if v := d.Kubernetes; v != nil {
		text += fmt.Sprintf("\n  recorded with kube-scheduler %s, replayed with %s: they may decide differently",
			v.Recorded, v.Replayed)
	}
	return text
}

// ExitCode returns the exit code of a difference.
func (differentError) ExitCode() int { return 1 }

// NewReplayCommand returns the verb replay.
func NewReplayCommand(streams genericiooptions.IOStreams) *cobra.Command {
	var until, with, format string
	var fleet bool
	c := help.Command(texts, "replay", &cobra.Command{
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if format != "table" && format != "json" {
				return inputErrorf("-o %s is not allowed: use table, json", format)
			}
			var end time.Time
			if until != "" {
				var err error
				if end, err = time.Parse(time.RFC3339Nano, until); err != nil {
					return inputErrorf("--until %s is not allowed: use a time such as 2026-11-26T10:00:00Z", until)
				}
			}
			if fleet {
				if c.Flags().Changed("with") {
					return inputErrorf("--fleet and --with are not allowed together: --fleet decides nothing")
				}
				return printFleet(streams.Out, args[0], end, format)
			}
			ctx, done := progress.Show(c.Context(), streams.ErrOut, "replay", "decisions")
			defer done()
			if c.Flags().Changed("with") {
				return compare(ctx, done, streams.Out, args[0], end, with, format)
			}
			r, err := Replay(ctx, args[0], end)
			done()
			if err == nil {
				err = r.print(streams.Out, format)
			}
			if err == nil && r.Difference != nil {
				err = differentError{r.Difference}
			}
			return err
		},
	})
	c.Flags().StringVar(&until, "until", "", "end before the first record after this time")
	c.Flags().StringVar(&with, "with", "",
		"compare with the KubeSchedulerConfiguration of this file, on the same arrivals")
	c.Flags().BoolVar(&fleet, "fleet", false, "show what was on each node at the end or at --until, and decide nothing")
	c.Flags().StringVarP(&format, "output", "o", "table", "table or json")
	return c
}

// compare prints what the configuration of a file changes, after it has called done.
func compare(ctx context.Context, done func(), out io.Writer, path string, until time.Time, with, format string) error {
	other, err := app.ReadConfig("--with", with)
	switch {
	case err != nil:
		return inputErrorf("--with: %s", strings.TrimLeft(strings.TrimPrefix(err.Error(), "--with"), ": "))
	case len(other.Extenders) > 0:
		return inputErrorf("--with: %s: extenders: must be empty: what HTTP extenders answer is not recorded", with)
	}
	r, err := Compare(ctx, path, until, with, other)
	done()
	if err != nil {
		return err
	}
	return r.print(out, format)
}

// past is what a journal records, and the fleet at a time.
type past struct {
	view.Past
	At    time.Time       `json:"at"`
	Fleet []view.NodeThen `json:"fleet"`
}

// printFleet prints what was on each node at a time, or at the end of a journal if that is zero.
func printFleet(out io.Writer, path string, at time.Time, format string) error {
	file, err := os.Open(path)
	if err != nil {
		return inputErrorf("%v", err)
	}
	defer func() { _ = file.Close() }() // it is only read
	var p past
	if p.Past, err = journal.PastOf(path, file); err != nil {
		return inputErrorf("%v", err)
	}
	if at.IsZero() {
		at = p.To
	}
	if at.Before(p.From) {
		return inputErrorf("--until %s is not allowed: %s begins at %s", at.Format(time.RFC3339Nano), path,
			p.From.Format(time.RFC3339Nano))
	}
	p.At, p.Fleet = at.UTC(), p.FleetAt(at)
	if format == "json" {
		return printJSON(out, p)
	}
	rows := [][]string{{"NODE", "PODS", "CPU REQUESTED", "ALLOCATABLE"}}
	for _, n := range p.Fleet {
		rows = append(rows, []string{n.Node, strconv.Itoa(n.Pods), n.Requested, n.Allocatable})
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s: %s to %s, at %s:\n\n", p.File, p.From.Format(time.RFC3339), p.To.Format(time.RFC3339),
		p.At.Format(time.RFC3339Nano))
	alignRows(&text, rows, progress.Width(out))
	_, err = out.Write(text.Bytes())
	return err
}

func printJSON(out io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(out, "%s\n", text)
	}
	return err
}

func (r *Replayed) print(out io.Writer, format string) error {
	if format == "json" {
		return printJSON(out, r)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s to %s, %s\n%s as recorded\n", r.File,
		r.From.UTC().Format(time.RFC3339), r.To.UTC().Format(time.RFC3339), view.Count(r.Events, "event"),
		view.Count(r.Decisions, "decision"))
	for _, cause := range slices.Sorted(maps.Keys(r.Skipped)) {
		fmt.Fprintf(&text, "%d not compared: %s\n", r.Skipped[cause], cause)
	}
	_, err := io.WriteString(out, view.WrapLines(text.String(), progress.Width(out)))
	return err
}
