package doctor

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		testkit.Check(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	testkit.Check(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// socket is the content of a file that is one.
const socket = "\x00socket"

const (
	goodContainerd = `version = 3
[plugins.'io.containerd.nri.v1.nri']
  disable = false
  [plugins.'io.containerd.nri.v1.nri'.default_validator]
    enable = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = true
`
	goodKubelet = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: " +
		"systemd\ncontainerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n"
)

// good is a machine on which all is well.
func good() map[string]string {
	files := map[string]string{
		"proc/sys/kernel/osrelease":                "6.12.9-cloud-amd64\n",
		"proc/1/cmdline":                           "/sbin/init\x00",
		"proc/70/cmdline":                          "/usr/bin/containerd\x00",
		"proc/80/cmdline":                          "/usr/bin/kubelet\x00--config=/var/lib/kubelet/config.yaml\x00",
		"proc/90/cmdline":                          "/tenon-agent\x00run\x00",
		"proc/91/cmdline":                          "", // a thread of the kernel
		"sys/fs/cgroup/cgroup.controllers":         "cpuset cpu io memory pids\n",
		"sys/fs/cgroup/kubepods.slice/cpuset.cpus": "",
		"sys/devices/system/cpu/offline":           "\n",
		"etc/containerd/config.toml":               goodContainerd,
		"var/lib/kubelet/config.yaml":              goodKubelet,
		"var/lib/kubelet/cpu_manager_state":        `{"policyName":"none","defaultCpuSet":"","checksum":1}`,
		"run/containerd/containerd.sock":           socket,
		"var/run/nri/nri.sock":                     socket,
		"etc/cdi/nvidia.yaml":                      "",
	}
	for cpu := range 4 {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/", cpu)
		files[dir+"core_id"], files[dir+"physical_package_id"] = fmt.Sprint(cpu), "0"
	}
	files["sys/devices/system/cpu/present"], files["sys/devices/system/cpu/online"],
		files["sys/devices/system/cpu/possible"] = "0-3", "0-3", "0-3"
	files["sys/devices/system/node/online"], files["sys/devices/system/node/node0/cpulist"] = "0", "0-3"
	files["sys/devices/system/node/node0/meminfo"] = "Node 0 MemTotal: 4194304 kB\n"
	files["proc/cpuinfo"], files["proc/meminfo"] = "vendor_id : GenuineIntel\n", "MemTotal: 4194304 kB\n"
	return files
}

// lay writes the files of a machine. Its path is short: sockets must not have long ones.
func lay(t *testing.T, files map[string]string) host.Root {
	t.Helper()
	dir, err := os.MkdirTemp("", "d")
	testkit.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for name, text := range files {
		file := filepath.Join(dir, name)
		testkit.Check(t, os.MkdirAll(filepath.Dir(file), 0o755))
		if text == socket {
			l, err := new(net.ListenConfig).Listen(t.Context(), "unix", file)
			testkit.Check(t, err)
			t.Cleanup(func() { _ = l.Close() })
			continue
		}
		testkit.Check(t, os.WriteFile(file, []byte(text), 0o644))
	}
	return host.Root{Dir: dir}
}

// answers are what runtime and agent say.
func answers(root host.Root, version string) Options {
	return Options{
		Root: root, AskAgent: func() error { return nil },
		AskRuntime: func(at string) (string, string, error) {
			if strings.Contains(at, "crio") {
				return "cri-o", version, nil
			}
			return "containerd", version, nil
		},
	}
}

func TestAMachineOnWhichAllIsWell(t *testing.T) {
	t.Parallel()
	d := view.NewDiagnosis("machine /", Machine(answers(lay(t, good()), "v2.4.2")))
	var b strings.Builder
	testkit.Check(t, d.Print(&b, 0))
	if !d.Healthy() {
		t.Error("a check fails")
	}
	golden(t, "good.txt", b.String())
}

func TestAMachineWithEverythingWrong(t *testing.T) {
	t.Parallel()
	files := good()
	maps.Copy(files, map[string]string{
		"proc/90/cmdline":                "/usr/bin/koordlet\x00-v=4\x00",
		"sys/devices/system/cpu/offline": "3\n",
		"etc/containerd/config.toml": "version = " +
			"2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options]\nSystemdCgroup = false\n",
		"var/lib/kubelet/config.yaml": goodKubelet +
			"cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\nmemoryManagerPolicy: " +
			"Static\ntopologyManagerPolicy: restricted\n",
		"var/lib/kubelet/memory_manager_state": "torn",
	})
	o := answers(lay(t, files), "1.7.27")
	o.AskAgent = func() error { return errors.New("the node's topology is not published yet") }
	d := view.NewDiagnosis("machine /", Machine(o))
	var b strings.Builder
	testkit.Check(t, d.Print(&b, 0))
	if d.Healthy() {
		t.Error("no check fails")
	}
	golden(t, "bad.txt", strings.ReplaceAll(b.String(), o.Root.Path(), ""))
}

// with changes the machine; a value of "-" removes a file.
func with(pairs ...string) map[string]string {
	files := good()
	for i := 0; i < len(pairs); i += 2 {
		files[pairs[i]] = pairs[i+1]
		if pairs[i+1] == "-" {
			delete(files, pairs[i])
		}
	}
	return files
}

func without(files map[string]string, name string) map[string]string {
	delete(files, name)
	return files
}

// FuzzRuntimeFiles: no content of the files of runtime and kubelet leaves a check without a finding that can be acted
// on.
func FuzzRuntimeFiles(f *testing.F) {
	f.Add(goodContainerd, goodKubelet)
	f.Add("version = '3'\nimports = 1\nplugins = [1]\n", "cpuManagerPolicy: {a: b}\n")
	f.Add("imports = ['config.toml', '../../../x']\n[plugins.'io.containerd.nri.v1.nri']\ndisable = 'no'\n"+
		"default_validator = 3\n", "failCgroupV1: yes\nreservedSystemCPUs: 1e9\n")
	root := host.Root{Dir: testkit.Dir(f)} // one for all executions: a new folder for each costs most of the time
	files := [2]string{"etc/containerd/config.toml", "var/lib/kubelet/config.yaml"}
	for _, name := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root.Dir, name)), 0o755); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, runtime, kubelet string) {
		for i, text := range []string{runtime, kubelet} {
			testkit.Check(t, os.WriteFile(filepath.Join(root.Dir, files[i]), []byte(text), 0o644))
		}
		for _, finding := range Machine(Options{Root: root}) {
			settled := finding.Status == OK || finding.Status == Unknown
			if finding.Check == "" || !settled && (finding.Why == "" || finding.Remedy == "") {
				t.Fatalf("%+v", finding)
			}
		}
	})
}

