//go:build linux

package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletfile"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Options are what Machine looks at.
type Options struct {
	Root host.Root
	// AskRuntime asks a CRI socket for the runtime's name and version; nil is not asked.
	AskRuntime func(socket string) (name, version string, err error)
	// AskAgent asks the agent whether it is ready; nil is not asked. The error is why it is not.
	AskAgent func() error
}

// Machine checks the machine below a Root.
func Machine(o Options) []Finding {
	m := &machine{o: o, procs: kubeletfile.Processes(o.Root.Path())}
	m.kubelet = m.readKubelet()
	m.runtime = m.readRuntime()
	var all findings
	all.add("kernel", m.kernel())
	all.add("cgroup", m.cgroups())
	all.add("runtime-version", m.runtimeVersion())
	all.add("nri", m.nri())
	if r := m.runtime; r.name != "" && r.err == nil && r.nriOn && r.unseen == "" {
		all.add("nri-validator", m.validator())
		all.add("nri-socket", m.nriSocket())
	}
	all.add("cgroup-driver", m.cgroupDriver())
	all.add("kubelet-config", m.kubeletConfig())
	all.add("cpu-manager", m.cpuPolicy())
	all.add("memory-manager", m.memoryPolicy())
	all.add("topology-manager", m.topologyPolicy())
	all.add("cpus-offline", m.offline())
	all.add("isolation", m.isolation()...)
	all.add("runtime-endpoint", m.endpoint())
	all.add("hook-servers", m.hookServers())
	all.add("cdi", m.cdi())
	m.devices(&all)
	all.add("writers", m.writers()...)
	all.add("agent", m.agent())
	all.add("files", m.files())
	return all
}

// isolation reports what the machine lacks to keep CPUs undisturbed.
func (m *machine) isolation() []Finding {
	read, err := host.Read(m.o.Root, runtime.GOARCH)
	if err != nil {
		return []Finding{unknown(below("sys/devices/system/cpu"), "the CPUs cannot be read: %v", err)}
	}
	q, err := host.Quiet(m.o.Root, read.Machine)
	facts := convert.Quiet(read.Machine, &q)
	found := isolation("", read.Machine, &facts)
	if err != nil {
		found = append(found, unknown("", "what disturbs CPUs cannot be read in full: %v", bare(err)))
	}
	return found
}

// files reports what an agent that is gone has left in folders. It is not known of a machine that is files alone.
func (m *machine) files() Finding {
	var there []string
	for _, name := range []string{"var/lib/tenon-agent", "run/tenon", "run/cdi/tenon.sh-*.json"} {
		if found, err := filepath.Glob(m.o.Root.Path(name)); err == nil && len(found) > 0 {
			there = append(there, below(name))
		}
	}
	if len(there) == 0 || len(m.agents()) > 0 || m.o.AskAgent == nil {
		return Finding{}
	}
	return ok("", "%s, and no agent runs", strings.Join(there, ", ")).Because(Warn,
		"a starting agent continues with it", "once Tenon is uninstalled: rm -rf "+strings.Join(there, " "))
}

// machine is what was read of a machine.
type machine struct {
	o       Options
	procs   []kubeletfile.Process
	kubelet kubeletFile
	runtime runtimeFiles
}

// read returns a file below the Root. Links that lead out of it are errors: a file of another machine is not valid.
func (m *machine) read(name string) ([]byte, error) { return kubeletfile.Read(m.o.Root.Path(), name) }

// line returns a file of one line; "" when it cannot be read.
func (m *machine) line(name string) string {
	text, err := m.read(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// has reports whether something of a kind is below the Root.
func (m *machine) has(name string, kind fs.FileMode) bool {
	info, err := os.Stat(m.o.Root.Path(name))
	return err == nil && info.Mode().Type() == kind
}

// names lists a folder, sorted; none if the folder does not exist.
func (m *machine) names(dir string) []string { return kubeletfile.Names(m.o.Root.Path(), dir) }

func (m *machine) agents() []kubeletfile.Process {
	var out []kubeletfile.Process
	for _, p := range m.procs {
		if p.Name() == "tenon-agent" && slices.Contains(p.Args, "run") && !p.Nested {
			out = append(out, p)
		}
	}
	return out
}

// running returns the program of a name that serves the machine itself.
func (m *machine) running(name string) (kubeletfile.Process, bool) {
	for _, p := range m.procs {
		if p.Name() == name && !p.Nested {
			return p, true
		}
	}
	return kubeletfile.Process{}, false
}

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// below writes a path as the machine has it.
func below(name string) string { return path.Clean("/" + name) }
