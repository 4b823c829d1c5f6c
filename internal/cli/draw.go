package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/view"
)

// coresPerRow keeps a row of two-thread cores with two-letter labels within 110 columns; narrow terminals get
// fewer.
const coresPerRow = 16

type mark struct {
	state, symbol, ascii string
	tint                 tint
	meaning              string
}

// marks are in the order of the legend.
var marks = []mark{
	{view.CPUFree, "·", ".", plain, "shared pool, free for exclusive pods"},
	{view.CPUKubeletReserved, ":", ":", dim, "shared pool, reserved by the kubelet"},
	{view.CPUReserved, "%", "%", dim, "reserved on the node, in no pool"},
	{view.CPUSystem, "$", "$", dim, "system pods only"},
	{view.CPUIsolated, "x", "x", dim, "isolated by the boot, for pods that ask for it"},
	{view.CPUOffline, "-", "-", dim, "offline"},
	{view.CPUTwice, "!", "!", red, "held by two pods: a fault"},
}

var classTints = map[string]tint{"LSE": red, "LSR": yellow, "kubelet": magenta}

type drawing struct {
	paint
	view.Node
	labels  map[string]string // of the pods that hold CPUs, by namespace/name
	tints   map[string]tint
	width   int             // columns of a label
	columns int             // of the terminal, 0 = unlimited
	used    map[string]bool // states that occur
	drawn   map[string]bool // devices, by type and id
	text    strings.Builder
}

// drawMachine draws sockets ▸ NUMA nodes ▸ cores ▸ threads. A core is a group of labels, one for each thread; a
// capital is an LSE pod, a small letter one that shares its CPUs (LSR with BE pods). Nothing is wider than the
// terminal's columns; 0 is unlimited.
func drawMachine(v view.Node, p paint, columns int) string {
	d := &drawing{
		paint: p, Node: v, columns: columns, labels: map[string]string{}, tints: map[string]tint{},
		used: map[string]bool{}, drawn: map[string]bool{},
	}
	d.label()
	d.head()
	d.health()
	for _, s := range v.Sockets {
		d.printf("%s\n", d.paint.text(bold, fmt.Sprintf("socket %d", s.Socket)))
		for _, n := range s.NUMA {
			d.numa(n)
		}
	}
	d.otherDevices()
	d.legend()
	return d.text.String()
}

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(&d.text, format, args...) }

// wrapped prints a line, or several where the terminal is narrow: the later ones are indented by four more.
func (d *drawing) wrapped(indent int, separator, text string) {
	for i, part := range view.Wrap(text, separator, d.columns-indent-4) {
		if i == 1 {
			indent += 4
		}
		d.printf("%s\n", d.fit(strings.Repeat(" ", indent)+part, d.columns))
	}
}

// label gives every pod that holds CPUs a letter, or a letter and a digit when letters do not suffice, in the order of
// their lowest CPU.
func (d *drawing) label() {
	holders := slices.DeleteFunc(slices.Clone(d.Pods), func(p view.Holder) bool { return p.CPUSet == "" })
	slices.SortStableFunc(holders, func(a, b view.Holder) int { return cmp.Compare(firstCPU(a), firstCPU(b)) })
	d.width = 1
	const letters = 26
	if len(holders) > letters {
		d.width = 2
	}
	for i, p := range holders {
		text := string(rune('A' + i%letters))
		if d.width == 2 {
			text += strconv.Itoa(i / letters % 10)
		}
		if p.QoS != "LSE" {
			text = strings.ToLower(text)
		}
		name := p.Namespace + "/" + p.Name
		d.labels[name], d.tints[name] = text, classTints[p.QoS]
	}
}

func firstCPU(p view.Holder) int {
	ids, err := cpuset.ParseIDs(p.CPUSet)
	if err != nil || len(ids) == 0 {
		return -1
	}
	return ids[0]
}

// health writes what is wrong with the node.
func (d *drawing) health() {
	text := d.Health.Text()
	if d.Health.Closed != "" {
		text += ": new pods cannot use what is free"
	}
	if text != "" {
		d.wrapped(2, " ", "health: "+text)
	}
}

