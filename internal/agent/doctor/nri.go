//go:build linux

package doctor

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tenon-project/tenon/internal/agent/kubeletfile"
)

func (m *machine) runtimeVersion() Finding {
	r := m.runtime
	where := strings.Join(r.sockets(), ", ")
	switch {
	case r.name == "":
		return unknown(below(containerdFile)+", "+below(crioDir), "neither containerd nor CRI-O is found")
	case r.asked != nil:
		return unknown(below(where), "%s does not report its version: %v", r.name, r.asked)
	}
	return versionFinding(below(where), r.name, r.version)
}

func (m *machine) nri() Finding {
	r := m.runtime
	switch {
	case r.name == "":
		return Finding{}
	case r.unseen != "":
		return unknown(r.unseen, "%s is started with a file that is not seen from here", r.name)
	case r.err != nil:
		return ok("", "%v", r.err).Because(Fail,
			"the runtime does not start with this file, or runs with settings that are not in it",
			"correct the line that is named")
	case !r.nriOn && m.throughProxy():
		return ok(r.nriWhere, "off; the kubelet asks tenon-runtime-proxy")
	case !r.nriOn:
		return ok(r.nriWhere, "off").Because(Fail,
			"containers start on all CPUs, and are corrected only when the agent sees them", m.nriRemedy())
	case r.closed:
		return ok(r.nriWhere, "on, but plugins may not connect").Because(Fail,
			"the agent is a plugin that connects from outside",
			"set "+map[string]string{"containerd": "disable_connections", "cri-o": "nri_disable_connections"}[r.name]+
				" = false there and restart "+r.name)
	case r.strayNRI != "":
		return ok(r.nriWhere, "on; %s is not a table of the runtime", r.strayNRI).Because(Warn,
			"the runtime silently ignores an unknown table",
			fmt.Sprintf("move its settings into [plugins.%q]", nriTable))
	}
	if d, err := time.ParseDuration(r.timeout); err != nil || d < minTimeout {
		return ok(r.nriWhere, "on, plugin_request_timeout %q", r.timeout).Because(Fail,
			"the runtime drops the agent when it does not answer in that time, and starts the container without it",
			"set it to 2s or more, and restart "+r.name)
	}
	return ok(r.nriWhere, "on, requests may take %s", r.timeout)
}

// minTimeout leaves room for the agent's own guard, which answers after 1.5 s.
const minTimeout = 2 * time.Second

func (m *machine) nriRemedy() string {
	if m.runtime.name == "cri-o" {
		return "set enable_nri = true in [crio.nri] of " + m.runtime.driverWhere + " and restart crio"
	}
	return fmt.Sprintf(
		"set disable = false in [plugins.%q] of %s and restart containerd, or set up tenon-runtime-proxy", nriTable,
		below(containerdFile))
}

func (m *machine) throughProxy() bool {
	return m.kubelet.usable() && strings.HasPrefix(m.kubelet.config.RuntimeEndpoint, "unix:///run/tenon/")
}

func (m *machine) validator() Finding {
	r := m.runtime
	if old, _ := isBefore(r.version, validators[r.name]); old {
		return Finding{} // runtime-version reports what an old one lacks
	}
	setting := fmt.Sprintf("set enable = true in [plugins.%q.default_validator] and restart containerd", nriTable)
	if r.name == "cri-o" {
		setting = "set nri_enable_default_validator = true in [crio.nri.default_validator] and restart crio"
	}
	disconnected := m.disconnected()
	switch {
	case disconnected != nil && r.validator:
		return ok(fmt.Sprintf("process %d", disconnected.PID),
			"on, and tenon-agent runs with an empty --nri-socket").Because(Fail,
			"the validator waits for the plugin tenon-agent, which never connects: pods with exclusive CPUs do not "+
				"start", "take --nri-socket out of the agent's arguments and start it again")
	case disconnected != nil && m.throughProxy():
		return ok(r.nriWhere, "the default validator is off; the kubelet asks tenon-runtime-proxy")
	case !r.validator:
		return ok(r.nriWhere, "the default validator is off").Because(Fail,
			"the annotation required-plugins.noderesource.dev is not read: while the agent is down, pods with "+
				"exclusive CPUs or devices start without them", setting)
	case slices.Contains(r.required, "tenon-agent"):
		return ok(r.nriWhere, "on, and every container requires tenon-agent").Because(Warn,
			"static pods, the API server's among them, and the agent's own pod do not start while the agent is down",
			"take tenon-agent out of the list of required plugins: the webhook requires it where it matters")
	}
	return ok(r.nriWhere, "the default validator is on")
}

