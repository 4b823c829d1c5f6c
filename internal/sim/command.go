package sim

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/workload"
	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/progress"
	"github.com/tenon-project/tenon/internal/view"
)

// texts are those of the verbs.
//
//go:embed help
var texts embed.FS

// NewCommand returns the verb simulate, whose flag --machine adds machines.
func NewCommand(streams genericiooptions.IOStreams, machines Machines) *cobra.Command {
	var files, specs []string
	var format, rules, until string
	var fromCluster, strict bool
	flags := genericclioptions.NewConfigFlags(true)
	c := help.Command(texts, "simulate", &cobra.Command{
		RunE: func(c *cobra.Command, args []string) error {
			files := append(slices.Clone(files), args...)
			if len(files) == 0 && len(specs) == 0 && !fromCluster {
				return inputErrorf(
					"nothing to simulate: give files or folders with -f (- is standard input), --machine or --cluster")
			}
			if !slices.Contains([]string{"table", "json", "yaml"}, format) {
				return inputErrorf("-o %s is not allowed: use table, json, yaml", format)
			}
			in := Input{Paths: files, Stdin: streams.In, Warn: streams.ErrOut, Strict: strict}
			var err error
			if in.Rules, err = readRules(rules); err != nil {
				return err
			}
			if c.Flags().Changed("until") {
				if in.Until, err = ParseUntil(until); err != nil {
					return err
				}
			}
			if len(specs) > 0 {
				if in.docs, err = machines.documents(specs); err != nil {
					return err
				}
			}
			ctx, end := progress.Show(c.Context(), streams.ErrOut, "simulate", "attempts")
			defer end()
			var result Result
			if fromCluster {
				config, bad := flags.ToRESTConfig()
				if bad != nil {
					return inputErrorf("--cluster: find the cluster: %v (set KUBECONFIG or --kubeconfig)", bad)
				}
				result, err = RunCluster(ctx, config, in)
			} else {
				result, err = Run(ctx, in)
			}
			end()
			if err != nil {
				return err
			}
			return Print(streams.Out, result, format)
		},
	})
	c.Flags().StringArrayVarP(&files, "filename", "f", nil,
		"file or folder with manifests, - for standard input; may be repeated")
	c.Flags().StringArrayVar(&specs, "machine", nil,
		"add machines, as for tenon up: NAME[@KUBELET][=COUNT]; may be repeated")
	utilruntime.Must(c.RegisterFlagCompletionFunc("machine",
		cobra.FixedCompletions(machines.Presets, cobra.ShellCompDirectiveDefault)))
	c.Flags().BoolVar(&fromCluster, "cluster", false, "start from the nodes, pods and policies of the current cluster")
	c.Flags().BoolVar(&strict, "strict", false, "refuse kinds and fields that are not read, instead of skipping them")
	c.Flags().StringVar(&rules, "workload-rules", "",
		"`file` with the field workloads.rules of tenon-manager's configuration: which pods of an object start "+
			"together")
	c.Flags().StringVar(&until, "until", "",
		"let time pass for a duration, or until a time: pods with declared run times end, and others start")
	c.Flags().StringVar(flags.KubeConfig, "kubeconfig", "", "with --cluster: path of the kubeconfig")
	c.Flags().StringVar(flags.Context, "context", "", "with --cluster: context of the kubeconfig")
	c.Flags().StringVarP(&format, "output", "o", "table", "table, json or yaml")
	return c
}

// readRules returns the table of kinds with the rules of a file; nil without a file.
func readRules(file string) (*workload.Table, error) {
	d, err := strict.ReadFile("--workload-rules", file)
	if d != nil && err == nil {
		err = d.Decode("", &v1alpha1.ManagerConfiguration{}).Err()
	}
	var table workload.Table
	if d != nil && err == nil {
		table, err = convert.ReadWorkloadRules(d, convert.WorkloadRules)
	}
	if err != nil {
		return nil, inputErrorf("%v", err)
	}
	if d == nil {
		return nil, nil
	}
	return &table, nil
}

