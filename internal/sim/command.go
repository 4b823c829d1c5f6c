package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"
)

// NewCommand returns the verb simulate.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	var files []string
	var format string
	c := &cobra.Command{
		Use:   "simulate -f FILE|DIR…",
		Short: "Say where the pods of manifests would go, with no cluster",
		Long: `Say where the pods of manifests would go, with no cluster. Nothing is started; the same input gives the same bytes.

Input: Node, NodeResourceTopology, Numatopology, Pod, Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, CronJob,
Namespace, PriorityClass, PodDisruptionBudget and v1 List. Pods with spec.nodeName are taken as they are; the others are refused as
the webhooks would, then tried by priority, highest first, and in the order of the input within one priority.

Nobody is preempted: a pod that would fit only after others were evicted is Unschedulable, and says for which resource.
Since higher priorities come first, pods of the input never need to evict each other; only those with spec.nodeName stay
where a cluster might evict them.`,
		Example: `  # a machine and pods for it
  tenon simulate -f nodes.yaml -f pods.yaml

  # a folder, for programs
  tenon simulate -f manifests/ -o json

  # what a cluster has, and one more workload
  kubectl get nodes,noderesourcetopologies,pods -A -o yaml | tenon simulate -f - -f new.yaml`,
		RunE: func(c *cobra.Command, args []string) error {
			files := append(slices.Clone(files), args...)
			if len(files) == 0 {
				return &InputError{Problems: []string{"nothing to simulate: give files or folders with -f (- is standard input)"}}
			}
			if !slices.Contains([]string{"table", "json", "yaml"}, format) {
				return &InputError{Problems: []string{fmt.Sprintf("-o %s is not allowed: use table, json, yaml", format)}}
			}
			result, err := Run(c.Context(), files, streams.In, streams.ErrOut)
			if err != nil {
				return err
			}
			return Print(streams.Out, result, format)
		},
	}
	c.Flags().StringArrayVarP(&files, "filename", "f", nil, "file or folder with manifests, - for standard input; may be repeated")
	c.Flags().StringVarP(&format, "output", "o", "table", "table, json or yaml")
	return c
}

// Print writes a result as table, json or yaml.
func Print(out io.Writer, r Result, format string) error {
	switch format {
	case "json":
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return fmt.Errorf("encode the result: %w", err)
		}
		_, err = fmt.Fprintf(out, "%s\n", text)
		return err
	case "yaml":
		text, err := yaml.Marshal(r)
		if err != nil {
			return fmt.Errorf("encode the result: %w", err)
		}
		_, err = out.Write(text)
		return err
	case "table":
		return table(out, r)
	}
	return errors.New("unknown format " + format)
}

func table(out io.Writer, r Result) error {
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { _, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) } // into memory
	row("NAMESPACE", "NAME", "STATE", "NODE", "CPUS", "NUMA", "REASON")
	counts := map[string]int{}
	for _, p := range r.Pods {
		counts[p.State]++
		row(p.Namespace, p.Name, p.State, dash(p.Node), dash(p.CPUSet), dash(join(p.NUMANodes)), reasonText(p.Reasons))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) { // the last column leaves padding
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	var sums []string
	for _, state := range []string{Scheduled, Unschedulable, Refused, Existing} {
		if n := counts[state]; n > 0 {
			sums = append(sums, strconv.Itoa(n)+" "+strings.ToLower(state))
		}
	}
	if len(sums) == 0 {
		sums = []string{"no pods"}
	}
	nodes := "nodes"
	if len(r.Nodes) == 1 {
		nodes = "node"
	}
	_, err := fmt.Fprintf(out, "\n%s on %d %s\n", strings.Join(sums, ", "), len(r.Nodes), nodes)
	return err
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func join(ids []int) string {
	parts := make([]string, len(ids))
	for i, id := range ids {
		parts[i] = strconv.Itoa(id)
	}
	return strings.Join(parts, ",")
}

func reasonText(reasons []Reason) string {
	parts := make([]string, len(reasons))
	for i, r := range reasons {
		parts[i] = r.Code.String() + ": " + r.Message
		if r.Nodes > 0 {
			parts[i] = r.Code.String() + ": " + strconv.Itoa(r.Nodes) + " " + r.Message
		}
	}
	return strings.Join(parts, "; ")
}
