//go:build linux

package doctor

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/deviceplugin"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/agent/statedir"
	"github.com/tenon-project/tenon/internal/view"
)

// devices checks what shares and whole devices depend on; nothing on a machine without any.
func (m *machine) devices(all *findings) {
	cards, cardsErr := host.ReadCards(m.o.Root)
	dropped, dropErr := host.ReadDropped(m.o.Root)
	all.add("driver", m.driver(&cards, cardsErr))
	if len(cards.List) == 0 && len(dropped) == 0 && dropErr == nil {
		return
	}
	all.add("device-files", m.deviceFiles(&cards))
	all.add("drop-files", m.dropFiles(&cards, dropped, dropErr))
	all.add("device-cdi", m.deviceCDI(&cards))
	all.add("device-runtime", m.deviceRuntime(&cards))
	all.add("device-mode", m.deviceMode())
}

// driver finds GPUs of NVIDIA that no driver serves, and cards that cannot be read.
func (m *machine) driver(cards *host.Cards, err error) Finding {
	const pci = "sys/bus/pci/devices"
	if err != nil {
		return ok("", "%v", err).Because(Fail, "a container that is given the card is not created",
			"see the kernel's log: dmesg | grep -i -e nvrm -e nvidia -e amdgpu; reset or replace the card")
	}
	served, count := map[string]bool{}, map[host.CardKind]int{}
	for _, c := range cards.List {
		served[c.BusID] = true
		if c.Parent == "" {
			count[c.Kind]++
		}
	}
	for _, bus := range m.names(pci) {
		class := m.line(path.Join(pci, bus, "class"))
		gpu := strings.HasPrefix(class, "0x0302") || strings.HasPrefix(class, "0x0300")
		if gpu && m.line(path.Join(pci, bus, "vendor")) == "0x10de" && !served[bus] {
			return ok(below(path.Join(pci, bus)), "an NVIDIA GPU without its driver").Because(Warn,
				"no container can use it, and it must not be in a drop file",
				"install or load the driver (modprobe nvidia), or unbind the card from vfio-pci")
		}
	}
	if len(count) == 0 {
		return Finding{}
	}
	var parts []string
	for _, kind := range []host.CardKind{host.NVIDIA, host.AMD, host.RDMA, host.FPGA} {
		if n := count[kind]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, kind))
		}
	}
	for _, f := range cards.Common[host.NVIDIA] {
		if f.Path == "/dev/nvidia-uvm" {
			return ok("", "%s", strings.Join(parts, ", "))
		}
	}
	if count[host.NVIDIA] > 0 {
		return ok(below("proc/devices"), "%s, no nvidia-uvm", strings.Join(parts, ", ")).Because(Warn,
			"CUDA does not start in any container", "load the module: nvidia-modprobe -u -c=0, at every boot")
	}
	return ok("", "%s", strings.Join(parts, ", "))
}

// deviceFiles looks for the files that containers are given.
func (m *machine) deviceFiles(cards *host.Cards) Finding {
	var files []host.DeviceFile
	kinds := map[host.CardKind]bool{}
	for _, c := range cards.List {
		if files = append(files, c.Files...); !kinds[c.Kind] {
			kinds[c.Kind] = true
			files = append(files, cards.Common[c.Kind]...)
		}
	}
	if len(files) == 0 {
		return Finding{}
	}
	for _, f := range files {
		if !m.has(f.Path, fs.ModeDevice|fs.ModeCharDevice) {
			return ok(f.Path, "is not there").Because(Fail, "a container that is given the card is not created",
				"make it: nvidia-modprobe -c 0 -u for NVIDIA, udevadm trigger for others")
		}
	}
	return ok("/dev", "%s of %s", view.Count(len(files), "file"), view.Count(len(cards.List), "card"))
}

// dropFiles compares the devices that other programs report with those that drivers serve.
func (m *machine) dropFiles(cards *host.Cards, dropped []host.Dropped, err error) Finding {
	where := below(host.DropDirs()[0])
	if err != nil {
		return ok(where, "%s", strings.ReplaceAll(err.Error(), "\n", "; ")).Because(Warn,
			"what cannot be read is not in the Device object: no pod gets it",
			"correct the program that writes the file; tenon-agent probe prints what is read")
	}
	if len(dropped) == 0 {
		return ok(where, "no file lists a device").Because(Warn,
			"the agent publishes what it finds by itself: of GPUs without a driver library no memory is known",
			`write a drop file, see "Where Device objects come from" in the guide of devices`)
	}
	known := map[string]bool{}
	for _, c := range cards.List {
		known[c.ID] = true
	}
	for _, d := range dropped {
		served := d.Type == annotation.DeviceGPU || d.Type == annotation.DeviceRDMA
		if len(cards.List) > 0 && served && !known[d.UUID] {
			return ok(where, "%s %s is not a card of a driver", d.Type, d.UUID).Because(Fail,
				"a pod is placed on it, and its container is not created",
				"correct the UUID in the file, or remove the device from it")
		}
	}
	return ok(where, "%s", view.Count(len(dropped), "device"))
}

