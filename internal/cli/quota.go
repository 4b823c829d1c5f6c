package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

type quotaOptions struct {
	format, color, address string
	tree                   string
	ofTree                 bool // tree was given: "" is the default tree
	rounds                 bool
}

func newQuota(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var o quotaOptions
	c := help.Command(texts, "quota", &cobra.Command{
		ValidArgsFunction: completeArgument(flags, "quota"),
		RunE: func(c *cobra.Command, args []string) error {
			_, name, err := named(args, "quota")
			if err != nil {
				return err
			}
			o.ofTree = c.Flags().Changed("tree")
			if name != "" && o.ofTree {
				return usagef("--tree and a name exclude each other")
			}
			return showQuotas(c.Context(), &o, name, flags, streams)
		},
	})
	outputFlag(c, &o.format, wide, nameFormat)
	c.Flags().StringVar(&o.color, "color", colorAuto, "auto, always or never")
	diagnosticsFlag(c, &o.address)
	c.Flags().StringVar(&o.tree, "tree", "", `show only the tree with this id, "" is the default tree`)
	utilruntime.Must(c.RegisterFlagCompletionFunc("tree", completeTrees(flags)))
	c.Flags().BoolVar(&o.rounds, "rounds", false, "show the rounds that computed the runtimes")
	return c
}

func showQuotas(ctx context.Context, o *quotaOptions, name string, flags *genericclioptions.ConfigFlags,
	streams genericiooptions.IOStreams,
) error {
	p, err := newPaint(o.color, streams.Out, os.Getenv)
	if err != nil {
		return err
	}
	scheduler, err := findDiagnostics(flags, o.address)
	if err != nil {
		return err
	}
	o.rounds = o.rounds || name != ""
	quotas, err := scheduler.quotas(ctx, o.rounds, streams.ErrOut)
	if err == nil && quotas == nil {
		quotas, err = quotasOfObjects(ctx, flags, o.rounds)
	}
	if err != nil {
		return err
	}
	draw := func(shown []view.Quota, parents []string) string {
		return drawQuotas(shown, quotas, parents, o, p, widthFor(o.format, streams.Out))
	}
	if name == "" {
		if quotas, err = o.inTree(quotas); err != nil {
			return err
		}
		return printAnswer(streams.Out, o.format, newList("QuotaList", quotas),
			func() string { return draw(quotas, nil) },
			namesOf("quota", quotas, func(q *view.Quota) string { return q.Name })...)
	}
	i := slices.IndexFunc(quotas, func(q view.Quota) bool { return q.Name == name })
	if i < 0 {
		return unknownOf("quota", name, quotas, func(q view.Quota) string { return q.Name })
	}
	answer := struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		view.Quota
	}{apiVersion, "Quota", quotas[i]}
	return printAnswer(streams.Out, o.format, answer, func() string {
		onPath, parents := pathOf(quotas, quotas[i])
		return "quota " + strings.Join(quotas[i].Path, "/") + "\n\n" + draw(onPath, parents)
	}, "quota/"+name)
}

func (o *quotaOptions) inTree(quotas []view.Quota) ([]view.Quota, error) {
	if !o.ofTree {
		return quotas, nil
	}
	out := slices.DeleteFunc(slices.Clone(quotas), func(q view.Quota) bool { return q.Tree != o.tree })
	if len(out) == 0 {
		return nil, unknownOf("tree", o.tree, quotas, func(q view.Quota) string { return q.Tree })
	}
	return out, nil
}

// namesShown is how many names an error about an unknown one lists.
const namesShown = 10

func unknownOf[T any](what, name string, all []T, nameOf func(T) string) error {
	var known []string
	for _, q := range all {
		known = append(known, cmp.Or(nameOf(q), `"" (the default tree)`))
	}
	if len(known) == 0 {
		return usagef("%s %q not found: there is none", what, name)
	}
	slices.Sort(known)
	known = slices.Compact(known)
	listed := strings.Join(known[:min(len(known), namesShown)], ", ")
	if more := len(known) - namesShown; more > 0 {
		listed += fmt.Sprintf(" and %d more", more)
	}
	return usagef("%s %q not found%s (there are %s)", what, name, suggest(name, known), listed)
}

// pathOf returns a quota with those above it, and the names of those above it.
func pathOf(quotas []view.Quota, q view.Quota) (path []view.Quota, parents []string) {
	path, parents = []view.Quota{q}, []string{}
	for parent := q.Parent; parent != ""; {
		i := slices.IndexFunc(quotas, func(o view.Quota) bool { return o.Name == parent })
		if i < 0 || slices.Contains(parents, parent) {
			break // it may not be seen
		}
		path, parents = append(path, quotas[i]), append(parents, parent)
		parent = quotas[i].Parent
	}
	return path, parents
}

