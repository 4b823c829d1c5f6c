package probe

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// koordinator is the domain of resource names that a drop file writes without one.
const koordinator = "koordinator.sh/"

// Device computes the object that lists the node's devices, with what of found cannot be used; nil for a node without
// devices. A device of published that is lost, or not found any more while a pod of the node holds it, is listed as one
// that does not work: no other pod gets it meanwhile, and its holder remains visible.
func Device(in Input, found []host.Dropped, published *devicev1alpha1.Device, now metav1.Time) (
	*devicev1alpha1.Device, error,
) {
	o := &devicev1alpha1.Device{
		TypeMeta:   metav1.TypeMeta{APIVersion: devicev1alpha1.GroupVersion().String(), Kind: "Device"},
		ObjectMeta: metav1.ObjectMeta{Name: in.NodeName, OwnerReferences: ownedBy(in.Node)},
	}
	r := dropReader{devices: found}
	for i := range found {
		if !found[i].IsLost {
			o.Spec.Devices = append(o.Spec.Devices, r.device(&found[i], in.Machine))
		}
	}
	r.fillMemory(o.Spec.Devices, in.Node, published)
	o.Spec.Devices = append(o.Spec.Devices, lost(in, found, published)...)
	if len(o.Spec.Devices) == 0 {
		return nil, errors.Join(r.faults...)
	}
	Date(o.Spec.Devices, published, now)
	slices.SortFunc(o.Spec.Devices, func(a, b devicev1alpha1.DeviceInfo) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.ID, b.ID))
	})
	o.Labels = common(o.Spec.Devices)
	o.Annotations = map[string]string{annotation.DeviceModeKey: modeOfDevices(in.Node, published)}
	links := r.links()
	if len(links.Links)+len(links.Switches)+len(links.Bridges) > 0 || links.LaneBandwidth != nil {
		o.Annotations[annotation.DeviceLinksKey] = annotation.Encode(links)
	}
	if table := r.partitions(links.Links); table != nil {
		o.Annotations[annotation.GPUPartitionsKey] = table.String()
		put(&o.Labels, annotation.GPUPartitionPolicyLabel, annotation.PartitionHonor)
	}
	return o, errors.Join(r.faults...)
}

// modeOfDevices is the published mode, which people change; where there is none, Follow on a node whose kubelet gives
// GPUs or MIG devices out by their vendor's name already, or RDMA adapters by that of the usual plugin.
func modeOfDevices(node *corev1.Node, published *devicev1alpha1.Device) annotation.DeviceMode {
	if published != nil && published.Annotations[annotation.DeviceModeKey] != "" {
		return published.Annotations[annotation.DeviceModeKey]
	}
	if node != nil {
		for name, amount := range node.Status.Capacity {
			plugins := device.IsWholeGPU(string(name)) || strings.HasPrefix(string(name), "nvidia.com/mig-") ||
				strings.HasPrefix(string(name), "rdma/")
			if plugins && !amount.IsZero() {
				return annotation.DeviceFollow
			}
		}
	}
	return annotation.DeviceOwn
}

// lost are the published devices that are lost, and those that are not found and that a pod holds.
func lost(in Input, found []host.Dropped, published *devicev1alpha1.Device) []devicev1alpha1.DeviceInfo {
	if published == nil {
		return nil
	}
	listed := map[[2]string]bool{} // not as lost
	status := map[[2]string]*host.DroppedStatus{}
	for i := range in.Entries {
		for _, g := range in.Entries[i].Devices {
			status[[2]string{string(g.Type), g.ID}] = nil
		}
	}
	for i := range found {
		key := [2]string{found[i].Type, found[i].UUID}
		status[key], listed[key] = found[i].Status, !found[i].IsLost
	}
	var list []devicev1alpha1.DeviceInfo
	for _, d := range published.Spec.Devices {
		key := [2]string{d.Type, d.ID}
		if why, found := status[key]; found && !listed[key] {
			d.Health, d.Conditions = false, conditions(why)
			list = append(list, d)
		}
	}
	return list
}

// conditions are those of a device with a status; none for nil.
func conditions(s *host.DroppedStatus) []metav1.Condition {
	if s == nil || s.Healthy && !s.Degraded {
		return nil
	}
	c := metav1.Condition{
		Type: devicev1alpha1.Healthy, Status: metav1.ConditionFalse, Reason: cmp.Or(word(s.ErrCode), "Reported"),
		Message: s.ErrMessage[:min(len(s.ErrMessage), 1024)],
	}
	if s.Healthy {
		c.Type, c.Status = devicev1alpha1.Degraded, metav1.ConditionTrue
	}
	return []metav1.Condition{c}
}

