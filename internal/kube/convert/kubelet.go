package convert

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// kubeletPod is a pod as the managers of a kubelet see it; nil when none of them could give it anything of its own.
// A pod that runs is counted with what it was given until a resize in place is done.
func kubeletPod(pod *corev1.Pod, kube qos.Kube) *kubelet.Pod {
	if kube != qos.Guaranteed && !asksDevices(pod) {
		return nil // most pods
	}
	p := &kubelet.Pod{
		UID: string(pod.UID), Guaranteed: kube == qos.Guaranteed, PodLevel: resource.IsPodLevelResourcesSet(pod),
	}
	matters := false
	for field, c := range containers(pod) {
		k := kubelet.Container{Name: c.Name, Role: kubelet.App, Devices: devicesAsked(c)}
		switch {
		case field.isInit() && isSidecar(c):
			k.Role = kubelet.Sidecar
		case field.isInit():
			k.Role = kubelet.Init
		}
		if p.Guaranteed {
			amounts := allocated(pod, c)
			if milli := requestOf(&amounts); milli%1000 == 0 { // the kubelet pins whole CPUs alone
				k.CPUs = int(milli / 1000)
			}
			k.Memory = memoryAsked(&amounts)
		}
		matters = matters || k.CPUs > 0 || len(k.Memory) > 0 || len(k.Devices) > 0
		p.Containers = append(p.Containers, k)
	}
	if !matters {
		return nil
	}
	return p
}

// allocated is what a container asks for, or what the kubelet has granted it already.
func allocated(pod *corev1.Pod, c *corev1.Container) corev1.ResourceRequirements {
	for _, list := range [...][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if s := &list[i]; s.Name == c.Name && len(s.AllocatedResources) > 0 {
				return corev1.ResourceRequirements{Requests: s.AllocatedResources, Limits: c.Resources.Limits}
			}
		}
	}
	return c.Resources
}

// memoryAsked is what a container asks of each type of memory. An amount of 0 counts: the kubelet makes hints for it.
func memoryAsked(r *corev1.ResourceRequirements) []kubelet.Amount {
	var out []kubelet.Amount
	for _, list := range [...]corev1.ResourceList{r.Requests, r.Limits} {
		for name := range list {
			known := slices.ContainsFunc(out, func(a kubelet.Amount) bool { return a.Name == string(name) })
			if known || !IsMemory(name) {
				continue
			}
			if n := requested(r, name, valueOf); n >= 0 {
				out = append(out, kubelet.Amount{Name: string(name), N: n})
			}
		}
	}
	slices.SortFunc(out, byName)
	return out
}

// devicesAsked are the resources of device plugins that a container may ask for: those with a domain of their own. What
// Koordinator's components count is not a device of the kubelet.
func devicesAsked(c *corev1.Container) []kubelet.Amount {
	var out []kubelet.Amount
	for name, q := range c.Resources.Limits {
		if n := q.Value(); n >= 0 && IsDevice(string(name)) {
			out = append(out, kubelet.Amount{Name: string(name), N: n})
		}
	}
	slices.SortFunc(out, byName)
	return out
}

func asksDevices(pod *corev1.Pod) bool {
	for _, c := range containers(pod) {
		if len(devicesAsked(c)) > 0 {
			return true
		}
	}
	return false
}

// IsDevice reports whether a resource may be a device plugin's.
func IsDevice(name string) bool {
	domain, _, ok := strings.Cut(name, "/")
	return ok && !strings.HasSuffix(domain, "kubernetes.io") && !strings.HasSuffix(domain, "koordinator.sh")
}

func byName(a, b kubelet.Amount) int { return cmp.Compare(a.Name, b.Name) }

// created is when a pod was made, in seconds since the epoch; 0 when it is not yet.
func created(pod *corev1.Pod) int64 { return max(pod.CreationTimestamp.Unix(), 0) }

// guest is what a bound pod is to its node's kubelet, with what the scheduler predicted; nil for a pod that no kubelet
// gives anything of its own.
func guest(pod *corev1.Pod, kube qos.Kube, predicted *tenancy.Prediction) *tenancy.Guest {
	p := kubeletPod(pod, kube)
	if p == nil {
		return nil
	}
	if predicted != nil {
		at := func(h kubelet.Held) int {
			return slices.IndexFunc(p.Containers, func(c kubelet.Container) bool { return c.Name == h.Container })
		}
		slices.SortStableFunc(predicted.Held, func(a, b kubelet.Held) int { return cmp.Compare(at(a), at(b)) })
	}
	return &tenancy.Guest{Pod: p, Created: created(pod), Prediction: predicted}
}

