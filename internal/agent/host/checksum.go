package host

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"

	"k8s.io/utils/dump"
)

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