// Date dates conditions: as in the published object where it has them.
func Date(devices []devicev1alpha1.DeviceInfo, published *devicev1alpha1.Device, now metav1.Time) {
	for i := range devices {
		for j := range devices[i].Conditions {
			c := &devices[i].Conditions[j]
			c.LastTransitionTime = now.Rfc3339Copy()
			if published == nil {
				continue
			}
			for _, p := range published.Spec.Devices {
				same := meta.FindStatusCondition(p.Conditions, c.Type)
				if p.Type == devices[i].Type && p.ID == devices[i].ID && same != nil && same.Status == c.Status {
					c.LastTransitionTime = same.LastTransitionTime
				}
			}
		}
	}
}

// common are the labels of GPUs that all GPUs have.
func common(devices []devicev1alpha1.DeviceInfo) map[string]string {
	var labels map[string]string
	for _, d := range devices {
		if d.Type != annotation.DeviceGPU {
			continue
		}
		if labels == nil {
			labels = maps.Clone(d.Labels)
		}
		maps.DeleteFunc(labels, func(key, value string) bool { return d.Labels[key] != value })
	}
	return labels
}

// dropReader reads devices out of drop files.
type dropReader struct {
	devices []host.Dropped
	faults  []error
}

func (r *dropReader) fault(d *host.Dropped, field, value, want string) {
	r.faults = append(r.faults, fmt.Errorf("device %s %q: %s: %.64q, want %s", d.Type, d.UUID, field, value, want))
}

func (r *dropReader) device(d *host.Dropped, m *topo.Machine) devicev1alpha1.DeviceInfo {
	info := devicev1alpha1.DeviceInfo{
		Type: d.Type, ID: d.UUID, Health: d.Status == nil || d.Status.Healthy, Conditions: conditions(d.Status),
		Resources: map[corev1.ResourceName]resource.Quantity{},
		Topology: &devicev1alpha1.DeviceTopology{
			SocketID: r.number(d, "topology.socketID", d.Topology.SocketID),
			NodeID:   r.number(d, "topology.nodeID", d.Topology.NodeID),
			PCIEID:   d.Topology.PCIEID, BusID: d.Topology.BusID,
		},
	}
	if minor := r.number(d, "minor", d.Minor); minor >= 0 {
		info.Minor = &minor
	}
	if module := r.number(d, "moduleID", d.ModuleID); module >= 0 {
		info.ModuleID = &module
	}
	if m != nil && d.Topology.SocketID == "" {
		if n, known := m.NUMAByID(int(info.Topology.NodeID)); known && len(m.NUMACores(n)) > 0 {
			info.Topology.SocketID = int32(m.SocketID(m.NUMASocket(n)))
		}
	}
	for key, value := range d.Labels {
		if len(validation.IsQualifiedName(key)) > 0 {
			r.fault(d, "labels", key, "the key of a label")
			continue
		}
		put(&info.Labels, key, labelValue(value))
	}
	var group devicev1alpha1.VirtualFunctionGroup
	for _, bus := range slices.Compact(slices.Sorted(slices.Values(d.VFs))) {
		if bus == "" || len(bus) > 253 {
			r.fault(d, "vfs", bus, "PCI addresses")
			continue
		}
		group.VFs = append(group.VFs, devicev1alpha1.VirtualFunction{Minor: -1, BusID: bus})
		info.VFGroups = []devicev1alpha1.VirtualFunctionGroup{group}
	}
	if d.Type == annotation.DeviceGPU {
		info.Resources[koordinator+"gpu-core"] = *resource.NewQuantity(100, resource.DecimalSI)
		info.Resources[koordinator+"gpu-memory-ratio"] = *resource.NewQuantity(100, resource.DecimalSI)
		for key, value := range map[string]string{
			annotation.GPUVendorLabel: d.Vendor, annotation.GPUModelLabel: d.Model,
		} {
			if value = labelValue(value); value != "" {
				put(&info.Labels, key, value)
			}
		}
	}
	for name, text := range d.Resources {
		quantity, err := annotation.ParseQuantity(text)
		if err != nil || quantity.Sign() < 0 {
			r.fault(d, "resources["+name+"]", text, "a quantity of at least 0")
			continue
		}
		if !strings.Contains(name, "/") {
			name = koordinator + name
		}
		percent := slices.Contains([]string{device.GPUCore, device.GPURatio, device.RDMAShare, device.FPGAShare}, name)
		if n, whole := quantity.AsInt64(); percent && (!whole || n > 100) {
			r.fault(d, "resources["+name+"]", text, "a whole percentage from 0 to 100")
			continue
		}
		info.Resources[corev1.ResourceName(name)] = quantity
	}
	return info
}

func put[V any](to *map[string]V, key string, value V) {
	if *to == nil {
		*to = map[string]V{}
	}
	(*to)[key] = value
}

