package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/internal/core/health"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

func newTop(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var list listFlags
	c := help.Command(texts, "top", &cobra.Command{
		ValidArgs: topSubjects(),
		RunE: func(c *cobra.Command, args []string) error {
			what, err := topSubject(args)
			if err != nil {
				return err
			}
			if err := list.check(""); err != nil {
				return err
			}
			if what == "nodes" || what == "pods" {
				return showUse(c.Context(), flags, streams.Out, &list, what, givenNamespace(c, flags))
			}
			return list.showTop(c.Context(), flags, streams.Out, what)
		},
	})
	list.add(c, "nodes")
	allNamespacesFlag(c)
	return c
}

func topSubjects() []string { return []string{"cpu", "numa", "gpu", "nodes", "pods"} }

func topSubject(args []string) (string, error) {
	if len(args) == 0 {
		return "cpu", nil
	}
	if len(args) > 1 {
		return "", usagef("too many arguments: specify one of cpu, numa, gpu, nodes or pods")
	}
	switch args[0] {
	case "cpu", "numa", "gpu":
		return args[0], nil
	case "cpus", "gpus":
		return strings.TrimSuffix(args[0], "s"), nil
	case "nodes", "node", "no":
		return "nodes", nil
	case "pods", "pod", "po":
		return "pods", nil
	}
	return "", usagef("cannot show %q%s: use cpu, numa, gpu, nodes or pods", args[0], suggest(args[0], topSubjects()))
}

// showTop prints what nodes have allocated. Who may not read ElasticQuotas sees no quotas.
func (f *listFlags) showTop(ctx context.Context, flags *genericclioptions.ConfigFlags, out io.Writer, what string,
) error {
	cl, err := connect(flags)
	if err != nil {
		return err
	}
	return f.show(ctx, flags, out, "", func(w io.Writer, a *account) error {
		if what == "cpu" {
			quotas := kube.NewQuotas(time.Now).UseDefaults()
			table := accounts.Accounts{Quotas: quotas}.Table()
			_, err := cl.read(ctx, table.Of("ElasticQuota"), "", table.Put)
			if err != nil && !apierrors.IsForbidden(err) {
				return err
			}
			if objects, _ := quotas.Objects(); err == nil && len(objects) > 0 {
				a.quotas = quotas
			}
		}
		return printTop(w, a, what, f.format, f.width(out))
	})
}

// addOwners adds what quotas and gangs have on nodes.
func (a *account) addOwners(rows []view.Load) {
	onNode, milliCPU := map[string]*view.Load{}, map[string]map[string]int64{} // the latter by node and quota
	for i := range rows {
		onNode[rows[i].Node], milliCPU[rows[i].Node] = &rows[i], map[string]int64{}
	}
	for _, p := range a.all {
		row := onNode[p.Spec.NodeName]
		if row == nil || convert.Ended(p) {
			continue
		}
		if g, isMember := convert.GangPod(p); isMember {
			if row.Gangs == nil {
				row.Gangs = map[string]int{}
			}
			row.Gangs[g.Gang]++
		}
		if a.quotas != nil {
			a.quotas.Read(func(all *quota.Account) {
				if q, _ := all.QuotaOf(convert.PodsOf(p)); q.Name() != quota.Default {
					milliCPU[row.Node][q.Name()] += describe.Requests(p).MilliCPU
				}
			})
		}
	}
	for node, quotas := range milliCPU {
		for name, milli := range quotas {
			if onNode[node].Quotas == nil {
				onNode[node].Quotas = map[string]string{}
			}
			onNode[node].Quotas[name] = view.CPUText(milli)
		}
	}
}

func printTop(out io.Writer, a *account, what, format string, width int) error {
	switch what {
	case "gpu":
		rows := []view.GPULoad{}
		for _, n := range a.nodes {
			known, _ := a.store.Node(n.Name)
			if load, has := describe.GPULoad(known, a.used[n.Name], a.health(n)); has {
				rows = append(rows, load)
			}
		}
		return printAnswer(out, format, newList("GPUTopList", rows), func() string { return gpuTable(rows, width) },
			namesOf("node", rows, func(l *view.GPULoad) string { return l.Node })...)
	case "numa":
		rows := []view.NUMALoad{}
		for _, n := range a.nodes {
			rows = append(rows, view.NUMALoadsOf(a.view(n.Name), n.Name, a.health(n))...)
		}
		return printAnswer(out, format, newList("NUMATopList", rows), func() string { return numaTable(rows, width) },
			namesOf("node", rows, func(l *view.NUMALoad) string { return l.Node })...)
	}
	rows := []view.Load{}
	for _, n := range a.nodes {
		cpu := n.Status.Allocatable.Cpu().MilliValue()
		rows = append(rows,
			view.LoadOf(n.Name, cpu, a.used[n.Name].MilliCPU, a.view(n.Name), a.pods[n.Name], a.health(n)))
	}
	a.addOwners(rows)
	for i, n := range a.nodes {
		rows[i].Labels = maps.Clone(n.Labels)
		delete(rows[i].Labels, corev1.LabelHostname)
	}
	return printAnswer(out, format, newList("NodeTopList", rows),
		func() string { return nodeTable(rows, format == wide, width) },
		namesOf("node", rows, func(l *view.Load) string { return l.Node })...)
}

