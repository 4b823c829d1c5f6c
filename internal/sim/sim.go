package sim

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/core/workload"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/progress"
	"github.com/tenon-project/tenon/internal/sched/diag/refusals"
	"github.com/tenon-project/tenon/internal/view"
)

var schedulerNames = []string{"tenon-scheduler", corev1.DefaultSchedulerName, "koord-scheduler"}

// Input is what one simulation reads.
type Input struct {
	// Paths are files and folders with manifests; "-" is Stdin.
	Paths []string
	Stdin io.Reader
	// Warn receives warnings about the input, one a line.
	Warn io.Writer
	// Strict makes an object of a foreign kind, and an unknown field of one of Tenon's kinds, an error. Otherwise Warn
	// names the kind or the field, and it is skipped.
	Strict bool

	// Rules are those of the kinds of operators; nil for the built-in ones.
	Rules *workload.Table

	// Until lets time pass: pods end whose run times are declared, and others start.
	Until Until
	// EstimateEvery is the time between two forecasts of when the pods start that wait; 0 for none.
	EstimateEvery time.Duration
	// Config is that of the scheduler; nil for the default one.
	Config *config.KubeSchedulerConfiguration

	now  time.Time  // where the input has times before it; zero for the latest one in the input
	docs []document // read before those of Paths
}

// Run decides about the pods of an input. Bad input is an *InputError.
func Run(ctx context.Context, in Input) (Result, error) {
	ctx, cancel := context.WithCancel(withoutLog(ctx))
	defer cancel()
	docs := in.docs
	if len(in.Paths) > 0 {
		more, err := readDocuments(in.Paths, in.Stdin, in.Warn)
		if err != nil {
			return Result{}, err
		}
		docs = slices.Concat(docs, more)
	}
	w, err := in.readWorld(docs)
	if err != nil {
		return Result{}, err
	}
	e, err := newEngine(ctx, w)
	if err != nil {
		return Result{}, err
	}
	warnTopologies(e.store, w, in.Warn)
	return e.decide(ctx, w, in.Warn)
}

// RunCluster is Run from the objects of a cluster.
func RunCluster(ctx context.Context, cluster *rest.Config, in Input) (Result, error) {
	withJobs := in.Until != Until{}
	docs, err := clusterDocuments(ctx, cluster, withJobs)
	if err != nil {
		return Result{}, err
	}
	if withJobs {
		in.now = time.Now().Truncate(time.Second)
	}
	in.docs = slices.Concat(docs, in.docs)
	return Run(ctx, in)
}

// Check returns what the webhooks refuse of the manifests in files and folders, a line for each workload and reason. It
// needs no nodes. Bad input is an *InputError.
func Check(_ context.Context, paths []string, in io.Reader, warn io.Writer) (refused []string, err error) {
	docs, err := readDocuments(paths, in, warn)
	if err != nil {
		return nil, err
	}
	w, err := Input{Warn: warn}.readObjects(docs)
	if err != nil {
		return nil, err
	}
	hooks := readWebhooks(w)
	kinds := &kube.Kinds{}
	table := accounts.Accounts{Kinds: kinds}.Table()
	for _, d := range w.devices {
		table.Put(d)
	}
	for _, p := range w.pending {
		for _, reason := range hooks.admit(&p, w.namespace(p.Namespace), kinds.List(), warn) {
			subject, _, isMember := strings.Cut(p.object, ", pod ")
			if !isMember {
				subject = fmt.Sprintf("pod %s/%s", p.Namespace, p.Name)
			}
			line := subject + ": " + reason.Message
			if !slices.Contains(refused, line) { // all pods of a workload are refused for the same reason
				refused = append(refused, line)
			}
		}
	}
	return refused, nil
}