// prediction reads what the scheduler wrote; nil without it, and where it cannot be read.
func prediction(annotations map[string]string) (*tenancy.Prediction, error) {
	read, found, err := parse(annotations, annotation.PredictedPlacementKey, annotation.ParsePredictedPlacement)
	if !found || err != nil {
		return nil, err
	}
	held, err := heldOf(read.Containers)
	if err != nil {
		return nil, err
	}
	return &tenancy.Prediction{Model: read.Model, Gen: read.Gen, Held: held}, nil
}

// Predicted is what an offer writes on its pod of what the kubelet will give it; false when nothing was predicted.
func Predicted(o ledger.Offer) (annotation.PredictedPlacement, bool) {
	g := o.Entry.Guest
	if g == nil || g.Prediction == nil {
		return annotation.PredictedPlacement{}, false
	}
	p := g.Prediction
	out := annotation.PredictedPlacement{Model: p.Model, Gen: p.Gen, Containers: Placed(p.Held)}
	return out, true
}

// Placed writes what containers have as annotations do.
func Placed(held []kubelet.Held) annotation.PlacedContainers {
	out := make(annotation.PlacedContainers, len(held))
	for i := range held {
		h := &held[i]
		c := annotation.PlacedContainer{
			Mask: NUMANodes(h.NUMAIDs), Preferred: h.Preferred, CPUs: h.CPUList, Uncertain: h.Uncertain,
		}
		kinds := map[string]map[string]apiresource.Quantity{}
		for _, m := range h.Memory {
			if kinds[m.Type] == nil {
				kinds[m.Type] = map[string]apiresource.Quantity{}
			}
			amount, key := *apiresource.NewQuantity(m.Bytes, apiresource.BinarySI), cpuset.FormatIDs(m.NUMAIDs)
			amount.Add(kinds[m.Type][key])
			kinds[m.Type][key] = amount
		}
		c.Memory = kinds[string(corev1.ResourceMemory)]
		if delete(kinds, string(corev1.ResourceMemory)); len(kinds) > 0 {
			c.Hugepages = kinds
		}
		for _, d := range h.Devices {
			if c.Devices == nil {
				c.Devices = map[string]annotation.PlacedDevices{}
			}
			c.Devices[d.Resource] = join(c.Devices[d.Resource],
				annotation.PlacedDevices{Mask: NUMANodes(d.NUMAIDs), Count: int32(d.Count), Open: d.Open})
		}
		out[h.Container] = c
	}
	return out
}

func join(all, part annotation.PlacedDevices) annotation.PlacedDevices {
	if all.Count == 0 {
		return part
	}
	if all.Split == nil {
		all.Split = []annotation.PlacedDevices{all}
	}
	mask := slices.Concat(all.Mask, part.Mask)
	slices.Sort(mask)
	return annotation.PlacedDevices{
		Mask: slices.Compact(mask), Count: all.Count + part.Count, Split: append(slices.Clip(all.Split), part),
		Open: all.Open || part.Open,
	}
}

// NUMANodes writes kernel ids as annotations do.
func NUMANodes(ids []int) annotation.NUMANodes {
	var out annotation.NUMANodes
	for _, id := range ids {
		out = append(out, int32(id))
	}
	return out
}

