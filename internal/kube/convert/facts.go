package convert

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Facts translates what is known of a node; either object may be nil. What cannot be used is left out and reported. A
// policy comes from the node's label, else from its kubelet, else from args.
//
// Objects of v1alpha1 decode into v1alpha2 without loss: they have no attributes.
func Facts(node *corev1.Node, nrt *v1alpha2.NodeResourceTopology, args Args) (ledger.Facts, []Problem) {
	return new(Known).Read(Sources{Node: node, Topology: nrt}, args)
}

// Sources are the objects that speak of a node; any may be nil.
type Sources struct {
	Node     *corev1.Node
	Topology *v1alpha2.NodeResourceTopology
	// Numatopology is read where Topology has no CPU topology: in clusters that run Volcano's exporter and not our
	// agent.
	Numatopology *nodeinfo.Numatopology
	Devices      *Devices
}

// Read is the package's Facts, of all sources.
func (k *Known) Read(s Sources, args Args) (ledger.Facts, []Problem) {
	node, nrt := s.Node, s.Topology
	if node == nil {
		node = &k.noNode
		switch {
		case nrt != nil:
			node.Name = nrt.Name
		case s.Numatopology != nil:
			node.Name = s.Numatopology.Name
		case s.Devices != nil:
			node.Name = s.Devices.Name
		}
	}
	if nrt == nil {
		nrt = &k.noTopology
		nrt.Name = node.Name
	}
	r := &k.reader
	*r = factReader{known: k, node: node, nrt: nrt, trust: args.Assumed}
	defer k.forget()
	if _, ok := nrt.Annotations[annotation.CPUTopology]; !ok && s.Numatopology != nil {
		r.numa, r.facts.Imported = s.Numatopology, true
	}
	r.facts.MinSharedCPUs = args.MinSharedCPUs
	r.facts.ARM64 = archOf(node) == "arm64"
	r.exporter()
	r.machine()
	r.amounts()
	r.kubelet()
	r.pins()
	r.reserved()
	r.system()
	r.isolated()
	r.model()
	r.policies(args)
	r.devices(s.Devices)
	return r.facts, r.problems
}

// ReadDevices is Read of sources of which the Device alone is new, or has changed since Read has returned these facts
// and problems. was is the Device that they are of, nil for none.
func (k *Known) ReadDevices(s Sources, was *Devices, facts ledger.Facts, problems []Problem) (ledger.Facts,
	[]Problem,
) {
	if was != nil {
		problems = problems[:len(problems)-len(was.problems)]
	}
	r := &k.reader
	*r = factReader{known: k, node: s.Node, facts: facts, problems: slices.Clip(problems)}
	defer k.forget()
	r.devices(s.Devices)
	return r.facts, r.problems
}

// forget lets go of the objects that were read last.
func (k *Known) forget() { k.reader, k.noNode.Name, k.noTopology.Name = factReader{}, "", "" }

type factReader struct {
	known *Known
	node  *corev1.Node
	nrt   *v1alpha2.NodeResourceTopology
	numa  *nodeinfo.Numatopology // nil unless it is read in place of our agent's report
	facts ledger.Facts
	kube  annotation.KubeletCPUManager
	// settings are what our agent reports, if it does and they are not malformed.
	settings  annotation.Kubelet
	reported  bool
	malformed error
	exported  Exported
	zones     []zone          // those of nrt that are NUMA nodes
	shape     []topo.NUMASpec // that they give the machine, by id
	topology  string          // the kubelet's topology policy; "" if unknown
	assumed   bool            // only a foreign exporter describes the kubelet
	trust     kubelet.Trust
	problems  []Problem
}

func archOf(node *corev1.Node) string {
	if arch := node.Labels[corev1.LabelArchStable]; arch != "" {
		return arch
	}
	return node.Status.NodeInfo.Architecture
}

func (r *factReader) onNode(key, value string, err error) {
	r.report("Node/"+r.node.Name, key, value, err)
}

func (r *factReader) onNRT(key, value string, err error) {
	r.report("NodeResourceTopology/"+r.nrt.Name, key, value, err)
}

func (r *factReader) report(object, key, value string, err error) {
	r.problems = append(r.problems, Problem{Object: object, Key: key, Value: cut(value), Text: err.Error()})
}

