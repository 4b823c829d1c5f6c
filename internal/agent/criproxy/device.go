package criproxy

import (
	"slices"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/api/runtime/v1alpha1"
)

// describeDevices adds what a container is about to see of devices to a question.
func describeDevices(to *v1alpha1.ContainerResourceHookRequest, c *cri.ContainerConfig) {
	to.ContainerEnvs = envsOf(c.GetEnvs())
	to.ContainerPrivileged = c.GetLinux().GetSecurityContext().GetPrivileged()
	for _, d := range c.GetDevices() {
		to.ContainerDevices = append(to.ContainerDevices, &v1alpha1.ContainerDevice{
			ContainerPath: d.GetContainerPath(), HostPath: d.GetHostPath(), Permissions: d.GetPermissions(),
		})
	}
	for _, d := range c.GetCDIDevices() {
		to.ContainerCdiDevices = append(to.ContainerCdiDevices, d.GetName())
	}
}

// mergeDevices sets what a hook server answered of a container's variables, device files, CDI devices and mounts.
func mergeDevices(into *cri.ContainerConfig, answer *v1alpha1.ContainerResourceHookResponse) bool {
	changed := mergeEnvs(&into.Envs, answer.GetContainerEnvs())
	for _, d := range answer.GetContainerDevices() {
		changed = true
		into.Devices = append(slices.DeleteFunc(into.Devices,
			func(old *cri.Device) bool { return old.GetContainerPath() == d.GetContainerPath() }),
			&cri.Device{
				ContainerPath: d.GetContainerPath(), HostPath: d.GetHostPath(), Permissions: d.GetPermissions(),
			})
	}
	for _, name := range answer.GetContainerCdiDevices() {
		if !slices.ContainsFunc(into.CDIDevices, func(old *cri.CDIDevice) bool { return old.GetName() == name }) {
			changed = true
			into.CDIDevices = append(into.CDIDevices, &cri.CDIDevice{Name: name})
		}
	}
	for _, m := range answer.GetContainerMounts() {
		changed = true
		into.Mounts = append(slices.DeleteFunc(into.Mounts,
			func(old *cri.Mount) bool { return old.GetContainerPath() == m.GetContainerPath() }),
			&cri.Mount{ContainerPath: m.GetContainerPath(), HostPath: m.GetHostPath(), Readonly: m.GetReadonly()})
	}
	return changed
}