// heldOf reads what containers have, by name. Lists that cannot be read are an error that names the container.
func heldOf(placed annotation.PlacedContainers) ([]kubelet.Held, error) {
	out := make([]kubelet.Held, 0, len(placed))
	for _, name := range slices.Sorted(maps.Keys(placed)) {
		c := placed[name]
		h := kubelet.Held{
			Container: name, NUMAIDs: ids(c.Mask), Preferred: c.Preferred, Uncertain: c.Uncertain,
		}
		cpus, err := cpuset.ParseIDs(c.CPUs)
		if err != nil {
			return nil, fmt.Errorf("container %s: cpus: %w", name, err)
		}
		h.CPUList = cpuset.FormatIDs(cpus)
		kinds := map[string]map[string]apiresource.Quantity{string(corev1.ResourceMemory): c.Memory}
		maps.Copy(kinds, c.Hugepages)
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			for _, nodes := range slices.Sorted(maps.Keys(kinds[kind])) {
				amount := kinds[kind][nodes]
				numa, err := cpuset.ParseIDs(nodes)
				if err != nil || len(numa) == 0 {
					return nil, fmt.Errorf("container %s: %s: NUMA nodes %q: %w", name, kind, nodes,
						cmp.Or(err, errors.New("want a list")))
				}
				h.Memory = append(h.Memory, kubelet.HeldMemory{Type: kind, NUMAIDs: numa, Bytes: amount.Value()})
			}
		}
		slices.SortStableFunc(h.Memory, func(a, b kubelet.HeldMemory) int {
			return cmp.Or(cmp.Compare(a.Type, b.Type), slices.Compare(a.NUMAIDs, b.NUMAIDs))
		})
		for _, resource := range slices.Sorted(maps.Keys(c.Devices)) {
			parts := c.Devices[resource].Split
			if len(parts) == 0 {
				parts = []annotation.PlacedDevices{c.Devices[resource]}
			}
			for _, d := range parts {
				h.Devices = append(h.Devices, kubelet.HeldDevices{
					Resource: resource, NUMAIDs: ids(d.Mask), Count: int(d.Count), Open: d.Open,
				})
			}
		}
		slices.SortStableFunc(h.Devices, func(a, b kubelet.HeldDevices) int {
			return cmp.Or(cmp.Compare(a.Resource, b.Resource), slices.Compare(a.NUMAIDs, b.NUMAIDs))
		})
		out = append(out, h)
	}
	return out, nil
}