// fromNRT parses an annotation of the NodeResourceTopology; false where it is absent or, reported, malformed.
func fromNRT[T any](r *factReader, key string, with func(string) (T, []annotation.Warning, error)) (T, bool) {
	value, found, err := parse(r.nrt.Annotations, key, with)
	if err != nil {
		r.onNRT(key, r.nrt.Annotations[key], err)
	}
	return value, found && err == nil
}

// fromNode is fromNRT for the Node's own annotation, else for the copy that the agent keeps. report reports more about
// it.
func fromNode[T any](r *factReader, key string, with func(string) (T, []annotation.Warning, error)) (
	value T, report func(error), ok bool,
) {
	from := r.node.Annotations
	if _, own := from[key]; !own {
		from = r.nrt.Annotations
	}
	report = func(err error) { r.onNode(key, from[key], err) }
	value, found, err := parse(from, key, with)
	if err != nil {
		report(err)
	}
	return value, report, found && err == nil
}

func (r *factReader) machine() {
	if r.numa != nil {
		r.importMachine()
		return
	}
	text, ok := r.nrt.Annotations[annotation.CPUTopology]
	if !ok {
		r.facts.Fault = why.Reason{Code: why.TopologyMissing}
		return
	}
	var err error
	if r.facts.Machine, err = r.known.machine(text, archOf(r.node), r.shape); err != nil {
		r.facts.Fault = why.Reason{Code: why.InvalidTopology}
		r.onNRT(annotation.CPUTopology, text, err)
		r.problems[len(r.problems)-1].Kind = BadTopology
	}
}

// cpus translates a CPU list; ids that the machine does not have are reported and left out. Without a machine there are
// no CPUs.
func (r *factReader) cpus(list string, report func(error)) cpuset.Set {
	if r.facts.Machine == nil || list == "" {
		return cpuset.Set{}
	}
	set, unknown, err := r.facts.Machine.ParseList(list)
	if err != nil {
		report(err)
		return cpuset.Set{}
	}
	if len(unknown) > 0 {
		report(fmt.Errorf("CPUs %s are not on the node or offline", cpuset.FormatIDs(unknown)))
	}
	return set
}

func (r *factReader) kubelet() {
	text, key, ok := annotation.Lookup(r.nrt.Annotations, annotation.KubeletCPUManagerPolicy,
		annotation.KubeletCPUManagerPolicyAlias1, annotation.KubeletCPUManagerPolicyAlias2)
	kube, err := r.known.managers.read(text, annotation.ParseKubeletCPUManager)
	if ok && err != nil {
		r.onNRT(key, text, err)
	}
	if settings, found := r.nrt.Annotations[annotation.KubeletKey]; found {
		r.reported = true
		r.settings, r.malformed = r.known.settings.read(settings, annotation.ParseKubelet)
	}
	if !ok || err != nil {
		key = annotation.KubeletKey
		switch cpu := r.settings.CPU; {
		case r.reported && r.malformed == nil:
			text = cpu.Reserved
			kube = annotation.KubeletCPUManager{Policy: cpu.Policy, Options: cpu.Options, ReservedCPUs: cpu.Reserved}
		case r.numa != nil:
			kube = r.importedCPUManager()
		}
	}
	r.kube = kube
	if !kube.Static() {
		return // its options and its reservation mean nothing then
	}
	cpu := &r.facts.Model.Config.CPU
	*cpu = kubelet.StaticCPU(kube.Options)
	cpu.Reserved = r.cpus(kube.ReservedCPUs, func(err error) { r.onNRT(key, text, err) })
}

func (r *factReader) pins() {
	if r.numa != nil {
		r.importPins()
		return
	}
	allocs, _ := fromNRT(r, annotation.PodCPUAllocsKey, annotation.ParsePodCPUAllocs)
	for _, a := range allocs {
		if !a.ManagedByKubelet {
			continue // ours: the pod itself says what it holds
		}
		set := r.cpus(a.CPUSet, func(err error) { r.onNRT(annotation.PodCPUAllocsKey, a.CPUSet, err) })
		if !set.IsEmpty() {
			r.facts.Given = append(r.facts.Given, tenancy.Grant{
				UID: string(a.UID), Namespace: a.Namespace, Name: a.Name, CPUs: set,
			})
		}
	}
}

