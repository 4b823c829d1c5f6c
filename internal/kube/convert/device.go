package convert

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Devices is a Device object and what Known read of it last: equal facts are one value while the object and the machine
// remain. Like Known it is not safe for concurrent use.
type Devices struct {
	*devicev1alpha1.Device

	read      bool
	machine   *topo.Machine
	inventory *device.Inventory // nil where the object lists nothing
	problems  []Problem
}

// devices reads the node's Device object. Devices whose mode is not known are not given out: another program may do it.
func (r *factReader) devices(d *Devices) {
	if d == nil {
		return
	}
	if !d.read || d.machine != r.facts.Machine {
		d.read, d.machine = true, r.facts.Machine
		d.inventory, d.problems = r.known.inventory(d.Device, d.machine)
	}
	r.facts.Devices, r.problems = d.inventory, append(r.problems, d.problems...) // the last ones; see ReadDevices
	mode, _, err := annotation.ParseDeviceMode(d.Annotations[annotation.DeviceModeKey])
	r.facts.OwnDevices = d.inventory != nil && err == nil && mode != annotation.DeviceFollow
	r.facts.GPUIsolation = r.node.Labels[annotation.GPUIsolationLabel]
}

// server is the model of a server: what its Device object says but for the IDs of its GPUs.
type server struct {
	devices   []devicev1alpha1.DeviceInfo // of one object
	inventory *device.Inventory           // of that object
}

// serverText finds the models that are alike in machine and text.
type serverText struct {
	machine *topo.Machine
	text    string
}

// serversKept is the number of models of one text that Known keeps.
const serversKept = 8

// inventory reads a Device object, or takes the inventory of an equal server that was read before. The result is the
// same: what is read of a server depends on the IDs of its GPUs in no other way than Renamed says.
func (k *Known) inventory(d *devicev1alpha1.Device, m *topo.Machine) (*device.Inventory, []Problem) {
	shares := k.model.read(d)
	if shares {
		for _, known := range k.servers[serverText{m, string(k.model.text)}] {
			if !slices.EqualFunc(known.devices, d.Spec.Devices, k.alike) {
				continue
			}
			if inventory := known.inventory.Renamed(k.model.ids); inventory != nil {
				return inventory, nil
			}
		}
	}
	r := deviceReader{Device: d}
	inventory := r.inventory(m, &k.classes)
	if inventory != nil && len(r.problems) == 0 && shares {
		if k.servers == nil || len(k.servers) >= maxKnown {
			k.servers = map[serverText][]server{}
		}
		key := serverText{m, string(k.model.text)}
		list := k.servers[key]
		k.servers[key] = append(list[max(0, len(list)-serversKept+1):], server{d.Spec.Devices, inventory})
	}
	return inventory, r.problems
}

// alike reports whether nothing differs between two devices but the IDs of GPUs. Devices of equal servers share memory,
// so that most comparisons end at pointers.
func (k *Known) alike(a, b devicev1alpha1.DeviceInfo) bool {
	if a.Type == string(device.GPU) {
		a.ID, b.ID = "", ""
	}
	if a.Type == b.Type && a.ID == b.ID && a.Health == b.Health && a.Minor == b.Minor && a.ModuleID == b.ModuleID &&
		a.Topology == b.Topology && sameMap(a.Labels, b.Labels) && sameMap(a.Resources, b.Resources) &&
		sameSlice(a.VFGroups, b.VFGroups) && sameSlice(a.Conditions, b.Conditions) {
		return true
	}
	k.compared = [2]devicev1alpha1.DeviceInfo{a, b}
	return reflect.DeepEqual(&k.compared[0], &k.compared[1])
}

// sameMap reports whether two maps are one, or both nil.
func sameMap[M ~map[K]V, K comparable, V any](a, b M) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

// sameSlice reports whether two slices are one, or both nil.
func sameSlice[E any](a, b []E) bool {
	return len(a) == len(b) && (a == nil) == (b == nil) && (len(a) == 0 || &a[0] == &b[0])
}

