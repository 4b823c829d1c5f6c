// Package scarceresource keeps pods away from nodes with resources that they do not request, by the names of resources,
// as Koordinator's plugin of the same name does. DeviceShare does so by how much of the GPUs is unallocated.
package scarceresource
