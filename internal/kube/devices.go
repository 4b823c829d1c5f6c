package kube

import (
	"encoding/json"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
)

// NewDeviceInformer returns an informer of Devices without their status, and of their metadata what topologies have and
// labels; what cannot be read of one is in Unread. A cluster without the resource looks like one without objects until
// it is installed.
func NewDeviceInformer(client rest.Interface) cache.SharedIndexInformer {
	var s sharedDevices
	return informerOf(client, []schema.GroupVersionResource{devicev1alpha1.Resource()}, "Device", s.read)
}

// sharedDevices keeps one copy of what devices of equal servers have in common: all but their ids.
type sharedDevices struct {
	models                                      // of the metadata; its lock guards all fields
	kinds  map[string]devicev1alpha1.DeviceInfo // devices without ids, by their JSON without ids
	listed int                                  // devices that the last object lists
	kind   []byte                               // what readDevices writes to
}

// read reads a Device.
func (s *sharedDevices) read(text *json.RawMessage) *devicev1alpha1.Device {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &devicev1alpha1.Device{}
	var list []byte
	plain := true // all devices are of known kinds, and nothing is odd
	v := values{read: *text}
	err := v.fields(func(name []byte) (err error) {
		var whole bool
		switch string(name) {
		case `"metadata"`:
			var labels []byte
			_, _, err = v.within(func() (err error) {
				labels, err = s.metadata(&d.ObjectMeta, &v)
				return err
			})
			if labels != nil {
				d.Labels = s.strings(labels)
			}
		case `"spec"`:
			_, whole, err = v.within(func() error {
				return v.fields(func(name []byte) (err error) {
					if string(name) != `"devices"` {
						_, err = v.next()
						return err
					}
					list, whole, err = v.within(func() (err error) {
						d.Spec.Devices, err = s.devices(&v)
						return err
					})
					plain = plain && whole
					return err
				})
			})
			plain = plain && whole
		default:
			_, err = v.next()
		}
		return err
	})
	if err == nil && plain {
		return d
	}
	whole, err := ReadDevice(*text)
	if err != nil {
		return &devicev1alpha1.Device{} // no server has an object whose metadata cannot be read
	}
	var kinds []string
	_ = s.readDevices(&values{read: list}, func(_ string, kind []byte) { kinds = append(kinds, string(kind)) })
	if len(whole.Unread) == 0 && len(whole.Spec.Devices) == len(kinds) {
		for i, kind := range kinds {
			one := whole.Spec.Devices[i]
			one.ID = ""
			remember(&s.kinds, kind, one)
		}
	}
	whole.ObjectMeta = d.ObjectMeta
	return whole
}

// errUnknown is returned for devices that are not all known or do not differ.
var errUnknown = errors.New("unknown devices")

// devices reads a list of devices, which must all be known and differ.
func (s *sharedDevices) devices(v *values) (all []devicev1alpha1.DeviceInfo, err error) {
	known := true
	all = make([]devicev1alpha1.DeviceInfo, 0, s.listed)
	err = s.readDevices(v, func(id string, kind []byte) {
		one, found := s.kinds[string(kind)]
		one.ID = id
		known = known && found && id != "" && !slices.ContainsFunc(all, func(o devicev1alpha1.DeviceInfo) bool {
			return o.Type == one.Type && o.ID == id
		})
		all = append(all, one)
	})
	if s.listed = len(all); len(all) < cap(all) {
		all = slices.Clone(all)
	}
	if err == nil && !known {
		err = errUnknown
	}
	return all, err
}

// readDevices has use read each device of a list: its id, and its JSON without the id, valid until use returns. It is
// not called within use.
func (s *sharedDevices) readDevices(v *values, use func(id string, kind []byte)) error {
	return v.members('[', ']', func() error {
		var id string
		kind := s.kind[:0]
		err := v.fields(func(name []byte) error {
			value, err := v.next()
			if string(name) == `"id"` {
				id = readString(value)
			} else {
				kind = append(append(kind, name...), value...)
			}
			return err
		})
		s.kind = kind
		use(id, kind)
		return err
	})
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
