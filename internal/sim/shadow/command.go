package shadow

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/deploy"
	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/progress"
	"github.com/tenon-project/tenon/internal/sched/app"
	"github.com/tenon-project/tenon/internal/sim"
	"github.com/tenon-project/tenon/internal/view"
)

// Role is the ClusterRole that the verb needs. The chart has one with the same rules, of another name: a role that was
// created before an installation is not the installation's.
var Role = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: tenon-shadow
rules:
` + deploy.ShadowRules

// texts are those of the verb.
//
//go:embed help
var texts embed.FS

// kept is how many pods the report has if their number is not bounded.
const kept = 1000

// NewCommand returns the verb shadow.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	var format string
	var count int
	var rbac bool
	flags := genericclioptions.NewConfigFlags(true)
	c := help.Command(texts, "shadow", &cobra.Command{
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case rbac:
				_, err := io.WriteString(streams.Out, Role)
				return err
			case count < 0:
				return bad("--count %d is not allowed: use a number of pods, or 0 to run until interrupted",
					count)
			case !slices.Contains([]string{"text", "json"}, format):
				return bad("-o %s is not allowed: use text, json", format)
			}
			return run(c.Context(), flags, streams, count, format)
		},
	})
	c.Flags().IntVar(&count, "count", 100, "end after this many pods; 0: run until interrupted")
	c.Flags().BoolVar(&rbac, "rbac", false, "print the ClusterRole that the command needs, and exit")
	c.Flags().StringVarP(&format, "output", "o", "text", "text or json")
	c.Flags().StringVar(flags.KubeConfig, "kubeconfig", "", "path of the kubeconfig")
	c.Flags().StringVar(flags.Context, "context", "", "context of the kubeconfig")
	c.Flags().StringVar(flags.Impersonate, "as", "", "account to impersonate")
	return c
}

func bad(format string, args ...any) error {
	return &sim.InputError{Problems: []string{fmt.Sprintf(format, args...)}}
}

func run(ctx context.Context, flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams, count int,
	format string,
) error {
	klog.SetLogger(logr.Discard()) // what goes wrong is in the error or in the report
	config, err := flags.ToRESTConfig()
	if err != nil {
		return bad("find the cluster: %v (set KUBECONFIG or --kubeconfig)", err)
	}
	config.UserAgent = "tenon-shadow"
	most := count
	if count == 0 {
		most = kept
	}
	s, err := app.NewShadow(ctx, config, most)
	if err != nil {
		return err
	}
	pods, text := 0, format == "text"
	row := func(cells ...any) {
		if text {
			line := strings.TrimRight(fmt.Sprintf("%-40s %-20s %-20s %-8s %s", cells...), " ") + "\n"
			// An error is that of the report, below.
			_, _ = io.WriteString(streams.Out, view.WrapLines(line, progress.Width(streams.Out)))
		}
	}
	err = s.Run(ctx, func() {
		_, _ = fmt.Fprintf(streams.ErrOut, "Waits for pods that get a node; ends after %s, or with Ctrl-C.\n",
			limit(count))
		row("POD", "NODE", "TENON", "OUTCOME", "WORTH")
	}, func(p view.ShadowPod) bool {
		pods++
		node := "-"
		if p.Tenon != nil {
			node = p.Tenon.Node
		}
		row(p.Pod, p.Bound.Node, node, p.Outcome, p.Worth())
		return count == 0 || pods < count
	})
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w (tenon shadow --rbac prints the role with all rights that it needs)", err)
	case err != nil:
		return err
	}
	report := s.Report()
	if text {
		_, err = io.WriteString(streams.Out, view.WrapLines("\n"+report.Text(), progress.Width(streams.Out)))
		return err
	}
	encoder := json.NewEncoder(streams.Out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(report)
}

func limit(count int) string {
	if count == 0 {
		return "no number of them"
	}
	return view.Count(count, "pod")
}