// model is what is read of a Device object to find an equal server. Its memory is used for one object after the other.
type model struct {
	text []byte   // equal servers have it in common, whatever the IDs of their GPUs are
	ids  []string // of all devices
}

// mostShared is the number of devices up to which a server is compared with others.
const mostShared = 4 * device.MaxDevices

// read reads an object. It returns false for one that shares nothing: with fields that could not be read, of a node on
// which another program gives devices to pods, and where an ID is empty or there twice.
func (m *model) read(d *devicev1alpha1.Device) bool {
	m.text, m.ids = m.text[:0], m.ids[:0]
	_, _, given := annotation.Lookup(d.Annotations, annotation.DevicesCheckpointsKey,
		annotation.DevicesCheckpointsAlias)
	if given || len(d.Unread) > 0 || len(d.Spec.Devices) == 0 || len(d.Spec.Devices) > mostShared {
		return false
	}
	for i := range d.Spec.Devices {
		one := &d.Spec.Devices[i]
		if one.ID == "" || slices.Contains(m.ids, one.ID) {
			return false
		}
		m.ids = append(m.ids, one.ID)
		m.text = binary.AppendVarint(append(m.text, one.Type...), int64(number(one.Minor)))
	}
	links, linked := d.Annotations[annotation.DeviceLinksKey]
	if strings.ContainsAny(links, "\\\x00") {
		return false
	}
	at := 0
	for part := range strings.SplitSeq(links, `"`) { // every second one is a string
		n := -1
		if at%2 == 1 {
			n = slices.Index(m.ids, part)
		}
		if n >= 0 && d.Spec.Devices[n].Type == string(device.GPU) {
			m.text = binary.AppendVarint(append(m.text, 0), int64(n))
		} else {
			m.text = append(append(m.text, '"'), part...)
		}
		at++
	}
	m.text = strconv.AppendBool(m.text, linked)
	for _, key := range [...]string{annotation.DeviceModeKey, annotation.GPUPartitionsKey} {
		m.text = appendField(m.text, d.Annotations, key)
	}
	for _, key := range [...]string{
		annotation.GPUPartitionPolicyLabel, annotation.GPUVendorLabel, annotation.GPUModelLabel,
	} {
		m.text = appendField(m.text, d.Labels, key)
	}
	return true
}

// appendField appends a field that may be absent, and its length.
func appendField(text []byte, fields map[string]string, key string) []byte {
	value, found := fields[key]
	return append(binary.AppendUvarint(strconv.AppendBool(text, found), uint64(len(value))), value...)
}

type deviceReader struct {
	*devicev1alpha1.Device
	problems []Problem
}

func (r *deviceReader) report(key, value string, kind ProblemKind, err error) {
	if err != nil {
		r.problems = append(r.problems, Problem{
			Object: "Device/" + r.Name, Key: key, Value: cut(value), Text: err.Error(), Kind: kind,
		})
	}
}

// Inventory returns the devices that an object lists, as far as they can be read; nil for none.
func Inventory(d *devicev1alpha1.Device) *device.Inventory {
	return (&deviceReader{Device: d}).inventory(nil, &device.Classes{})
}

// DeviceKinds returns how the devices that an object lists are asked for, beside GPUs, RDMA and FPGA.
func DeviceKinds(d *devicev1alpha1.Device) device.Kinds {
	r, devices := deviceReader{Device: d}, make([]device.Device, 0, len(d.Spec.Devices))
	for i := range d.Spec.Devices {
		devices = append(devices, r.device(&d.Spec.Devices[i], nil))
	}
	return device.KindsOf(devices)
}