// Print writes a result as json, yaml or a table, which is wrapped where out is a terminal.
func Print(out io.Writer, r Result, format string) error {
	var text []byte
	var err error
	switch format {
	case "json":
		text, err = json.MarshalIndent(r, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(r)
	default:
		text = []byte(view.WrapLines(string(table(r, progress.Width(out))), progress.Width(out)))
	}
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	_, err = out.Write(text)
	return err
}

// devicesText lists the devices of a pod, and those of its claims by the names of the drivers.
func (p *Pod) devicesText() string {
	var parts []string
	if text := view.DevicesText(p.Devices); text != "" {
		parts = append(parts, text)
	}
	for _, c := range p.Claims {
		parts = append(parts, c.Claim+": "+strings.Join(c.Devices, ","))
	}
	return strings.Join(parts, "; ")
}

// table wraps the last column to a width; 0 is unlimited.
func table(r Result, width int) []byte {
	var out bytes.Buffer
	rows := [][]string{{"NAMESPACE", "NAME", "STATE", "NODE", "CPUS", "NUMA", "REASON"}}
	counts := map[string]int{}
	for _, p := range r.Pods {
		counts[p.State]++
		rows = append(rows, []string{
			p.Namespace, p.Name, p.State, cmp.Or(p.Node, "-"), cmp.Or(p.CPUSet, "-"),
			cmp.Or(view.IDs(p.NUMANodes), "-"), reasonText(p.Reasons),
		})
	}
	if slices.ContainsFunc(r.Pods, func(p Pod) bool { return len(p.Devices)+len(p.Claims) > 0 }) {
		rows[0] = slices.Insert(rows[0], len(rows[0])-1, "DEVICES")
		for i, p := range r.Pods {
			rows[i+1] = slices.Insert(rows[i+1], len(rows[i+1])-1, cmp.Or(p.devicesText(), "-"))
		}
	}
	alignRows(&out, rows, width)
	var sums []string
	for _, state := range []string{Scheduled, Unschedulable, Waiting, Preempted, Refused, Existing, Ended} {
		if n := counts[state]; n > 0 {
			sums = append(sums, strconv.Itoa(n)+" "+strings.ToLower(state))
		}
	}
	pods := cmp.Or(strings.Join(sums, ", "), "no pods")
	fmt.Fprintf(&out, "\n%s on %s\n", pods, view.Count(len(r.Nodes), "node"))
	if r.Timeline != nil {
		r.Timeline.draw(&out, width)
	}
	for _, t := range view.QuotaTables(r.Quotas, view.QuotaColumns()) {
		out.WriteByte('\n')
		alignRows(&out, t.Rows, width)
	}
	if len(r.Reservations) > 0 {
		out.WriteByte('\n')
		rows = [][]string{{"RESERVATION", "PHASE", "NODE", "CPUS", "DEVICES", "OWNERS", "REASON"}}
		for _, v := range r.Reservations {
			rows = append(rows, []string{
				v.Name, v.Phase, cmp.Or(v.Node, "-"), cmp.Or(v.CPUSet, "-"), cmp.Or(view.DevicesText(v.Devices), "-"),
				cmp.Or(strings.Join(v.Users, ","), "-"), cmp.Or(reasonText(v.Reasons), v.Message),
			})
		}
		alignRows(&out, rows, width)
	}
	if len(r.Migrations) > 0 {
		out.WriteByte('\n')
		rows = [][]string{{"MIGRATION", "POD", "FROM", "TO", "PHASE", "REASON"}}
		for _, m := range r.Migrations {
			text := strings.TrimPrefix(m.Message, m.Reason+": ")
			rows = append(rows, []string{
				m.Name, m.Namespace + "/" + m.Pod, cmp.Or(m.From, "-"), cmp.Or(m.To, "-"), m.Phase,
				strings.TrimPrefix(m.Reason+": "+text, ": "),
			})
		}
		alignRows(&out, rows, width)
	}
	return out.Bytes()
}

// alignRows writes rows as a table whose last column is wrapped to a width; 0 is unlimited. Where the other columns
// leave too little of it, the last one continues below its row.
func alignRows(out *bytes.Buffer, rows [][]string, width int) {
	const narrowest, indent = 20, "    "
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, strings.Join(row[:len(row)-1], "\t")+"\t") // into memory
	}
	_ = w.Flush()
	for i, beside := range strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n") {
		cell := rows[i][len(rows[i])-1]
		room := width - utf8.RuneCountInString(beside)
		if width > 0 && room < min(narrowest, utf8.RuneCountInString(cell)) {
			out.WriteString(strings.TrimRight(beside, " ") + "\n")
			beside, room = indent, max(1, width-len(indent))
		}
		for _, part := range view.Wrap(cell, " ", min(width, room)) {
			out.WriteString(strings.TrimRight(beside+part, " ") + "\n")
			beside = strings.Repeat(" ", utf8.RuneCountInString(beside))
		}
	}
}

func reasonText(reasons []Reason) string {
	parts := make([]string, len(reasons))
	for i, r := range reasons {
		parts[i] = r.Code.String() + ": "
		if r.Nodes > 0 {
			parts[i] += strconv.Itoa(r.Nodes) + " "
		}
		parts[i] += r.Message
	}
	return strings.Join(parts, "; ")
}

// Machines are the machines that --machine adds.
type Machines struct {
	// Objects returns the objects of the machines that the values of --machine name. The error of a value that is not
	// allowed has an exit code.
	Objects func(specs []string) ([]runtime.Object, error)
	// Presets are the names of the built-in machines, which a shell completes.
	Presets []string
}

func (m Machines) documents(specs []string) ([]document, error) {
	objects, err := m.Objects(specs)
	if err != nil {
		return nil, fmt.Errorf("--machine: %w", err)
	}
	docs := make([]document, 0, len(objects))
	for i, o := range objects {
		text, err := json.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("--machine: encode %T: %w", o, err)
		}
		docs = append(docs, document{origin{file: "--machine", document: i + 1}, text})
	}
	return docs, nil
}
