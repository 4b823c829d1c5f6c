package host_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

type kubelet = annotation.Kubelet

func TestKubeletSettings(t *testing.T) {
	t.Parallel()
	plain := annotation.Kubelet{
		CPU: annotation.KubeletCPU{Policy: "none"}, Memory: annotation.KubeletMemory{Policy: "None"},
		Topology: annotation.KubeletTopology{Policy: "none", Scope: "container"},
	}
	on := func(words ...string) map[string]string {
		m := map[string]string{}
		for _, w := range words {
			m[w] = "true"
		}
		return m
	}
	tests := map[string]func(*kubelet){
		"":     func(*kubelet) {},
		"none": func(*kubelet) {},
		"static,full-pcpus-only,distribute-cpus-across-numa,align-by-socket,strict-cpu-reservation": func(k *kubelet) {
			k.CPU.Policy = "static"
			k.CPU.Options = on("full-pcpus-only", "distribute-cpus-across-numa", "align-by-socket",
				"strict-cpu-reservation")
			k.Gates = map[string]bool{"CPUManagerPolicyAlphaOptions": true}
		},
		"static,full-pcpus-only,prefer-align-cpus-by-uncorecache,version=1.36": func(k *kubelet) {
			k.CPU.Policy, k.Version, k.CPU.Options = "static", "v1.36.0",
				on("full-pcpus-only", "prefer-align-cpus-by-uncorecache")
		},
		"static,prefer-align-cpus-by-uncorecache,version=v1.33.4": func(k *kubelet) {
			k.CPU.Policy, k.Version, k.CPU.Options = "static", "v1.33.4", on("prefer-align-cpus-by-uncorecache")
			k.Gates = map[string]bool{"CPUManagerPolicyAlphaOptions": true}
		},
		"static,distribute-cpus-across-cores,reserved=0-1,8,version=v1.35.2+k3s1": func(k *kubelet) {
			k.CPU.Policy, k.Version, k.CPU.Reserved, k.CPU.Options = "static", "v1.35.2+k3s1", "0-1,8",
				on("distribute-cpus-across-cores")
			k.Gates = map[string]bool{"CPUManagerPolicyAlphaOptions": true}
		},
		"memory-static,reserved-memory=0:1Gi,1:hugepages-2Mi:64Mi,1:512Mi,restricted,pod-scope": func(k *kubelet) {
			k.Memory.Policy, k.Topology.Policy, k.Topology.Scope = "Static", "restricted", "pod"
			k.Memory.Reserved = map[int32]corev1.ResourceList{
				0: {"memory": resource.MustParse("1Gi")},
				1: {"memory": resource.MustParse("512Mi"), "hugepages-2Mi": resource.MustParse("64Mi")},
			}
		},
		"best-effort,prefer-closest-numa-nodes,max-allowable-numa-nodes=16,scope=container": func(k *kubelet) {
			k.Topology.Policy = "best-effort"
			k.Topology.Options = on("prefer-closest-numa-nodes")
			k.Topology.Options["max-allowable-numa-nodes"] = "16"
		},
		"scope=pod, pod-scope, single-numa-node, static, static": func(k *kubelet) {
			k.Topology.Policy, k.Topology.Scope, k.CPU.Policy = "single-numa-node", "pod", "static"
		},
	}
	for text, change := range tests {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			want := plain
			change(&want)
			got, err := host.ParseKubelet(text)
			testkit.Check(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("ParseKubelet(%q) (-want +got):\n%s", text, diff)
			}
		})
	}
}

