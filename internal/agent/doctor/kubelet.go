//go:build linux

package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/agent/kubeletfile"
)

type kubeletFile struct {
	known        bool   // a file was found
	where        string // its path
	err          error  // why it cannot be used
	config       kubeletapi.Config
	failCgroupV1 *bool
}

func (m *machine) readKubelet() kubeletFile {
	candidates := []string{ // the defaults, where no kubelet process names a file
		"var/lib/kubelet/config.yaml", "etc/kubernetes/kubelet/config.json",
		"etc/kubernetes/kubelet-config.yaml", "etc/kubernetes/kubelet/kubelet-config.json",
	}
	p, runs := m.running("kubelet")
	if named, _ := p.Flag("config"); runs && named != "" {
		candidates = []string{named}
	}
	for _, name := range candidates {
		text, err := m.read(name)
		if missing(err) {
			continue
		}
		k := kubeletFile{known: true, where: below(name)}
		if err != nil {
			k.err = bare(err)
			return k
		}
		folder, _ := p.Flag("config-dir")
		k.err = m.parseKubelet(&k, text, folder, runs)
		if endpoint, _ := p.Flag("container-runtime-endpoint"); runs && endpoint != "" {
			k.config.RuntimeEndpoint = endpoint
		}
		return k
	}
	return kubeletFile{where: below(candidates[0])}
}

// parseKubelet reads the file and the drop-ins of a folder as the kubelet does: the last one that has a field wins.
// Where no kubelet is seen to run, the common folder counts.
func (m *machine) parseKubelet(k *kubeletFile, text []byte, folder string, runs bool) error {
	var fields table
	if err := yaml.Unmarshal(text, &fields); err != nil {
		return err
	}
	if fields == nil {
		return errors.New("is empty")
	}
	if folder == "" && !runs {
		folder = "etc/kubernetes/kubelet.conf.d"
	}
	if folder == "" {
		return k.parse(fields)
	}
	for d := range kubeletfile.DropIns(m.o.Root.Path(), folder) {
		if d.Err != nil {
			return fmt.Errorf("%s: %w", d.Path, bare(d.Err))
		}
		fields.merge(d.Fields)
		k.where += ", " + d.Path
	}
	return k.parse(fields)
}

func (k *kubeletFile) parse(fields table) error {
	if value, ok := fields["failCgroupV1"].(bool); ok {
		k.failCgroupV1 = &value
	}
	if fields["cpuManagerPolicy"] == nil {
		fields["cpuManagerPolicy"] = "none" // what the kubelet takes for absent
	}
	answer, err := json.Marshal(map[string]table{"kubeletconfig": fields})
	if err != nil {
		return err
	}
	k.config, err = kubeletapi.ParseConfig(answer)
	return err
}

func (m *machine) kubeletConfig() Finding {
	k := m.kubelet
	switch {
	case !k.known:
		return unknown(k.where, "no kubelet configuration file was found")
	case k.err != nil:
		return ok(k.where, "%v", k.err).Because(Fail,
			"the kubelet cannot use it either, or uses values that Tenon does not support",
			"correct the field or line that is named")
	}
	c := k.config.Kubelet
	return ok(k.where, "CPU manager %s, memory manager %s, Topology Manager %s", c.CPU.Policy,
		c.Memory.Policy, c.Topology.Policy)
}

// usable reports whether the kubelet's configuration says something.
func (k *kubeletFile) usable() bool { return k.known && k.err == nil }

func (m *machine) cpuPolicy() Finding {
	state, err := host.ReadCPUState(m.o.Root)
	c := m.kubelet.config
	f := m.stateAgrees("cpu_manager_state", "cpuManagerPolicy", c.Kubelet.CPU.Policy, "none", state.Policy, err)
	if !m.kubelet.usable() || c.Kubelet.CPU.Policy != "static" || f.Status == Fail {
		return f
	}
	switch {
	case c.Kubelet.CPU.Reserved == "" && c.ReservedMilliCPU == 0:
		return ok(m.kubelet.where, "static, and no CPU is reserved").Because(Fail,
			"a kubelet with the policy static does not start without reserved CPUs",
			"set reservedSystemCPUs in "+m.kubelet.where)
	case c.Kubelet.CPU.Reserved == "":
		return ok(m.kubelet.where, "static, %dm reserved without saying which CPUs", c.ReservedMilliCPU).Because(Warn,
			"the kubelet chooses which CPUs it reserves; Tenon learns them only from its record",
			"set reservedSystemCPUs in "+m.kubelet.where)
	}
	if missing := m.notOnline(c.Kubelet); missing != nil {
		return ok(m.kubelet.where, "%v", missing).Because(Fail, "the kubelet does not start",
			"correct reservedSystemCPUs in "+m.kubelet.where)
	}
	return ok(m.kubelet.where, "static, reserved %s", c.Kubelet.CPU.Reserved).Because(Warn,
		"pods that this kubelet pinned keep their CPUs beside Tenon's until they end (take-over), or it chooses in "+
			"mode Follow",
		"set cpuManagerPolicy: none, drain the node, delete /var/lib/kubelet/cpu_manager_state and restart the "+
			"kubelet, unless the node is to follow its kubelet")
}

