package sim

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/view"
)

// schedulerNames are those that a simulated cluster serves.
var schedulerNames = []string{"tenon-scheduler", corev1.DefaultSchedulerName, "koord-scheduler"}

// Run decides about the manifests in files and folders; "-" is in. Warnings about the input, one a line, go to warn.
// Bad input is an *InputError.
func Run(ctx context.Context, paths []string, in io.Reader, warn io.Writer) (Result, error) {
	docs, err := readDocuments(paths, in, warn)
	if err != nil {
		return Result{}, err
	}
	return run(ctx, docs, warn)
}

func run(ctx context.Context, docs []document, warn io.Writer) (Result, error) {
	ctx, cancel := context.WithCancel(quiet(ctx))
	defer cancel()
	w, err := read(docs, warn)
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
	return e.decide(ctx, w, hooks, warn)
}

// decide admits and schedules all pods of the world that have no node.
func (e *engine) decide(ctx context.Context, w *world, hooks webhooks, warn io.Writer) (Result, error) {
	defer e.end()
	r := Result{Pods: []Pod{}, Quotas: []Quota{}, Gangs: []Gang{}, Nodes: []Node{}}
	queued := w.pending[:0:0]
	for _, p := range w.pending {
		p.given = maps.Clone(p.Annotations)
		refused := hooks.admit(p.Pod, w.namespace(p.Namespace), warn)
		switch {
		case len(refused) > 0:
			out := outcome(e.store, p.Pod, nil, Refused)
			out.Reasons = refused
			r.Pods = append(r.Pods, out)
		case !slices.Contains(schedulerNames, p.Spec.SchedulerName):
			out := outcome(e.store, p.Pod, nil, Unschedulable)
			out.Reasons = reasons([]why.Finding{view.Unserved(p.Spec.SchedulerName, schedulerNames)})
			r.Pods = append(r.Pods, out)
		default:
			queued = append(queued, p)
		}
	}
	for _, p := range queued {
		if err := e.api.create(e.api.pods, p.Pod); err != nil {
			return Result{}, err
		}
	}
	if err := e.run(ctx); err != nil {
		return Result{}, err
	}
	for _, p := range w.existing {
		p.given = p.Annotations
		r.Pods = append(r.Pods, e.place(p, Existing))
	}
	for _, p := range queued {
		out, err := e.result(ctx, p)
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

// read parses the input into a world.
func read(docs []document, warn io.Writer) (*world, error) {
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
	if len(w.nodes) == 0 {
		return nil, inputErrorf("no Node in the input: give nodes with -f, machines with --machine, or --cluster")
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

// warn reports what is valid and still looks wrong.
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
			warnf(warn, "warning: NodeResourceTopology %s: no Node has that name", t.Name)
		}
	}
	for _, n := range w.numatopologies {
		if !known[n.Name] {
			warnf(warn, "warning: Numatopology %s: no Node has that name", n.Name)
		}
	}
	for _, p := range w.existing {
		if !known[p.Spec.NodeName] {
			warnf(warn, "warning: Pod %s/%s: Node %s does not exist", p.Namespace, p.Name, p.Spec.NodeName)
		}
	}
}

// warnTopologies reports the fields of a topology that the scheduler cannot use.
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

// place is where a pod is, or was until it was preempted.
func (e *engine) place(p pod, state string) Pod {
	lost, gone := e.preempted[p.UID]
	if !gone {
		return outcome(e.store, p.Pod, wrote(p), state)
	}
	out := outcome(e.store, lost.pod, nil, Preempted)
	text := "preempted"
	if by := lost.preemptor; by != nil {
		text = fmt.Sprintf("preempted by pod %s/%s of priority %d", by.Namespace, by.Name,
			corev1helpers.PodPriority(by))
	}
	out.Reasons = []Reason{{Code: why.Preempted, Message: text}}
	return out
}

// result is what became of a pod that the scheduler tried.
func (e *engine) result(ctx context.Context, p pod) (Pod, error) {
	now := e.pod(p.Pod)
	if now != nil {
		p.Pod = now
	}
	if now == nil || now.Spec.NodeName != "" {
		return e.place(p, Scheduled), nil
	}
	if i := slices.IndexFunc(e.waiting, func(b *bindingCycle) bool { return b.pod.UID == p.UID }); i >= 0 {
		return outcome(e.store, e.waiting[i].pod, nil, Waiting), nil
	}
	failed := e.failed[p.UID]
	if held := e.held(ctx, now); len(held) > 0 {
		failed = failure{findings: held}
	}
	if failed.err != nil {
		return Pod{}, fmt.Errorf("schedule pod %s: %w", klog.KObj(now), failed.err)
	}
	out := outcome(e.store, now, nil, Unschedulable)
	out.Reasons = reasons(failed.findings)
	return out, nil
}

// wrote returns the annotations that a webhook or the scheduler wrote.
func wrote(p pod) map[string]string {
	out := map[string]string{}
	for key, value := range p.Annotations {
		if p.given[key] != value {
			out[key] = value
		}
	}
	return out
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
		out.CPUSet, out.NUMANodes = m.FormatList(cpus), view.NUMAIDs(m, cpus)
	case e.Role.Binds():
		out.CPUSet = e.CPUList
	case len(e.NUMAIDs) > 0:
		out.NUMANodes = e.NUMAIDs
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
