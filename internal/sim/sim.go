package sim

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/diag/explain"
)

// schedulerNames are those that a simulated cluster serves.
var schedulerNames = []string{"tenon-scheduler", corev1.DefaultSchedulerName, "koord-scheduler"}

// Run decides about the manifests in files and folders; "-" is in. Warnings about the input, one a line, go to warn.
// Bad input is an *InputError.
func Run(ctx context.Context, paths []string, in io.Reader, warn io.Writer) (Result, error) {
	ctx, cancel := context.WithCancel(quiet(ctx))
	defer cancel()
	w, err := read(paths, in, warn)
	if err != nil {
		return Result{}, err
	}
	hooks, err := readWebhooks()
	if err != nil {
		return Result{}, err
	}
	e, err := newEngine(ctx, w)
	if err != nil {
		return Result{}, err
	}
	warnTopologies(e.store, w, warn)
	r := Result{Pods: []Pod{}, Quotas: []Quota{}, Gangs: []Gang{}, Nodes: []Node{}}
	for _, p := range w.existing {
		r.Pods = append(r.Pods, outcome(e.store, p.Pod, nil, Existing))
	}
	for _, p := range w.pending {
		out, err := decide(ctx, e, p, hooks.admit(p.Pod, w.namespace(p.Namespace), warn))
		if err != nil {
			return Result{}, err
		}
		r.Pods = append(r.Pods, out)
	}
	slices.SortFunc(r.Pods, func(a, b Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	for _, n := range w.nodes {
		r.Nodes = append(r.Nodes, pools(e.store, n.Name))
	}
	return r, nil
}

// read turns the input into a world.
func read(paths []string, in io.Reader, warn io.Writer) (*world, error) {
	docs, ignored, err := readDocuments(paths, in)
	if err != nil {
		return nil, err
	}
	if len(docs) == 0 {
		return nil, inputErrorf("%s: no Kubernetes object", strings.Join(paths, ", "))
	}
	d, err := newDecoder()
	if err != nil {
		return nil, err
	}
	for _, doc := range docs {
		d.document(doc)
	}
	w, err := newWorld(d.objects, &d.problems)
	if err != nil {
		return nil, err
	}
	w.prioritize(&d.problems)
	if err := d.err(); err != nil {
		return nil, err
	}
	for _, file := range ignored {
		warnf(warn, "ignored: %s: not a .yaml, .yml or .json file", file)
	}
	if text := unusedText(d.unused); text != "" {
		warnf(warn, "ignored: %s: they do not change where pods go", text)
	}
	w.warn(warn)
	return w, nil
}

func unusedText(unused map[string]int) string {
	kinds := make([]string, 0, len(unused))
	for kind, n := range unused {
		kinds = append(kinds, kind+" ("+strconv.Itoa(n)+")")
	}
	slices.Sort(kinds)
	return strings.Join(kinds, ", ")
}

func warnf(warn io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(warn, format+"\n", args...) // warnings are best effort
}

// warn tells what is understood and still looks wrong.
func (w *world) warn(warn io.Writer) {
	known := map[string]bool{}
	for _, n := range w.nodes {
		known[n.Name] = true
		answer := admission.Node(n)
		for _, text := range answer.Warnings {
			warnf(warn, "warning: Node %s: %s", n.Name, text)
		}
	}
	for _, t := range w.topologies {
		if !known[t.Name] {
			warnf(warn, "warning: NodeResourceTopology %s: there is no Node of that name", t.Name)
		}
	}
	for _, n := range w.numatopologies {
		if !known[n.Name] {
			warnf(warn, "warning: Numatopology %s: there is no Node of that name", n.Name)
		}
	}
	for _, p := range w.existing {
		if !known[p.Spec.NodeName] {
			warnf(warn, "warning: Pod %s/%s: there is no Node %s", p.Namespace, p.Name, p.Spec.NodeName)
		}
	}
}

// warnTopologies tells what a topology says that the scheduler cannot use.
func warnTopologies(store *kube.Store, w *world, warn io.Writer) {
	for _, t := range w.topologies {
		known, _ := store.Node(t.Name)
		for _, p := range known.Problems {
			if p.Object == "NodeResourceTopology/"+t.Name {
				warnf(warn, "warning: NodeResourceTopology %s: %s: %s", t.Name, p.Field(), p.Text)
			}
		}
	}
	for _, n := range w.numatopologies {
		known, _ := store.Node(n.Name)
		for _, p := range known.Problems {
			if p.Object == "Numatopology/"+n.Name {
				warnf(warn, "warning: Numatopology %s: %s: %s", n.Name, p.Key, p.Text)
			}
		}
	}
}

// decide places a pod that the webhooks do not refuse.
func decide(ctx context.Context, e *engine, p pod, refused []Reason) (Pod, error) {
	if len(refused) > 0 {
		out := outcome(e.store, p.Pod, nil, Refused)
		out.Reasons = refused
		return out, nil
	}
	if held := standing(p.Pod); len(held) > 0 {
		out := outcome(e.store, p.Pod, nil, Unschedulable)
		out.Reasons = reasons(held)
		return out, nil
	}
	bound, findings, err := e.place(ctx, p.Pod)
	if err != nil {
		return Pod{}, err
	}
	if bound == nil {
		out := outcome(e.store, p.Pod, nil, Unschedulable)
		out.Reasons = reasons(findings)
		return out, nil
	}
	wrote := map[string]string{}
	for key, value := range bound.Annotations {
		if p.Annotations[key] != value {
			wrote[key] = value
		}
	}
	return outcome(e.store, bound, wrote, Scheduled), nil
}

// standing are the reasons for which no scheduler would try a pod.
func standing(p *corev1.Pod) []why.Finding {
	if !slices.Contains(schedulerNames, p.Spec.SchedulerName) {
		return []why.Finding{{
			Reason: why.Reason{Code: why.NoScheduler}, Phase: why.PreEnqueue,
			Detail: fmt.Sprintf("spec.schedulerName is %q, served are %s", p.Spec.SchedulerName, strings.Join(schedulerNames, ", ")),
		}}
	}
	if len(p.Spec.SchedulingGates) > 0 {
		return []why.Finding{{Reason: why.Reason{Code: why.SchedulingGate}, Phase: why.PreEnqueue, Detail: explain.GateText(p)}}
	}
	return nil
}

func reasons(findings []why.Finding) []Reason {
	out := []Reason{}
	for _, o := range why.Obstacles(findings) {
		out = append(out, Reason{Code: o.Code, Message: o.Phrase(why.English), Nodes: o.Nodes})
	}
	return out
}

func outcome(store *kube.Store, p *corev1.Pod, wrote map[string]string, state string) Pod {
	out := Pod{
		Namespace: p.Namespace, Name: p.Name, State: state, Node: p.Spec.NodeName,
		NUMANodes: []int{}, Devices: map[string][]Device{}, Annotations: wrote, Reasons: []Reason{},
	}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	if out.Node == "" {
		return out
	}
	v := store.View(p.Spec.NodeName)
	if v == nil {
		return out
	}
	e, ok := v.Entry(string(p.UID))
	if !ok {
		return out
	}
	m := v.Machine()
	switch {
	case e.Role.Binds() && m != nil:
		cpus := v.CPUsOf(e.UID)
		out.CPUSet, out.NUMANodes = m.FormatList(cpus), numaNodes(m, cpus)
	case e.Role.Binds():
		out.CPUSet = e.CPUList
	case len(e.NUMAIDs) > 0:
		out.NUMANodes = e.NUMAIDs
	}
	return out
}

func numaNodes(m *topo.Machine, cpus cpuset.Set) []int {
	out := []int{}
	for _, n := range m.CPUNodes() {
		if on := m.NUMACPUs(n); on.Overlaps(&cpus) {
			out = append(out, m.NUMAID(n))
		}
	}
	return out
}

// pools are the shared pools of a node at the end.
func pools(store *kube.Store, node string) Node {
	out := Node{Name: node, SharedPools: []SharedPool{}, BESharedPool: []SharedPool{}}
	v := store.View(node)
	if v == nil || v.Machine() == nil {
		return out
	}
	out.SharedPools, out.BESharedPool = byNUMA(v.Machine(), v.SharedPool()), byNUMA(v.Machine(), v.BEPool())
	return out
}

func byNUMA(m *topo.Machine, cpus cpuset.Set) []SharedPool {
	out := []SharedPool{}
	for _, n := range m.CPUNodes() {
		out = append(out, SharedPool{
			Socket: m.SocketID(m.NUMASocket(n)), Node: m.NUMAID(n), CPUSet: m.FormatList(m.NUMACPUs(n).Intersect(cpus)),
		})
	}
	return out
}
