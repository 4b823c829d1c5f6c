package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"k8s.io/utils/dump"
)

// Device is one device of a device plugin.
type Device struct {
	// Resource is the extended resource, such as nvidia.com/gpu, and ID the plugin's name of the device in it.
	Resource, ID string
	// NUMAIDs are the NUMA nodes that the device stands on, ascending; nil where none is known.
	NUMAIDs []int
	// Unhealthy devices are never allocated; they count where the kubelet counts capacity.
	Unhealthy bool
}

// DeviceState is what the kubelet's device manager has recorded.
type DeviceState struct {
	// Registered are the ids of the healthy devices by resource, ascending.
	Registered map[string][]string
	// Pods maps a pod's UID, a container's name and a resource to the devices it was given, by id.
	Pods map[string]map[string]map[string][]Device
	// Doubt says why the file may be damaged; "" where its checksum is right. It is in use all the same.
	Doubt string
}

const deviceStateFile = "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"

// ReadDeviceState reads the checkpoint of the kubelet's device manager below root; the zero DeviceState when there is
// none. Its error names the file: the caller keeps what it read before.
func ReadDeviceState(root Root) (DeviceState, error) {
	return readState(root, deviceStateFile, parseDeviceState)
}

func parseDeviceState(text []byte) (DeviceState, error) {
	var file struct {
		Data *struct {
			PodDeviceEntries []struct {
				PodUID        string
				ContainerName string
				ResourceName  string
				DeviceIDs     deviceIDs
			}
			RegisteredDevices map[string][]string
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return DeviceState{}, err
	}
	if file.Data == nil {
		return DeviceState{}, errors.New("has no Data")
	}
	s := DeviceState{Registered: map[string][]string{}, Pods: map[string]map[string]map[string][]Device{}}
	s.Doubt = checksumDoubt(text)
	for name, ids := range file.Data.RegisteredDevices {
		s.Registered[name] = ascending(ids)
	}
	owners := map[[2]string]string{}
	for i, e := range file.Data.PodDeviceEntries {
		if e.PodUID == "" || e.ContainerName == "" || e.ResourceName == "" {
			return DeviceState{}, fmt.Errorf("PodDeviceEntries[%d]: want PodUID, ContainerName and ResourceName", i)
		}
		for _, id := range slices.Sorted(maps.Keys(e.DeviceIDs)) {
			unit := [2]string{e.ResourceName, id}
			if other, taken := owners[unit]; taken && other != e.PodUID {
				return DeviceState{}, fmt.Errorf("PodDeviceEntries[%d]: device %q of %s is given to the pods %s and %s",
					i, id, e.ResourceName, other, e.PodUID)
			}
			owners[unit] = e.PodUID
			containers := s.Pods[e.PodUID]
			devices := containers[e.ContainerName]
			put(&devices, e.ResourceName, append(devices[e.ResourceName],
				Device{Resource: e.ResourceName, ID: id, NUMAIDs: e.DeviceIDs[id]}))
			put(&containers, e.ContainerName, devices)
			s.Pods[e.PodUID] = containers
		}
	}
	return s, nil
}

// deviceIDs are the NUMA nodes of each device, nil for a device without.
type deviceIDs map[string][]int

// UnmarshalJSON reads ids by NUMA node, -1 for none, and the list of ids that kubelets before 1.20 wrote.
func (d *deviceIDs) UnmarshalJSON(text []byte) error {
	*d = deviceIDs{}
	if bytes.HasPrefix(text, []byte("[")) {
		text = slices.Concat([]byte(`{"-1":`), text, []byte("}"))
	}
	var byNode map[int][]string
	if err := json.Unmarshal(text, &byNode); err != nil {
		return err
	}
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		if node < -1 {
			return fmt.Errorf("DeviceIDs[%d]: want the id of a NUMA node, or -1", node)
		}
		for _, id := range byNode[node] {
			if node < 0 {
				(*d)[id] = nil // -1 comes first: what follows adds nodes
				continue
			}
			(*d)[id] = append((*d)[id], node)
		}
	}
	for id, nodes := range *d {
		(*d)[id] = slices.Compact(nodes)
	}
	return nil
}

// DevicesPerNUMA are ids by NUMA node, -1 for none. This type and the two below mirror the types of the same names in
// the kubelet's package devicemanager/checkpoint. The kubelet computes the checksum of its record from the Go text of
// these structures, so the names and the order of types and fields must be equal to the kubelet's.
type DevicesPerNUMA map[int64][]string

// PodDevicesEntry is what a container was given of a resource.
type PodDevicesEntry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     DevicesPerNUMA
	AllocResp     []byte
}

type checkpointData struct {
	PodDeviceEntries  []PodDevicesEntry
	RegisteredDevices map[string][]string
}

// kubeletTypes replaces this package's name by the kubelet's in the Go text of the types above. Ids of devices do not
// contain such text; if one did, checksumDoubt would report a record that is right.
var kubeletTypes = strings.NewReplacer("(host.", "(checkpoint.", "[]host.", "[]checkpoint.")

// checksumDoubt says what is wrong with the checksum of a record of the device manager; "" if it is right. Kubelets
// before 1.20 recorded lists of ids; the checksum of such a record cannot be computed.
func checksumDoubt(text []byte) string {
	var file struct {
		Data     checkpointData
		Checksum uint64
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return "its checksum cannot be computed: " + err.Error()
	}
	h := fnv.New32a()
	_, _ = kubeletTypes.WriteString(h, dump.ForHash(file.Data)) // a hash takes all that it is given
	if sum := uint64(h.Sum32()); sum != file.Checksum {
		return fmt.Sprintf("its checksum is %d, and %d is recorded", sum, file.Checksum)
	}
	return ""
}
