package v1alpha1

import (
	"cmp"
	gojson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"

	"github.com/tenon-project/tenon/api/annotation"
)

// Decode reads the JSON of a Device in every spelling: deviceType for type, resource and resouurces for resources,
// kubernetes.io/gpu-core for koordinator.sh/gpu-core. What is absent has its default. A device that cannot be read, or
// that breaks a rule of the API, is left out; Unread says why. Warnings name the unknown fields and the aliases that
// contradict a canonical name. An error is of a text that is not an object at all.
func Decode(text []byte) (*Device, []annotation.Warning, error) {
	if d := decodeWhole(text); d != nil {
		return d, nil, nil
	}
	return decodeParts(text)
}

// decodeWhole is decodeParts for an object in which nothing is odd, in a fraction of the time; nil for another one.
func decodeWhole(text []byte) *Device {
	var in struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta `json:"metadata"`
		Spec            struct {
			Devices []deviceInput `json:"devices"`
		} `json:"spec"`
		Status DeviceStatus `json:"status"`
	}
	if odd, err := json.UnmarshalStrict(text, &in); err != nil || len(odd) > 0 {
		return nil
	}
	d := &decoder{Device: &Device{TypeMeta: in.TypeMeta, ObjectMeta: in.Metadata, Status: in.Status}}
	for i := range in.Spec.Devices {
		one, ok := d.device("", &in.Spec.Devices[i])
		if !ok || slices.ContainsFunc(d.Spec.Devices, func(o DeviceInfo) bool {
			return o.Type == one.Type && o.ID == one.ID
		}) {
			return nil
		}
		d.Spec.Devices = append(d.Spec.Devices, one)
	}
	if len(d.warnings) > 0 {
		return nil
	}
	return d.Device
}

// decodeParts reads each part by itself, so that what is odd is named and hides nothing else.
func decodeParts(text []byte) (*Device, []annotation.Warning, error) {
	var in struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta `json:"metadata"`
		Spec            struct {
			Devices gojson.RawMessage `json:"devices"`
		} `json:"spec"`
		Status gojson.RawMessage `json:"status"`
	}
	warnings, err := annotation.Decode(string(text), &in)
	if err != nil {
		return nil, nil, err
	}
	d := &decoder{Device: &Device{TypeMeta: in.TypeMeta, ObjectMeta: in.Metadata}, warnings: warnings}
	var devices []gojson.RawMessage
	d.read("spec.devices", in.Spec.Devices, &devices)
	d.read("status", in.Status, &d.Status)
	at := map[[2]string]int{}
	for i, raw := range devices {
		path := fmt.Sprintf("spec.devices[%d]", i)
		var input deviceInput
		if !d.read(path, raw, &input) {
			continue
		}
		one, ok := d.device(path, &input)
		if !ok {
			continue
		}
		key := [2]string{one.Type, one.ID}
		if first, twice := at[key]; twice {
			d.unread(path+".id", fmt.Sprintf("%q is also the id of spec.devices[%d]: must be unique", one.ID, first))
			continue
		}
		at[key] = i
		d.Spec.Devices = append(d.Spec.Devices, one)
	}
	return d.Device, d.warnings, nil
}

type decoder struct {
	*Device
	warnings []annotation.Warning
}

func (d *decoder) unread(path, text string) {
	if d.Unread == nil {
		d.Unread = map[string]string{}
	}
	d.Unread[path] = text
}

// read reports whether a part could be read. One that is absent leaves the value as it is.
func (d *decoder) read(path string, text gojson.RawMessage, into any) bool {
	if len(text) == 0 {
		return true
	}
	warnings, err := annotation.Decode(string(text), into)
	for _, w := range warnings {
		d.warnings = append(d.warnings, annotation.Warning{Field: path + "." + w.Field, Text: w.Text})
	}
	if e := (*annotation.Error)(nil); errors.As(err, &e) {
		d.unread(strings.TrimSuffix(path+"."+e.Field, "."), e.Text)
	}
	return err == nil
}

// deviceInput is a DeviceInfo as it may be found.
type deviceInput struct {
	DeviceInfo
	DeviceType string                   `json:"deviceType"`
	Resources  annotation.DeviceAmounts `json:"resources"`
	Resource   annotation.DeviceAmounts `json:"resource"`
	Resouurces annotation.DeviceAmounts `json:"resouurces"`
	Topology   gojson.RawMessage        `json:"topology"`
}

func (d *decoder) device(path string, in *deviceInput) (DeviceInfo, bool) {
	out := in.DeviceInfo
	out.Type = cmp.Or(in.Type, in.DeviceType)
	if out.Type != in.DeviceType && in.DeviceType != "" {
		d.conflict(path, "type", "deviceType")
	}
	amounts := in.Resources
	for i, other := range []annotation.DeviceAmounts{in.Resource, in.Resouurces} {
		if amounts == nil {
			amounts = other
		} else if other != nil && !maps.EqualFunc(amounts, other, resource.Quantity.Equal) {
			d.conflict(path, "resources", []string{"resource", "resouurces"}[i])
		}
	}
	if out.Type == annotation.DeviceGPU && len(amounts) == 0 {
		whole := *resource.NewQuantity(100, resource.DecimalSI)
		amounts = annotation.DeviceAmounts{
			annotation.ResourceGPUCore: whole, annotation.ResourceGPUMemoryRatio: whole,
		}
	}
	out.Resources = amounts
	if place := (&DeviceTopology{SocketID: -1, NodeID: -1}); len(in.Topology) > 0 && string(in.Topology) != "null" {
		if !d.read(path+".topology", in.Topology, place) {
			return DeviceInfo{}, false
		}
		out.Topology = place
	}
	if field, rule := broken(out); rule != "" {
		d.unread(path+"."+field, rule)
		return DeviceInfo{}, false
	}
	return out, true
}

func (d *decoder) conflict(path, canonical, alias string) {
	d.warnings = append(d.warnings, annotation.Warning{
		Field: path + "." + alias, Text: fmt.Sprintf("conflicting values for %s and its alias %s", canonical, alias),
	})
}

// broken returns the first rule of the API that a device breaks, apart from those of its resources.
func broken(d DeviceInfo) (field, rule string) {
	switch t := d.Topology; {
	case d.Type == "":
		return "type", "must be gpu, rdma, fpga or another type"
	case d.ID == "":
		return "id", "must be a UUID or a PCI address"
	case t != nil && t.SocketID < -1:
		return "topology.socketID", fmt.Sprintf("must be -1 or more, is %d", t.SocketID)
	case t != nil && t.NodeID < -1:
		return "topology.nodeID", fmt.Sprintf("must be -1 or more, is %d", t.NodeID)
	}
	listed := map[string]bool{"": true}
	for _, group := range d.VFGroups {
		for _, vf := range group.VFs {
			if listed[vf.BusID] {
				return "vfGroups", fmt.Sprintf("the busID of each of vfs must be set, and unique: %.64q", vf.BusID)
			}
			listed[vf.BusID] = true
		}
	}
	return "", ""
}