func (d *drawing) head() {
	d.printf("%s", d.paint.text(bold, "node "+d.Name))
	if d.Fault != "" {
		d.beside(" ", fmt.Sprintf("no CPU topology (%s): pods with exclusive CPUs cannot run here", d.Fault))
		return
	}
	dot := d.symbol(" · ", ", ")
	facts := []string{
		view.Count(d.CPUs, "CPU"), view.Count(d.Cores, "core"), view.Count(d.NUMANodes, "NUMA node"),
		view.Count(len(d.Sockets), "socket"),
	}
	if d.Arch != "" {
		facts = append(facts, d.Arch)
	}
	d.beside(dot, strings.Join(facts, dot))
	from := func(policy string) string { return sourceTexts[d.Policies.From[policy].Source] }
	policies := fmt.Sprintf("policies: allocate %s (%s), NUMA %s (%s)", d.Policies.NUMAAllocate, from("numaAllocate"),
		d.Policies.NUMATopology, from("numaTopology"))
	if d.Policies.CPUBind != "" {
		policies += fmt.Sprintf(", bind %s (%s)", d.Policies.CPUBind, from("cpuBind"))
	}
	for _, line := range []string{modeText(d.Mode), kubeletText(d.Kubelet), policies} {
		d.wrapped(2, " ", line)
	}
	if d.Devices != nil {
		text := "devices: mode " + d.Devices.Mode + " (Device)"
		if n := d.Devices.UnknownHolders; n > 0 {
			text += fmt.Sprintf(", closed: pods with devices of the kubelet that the agent has not reported: %d", n)
		}
		d.wrapped(2, " ", text)
	}
	if d.Kubelet.Fault != "" {
		d.wrapped(2, " ", "the kubelet's answers cannot be predicted: "+d.Kubelet.Fault)
	}
	if d.Kubelet.Assumed != "" {
		d.wrapped(2, " ", "assumed: "+d.Kubelet.Assumed)
	}
}

// beside prints text behind the node's name, or below it where the terminal is narrow.
func (d *drawing) beside(separator, text string) {
	if d.columns > 0 && utf8.RuneCountInString("node "+d.Name+"  "+text) > d.columns {
		d.printf("\n")
		d.wrapped(2, separator, text)
	} else {
		d.printf("  %s\n", text)
	}
}

func (d *drawing) numa(n view.NUMA) {
	title := fmt.Sprintf("NUMA %d  free %s", n.Node, view.Count(n.Free, "CPU"))
	switch text := memoryText(n); {
	case n.MemoryFree != "":
		title += ", memory " + text
	case text != "":
		title += "  memory " + text
	}
	if len(n.Distances) > 1 {
		title += "  distance " + strings.Trim(fmt.Sprint(n.Distances), "[]")
	}
	d.wrapped(2, " ", title)
	defer d.devices(n.Node)
	if len(n.Cores) == 0 {
		d.printf("    no CPUs\n")
		return
	}
	rows, names, wide := d.rows(n.Cores)
	for i, row := range rows {
		d.printf("    %-*s ", wide, names[i])
		for j, core := range row {
			if j > 0 && core.L3 != row[j-1].L3 {
				d.printf(" %s", d.symbol("│", "|"))
			}
			d.printf(" ")
			for _, c := range core.CPUs {
				d.printf("%s", d.cpu(c))
			}
		}
		d.printf("\n")
	}
	ls, be := "LS pool "+cmp.Or(n.SharedPool, "none"), "BE pool "+cmp.Or(n.BESharedPool, "none")
	if both := fmt.Sprintf("    %-32s %s", ls, be); d.columns <= 0 || len(both) <= d.columns {
		d.printf("%s\n", both)
	} else {
		d.wrapped(4, ",", ls)
		d.wrapped(4, ",", be)
	}
	if n.Isolated != "" {
		d.wrapped(4, ",", "isolated "+n.Isolated)
	}
	var busy []string
	for _, c := range n.L3Use {
		busy = append(busy, fmt.Sprintf("L3 %d %d%%", c.L3, c.UsedPercent))
	}
	if len(busy) > 0 {
		d.wrapped(4, ",", "busy "+strings.Join(busy, ", "))
	}
}

func memoryText(n view.NUMA) string {
	usage := func(m view.Memory) string {
		if m.Free == "" || m.Allocatable == "" {
			return m.Capacity
		}
		text := m.Free + " of " + m.Allocatable
		if m.Capacity != "" && m.Capacity != m.Allocatable {
			text += " (" + m.Capacity + ")"
		}
		return text
	}
	text := usage(view.Memory{Capacity: n.Memory, Allocatable: n.MemoryAllocatable, Free: n.MemoryFree})
	for _, size := range slices.Sorted(maps.Keys(n.Hugepages)) {
		text += ", " + size + " " + usage(n.Hugepages[size])
	}
	if len(n.MemoryGroup) > 0 {
		text += ", group " + cpuset.FormatIDs(n.MemoryGroup)
	}
	return text
}

// rows cuts the cores of a NUMA node into rows that fit the terminal, each with the name of its CPUs; wide is the
// longest name.
func (d *drawing) rows(cores []view.Core) (rows [][]view.Core, names []string, wide int) {
	for per := coresPerRow; ; per /= 2 {
		rows, names, wide = slices.Collect(slices.Chunk(cores, per)), nil, 0
		cells := 0
		for _, row := range rows {
			names = append(names, "cpu "+cpuList(row))
			wide = max(wide, len(names[len(names)-1]))
			cells = max(cells, d.cells(row))
		}
		if d.columns <= 0 || 4+wide+1+cells <= d.columns || per == 1 {
			return rows, names, wide
		}
	}
}

