package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

func newEvictions(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var format, address string
	var watch, past bool
	c := help.Command(texts, "evictions", &cobra.Command{
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := connect(flags)
			if err != nil {
				return err
			}
			to, err := findDescheduler(flags, address, struct{}{})
			if err != nil {
				return err
			}
			if past && address != "" {
				return usagef("--past and --descheduler exclude each other: --past reads Events and PodMigrationJobs")
			}
			return repeat(c.Context(), watch, watchInterval, streams.Out, func(w io.Writer) error {
				if past {
					return cl.showPast(c.Context(), w, streams.ErrOut, format, givenNamespace(c, flags),
						widthFor(format, streams.Out))
				}
				return cl.showEvictions(c.Context(), w, format, to, widthFor(format, streams.Out))
			})
		},
	})
	outputFlag(c, &format)
	c.Flags().BoolVarP(&watch, "watch", "w", false, "print the answer again when something other than an age changes")
	c.Flags().BoolVar(&past, "past", false, "show who was evicted within the last hour, by whom and why")
	deschedulerFlag(c, &address)
	allNamespacesFlag(c)
	return c
}

func (c cluster) showEvictions(ctx context.Context, w io.Writer, format string, to diagnostics, width int) error {
	answer := view.Evictions{
		APIVersion: apiVersion, Kind: "Evictions", Jobs: []view.Eviction{}, EvictionLimits: &view.EvictionLimits{},
	}
	_, err := each(ctx, c, v1alpha1.Resource(), "", func(text []byte) (j v1alpha1.PodMigrationJob, err error) {
		err = json.Unmarshal(text, &j)
		return j, err
	}, func(j v1alpha1.PodMigrationJob) { answer.Jobs = append(answer.Jobs, evictionOf(&j)) })
	if err != nil {
		return err
	}
	slices.SortFunc(answer.Jobs, func(a, b view.Eviction) int {
		return cmp.Or(a.CreateTime.Compare(*b.CreateTime), strings.Compare(a.Name, b.Name))
	})
	if err := to.get(ctx, answer.EvictionLimits, "/apis/v1/evictions", ""); err != nil {
		return err
	}
	return printAnswer(w, format, answer, func() string { return drawEvictions(&answer, width) })
}

// evictionOf returns what a user reads of a job.
func evictionOf(j *v1alpha1.PodMigrationJob) view.Eviction {
	e := view.Eviction{
		Name: j.Name, Phase: cmp.Or(string(j.Status.Phase), string(v1alpha1.PodMigrationJobPending)),
		To: j.Status.NodeName, CreateTime: &j.CreationTimestamp.Time,
		Plugin: j.Annotations[annotation.MigrationPlugin], Wish: j.Annotations[annotation.MigrationReason],
	}
	if at := convert.MigrationJob(j).LastEviction(); !at.IsZero() {
		e.Evicted = &at
	}
	if r := j.Spec.PodRef; r != nil {
		e.Pod = r.Namespace + "/" + r.Name
	}
	if r := j.Status.PodRef; r != nil {
		e.Successor = r.Namespace + "/" + r.Name
	}
	if start, _, err := annotation.ParseMigrationStart(j.Annotations[annotation.MigrationStartKey]); err == nil {
		e.From = start.Node
	}
	if e.Phase != string(v1alpha1.PodMigrationJobSucceeded) && e.Phase != string(v1alpha1.PodMigrationJobSucceed) {
		e.Reason = reasonOf(&j.Status)
		for _, c := range j.Status.Conditions { // a pause, or the last step that is not taken
			isPause := c.Type == move.Paused
			if e.Reason == "" && isPause == (c.Status == metav1.ConditionTrue) {
				e.Reason = strings.TrimSuffix(cmp.Or(c.Reason, c.Type)+": "+c.Message, ": ")
			}
		}
	}
	return e
}

// reasonOf returns the reason and the message of a job; a message that begins with the reason is enough.
func reasonOf(s *v1alpha1.PodMigrationJobStatus) string {
	if s.Message == "" || s.Reason == "" || strings.HasPrefix(s.Message, s.Reason+": ") {
		return cmp.Or(s.Message, s.Reason)
	}
	return s.Reason + ": " + s.Message
}

// drawEvictions draws the jobs, the limits that are used, and a line for each code that keeps pods.
func drawEvictions(e *view.Evictions, width int) string {
	var out strings.Builder
	if len(e.Jobs) == 0 {
		out.WriteString("no PodMigrationJob exists\n")
	} else {
		c := columns{width: width}
		c.add("JOB", "PHASE", "AGE", "POD", "FROM", "TO", "SUCCESSOR", "REASON")
		for _, j := range e.Jobs {
			c.add(j.Name, j.Phase, age(time.Since(*j.CreateTime)), j.Pod, cmp.Or(j.From, "-"), cmp.Or(j.To, "-"),
				cmp.Or(j.Successor, "-"), cmp.Or(j.Reason, "-"))
		}
		out.WriteString(c.String())
	}
	out.WriteString("\n")
	if len(e.Limits) == 0 {
		out.WriteString("no eviction counts against a limit\n")
	} else {
		c := columns{width: width}
		c.add("LIMIT", "USED", "OF", "COUNTS")
		for _, l := range e.Limits {
			counts := "jobs that run"
			switch {
			case l.Window != "":
				counts = "evictions in " + l.Window
			case l.Code == "RateLimited":
				counts = "evictions, less what the rate has refilled"
			}
			c.add(l.Code+" "+l.Subject, fmt.Sprint(l.Have), l.Limit, counts)
		}
		out.WriteString(c.String())
	}
	drawKept(&out, e.Movable, e.Kept, width)
	if r := e.Round; r != nil {
		fmt.Fprintf(&out, "\nIn the last round of plugins, %s ago, %s accepted and %d refused.\n",
			age(time.Since(r.Time)), view.Count(r.Accepted, "move")+" "+wasOrWere(r.Accepted), len(r.Refused))
		var groups refusalGroups
		for _, m := range r.Refused {
			groups.add(m.Plugin, m.KeptPod)
		}
		groups.draw(&out, width)
	}
	return out.String()
}

func wasOrWere(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}
