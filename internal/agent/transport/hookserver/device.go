package hookserver

import (
	"cmp"
	"fmt"

	"github.com/tenon-project/tenon/api/runtime/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
)

// sightOf is what a container is to be created with. Of a variable the protocol has one value, and the proxy replaces
// them all.
func sightOf(r *containerRequest) inject.Sight {
	s := inject.Sight{CDI: r.GetContainerCdiDevices(), Privileged: r.GetContainerPrivileged()}
	for name, value := range r.GetContainerEnvs() {
		s.Env = append(s.Env, name+"="+value)
	}
	for _, d := range r.GetContainerDevices() {
		s.Files = append(s.Files, inject.File{
			DeviceFile: host.DeviceFile{Path: d.GetContainerPath()}, HostPath: d.GetHostPath(),
		})
	}
	return s
}

// sayable returns an error where an answer cannot be said by CRI, in whose words the proxy speaks.
func sayable(d *inject.Answer) error {
	for _, m := range d.Mounts {
		if m.InMemory {
			return fmt.Errorf("it needs a file system of memory at %s, which a runtime gives by NRI and not "+
				"behind the proxy", m.Path)
		}
	}
	return nil
}

// setDevices puts what a container sees of devices into an answer.
func setDevices(to *containerAnswer, d inject.Answer) {
	to.ContainerEnvs, to.ContainerCdiDevices = d.Env, d.CDI
	for _, f := range d.Files {
		to.ContainerDevices = append(to.ContainerDevices,
			&v1alpha1.ContainerDevice{ContainerPath: f.Path, HostPath: f.Path, Permissions: "rw"})
	}
	for _, m := range d.Mounts {
		to.ContainerMounts = append(to.ContainerMounts, &v1alpha1.ContainerMount{
			ContainerPath: m.Path, HostPath: cmp.Or(m.Source, m.Path), Readonly: m.ReadOnly,
		})
	}
}
