package annotation

import (
	gojson "encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// DevicesCheckpoints are the devices that a kubelet gave to pods that have none of a scheduler (DevicesCheckpointsKey).
type DevicesCheckpoints []DevicesCheckpoint

// DevicesCheckpoint is what one container got of one resource.
type DevicesCheckpoint struct {
	PodUID        types.UID `json:"podUID"`
	ContainerName string    `json:"containerName,omitempty"`
	ResourceName  string    `json:"resourceName,omitempty"`
	// DeviceIDs are as the device plugin names devices: a UUID, a UUID and the number of a replica, or an index.
	DeviceIDs []string `json:"deviceIDs"`
	// AllocResp is the plugin's answer to the kubelet, in base64. Nothing is read of it.
	AllocResp string `json:"allocResp,omitempty"`
}

// String returns the canonical JSON.
func (c DevicesCheckpoints) String() string {
	if c == nil {
		c = DevicesCheckpoints{}
	}
	return encode([]DevicesCheckpoint(c))
}

// checkpointInput is a DevicesCheckpoint as it may be found: with the ids by NUMA node, as kubelets write them.
type checkpointInput struct {
	DevicesCheckpoint
	DeviceIDs idsOrMap `json:"deviceIDs"`
}

type idsOrMap []string

func (ids *idsOrMap) UnmarshalJSON(text []byte) error {
	var list []string
	if gojson.Unmarshal(text, &list) != nil {
		var byNode map[int32][]string
		if err := gojson.Unmarshal(text, &byNode); err != nil {
			return fmt.Errorf("want a list of ids, or lists by NUMA node, got %.64s", gojson.RawMessage(text))
		}
		for _, node := range sorted(byNode) {
			list = append(list, byNode[node]...)
		}
	}
	*ids = nil
	listed := map[string]bool{}
	for _, id := range list {
		if id == "" {
			return fmt.Errorf("want ids that are not empty, got %.64s", gojson.RawMessage(text))
		}
		if !listed[id] {
			*ids = append(*ids, id)
		}
		listed[id] = true
	}
	return nil
}

// ParseDevicesCheckpoints reads DevicesCheckpoints; deviceIDs may be lists by NUMA node.
func ParseDevicesCheckpoints(text string) (DevicesCheckpoints, []Warning, error) {
	out := DevicesCheckpoints{}
	_, warnings, err := read(text, func(r *reader, in *[]checkpointInput) {
		for i, c := range *in {
			if c.PodUID == "" {
				r.refuse(fmt.Sprintf("[%d].podUID", i), *invalid("", "must be the UID of a pod"))
			}
			c.DevicesCheckpoint.DeviceIDs = append([]string{}, c.DeviceIDs...) // none is written as an empty list
			out = append(out, c.DevicesCheckpoint)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	return out, warnings, nil
}
