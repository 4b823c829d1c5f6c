package checkpoint

import (
	"encoding/json"
	"fmt"
	"hash/fnv"

	"k8s.io/utils/dump"
)

// DevicesPerNUMA are ids by NUMA node, -1 for none.
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

// Doubt says what is wrong with the checksum of a record; "" where it is right. That of a record of kubelets before
// 1.20, with lists of ids, is of another structure and is not known.
func Doubt(text []byte) string {
	var file struct {
		Data     checkpointData
		Checksum uint64
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return "its checksum cannot be computed: " + err.Error()
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%v", dump.ForHash(file.Data))
	if is := uint64(h.Sum32()); is != file.Checksum {
		return fmt.Sprintf("its checksum is %d, and %d is recorded", is, file.Checksum)
	}
	return ""
}