func TestFindings(t *testing.T) {
	t.Parallel()
	const containerd, kubelet, cpus = "etc/containerd/config.toml", "var/lib/kubelet/config.yaml",
		"var/lib/kubelet/cpu_manager_state"
	crio := func(conf string) map[string]string {
		return with(containerd, "-", "proc/70/cmdline", "/usr/bin/crio\x00", "run/containerd/containerd.sock", "-",
			"run/crio/crio.sock", socket,
			"etc/crio/crio.conf", "[crio.runtime]\ncgroup_manager = \"systemd\"\n", "etc/crio/crio.conf.d/10-nri.conf",
			conf)
	}
	v1 := func(conf string) map[string]string {
		return with("sys/fs/cgroup/cgroup.controllers", "-", "sys/fs/cgroup/kubepods.slice/cpuset.cpus", "-",
			"sys/fs/cgroup/cpuset/cpuset.cpus", "0-3",
			kubelet, strings.Replace(goodKubelet, "systemd", "cgroupfs", 1)+conf, containerd,
			strings.Replace(goodContainerd, "SystemdCgroup = true", "", 1))
	}
	proxied := strings.Replace(goodKubelet, "/run/containerd/containerd.sock", "/run/tenon/cri.sock", 1)
	tests := map[string]struct {
		files   map[string]string
		version string
		check   string
		status  Status
		says    []string // in found, where, why or remedy
	}{
		"an old kernel with v2": {
			with("proc/sys/kernel/osrelease", "5.4.0-150"), "2.4.2", "kernel", Fail,
			[]string{"Linux 5.4.0-150", "5.8 or newer"},
		},
		"a kernel that says nothing": {
			with("proc/sys/kernel/osrelease", "-"), "2.4.2", "kernel", Unknown,
			[]string{"cannot be read"},
		},
		"a release that is none": {
			with("proc/sys/kernel/osrelease", "next"), "2.4.2", "kernel", Unknown,
			[]string{`"next" is not a Linux release`},
		},
		"no cpuset controller": {
			with("sys/fs/cgroup/cgroup.controllers", "cpu memory"), "2.4.2", "cgroup",
			Fail,
			[]string{"v2 with cpu memory", "controller cpuset"},
		},
		"cgroup v1 and a new kubelet": {
			without(v1(""), "proc/80/cmdline"), "2.4.2", "cgroup", Fail,
			[]string{"v1", "failCgroupV1: false in /var/lib/kubelet/config.yaml"},
		},
		"cgroup v1 and an old kubelet": {v1(""), "2.4.2", "cgroup", Warn, []string{"from 1.35 on refuse"}},
		"cgroup v1 that is allowed": {
			v1("failCgroupV1: false\n"), "2.4.2", "cgroup", Warn,
			[]string{"about to drop"},
		},
		"containerd before validators": {
			good(), "2.1.4", "runtime-version", Warn,
			[]string{"containerd 2.1.4", "--allow-degraded-enforcement", "2.2 or newer"},
		},
		"containerd 1.7 with defaults": {
			with(containerd, "version = 2\n"), "1.7.27", "nri", Fail,
			[]string{"off", "disable = false"},
		},
		"containerd 2 with an old file": {with(containerd, "version = 2\n"), "2.0.1", "nri", OK, []string{"on"}},
		"NRI turned off": {
			with(containerd,
				"version = 3\n[plugins.'io.containerd.nri.v1.nri']\ndisable = true\n"), "2.4.2", "nri", Fail,
			[]string{"off"},
		},
		"no connections": {
			with(containerd,
				"version = 3\n[plugins.'io.containerd.nri.v1.nri']\ndisable_connections = "+
					"true\n"), "2.4.2", "nri", Fail,
			[]string{"disable_connections = false"},
		},
		"a short timeout": {
			with(containerd,
				"version = 3\n[plugins.'io.containerd.nri.v1.nri']\nplugin_request_timeout = "+
					"'500ms'\n"), "2.4.2", "nri",
			Fail,
			[]string{`"500ms"`, "2s or more"},
		},
		"a timeout that is none": {
			with(containerd,
				"version = 3\n[plugins.'io.containerd.nri.v1.nri']\nplugin_request_timeout = 'soon'\n"), "2.4.2", "nri",
			Fail,
			[]string{`"soon"`},
		},
		"a table that the runtime does not read": {
			with(containerd,
				goodContainerd+"[plugins.nri]\nplugin_request_timeout = '5s'\n"), "2.4.2", "nri", Warn,
			[]string{`plugins."nri"`, "ignores"},
		},
		"a broken file": {
			with(containerd, "version = 3\n[plugins\nx = 1\n"), "2.4.2", "nri", Fail,
			[]string{"/etc/containerd/config.toml:2:9: "},
		},
		"a broken import": {
			with(containerd, "version = 3\nimports = ['conf.d/*.toml']\n",
				"etc/containerd/conf.d/a.toml", "x = \n"), "2.4.2", "nri", Fail,
			[]string{"/etc/containerd/conf.d/a.toml:1:5: "},
		},
		"an import that overrides": {
			with(containerd,
				"imports = ['/etc/containerd/config.toml', 'conf.d/*.toml']\n"+goodContainerd,
				"etc/containerd/conf.d/a.toml", "[plugins.'io.containerd.nri.v1.nri']\ndisable = "+
					"true\n"), "2.4.2", "nri",
			Fail,
			[]string{"off", "/etc/containerd/conf.d/a.toml"},
		},
		"a pattern that is none": {
			with(containerd, "imports = ['[']\n"), "2.4.2", "nri", Fail,
			[]string{`imports: "/etc/containerd/["`},
		},
		"no file of containerd": {
			with(containerd, "-"), "2.4.2", "nri-validator", Fail,
			[]string{"there is no /etc/containerd/config.toml", "enable = true"},
		},
		"a file in another place": {
			with("proc/70/cmdline", "containerd\x00-c\x00/opt/c.toml\x00"), "2.4.2",
			"nri", Unknown,
			[]string{"/opt/c.toml", "not seen from here"},
		},
		"another file": {with("proc/70/cmdline", "containerd\x00--config\x00/opt/c.toml\x00",
			"opt/c.toml", "version = 3\n"), "2.4.2", "nri-validator", Fail, []string{"/opt/c.toml"}},
		"no validator": {
			with(containerd, "version = 3\n"), "2.4.2", "nri-validator", Fail,
			[]string{"default validator is off", "required-plugins.noderesource.dev"},
		},
		"a validator and a disconnected agent": {
			with(kubelet, proxied, "run/tenon/cri.sock", socket, "proc/90/cmdline",
				"/tenon-agent\x00run\x00--nri-socket=/x.sock\x00--nri-socket=\x00"),
			"2.4.2", "nri-validator", Fail,
			[]string{"process 90", "never connects", "take --nri-socket out"},
		},
		"an empty argument of the agent": {
			with("proc/90/cmdline", "/tenon-agent\x00run\x00--nri-socket\x00\x00"),
			"2.4.2", "nri-validator", Fail,
			[]string{"process 90"},
		},
		"an agent with an NRI socket flag": {
			with(
				"proc/90/cmdline",
				"/tenon-agent\x00run\x00--nri-socket=\x00--nri-socket=/var/run/nri/nri.sock\x00",
			), "2.4.2", "nri-validator",
			OK, nil,
		},
		"a disconnected agent, and no validator": {
			with(kubelet, proxied, "run/tenon/cri.sock", socket, containerd, "version = 3\n", "proc/90/cmdline",
				"/tenon-agent\x00run\x00--nri-socket=\x00"),
			"2.4.2", "nri-validator", OK,
			[]string{"tenon-runtime-proxy"},
		},
		"a disconnected agent is asked once": {with(kubelet, proxied, "run/tenon/cri.sock", socket, "proc/90/cmdline",
			"/tenon-agent\x00run\x00--nri-socket=\x00"), "2.4.2", "runtime-endpoint", OK, nil},
		"everything requires the plugin": {with(containerd,
			"version = 3\n[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = true\nrequired_plugins = "+
				"['tenon-agent']\n"), "2.4.2", "nri-validator", Warn, []string{"static pods"}},
		"no socket of NRI": {
			with("var/run/nri/nri.sock", "-"), "2.4.2", "nri-socket", Fail,
			[]string{"/var/run/nri/nri.sock"},
		},
		"the link of /var/run": {
			with("var/run/nri/nri.sock", "-", "run/nri/nri.sock", socket), "2.4.2",
			"nri-socket", OK, nil,
		},
		"a socket in another place": {
			with(containerd,
				strings.Replace(goodContainerd, "disable = false", "socket_path = '/run/x.sock'", 1)), "2.4.2",
			"nri-socket", Fail,
			[]string{"/run/x.sock"},
		},
		"two drivers": {
			with(containerd,
				strings.Replace(goodContainerd, "SystemdCgroup = true", "", 1)), "2.4.2", "cgroup-driver", Warn,
			[]string{"kubelet uses systemd, the runtime cgroupfs", "SystemdCgroup = true"},
		},
		"groups of another driver": {with("sys/fs/cgroup/kubepods.slice/cpuset.cpus", "-",
			"sys/fs/cgroup/kubepods/cpuset.cpus", ""), "2.4.2", "cgroup-driver", Warn, []string{"groups of cgroupfs"}},
		"CRI-O with all it needs": {
			crio(
				"[crio.nri]\nenable_nri = true\n[crio.nri.default_validator]\nnri_enable_default_validator = true\n"),
			"1.34.2", "nri-validator", OK,
			[]string{"/etc/crio/crio.conf.d/10-nri.conf"},
		},
		"CRI-O without a validator": {
			crio("[crio.nri]\nenable_nri = true\n"), "1.35.0", "nri-validator", Fail,
			[]string{"nri_enable_default_validator = true"},
		},
		"CRI-O with NRI off": {
			crio("[crio.nri]\nenable_nri = false\n"), "1.34.2", "nri", Fail,
			[]string{"enable_nri = true in [crio.nri]"},
		},
		"an old CRI-O": {crio(""), "1.33.4", "runtime-version", Warn, []string{"1.34 or newer"}},
		"a broken file of CRI-O": {
			crio("[crio.nri\n"), "1.34.2", "nri", Fail,
			[]string{"/etc/crio/crio.conf.d/10-nri.conf:1:"},
		},
		"CRI-O with another driver": {
			crio("[crio.runtime]\ncgroup_manager = \"cgroupfs\"\n"), "1.34.2",
			"cgroup-driver", Warn,
			[]string{`cgroup_manager = "systemd"`},
		},
		"no runtime": {
			with(containerd, "-", "proc/70/cmdline", "-"), "", "runtime-version",
			Unknown,
			[]string{"neither containerd nor CRI-O"},
		},
		"another socket": {
			with("run/containerd/containerd.sock", "-", "run/x.sock", socket, containerd,
				goodContainerd+"[grpc]\naddress = '/run/x.sock'\n"), "2.4.2", "runtime-version", OK,
			[]string{"/run/x.sock"},
		},
		"a runtime that is silent": {
			with("run/containerd/containerd.sock", "-"), "", "runtime-version", Unknown,
			[]string{"no answer"},
		},
		"a kubelet's file that is torn": {
			with(kubelet, "cpuManagerPolicy: [\n"), "2.4.2", "kubelet-config", Fail,
			[]string{"yaml: line 1"},
		},
		"a policy that is unknown": {
			with(kubelet, goodKubelet+"cpuManagerPolicy: dynamic\n"), "2.4.2",
			"kubelet-config", Fail,
			[]string{"cpuManagerPolicy", `"dynamic"`, "none, static"},
		},
		"an empty file of the kubelet": {with(kubelet, ""), "2.4.2", "kubelet-config", Fail, []string{"is empty"}},
		"no file of the kubelet": {
			with(kubelet, "-"), "2.4.2", "kubelet-config", Unknown,
			[]string{"/var/lib/kubelet/config.yaml"},
		},
		"static without a reservation": {
			with(kubelet, goodKubelet+"cpuManagerPolicy: static\n", cpus, "-"), "2.4.2",
			"cpu-manager", Fail,
			[]string{"no CPU is reserved", "reservedSystemCPUs"},
		},
		"static with an amount": {
			with(kubelet,
				goodKubelet+"cpuManagerPolicy: static\nkubeReserved: {cpu: 500m}\n", cpus, "-"), "2.4.2", "cpu-manager",
			Warn,
			[]string{"500m reserved"},
		},
		"static with CPUs that are not": {
			with(kubelet,
				goodKubelet+"cpuManagerPolicy: static\nreservedSystemCPUs: "+
					"0,9\n", cpus, "-"), "2.4.2", "cpu-manager", Fail,
			[]string{"not online", "correct reservedSystemCPUs"},
		},
		"static": {
			with(kubelet,
				goodKubelet+"cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n", cpus, "-"), "2.4.2", "cpu-manager",
			Warn,
			[]string{"static, reserved 0", "take-over"},
		},
		"a policy that changed": {
			with(kubelet,
				goodKubelet+"cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n"), "2.4.2", "cpu-manager", Fail,
			[]string{
				`configured policy "static" differs from state checkpoint policy "none"`,
				"delete /var/lib/kubelet/cpu_manager_state",
			},
		},
		"a torn record": {
			with(cpus, "{"), "2.4.2", "cpu-manager", Fail,
			[]string{"cpu_manager_state", "cannot read"},
		},
		"memory Static": {
			with(kubelet, goodKubelet+"memoryManagerPolicy: Static\n"), "2.4.2",
			"memory-manager", Warn,
			[]string{"memoryManagerPolicy Static"},
		},
		"a Topology Manager": {
			with(kubelet, goodKubelet+"topologyManagerPolicy: single-numa-node\n"),
			"2.4.2", "topology-manager", Warn,
			[]string{"single-numa-node"},
		},
		"a CPU offline under static": {
			with(kubelet,
				goodKubelet+"cpuManagerPolicy: static\nreservedSystemCPUs: "+
					"\"0\"\n", "sys/devices/system/cpu/offline", "3"),
			"2.4.2", "cpus-offline", Warn,
			[]string{"3", "drained"},
		},
		"a CPU offline under none": {
			with("sys/devices/system/cpu/offline", "3"), "2.4.2", "cpus-offline", OK,
			[]string{"3"},
		},
		"the proxy does not listen": {
			with(kubelet, proxied), "2.4.2", "runtime-endpoint", Fail,
			[]string{"/run/tenon/cri.sock", "tenon-runtime-proxy"},
		},
		"a drop-in that leads to the proxy": {
			with(
				"proc/80/cmdline",
				"kubelet\x00--config\x00/var/lib/kubelet/config.yaml\x00--config-dir=/etc/kubernetes/kubelet.conf.d\x00",
				"etc/kubernetes/kubelet.conf.d/90-tenon-runtime-proxy.conf",
				"containerRuntimeEndpoint: unix:///run/tenon/cri.sock\n",
				"etc/kubernetes/kubelet.conf.d/README",
				"[",
				"etc/kubernetes/kubelet.conf.d/10-a.conf",
				"containerRuntimeEndpoint: unix:///x.sock\n",
			), "2.4.2",
			"runtime-endpoint", Fail,
			[]string{"unix:///run/tenon/cri.sock", "90-tenon-runtime-proxy.conf"},
		},
		"a drop-in that the kubelet does not read": {
			with("etc/kubernetes/kubelet.conf.d/90.conf",
				"containerRuntimeEndpoint: unix:///run/tenon/cri.sock\n"), "2.4.2", "runtime-endpoint", OK,
			[]string{"unix:///run/containerd/containerd.sock"},
		},
		"a torn drop-in": {
			with("proc/80/cmdline", "-", "etc/kubernetes/kubelet.conf.d/90.conf", "a: ["),
			"2.4.2", "kubelet-config", Fail,
			[]string{"/etc/kubernetes/kubelet.conf.d/90.conf: ", "yaml: line 1"},
		},
		"the proxy in front of CRI-O": {
			with(kubelet,
				strings.Replace(goodKubelet, "/run/containerd/containerd.sock", "/run/tenon/run/crio/crio.sock", 1)),
			"2.4.2", "runtime-endpoint", Fail,
			[]string{"/run/tenon/run/crio/crio.sock"},
		},
		"proxy and NRI": {
			with(kubelet, proxied, "run/tenon/cri.sock", socket), "2.4.2",
			"runtime-endpoint", Warn,
			[]string{"twice"},
		},
		"the proxy instead of NRI": {
			with(kubelet, proxied, "run/tenon/cri.sock", socket, containerd,
				"version = 3\n[plugins.'io.containerd.nri.v1.nri']\ndisable = true\n"), "2.4.2", "nri", OK,
			[]string{"tenon-runtime-proxy"},
		},
		"the proxy does not call the agent": {
			with(kubelet, proxied), "2.4.2", "hook-servers", Fail,
			[]string{"not registered", "tenon-runtime-proxy install"},
		},
		"a torn registration": {
			with("etc/runtime/hookserver.d/a.json", "{"), "2.4.2", "hook-servers", Fail,
			[]string{"a.json"},
		},
		"a registration": {with("etc/runtime/hookserver.d/a.json",
			`{"remote-endpoint":"unix:///run/tenon/hooks.sock"}`), "2.4.2", "hook-servers", OK, nil},
		"koordlet": {
			with("proc/95/cmdline", "/koordlet\x00"), "2.4.2", "writers", Fail,
			[]string{"koordlet runs", "process 95"},
		},
		"a second agent": {
			with("proc/95/cmdline", "/x/tenon-agent\x00run\x00"), "2.4.2", "writers", Fail,
			[]string{"a second tenon-agent", "process 95"},
		},
		"files of an agent that is gone": {
			with("proc/90/cmdline", "-", "run/cdi/tenon.sh-gpu.json", "{}", "var/lib/tenon-agent/lock", ""), "2.4.2",
			"files", Warn,
			[]string{"rm -rf /var/lib/tenon-agent /run/cdi/tenon.sh-*.json"},
		},
		"a node in a container": {with("proc/60/cmdline", "containerd\x00-c\x00/x.toml\x00", "proc/60/status",
			"Name:\tcontainerd\nNSpid:\t60\t7\n",
			"proc/95/cmdline", "/tenon-agent\x00run\x00", "proc/95/status", "NSpid:\t95\t1\n", "proc/90/status",
			"NSpid:\t90\n"), "2.4.2", "writers", OK, nil},
		"the runtime of a node in a container": {with("proc/60/cmdline", "containerd\x00-c\x00/x.toml\x00",
			"proc/60/status", "NSpid:\t60\t7\n"), "2.4.2", "nri", OK, nil},
		"no folder of devices": {
			with("etc/cdi/nvidia.yaml", "-"), "2.4.2", "cdi", OK,
			[]string{"no CDI devices"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := answers(lay(t, tt.files), tt.version)
			for _, f := range Machine(o) {
				if f.Check != tt.check {
					continue
				}
				if f.Status != tt.status {
					t.Errorf("%+v, want %s", f, tt.status)
				}
				if (f.Status == Warn || f.Status == Fail) && (f.Why == "" || f.Remedy == "") {
					t.Errorf("%+v says neither why nor what to do", f)
				}
				all := strings.Join([]string{f.Found, f.Where, f.Why, f.Remedy}, "\n")
				for _, want := range tt.says {
					if !strings.Contains(all, want) {
						t.Errorf("no %q in\n%s", want, all)
					}
				}
				return
			}
			t.Errorf("no finding %s", tt.check)
		})
	}
}