// labelValue is text as the value of a label: what that cannot have becomes a dash.
func labelValue(text string) string {
	text = strings.Map(func(c rune) rune {
		if isWord(c) || c == '_' || c == '.' {
			return c
		}
		return '-'
	}, text)
	return strings.Trim(text[:min(len(text), 63)], "-_.")
}

func isWord(c rune) bool { return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' }

// word is text as the reason of a condition: letters and digits, the first a letter; "" where there are none.
func word(text string) string {
	kept := strings.Map(func(c rune) rune {
		if isWord(c) {
			return c
		}
		return -1
	}, text)
	if kept != "" && kept[0] <= '9' {
		kept = "Code" + kept
	}
	return kept[:min(len(kept), 64)]
}

// number reads a number that drop files write as text; -1 for one that is not known.
func (r *dropReader) number(d *host.Dropped, field, text string) int32 {
	if text == "" {
		return -1
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < -1 {
		r.fault(d, field, text, "a whole number from -1")
		return -1
	}
	return int32(n)
}

// links are what joins devices of one type. Drop files name peers by their minor, or by their id.
func (r *dropReader) links() annotation.DeviceLinks {
	ids := map[[3]string]string{} // by type, kind of name and name
	for i := range r.devices {
		d := &r.devices[i]
		ids[[3]string{d.Type, "peerUUID", d.UUID}] = d.UUID
		if d.Minor != "" {
			ids[[3]string{d.Type, "peerMinor", d.Minor}] = d.UUID
		}
	}
	var links annotation.DeviceLinks
	named := map[[2]string]annotation.DeviceLink{} // by its devices; one that both name alike is written once
	for i := range r.devices {
		d := &r.devices[i]
		if chain := d.Topology.Bridges; len(chain) > 1 { // one is the root complex, which topology.pcieID has
			put(&links.Bridges, d.Topology.BusID, chain)
		}
		if text := d.Topology.LaneBandwidth; text != "" && d.Type == annotation.DeviceGPU {
			q, err := annotation.ParseQuantity(text)
			switch {
			case err != nil || q.Sign() <= 0:
				r.fault(d, "topology.laneBandwidth", text, "bytes per second above 0, such as 25G")
			case links.LaneBandwidth == nil || q.Cmp(*links.LaneBandwidth) < 0:
				links.LaneBandwidth = &q
			}
		}
		for _, l := range d.Topology.P2PLinks {
			field, peers := "peerMinor", l.PeerMinor
			if l.PeerUUID != "" {
				field, peers = "peerUUID", l.PeerUUID
			}
			for _, name := range strings.Split(peers, ",") {
				peer, known := ids[[3]string{d.Type, field, strings.TrimSpace(name)}]
				if !known || peer == d.UUID {
					r.fault(d, "topology.p2pLinks[]."+field, name, "the minor, or uuid, of another device of its type")
					continue
				}
				count := max(r.lanes(d, "topology.p2pLinks[].count", l.Count), 1)
				link := annotation.DeviceLink{IDs: []string{d.UUID, peer}, Type: l.Type, Count: count}
				named[[2]string{d.UUID, peer}] = link
				if same := named[[2]string{peer, d.UUID}]; same.Type != link.Type || same.Count != link.Count {
					links.Links = append(links.Links, link)
				}
			}
		}
	}
	links.Switches = r.switches()
	return links
}

// lanes reads a number of lanes; 0 for one that is not one.
func (r *dropReader) lanes(d *host.Dropped, field string, n int32) int32 {
	if n < 0 || n > annotation.MaxLanes {
		r.fault(d, field, strconv.Itoa(int(n)), fmt.Sprintf("0…%d", annotation.MaxLanes))
		return 0
	}
	return n
}

// switches join devices of one type with as many lanes as both have: each switch has the lanes that its devices have
// beyond those of the switch before.
func (r *dropReader) switches() (list []annotation.DeviceLink) {
	ids := map[string]map[int32][]string{} // by type and lanes
	for i := range r.devices {
		d := &r.devices[i]
		if n := r.lanes(d, "topology.switchLanes", d.Topology.SwitchLanes); n > 0 {
			if ids[d.Type] == nil {
				ids[d.Type] = map[int32][]string{}
			}
			ids[d.Type][n] = append(ids[d.Type][n], d.UUID)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(ids)) {
		before := int32(0)
		lanes := slices.Sorted(maps.Keys(ids[kind]))
		for i, n := range lanes {
			join := annotation.DeviceLink{Count: n - before}
			for _, m := range lanes[i:] {
				join.IDs = append(join.IDs, ids[kind][m]...)
			}
			if before = n; len(join.IDs) > 1 {
				list = append(list, join)
			}
		}
	}
	return list
}
