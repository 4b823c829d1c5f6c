//go:build linux

package doctor

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/deviceplugin"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/agent/kubeletfile"
	"github.com/tenon-project/tenon/internal/view"
)

// GPUs checks what shares of NVIDIA's cards, and whole ones, depend on.
func GPUs(o Options) []Finding {
	m := &machine{o: o, procs: kubeletfile.Processes(o.Root.Path())}
	m.kubelet, m.runtime = m.readKubelet(), m.readRuntime()
	cards, err := host.ReadCards(o.Root)
	cards.List = slices.DeleteFunc(cards.List, func(c host.Card) bool { return c.Kind != host.NVIDIA })
	var all findings
	driver := m.driver(&cards, err)
	if driver.Status == OK {
		driver.Found = strings.TrimSpace(driver.Found + ", driver " + m.driverVersion())
	}
	all.add("driver", driver)
	if len(cards.List) == 0 {
		if driver.Status == "" {
			all.add("driver", unknown(below("proc/driver/nvidia"), "no card of NVIDIA with a driver"))
		}
		return all
	}
	dropped, dropErr := host.ReadDropped(o.Root)
	all.add("device-files", m.deviceFiles(&cards))
	all.add("drop-files", m.dropFiles(&cards, dropped, dropErr))
	all.add("compute-mode", computeMode(dropped, m.mpsDaemon() > 0))
	all.add("mig", m.mig(dropped))
	all.add("mps", m.mps())
	all.add("toolkit", m.toolkit())
	all.add("toolkit-cdi", m.toolkitCDI(&cards))
	all.add("device-cdi", m.deviceCDI(&cards))
	all.add("device-runtime", m.deviceRuntime(&cards))
	all.add("nri", m.nri())
	if r := m.runtime; r.name != "" && r.err == nil && r.nriOn && r.unseen == "" {
		all.add("nri-validator", m.validator())
		all.add("nri-socket", m.nriSocket())
	}
	all.add("device-plugin", m.devicePlugin())
	all.add("device-mode", m.deviceMode())
	return all
}

// driverVersion is what the driver in the kernel says of itself.
func (m *machine) driverVersion() string {
	line, _, _ := strings.Cut(m.line("proc/driver/nvidia/version"), "\n")
	_, after, _ := strings.Cut(line, "Kernel Module")
	for _, word := range strings.Fields(after) {
		if word[0] >= '0' && word[0] <= '9' {
			return word
		}
	}
	return "of an unknown version"
}

// computeMode finds cards that a second program cannot use.
func computeMode(dropped []host.Dropped, hasDaemon bool) Finding {
	var known, bad []string
	for _, d := range dropped {
		if d.ComputeMode == "" {
			continue
		}
		if known = append(known, d.ComputeMode); d.ComputeMode != host.ComputeDefault {
			bad = append(bad, d.UUID+" is in "+d.ComputeMode)
		}
	}
	switch {
	case len(known) == 0:
		return unknown(below(host.DropDirs()[0]), "no file says it: install with --set nvidia.enabled=true")
	case len(bad) > 0 && hasDaemon:
		return ok("", "%s", strings.Join(bad, ", ")).Because(Warn,
			"programs that do not use the MPS daemon of the card cannot share it", "keep it where that is meant")
	case len(bad) > 0:
		return ok("", "%s", strings.Join(bad, ", ")).Because(Fail,
			"the second program that opens the card fails, so no two pods can share it",
			"set the mode back: nvidia-smi -c DEFAULT")
	}
	return ok("", "%s", host.ComputeDefault)
}

// mig compares the GPU instances that the driver has with the MIG devices that are reported.
func (m *machine) mig(dropped []host.Dropped) Finding {
	const capabilities = "proc/driver/nvidia/capabilities"
	instances, reported := 0, 0
	for _, gpu := range m.names(capabilities) {
		for _, name := range m.names(path.Join(capabilities, gpu, "mig")) {
			if strings.HasPrefix(name, "gi") {
				instances++
			}
		}
	}
	for _, d := range dropped {
		if d.Labels[annotation.MIGParentLabel] != "" {
			reported++
		}
		if d.Status != nil && d.Status.ErrCode == host.NoMIGDevice {
			return ok("", "%s is in MIG mode without a MIG device", d.UUID).Because(Warn,
				"no pod can use the card",
				"create MIG devices, as with nvidia-smi mig -cgi PROFILE -C, or end the mode: nvidia-smi -mig 0")
		}
	}
	f := ok(below(capabilities), "%d GPU instances, %d MIG devices are reported", instances, reported)
	if instances > 0 && reported == 0 {
		return f.Because(Warn, "the agent does not see them, and allocates their cards as if they were whole",
			"report them: install with --set nvidia.enabled=true")
	}
	if instances == 0 {
		return ok(below(capabilities), "no MIG device")
	}
	return f
}