// inventory reads all that can be used of the object.
func (r *deviceReader) inventory(m *topo.Machine, classes *device.Classes) *device.Inventory {
	for _, path := range slices.Sorted(maps.Keys(r.Unread)) {
		r.report(path, "", BadValue, errors.New(r.Unread[path]))
	}
	_, _, err := parse(r.Annotations, annotation.DeviceModeKey, annotation.ParseDeviceMode)
	r.report(annotation.DeviceModeKey, r.Annotations[annotation.DeviceModeKey], BadValue, err)
	if len(r.Spec.Devices) == 0 && len(r.Unread) == 0 {
		return nil
	}
	links, _, err := parse(r.Annotations, annotation.DeviceLinksKey, annotation.ParseDeviceLinks)
	r.report(annotation.DeviceLinksKey, r.Annotations[annotation.DeviceLinksKey], BadValue, err)
	var s device.Spec
	count := map[device.Type]int{}
	for i := range r.Spec.Devices {
		d := r.device(&r.Spec.Devices[i], links.Bridges)
		if count[d.Type]++; count[d.Type] > device.MaxDevices {
			r.report(fmt.Sprintf("spec.devices[%d]", i), d.ID, BadValue,
				fmt.Errorf("at most %d devices of type %s are supported", device.MaxDevices, d.Type))
			continue
		}
		s.Devices = append(s.Devices, d)
	}
	r.link(&s, &links)
	s.LaneBytes = bandwidth(links.LaneBandwidth)
	r.partition(&s)
	s.Foreign = r.foreign()
	inventory, err := device.NewInventory(&s, m, classes)
	r.report("spec.devices", "", BadValue, err)
	return inventory
}

// GPUModel is a model as device.Device has it.
func GPUModel(vendor, model string) string { return strings.Trim(vendor+"-"+model, "-") }

func (r *deviceReader) device(d *devicev1alpha1.DeviceInfo, bridges map[string][]string) device.Device {
	out := device.Device{
		Type: device.Type(d.Type), ID: d.ID, Minor: number(d.Minor), Module: number(d.ModuleID), Labels: d.Labels,
		Healthy:  d.Health && !meta.IsStatusConditionTrue(d.Conditions, devicev1alpha1.Foreign),
		Degraded: meta.IsStatusConditionTrue(d.Conditions, devicev1alpha1.Degraded),
		Location: device.Location{NUMAID: -1},
	}
	amounts := Named(d.Resources)
	out.Total, _ = device.Measure(out.Type, amounts)
	if out.Type == device.GPU {
		vendor := cmp.Or(d.Labels[annotation.GPUVendorLabel], r.Labels[annotation.GPUVendorLabel])
		model := cmp.Or(d.Labels[annotation.GPUModelLabel], r.Labels[annotation.GPUModelLabel])
		out.Vendor, out.Model = wholeGPU(vendor), GPUModel(vendor, model)
		out.Profile, out.Parent = d.Labels[annotation.MIGProfileLabel], d.Labels[annotation.MIGParentLabel]
	} else {
		out.Bus = d.ID
		for name := range amounts {
			if out.Resource = name; len(amounts) > 1 {
				out.Resource = ""
			}
		}
	}
	for _, name := range [...]string{device.GPUCore, device.ShareOf(out.Type)} {
		if n, stated := amounts[name]; stated && n == 0 {
			out.Healthy = false // 0 is not the default of 100
		}
	}
	if t := d.Topology; t != nil {
		out.NUMAID, out.PCIe, out.Bus = int(t.NodeID), t.PCIEID, cmp.Or(t.BusID, out.Bus)
	}
	out.Bridges = bridges[out.Bus]
	for _, group := range d.VFGroups {
		for _, vf := range group.VFs {
			out.VFs = append(out.VFs, device.VF{Bus: vf.BusID, Labels: group.Labels})
		}
	}
	return out
}

// number returns a minor or a module; -1 where it is not known.
func number(n *int32) int32 {
	if n == nil {
		return -1
	}
	return max(*n, -1)
}

// wholeGPU returns the resource that counts whole GPUs of a vendor, "" where no vendor is known. For vendors without
// one it is a name that no pod asks for.
func wholeGPU(vendor string) string {
	switch vendor = strings.ToLower(vendor); vendor {
	case "":
		return ""
	case "hygon":
		return device.DCUGPU
	}
	return vendor + ".com/gpu"
}

