package app

import (
	"context"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// refresh reads the machine and the kubelet's state, and gives the engine the facts that follow. Errors are reported as
// conditions and logged; the last known state is kept.
func (a *Agent) refresh(ctx context.Context) {
	log := klog.FromContext(ctx)
	if err := a.readMachine(ctx); err != nil {
		log.Error(err, "Cannot use the machine's files, the last good topology counts", "node", a.o.Node)
	}
	if err := a.recordNode(); err != nil {
		log.Error(err, "The next agent cannot begin without the API server", "node", a.o.Node)
	}
	mode := a.Mode()
	changed := a.kubelet.Refresh(ctx)
	state := a.kubelet.State()
	if changed {
		a.engine.KubeletKeepsMemory(state.KeepsMemory())
		a.publish()
	}
	if state.Mode != mode {
		a.mu.Lock()
		close(a.modeChanged)
		a.modeChanged = make(chan struct{})
		a.mu.Unlock()
	}
	var assigned map[string][]int
	if state.Mode == probe.Own && state.IsStatic() {
		assigned = state.Records.CPU.Pods
	}
	if err := a.status.Overlap(ctx, a.engine.View(), assigned, a.livePods()); err != nil {
		log.Error(err, "Cannot report whether the kubelet's CPUs are exclusive to others", "node", a.o.Node)
	}
	if err := a.transports.Report(ctx, a.writes()); err != nil {
		log.Error(err, "Cannot report whether containers may start without the agent", "node", a.o.Node)
	}
	pods := a.podList()
	facts, problems := probe.Facts(a.input(pods))
	facts.Machine = a.o.Shared.intern(facts.Machine)
	facts.Given = nodeGrants(facts.Given, pods)
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

// readMachine takes the machine anew when CPUs or NUMA nodes have come or gone. Files that contradict themselves leave
// the last good machine in force.
func (a *Agent) readMachine(ctx context.Context) error {
	old := a.Machine()
	err := a.machine.Refresh(ctx, func(last reading) (reading, error) {
		presence, err := host.Presence(a.o.Root)
		if err != nil || presence == last.presence {
			return last, err
		}
		found, err := host.Read(a.o.Root, a.o.Arch)
		if err != nil {
			return last, err
		}
		return reading{a.o.Shared.intern(found.Machine), presence}, nil
	})
	if now := a.Machine(); !now.Equal(old) {
		a.o.Shared.Metrics.MachineChanges.Inc()
		a.status.Warn("TopologyChanged",
			"the machine has CPUs %s on %d NUMA nodes, it had %s on %d: what pods hold of CPUs that are gone is left "+
				"out", now.FormatList(now.Online()), now.NumNUMA(), old.FormatList(old.Online()), old.NumNUMA())
		a.publish()
	}
	return err
}

// nodeGrants are grants with the UIDs by which the engine knows pods: those of the node, where the published ones are
// the API's.
func nodeGrants(given []kubelet.Grant, pods []*corev1.Pod) []kubelet.Grant {
	static := map[string]string{}
	for _, pod := range pods {
		if uid := desired.NodeUID(pod); uid != string(pod.UID) {
			static[string(pod.UID)] = uid
		}
	}
	given = slices.Clone(given)
	for i := range given {
		if uid, ok := static[given[i].UID]; ok {
			given[i].UID = uid
		}
	}
	return given
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
	state := a.kubelet.State()
	return probe.Input{
		NodeName: a.o.Node, Node: a.currentNode(), Machine: a.Machine(), Kubelet: state.Settings, Mode: state.Mode,
		Writer: "tenon-agent/" + a.o.Version, Since: state.Since, Pods: pods, State: state.Records,
		Pins: state.Pins(pods),
	}
}

// isWired reports whether the API's objects are followed, and published.
func (a *Agent) isWired() bool {
	select {
	case <-a.wired:
		return true
	default:
		return false
	}
}

// podList returns the pods by namespace and name; none before the API has answered.
func (a *Agent) podList() []*corev1.Pod {
	if !a.isWired() {
		return nil
	}
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
	if !a.isWired() {
		return
	}
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
