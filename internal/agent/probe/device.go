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

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/device"
)

// koordinator is the domain of resource names that a drop file writes without one.
const koordinator = "koordinator.sh/"

// Device computes the object that lists the node's devices, with what of found cannot be used; nil for a node without
// devices. A device of published that is not found any more is listed as one that does not work, for as long as a pod
// of the node holds it: no other pod gets it meanwhile, and its holder remains visible.
func Device(in Input, found []host.Dropped, published *devicev1alpha1.Device, now metav1.Time) (
	*devicev1alpha1.Device, error,
) {
	o := &devicev1alpha1.Device{
		TypeMeta:   metav1.TypeMeta{APIVersion: devicev1alpha1.GroupVersion().String(), Kind: "Device"},
		ObjectMeta: metav1.ObjectMeta{Name: in.NodeName, OwnerReferences: ownedBy(in.Node)},
	}
	r := dropReader{devices: found}
	for i := range found {
		o.Spec.Devices = append(o.Spec.Devices, r.device(&found[i]))
	}
	o.Spec.Devices = append(o.Spec.Devices, lost(in, found, published)...)
	if len(o.Spec.Devices) == 0 {
		return nil, errors.Join(r.faults...)
	}
	since(o.Spec.Devices, published, now)
	slices.SortFunc(o.Spec.Devices, func(a, b devicev1alpha1.DeviceInfo) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.ID, b.ID))
	})
	o.Labels = common(o.Spec.Devices)
	o.Annotations = map[string]string{annotation.DeviceModeKey: modeOfDevices(in.Node, published)}
	if links := r.links(); len(links.Links) > 0 {
		o.Annotations[annotation.DeviceLinksKey] = links.String()
	}
	return o, errors.Join(r.faults...)
}

// modeOfDevices is the published mode, which people change; where there is none, Follow on a node whose kubelet gives
// GPUs out by their vendor's name already.
func modeOfDevices(node *corev1.Node, published *devicev1alpha1.Device) annotation.DeviceMode {
	if published != nil && published.Annotations[annotation.DeviceModeKey] != "" {
		return published.Annotations[annotation.DeviceModeKey]
	}
	if node != nil {
		for name, amount := range node.Status.Capacity {
			if device.IsWholeGPU(string(name)) && !amount.IsZero() {
				return annotation.DeviceFollow
			}
		}
	}
	return annotation.DeviceOwn
}

// lost are the published devices that are not found and that a pod holds.
func lost(in Input, found []host.Dropped, published *devicev1alpha1.Device) []devicev1alpha1.DeviceInfo {
	if published == nil {
		return nil
	}
	held := map[[2]string]bool{}
	for i := range in.Entries {
		for _, g := range in.Entries[i].Devices {
			held[[2]string{string(g.Type), g.ID}] = true
		}
	}
	for i := range found {
		delete(held, [2]string{found[i].Type, found[i].UUID})
	}
	var list []devicev1alpha1.DeviceInfo
	for _, d := range published.Spec.Devices {
		if held[[2]string{d.Type, d.ID}] {
			d.Health, d.Conditions = false, nil
			list = append(list, d)
		}
	}
	return list
}

// since dates conditions: as in the published object where it has them.
func since(devices []devicev1alpha1.DeviceInfo, published *devicev1alpha1.Device, now metav1.Time) {
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

func (r *dropReader) device(d *host.Dropped) devicev1alpha1.DeviceInfo {
	info := devicev1alpha1.DeviceInfo{
		Type: d.Type, ID: d.UUID, Health: d.Status == nil || d.Status.Healthy,
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
	if d.Type == annotation.DeviceGPU {
		info.Resources[koordinator+"gpu-core"] = *resource.NewQuantity(100, resource.DecimalSI)
		info.Resources[koordinator+"gpu-memory-ratio"] = *resource.NewQuantity(100, resource.DecimalSI)
		info.Labels = map[string]string{}
		for key, value := range map[string]string{
			annotation.GPUVendorLabel: d.Vendor, annotation.GPUModelLabel: d.Model,
		} {
			if value != "" {
				info.Labels[key] = value
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
		info.Resources[corev1.ResourceName(name)] = quantity
	}
	if !info.Health {
		info.Conditions = []metav1.Condition{{
			Type: "Healthy", Status: metav1.ConditionFalse, Reason: cmp.Or(word(d.Status.ErrCode), "Reported"),
			Message: d.Status.ErrMessage,
		}}
	}
	return info
}

// word is text as the reason of a condition: letters and digits, the first a letter; "" where there are none.
func word(text string) string {
	kept := strings.Map(func(c rune) rune {
		if c < 128 && (c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z') {
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

// links are those between devices of one type. Drop files name peers by their minor.
func (r *dropReader) links() annotation.DeviceLinks {
	byMinor := map[[2]string]string{}
	for i := range r.devices {
		if d := &r.devices[i]; d.Minor != "" {
			byMinor[[2]string{d.Type, d.Minor}] = d.UUID
		}
	}
	var links annotation.DeviceLinks
	named := map[[2]string]annotation.DeviceLink{} // by its devices; one that both name alike is written once
	for i := range r.devices {
		d := &r.devices[i]
		for _, l := range d.Topology.P2PLinks {
			for _, minor := range strings.Split(l.PeerMinor, ",") {
				peer, known := byMinor[[2]string{d.Type, strings.TrimSpace(minor)}]
				if !known || peer == d.UUID {
					r.fault(d, "topology.p2pLinks[].peerMinor", minor, "the minor of another device of its type")
					continue
				}
				link := annotation.DeviceLink{IDs: []string{d.UUID, peer}, Type: l.Type, Count: max(l.Count, 1)}
				named[[2]string{d.UUID, peer}] = link
				if same := named[[2]string{peer, d.UUID}]; same.Type != link.Type || same.Count != link.Count {
					links.Links = append(links.Links, link)
				}
			}
		}
	}
	return links
}