// nodeTable draws the accounts of nodes; more adds the columns that few ask for.
func nodeTable(rows []view.Load, more bool, width int) string {
	t := columns{width: width, right: 11}
	head := []any{
		"NODE", "CPU", "REQ", "PODS", "LSE", "LSR", "PINNED", "LS", "BE", "POOL", "FREE", "FIT", "FIT/NUMA",
	}
	if more {
		head = append(head, "FRAGMENTED", "QUOTAS", "GANGS")
	}
	t.add(head...)
	for _, r := range rows {
		row := []any{
			withHealth(r.Node, &r.Health), r.Allocatable, r.Requested, r.Pods, r.LSE, r.LSR, r.Kubelet,
			r.LS, r.BE, r.SharedPool, r.Free,
			r.LargestFit, r.LargestOnOneNUMANode,
		}
		if r.Fault != "" {
			row = []any{
				withHealth(r.Node, &r.Health), r.Allocatable, r.Requested, r.Pods, "-", "-", "-", r.LS, r.BE,
				"-", "-", "-",
				r.Fault,
			}
		}
		if more {
			fragmented := "-"
			if r.FragmentedPercent >= 0 {
				fragmented = fmt.Sprintf("%d%%", r.FragmentedPercent)
			}
			row = append(row, fragmented, ownersText(r.Quotas), ownersText(r.Gangs))
		}
		t.add(row...)
	}
	return t.String() + strandedText(rows)
}

// withHealth is the name of a node with what is wrong with it.
func withHealth(node string, h *health.Health) string {
	if text := h.Text(); text != "" {
		return node + " (" + text + ")"
	}
	return node
}

// strandedText sums the CPU that new pods cannot use, by cause; "" where there is none.
func strandedText(rows []view.Load) string {
	sums, nodes := map[health.Cause]*resource.Quantity{}, map[health.Cause]int{}
	for _, r := range rows {
		if r.Stranded == "" {
			continue
		}
		if sums[r.Health.Closed] == nil {
			sums[r.Health.Closed] = &resource.Quantity{}
		}
		sums[r.Health.Closed].Add(resource.MustParse(r.Stranded)) // a canonical quantity
		nodes[r.Health.Closed]++
	}
	var parts []string
	for _, cause := range slices.Sorted(maps.Keys(sums)) {
		parts = append(parts, fmt.Sprintf("%s %s (%s)", sums[cause], cause, view.Count(nodes[cause], "node")))
	}
	if len(parts) == 0 {
		return ""
	}
	return "stranded CPUs: " + strings.Join(parts, ", ") + "\n"
}

// ownersText lists what each name has, by name.
func ownersText[T any](owners map[string]T) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(owners)) {
		parts = append(parts, fmt.Sprintf("%s %v", name, owners[name]))
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

func numaTable(rows []view.NUMALoad, width int) string {
	if len(rows) == 0 {
		return "no node has a CPU topology\n"
	}
	t := columns{width: width, right: 10, keys: 2}
	t.add("NODE", "NUMA", "SOCKET", "CPUS", "LSE", "LSR", "PINNED", "POOL", "COMMITTED", "FREE", "FREE CORES")
	for _, r := range rows {
		t.add(withHealth(r.Node, &r.Health), r.NUMA, r.Socket, r.CPUs, r.LSE, r.LSR, r.Kubelet, r.SharedPool,
			r.Committed, r.Free, r.FreeCores)
	}
	return t.String()
}

func gpuTable(rows []view.GPULoad, width int) string {
	if len(rows) == 0 {
		return "no node has a Device object with GPUs\n"
	}
	t := columns{width: width}
	t.add("NODE", "MODEL", "GPUS", "USED", "FREE", "PARTS", "FIT1", "FIT2", "FIT4", "FIT8", "ISOLATION", "STRANDED")
	for _, r := range rows {
		gpus, parts, stranded := strconv.Itoa(r.GPUs), "-", []string{}
		if r.Degraded > 0 {
			gpus += fmt.Sprintf(" (%d degraded)", r.Degraded)
		}
		if r.InParts > 0 {
			parts = fmt.Sprintf("%d (%d%%)", r.InParts, r.FreeShares)
		}
		for _, s := range r.Stranded {
			stranded = append(stranded, fmt.Sprintf("%d %s", s.GPUs, s.Cause))
		}
		used := strconv.FormatFloat(float64(r.UsedPercent)/100, 'f', -1, 64)
		t.add(withHealth(r.Node, &r.Health), r.Model, gpus, used, r.Free, parts, r.Fit["1"], r.Fit["2"], r.Fit["4"],
			r.Fit["8"], r.Isolation,
			cmp.Or(strings.Join(stranded, ", "), "-"))
	}
	return t.String()
}
