//go:build linux

package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/tenon-project/tenon/internal/agent/host"
)

type runtimeFiles struct {
	name  string // "containerd" or "cri-o"; "" where none is found
	files []string
	err   error
	// unseen is the file that the runtime was started with, when it is not below the Root.
	unseen string
	// version is what the runtime answers; asked why it does not.
	version string
	asked   error

	socket      string // where the files say that the runtime listens; "" for its default
	format      int64  // of containerd's file
	nriOn       bool
	nriSet      bool // the files say whether; else it depends on the release
	nriWhere    string
	nriSocket   string
	validator   bool
	timeout     string
	closed      bool // plugins may not connect from outside
	required    []string
	strayNRI    string // a table with settings of NRI that the runtime does not read
	driver      host.Driver
	driverWhere string
	// handler is the default one, and its program where the files name one.
	handler  string
	nvidia   bool // one of the handlers is NVIDIA's
	lacksCDI bool // it does not read the folder in which the agent describes devices
}

// readHandlers reads which handlers there are, and which one containers get whose pod names none.
func (r *runtimeFiles) readHandlers(all table, standard string, program func(handler string) string) {
	r.handler = standard
	if base := path.Base(program(standard)); base != "." && base != standard {
		r.handler += ", " + base
	}
	for name := range all {
		r.nvidia = r.nvidia || strings.Contains(name+program(name), "nvidia")
	}
}

func (r *runtimeFiles) driverSetting(d host.Driver) string {
	if r.name == "cri-o" {
		return fmt.Sprintf("cgroup_manager = %q", d)
	}
	return fmt.Sprintf("SystemdCgroup = %v", d == host.Systemd)
}

// reportsDriver reports whether kubelets can query this runtime for its cgroup driver.
func (r *runtimeFiles) reportsDriver() bool {
	old, readable := isBefore(r.version, map[string]string{"containerd": "2.0", "cri-o": "1.28"}[r.name])
	return readable && !old
}

const (
	containerdFile = "etc/containerd/config.toml"
	crioFile       = "etc/crio/crio.conf"
	crioDir        = "etc/crio/crio.conf.d"
	nriTable       = "io.containerd.nri.v1.nri"
	nriSocket      = "/var/run/nri/nri.sock"
)

func (r *runtimeFiles) sockets() []string {
	switch {
	case r.socket != "":
		return []string{r.socket}
	case r.name == "containerd":
		return []string{"run/containerd/containerd.sock"}
	case r.name == "cri-o":
		return []string{"run/crio/crio.sock", "var/run/crio/crio.sock"}
	}
	return nil
}

func (m *machine) readRuntime() runtimeFiles {
	var r runtimeFiles
	p, containerd := m.running("containerd")
	_, crio := m.running("crio")
	file := containerdFile
	if named, _ := p.Flag("config", "c"); containerd && named != "" {
		file = named
	}
	switch _, err := m.read(file); {
	case containerd || !crio && err == nil:
		r = m.readContainerd(file)
	case crio || len(m.names(crioDir)) > 0 || m.has(crioFile, 0):
		r = m.readCRIO()
	default:
		return r
	}
	m.askRuntime(&r)
	if r.name == "containerd" && !r.nriSet { // off in 1.x, on from 2.0 on
		old, readable := isBefore(r.version, "2.0")
		r.nriOn = !old && (readable || r.format >= 3)
	}
	return r
}

func (m *machine) askRuntime(r *runtimeFiles) {
	r.asked = errors.New("no answer")
	if m.o.AskRuntime == nil {
		return
	}
	for _, socket := range r.sockets() {
		if !m.has(socket, fs.ModeSocket) {
			continue
		}
		name, version, err := m.o.AskRuntime(m.o.Root.Path(socket))
		if err != nil {
			r.asked = err
			continue
		}
		r.version, r.asked = version, nil
		if name != "" && !strings.EqualFold(strings.ReplaceAll(name, "-", ""), strings.ReplaceAll(r.name, "-", "")) {
			r.asked = fmt.Errorf("%s answers on the socket of %s", name, r.name)
		}
		return
	}
}

// table is a part of a TOML document.
type table map[string]any

func (t table) at(keys ...string) table {
	for _, key := range keys {
		next, _ := t[key].(map[string]any)
		t = next
	}
	return t
}

func (t table) text(key string) string { s, _ := t[key].(string); return s }

// merge puts the tables of one document over another's, as the runtimes do.
func (t table) merge(over table) {
	for key, value := range over {
		mine, ok := t[key].(map[string]any)
		theirs, also := value.(map[string]any)
		if ok && also {
			table(mine).merge(theirs)
			continue
		}
		t[key] = value
	}
}

// parseTOML reads one file; its error names file, line and column.
func (m *machine) parseTOML(name string) (table, error) {
	text, err := m.read(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", below(name), bare(err))
	}
	t := table{}
	if err := toml.Unmarshal(text, &t); err != nil {
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, column := at.Position()
			return nil, fmt.Errorf("%s:%d:%d: %s", below(name), line, column, strings.TrimPrefix(at.Error(), "toml: "))
		}
		return nil, fmt.Errorf("%s: %w", below(name), err)
	}
	return t, nil
}

