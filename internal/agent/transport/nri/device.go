package nri

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
)

// fileMode is that of device files in containers: who may open them is decided by who has them.
const fileMode = 0o666

// setDevices puts what a container sees of devices into an adjustment. A variable replaces that of image and pod.
func setDevices(to *api.ContainerAdjustment, d inject.Answer) {
	for _, name := range slices.Sorted(maps.Keys(d.Env)) {
		to.AddEnv(name, d.Env[name])
	}
	for _, f := range d.Files {
		to.AddDevice(&api.LinuxDevice{
			Path: f.Path, Type: "c", Major: f.Major, Minor: f.Minor, FileMode: api.FileMode(uint32(fileMode)),
		})
	}
	for _, name := range d.CDI {
		to.AddCDIDevice(&api.CDIDevice{Name: name})
	}
	for _, m := range d.Mounts {
		mount := &api.Mount{
			Source: cmp.Or(m.Source, m.Path), Destination: m.Path, Type: "bind", Options: []string{"rbind", "rw"},
		}
		if m.ReadOnly {
			mount.Options[1] = "ro"
		}
		if m.InMemory {
			mount.Source, mount.Type = "tmpfs", "tmpfs"
			mount.Options = []string{"nosuid", "nodev", "noexec", "mode=1777", "size=16m"}
		}
		to.AddMount(mount)
	}
}

func sightOf(c *api.Container) inject.Sight {
	return inject.Sight{
		Env: c.GetEnv(), Files: filesOf(c.GetLinux().GetDevices()), CDI: namesOf(c.GetCDIDevices()),
		Privileged: slices.ContainsFunc(c.GetLinux().GetResources().GetDevices(), allowsAll),
	}
}

// allowsAll reports whether a rule lets a container use every device.
func allowsAll(r *api.LinuxDeviceCgroup) bool {
	return r.GetAllow() && (r.GetType() == "" || r.GetType() == "a") && r.GetMajor() == nil && r.GetMinor() == nil &&
		strings.Contains(r.GetAccess(), "r")
}

func filesOf(devices []*api.LinuxDevice) (files []inject.File) {
	for _, d := range devices {
		files = append(files, inject.File{
			DeviceFile: host.DeviceFile{Path: d.GetPath(), Major: d.GetMajor(), Minor: d.GetMinor()},
		})
	}
	return files
}

func namesOf(devices []*api.CDIDevice) (names []string) {
	for _, d := range devices {
		names = append(names, d.GetName())
	}
	return names
}

// adjusted is what a container sees once the runtime has adjusted it: of a variable that is set several times, the
// first one is replaced, and no device file is removed.
func adjusted(s inject.Sight, a *api.ContainerAdjustment) inject.Sight {
	s.Env, s.Files = slices.Clone(s.Env), slices.Clone(s.Files)
	for _, e := range a.GetEnv() {
		name, removed := api.IsMarkedForRemoval(e.GetKey())
		if i := slices.IndexFunc(s.Env, func(x string) bool { return strings.HasPrefix(x, name+"=") }); i >= 0 {
			s.Env = slices.Delete(s.Env, i, i+1)
		}
		if !removed {
			s.Env = append(s.Env, name+"="+e.GetValue())
		}
	}
	for _, d := range a.GetLinux().GetDevices() {
		s.Files = slices.DeleteFunc(s.Files, func(f inject.File) bool { return f.Path == d.GetPath() })
	}
	s.Files = append(s.Files, filesOf(a.GetLinux().GetDevices())...)
	s.CDI = slices.Concat(s.CDI, namesOf(a.GetCDIDevices()))
	return s
}