func TestSettingsUnderWhichNoKubeletStartsAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"static,full-pcpus-only,distribute-cpus-across-cores": "full-pcpus-only cannot be combined " +
			"with distribute-cpus-across-cores",
		"static,distribute-cpus-across-numa,distribute-cpus-across-cores": "distribute-cpus-across-numa cannot " +
			"be combined",
		"static,prefer-align-cpus-by-uncorecache,distribute-cpus-across-cores": "prefer-align-cpus-by-uncorecache " +
			"cannot be combined with distribute-cpus-across-cores",
		"static,prefer-align-cpus-by-uncorecache,distribute-cpus-across-numa": "prefer-align-cpus-by-uncorecache " +
			"cannot be combined with distribute-cpus-across-numa",
		"static,align-by-socket,single-numa-node": "align-by-socket cannot be combined " +
			"with the topology policy single-numa-node",
		"align-by-socket":       "need the CPU policy static",
		"none,reserved=0":       "need the CPU policy static",
		"reserved-memory=0:1Gi": "needs memory-static",
		"pod-scope": "need one of the topology policies best-effort, restricted, " +
			"single-numa-node",
		"static,prefer-closest-numa-nodes":                                 "need one of the topology policies",
		"restricted,max-allowable-numa-nodes=7":                            "want a number from 8 on",
		"restricted,max-allowable-numa-nodes=many":                         "want a number from 8 on",
		"restricted,max-allowable-numa-nodes=8,max-allowable-numa-nodes=9": "8 and 9",
		"restricted,scope=pod,scope=container":                             "topology scopes pod and container",
		"restricted,single-numa-node": "topology policies restricted and " +
			"single-numa-node",
		"static,reserved=0,reserved=1":                "reserved CPUs 0 and 1",
		"version=1.35,version=1.36":                   "versions v1.35.0 and v1.36.0",
		"version=2.0":                                 "want 1.MINOR or v1.MINOR.PATCH",
		"version=newest":                              "want 1.MINOR or v1.MINOR.PATCH",
		"memory-static,reserved-memory=1Gi":           "want NODE:AMOUNT",
		"memory-static,reserved-memory=0:0":           "not a positive quantity",
		"memory-static,reserved-memory=0:-1Gi":        "not a positive quantity",
		"memory-static,reserved-memory=0:1e-99999999": "not a positive quantity",
		"memory-static,reserved-memory=0:cpu:1":       "neither memory nor hugepages-SIZE",
		"memory-static,reserved-memory=0:1Gi,0:2Gi":   "memory of node 0 is said twice",
		"memory-static,reserved-memory=x:1Gi":         "want NODE:AMOUNT",
		"exclusive": `unknown kubelet setting "exclusive": ` +
			`want any of none, static, full-pcpus-only`,
		"policy=static":      `unknown kubelet setting "policy=static"`,
		"static,,restricted": `unknown kubelet setting ""`,
	} {
		if k, err := host.ParseKubelet(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseKubelet(%q) = %+v, %v, want an error that says %q", text, k, err, want)
		}
	}
}

func TestEveryListedSettingIsUnderstood(t *testing.T) {
	t.Parallel()
	sample := map[string]string{
		"reserved=LIST":                      "static,reserved=0",
		"reserved-memory=NODE[:TYPE]:AMOUNT": "memory-static,reserved-memory=0:1Gi",
		"max-allowable-numa-nodes=N":         "restricted,max-allowable-numa-nodes=8",
		"version=1.MINOR":                    "version=1.34",
	}
	for _, word := range host.KubeletSettings() {
		text, ok := sample[word]
		if !ok {
			text = word
		}
		_, err := host.ParseKubelet(text)
		_, err2 := host.ParseKubelet("static,memory-static,restricted," + text)
		if err != nil && err2 != nil {
			t.Errorf("ParseKubelet(%q) = %v, %v: it is listed", text, err, err2)
		}
	}
	want := []string{"max-allowable-numa-nodes", "reserved", "reserved-memory", "scope", "version"}
	if got := host.KubeletKeys(); !slices.Equal(got, want) {
		t.Errorf("KubeletKeys() = %v, want %v", got, want)
	}
}

func TestWhetherAKubeletStartsOnAMachine(t *testing.T) {
	t.Parallel()
	spec := topo.Spec{NUMA: []topo.NUMASpec{{ID: 0, MemoryBytes: 4 << 30}, {ID: 1, MemoryBytes: 4 << 30}}}
	for c := range 8 {
		spec.CPUs = append(spec.CPUs, topo.CPUSpec{
			ID: c, Core: c, L3: -1, Socket: c / 2, NUMA: c / 4,
			Offline: c == 7,
		})
	}
	m := grid.Build(t, spec)
	tests := map[string]string{
		"": "", "static,reserved=0-1": "", "memory-static,reserved-memory=1:1Gi": "",
		"restricted,max-allowable-numa-nodes=8": "",
		"static,reserved=9":                     "names CPUs that are not online",
		"static,reserved=7":                     "names CPUs that are not online: the machine has 0-6",
		"static,align-by-socket":                "no more sockets than NUMA nodes: it has 4 and 2",
		"memory-static,reserved-memory=2:1Gi":   "NUMA node 2, which the machine does not have",
		"memory-static,reserved-memory=1:5Gi":   "5368709120 bytes of NUMA node 1, which has 4294967296",
	}
	for text, want := range tests {
		k, err := host.ParseKubelet(text)
		testkit.Check(t, err)
		err = host.CheckKubelet(&k, m)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: CheckKubelet = %v, want %q", text, err, want)
		}
	}
	m = grid.Machine{Nodes: 9}.Build(t)
	for text, starts := range map[string]bool{
		"none": true, "restricted": false,
		"restricted,max-allowable-numa-nodes=9": true,
	} {
		k, _ := host.ParseKubelet(text)
		if err := host.CheckKubelet(&k, m); (err == nil) != starts {
			t.Errorf("%q on nine NUMA nodes: %v, want it to start: %v", text, err, starts)
		}
	}
}