func ids(nodes annotation.NUMANodes) []int {
	var out []int
	for _, n := range nodes {
		out = append(out, int(n))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// model reads how the node's kubelet handles CPUs, memory and topology, and what it has given to whom. It needs the
// machine; without the kubelet's version only CPUs are counted.
func (r *factReader) model() {
	r.mode()
	settings, ok := r.kubeletSettings()
	if r.facts.Machine == nil {
		return
	}
	if r.assumed {
		r.used()
	}
	if ok {
		r.predicted(&settings)
	}
	if m := &r.facts.Model; m.Node == nil && m.Fault.OK() && m.Config.CPU.Static {
		m.Node, m.Fault = r.known.kubelet(r.facts.Machine, kubelet.Counting(m.Config.CPU), kubelet.Inventory{})
	}
}

// predicted reads the model of a kubelet of a known version.
func (r *factReader) predicted(settings *annotation.Kubelet) {
	active := r.facts.Model.Config.CPU.Static ||
		settings.Memory.Policy == annotation.KubeletMemoryStatic ||
		settings.Topology.Policy != annotation.KubeletTopologyNone
	version := cmp.Or(r.node.Status.NodeInfo.KubeletVersion, settings.Version)
	if version == "" && r.numa != nil {
		version = importedVersion
	}
	behaviour, known := kubelet.ModelOf(version)
	if !active {
		return
	}
	m := &r.facts.Model
	said := kubelet.Settings{
		Version: version, CPUOptions: settings.CPU.Options, TopologyOptions: settings.Topology.Options,
		Gates: settings.Gates,
	}
	m.Assumed = said.Assumptions()
	if CPUsGivenTwice(r.node) {
		m.Assumed = append(m.Assumed, "the kubelet has given CPUs to two pods, or has them free and given at once")
	}
	if len(m.Assumed) > 0 {
		m.Trust = r.trust
	}
	if r.assumed {
		m.Assumed = append([]string{AssumedForeign}, m.Assumed...)
	}
	if !known {
		return
	}
	config := r.config(settings)
	config.Model, config.CPU = behaviour, m.Config.CPU
	state, _ := fromNRT(r, annotation.NUMAStateKey, annotation.ParseNUMAState)
	inventory := r.inventory(settings, &state)

	m.Node, m.Fault = r.known.kubelet(r.facts.Machine, config, inventory)
	switch {
	case m.Fault.OK():
	case r.numa != nil:
		r.onNuma("spec.cpuDetail", "", kubeletFault(m.Fault))
	default:
		r.onNRT("zones", "", kubeletFault(m.Fault))
	}
	m.Config = config
	for _, d := range inventory.Devices {
		m.Devices = append(m.Devices, d.Resource)
	}
	slices.Sort(m.Devices)
	m.Devices = slices.Compact(m.Devices)
	r.placed(&state)
	if r.assumed && state.Devices == nil {
		r.unattributedDevices()
	}
}

// unattributedDevices reads from the zones of another exporter how many devices of each NUMA node pods have. The
// exporter does not say which pods.
func (r *factReader) unattributedDevices() {
	var used []kubelet.Devices
	for _, z := range r.zones {
		nodes, known := numaMask(r.facts.Machine, annotation.NUMANodes{int32(z.id)})
		for i, a := range z.Resources {
			again := slices.ContainsFunc(z.Resources[:i],
				func(o v1alpha2.ResourceInfo) bool { return o.Name == a.Name })
			if !known || again || !IsDevice(a.Name) || !r.isAvailable(z, a) {
				continue
			}
			if n := a.Allocatable.Value() - a.Available.Value(); n > 0 {
				used = append(used, kubelet.Devices{Resource: a.Name, Nodes: nodes, Count: int(n)})
			}
		}
	}
	if len(used) > 0 {
		r.facts.Given = append(r.facts.Given, tenancy.Grant{Placement: kubelet.Placement{{Devices: used}}})
	}
}

// used reads from the zones of another exporter how much CPU and memory of each NUMA node pods have. The exporter does
// not say which pods.
func (r *factReader) used() {
	for _, z := range r.zones {
		for i, a := range z.Resources {
			again := slices.ContainsFunc(z.Resources[:i],
				func(o v1alpha2.ResourceInfo) bool { return o.Name == a.Name })
			isCPU := a.Name == string(corev1.ResourceCPU)
			if again || !isCPU && !align.HasRows(why.Resource(a.Name)) || !r.isAvailable(z, a) {
				continue
			}
			n := valueOf(a.Allocatable) - valueOf(a.Available)
			if isCPU {
				n = milliOf(a.Allocatable) - milliOf(a.Available)
			}
			if n > 0 {
				r.facts.Used = append(r.facts.Used, align.Amount{NUMAID: z.id, Resource: why.Resource(a.Name), N: n})
			}
		}
	}
}

// isAvailable reports whether a zone says how much of a resource is available.
func (r *factReader) isAvailable(z zone, a v1alpha2.ResourceInfo) bool {
	if a.Available.Sign() < 0 {
		r.onNRT("zones["+z.Name+"].resources["+a.Name+"].available", a.Available.String(), errors.New("want 0 or more"))
		return false
	}
	return a.Available.Format != "" || !a.Available.IsZero() // it is set
}

// AssumedForeign is the assumption about a kubelet that only another project's exporter describes.
const AssumedForeign = "only another exporter describes this kubelet: options, reserved CPUs and the memory manager " +
	"are assumed absent where it does not report them"

// CPUsGivenTwice reports whether the node's agent found CPUs in the kubelet's record that are given twice. Which of
// them the kubelet takes for free when one of the pods ends is not reported.
func CPUsGivenTwice(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == annotation.KubeletStateContradictory && c.Status == corev1.ConditionTrue &&
			c.Reason == annotation.CPUsGivenTwice
	})
}

// kubeletFault returns the error for a machine that the kubelet does not support, with the number that exceeds the
// limit.
func kubeletFault(fault why.Reason) error {
	switch fault.Code {
	case why.TooManyNUMANodes:
		return fmt.Errorf("%d NUMA nodes, the kubelet's managers take at most %d (%s)", fault.Asked, fault.Extra,
			annotation.OptionMaxNUMANodes)
	case why.KubeletPanics:
		return fmt.Errorf(
			"NUMA node id %d: the kubelet's managers take ids up to %d, and with %s ids below the number of NUMA nodes",
			fault.Extra, topo.MaxNodes-1, annotation.OptionPreferClosest)
	}
	return errors.New("amounts of memory or devices that no kubelet of this machine has")
}

func (r *factReader) mode() {
	if r.numa != nil { // no agent of ours enforces anything there
		r.facts.Mode = ledger.Blind
		if r.facts.Model.Config.CPU.Static {
			r.facts.Mode = ledger.Follow
		}
		return
	}
	switch mode, _ := fromNRT(r, annotation.TopologyMode, annotation.ParseMode); mode {
	case annotation.ModeFollow:
		r.facts.Mode = ledger.Follow
	case annotation.ModeBlind:
		r.facts.Mode = ledger.Blind
	}
}

