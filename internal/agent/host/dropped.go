package host

import (
	"cmp"
	gojson "encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenon-project/tenon/api/annotation"
)

// Dropped is a device in the format of drop files, as other programs report it and as the agent describes what it finds
// itself. The format is Koordinator's: a file is an array of these, and numbers are strings. Type, ModuleID, Labels,
// VFs, Files, bridges and lanes are Tenon's.
type Dropped struct {
	Type   string `json:"type,omitempty"` // default: gpu
	Vendor string `json:"vendor,omitempty"`
	Model  string `json:"model,omitempty"`
	UUID   string `json:"uuid"`
	Minor  string `json:"minor,omitempty"`
	// ModuleID is the number of a GPU in Fabric Manager.
	ModuleID  string            `json:"moduleID,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Resources map[string]string `json:"resources,omitempty"` // quantities; names without a domain are koordinator.sh's
	Topology  DroppedTopology   `json:"topology"`
	// VFs are the PCI addresses of virtual functions.
	VFs []string `json:"vfs,omitempty"`
	// Files are what a container gets of a device whose type has no driver that the agent knows, and of a MIG device
	// beside those of its GPU.
	Files []DeviceFile `json:"deviceFiles,omitempty"`
	// Status nil means that the device works.
	Status *DroppedStatus `json:"status,omitempty"`
	// Processes is what processes use of a GPU's memory, in bytes by process id, where a driver says it.
	Processes map[int]int64 `json:"processes,omitempty"`
	// ComputeMode is how many programs may use a GPU at the same time, as nvidia-smi calls it; "" is not known.
	ComputeMode string `json:"computeMode,omitempty"`
	// Written is when the drop file was written that has Processes.
	Written time.Time `json:"-"`
	// IsLost is set by the agent: the device was there since the machine started, and no driver describes it now.
	IsLost bool `json:"-"`
}

// DroppedTopology is where a device is; "" is not known.
type DroppedTopology struct {
	P2PLinks []DroppedLink `json:"p2pLinks,omitempty"`
	SocketID string        `json:"socketID,omitempty"`
	NodeID   string        `json:"nodeID,omitempty"` // NUMA node
	PCIEID   string        `json:"pcieID,omitempty"`
	BusID    string        `json:"busID,omitempty"`
	// Bridges are the PCI bridges from the root complex, which is the first, to the device.
	Bridges []string `json:"bridges,omitempty"`
	// MustHonorPartition demands that GPUs are given out in groups that are linked.
	MustHonorPartition bool `json:"mustHonorPartition,omitempty"`
	// SwitchLanes are the lanes to the switch that joins all devices of the type which have some.
	SwitchLanes int32 `json:"switchLanes,omitempty"`
	// LaneBandwidth is what a lane carries in one direction, in bytes per second.
	LaneBandwidth string `json:"laneBandwidth,omitempty"`
}

// DroppedLink are links of one type to other devices of the same type.
type DroppedLink struct {
	PeerMinor string `json:"peerMinor,omitempty"` // minors, separated by commas
	PeerUUID  string `json:"peerUUID,omitempty"`  // likewise, in place of minors
	Type      string `json:"type"`                // NVLink, HCCS or another
	Count     int32  `json:"count,omitempty"`
}

// DroppedStatus is the health of a device.
type DroppedStatus struct {
	Healthy    bool   `json:"healthy"`
	ErrCode    string `json:"errCode,omitempty"`
	ErrMessage string `json:"errMessage,omitempty"`
	// Degraded devices work and are likely to fail.
	Degraded bool `json:"degraded,omitempty"`
}

// ComputeDefault is the compute mode of a GPU that several programs can use.
const ComputeDefault = "Default"

// NoMIGDevice is the code of a GPU in MIG mode that has no MIG device.
const NoMIGDevice = "NoMIGDevice"

// Fails is the status of a device that does not work.
func Fails(code, format string, args ...any) *DroppedStatus {
	return &DroppedStatus{ErrCode: code, ErrMessage: fmt.Sprintf(format, args...)}
}

// DropDirs are the folders whose files list devices: ours, and Koordinator's.
func DropDirs() []string {
	return []string{"var/run/tenon/device-infos", "var/run/koordlet/xpu-device-infos"}
}

// ReadDropped reads the files *.json of the drop directories. A file that cannot be read, or a device without uuid or
// that is listed twice, is an error of its own and spoils none of the others.
func ReadDropped(r Root) ([]Dropped, error) {
	var found []Dropped
	var faults []error
	known := map[[2]string]string{}
	for _, dir := range DropDirs() {
		var files []string
		faults = append(faults, within(r, func(t *tree) {
			if link, err := t.root.Readlink("var/run"); err == nil && path.IsAbs(link) { // out of the root
				dir = path.Join(link[1:], strings.TrimPrefix(dir, "var/run"))
			}
			files = t.names(dir)
		}))
		slices.Sort(files)
		for _, file := range files {
			name := dir + "/" + file
			if !strings.HasSuffix(file, ".json") {
				continue
			}
			list, err := readDrop(r, name)
			faults = append(faults, err)
			for i, d := range list {
				if d.Type == "" {
					d.Type = "gpu"
				}
				key := [2]string{d.Type, d.UUID}
				switch first, twice := known[key]; {
				case d.UUID == "":
					faults = append(faults, fmt.Errorf("%s: [%d].uuid: must not be empty", name, i))
				case len(d.UUID) > 253 || len(d.Type) > 63:
					faults = append(faults, fmt.Errorf("%s: [%d]: %.64q of type %.64q: want at most 253 and 63 bytes",
						name, i, d.UUID, d.Type))
				case twice:
					faults = append(faults, fmt.Errorf("%s: [%d].uuid: %s %q is in %s already", name, i, d.Type, d.UUID,
						first))
				default:
					if err := checkFiles(&d); err != nil {
						faults = append(faults, fmt.Errorf("%s: [%d].deviceFiles: %w", name, i, err))
						d.Files = nil
					}
					known[key] = name
					found = append(found, d)
				}
			}
		}
	}
	return found, errors.Join(faults...)
}

// readDrop reads one file; an empty one has no devices.
func readDrop(r Root, name string) (list []Dropped, err error) {
	text := ""
	var written time.Time
	err = within(r, func(t *tree) {
		text = t.text(name)
		if info, err := t.root.Stat(name); err == nil {
			written = info.ModTime()
		}
	})
	if err != nil || text == "" {
		return nil, err
	}
	if err := gojson.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("%s: want a JSON array of devices: %w", name, err)
	}
	for i := range list {
		if list[i].Processes != nil {
			list[i].Written = written
		}
	}
	return list, nil
}

// capabilities is the folder of the files that open MIG devices.
const capabilities = "/dev/nvidia-caps/"

// isSlice reports whether d is a MIG device.
func (d *Dropped) isSlice() bool {
	return d.Type == annotation.DeviceGPU && d.Labels[annotation.MIGParentLabel] != ""
}

// checkFiles refuses files that a device cannot have.
func checkFiles(d *Dropped) error {
	below := "/dev/"
	if d.isSlice() {
		below = capabilities
	} else if len(d.Files) > 0 && slices.Contains([]CardKind{"gpu", NVIDIA, AMD, RDMA, FPGA}, CardKind(d.Type)) {
		return fmt.Errorf("a %s has the files that its driver says", d.Type)
	}
	for _, f := range d.Files {
		if path.Clean(f.Path) != f.Path || !strings.HasPrefix(f.Path, below) || f.Major < 1 || f.Minor < 0 {
			return fmt.Errorf("%.64q with numbers %d:%d, want a path below %s, a major from 1 and a minor from 0",
				f.Path, f.Major, f.Minor, strings.TrimSuffix(below, "/"))
		}
	}
	return nil
}

// Add adds what containers get of devices that say it: of a MIG device the files of its GPU, too. A device that is
// there already, or a MIG device of a GPU without files, is left out.
func (c *Cards) Add(found []Dropped) {
	for i := range found {
		d := &found[i]
		hasID := func(id string) func(Card) bool {
			return func(o Card) bool { return o.ID == id && o.Kind.Type() == d.Type }
		}
		if len(d.Files) == 0 || d.IsLost || slices.ContainsFunc(c.List, hasID(d.UUID)) {
			continue
		}
		card := Card{Kind: CardKind(d.Type), ID: d.UUID, BusID: cmp.Or(d.Topology.BusID, d.UUID), Files: d.Files}
		if d.isSlice() {
			at := slices.IndexFunc(c.List, hasID(d.Labels[annotation.MIGParentLabel]))
			if at < 0 || len(c.List[at].Files) == 0 {
				continue
			}
			gpu := &c.List[at]
			card.Kind, card.BusID = gpu.Kind, gpu.BusID+"/"+d.UUID
			card.Files = slices.Concat(gpu.Files, d.Files)
		}
		c.List = append(c.List, card)
	}
}

// SliceFiles are the files that open a MIG device: the access to its GPU instance and to its compute instance on the
// GPU with a minor.
func SliceFiles(root Root, minor, gpuInstance, computeInstance int) (files []DeviceFile, err error) {
	err = within(root, func(t *tree) {
		major := t.majors()["nvidia-caps"]
		if major == 0 {
			t.fail("proc/devices", errors.New("has no major number of nvidia-caps"))
		}
		instance := fmt.Sprintf("proc/driver/nvidia/capabilities/gpu%d/mig/gi%d", minor, gpuInstance)
		for _, folder := range []string{instance, fmt.Sprintf("%s/ci%d", instance, computeInstance)} {
			number := pairs(t.text(folder+"/access"), ":")["DeviceFileMinor"]
			n, fault := strconv.ParseInt(number, 10, 32)
			t.fail(folder+"/access", fault)
			files = append(files, DeviceFile{capabilities + "nvidia-cap" + number, major, n})
		}
	})
	return files, err
}
