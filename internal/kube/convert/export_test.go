package convert

import devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"

// Servers returns the number of models of servers that are kept.
func (k *Known) Servers() (n int) {
	for _, list := range k.servers {
		n += len(list)
	}
	return n
}

// Alike reports whether two devices differ in nothing but the IDs of GPUs.
func (k *Known) Alike(a, b devicev1alpha1.DeviceInfo) bool { return k.alike(a, b) }