func TestAnEmptyMachineIsUnknown(t *testing.T) {
	t.Parallel()
	for _, f := range Machine(Options{Root: lay(t, nil)}) {
		if f.Status == OK && f.Check != "cdi" {
			t.Errorf("a check passes that could not look: %+v", f)
		}
	}
}

func TestALinkOutOfTheRootIsNotFollowed(t *testing.T) {
	t.Parallel()
	root := lay(t, good())
	file := root.Path("var/lib/kubelet/config.yaml")
	outside := filepath.Join(t.TempDir(), "config.yaml")
	testkit.Check(t, errors.Join(os.Rename(file, outside), os.Symlink(outside, file)))
	for _, f := range Machine(answers(root, "2.4.2")) {
		if f.Check == "kubelet-config" && f.Status == OK {
			t.Errorf("another machine's file counts: %+v", f)
		}
	}
}

// sliceOf is the slice of a driver with one device of a node, which has an attribute.
func sliceOf(node, attribute string) []resourcev1.ResourceSlice {
	s := resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
		Driver: "x", NodeName: &node,
		Pool: resourcev1.ResourcePool{Name: "p", Generation: 2, ResourceSliceCount: 1},
		Devices: []resourcev1.Device{{
			Name: "d", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				resourcev1.QualifiedName(attribute): {IntValue: new(int64(0))},
			},
		}},
	}}
	return []resourcev1.ResourceSlice{s}
}

