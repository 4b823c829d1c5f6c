package inventory

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
)

// RunSMI runs NVIDIA's program nvidia-smi with arguments and returns what it prints. Its error wraps exec.ErrNotFound
// where the machine does not have the program, and the program's *exec.ExitError.
type RunSMI func(ctx context.Context, args ...string) ([]byte, error)

// SMI returns the driver that reads what nvidia-smi prints of each GPU and of its NVLinks. Root has the files that say
// where GPUs are.
func SMI(root host.Root, run RunSMI) Driver {
	s := &smi{root: root, run: run}
	return Driver{Name: "nvidia-smi", Devices: s.devices}
}

// smi remembers the links, because a driver needs up to a second to say how two GPUs are joined.
type smi struct {
	root host.Root
	run  RunSMI
	// joined are the UUIDs of the GPUs and the version of the driver that links describe, by UUID.
	joined string
	links  map[string]host.DroppedTopology
}

// smiLimit bounds one run of the program. A process that waits in the driver does not end by it.
const smiLimit = time.Minute

// devices describes all GPUs, and the MIG devices that exist. A GPU that does not say its UUID is left out.
func (s *smi) devices() ([]host.Dropped, error) {
	ctx, cancel := context.WithTimeout(context.Background(), smiLimit)
	defer cancel()
	text, err := s.run(ctx, "-q", "-x")
	if hasNoDriver(err) {
		return nil, nil
	}
	var log element
	if wrong := xml.Unmarshal(text, &log); wrong != nil || log.XMLName.Local != "nvidia_smi_log" {
		return nil, errors.Join(err, fmt.Errorf("nvidia-smi -q -x: want an nvidia_smi_log: %w", wrong))
	}
	// Beside a GPU that is lost the program describes the others, and ends with an error.
	faults := []error{err}
	var gpus []*element
	var list []host.Dropped
	count := 0
	for i := range log.Children {
		gpu := &log.Children[i]
		if gpu.key() != "gpu" {
			continue
		}
		count++
		d, err := s.describe(gpu, log.text("driver_version"))
		if faults = append(faults, err); d.UUID != "" {
			gpus, list = append(gpus, gpu), append(list, d)
		}
	}
	faults = append(faults, s.join(ctx, list, count))
	found, err := s.slices(ctx, gpus, list)
	return append(list, found...), errors.Join(append(faults, err)...)
}

// hasNoDriver reports whether the program is missing, or says that its library or the kernel's driver is.
func hasNoDriver(err error) bool {
	var exit *exec.ExitError
	return errors.Is(err, exec.ErrNotFound) || errors.As(err, &exit) && (exit.ExitCode() == 9 || exit.ExitCode() == 12)
}

// element is an element of the program's XML. Versions of the program write the name of a fact with or without
// underscores, and in small or large letters: both are left out of a comparison.
type element struct {
	XMLName  xml.Name
	ID       string    `xml:"id,attr"`
	Text     string    `xml:",chardata"`
	Children []element `xml:",any"`
}

func (e *element) key() string { return strings.ToLower(strings.ReplaceAll(e.XMLName.Local, "_", "")) }

// at returns the element at a path of names; nil where there is none.
func (e *element) at(path ...string) *element {
	for _, name := range path {
		name = strings.ReplaceAll(name, "_", "")
		var next *element
		for i := range e.Children {
			if e.Children[i].key() == name {
				next = &e.Children[i]
				break
			}
		}
		if next == nil {
			return nil
		}
		e = next
	}
	return e
}

// text returns the text at a path; "" for a fact that the GPU does not have.
func (e *element) text(path ...string) string {
	found := e.at(path...)
	if found == nil {
		return ""
	}
	text := strings.TrimSpace(found.Text)
	if text == "N/A" || text == "[N/A]" || text == "Unknown Error" || text == "Not Found" || text == "None" {
		return ""
	}
	return text
}

// bytes returns an amount that is written as in "81559 MiB"; false where it is not known.
func (e *element) bytes(path ...string) (int64, bool) {
	number, isMiB := strings.CutSuffix(e.text(path...), " MiB")
	n, err := strconv.ParseInt(number, 10, 64)
	return n << 20, isMiB && err == nil && n > 0 && n < 1<<30
}

// number returns a text that is a number; "" for another.
func (e *element) number(path ...string) string {
	text := e.text(path...)
	if _, err := strconv.ParseUint(text, 10, 31); err != nil {
		return ""
	}
	return text
}

var busPattern = regexp.MustCompile(`^[0-9A-Fa-f]{4}([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.)0$`)