func (d *drawing) cells(row []view.Core) int {
	n := 0
	for j, core := range row {
		if j > 0 && core.L3 != row[j-1].L3 {
			n += 2
		}
		n += 1 + d.width*len(core.CPUs)
	}
	return n
}

func cpuList(cores []view.Core) string {
	var ids []int
	for _, c := range cores {
		for _, cpu := range c.CPUs {
			ids = append(ids, cpu.CPU)
		}
	}
	slices.Sort(ids)
	return cpuset.FormatIDs(ids)
}

func (d *drawing) cpu(c view.CPU) string {
	d.used[c.State] = true
	text, colour := "?", plain
	if i := slices.IndexFunc(marks, func(m mark) bool { return m.state == c.State }); i >= 0 {
		text, colour = d.symbol(marks[i].symbol, marks[i].ascii), marks[i].tint
	} else if len(c.Pods) == 1 {
		text, colour = d.labels[c.Pods[0]], d.tints[c.Pods[0]]
	}
	if utf8.RuneCountInString(text) < d.width {
		text += text
	}
	return d.paint.text(colour, text)
}

func (d *drawing) legend() {
	t := columns{indent: "  ", width: d.columns, paint: d.paint}
	for _, p := range d.Pods {
		name := p.Namespace + "/" + p.Name
		where := "numa " + view.IDs(p.NUMANodes)
		if p.CPUSet != "" {
			t.add(d.labels[name], name, p.QoS, p.CPUSet, where, p.Exclusive, view.InterruptsText(p.Interrupts))
		} else {
			t.add("~", name, cmp.Or(p.QoS, "LS"), "shared pool", where, "", "")
		}
	}
	for i, lines := range t.lines() {
		for _, line := range lines {
			d.printf("%s\n", d.paint.text(classTints[d.Pods[i].QoS], line))
		}
	}
	for _, m := range marks {
		if d.used[m.state] {
			d.printf("  %s  %s\n", d.symbol(m.symbol, m.ascii), m.meaning)
		}
	}
	if d.SharedPods+d.BEPods > 0 {
		text := fmt.Sprintf("%s on the LS pool, %d on the BE pool", view.Count(d.SharedPods, "pod"), d.BEPods)
		if d.SharedMemory != "" {
			text += ", which request " + d.SharedMemory + " memory of any NUMA node"
		}
		d.wrapped(2, " ", text)
	}
	for _, p := range d.Problems {
		for i, part := range view.Wrap(strings.TrimSpace(p.Pod+" "+p.Text), " ", d.columns-4) {
			mark := " "
			if i == 0 {
				mark = d.paint.text(red, d.symbol("✗", "x"))
			}
			d.printf("  %s %s\n", mark, d.fit(part, d.columns-4))
		}
	}
}

var sourceTexts = map[string]string{
	view.FromLabel: "node label", view.FromAnnotation: "agent", view.FromAttribute: "NodeResourceTopology",
	view.FromPolicies: "NodeResourceTopology", view.FromNumatopology: "Numatopology",
	view.FromArgument: "scheduler's default", view.FromAssumption: "assumed",
}

func managerText(name string, m view.Manager) string {
	text := name + " " + m.Policy
	if m.Policy == annotation.KubeletTopologyNone || m.Policy == annotation.KubeletMemoryNone {
		return text
	}
	if m.Scope != "" {
		text += ", scope " + m.Scope
	}
	for _, option := range slices.Sorted(maps.Keys(m.Options)) {
		text += ", " + option
		if value := m.Options[option]; value != "true" {
			text += "=" + value
		}
	}
	if m.Reserved != "" {
		text += ", reserved " + m.Reserved
	}
	return text
}

// kubeletText describes the kubelet with the sources; a source that all three managers share is named once.
func kubeletText(v view.Kubelet) string {
	managers := []struct {
		name string
		view.Manager
	}{{"CPU", v.CPU}, {"memory", v.Memory}, {"topology", v.Topology}}
	var parts, sources []string
	for _, m := range managers {
		sources = append(sources, sourceTexts[m.From.Source])
	}
	shared := len(slices.Compact(slices.Clone(sources))) == 1
	for i, m := range managers {
		part := managerText(m.name, m.Manager)
		if !shared {
			part += fmt.Sprintf(" (%s)", sources[i])
		}
		parts = append(parts, part)
	}
	text := "kubelet:"
	if v.Version != "" {
		text = "kubelet " + v.Version + ":"
	}
	text += " " + strings.Join(parts, "; ")
	if shared {
		text += " (" + sources[0] + ")"
	}
	return text
}

func modeText(v view.Mode) string {
	text := fmt.Sprintf("mode: %s (%s)", v.Mode, sourceTexts[v.From.Source])
	if v.Wish != "" {
		text += fmt.Sprintf(", the node's label asks for %s", v.Wish)
	}
	if t := v.Takeover; t != nil {
		text += fmt.Sprintf(", take-over phase %d, the kubelet pins %s", t.Phase,
			view.Count(int(t.RemainingPods), "pod"))
	}
	return text
}
