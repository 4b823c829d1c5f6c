package policy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/desched/policy/plugin"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// round is one run of all profiles.
type round struct {
	*Runner

	began    time.Time
	all      []*corev1.Node // that the settings select, by name
	pods     map[string][]*corev1.Pod
	replicas map[types.UID]int // pods of each controller
	// accepted are the jobs of the round, as if they had started: what is proposed after them must leave them room.
	accepted  []move.Job
	decisions []Decision

	profile profile
	nodes   []*corev1.Node // of the profile
	running string         // the plugin
	// planOnly is that the plugin's own arguments have dryRun: what it accepts is forgotten when it has run.
	planOnly bool
}

var _ plugin.Round = (*round)(nil)

func (r *Runner) newRound() *round {
	n := &round{Runner: r, began: r.Clock.Now(), pods: map[string][]*corev1.Pod{}, replicas: map[types.UID]int{}}
	for _, node := range list[*corev1.Node](r.Nodes.GetStore()) {
		if r.Settings.Nodes.Matches(labels.Set(node.Labels)) {
			n.all = append(n.all, node)
		}
	}
	slices.SortFunc(n.all, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, pod := range list[*corev1.Pod](r.Pods.GetStore()) {
		if pod.Spec.NodeName != "" {
			n.pods[pod.Spec.NodeName] = append(n.pods[pod.Spec.NodeName], pod)
		}
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
			n.replicas[owner.UID]++
		}
	}
	for _, pods := range n.pods {
		slices.SortFunc(pods, plugin.Before)
	}
	return n
}

func list[T any](s cache.Store) (all []T) {
	for _, one := range s.List() {
		all = append(all, one.(T))
	}
	return all
}

func has(p *corev1.Pod, key string) bool {
	_, ok := p.Annotations[key]
	return ok
}

// begin begins a profile.
func (n *round) begin(p profile) {
	n.profile = p
	n.nodes = slices.DeleteFunc(slices.Clone(n.all), func(node *corev1.Node) bool {
		return !p.Nodes.Matches(labels.Set(node.Labels))
	})
}

// run runs a plugin.
func (n *round) run(ctx context.Context, e descheduler.Enabled) *plugin.Status {
	plans, ok := e.Args.(descheduler.DryRunner)
	if n.running, n.planOnly = e.Name, ok && plans.IsDryRun(); n.planOnly {
		pods, accepted := maps.Clone(n.pods), slices.Clone(n.accepted)
		defer func() { n.pods, n.accepted = pods, accepted }()
	}
	switch made := plugin.All()[e.Name](e.Args, n).(type) {
	case plugin.DeschedulePlugin:
		return made.Deschedule(ctx, n.nodes)
	case plugin.BalancePlugin:
		return made.Balance(ctx, n.nodes)
	}
	return nil
}

// Now returns when the round began.
func (n *round) Now() time.Time { return n.began }

// Pods returns the pods of a node that were not moved in the round.
func (n *round) Pods(node string) []*corev1.Pod { return slices.Clone(n.pods[node]) }

// Interval is the time between two rounds.
func (n *round) Interval() time.Duration { return n.Settings.Interval }

// Detector returns the profile's.
func (n *round) Detector() *load.Detector {
	if n.detectors[n.profile.Name] == nil {
		n.detectors[n.profile.Name] = &load.Detector{}
	}
	return n.detectors[n.profile.Name]
}

// Load returns the use of a node, and whether a job that has not ended moves a pod from or to it.
func (n *round) Load(node string) (use load.View, moving bool) {
	if n.Loads != nil {
		use = n.Loads.View(node)
	}
	jobs := slices.Clone(n.accepted)
	n.Cluster.Read(func(s *evict.State) {
		for _, j := range list[*v1alpha1.PodMigrationJob](n.Jobs) {
			if job, known := s.Job(string(j.UID)); known {
				jobs = append(jobs, job)
			}
		}
	})
	return use, slices.ContainsFunc(jobs, func(j move.Job) bool {
		return (j.Source == node || j.Status.Node == node) && !j.Status.Phase.IsFinal()
	})
}