// link reads what connects devices. Lines about devices that the object does not list are left out.
func (r *deviceReader) link(s *device.Spec, links *annotation.DeviceLinks) {
	types := map[string][]device.Type{}
	for i := range s.Devices {
		types[s.Devices[i].ID] = append(types[s.Devices[i].ID], s.Devices[i].Type)
	}
	known := func(l annotation.DeviceLink) []device.Type {
		for _, id := range l.IDs {
			if types[id] == nil {
				r.report(annotation.DeviceLinksKey, id, BadValue, fmt.Errorf("%.64q is not a device of the object", id))
				return nil
			}
		}
		if len(l.IDs) == 0 {
			return nil
		}
		return types[l.IDs[0]]
	}
	for _, l := range links.Links {
		for _, t := range known(l) {
			s.Links = append(s.Links, device.Link{Type: t, A: l.IDs[0], B: l.IDs[1], Lanes: int64(l.Count)})
		}
	}
	for _, l := range links.Switches {
		lanes := map[string]int64{}
		for _, id := range l.IDs {
			lanes[id] = int64(l.Count)
		}
		for _, t := range known(l) {
			s.Switches = append(s.Switches, device.Switch{Type: t, Lanes: lanes})
		}
	}
}

// partition reads the table of partitions. It names GPUs by module, or by minor where none has a module. A node that
// has a table and no policy prefers it, as in Koordinator.
func (r *deviceReader) partition(s *device.Spec) {
	modules := map[int32]bool{}
	byModule := slices.ContainsFunc(s.Devices, func(d device.Device) bool {
		return d.Type == device.GPU && d.Module >= 0
	})
	for i := range s.Devices {
		if d := &s.Devices[i]; d.Type == device.GPU {
			if !byModule {
				d.Module = d.Minor
			}
			modules[d.Module] = true
		}
	}
	text := r.Annotations[annotation.GPUPartitionsKey]
	table, found, err := parse(r.Annotations, annotation.GPUPartitionsKey, annotation.ParseGPUPartitions)
	r.report(annotation.GPUPartitionsKey, text, BadValue, err)
	for _, size := range slices.Sorted(maps.Keys(table)) {
		for _, p := range table[size] {
			if i := slices.IndexFunc(p.Minors, func(n int32) bool { return !modules[n] }); i >= 0 {
				r.report(annotation.GPUPartitionsKey, text, BadValue, fmt.Errorf(
					"%d: no GPU of the object has the number %d (moduleID, or minor where none has one)", size,
					p.Minors[i]))
				continue
			}
			s.Partitions.Table = append(s.Partitions.Table, device.Partition{
				Modules: p.Minors, Score: int64(p.AllocationScore), Bandwidth: bandwidth(p.RingBusBandwidth),
			})
		}
	}
	policy, labelled, err := parse(r.Labels, annotation.GPUPartitionPolicyLabel, annotation.ParseGPUPartitionPolicy)
	r.report(annotation.GPUPartitionPolicyLabel, r.Labels[annotation.GPUPartitionPolicyLabel], BadLabel, err)
	switch {
	case policy == annotation.PartitionHonor:
		s.Partitions.Policy = device.HonorPartitions
	case labelled && err == nil || found:
		s.Partitions.Policy = device.PreferPartitions
	}
}

// foreign reads what pods have of the node's kubelet. Where that cannot be read, an unknown device is held.
func (r *deviceReader) foreign() []device.Foreign {
	text, key, found := annotation.Lookup(r.Annotations, annotation.DevicesCheckpointsKey,
		annotation.DevicesCheckpointsAlias)
	if !found {
		return nil
	}
	list, _, err := annotation.ParseDevicesCheckpoints(text)
	if err != nil {
		r.report(key, text, BadValue, err)
		return []device.Foreign{{Names: []string{key}}}
	}
	var out []device.Foreign
	for i := range list {
		out = append(out, device.Foreign{UID: string(list[i].PodUID), Names: list[i].DeviceIDs})
	}
	return out
}

func bandwidth(q *resource.Quantity) int64 {
	if q == nil {
		return 0
	}
	return q.Value()
}
