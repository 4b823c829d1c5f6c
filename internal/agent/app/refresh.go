package app

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/agent/status"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// refresh reads the machine and the kubelet's state, decides the mode and gives the engine the facts that follow.
// Errors are reported as conditions and logged; the last known state is kept.
func (a *Agent) refresh(ctx context.Context) {
	log := klog.FromContext(ctx)
	a.detectKubeletRestart()
	if err := a.readMachine(ctx); err != nil {
		log.Error(err, "Cannot use the machine's files, the last good topology counts", "node", a.o.Node)
	}
	if err := a.readSettings(ctx); err != nil {
		log.Error(err, "Cannot learn the kubelet's settings, the last good ones count", "node", a.o.Node)
	}
	if err := a.readResources(ctx); err != nil {
		log.Error(err, "Cannot learn what the kubelet gave to whom, the last good answer counts", "node", a.o.Node)
	}
	a.settle(ctx)
	if err := a.reportAssumed(ctx); err != nil {
		log.Error(err, "Cannot report what is assumed of the kubelet", "node", a.o.Node)
	}
	if err := a.readState(ctx); err != nil {
		log.Error(err, "Cannot use what the kubelet's managers recorded, the last good record counts", "node", a.o.Node)
	}
	if err := a.decideMode(ctx); err != nil {
		log.Error(err, "Cannot report the topology mode", "node", a.o.Node)
	}
	if err := a.reportOverlap(ctx); err != nil {
		log.Error(err, "Cannot report whether the kubelet's CPUs are exclusive to others", "node", a.o.Node)
	}
	if err := a.reportDegraded(ctx); err != nil {
		log.Error(err, "Cannot report whether containers may start without the agent", "node", a.o.Node)
	}
	pods := a.podList()
	facts, problems := probe.Facts(a.input(pods))
	facts.Machine = a.o.Shared.intern(facts.Machine)
	facts.Pins = nodePins(facts.Pins, pods)
	a.mu.Lock()
	same := reflect.DeepEqual(a.facts, facts)
	a.facts = facts
	a.mu.Unlock()
	if same {
		return
	}
	for _, p := range problems {
		log.Info("Part of the node's configuration cannot be used", "node", a.o.Node, "problem", p.String())
	}
	a.engine.SetFacts(facts)
	a.publish()
}

// nodePins are pins with the UIDs by which the engine knows pods: those of the node, where the published ones are the
// API's.
func nodePins(pins []ledger.Pin, pods []*corev1.Pod) []ledger.Pin {
	static := map[string]string{}
	for _, pod := range pods {
		if uid := desired.NodeUID(pod); uid != string(pod.UID) {
			static[string(pod.UID)] = uid
		}
	}
	pins = slices.Clone(pins)
	for i := range pins {
		if uid, ok := static[pins[i].UID]; ok {
			pins[i].UID = uid
		}
	}
	return pins
}

// reportOverlap keeps the condition StaticActive.
func (a *Agent) reportOverlap(ctx context.Context) error {
	var assigned map[string][]int
	if a.Mode() == probe.Own && a.isStatic() {
		a.mu.Lock()
		assigned = a.state.CPU.Pods
		a.mu.Unlock()
	}
	return a.status.Overlap(ctx, a.engine.View(), assigned)
}

// decideMode applies the table of modes, and begins or ends a take-over.
func (a *Agent) decideMode(ctx context.Context) error {
	wish := ""
	if node := a.currentNode(); node != nil {
		wish = node.Labels[annotation.TopologyMode]
	}
	static := a.isStatic()
	mode, conflict := probe.ModeOf(a.o.Switches, static, wish)
	var since metav1.Time
	var err error
	began := false
	switch {
	case mode == probe.Own && !static:
		since, err = a.endTakeover()
	case mode != probe.Own:
		// What the kubelet pins from here on is older than the next take-over.
		err = forgetTakeover(a.o.Root)
	case a.Mode() != probe.Own: // what is published may still be of the last one
		since, began, err = takeoverSince(a.o.Root, "", a.o.Clock.Now())
	default:
		since, began, err = takeoverSince(a.o.Root, a.published(annotation.TakeoverKey), a.o.Clock.Now())
	}
	a.mu.Lock()
	if !since.IsZero() || mode != probe.Own || !static {
		a.since = since
	}
	if mode != probe.Own || static {
		a.until = time.Time{}
	}
	if mode != a.mode {
		a.mode = mode
		close(a.modeChanged)
		a.modeChanged = make(chan struct{})
	}
	a.mu.Unlock()
	if mode == probe.Own && static {
		err = errors.Join(err, a.keepPins())
	}
	if began {
		a.status.Event(takeoverPhase,
			"phase 2: Tenon allocates the CPUs of new pods; pods that the kubelet pinned keep their CPUs until "+
				"they end")
	}
	if conflict != "" {
		return errors.Join(err, a.status.Set(ctx, status.ModeConflict, true, "WishCannotBeMet", conflict))
	}
	return errors.Join(err, a.status.Set(ctx, status.ModeConflict, false, "WishMet",
		"the topology mode is "+string(mode)))
}

// published returns an annotation of the object in the API.
func (a *Agent) published(key string) string {
	obj, ok, err := a.topologies.GetStore().GetByKey(a.o.Node)
	if !ok || err != nil {
		return ""
	}
	return obj.(*unstructured.Unstructured).GetAnnotations()[key]
}

// input gathers what is published of this moment, but for what the pods hold.
func (a *Agent) input(pods []*corev1.Pod) probe.Input {
	a.mu.Lock()
	in := probe.Input{
		NodeName: a.o.Node, Node: a.node, Machine: a.machine, Kubelet: a.settings.inForce, Mode: a.mode,
		Writer: "tenon-agent/" + a.o.Version, Since: a.since, Pods: pods, State: a.state,
	}
	until := a.until
	a.mu.Unlock()
	in.Pins = probe.Pins(in.State.CPU, pods, in.Mode, in.Since.Time)
	if !until.IsZero() {
		in.Pins = probe.Left(in.Pins, pods, until)
	}
	return in
}

// podList returns the pods by namespace and name.
func (a *Agent) podList() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, key := range slices.Sorted(slices.Values(a.pods.GetStore().ListKeys())) {
		if obj, ok, err := a.pods.GetStore().GetByKey(key); ok && err == nil {
			pods = append(pods, obj.(*corev1.Pod))
		}
	}
	return pods
}

// publish asks the reporters to look whether there is something new.
func (a *Agent) publish() {
	a.reporter.Changed()
	if a.volcano != nil {
		a.volcano.Changed()
	}
}

// whole is input with what the pods hold; false while the Node is not known, without which an object has no owner.
func (a *Agent) whole() (probe.Input, bool) {
	pods := a.podList()
	in := a.input(pods)
	if in.Node == nil {
		return in, false
	}
	for _, pod := range pods {
		if e, concerns := convert.Entry(pod); concerns {
			in.Entries = append(in.Entries, e)
		}
	}
	return in, true
}

// Topology returns what is to be published; nil while it is not known.
func (a *Agent) Topology() *v1alpha2.NodeResourceTopology {
	in, ok := a.whole()
	if !ok {
		return nil
	}
	return probe.Topology(in).Topology
}

// Numatopology returns what is to be published for Volcano; nil while it is not known, or the kubelet is not asked.
func (a *Agent) Numatopology() *nodeinfo.Numatopology {
	in, ok := a.whole()
	if !ok {
		return nil
	}
	return probe.Numatopology(in)
}
