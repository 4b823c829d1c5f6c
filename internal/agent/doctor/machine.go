//go:build linux

package doctor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/agent/host"
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
	m := &machine{o: o}
	m.processes()
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
	all.add("runtime-endpoint", m.endpoint())
	all.add("hook-servers", m.hookServers())
	all.add("cdi", m.cdi())
	m.devices(&all)
	all.add("writers", m.writers()...)
	all.add("agent", m.agent())
	all.add("files", m.files())
	return all
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
		"an agent that starts goes on with it", "once Tenon is uninstalled: rm -rf "+strings.Join(there, " "))
}

// machine is what was read of a machine.
type machine struct {
	o       Options
	procs   []process
	kubelet kubeletFile
	runtime runtimeFiles
}

const maxFile = 4 << 20

// read returns a file below the Root. Links that lead out of it are errors: a file of another machine is not valid.
func (m *machine) read(name string) ([]byte, error) {
	root, err := os.OpenRoot(m.o.Root.Path())
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // it was only read
	f, err := root.Open(strings.TrimPrefix(path.Clean("/"+name), "/"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("is larger than %d bytes", maxFile)
	}
	return text, err
}

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
func (m *machine) names(dir string) []string {
	entries, err := os.ReadDir(m.o.Root.Path(dir))
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

type process struct {
	pid  int
	args []string
	// nested: it runs in a PID namespace below the machine's, as the runtime and the kubelet of a node in a container
	// do. The agent's pod shares the machine's.
	nested bool
}

func (p process) name() string { return path.Base(p.args[0]) }

// flag returns the value of --name VALUE or --name=VALUE, also with one dash, and whether it is said at all. As with
// the programs themselves the last one counts.
func (p process) flag(names ...string) (value string, said bool) {
	for i, arg := range p.args {
		key, text, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || !slices.Contains(names, key) {
			continue
		}
		if !joined && i+1 < len(p.args) {
			text = p.args[i+1]
		}
		value, said = text, true
	}
	return value, said
}

func (m *machine) processes() {
	for _, name := range m.names("proc") {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		text, err := m.read(path.Join("proc", name, "cmdline"))
		if err != nil || len(text) == 0 {
			continue
		}
		args := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
		if args[0] != "" {
			m.procs = append(m.procs, process{pid, args, m.nested(name)})
		}
	}
	slices.SortFunc(m.procs, func(a, b process) int { return a.pid - b.pid })
}

// nested reports whether a process has a number in more than one PID namespace.
func (m *machine) nested(pid string) bool {
	status, err := m.read(path.Join("proc", pid, "status"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return len(strings.Fields(numbers)) > 1
		}
	}
	return false
}

func (m *machine) agents() []process {
	var out []process
	for _, p := range m.procs {
		if p.name() == "tenon-agent" && slices.Contains(p.args, "run") && !p.nested {
			out = append(out, p)
		}
	}
	return out
}

// running returns the program of a name that serves the machine itself.
func (m *machine) running(name string) (process, bool) {
	for _, p := range m.procs {
		if p.name() == name && !p.nested {
			return p, true
		}
	}
	return process{}, false
}

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// below writes a path as the machine has it.
func below(name string) string { return path.Clean("/" + name) }