// notOnline says why the kubelet would not start on this machine; nil when it would, or when the machine cannot be
// read.
func (m *machine) notOnline(k annotation.Kubelet) error {
	reading, err := host.Read(m.o.Root, "")
	if err != nil {
		return nil //nolint:nilerr // what the machine is is checked by tenon-agent probe
	}
	return host.CheckKubelet(&k, reading.Machine)
}

func (m *machine) memoryPolicy() Finding {
	state, err := host.ReadMemoryState(m.o.Root)
	return m.stateAgrees("memory_manager_state", "memoryManagerPolicy",
		m.kubelet.config.Kubelet.Memory.Policy, "None", state.Policy, err)
}

// stateAgrees compares the policy of a kubelet's manager with the one that its record was written under.
func (m *machine) stateAgrees(file, field, policy, plain, recorded string, err error) Finding {
	where := "/var/lib/kubelet/" + file
	remedy := fmt.Sprintf("drain the node, stop the kubelet, delete %s, start the kubelet", where)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return unknown(where, "the record cannot be read: %v", bare(err))
	case err != nil:
		return ok("", "%v", err).Because(Fail, "the kubelet does not start with a record that it cannot read", remedy)
	case !m.kubelet.usable():
		return unknown(m.kubelet.where, "the policy is unknown")
	case recorded != "" && recorded != policy:
		return ok(where, "the record is of the policy %s, %s is %s", recorded, field, policy).Because(Fail,
			fmt.Sprintf("the kubelet ends at its start: configured policy %q differs from state checkpoint policy %q",
				policy, recorded), remedy)
	case policy == plain:
		return ok(m.kubelet.where, "%s %s: Tenon alone decides", field, policy)
	}
	f := ok(m.kubelet.where, "%s %s", field, policy)
	if field == "memoryManagerPolicy" {
		f = f.Because(Warn, "the kubelet chooses memory nodes and may refuse a pod at its admission; Tenon predicts it",
			"set memoryManagerPolicy: None on nodes that Tenon keeps (mode Own), drain the node and delete "+where)
	}
	return f
}

func (m *machine) topologyPolicy() Finding {
	if !m.kubelet.usable() {
		return unknown(m.kubelet.where, "the policy is unknown")
	}
	k := m.kubelet.config.Kubelet
	f := ok(m.kubelet.where, "topologyManagerPolicy %s", k.Topology.Policy)
	if k.Topology.Policy == "restricted" || k.Topology.Policy == "single-numa-node" {
		f = f.Because(Warn,
			"the kubelet refuses pods that its managers cannot align; Tenon predicts that before it binds",
			"set topologyManagerPolicy: none unless the node is to follow its kubelet")
	}
	return f
}

func (m *machine) cgroupDriver() Finding {
	layout, err := host.Cgroups(m.o.Root)
	want := m.kubelet.config.CgroupDriver
	switch {
	case err != nil || !m.kubelet.usable():
		return unknown(m.kubelet.where, "the kubelet's driver is unknown")
	case m.runtime.driver != "" && m.runtime.driver != want:
		f := ok(m.runtime.driverWhere, "the kubelet uses %s, the runtime %s", want, m.runtime.driver)
		remedy := fmt.Sprintf("set %s in %s", m.runtime.driverSetting(want), m.runtime.driverWhere)
		if m.runtime.reportsDriver() {
			return f.Because(Warn,
				"a kubelet 1.31 or newer uses the runtime's driver, an older kubelet does not find its pods", remedy)
		}
		return f.Because(Fail,
			"pods and containers are in two hierarchies: no pod starts, or the kubelet finds none", remedy)
	case layout.Driver != host.UnknownDriver && layout.Driver != want && m.kubelet.config.CgroupRoot == "":
		return ok(below("sys/fs/cgroup"), "the kubelet uses %s, the tree has groups of %s", want,
			layout.Driver).Because(Warn,
			"groups of an earlier driver remain: pods in them would not be found", "drain the node and boot it again")
	}
	return ok(m.kubelet.where, "%s", want)
}

func (m *machine) endpoint() Finding {
	if !m.kubelet.usable() {
		return unknown(m.kubelet.where, "the kubelet's endpoint is unknown")
	}
	endpoint := m.kubelet.config.RuntimeEndpoint
	f := ok(m.kubelet.where, "%s", endpoint)
	if endpoint == "" {
		f.Found = "the default, unix:///run/containerd/containerd.sock"
	}
	through := m.throughProxy()
	socket := strings.TrimPrefix(endpoint, "unix://")
	switch {
	case through && !m.has(socket, fs.ModeSocket):
		return f.Because(Fail, "the kubelet asks the proxy, and the proxy does not listen on "+socket,
			"start tenon-runtime-proxy, or take it out of the kubelet's way: tenon-runtime-proxy uninstall")
	case through && m.runtime.nriOn && m.disconnected() == nil:
		return f.Because(Warn, "the runtime has NRI as well: every container is judged twice",
			"remove the proxy: tenon-runtime-proxy uninstall")
	}
	return f
}

// bare drops the path that errors of files carry: the finding has it.
func bare(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}
