package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

// metrics reads the NodeMetrics by name, or that of a node; none where the cluster does not serve them. One that cannot
// be read is left out, as if its node had not reported: another program may have written it.
func (c cluster) metrics(ctx context.Context, node string) (map[string]*slo.NodeMetric, error) {
	objects, err := c.objects(ctx, slo.NodeMetrics(), node)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list node metrics: %w", err)
	}
	found := map[string]*slo.NodeMetric{}
	for i := range objects {
		m := &slo.NodeMetric{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[i].Object, m); err != nil {
			continue
		}
		found[m.Name] = m
	}
	return found, nil
}

// showUse prints what nodes use, or the pods of a namespace; "" is all.
func showUse(ctx context.Context, flags *genericclioptions.ConfigFlags, out io.Writer, list *listFlags,
	what, namespace string,
) error {
	p, err := newPaint(colorAuto, out, os.Getenv)
	if err != nil {
		return err
	}
	return list.show(ctx, flags, out, "", func(w io.Writer, a *account) error {
		switch {
		case a.unmeasured != nil:
			return a.unmeasured
		case what == "pods":
			return printPodUse(w, podUses(a, a.metrics, namespace), list.format, p, list.width(out))
		}
		return printUse(w, nodeUses(a, a.metrics, time.Now()), list.format, p, list.width(out))
	})
}

// nodeUses describes the nodes of an account.
func nodeUses(a *account, metrics map[string]*slo.NodeMetric, now time.Time) []view.NodeUse {
	rows := []view.NodeUse{}
	byClass := memoryByClass(a)
	for _, n := range a.nodes {
		use := describe.NodeUse(n, metrics[n.Name], a.used[n.Name], now)
		use.Health, use.MemoryByClass = a.health(n), byClass[n.Name]
		rows = append(rows, use)
	}
	return rows
}

// memoryByClass returns what pods request of the memory of each node, by QoS class. Pods without a class share the LS
// pool.
func memoryByClass(a *account) map[string]map[string]string {
	bytes := map[string]map[string]int64{}
	for _, p := range a.all {
		node, asks := p.Spec.NodeName, describe.Requests(p).MemoryBytes
		if node == "" || convert.Ended(p) || asks == 0 {
			continue
		}
		if bytes[node] == nil {
			bytes[node] = map[string]int64{}
		}
		class, _, _ := convert.PodQoS(p)
		bytes[node][cmp.Or(class.String(), qos.LS.String())] += asks
	}
	out := map[string]map[string]string{}
	for node, classes := range bytes {
		out[node] = map[string]string{}
		for class, n := range classes {
			out[node][class] = view.BytesText(n)
		}
	}
	return out
}

// podUses describes the pods of the nodes of an account that are in a namespace, those that use most CPU first. The
// namespace "" is all.
func podUses(a *account, metrics map[string]*slo.NodeMetric, namespace string) []view.PodUse {
	rows, milli := []view.PodUse{}, map[string]int64{}
	for _, p := range a.all {
		known := slices.ContainsFunc(a.nodes, func(n *corev1.Node) bool { return n.Name == p.Spec.NodeName })
		if !known || convert.Ended(p) || namespace != "" && p.Namespace != namespace {
			continue
		}
		reported := reportOfPod(metrics[p.Spec.NodeName], p)
		row := describe.PodUse(p, reported)
		if reported != nil {
			milli[row.Pod] = cpuOf(reported.PodUsage)
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(x, y view.PodUse) int {
		return cmp.Or(cmp.Compare(milli[y.Pod], milli[x.Pod]), cmp.Compare(x.Pod, y.Pod))
	})
	return rows
}

// reportOfPod finds a pod in its node's report; nil where the report has none, or may be about an earlier pod of that
// name.
func reportOfPod(m *slo.NodeMetric, p *corev1.Pod) *slo.PodMetricInfo {
	if m == nil || m.Status.UpdateTime == nil || p.Status.StartTime == nil ||
		m.Status.UpdateTime.Time.Before(p.Status.StartTime.Time) {
		return nil
	}
	for _, r := range m.Status.PodsMetric {
		if r != nil && r.Namespace == p.Namespace && r.Name == p.Name {
			return r
		}
	}
	return nil
}

func printUse(out io.Writer, rows []view.NodeUse, format string, p paint, width int) error {
	return printAnswer(out, format, newList("NodeUseList", rows), func() string { return useTable(rows, p, width) },
		namesOf("node", rows, func(u *view.NodeUse) string { return u.Node })...)
}

func printPodUse(out io.Writer, rows []view.PodUse, format string, p paint, width int) error {
	return printAnswer(out, format, newList("PodUseList", rows), func() string { return podUseTable(rows, p, width) },
		namesOf("pod", rows, func(u *view.PodUse) string { return path.Base(u.Pod) })...)
}

// orDash is a quantity, - where there is none.
func orDash(text string) string { return cmp.Or(text, "-") }

// bar has ten cells, of which those are full that are in use, also in part; nothing where the share is not known.
func (p paint) bar(percent int64) string {
	if percent < 0 {
		return strings.Repeat(" ", 10)
	}
	full := int(min(percent+9, 100)) / 10
	return strings.Repeat(p.symbol("█", "#"), full) + strings.Repeat(p.symbol("░", "."), 10-full)
}

func useTable(rows []view.NodeUse, p paint, width int) string {
	t := columns{paint: p, width: width, parts: []int{8}}
	t.add("NODE", "CPU", "ALLOC", "REQ", "USED", "P95", "RECLAIM", "BATCH", "MEMORY", "ALLOC", "REQ", "USED", "P95",
		"RECLAIM", "BATCH", "SUPPRESSED", "REPORT")
	for _, r := range rows {
		age := "none"
		if r.ReportSeconds >= 0 {
			age = (time.Duration(r.ReportSeconds) * time.Second).String() + " ago"
		}
		row := []any{withHealth(r.Node, &r.Health)}
		for _, a := range []view.AmountUse{r.CPU, r.Memory} {
			row = append(row, p.bar(a.UsedPercent), a.Allocatable, a.Requested, orDash(a.Used), orDash(a.P95),
				orDash(a.Reclaimable), orDash(a.Batch))
		}
		t.add(append(row, suppressedTo(r.Suppressed), age)...)
	}
	return t.String()
}

// suppressedTo shortens what a node says of its best-effort pods to how much they have.
func suppressedTo(text string) string {
	if _, after, ok := strings.Cut(text, " suppressed to "); ok {
		text, _, _ = strings.Cut(after, ":")
	}
	return orDash(text)
}

func podUseTable(rows []view.PodUse, p paint, width int) string {
	t := columns{paint: p, width: width, parts: []int{7}}
	t.add("POD", "NODE", "QOS", "CPU", "REQ", "USED", "THROTTLED", "MEMORY", "REQ", "USED")
	for _, r := range rows {
		t.add(r.Pod, r.Node, orDash(r.QoS), p.bar(r.CPU.UsedPercent), r.CPU.Requested, orDash(r.CPU.Used),
			throttledText(r), p.bar(r.Memory.UsedPercent), r.Memory.Requested, orDash(r.Memory.Used))
	}
	return t.String()
}

// throttledText is for how long of a second a pod was throttled; - where no agent reported the pod.
func throttledText(r view.PodUse) string {
	if r.CPU.Used == "" {
		return "-"
	}
	return fmt.Sprintf("%dms/s", r.ThrottledMilliseconds)
}

func cpuOf(used slo.ResourceMap) int64 {
	q := used.Resources[corev1.ResourceCPU]
	return q.MilliValue()
}
