package host

import (
	gojson "encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Dropped is a device that another program reports, in a file of a drop directory. The format is Koordinator's: a file
// is an array of these, and numbers are strings. Type and the Count of a link are Tenon's.
type Dropped struct {
	Type      string            `json:"type,omitempty"` // default: gpu
	Vendor    string            `json:"vendor,omitempty"`
	Model     string            `json:"model,omitempty"`
	UUID      string            `json:"uuid"`
	Minor     string            `json:"minor,omitempty"`
	Resources map[string]string `json:"resources,omitempty"` // quantities; names without a domain are koordinator.sh's
	Topology  DroppedTopology   `json:"topology"`
	// Status nil means that the device works.
	Status *DroppedStatus `json:"status,omitempty"`
}

// DroppedTopology is where a device is; "" is not known.
type DroppedTopology struct {
	P2PLinks []DroppedLink `json:"p2pLinks,omitempty"`
	SocketID string        `json:"socketID,omitempty"`
	NodeID   string        `json:"nodeID,omitempty"` // NUMA node
	PCIEID   string        `json:"pcieID,omitempty"`
	BusID    string        `json:"busID,omitempty"`
}

// DroppedLink are links of one type to other devices of the same type.
type DroppedLink struct {
	PeerMinor string `json:"peerMinor"` // minors, separated by commas
	Type      string `json:"type"`      // NVLink, HCCS or another
	Count     int32  `json:"count,omitempty"`
}

// DroppedStatus is the health of a device.
type DroppedStatus struct {
	Healthy    bool   `json:"healthy"`
	ErrCode    string `json:"errCode,omitempty"`
	ErrMessage string `json:"errMessage,omitempty"`
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
		faults = append(faults, within(r, func(t *tree) { files = t.names(dir) }))
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
				case twice:
					faults = append(faults, fmt.Errorf("%s: [%d].uuid: %s %q is in %s already", name, i, d.Type, d.UUID,
						first))
				default:
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
	if err := within(r, func(t *tree) { text = t.text(name) }); err != nil || text == "" {
		return nil, err
	}
	if err := gojson.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("%s: want a JSON array of devices: %w", name, err)
	}
	return list, nil
}
