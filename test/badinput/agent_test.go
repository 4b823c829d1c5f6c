package badinput

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	agent "github.com/tenon-project/tenon/internal/agent/command"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
)

func agentCases() []bad {
	const cpus = "sys/devices/system/cpu/"
	reads := func(file, text string) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			dir := captured(t)
			if err := os.Remove(filepath.Join(dir, file)); err != nil { // equal files share an inode
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, file), text)
			return agentFails(t, dir, "probe", "--root", dir, "-o", "json")
		}
	}
	starts := func(args ...string) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			dir := captured(t)
			return agentFails(t, dir, append(args, "--root", dir)...)
		}
	}
	return []bad{
		{
			"agent: a list of online CPUs that ends early", reads(cpus+"online", "0-"),
			[]string{cpus + "online", `cpu list item "0-"`},
		},
		{
			"agent: a range of CPUs that runs backwards", reads(cpus+"present", "3-1"),
			[]string{cpus + "present", "the end is below the start"},
		},
		{
			"agent: a package id that is not a number", reads(cpus+"cpu1/topology/physical_package_id", "one"),
			[]string{"cpu1/topology", `want one integer, got "one"`},
		},
		{
			"agent: a CPU that is not a sibling of itself", reads(cpus+"cpu2/topology/thread_siblings_list", "0"),
			[]string{"cpu2/topology", "does not name CPU 2 itself"},
		},
		{
			"agent: a CPU on two NUMA nodes", reads("sys/devices/system/node/node1/cpulist", "0-95"),
			[]string{"node1", "names CPU 0, which node0 names too"},
		},
		{
			"agent: a NUMA node without its memory",
			reads("sys/devices/system/node/node0/meminfo", "Node 0 MemFree: 1 kB"),
			[]string{"node0/meminfo", "has no line MemTotal"},
		},
		{"agent: a folder that is not a machine", func(t *testing.T) string {
			t.Helper()
			dir := t.TempDir()
			return agentFails(t, dir, "probe", "--root", dir)
		}, []string{"cpu"}},
		{
			"agent: a kubelet setting that does not exist", starts("probe", "--kubelet", "static,full-pcpu-only"),
			[]string{`"full-pcpu-only"`, "full-pcpus-only"},
		},
		{
			"agent: two kubelet policies at once", starts("probe", "--kubelet", "restricted,best-effort"),
			[]string{"topology policies restricted and best-effort"},
		},
		{
			"agent: reserved CPUs without the static policy", starts("probe", "--kubelet", "reserved=0-1"),
			[]string{"need the CPU policy static"},
		},
		{
			"agent: a feature gate that does not exist", starts("probe", "--feature-gates", "CPUSet=true"),
			[]string{`unknown feature gate "CPUSet"`},
		},
		{
			"agent: health for everybody", starts("run", "--health-address", "0.0.0.0:10271"),
			[]string{"--health-address", "want a loopback address"},
		},
		{
			"agent: a kubelet that is asked in the clear", starts("run", "--kubelet-endpoint", "http://10.0.0.7:10250"),
			[]string{"--kubelet-endpoint", "over TLS alone", "want https://HOST:PORT"},
		},
		{
			"agent: a kubelet without a port", starts("run", "--kubelet-endpoint", "https://10.0.0.7"),
			[]string{"--kubelet-endpoint", "has no port"},
		},
		{
			"agent: a kubelet at a path", starts("run", "--kubelet-endpoint", "https://10.0.0.7:10250/configz"),
			[]string{"--kubelet-endpoint", "more than a host and a port"},
		},
		{
			"agent: a kubelet that is asked and configured",
			starts("run", "--kubelet-endpoint", "https://10.0.0.7:10250", "--kubelet", "static"),
			[]string{"--kubelet-endpoint", "--kubelet", "want one of them"},
		},
		{
			"agent: a PodResources socket somewhere", starts("run", "--pod-resources-socket", "kubelet.sock"),
			[]string{"--pod-resources-socket", "want an absolute path"},
		},
		{
			"agent: a PodResources socket too far",
			starts("run", "--pod-resources-socket", "/"+strings.Repeat("x", 107)),
			[]string{"--pod-resources-socket", "at most 107 bytes"},
		},
		{
			"agent: a format that does not exist", starts("probe", "-o", "xml"),
			[]string{`output "xml"`, "want yaml or json"},
		},
		{
			"agent: an allocation that is not a list of CPUs", account(`{"cpuset":"3-1"}`),
			[]string{"Pod/default/p", "scheduling.koordinator.sh/resource-status", "3-1"},
		},
		{
			"agent: an allocation that is not JSON", account(`{"cpuset":`),
			[]string{"Pod/default/p", "scheduling.koordinator.sh/resource-status", "byte"},
		},
	}
}

// captured is the tree of a small machine.
func captured(t *testing.T) string {
	t.Helper()
	d, _, err := machine.Parse("xeon-2s")
	testkit.Check(t, err)
	dir := filepath.Join(testkit.Dir(t), "machine")
	testkit.Check(t, d.Write(dir))
	return dir
}

// agentFails wants the agent to end without an object, and the machine to be unchanged.
func agentFails(t *testing.T, dir string, args ...string) (answer string) {
	t.Helper()
	unchanged(t, dir, func() {
		c := agent.New(nil)
		var out, errs bytes.Buffer
		c.SetOut(&out)
		c.SetErr(&errs)
		c.SetArgs(args)
		err := c.ExecuteContext(t.Context())
		if err == nil {
			t.Fatalf("tenon-agent %s went through:\n%s", strings.Join(args, " "), out.String())
		}
		if strings.Contains(out.String(), "NodeResourceTopology") {
			t.Errorf("an object is printed: %s", out.String())
		}
		answer = err.Error()
	})
	return answer
}

// account hands the account of a machine, which scheduler and agent share, a pod with a bad allocation: no CPU may be
// given to it or taken from another.
func account(status string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		store := kube.NewStore()
		node, topology := &corev1.Node{}, machineTopology(t)
		node.Name, topology.Name = "n0", "n0"
		store.PutNode(node)
		store.PutTopology(topology)
		held := podFrom(t,
			podOf(
				"uid: held, labels: {koordinator.sh/qosClass: LSR}, annotations: "+
					"{scheduling.koordinator.sh/resource-status: '{\"cpuset\":\"0-1\"}'}", "{cpu: 2}", "{cpu: 2}",
				", nodeName: n0"))
		store.PutPod(held)
		before := store.View("n0")
		bad := podFrom(t,
			podOf(
				"uid: bad, labels: {koordinator.sh/qosClass: LSR}, annotations: "+
					"{scheduling.koordinator.sh/resource-status: '"+status+"'}", "{cpu: 2}", "{cpu: 2}",
				", nodeName: n0"))
		store.PutPod(bad)
		after := store.View("n0")
		if before.LSR() != after.LSR() || before.SharedPool() != after.SharedPool() {
			t.Errorf("exclusive CPUs went from %v to %v", before.LSR(), after.LSR())
		}
		var answer []string
		for _, p := range convert.ReadPod(bad).Problems {
			answer = append(answer, p.Object+" "+p.Key+": "+p.Text+" in "+p.Value)
		}
		return strings.Join(answer, "\n")
	}
}

func podFrom(t *testing.T, manifest string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	testkit.Check(t, yaml.UnmarshalStrict([]byte(manifest), p))
	return p
}