// disconnected returns the agent that runs without connecting to NRI; nil where none does.
func (m *machine) disconnected() *kubeletfile.Process {
	for _, p := range m.agents() {
		if socket, said := p.Flag("nri-socket"); said && socket == "" {
			return &p
		}
	}
	return nil
}

func (m *machine) nriSocket() Finding {
	r := m.runtime
	for _, name := range []string{r.nriSocket, strings.TrimPrefix(r.nriSocket, "/var")} { // /var/run is a link to /run
		if m.has(name, fs.ModeSocket) {
			return ok(r.nriSocket, "is there")
		}
	}
	return ok(r.nriSocket, "is not there").Because(Fail, "the agent cannot connect to the runtime",
		"restart "+r.name+" so that it reads its configuration; see its log for NRI")
}

// hookServers reads the registrations that tenon-runtime-proxy goes by.
func (m *machine) hookServers() Finding {
	const dir = "etc/runtime/hookserver.d"
	through, ours := m.throughProxy(), false
	for _, name := range m.names(dir) {
		if !strings.HasSuffix(name, ".json") {
			continue
		}
		where := path.Join(dir, name)
		var r struct {
			Endpoint string   `json:"remote-endpoint"`
			Policy   string   `json:"failure-policy"`
			Hooks    []string `json:"runtime-hooks"`
		}
		text, err := m.read(where)
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil {
			return ok(below(where), "%v", bare(err)).Because(Fail,
				"the proxy cannot use the registration", "correct the file, or remove it")
		}
		ours = ours || strings.HasSuffix(r.Endpoint, "/tenon/hooks.sock")
	}
	switch {
	case through && !ours:
		return ok(below(dir), "the agent is not registered").Because(Fail,
			"the proxy does not call the agent: containers start on all CPUs",
			"register it: tenon-runtime-proxy install")
	case ours:
		return ok(below(dir), "the agent is registered")
	}
	return Finding{}
}

// cdi reports whether devices can be requested by name. Tenon does not need it yet.
func (m *machine) cdi() Finding {
	for _, dir := range []string{"etc/cdi", "var/run/cdi", "run/cdi"} {
		if m.has(dir, fs.ModeDir) {
			return ok(below(dir), "%d specifications", len(m.names(dir)))
		}
	}
	return ok("", "no folder of device specifications: pods here get no CDI devices")
}

// foreignWriters are programs that set cpusets themselves.
func foreignWriters() map[string]string {
	return map[string]string{
		"koordlet":              "remove the node from koordlet's DaemonSet, or uninstall it",
		"crane-agent":           "remove the node from crane-agent's DaemonSet",
		"nri-resource-topology": "stop the plugin",
		"nri-resource-policy":   "stop the plugin",
		"cpu-device-plugin":     "stop the plugin",
	}
}

func (m *machine) writers() []Finding {
	var out []Finding
	for i, p := range m.agents() {
		if i > 0 {
			out = append(out, ok(fmt.Sprintf("process %d", p.PID), "a second tenon-agent").Because(Fail,
				"one of them ends at once, as two would undo each other's writes",
				"keep either the DaemonSet or the service of the host"))
		}
	}
	for _, p := range m.procs {
		where := fmt.Sprintf("process %d", p.PID)
		for name, remedy := range foreignWriters() {
			if strings.HasPrefix(p.Name(), name) {
				out = append(out, ok(where, "%s runs", p.Name()).Because(Fail,
					"it writes cpusets too: each undoes what the other wrote", remedy))
			}
		}
	}
	switch {
	case len(out) > 0:
	case len(m.procs) == 0:
		out = append(out, unknown(below("proc"), "the machine's processes are not seen from here"))
	default:
		out = append(out, ok(below("proc"), "no other process writes cpusets"))
	}
	return out
}

func (m *machine) agent() Finding {
	if m.o.AskAgent == nil {
		return unknown("", "it was not asked")
	}
	if err := m.o.AskAgent(); err != nil {
		return ok("", "not ready: %v", err).Because(Warn,
			"nothing is enforced or reported while the agent is not ready",
			"see the log of its pod; kubectl -n tenon-system get pods -l app.kubernetes.io/name=tenon-agent -o wide "+
				"names it")
	}
	return ok("", "ready")
}