func (m *machine) readContainerd(file string) runtimeFiles {
	r := runtimeFiles{name: "containerd", format: 3, nriSocket: nriSocket, timeout: "2s", handler: "runc"}
	all := table{}
	if _, err := m.read(file); missing(err) {
		r.nriWhere = "the defaults: there is no " + below(file)
		if file != containerdFile {
			r.unseen = below(file)
		} else {
			r.driver, r.driverWhere = host.Cgroupfs, below(file)
		}
		return r
	}
	r.err = m.gather(file, all, &r.files)
	if r.err != nil {
		return r
	}
	var set bool
	if r.format, set = all["version"].(int64); !set {
		r.format = 1
	}
	r.socket = all.at("grpc").text("address")
	plugins := all.at("plugins")
	nri := plugins.at(nriTable)
	off, said := nri["disable"].(bool)
	r.nriOn, r.nriSet = !off, said
	r.nriWhere = fmt.Sprintf("plugins.%q of %s", nriTable, strings.Join(r.files, ", "))
	r.readNRI(nri, "socket_path", "plugin_request_timeout", "disable_connections", "enable", "required_plugins")
	for _, key := range []string{"nri", "io.containerd.nri.v1", "io.containerd.nri.v1.nri.default_validator"} {
		if _, ok := plugins[key]; ok {
			r.strayNRI = fmt.Sprintf("plugins.%q", key)
		}
	}
	cri := plugins.at("io.containerd.cri.v1.runtime")
	if r.format < 3 {
		cri = plugins.at("io.containerd.grpc.v1.cri")
	}
	r.driver, r.driverWhere = host.Cgroupfs, strings.Join(r.files, ", ")
	handlers := cri.at("containerd", "runtimes")
	if on, _ := handlers.at("runc", "options")["SystemdCgroup"].(bool); on {
		r.driver = host.Systemd
	}
	r.lacksCDI = lacksCDI(cri)
	r.readHandlers(handlers, cmp.Or(cri.at("containerd").text("default_runtime_name"), "runc"),
		func(name string) string { return handlers.at(name, "options").text("BinaryName") })
	return r
}

// readNRI reads the settings of NRI, which each runtime spells in its own way.
func (r *runtimeFiles) readNRI(nri table, socket, timeout, closed, validator, required string) {
	r.nriSocket = cmp.Or(nri.text(socket), r.nriSocket)
	r.timeout = cmp.Or(nri.text(timeout), r.timeout)
	r.closed, _ = nri[closed].(bool)
	checks := nri.at("default_validator")
	r.validator, _ = checks[validator].(bool)
	r.required = words(checks[required])
}

// lacksCDI reports whether a setting leaves out the folder that runtimes read as they are.
func lacksCDI(t table) bool {
	dirs, set := t["cdi_spec_dirs"].([]any)
	return set && !slices.ContainsFunc(dirs, func(d any) bool { return d == "/var/run/cdi" || d == "/run/cdi" })
}

func words(list any) []string {
	var out []string
	items, _ := list.([]any)
	for _, item := range items {
		if s, ok := item.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// gather reads a file and those that it imports, each once; later ones count.
func (m *machine) gather(file string, all table, read *[]string) error {
	if slices.Contains(*read, below(file)) {
		return nil
	}
	t, err := m.parseTOML(file)
	if err != nil {
		return err
	}
	*read = append(*read, below(file))
	all.merge(t)
	for _, pattern := range words(t["imports"]) {
		if !path.IsAbs(pattern) {
			pattern = path.Join(path.Dir(below(file)), pattern)
		}
		found, err := filepath.Glob(m.o.Root.Path(pattern))
		if err != nil {
			return fmt.Errorf("%s: imports: %q: %w", below(file), pattern, err)
		}
		slices.Sort(found)
		for _, name := range found {
			relative, err := filepath.Rel(m.o.Root.Path(), name)
			if err != nil {
				return err
			}
			if err := m.gather(relative, all, read); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *machine) readCRIO() runtimeFiles {
	r := runtimeFiles{
		name: "cri-o", nriOn: true, nriSocket: nriSocket, timeout: "2s",
		driver: host.Systemd, driverWhere: below(crioFile),
	}
	all := table{}
	files := []string{crioFile}
	for _, name := range m.names(crioDir) {
		files = append(files, path.Join(crioDir, name))
	}
	for _, file := range files {
		if err := m.gather(file, all, &r.files); err != nil && !missing(err) {
			r.err = err
			return r
		}
	}
	r.driverWhere = cmp.Or(strings.Join(r.files, ", "), r.driverWhere)
	r.socket = all.at("crio", "api").text("listen")
	nri := all.at("crio", "nri")
	r.nriWhere = "[crio.nri] of " + r.driverWhere
	on, set := nri["enable_nri"].(bool)
	r.nriOn = on || !set
	r.readNRI(nri, "nri_listen", "nri_plugin_request_timeout", "nri_disable_connections",
		"nri_enable_default_validator", "nri_validator_required_plugins")
	runtime := all.at("crio", "runtime")
	if runtime.text("cgroup_manager") == string(host.Cgroupfs) {
		r.driver = host.Cgroupfs
	}
	r.lacksCDI = lacksCDI(runtime)
	r.readHandlers(runtime.at("runtimes"), cmp.Or(runtime.text("default_runtime"), "crun"),
		func(name string) string { return runtime.at("runtimes", name).text("runtime_path") })
	return r
}