func (r *factReader) reserved() {
	switch reservation, report, ok := fromNode(r, annotation.NodeReservation, annotation.ParseReservation); {
	case !ok:
	case reservation.ReservedCPUs != "":
		r.facts.NodeReserved = r.cpus(reservation.ReservedCPUs, report)
	case r.facts.Machine != nil:
		r.facts.NodeReserved = ReservedByAmount(r.facts.Machine, reservation)
	}
}

// ReservedByAmount are the CPUs of a node reservation that names an amount and no CPUs; none where only named CPUs are
// reserved. Scheduler and agent choose the same ones.
func ReservedByAmount(m *topo.Machine, r annotation.Reservation) cpuset.Set {
	milli := r.Resources.Cpu().MilliValue()
	if milli <= 0 || r.ApplyPolicy == annotation.ApplyReservedCPUsOnly {
		return cpuset.Set{}
	}
	return FirstCPUs(m, int(min((milli+999)/1000, topo.MaxCPUs)))
}

func (r *factReader) system() {
	system, report, ok := fromNode(r, annotation.NodeSystemQoSResource, annotation.ParseSystemQoSResource)
	if ok && system.Exclusive() {
		r.facts.System = r.cpus(system.CPUSet, report)
	}
}

func (r *factReader) isolated() {
	if boot, ok := fromNRT(r, annotation.IsolatedCPUsKey, annotation.ParseIsolatedCPUs); ok {
		list := func(text string) cpuset.Set {
			return r.cpus(text, func(err error) { r.onNRT(annotation.IsolatedCPUsKey, text, err) })
		}
		r.facts.Isolated, r.facts.NoTick = list(boot.Isolated), list(boot.NoHzFull)
	}
}

func (r *factReader) policies(args Args) {
	labels, issues := annotation.ParseNodeLabels(r.node.Labels)
	for _, i := range issues {
		if i.Kind == annotation.Spelling {
			continue // accepted; the webhook warns
		}
		p := Problem{Object: "Node/" + r.node.Name, Key: i.Key, Value: cut(i.Value), Text: i.Text, Kind: BadNodeLabel}
		if i.Kind == annotation.AliasConflict {
			p.Kind = AliasConflict
		}
		r.problems = append(r.problems, p)
	}

	switch labels.CPUBind {
	case annotation.NodeBindNone:
		r.facts.Bind = ledger.NoPolicy
	case annotation.NodeBindFullPCPUsOnly:
		r.facts.Bind = ledger.FullPCPUsOnly
	case annotation.NodeBindSpreadByPCPUs:
		r.facts.Bind = ledger.SpreadByPCPUs
	}
	switch r.facts.StrategyByLabel = true; labels.NUMAAllocate {
	case annotation.StrategyMostAllocated:
		r.facts.Strategy = cpualloc.MostAllocated
	case annotation.StrategyLeastAllocated:
		r.facts.Strategy = cpualloc.LeastAllocated
	case annotation.StrategyDistributeEvenly:
		r.facts.Strategy = cpualloc.DistributeEvenly
	default:
		r.facts.StrategyByLabel = false
	}
	switch {
	case r.facts.StrategyByLabel:
	case r.facts.Model.Config.CPU.DistributeAcrossNUMA:
		r.facts.Strategy = cpualloc.DistributeEvenly
	default:
		r.facts.Strategy = args.Strategy
	}
	r.topologyPolicy(labels.NUMATopology, args.Topology)
}

// topologyPolicy chooses the node's policy: the label's, else the kubelet's if it is known, else the plugin's. An
// explicit None counts as a choice.
func (r *factReader) topologyPolicy(label annotation.NUMATopologyPolicy, otherwise hint.Policy) {
	switch {
	case label != "":
		r.facts.Topology = topologyPolicy(label)
	case r.topology != "":
		r.facts.Topology, _ = hint.ParsePolicy(r.topology)
	default:
		r.facts.Topology = otherwise
	}
	if label != "" && r.facts.Topology >= hint.Restricted && r.facts.Mode != ledger.Own {
		r.problems = append(r.problems, Problem{
			Object: "Node/" + r.node.Name, Key: annotation.NodeNUMATopologyPolicy, Value: label, Kind: PartlyInForce,
			Text: fmt.Sprintf(
				"in mode %s pods of the CPU shared pool are not confined to NUMA nodes: the policy applies to "+
					"pods with exclusive CPUs", r.facts.Mode),
		})
	}
}