func TestANodeByWhatTheAPISays(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	view := func() NodeView {
		v := NodeView{
			Now: now, Written: now.Add(-time.Hour),
			Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
			Topology: &v1alpha2.NodeResourceTopology{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
					annotation.TopologyMode: "Own",
					annotation.Writer:       "tenon-agent/v1",
				}}, Zones: v1alpha2.ZoneList{{}},
			},
			Agent: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "tenon-agent-x"}},
		}
		v.Node.Status.NodeInfo.ContainerRuntimeVersion, v.Node.Status.NodeInfo.KubeletVersion = "containerd://2.4.2",
			"v1.36.3"
		v.Node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		v.Agent.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		return v
	}
	tests := map[string]struct {
		change func(*NodeView)
		check  string
		status Status
		says   string
	}{
		"ready":          {func(*NodeView) {}, "node-ready", OK, "kubelet v1.36.3"},
		"nothing to say": {func(*NodeView) {}, "condition", OK, "none"},
		"a node not ready": {
			func(v *NodeView) { v.Node.Status.Conditions[0].Status = corev1.ConditionFalse },
			"node-ready", Fail, "journalctl",
		},
		"a silent kubelet": {
			func(v *NodeView) { v.Node.Status.Conditions = nil }, "node-ready", Unknown,
			"nothing yet",
		},
		"an old runtime": {func(v *NodeView) {
			v.Node.Status.NodeInfo.ContainerRuntimeVersion = "containerd://1.7.0"
		}, "runtime-version", Warn, "2.2 or newer"},
		"a simulated node": {
			func(v *NodeView) { v.Node.Status.NodeInfo.ContainerRuntimeVersion = "tenon://v1" },
			"runtime-version", OK, "simulated",
		},
		"another runtime": {
			func(v *NodeView) { v.Node.Status.NodeInfo.ContainerRuntimeVersion = "docker://29.1.0" },
			"runtime-version", Unknown, "run containerd 2.2",
		},
		"an unread runtime": {
			func(v *NodeView) { v.Node.Status.NodeInfo.ContainerRuntimeVersion = "?" },
			"runtime-version", Unknown, `"?"`,
		},
		"no topology": {
			func(v *NodeView) { v.Topology = nil }, "topology", Fail,
			"helm upgrade tenon deploy/chart -n tenon-system --reuse-values --set agent.enabled=true",
		},
		"one that is left": {
			func(v *NodeView) { v.Agent, v.Written = nil, now.Add(-48*time.Hour) }, "topology", Warn,
			"48h0m0s",
		},
		"phase 1": {
			func(v *NodeView) { v.Topology.Annotations[annotation.TopologyMode] = "Blind" }, "mode",
			Warn, "phase 1",
		},
		"phase 2": {func(v *NodeView) {
			v.Topology.Annotations[annotation.TakeoverKey] = `{"phase":2,"since":"2026-03-01T00:00:00Z",` +
				`"remainingPods":3}`
		}, "mode", Warn, "take-over since 2026-03-01"},
		"another's topology": {
			func(v *NodeView) { v.Topology.Annotations = nil }, "mode", Unknown,
			"another program",
		},
		"no agent": {func(v *NodeView) { v.Agent = nil }, "agent", Warn, "no pod of tenon-agent"},
		"an agent not ready": {
			func(v *NodeView) { v.Agent.Status.Conditions = nil }, "agent", Fail,
			"logs tenon-agent-x",
		},
		"a right that is absent": {
			func(v *NodeView) { v.AgentUnknown = errors.New("list on pods is missing") },
			"agent", Unknown, "list on pods is missing",
		},
		"a condition": {func(v *NodeView) {
			v.Node.Status.Conditions = append(v.Node.Status.Conditions,
				corev1.NodeCondition{
					Type: "tenon.sh/EnforcementDegraded", Status: corev1.ConditionTrue,
					Reason: "OldRuntime", Message: "containerd 1.7",
				})
		}, "condition", Warn, "OldRuntime: containerd 1.7"},
		"a driver": {
			func(v *NodeView) { v.Slices = sliceOf("n", "numaNode") }, "claims", OK, "1 device\ndriver x",
		},
		"a driver of another node": {
			func(v *NodeView) { v.Slices = append(sliceOf("m", ""), sliceOf("n", "numaNode")...) }, "claims", OK,
			"1 device\ndriver x",
		},
		"an older generation": {func(v *NodeView) {
			v.Slices = append(sliceOf("n", "numaNode"), sliceOf("n", "")...)
			v.Slices[1].Spec.Pool.Generation = 1
		}, "claims", OK, "1 device\ndriver x"},
		"a driver without places": {
			func(v *NodeView) { v.Slices = sliceOf("n", "model") }, "claims", Warn,
			"1 device, none with a known NUMA node\ndriver x",
		},
		"a pool that is not complete": {func(v *NodeView) {
			v.Slices = sliceOf("n", "numaNode")
			v.Slices[0].Spec.Pool.ResourceSliceCount = 2
		}, "claims", Warn, "1 device, pool p has 1 of 2 ResourceSlices"},
		"a driver for CPUs": {
			func(v *NodeView) { v.Slices = sliceOf("n", "dra.cpu/cpuID") }, "claims", Warn,
			"pins CPUs, and so does Tenon",
		},
		"a driver and a device plugin": {func(v *NodeView) {
			v.Slices = sliceOf("n", "numaNode")
			v.Slices[0].Spec.Devices[0].Attributes["uuid"] = resourcev1.DeviceAttribute{StringValue: new("GPU-0")}
			inventory, _ := device.NewInventory(&device.Spec{Devices: []device.Device{{
				Type: device.GPU, ID: "GPU-0", Healthy: true,
			}}}, nil, nil)
			v.Account = ledger.New(ledger.Facts{Devices: inventory}).View()
			v.Device = &devicev1alpha1.Device{}
			v.Device.Annotations = map[string]string{annotation.DeviceModeKey: annotation.DeviceFollow}
		}, "claims", Warn, "1 of them cards of the node's Device"},
		"a card with two holders": {
			func(v *NodeView) { v.Twice = []string{"device x/p/d is held outside DRA by c/d"} }, "claims", Fail,
			"is held outside DRA by c/d\nresourceclaims.resource.k8s.io\ntwo pods use one card",
		},
		"claims that may not be read": {
			func(v *NodeView) { v.ClaimsUnknown = errors.New("list resourceslices: forbidden") }, "claims", Unknown,
			"list resourceslices: forbidden",
		},
		"what an agent that is gone wrote": {func(v *NodeView) {
			v.Agent = nil
			v.Node.Status.Conditions = append(v.Node.Status.Conditions, corev1.NodeCondition{Type: "tenon.sh/X"})
		}, "traces", Warn, "condition tenon.sh/X\nNode n\nno pod of an agent runs here that keeps it true\n" +
			"once Tenon is uninstalled: tenon leave --node n"},
		"reports of an agent that is gone": {func(v *NodeView) {
			v.Agent = nil
			v.Topology.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "tenon-agent"}}
			v.Device = &devicev1alpha1.Device{ObjectMeta: metav1.ObjectMeta{ManagedFields: v.Topology.ManagedFields}}
		}, "traces", Warn, "its NodeResourceTopology, its Device\nNode n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := view()
			tt.change(&v)
			for _, f := range Node(v) {
				if f.Check != tt.check {
					continue
				}
				if all := strings.Join([]string{f.Found, f.Where, f.Why, f.Remedy}, "\n"); f.Status != tt.status ||
					!strings.Contains(all, tt.says) {
					t.Errorf("%+v, want %s and %q", f, tt.status, tt.says)
				}
				return
			}
			t.Errorf("no finding %s", tt.check)
		})
	}
}

// TestEveryConditionHasARemedy: why it matters and what to do are those of the list of Events.
func TestEveryConditionHasARemedy(t *testing.T) {
	t.Parallel()
	v := NodeView{Node: &corev1.Node{}, AgentUnknown: errors.New("not asked")}
	for _, e := range event.List() {
		if e.Condition {
			v.Node.Status.Conditions = append(v.Node.Status.Conditions, corev1.NodeCondition{
				Type: corev1.NodeConditionType("tenon.sh/" + e.Name), Status: corev1.ConditionTrue,
			})
		}
	}
	found := 0
	for _, f := range Node(v) {
		if f.Check == "condition" {
			found++
			want := Warn
			if strings.HasSuffix(f.Where, event.GPUIsolationWeak.String()) ||
				strings.HasSuffix(f.Where, event.BestEffortSuppressed.String()) {
				want = OK
			}
			if f.Status != want || f.Why == "" || f.Remedy == "" || strings.Contains(f.Why, "newer") {
				t.Errorf("%+v", f)
			}
		}
	}
	if found != len(v.Node.Status.Conditions) || found == 0 {
		t.Errorf("%d findings of %d conditions", found, len(v.Node.Status.Conditions))
	}
}