// kubeletSettings reads the kubelet's settings from the agent's annotation, else from other exporters; then options and
// reservations that these do not export count as absent. It returns false if no source has any settings. The topology
// policy has one order for the model and for the node's own policy: the agent's annotation, the attribute,
// topologyPolicies, Numatopology.
func (r *factReader) kubeletSettings() (annotation.Kubelet, bool) {
	switch {
	case r.malformed != nil:
		r.onNRT(annotation.KubeletKey, r.nrt.Annotations[annotation.KubeletKey], r.malformed)
	case r.reported:
		k := r.settings
		if r.topology = k.Topology.Policy; r.exported.Policy != "" && r.exported.Policy != r.topology {
			r.onNRT(r.exported.field(), r.exported.Policy,
				fmt.Errorf("says %s and the annotation %s says %s: the annotation counts",
					r.exported.Policy, annotation.KubeletKey, r.topology))
		}
		return k, true
	}
	r.assumed = true
	k := annotation.Kubelet{
		CPU: annotation.KubeletCPU{
			Policy: cmp.Or(r.kube.Policy, annotation.KubeletPolicyNone), Options: r.kube.Options,
			Reserved: r.kube.ReservedCPUs,
		},
		Memory: annotation.KubeletMemory{Policy: annotation.KubeletMemoryNone},
		Topology: annotation.KubeletTopology{
			Policy: annotation.KubeletTopologyNone,
			Scope:  annotation.TopologyScopeContainer,
		},
	}
	known := r.kube.Policy != ""
	if policy, ok := r.importedTopologyPolicy(); ok {
		k.Topology.Policy, r.topology, known = policy, policy, true
	}
	if e := r.exported; e.Policy != "" {
		k.Topology.Policy, r.topology, known = e.Policy, e.Policy, true
		k.Topology.Scope = cmp.Or(e.Scope, annotation.TopologyScopeContainer)
		if e.MaxNUMANodes != "" {
			k.Topology.Options = map[string]string{annotation.OptionMaxNUMANodes: e.MaxNUMANodes}
		}
	}
	return k, known
}

// config converts the settings of the memory and topology managers. Options of a policy that is off are ignored.
func (r *factReader) config(settings *annotation.Kubelet) kubelet.Config {
	var c kubelet.Config
	c.Memory.Static = settings.Memory.Policy == annotation.KubeletMemoryStatic
	c.Topology.Policy, _ = hint.ParsePolicy(settings.Topology.Policy)
	if c.Topology.Policy == hint.None {
		return c
	}
	c.Topology.PodScope = settings.Topology.Scope == annotation.TopologyScopePod
	c.Topology.PreferClosest = settings.Topology.Options[annotation.OptionPreferClosest] == "true"
	if text, ok := settings.Topology.Options[annotation.OptionMaxNUMANodes]; ok {
		n, err := strconv.Atoi(text)
		if err != nil || n < minMaxNUMANodes {
			r.onNRT(annotation.KubeletKey, text,
				fmt.Errorf("topology.options[%s]: want a number of at least %d", annotation.OptionMaxNUMANodes,
					minMaxNUMANodes))
			return c
		}
		c.Topology.MaxNodes = n
	}
	return c
}

// inventory returns the managers' inventory as the agent reports it, else as the zones have it.
func (r *factReader) inventory(settings *annotation.Kubelet, state *annotation.NUMAState) kubelet.Inventory {
	var inv kubelet.Inventory
	m := r.facts.Machine
	if settings.Memory.Policy == annotation.KubeletMemoryStatic {
		inv.Zones = make([]map[string]int64, m.NumNUMA())
		for i := range inv.Zones {
			id := m.NUMAID(topo.NUMA(i))
			if z, ok := state.Memory[int32(id)]; ok {
				inv.Zones[i] = bytesOf(z.Allocatable)
			} else if state.Memory == nil {
				inv.Zones[i] = r.zoneMemory(id, settings.Memory.Reserved[int32(id)])
			}
			r.addPageSizes(inv.Zones[i])
		}
	}
	if state.Devices == nil {
		inv.Devices = r.zoneDevices()
		return inv
	}
	for _, name := range slices.Sorted(maps.Keys(state.Devices)) {
		for _, d := range state.Devices[name] {
			nodes, known := numaMask(m, d.NUMA)
			if !known {
				r.onNRT(annotation.NUMAStateKey, name,
					fmt.Errorf("devices[%s]: NUMA nodes %v are not on the node", name, d.NUMA))
				continue
			}
			inv.Devices = append(inv.Devices, kubelet.DeviceSet{
				Resource: name, Nodes: nodes, Registered: int(d.Total), Healthy: int(max(d.Total-d.Unhealthy, 0)),
			})
		}
	}
	return inv
}