// Movable reports whether the evictors let the pod be moved; the scheduler is not asked.
func (n *round) Movable(pod *corev1.Pod) bool {
	refused, _ := n.refusals(pod, "")
	return len(refused) == 0
}

// Fit returns one of the nodes that the scheduler would place the pod on. The pod's own node is not among them.
func (n *round) Fit(ctx context.Context, pod *corev1.Pod, nodes []*corev1.Node) *corev1.Node {
	node, err := n.fit(ctx, pod, nodes)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Scheduler did not say where a pod fits", "pod", klog.KObj(pod))
	}
	return node
}

func (n *round) fit(ctx context.Context, pod *corev1.Pod, nodes []*corev1.Node) (*corev1.Node, error) {
	byName, names := map[string]*corev1.Node{}, []string{}
	for _, node := range nodes {
		if node.Name != pod.Spec.NodeName {
			byName[node.Name], names = node, append(names, node.Name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	name, err := n.Fitter.Fit(ctx, pod, names)
	if err != nil {
		return nil, fmt.Errorf("ask the scheduler about pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return byName[name], nil
}

// Move begins to move a pod, and takes it from its node.
func (n *round) Move(ctx context.Context, pod *corev1.Pod, reason string) bool {
	return len(n.move(ctx, []proposal{{pod: pod}}, reason)) == 0
}

// proposal is a move that a plugin wants.
type proposal struct {
	pod *corev1.Pod
	// target is the only node that the pod may move to; "" leaves the choice to the scheduler. room is the annotation
	// of the job that has the pods for which this one moves; "" for none.
	target, room string
}

// move begins all moves, or none where the evictors refuse one beside those before it. It returns the pods that they
// refuse.
func (n *round) move(ctx context.Context, moves []proposal, reason string) (refused []types.UID) {
	before := len(n.accepted)
	var decided []Decision
	for _, m := range moves {
		d := Decision{
			Profile: n.profile.Name, Plugin: n.running, Namespace: m.pod.Namespace, Pod: m.pod.Name,
			Node: m.pod.Spec.NodeName, Reason: reason,
		}
		var job move.Job
		if d.Refusals, job = n.refusals(m.pod, m.target); len(d.Refusals) == 0 {
			d.Refusals = n.misfits(ctx, m)
		}
		n.accepted = append(n.accepted, job)
		if len(d.Refusals) > 0 {
			refused = append(refused, m.pod.UID)
			n.record(ctx, d)
		}
		decided = append(decided, d)
	}
	if len(refused) > 0 {
		n.accepted = n.accepted[:before]
		return refused
	}
	for i, m := range moves {
		if !n.dry() {
			made, err := n.create(ctx, m, reason)
			if err != nil {
				klog.FromContext(ctx).Error(err, "PodMigrationJob not created", "pod", klog.KObj(m.pod))
				decided[i].Refusals = []evict.Refusal{{
					Code: evict.LookupFailed, Subject: "create a PodMigrationJob: " + err.Error(),
				}}
				n.record(ctx, decided[i])
				n.accepted = n.accepted[:before+i]
				return append(refused, m.pod.UID)
			}
			job := &n.accepted[before+i]
			decided[i].Job, job.UID, job.Name = made.Name, string(made.UID), made.Name
		}
		n.record(ctx, decided[i])
		n.pods[decided[i].Node] = slices.DeleteFunc(slices.Clone(n.pods[decided[i].Node]),
			func(p *corev1.Pod) bool { return p.UID == m.pod.UID })
	}
	return nil
}

// record keeps a decision, and logs it.
func (n *round) record(ctx context.Context, d Decision) {
	n.decisions = append(n.decisions, d)
	log := klog.FromContext(ctx).WithValues("pod", klog.KRef(d.Namespace, d.Pod), "node", klog.KRef("", d.Node),
		"profile", d.Profile, "plugin", d.Plugin, "reason", d.Reason)
	if len(d.Refusals) > 0 {
		log.V(2).Info("Pod is not to move", "refusal", d.Refusals[0].String())
		return
	}
	log.Info("Pod is to move", "job", d.Job)
}

// dry reports whether nothing is written.
func (n *round) dry() bool { return n.Settings.DryRun || n.Settings.Migration.DryRun || n.planOnly }

// create creates the job of a move.
func (n *round) create(ctx context.Context, m proposal, reason string) (*v1alpha1.PodMigrationJob, error) {
	pod := m.pod
	j := &v1alpha1.PodMigrationJob{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "PodMigrationJob"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "descheduler-",
			Annotations: map[string]string{
				annotation.MigrationPlugin: n.profile.Name + "/" + n.running, annotation.MigrationReason: reason,
			},
		},
		Spec: v1alpha1.PodMigrationJobSpec{PodRef: &corev1.ObjectReference{
			Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		}},
	}
	if pod.Status.Phase == corev1.PodFailed { // it needs no place
		j.Spec.Mode = v1alpha1.EvictDirectly
	}
	if n.Settings.GracePeriodSeconds != nil {
		j.Spec.DeleteOptions = &metav1.DeleteOptions{GracePeriodSeconds: n.Settings.GracePeriodSeconds}
	}
	if m.room != "" {
		j.Annotations[annotation.MigrationRoomKey] = m.room
	}
	if m.target != "" {
		if err := convert.MoveTo(j, pod, m.target); err != nil {
			return nil, err
		}
	}
	return n.Writer.CreateJob(ctx, j)
}

// SetDeletionCost writes a pod's deletion cost, and beside it that the descheduler wrote it: what a user wrote stays.
func (n *round) SetDeletionCost(ctx context.Context, pod *corev1.Pod, cost int32) error {
	text := strconv.Itoa(int(cost))
	said, written := pod.Annotations[corev1.PodDeletionCost]
	if n.dry() || said == text || written && pod.Annotations[annotation.OwnDeletionCost] != said {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations":     map[string]string{corev1.PodDeletionCost: text, annotation.OwnDeletionCost: text},
		"uid":             pod.UID,
		"resourceVersion": pod.ResourceVersion, // else a user's value may be overwritten
	}})
	if err != nil {
		return fmt.Errorf("set the deletion cost of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if err := n.Writer.PatchPod(ctx, pod, patch); err != nil {
		return fmt.Errorf("set the deletion cost of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// misfits asks the scheduler for another node, where an evictor has nodeFit.
func (n *round) misfits(ctx context.Context, m proposal) []evict.Refusal {
	pod := m.pod
	asks := []descheduler.Predicates{n.Settings.Migration.Predicates}
	if n.profile.Evictor != nil {
		asks = append(asks, n.profile.Evictor.Predicates)
	}
	for _, a := range asks {
		if !a.NodeFit || ended(pod) || slices.Contains(n.Settings.Migration.SkipEvictionGates, string(evict.NodeFit)) {
			continue
		}
		selected, _ := labels.Parse(a.NodeSelector) // it was checked
		nodes := slices.DeleteFunc(slices.Clone(n.all), func(node *corev1.Node) bool {
			return !selected.Matches(labels.Set(node.Labels)) || m.target != "" && m.target != node.Name
		})
		switch node, err := n.fit(ctx, pod, nodes); {
		case err != nil:
			return []evict.Refusal{{Code: evict.LookupFailed, Subject: err.Error()}}
		case node == nil:
			subject := "the scheduler finds none"
			if a.NodeSelector != "" {
				subject += " with " + a.NodeSelector
			}
			return []evict.Refusal{{Code: evict.NodeFit, Subject: subject}}
		}
	}
	return nil
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// foreign says why no place can be held for a pod, "" if one can.
func (n *round) foreign(pod *corev1.Pod) string {
	m := n.Settings.Migration
	if m.DefaultJobMode == string(v1alpha1.EvictDirectly) || ended(pod) ||
		slices.Contains(m.SchedulerNames, pod.Spec.SchedulerName) {
		return ""
	}
	return fmt.Sprintf("the scheduler %q can hold no place for it: schedulerNames has %s", pod.Spec.SchedulerName,
		strings.Join(m.SchedulerNames, ", "))
}
