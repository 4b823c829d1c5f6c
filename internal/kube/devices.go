package kube

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
)

// NewDeviceInformer returns an informer of Devices without their status; what cannot be read of one is in Unread. A
// cluster without the resource looks like one without objects until it is installed.
func NewDeviceInformer(client rest.Interface) cache.SharedIndexInformer {
	return informerOf(client, []schema.GroupVersionResource{devicev1alpha1.Resource()}, "Device",
		readDevice)
}

func readDevice(text *json.RawMessage) *devicev1alpha1.Device {
	d, err := ReadDevice(*text)
	if err != nil {
		return &devicev1alpha1.Device{} // no server has an object whose metadata cannot be read
	}
	return d
}

// ReadDevice reads a Device without its status; what cannot be read of it is in Unread.
func ReadDevice(text []byte) (*devicev1alpha1.Device, error) {
	d, _, err := devicev1alpha1.Decode(text)
	if err != nil {
		return nil, err
	}
	d.ManagedFields, d.Status = nil, devicev1alpha1.DeviceStatus{}
	delete(d.Unread, "status")
	return d, nil
}