// addPageSizes adds the page sizes that the kubelet counts on the Node and of which the zone has no page.
func (r *factReader) addPageSizes(allocatable map[string]int64) {
	for name := range r.node.Status.Capacity {
		if _, known := allocatable[string(name)]; !known && len(allocatable) > 0 && IsMemory(name) {
			allocatable[string(name)] = 0
		}
	}
}

func bytesOf(list corev1.ResourceList) map[string]int64 {
	out := make(map[string]int64, len(list))
	for name, q := range list {
		if IsMemory(name) {
			out[string(name)] = q.Value()
		}
	}
	return out
}

// numaMask is false when one of the nodes is not on the machine.
func numaMask(m *topo.Machine, nodes annotation.NUMANodes) (mask topo.NodeSet, known bool) {
	for _, id := range nodes {
		n, ok := m.NUMAByID(int(id))
		if !ok || int(n) >= topo.MaxNodes {
			return 0, false
		}
		mask |= 1 << n
	}
	return mask, true
}

// zoneMemory is what a zone has for pods: its allocatable memory, and no more than its capacity without the
// reservation.
func (r *factReader) zoneMemory(id int, reserved corev1.ResourceList) map[string]int64 {
	out := map[string]int64{}
	for _, a := range r.facts.Amounts {
		if a.NUMAID == id {
			out[string(a.Resource)] = a.N
		}
	}
	for _, z := range r.zones {
		for _, amount := range z.Resources {
			q, ok := reserved[corev1.ResourceName(amount.Name)]
			if ok && z.id == id && !amount.Capacity.IsZero() {
				out[amount.Name] = max(min(out[amount.Name], amount.Capacity.Value()-q.Value()), 0)
			}
		}
	}
	return out
}

// zoneDevices are the devices that zones count; each stands on one NUMA node.
func (r *factReader) zoneDevices() []kubelet.DeviceSet {
	var out []kubelet.DeviceSet
	for _, z := range r.zones {
		nodes, known := numaMask(r.facts.Machine, annotation.NUMANodes{int32(z.id)})
		if !known {
			continue
		}
		for _, a := range z.Resources {
			total, healthy := a.Capacity.Value(), a.Allocatable.Value()
			if !IsDevice(a.Name) || total <= 0 || slices.ContainsFunc(out, func(d kubelet.DeviceSet) bool {
				return d.Resource == a.Name && d.Nodes == nodes
			}) {
				continue
			}
			out = append(out, kubelet.DeviceSet{
				Resource: a.Name, Nodes: nodes, Registered: int(total), Healthy: int(min(max(healthy, 0), total)),
			})
		}
	}
	return out
}

// placed reads what the pods have, and the generation of the report that says so.
func (r *factReader) placed(state *annotation.NUMAState) {
	m := &r.facts.Model
	report, _ := fromNRT(r, annotation.ReportKey, annotation.ParseReport)
	m.Gen = max(report.Gen, 0)
	for _, uid := range slices.Sorted(maps.Keys(state.Pods)) {
		held, err := heldOf(state.Pods[uid])
		if err != nil {
			r.onNRT(annotation.NUMAStateKey, string(uid), fmt.Errorf("pods[%s]: %w", uid, err))
			continue
		}
		r.facts.Given = append(r.facts.Given, tenancy.Grant{
			UID: string(uid), Placement: kubelet.PlacementOf(r.facts.Machine, held),
		})
	}
}

// Rejected returns why the kubelet rejected a pod; false for pods that were admitted, or not yet processed by the
// kubelet.
func Rejected(pod *corev1.Pod) (reason string, rejected bool) {
	reason = pod.Status.Reason
	if pod.Status.Phase != corev1.PodFailed {
		return "", false
	}
	return reason, Misaligned(reason) || strings.HasPrefix(reason, "OutOf")
}

// Misaligned reports whether a kubelet rejects with this reason what its managers cannot align or allocate. Reasons
// that begin with OutOf are about the node as a whole, and no business of theirs.
func Misaligned(reason string) bool {
	return slices.Contains([]string{
		kubelet.TopologyAffinityError, kubelet.SMTAlignmentError, kubelet.UnexpectedAdmissionError,
		"EmptyPodSharedPoolError",
	}, reason)
}