// deviceCDI compares the specification of GPUs with the cards.
func (m *machine) deviceCDI(cards *host.Cards) Finding {
	where := below(host.CDIDir)
	names, err := host.ReadCDI(m.o.Root, inject.CDIGPU)
	const less = "their containers get device files and variables alone"
	switch {
	case err != nil:
		return ok(where, "%v", err).Because(Warn, less, "delete the file: the agent or nvidia-ctk writes it again")
	case len(names) > 0 && m.runtime.lacksCDI:
		return ok(m.runtime.driverWhere, "cdi_spec_dirs has no /var/run/cdi").Because(Fail,
			"containers with devices are not created: the runtime cannot resolve what the agent names",
			"add /var/run/cdi to cdi_spec_dirs and restart "+m.runtime.name)
	}
	described := 0
	for _, c := range cards.List {
		switch {
		case c.Kind.Type() != annotation.DeviceGPU || c.ID == "" || len(c.Files) == 0:
		case slices.Contains(names, inject.CDIGPU+"="+c.ID):
			described++
		default:
			return ok(where, "%s is not in a specification of %s", c.ID, inject.CDIGPU).Because(Warn, less,
				"start the agent, which writes tenon.sh-gpu.json; one of your own, tenon.sh-gpu.yaml, takes its "+
					"place and is to be made again when cards change")
		}
	}
	if described == 0 {
		return Finding{}
	}
	return ok(where, "%s of %s", view.Count(described, "device"), inject.CDIGPU)
}

// deviceRuntime looks for a runtime that gives GPUs to containers which nothing was allocated to.
func (m *machine) deviceRuntime(cards *host.Cards) Finding {
	r := m.runtime
	nvidia := slices.ContainsFunc(cards.List, func(c host.Card) bool { return c.Kind == host.NVIDIA })
	if r.name == "" || r.err != nil || r.unseen != "" || !nvidia {
		return Finding{}
	}
	f := ok(r.driverWhere, "the default handler is %s", r.handler)
	file := host.CDIDir + "/" + host.CDIFile(inject.CDIGPU) + ".yaml"
	switch {
	case strings.Contains(r.handler, "nvidia"):
	case !r.nvidia && !m.has(file, 0) && !m.hasToolkitCDI(cards):
		return f.Because(Warn, "containers get the device files of GPUs without the libraries of the driver",
			"add the NVIDIA runtime as a handler with a RuntimeClass, or: nvidia-ctk cdi generate --vendor tenon.sh "+
				"--class gpu --device-name-strategy uuid --output "+below(file))
	default:
		return f
	}
	setting := `default_runtime_name = "runc"`
	if r.name == "cri-o" {
		setting = `default_runtime = "runc"`
	}
	return f.Because(Fail,
		"a container whose image requests GPUs sees all of them if it starts while the agent is down",
		"set "+setting+", restart "+r.name+", and give pods with GPUs the NVIDIA runtime by a RuntimeClass")
}

// hasToolkitCDI reports whether a specification of NVIDIA's toolkit brings the driver's libraries with every card.
func (m *machine) hasToolkitCDI(cards *host.Cards) bool {
	described, err := host.ReadToolkitCDI(m.o.Root)
	names := inject.ToolkitNames(cards, described)
	return err == nil && !slices.ContainsFunc(cards.List, func(c host.Card) bool {
		return c.Kind == host.NVIDIA && !slices.Contains(names, host.ToolkitCDI+"="+c.ID)
	})
}

// deviceMode looks for two that give out the same GPUs.
func (m *machine) deviceMode() Finding {
	var kept struct {
		Mode annotation.DeviceMode `json:"mode"`
	}
	where := below("var/lib/tenon-agent/device.json")
	if known, err := statedir.Of(m.o.Root).Load("device.json", &kept); err != nil || !known {
		return unknown(where, "the agent has not followed a Device object yet")
	}
	state, err := host.ReadDeviceState(m.o.Root)
	if err != nil {
		return unknown("", "%v", err)
	}
	for _, name := range []string{"nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu"} {
		theirs := slices.DeleteFunc(slices.Clone(state.Registered[name]), func(id string) bool {
			return strings.HasPrefix(id, deviceplugin.IDPrefix)
		})
		if n := len(theirs); n > 0 && kept.Mode == annotation.DeviceOwn {
			return ok(where, "%s, and the kubelet has %d %s of a device plugin", kept.Mode, n, name).Because(Warn,
				"pods of other schedulers get the same cards from the kubelet: their containers are not created",
				"remove the device plugin from the node, or set the annotation "+annotation.DeviceModeKey+" to Follow")
		}
	}
	return ok(where, "%s", kept.Mode)
}
