package badinput

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/sched/app"
	"github.com/tenon-project/tenon/internal/sim"
)

// bypassed is a namespace that the webhooks leave alone: what comes from there meets the scheduler as it is.
const bypassed = "tenon-system"

const fourCPUs = `{"detail":[{"id":0,"core":0,"socket":0,"node":0},{"id":1,"core":0,"socket":0,"node":0},{"id":2,` +
	`"core":1,"socket":0,"node":0},{"id":3,"core":1,"socket":0,"node":0}]}`

// node is a manifest of a node with a topology, labels on the node, annotations on the topology.
func node(labels, topology, more string) string {
	return "{apiVersion: v1, kind: Node, metadata: {name: n0, labels: {" + labels +
		"}}, status: {allocatable: {cpu: 4, memory: 8Gi, pods: 110}}}\n---\n" +
		"{apiVersion: topology.node.k8s.io/v1alpha1, kind: NodeResourceTopology, metadata: {name: n0, annotations: " +
		"{node.koordinator.sh/cpu-topology: '" + topology + "'" + more + "}}, " +
		"topologyPolicies: [None], zones: [{name: node-0, type: Node}]}\n---\n"
}

func schedulerCases() []bad {
	// A pod that can never work is refused once, with its field.
	reads := func(meta, cpu string) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			return unschedulable(t, node("", fourCPUs, "")+strings.Replace(pod(meta, cpu), "namespace: default",
				"namespace: "+bypassed, 1), true)
		}
	}
	// A node that says nonsense keeps the pods off that need what it says.
	meets := func(machine, meta string) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			return unschedulable(t, machine+pod(meta, "2"), false)
		}
	}
	starts := func(config string, args ...string) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			return schedulerFails(t, config, args...)
		}
	}
	profile := func(plugins string) string {
		return "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- " +
			"schedulerName: tenon-scheduler\n  " + plugins + "\n"
	}
	args := func(args string) string {
		return profile(
			"plugins: {multiPoint: {enabled: [{name: NodeNUMAResource}]}}\n  pluginConfig: [{name: NodeNUMAResource, " +
				"args: " + args + "}]")
	}
	return []bad{
		{
			"scheduler: an unknown class that no webhook saw", reads("labels: {koordinator.sh/qosClass: GOLD}", "1"),
			[]string{"InvalidField", class, `Unsupported value "GOLD"`, "LSE, LSR, LS, BE, SYSTEM"},
		},
		{
			"scheduler: a resource-spec that is not JSON and that no webhook saw", reads(lsr(resourceSpec("{")), "2"),
			[]string{"BadAnnotation", "scheduling.koordinator.sh/resource-spec", "byte"},
		},
		{
			"scheduler: a bind policy that does not exist and that no webhook saw",
			reads(lsr(resourceSpec(`{"requiredCPUBindPolicy":"FullPCPUz"}`)), "2"),
			[]string{"BadAnnotation", `Unsupported value "FullPCPUz"`},
		},
		{
			"scheduler: half a CPU that no webhook saw", reads(lsr(""), "1500m"),
			[]string{"CPURequestNotInteger", "the requested CPUs must be integer"},
		},
		{
			"scheduler: a topology that is not JSON", meets(node("", "{", ""), lsr("")),
			[]string{"InvalidTopology", "node(s) invalid CPU Topology", "node.koordinator.sh/cpu-topology", "byte"},
		},
		{
			"scheduler: a topology with one CPU on two cores",
			meets(node("", `{"detail":[{"id":0,"core":0,"socket":0,"node":0},{"id":0,"core":1,"socket":0,"node":0}]}`,
				""), lsr("")),
			[]string{"InvalidTopology", "node.koordinator.sh/cpu-topology", "CPU id 0 is there twice"},
		},
		{
			"scheduler: a topology with one core on two NUMA nodes",
			meets(node("", `{"detail":[{"id":0,"core":0,"socket":0,"node":0},{"id":1,"core":0,"socket":0,"node":1}]}`,
				""), lsr("")),
			[]string{"InvalidTopology", "node.koordinator.sh/cpu-topology"},
		},
		{
			"scheduler: a topology that lists nothing", meets(node("", `{"detail":[]}`, ""), lsr("")),
			[]string{"InvalidTopology", "node.koordinator.sh/cpu-topology"},
		},
		{
			"scheduler: a plugin argument that does not exist", starts(args("{minSharedCPU: 4}")),
			[]string{"NodeNUMAResource", "minSharedCPU"},
		},
		{
			"scheduler: a plugin argument of the wrong type", starts(args("{minSharedCPUs: many}")),
			[]string{"NodeNUMAResource", "minSharedCPUs"},
		},
		{
			"scheduler: a plugin argument out of range", starts(args("{defaultCPUBindPolicy: FullPCPUz}")),
			[]string{"NodeNUMAResource", "defaultCPUBindPolicy", "FullPCPUz", "SpreadByPCPUs"},
		},
		{
			"scheduler: a profile that counts devices twice",
			starts(profile("plugins: {multiPoint: {enabled: [{name: DeviceShare}]}}")),
			[]string{
				"profile tenon-scheduler", "plugins DeviceShare and NodeResourcesFit would both count devices",
				"ignoredResourceGroups: [koordinator.sh]",
				"ignoredResources: [nvidia.com/gpu, amd.com/gpu, dcu.com/gpu]",
			},
		},
		{
			"scheduler: a plugin that does not exist",
			starts(profile("plugins: {filter: {enabled: [{name: NodeNUMAResourcez}]}}")),
			[]string{
				`profiles[0].plugins.filter.enabled[0].name: unknown plugin "NodeNUMAResourcez", did you mean ` +
					`"NodeNUMAResource`,
			},
		},
		{
			"scheduler: a field of the configuration that does not exist", starts(profile("pluginz: {}")),
			[]string{`profiles[0].pluginz: unknown field, did you mean "plugins"?`},
		},
		{
			"scheduler: a configuration of another version",
			starts("apiVersion: kubescheduler.config.k8s.io/v9\nkind: KubeSchedulerConfiguration\n"),
			[]string{"kubescheduler.config.k8s.io/v9"},
		},
		{
			"scheduler: a configuration that is not there", starts("", "--config=/does/not/exist.yaml"),
			[]string{"/does/not/exist.yaml"},
		},
		{
			"scheduler: diagnostics without authentication for everybody",
			starts("", "--legacy-debug-address=0.0.0.0:10251"),
			[]string{"--legacy-debug-address", "loopback"},
		},
		{
			"scheduler: one name twice", starts("", "--serve-scheduler-names=a,a"),
			[]string{"--serve-scheduler-names", `"a" twice`},
		},
		{
			"scheduler: no memory for rankings", starts("", "--ranking-memory-mb=0"),
			[]string{"--ranking-memory-mb=0 is not allowed", "1 to 1048576"},
		},
		{
			"scheduler: names beside a configuration", starts(profile("plugins: {}"), "--serve-scheduler-names=a"),
			[]string{"--serve-scheduler-names is not allowed with --config"},
		},
		{
			"scheduler: a flag that does not exist", starts("", "--legacy-debug-addr=127.0.0.1:1"),
			[]string{"unknown flag", "legacy-debug-addr"},
		},
	}
}

