package probe

import (
	"cmp"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Input is all that is published of a node.
type Input struct {
	NodeName string
	// Node is the API's object; nil while it is not known. Its UID goes into the owner reference.
	Node    *corev1.Node
	Machine *topo.Machine
	// Quiet is what host.Quiet says of Machine; nil where only Machine is known.
	Quiet   *annotation.IsolatedCPUs
	Kubelet annotation.Kubelet
	Mode    annotation.Mode
	// Writer is the program and its version.
	Writer string
	// Since is when take-over phase 2 began; zero without a take-over.
	Since metav1.Time
	// Pins are the pods that the kubelet's static policy pinned. They may outlive it: a take-over ends with the last of
	// them, whatever the policy is by then.
	Pins []annotation.PodCPUAlloc
	// Entries are what the node's pods hold.
	Entries []ledger.Entry
	// Pods are the node's pods, by namespace and name.
	Pods []*convert.Pod
	// State is what the kubelet's managers have recorded.
	State KubeletState
	// Batch is what batch pods may have of each NUMA node, by its kernel id; nil where pods are not aligned to them.
	Batch map[int]corev1.ResourceList
	// Draft is the one of this input; nil to make it.
	Draft *Draft
}

// Draft is the part of the object that does not depend on allocations. It is not changed any more.
type Draft struct {
	// Facts are those of the node's account: what the scheduler will read out of the published object.
	Facts ledger.Facts
	// Problems is what the Node's annotations or labels say that cannot be used.
	Problems []convert.Problem

	input    Input
	topology *v1alpha2.NodeResourceTopology
}

// Reader reads the facts of a node out of its objects, as convert.Facts does.
type Reader func(*corev1.Node, *v1alpha2.NodeResourceTopology, convert.Args) (ledger.Facts, []convert.Problem)

// NewDraft writes the draft of an input and reads its facts. That is nearly all that a topology costs.
func NewDraft(in Input, read Reader) *Draft {
	in.Entries, in.Pods, in.State, in.Batch, in.Draft = nil, nil, KubeletState{}, nil, nil
	d := &Draft{input: in, topology: draft(in)}
	d.Facts, d.Problems = read(in.Node, d.topology, convert.DefaultArgs())
	return d
}

// IsOf reports whether the draft of an input is this one. A Node or a machine that is another object is taken for a
// changed one.
func (d *Draft) IsOf(in Input) bool {
	return d != nil && d.input.Node == in.Node && d.input.Machine == in.Machine &&
		d.input.Quiet == in.Quiet && d.input.Mode == in.Mode &&
		d.input.NodeName == in.NodeName && d.input.Writer == in.Writer &&
		reflect.DeepEqual(d.input.Kubelet, in.Kubelet) && slices.Equal(d.input.Pins, in.Pins)
}

// drafted returns the draft of the input.
func (in *Input) drafted() *Draft {
	if in.Draft != nil {
		return in.Draft
	}
	return NewDraft(*in, convert.Facts)
}

// Topology computes the object that is published: everything but the annotation report, which counts the writes.
func Topology(in Input) *v1alpha2.NodeResourceTopology {
	d := in.drafted()
	if in.Mode == annotation.ModeBlind { // nothing is known of a kubelet that is not asked
		in.Kubelet, in.State = annotation.Kubelet{}, KubeletState{}
	}
	nrt := d.topology.DeepCopy()
	v := ledger.New(d.Facts, in.Entries...).View()
	devices := devicesOf(in.State)
	held := heldMemory(in)
	for n := range nrt.Zones {
		nrt.Zones[n].Resources = resources(in, topo.NUMA(n), v, held, devices)
	}
	if in.Mode != annotation.ModeBlind {
		if state := numaState(in, devices); len(state.Memory)+len(state.Devices)+len(state.Pods) > 0 {
			nrt.Annotations[annotation.NUMAStateKey] = annotation.Encode(state)
		}
		nrt.Annotations[annotation.PodCPUAllocsKey] = allocations(in, v).String()
		nrt.Annotations[annotation.CPUSharedPoolsKey] = pools(v.Machine(), v.SharedPool()).String()
		nrt.Annotations[annotation.BECPUSharedPoolsKey] = pools(v.Machine(), v.BEPool()).String()
	}
	if text, ok := takeover(in, v); ok {
		nrt.Annotations[annotation.TakeoverKey] = text
	}
	return nrt
}

// draft writes the topology of a Draft.
func draft(in Input) *v1alpha2.NodeResourceTopology {
	nrt := &v1alpha2.NodeResourceTopology{}
	nrt.APIVersion, nrt.Kind = v1alpha2.GroupVersion().String(), "NodeResourceTopology"
	nrt.Name = in.NodeName
	nrt.Labels = map[string]string{annotation.ManagedBy: annotation.ManagedByKoordinator}
	nrt.Annotations = map[string]string{
		annotation.CPUTopology:  detail(in.Machine).String(),
		annotation.TopologyMode: in.Mode,
		annotation.Writer:       in.Writer,
	}
	//nolint:staticcheck // deprecated, and what readers of v1alpha1 look at
	nrt.TopologyPolicies = []string{policyWord(annotation.Kubelet{})}
	nrt.Zones = zones(in.Machine)
	quiet := annotation.IsolatedCPUs{
		Isolated: in.Machine.FormatList(in.Machine.Isolated()), NoHzFull: in.Machine.FormatList(in.Machine.NoTick()),
	}
	if in.Quiet != nil {
		quiet = *in.Quiet
	}
	if !quiet.IsZero() {
		nrt.Annotations[annotation.IsolatedCPUsKey] = annotation.Encode(quiet)
	}
	if in.Node != nil {
		nrt.OwnerReferences = ownedBy(in.Node)
		for _, key := range []string{annotation.NodeReservation, annotation.NodeSystemQoSResource} {
			if text, ok := in.Node.Annotations[key]; ok {
				nrt.Annotations[key] = text
			}
		}
	}
	if in.Mode == annotation.ModeBlind {
		return nrt
	}
	nrt.Annotations[annotation.KubeletCPUManagerPolicy] = annotation.Encode(annotation.KubeletCPUManager{
		Policy: policyOf(in.Kubelet), Options: in.Kubelet.CPU.Options, ReservedCPUs: in.Kubelet.CPU.Reserved,
	})
	nrt.Annotations[annotation.KubeletKey] = annotation.Encode(settings(in))
	nrt.Annotations[annotation.PodCPUAllocsKey] = annotation.PodCPUAllocs(in.Pins).String()
	//nolint:staticcheck // deprecated, and what readers of v1alpha1 look at
	nrt.TopologyPolicies = []string{policyWord(in.Kubelet)}
	nrt.Attributes = attributes(in.Kubelet)
	return nrt
}

// detail lists the online CPUs. Core ids are made dense over them: the machine also counts the cores of offline CPUs.
func detail(m *topo.Machine) annotation.CPUTopologyDetail {
	d := convert.Topology(m)
	dense := map[int32]int32{}
	for i := range d.Detail {
		core := &d.Detail[i].Core
		id, ok := dense[*core]
		if !ok {
			id = int32(len(dense))
			dense[*core] = id
		}
		*core = id
	}
	return d
}

func ownedBy(node *corev1.Node) []metav1.OwnerReference {
	if node == nil || node.UID == "" {
		return nil
	}
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
}

// pools are the parts of a pool by NUMA node. A node whose part is empty is published with cpuset "".
func pools(m *topo.Machine, pool cpuset.Set) annotation.CPUSharedPools {
	list := annotation.CPUSharedPools{}
	if m == nil {
		return list
	}
	for _, n := range m.CPUNodes() {
		list = append(list, annotation.CPUSharedPool{
			Socket: int32(m.SocketID(m.NUMASocket(n))), Node: int32(m.NUMAID(n)),
			CPUSet: m.FormatList(pool.Intersect(m.NUMACPUs(n))),
		})
	}
	return list
}

// allocations are the pods with CPUs of their own: those that the kubelet pinned and still decides about, and those
// that Tenon placed.
func allocations(in Input, v *ledger.View) annotation.PodCPUAllocs {
	list := annotation.PodCPUAllocs{}
	for _, p := range in.Pins {
		p.ManagedByKubelet = true
		list = append(list, p)
	}
	for e := range v.Entries() {
		if !e.Role.Binds() || e.CPUList == "" {
			continue
		}
		list = append(list, annotation.PodCPUAlloc{
			Namespace: e.Namespace, Name: e.Name, UID: types.UID(e.UID), CPUSet: e.CPUList,
		})
	}
	slices.SortStableFunc(list, func(a, b annotation.PodCPUAlloc) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return list
}

// takeover returns the state of the take-over of CPUs from a kubelet; false when there is nothing to take over.
func takeover(in Input, v *ledger.View) (string, bool) {
	switch {
	case in.Mode == annotation.ModeBlind:
		return annotation.Encode(annotation.Takeover{Phase: 1}), true
	case in.Mode == annotation.ModeFollow,
		policyOf(in.Kubelet) != annotation.KubeletPolicyStatic && len(in.Pins) == 0:
		return "", false
	}
	t := annotation.Takeover{
		Phase: 2, Since: in.Since, KubeletPolicy: policyOf(in.Kubelet), RemainingPods: int32(len(in.Pins)),
	}
	if m := v.Machine(); m != nil && t.KubeletPolicy == annotation.KubeletPolicyStatic {
		free := m.Online().Minus(v.Facts().Model.Config.CPU.Reserved)
		for _, p := range in.Pins {
			if set, _, err := m.ParseList(p.CPUSet); err == nil {
				free = free.Minus(set)
			}
		}
		t.PinnableCPUs = m.FormatList(free)
	}
	return annotation.Encode(t), true
}