// mpsDaemon returns the process of NVIDIA's daemon that lets programs share a card at the same time; 0 for none. It may
// run in a container, as the device plugin's does.
func (m *machine) mpsDaemon() (pid int) {
	for _, p := range m.procs {
		if p.Name() == inject.MPSProgram {
			return p.PID
		}
	}
	return 0
}

func (m *machine) mps() Finding {
	pid := m.mpsDaemon()
	if pid == 0 {
		return ok("", "no control daemon runs")
	}
	const fault = "programs that use it share one fault domain: an error of one ends all of them"
	where := fmt.Sprintf("process %d", pid)
	if !inject.HasMPS(m.o.Root) {
		f := ok(where, "a control daemon runs, its pipes elsewhere than in %s/pipe", inject.MPSFolder)
		return f.Because(Warn, fault+"; containers of pods with the isolation mps are not created",
			"start it as docs/guide/nvidia.md does")
	}
	return ok(where, "a control daemon runs, with its pipes in %s/pipe", inject.MPSFolder).Because(Warn, fault,
		"keep it where that is meant; else: echo quit | nvidia-cuda-mps-control")
}

// toolkitFolders are where the programs of NVIDIA's container toolkit are: of a package, and of the GPU Operator.
var toolkitFolders = []string{"usr/bin", "usr/local/bin", "usr/local/nvidia/toolkit", "opt/nvidia/toolkit"}

// toolkit finds the programs that bring the driver's libraries into containers.
func (m *machine) toolkit() Finding {
	for _, dir := range toolkitFolders {
		for _, program := range []string{"nvidia-ctk", "nvidia-cdi-hook"} {
			if m.has(path.Join(dir, program), 0) {
				return ok(below(path.Join(dir, program)), "NVIDIA's container toolkit")
			}
		}
	}
	return ok(below(toolkitFolders[0]), "NVIDIA's container toolkit is not there").Because(Warn,
		"containers get the device files of a card without the libraries of its driver",
		"install the package nvidia-container-toolkit 1.12 or newer")
}

// toolkitCDI looks for the toolkit's specification of the cards.
func (m *machine) toolkitCDI(cards *host.Cards) Finding {
	const generate = "nvidia-ctk cdi generate --device-name-strategy=uuid --output=/var/run/cdi/nvidia.yaml"
	const less = "the agent's own specification counts, which has device files and no libraries"
	described, err := host.ReadToolkitCDI(m.o.Root)
	switch {
	case err != nil:
		return ok("", "%s", strings.ReplaceAll(err.Error(), "\n", "; ")).Because(Warn, less,
			"write it again: "+generate)
	case len(described) == 0:
		return ok("/etc/cdi, /run/cdi", "no specification of %s", host.ToolkitCDI).Because(Warn, less, generate)
	}
	names := inject.ToolkitNames(cards, described)
	for _, c := range cards.List {
		if c.ID != "" && !slices.Contains(names, host.ToolkitCDI+"="+c.ID) {
			return ok("", "%s is not in a specification of %s, or with the files of another card", c.ID,
				host.ToolkitCDI).Because(Warn, less, "write it with UUIDs, and again when cards change: "+generate)
		}
	}
	return ok("/etc/cdi, /run/cdi", "%s of %s", view.Count(len(names), "device"), host.ToolkitCDI)
}

// devicePlugin reports what the kubelet has of a device plugin for NVIDIA's cards.
func (m *machine) devicePlugin() Finding {
	state, err := host.ReadDeviceState(m.o.Root)
	if err != nil {
		return unknown("", "%v", err)
	}
	var found []string
	shared := ""
	for _, name := range []string{"nvidia.com/gpu", "nvidia.com/gpu.shared"} {
		ids := slices.DeleteFunc(slices.Clone(state.Registered[name]), func(id string) bool {
			return strings.HasPrefix(id, deviceplugin.IDPrefix)
		})
		if len(ids) > 0 {
			found = append(found, fmt.Sprintf("%d %s", len(ids), name))
		}
		if slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(id, "::") }) {
			shared = name
		}
	}
	switch {
	case len(found) == 0:
		return ok("", "none allocates NVIDIA's cards")
	case shared != "":
		return ok("", "%s", strings.Join(found, ", ")).Because(Warn,
			"it gives parts of cards to pods without limits: each part holds the whole card for Tenon",
			"remove sharing from its configuration, or keep the node in mode Follow")
	}
	return ok("", "%s", strings.Join(found, ", "))
}