// drawQuotas draws some quotas, and with rounds the divisions below parents (nil: all of theirs) among all.
func drawQuotas(shown, all []view.Quota, parents []string, o *quotaOptions, p paint, width int) string {
	shownColumns := view.QuotaColumns()
	if o.format == wide {
		shownColumns = append(shownColumns, view.MoreQuotaColumns()...)
	}
	tables := view.QuotaTables(shown, shownColumns)
	if len(tables) == 0 {
		return "no quota limits anything: no ElasticQuota has a max\n"
	}
	if o.rounds {
		if parents == nil {
			all = shown
		}
		tables = append(tables, view.DivisionTables(all, convert.QuotaText, parents)...)
	}
	var texts []string
	for _, t := range tables {
		c := columns{paint: p, width: width, right: len(t.Rows[0])}
		for _, row := range t.Rows {
			cells := make([]any, len(row))
			for i, cell := range row {
				cells[i] = cell
			}
			c.add(cells...)
		}
		text := c.String()
		if t.Title != "" {
			text = strings.Join(view.Wrap(t.Title, " ", width), "\n") + "\n" + text
		}
		texts = append(texts, text)
	}
	text := strings.Join(texts, "\n")
	for _, q := range shown {
		for _, problem := range q.Problems {
			for _, line := range view.Wrap(p.cross()+q.Name+": "+problem, " ", width) {
				text += p.text(red, line) + "\n"
			}
		}
	}
	return text
}

// quotas asks the scheduler; nil where the objects must do.
func (d diagnostics) quotas(ctx context.Context, rounds bool, warn io.Writer) ([]view.Quota, error) {
	return ofPlugin[view.Quota](ctx, d, "ElasticQuota", "quotas", fmt.Sprintf("rounds=%t", rounds), warn)
}

// quotasOfObjects accounts what the API says.
func quotasOfObjects(ctx context.Context, flags *genericclioptions.ConfigFlags, rounds bool) ([]view.Quota, error) {
	c, err := connect(flags)
	if err != nil {
		return nil, err
	}
	s := kube.NewQuotas(time.Now).UseDefaults()
	table := accounts.Accounts{Quotas: s}.Table()
	served, err := c.read(ctx, table.Of("ElasticQuota"), "", table.Put)
	if err != nil {
		return nil, err
	}
	if !served {
		return nil, usagef("the cluster serves no ElasticQuota, neither of %s",
			strings.Join(v1alpha1.Groups(), " nor of "))
	}
	nodes, err := c.core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		table.Put(&nodes.Items[i])
	}
	pods, err := c.core.CoreV1().Pods(corev1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		table.Put(&pods.Items[i])
	}
	if err := c.claims(ctx, table); err != nil {
		return nil, err
	}
	return quotasOf(s, rounds), nil
}

func quotasOf(s *kube.Quotas, rounds bool) (out []view.Quota) {
	s.Read(func(a *quota.Account) {
		f := a.Forest()
		exact := f.Shares()
		for _, r := range f.Reports() { // by name
			v := view.QuotaOf(f, f.Find(r.Name), convert.QuotaText)
			if rounds {
				v.AddDivisions(f, f.Find(r.Name), exact)
			}
			out = append(out, v)
		}
	})
	for i := range out {
		out[i].Problems = s.Problems(out[i].Name)
	}
	return out
}

// quotaLimit adds what holds a pod back, and who has what it lacks.
func (r *renderer) quotaLimit(l *view.QuotaLimit) {
	if l == nil {
		return
	}
	for _, s := range l.Shortages {
		text := fmt.Sprintf("%s uses %s of %s; a request of %s exceeds its %s of %s", l.Quota, s.Used, s.Dimension,
			s.Request, l.LimitKind, s.Limit)
		if len(l.Path) > 1 {
			text += "; path " + strings.Join(l.Path, "/")
		}
		r.line("  quota", text)
		var borrow []string
		for _, b := range s.Borrowers {
			text := fmt.Sprintf("%s uses %s, %s above its min of %s", b.Quota, b.Used, b.Borrowed, b.Min)
			borrow = append(borrow, text)
		}
		if s.BorrowersHidden > 0 {
			borrow = append(borrow, view.Count(s.BorrowersHidden, "quota")+" that you may not see")
		}
		r.line("  borrowers", strings.Join(borrow, "; "))
		var outside []string
		for _, name := range slices.Sorted(maps.Keys(s.Outside)) {
			outside = append(outside, fmt.Sprintf("%s uses %s of what quotas divide", name, s.Outside[name]))
		}
		r.line("  outside", strings.Join(outside, "; "))
	}
}
