package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/view"
)

// matrixSize is the number of devices up to which their links are drawn as a matrix.
const matrixSize = 16

// devices draws the devices of a NUMA node by root complex: how much of each is in use, and by which pods.
func (d *drawing) devices(numa int) {
	if d.Devices == nil {
		return
	}
	var list []view.DeviceOnNode
	for _, o := range d.Devices.List {
		if o.NUMA == numa && !d.drawn[o.Type+o.ID] {
			d.drawn[o.Type+o.ID] = true
			list = append(list, o)
		}
	}
	slices.SortStableFunc(list, func(a, b view.DeviceOnNode) int { return cmp.Compare(a.PCIe, b.PCIe) })
	t := columns{indent: "    ", width: d.columns, paint: d.paint}
	for i := range list {
		root := list[i].PCIe
		if i > 0 && root == list[i-1].PCIe {
			root = ""
		}
		what := cmp.Or(strings.TrimSpace(list[i].Model+" "+list[i].Total[device.GPUMemory]), list[i].Bus)
		t.add(root, deviceName(&list[i]), what, d.bar(list[i].UsedPercent), d.use(&list[i]))
	}
	for i, lines := range t.lines() {
		colour := plain
		if list[i].Degraded {
			colour = yellow
		}
		if !list[i].Healthy {
			colour = red
		}
		for _, line := range lines {
			d.printf("%s\n", d.paint.text(colour, line))
		}
	}
}

// otherDevices draws the devices that no NUMA node was drawn with, and says who gives out the devices of the node.
func (d *drawing) otherDevices() {
	if d.Devices == nil {
		return
	}
	unknown := []int{}
	for _, o := range d.Devices.List {
		if !d.drawn[o.Type+o.ID] {
			unknown = append(unknown, o.NUMA)
		}
	}
	slices.Sort(unknown)
	for _, numa := range slices.Compact(unknown) {
		if numa < 0 {
			d.printf("devices of unknown NUMA node\n")
		} else {
			d.printf("devices of NUMA %d\n", numa)
		}
		d.devices(numa)
	}
	d.links()
}

func deviceName(o *view.DeviceOnNode) string {
	if o.Minor < 0 {
		return o.Type + " " + cmp.Or(o.Bus, o.ID)
	}
	return o.Type + " " + strconv.Itoa(int(o.Minor))
}

// use says who has how much of a device.
func (d *drawing) use(o *view.DeviceOnNode) string {
	var parts []string
	for _, h := range o.Holders {
		text := strings.TrimSpace(h.Pod + " " + shareText(o.Type, h.Resources))
		switch {
		case h.Foreign:
			text = h.Pod + " (of the kubelet)"
		case h.Claim:
			text = "claim " + h.Pod
		}
		parts = append(parts, text)
	}
	switch {
	case !o.Healthy:
		parts = append(parts, "not healthy")
	case o.Sliced:
		parts = append(parts, "allocated in slices")
	case d.Devices.Mode == "Follow":
		parts = append(parts, "allocated by the kubelet")
	case len(parts) == 0:
		parts = append(parts, "free")
	case o.UsedPercent < 100:
		parts = append(parts, fmt.Sprintf("%d%% free", 100-o.UsedPercent))
	}
	if o.Healthy && o.Degraded {
		parts = append(parts, "degraded")
	}
	return strings.Join(parts, ", ")
}

// shareText writes a part of a device: "50%", or "30% + 4Gi" where cores and memory differ; "" for all of it.
func shareText(kind string, amounts map[string]string) string {
	if kind != string(device.GPU) {
		if share := amounts[device.ShareOf(device.Type(kind))]; share != "100" {
			return share + "%"
		}
		return ""
	}
	cores, ratio := amounts[device.GPUCore], amounts[device.GPURatio]
	switch memory := cmp.Or(amounts[device.GPUMemory], ratio+"% of the memory"); {
	case cores == "100" && ratio == "100":
		return ""
	case cores == ratio:
		return cores + "%"
	case cores == "":
		return memory
	default:
		return cores + "% + " + memory
	}
}

// links draws the direct links between devices: in one line where all devices are linked alike, else as a matrix, or,
// of many devices, as a count.
func (d *drawing) links() {
	kind := strings.TrimSpace(d.Devices.Kind + " lanes")
	linked := map[string]map[[2]string]int64{}
	for _, l := range d.Devices.Links {
		if linked[l.Type] == nil {
			linked[l.Type] = map[[2]string]int64{}
		}
		linked[l.Type][l.IDs], linked[l.Type][[2]string{l.IDs[1], l.IDs[0]}] = l.Lanes, l.Lanes
	}
	for _, deviceType := range slices.Sorted(maps.Keys(linked)) {
		lanes, list := linked[deviceType], slices.Clone(d.Devices.List)
		list = slices.DeleteFunc(list, func(o view.DeviceOnNode) bool { return o.Type != deviceType })
		values := slices.Compact(slices.Sorted(maps.Values(lanes)))
		switch all := len(list) * (len(list) - 1); {
		case len(lanes) == all && len(values) == 1:
			d.wrapped(2, " ", fmt.Sprintf("links: %d %s between each two of %d %ss", values[0], kind, len(list),
				deviceType))
		case len(list) <= matrixSize:
			d.matrix(deviceType, kind, list, lanes)
		default:
			d.wrapped(2, " ", fmt.Sprintf("links: %s between %d of %d pairs of %ss", kind, len(lanes)/2, all/2,
				deviceType))
		}
	}
}

func (d *drawing) matrix(deviceType, kind string, list []view.DeviceOnNode, lanes map[[2]string]int64) {
	d.wrapped(2, " ", fmt.Sprintf("links: %s between two %ss", kind, deviceType))
	t := columns{indent: "    ", width: d.columns, paint: d.paint, right: len(list)}
	head := []any{""}
	for i := range list {
		head = append(head, list[i].Minor)
	}
	t.add(head...)
	for i := range list {
		row := []any{deviceName(&list[i])}
		for j := range list {
			cell := d.symbol("·", ".")
			if n := lanes[[2]string{list[i].ID, list[j].ID}]; n > 0 {
				cell = strconv.FormatInt(n, 10)
			} else if i == j {
				cell = "-"
			}
			row = append(row, cell)
		}
		t.add(row...)
	}
	d.printf("%s", t.String())
}