// unschedulable places one pod that must not be placed. pools means that the machine is known, so that its pools must
// be whole.
func unschedulable(t *testing.T, manifests string, pools bool) string {
	t.Helper()
	r, answer := simulated(t, manifests)
	if len(r.Pods) != 1 || r.Pods[0].State != sim.Unschedulable {
		t.Fatalf("got %+v, want one pod that is Unschedulable", r.Pods)
	}
	want := "[]"
	if pools {
		want = `[{"socket":0,"node":0,"cpuset":"0-3"}]`
	}
	allFree(t, r, want)
	for _, reason := range r.Pods[0].Reasons {
		answer += reason.Code.String() + ": " + reason.Message + "\n"
	}
	return answer
}

// schedulerFails starts the scheduler with a configuration ("" for none) and an API server that must not be asked.
func schedulerFails(t *testing.T, config string, args ...string) (answer string) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "kubeconfig"),
		"apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
			"clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u}]\n")
	args = append([]string{
		"--kubeconfig=" + filepath.Join(dir, "kubeconfig"), "--secure-port=0",
		"--leader-elect=false",
	}, args...)
	if config != "" {
		config = strings.Replace(config, "profiles:",
			"clientConnection: {kubeconfig: "+filepath.Join(dir, "kubeconfig")+"}\nprofiles:", 1)
		write(t, filepath.Join(dir, "config.yaml"), config)
		args = append(args, "--config="+filepath.Join(dir, "config.yaml"))
	}
	unchanged(t, dir, func() {
		c := app.NewCommand()
		c.SetArgs(args)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // one that starts would run for ever
		defer cancel()
		err := c.ExecuteContext(ctx)
		if err == nil || ctx.Err() != nil {
			t.Fatalf("the scheduler ran: %v", err)
		}
		answer = err.Error()
	})
	return answer
}