func (e *engine) decide(ctx context.Context, w *world, warn io.Writer) (Result, error) {
	defer e.end()
	hooks := readWebhooks(w)
	r := Result{Pods: []Pod{}, Gangs: []Gang{}, Nodes: []Node{}}
	queued := w.pending[:0:0]
	w.countQuotas()
	for _, p := range w.pending {
		refused := p.refused
		if !p.stored {
			refused = hooks.admit(&p, w.namespace(p.Namespace), e.store.Kinds().List(), warn)
		}
		if !p.stored && len(refused) == 0 {
			refused = w.overLimit(p.Pod)
		}
		missing, noClaim := w.missingObject(p.Pod), w.refusedClaim(p.Pod)
		switch {
		case len(refused) > 0:
			r.Pods = append(r.Pods, e.outcome(p.Pod, Refused, refused...))
		case noClaim != "":
			r.Pods = append(r.Pods, e.outcome(p.Pod, Unschedulable,
				Reason{Code: why.AdmissionRefused, Message: noClaim}))
		case !slices.Contains(schedulerNames, p.Spec.SchedulerName):
			r.Pods = append(r.Pods, e.outcome(p.Pod, Unschedulable,
				reasons([]why.Finding{view.Unserved(p.Spec.SchedulerName, schedulerNames)})...))
		case missing != "":
			r.Pods = append(r.Pods, e.outcome(p.Pod, Unschedulable,
				Reason{Code: why.ObjectNotGiven, Message: "cannot be decided: " + missing}))
		default:
			queued = append(queued, p)
		}
	}
	var course *timeline
	var err error
	if w.until != (Until{}) {
		if course, err = newTimeline(e, w, queued); err != nil {
			return Result{}, err
		}
		if w.estimateEvery > 0 {
			course.expected = newEstimates(ctx, course, w.estimateEvery)
		}
	}
	for _, p := range queued {
		if course == nil || !course.isLater(p.Pod) {
			e.api.create(e.api.pods, p.Pod)
		}
	}
	e.reconcileReservations(ctx) // some may have expired
	if err := e.run(ctx); err != nil {
		return Result{}, err
	}
	e.reconcileReservations(ctx)
	if r.Migrations, err = e.migrate(ctx, w); err != nil {
		return Result{}, err
	}
	if course != nil {
		if err := course.run(ctx); err != nil {
			return Result{}, err
		}
		r.Timeline = course.result()
	}
	for _, p := range w.existing {
		p.given = p.Annotations
		out := e.place(p, Existing)
		if e.moved[p.UID] {
			out = e.result(ctx, p)
		}
		r.Pods = append(r.Pods, course.known(p, out))
	}
	for _, p := range queued {
		r.Pods = append(r.Pods, course.known(p, e.result(ctx, p)))
	}
	slices.SortFunc(r.Pods, func(a, b Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	for _, n := range w.nodes {
		r.Nodes = append(r.Nodes, pools(e.store, n.Name))
	}
	r.Quotas, r.Gangs, r.Reservations = e.quotasOf(w), e.gangsNow(), e.reservationsNow()
	return r, nil
}

// readWorld reads documents among which there must be a Node.
func (in Input) readWorld(docs []document) (*world, error) {
	w, err := in.readObjects(docs)
	if err == nil {
		w.until, w.estimateEvery, w.scheduler = in.Until, in.EstimateEvery, in.Config
		w.setStart(in.now)
	}
	if err == nil && len(w.nodes) == 0 {
		err = inputErrorf("no Node in the input: give nodes with -f, machines with --machine, or --cluster")
	}
	return w, err
}

func (in Input) readObjects(docs []document) (*world, error) {
	table := workload.Builtin()
	if in.Rules != nil {
		table = *in.Rules
	}
	d := newDecoder(table)
	for _, doc := range docs {
		d.document(doc)
	}
	w := newWorld(d.objects, table, &d.problems)
	w.prioritize(&d.problems)
	w.applyRuntimeClasses()
	w.limitPods()
	w.colocate(in.Warn, &d.problems)
	w.reclaim(in.Warn, &d.problems)
	w.followProfiles(&d.problems)
	if in.Strict {
		d.refuseUnread()
	}
	if d.err() == nil {
		w.admitQuotas(in.Warn, &d.problems)
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	for _, f := range d.pruned {
		warnf(in.Warn, "warning: %s: %s: it has no effect", f.origin, f.text)
	}
	w.unread = d.warnUnread(in.Warn)
	if len(d.unused) > 0 {
		warnf(in.Warn, "ignored: %s: they do not change where pods go", countKinds(d.unused))
	}
	foreign := map[string]int{}
	for _, o := range d.foreign {
		foreign[o.kind]++
	}
	if len(foreign) > 0 {
		warnf(in.Warn, "ignored: %s: these kinds are not read, and neither are pods that their controllers would "+
			"create",
			countKinds(foreign))
	}
	w.warn(in.Warn)
	return w, nil
}

// countKinds lists kinds by name, each with its number of objects.
func countKinds(counts map[string]int) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s (%d)", kind, counts[kind]))
	}
	return strings.Join(parts, ", ")
}

func warnf(warn io.Writer, format string, args ...any) {
	text := fmt.Sprintf(format+"\n", args...)
	_, _ = io.WriteString(warn, view.WrapLines(text, progress.Width(warn))) // warnings are best effort
}

// warn reports what is valid and still looks wrong.
func (w *world) warn(warn io.Writer) {
	known := map[string]bool{}
	for _, n := range w.nodes {
		known[n.Name] = true
		for _, text := range admission.Node(n).Warnings {
			warnf(warn, "warning: Node %s: %s", n.Name, text)
		}
	}
	for _, d := range w.descriptions() {
		if !known[d.node] {
			warnf(warn, "warning: %s %s: no Node has that name", d.kind, d.node)
		}
	}
	if len(w.existing)+len(w.pending) == 0 {
		w.notes = append(w.notes, w.without...)
	}
	for _, text := range w.notes {
		warnf(warn, "%s", text)
	}
	for _, name := range w.unknownClasses {
		warnf(warn, "warning: RuntimeClass %s is not in the input: pods of this class are taken as having no "+
			"overhead, "+
			"node selector or tolerations from it", name)
	}
	for _, p := range w.existing {
		if !known[p.Spec.NodeName] {
			warnf(warn, "warning: Pod %s/%s: Node %s does not exist", p.Namespace, p.Name, p.Spec.NodeName)
		}
	}
}

type description struct{ kind, node string }

func (w *world) descriptions() (out []description) {
	for _, t := range w.topologies {
		out = append(out, description{"NodeResourceTopology", t.Name})
	}
	for _, n := range w.numatopologies {
		out = append(out, description{"Numatopology", n.Name})
	}
	for _, d := range w.devices {
		out = append(out, description{"Device", d.Name})
	}
	return out
}

// warnTopologies reports what the scheduler cannot read in objects that describe nodes. Each object that warnUnread has
// named is left out.
func warnTopologies(store *kube.Store, w *world, warn io.Writer) {
	for _, d := range w.descriptions() {
		if w.unread.Has(d.kind + " " + metav1.NamespaceDefault + "/" + d.node) {
			continue
		}
		known, _ := store.Node(d.node)
		for _, p := range known.Problems {
			if p.Object == d.kind+"/"+d.node {
				warnf(warn, "warning: %s %s: %s: %s", d.kind, d.node, p.Field(), p.Text)
			}
		}
	}
}

// place is where a pod is, or was until it was preempted.
func (e *engine) place(p pod, state string) Pod {
	lost, gone := e.preempted[p.UID]
	if !gone {
		out := e.outcome(p.Pod, state)
		for key, value := range p.Annotations { // those that a webhook or the scheduler wrote
			if p.given[key] != value {
				out.Annotations[key] = value
			}
		}
		return out
	}
	text := "preempted"
	if preemptor := lost.preemptor; preemptor != nil {
		text = fmt.Sprintf("preempted by pod %s/%s of priority %d", preemptor.Namespace, preemptor.Name,
			corev1helpers.PodPriority(preemptor))
	} else if user := convert.CurrentOwner(lost.pod); user != nil {
		text = fmt.Sprintf("pod %s/%s uses the room that it kept", user.Namespace, user.Name)
	}
	return e.outcome(lost.pod, Preempted, Reason{Code: why.Preempted, Message: text})
}

func (e *engine) result(ctx context.Context, p pod) Pod {
	now, known, err := e.api.pods.GetStore().Get(p.Pod)
	deleted := err != nil || !known
	if !deleted {
		p.Pod = now.(*corev1.Pod)
	}
	if deleted || p.Spec.NodeName != "" {
		return e.place(p, Scheduled)
	}
	if i := slices.IndexFunc(e.waiting, func(b *bindingCycle) bool { return b.pod.UID == p.UID }); i >= 0 {
		return e.outcome(e.waiting[i].pod, Waiting)
	}
	failed := e.failed[p.UID]
	if held := refusals.Held(ctx, e.core.Profiles[p.Spec.SchedulerName], p.Pod); len(held) > 0 {
		if held[0].Code.Class() == why.Gang {
			return e.outcome(p.Pod, Waiting, reasons(held)...)
		}
		failed = failure{findings: held}
	}
	if failed.err != nil {
		return e.outcome(p.Pod, Unschedulable,
			Reason{Code: why.PluginFailed, Message: "cannot be decided: " + failed.err.Error()})
	}
	return e.outcome(p.Pod, Unschedulable, reasons(failed.findings)...)
}

// reasons lists the causes of findings, the root cause first, then the most frequent.
func reasons(findings []why.Finding) (out []Reason) {
	for _, o := range why.RootFirst(findings) {
		out = append(out, Reason{Code: o.Code, Message: o.Phrase(), Nodes: o.Nodes})
	}
	return out
}

func (e *engine) outcome(p *corev1.Pod, state string, reasons ...Reason) Pod {
	out := Pod{
		Namespace: p.Namespace, Name: p.Name, State: state, Node: p.Spec.NodeName, NUMANodes: []int{},
		Devices: map[string][]view.Device{}, Annotations: map[string]string{}, Reasons: append([]Reason{}, reasons...),
	}
	v := e.store.View(out.Node)
	if out.Node == "" || v == nil {
		return out
	}
	out.Claims = e.claimsOf(p)
	held, ok := v.Entry(string(p.UID))
	if !ok {
		return out
	}
	out.Devices = view.DevicesOf(v, held.Devices)
	m := v.Machine()
	switch {
	case held.Role.Binds() && m != nil:
		cpus := v.CPUsOf(held.UID)
		out.CPUSet, out.NUMANodes = m.FormatList(cpus), view.NUMAIDs(m, cpus)
	case held.Role.Binds():
		out.CPUSet = held.CPUList
	case len(held.NUMAIDs) > 0:
		out.NUMANodes = held.NUMAIDs
	}
	return out
}

// claimsOf returns the claims of a pod that have devices.
func (e *engine) claimsOf(p *corev1.Pod) (list []ClaimDevices) {
	var names []string
	for i := range p.Spec.ResourceClaims {
		if name, _, err := resourceclaim.Name(p, &p.Spec.ResourceClaims[i]); err == nil && name != nil {
			names = append(names, *name)
		}
	}
	if made := p.Status.ExtendedResourceClaimStatus; made != nil {
		names = append(names, made.ResourceClaimName)
	}
	for _, name := range names {
		o, known, err := e.api.claims.GetStore().GetByKey(p.Namespace + "/" + name)
		if err != nil || !known {
			continue
		}
		c := o.(*resourcev1.ResourceClaim)
		if c.Status.Allocation == nil {
			continue
		}
		has := ClaimDevices{Claim: name, Devices: []string{}}
		for _, d := range c.Status.Allocation.Devices.Results {
			has.Devices = append(has.Devices, convert.DeviceName(d.Driver, d.Pool, d.Device))
		}
		list = append(list, has)
	}
	return list
}

func pools(store *kube.Store, node string) Node {
	out := Node{Name: node, SharedPools: []SharedPool{}, BESharedPool: []SharedPool{}}
	v := store.View(node)
	if v == nil || v.Machine() == nil {
		return out
	}
	m := v.Machine()
	for _, n := range m.CPUNodes() {
		part := func(pool cpuset.Set) SharedPool {
			return SharedPool{
				Socket: m.SocketID(m.NUMASocket(n)), Node: m.NUMAID(n),
				CPUSet: m.FormatList(m.NUMACPUs(n).Intersect(pool)),
			}
		}
		out.SharedPools = append(out.SharedPools, part(v.SharedPool()))
		out.BESharedPool = append(out.BESharedPool, part(v.BEPool()))
	}
	return out
}