// describe reads what a GPU has; facts that the program does not say are left out.
func (s *smi) describe(gpu *element, version string) (d host.Dropped, err error) {
	bus := busPattern.FindStringSubmatch(gpu.ID)
	uuid := gpu.text("uuid")
	if bus == nil || !strings.HasPrefix(uuid, "GPU-") {
		return d, fmt.Errorf("nvidia-smi: GPU %.40q has UUID %.60q: want a PCI address and GPU-…", gpu.ID, uuid)
	}
	d = host.Dropped{Type: annotation.DeviceGPU, UUID: uuid, Vendor: "nvidia", Model: gpu.text("product_name")}
	d.Topology, err = host.Place(s.root, strings.ToLower(bus[1]+"0"))
	d.Minor, d.ModuleID = gpu.number("minor_number"), gpu.number("gpu_module_id")
	d.Labels = map[string]string{}
	if version != "" {
		d.Labels[annotation.GPUDriverLabel] = version
	}
	cluster, clique := gpu.text("fabric", "cluster_uuid"), gpu.number("fabric", "clique_id")
	isMember := gpu.text("fabric", "state") == "Completed" && strings.Trim(cluster, "0-") != ""
	if isMember && clique != "" {
		d.Labels[cliqueLabel] = strings.ToLower(cluster) + "." + clique
	}
	d.ComputeMode = gpu.text("compute_mode")
	if memory, ok := gpu.bytes("fb_memory_usage", "total"); ok {
		d.Resources = map[string]string{"gpu-memory": strconv.FormatInt(memory, 10)}
	}
	processes := gpu.children("processes")
	for i := range processes {
		p := &processes[i]
		pid, err := strconv.Atoi(p.text("pid"))
		if memory, ok := p.bytes("used_memory"); ok && err == nil {
			if d.Processes == nil {
				d.Processes = map[int]int64{}
			}
			d.Processes[pid] += memory // a process has a line for each of its MIG devices
		}
	}
	d.Status = healthOf(gpu)
	return d, err
}

func (e *element) children(path ...string) []element {
	if found := e.at(path...); found != nil {
		return found.Children
	}
	return nil
}

// healthOf is what the driver says of a GPU's memory, and whether it asks for a reset; nil for a GPU that works.
func healthOf(gpu *element) *host.DroppedStatus {
	says := func(path ...string) bool { return gpu.text(path...) == "Yes" }
	action := gpu.text("gpu_recovery_action")
	switch {
	case says("remapped_rows", "remapped_row_failure"):
		return rowRemapFailure()
	case action == "Reset" || action == "Reboot":
		return host.Fails("RecoveryNeeded", "the driver asks for: %s", action)
	case says("ecc_errors", "aggregate", "sram_threshold_exceeded"):
		return sramErrors()
	case says("remapped_rows", "remapped_row_pending") || says("retired_pages", "pending_retirement") ||
		says("retired_pages", "pending_blacklist") || strings.HasPrefix(action, "Drain"):
		return resetNeeded()
	}
	return nil
}

// join fills in the NVLinks of GPUs. The program is asked once for the same GPUs and the same driver, and only while it
// describes all count of them: it names them by their order.
func (s *smi) join(ctx context.Context, list []host.Dropped, count int) error {
	about := ""
	for i := range list {
		about += list[i].UUID + " " + list[i].Labels[annotation.GPUDriverLabel] + "\n"
	}
	if s.joined != about && len(list) == count {
		matrix, err := s.run(ctx, "topo", "-m")
		if err != nil {
			return fmt.Errorf("nvidia-smi topo -m: %w", err)
		}
		state, _ := s.run(ctx, "nvlink", "-s") // fails in some versions where GPUs have no NVLink
		s.links, s.joined = linksOf(list, matrix, state), about
	}
	for i := range list {
		t, l := &list[i].Topology, s.links[list[i].UUID]
		t.P2PLinks, t.SwitchLanes, t.LaneBandwidth = l.P2PLinks, l.SwitchLanes, l.LaneBandwidth
	}
	return nil
}

var (
	escapes     = regexp.MustCompile(`\x1b\[[0-9;]*m`)
	joinPattern = regexp.MustCompile(`^NV([0-9]{1,2})$`)
	gpuPattern  = regexp.MustCompile(`^GPU [0-9]+: .*\(UUID: (GPU-[^)]*)\)`)
	linkPattern = regexp.MustCompile(`^Link [0-9]+: ([0-9.]+) GB/s$`)
	migPattern  = regexp.MustCompile(`^MIG (\S*?([0-9]+)g\.\S+) +Device +([0-9]+): \(UUID: (MIG-[^)]*)\)`)
)

