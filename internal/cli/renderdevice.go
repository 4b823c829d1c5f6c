package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/view"
)

// keyTitles are the columns of sets of devices, and what is said where a key decides.
var keyTitles = map[string]struct{ title, meaning string }{
	"score": {"SCORE", "its partition has the best score"}, "kept": {"KEPT", "keeps the best partitions free"},
	"ring": {"RING", "has the fastest ring"}, "links": {"LINKS", "has the most direct links"},
	"nics": {"NICS", "is closest to the pod's other devices"}, "numa": {"NUMA", "spans the fewest NUMA nodes"},
	"closeness": {"CLOSENESS", "is closest together on the PCI tree"},
	"worth":     {"WORTH", "preserves most capacity for future pods"},
	"spare":     {"SPARE", "fits most tightly"},
	"left":      {"LEFT", "leaves the best 8, 4 and 2 devices"},
	"linksLeft": {"LINKS LEFT", "leaves the best links"}, "mask": {"", "has the lowest PCI address"},
}

// devices shows what a pod holds, and how it was compared with other sets.
func (r *renderer) devices(p *view.Placement) {
	if len(p.Devices) > 0 {
		r.line("devices", setText(p.Devices))
	}
	c := p.Choice
	if c == nil {
		return
	}
	r.out.WriteString(r.sets(c.Sets))
	text := "the only set that fits"
	if c.Decided != "" {
		text = "chosen: " + keyTitles[c.Decided].meaning
	}
	if c.Approximate {
		text += "; not all sets were searched"
	}
	if !c.Sets[0].Held && len(p.Devices) > 0 {
		text += "; the pod was placed when other devices were free"
	}
	r.line("  as of now", text)
}

// isolationText says how strong the isolation of a part of a GPU is.
func isolationText(i *view.Isolation) string {
	switch i.Strength {
	case device.Hard:
		return "hard: the hardware isolates the memory and compute of a MIG device"
	case device.Cooperative:
		if i.By == annotation.MPS {
			return "cooperative: MPS limits programs that keep its variables; a fault of one program ends all on the " +
				"GPU"
		}
		return "cooperative: " + i.By + " limits programs that load it"
	}
	return "none: nothing limits the pods on the GPU to their shares"
}

// sets is a table of sets with their keys, best first.
func (r *renderer) sets(list []view.DeviceSet) string {
	t := columns{indent: "  ", width: r.width, paint: r.paint, right: len(list[0].Keys)}
	head := []any{"SET"}
	for _, k := range list[0].Keys {
		if title := keyTitles[k.Name].title; title != "" {
			head = append(head, title)
		}
	}
	t.add(head...)
	for _, s := range list {
		row := []any{setText(s.Devices)}
		for _, k := range s.Keys {
			if keyTitles[k.Name].title != "" {
				row = append(row, k.Value)
			}
		}
		t.add(row...)
	}
	return t.String()
}

// setText lists devices: "gpu 4,5,6,7; rdma 4 5%".
func setText(devices map[string][]view.Device) string {
	kinds := slices.SortedFunc(maps.Keys(devices), func(a, b string) int {
		if gpu := string(device.GPU); a == gpu || b == gpu {
			return map[bool]int{true: -1, false: 1}[a == gpu]
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for _, kind := range kinds {
		names := map[string][]string{}
		var shares []string
		for _, d := range devices[kind] {
			share, name := shareText(kind, d.Resources), d.ID
			if d.Minor >= 0 {
				name = strconv.Itoa(int(d.Minor))
			}
			if d.Degraded {
				share = strings.TrimSpace(share + " (degraded)")
			}
			if names[share] == nil {
				shares = append(shares, share)
			}
			names[share] = append(names[share], name)
		}
		for _, share := range shares {
			parts = append(parts, strings.TrimSpace(kind+" "+strings.Join(names[share], ",")+" "+share))
		}
	}
	return strings.Join(parts, "; ")
}

// fitText says what a node has for the devices of a pod that it refuses.
func fitText(f *view.DeviceFit) string {
	if f.Set != nil {
		return "its devices would do: " + setText(f.Set.Devices)
	}
	text := "needs " + view.Count(int(f.Asked), f.Type) + ", " + f.Need + "; " + strconv.FormatInt(f.Whole, 10) +
		" unallocated, the best with "
	var best []string
	for _, name := range []string{device.GPUCore, device.ShareOf(device.Type(f.Type))} {
		if n := f.Best[name]; n != "" {
			best = append(best, n+"%")
		}
	}
	if n := f.Best[device.GPUMemory]; n != "" {
		best = append(best, n)
	}
	if len(best) == 0 {
		best = append(best, "nothing")
	}
	text += strings.Join(best, " and ") + " free"
	if f.Miss != "" {
		text += "; lacks " + f.Miss
	}
	return text
}

// holdersShown is the number of pods that are named as holders of devices.
const holdersShown = 5

// holdersText names the pods that hold devices: "default/a (4), default/b (1), 2 pods in other namespaces".
func holdersText(f *view.DeviceFit) string {
	var parts []string
	for _, h := range f.Holders[:min(holdersShown, len(f.Holders))] {
		name := h.Pod
		if h.Claim {
			name = "claim " + name
		}
		parts = append(parts, fmt.Sprintf("%s (%d)", name, h.Devices))
	}
	if more := len(f.Holders) - holdersShown; more > 0 {
		parts = append(parts, view.Count(more, "more pod"))
	}
	if f.Elsewhere > 0 {
		parts = append(parts, view.Count(f.Elsewhere, "pod")+" in other namespaces")
	}
	return strings.Join(parts, ", ")
}