// linksOf reads the NVLinks of GPUs, which are listed in the order of their indices, from the matrix of topo -m and the
// state of links of nvlink -s. The matrix counts for a pair the lanes of the path. A GPU that has more than half of its
// lanes to each of several others has them to one switch.
func linksOf(list []host.Dropped, matrix, state []byte) map[string]host.DroppedTopology {
	lanes, rates, gpu := map[string]int32{}, map[string]string{}, ""
	for line := range strings.Lines(string(state)) {
		line = strings.TrimSpace(line)
		if m := gpuPattern.FindStringSubmatch(line); m != nil {
			gpu = m[1]
		}
		if m := linkPattern.FindStringSubmatch(line); m != nil {
			if rate, err := strconv.ParseFloat(m[1], 64); err == nil && rate > 0 {
				lanes[gpu]++
				rates[gpu] = nominalRate(rate)
			}
		}
	}
	links := map[string]host.DroppedTopology{}
	for line := range strings.Lines(escapes.ReplaceAllString(string(matrix), "")) {
		cells := strings.Fields(line)
		if len(cells) <= len(list) {
			continue
		}
		name, isGPU := strings.CutPrefix(cells[0], "GPU")
		i, err := strconv.Atoi(name)
		if !isGPU || err != nil || i < 0 || i >= len(list) {
			continue
		}
		uuid, shared := list[i].UUID, true
		l := host.DroppedTopology{LaneBandwidth: rates[uuid]}
		for j, cell := range cells[1 : len(list)+1] {
			if m := joinPattern.FindStringSubmatch(cell); m != nil {
				n, _ := strconv.ParseInt(m[1], 10, 32)
				shared = shared && 2*int32(n) > lanes[uuid]
				l.P2PLinks = append(l.P2PLinks,
					host.DroppedLink{PeerUUID: list[j].UUID, Type: "NVLink", Count: int32(n)})
			}
		}
		if shared && lanes[uuid] > 0 && len(l.P2PLinks) > 1 {
			l.SwitchLanes, l.P2PLinks = lanes[uuid], nil
		}
		links[uuid] = l
	}
	return links
}

// nominalRate is what a lane carries in one direction, as NVIDIA states it for the generation with a measured rate in
// GB/s.
func nominalRate(rate float64) string {
	switch {
	case rate < 22:
		return "20G"
	case rate < 40:
		return "25G"
	case rate < 75:
		return "50G"
	}
	return "100G"
}

// slices describes the MIG devices of the GPUs that are in MIG mode. A GPU in this mode without one, or of which they
// cannot be read, cannot be used: it would be given out as a whole one.
func (s *smi) slices(ctx context.Context, gpus []*element, list []host.Dropped) (found []host.Dropped, err error) {
	var names []byte
	asked := false
	for i := range gpus {
		if gpus[i].text("mig_mode", "current_mig") != "Enabled" {
			continue
		}
		if !asked {
			if names, err = s.run(ctx, "-L"); err != nil {
				err = fmt.Errorf("nvidia-smi -L: %w", err)
			}
			asked = true
		}
		if err != nil {
			list[i].Status = host.Fails("Unread", "its MIG mode is on: %v", err)
			continue
		}
		before := len(found)
		for _, name := range sliceNames(names, list[i].UUID) {
			slice := gpus[i].slice(name.index)
			if slice == nil {
				continue
			}
			found = append(found, s.describeSlice(&list[i], slice, &name))
		}
		if len(found) == before {
			list[i].Status = host.Fails(host.NoMIGDevice, "its MIG mode is on, and it has no MIG device")
		}
	}
	return found, err
}

// slice returns the MIG device with an index; nil where there is none.
func (e *element) slice(index string) *element {
	list := e.children("mig_devices")
	for i := range list {
		if list[i].text("index") == index {
			return &list[i]
		}
	}
	return nil
}

// sliceName is a MIG device as nvidia-smi -L lists it.
type sliceName struct {
	profile, index, uuid string
	parts                int // of 7
}

// sliceNames returns the MIG devices that nvidia-smi -L lists below a GPU.
func sliceNames(text []byte, gpu string) (list []sliceName) {
	inside := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if m := gpuPattern.FindStringSubmatch(line); m != nil {
			inside = m[1] == gpu
		}
		if m := migPattern.FindStringSubmatch(line); m != nil && inside {
			parts, _ := strconv.Atoi(m[2])
			list = append(list, sliceName{m[1], m[3], m[4], parts})
		}
	}
	return list
}

func (s *smi) describeSlice(gpu *host.Dropped, slice *element, name *sliceName) host.Dropped {
	minor, err1 := strconv.Atoi(gpu.Minor)
	gi, err2 := strconv.Atoi(slice.text("gpu_instance_id"))
	ci, err3 := strconv.Atoi(slice.text("compute_instance_id"))
	memory, _ := slice.bytes("fb_memory_usage", "total")
	d := migDevice(gpu, name.uuid, name.profile, name.parts, memory)
	if err := errors.Join(err1, err2, err3); err != nil {
		d.Status = host.Fails("NoDeviceFile", "nvidia-smi does not say its instance: %v", err)
		return d
	}
	return withSliceFiles(s.root, d, minor, gi, ci)
}
