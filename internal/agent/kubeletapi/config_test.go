package kubeletapi_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/testkit"
)

// answer is what a kubelet 1.36 says, cut down to some fields that are read and some that are not.
const answer = `{"kubeletconfig":{"enableServer":true,"syncFrequency":"1m0s","address":"0.0.0.0","port":10250,
"authentication":{"x509":{"clientCAFile":"/etc/kubernetes/pki/ca.crt"},"webhook":{"enabled":true,"cacheTTL":"2m0s"}},
"cgroupRoot":"/tenon","cgroupsPerQOS":true,"cgroupDriver":"systemd",
"cpuManagerPolicy":"static","cpuManagerPolicyOptions":{"full-pcpus-only":"True","align-by-socket":"false"},"cpuManagerReconcilePeriod":"10s",
"memoryManagerPolicy":"Static","topologyManagerPolicy":"restricted","topologyManagerScope":"pod",
"topologyManagerPolicyOptions":{"max-allowable-numa-nodes":"12","prefer-closest-numa-nodes":"1"},
"evictionHard":{"memory.available":"100Mi"},"featureGates":{"CPUManagerPolicyAlphaOptions":true},
"systemReserved":{"cpu":"500m","memory":"1Gi"},"kubeReserved":{"cpu":"1"},"reservedSystemCPUs":"3,0-1",
"reservedMemory":[{"numaNode":0,"limits":{"memory":"1Gi","hugepages-2Mi":"64Mi"}},{"numaNode":1,"limits":{"memory":"512Mi"}}],
"containerRuntimeEndpoint":"unix:///run/containerd/containerd.sock","newInTheYear2030":{"any":["thing"]}}}`

func TestSettingsAreReadAsTheKubeletSpellsThem(t *testing.T) {
	t.Parallel()
	got, err := kubeletapi.ParseConfig([]byte(answer))
	testkit.Check(t, err)
	want := kubeletapi.Config{
		Kubelet: annotation.Kubelet{
			CPU: annotation.KubeletCPU{
				Policy: "static", Options: map[string]string{"full-pcpus-only": "true"}, Reserved: "0-1,3",
			},
			Memory: annotation.KubeletMemory{Policy: "Static", Reserved: map[int32]corev1.ResourceList{
				0: {"memory": resource.MustParse("1Gi"), "hugepages-2Mi": resource.MustParse("64Mi")},
				1: {"memory": resource.MustParse("512Mi")},
			}},
			Topology: annotation.KubeletTopology{
				Policy: "restricted", Scope: "pod",
				Options: map[string]string{"max-allowable-numa-nodes": "12", "prefer-closest-numa-nodes": "true"},
			},
			Gates: map[string]bool{"CPUManagerPolicyAlphaOptions": true},
		},
		ReservedMilliCPU: 1500, CgroupRoot: "/tenon",
		CgroupDriver: host.Systemd, RuntimeEndpoint: "unix:///run/containerd/containerd.sock",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings differ (-want +got):\n%s", diff)
	}
}

func TestWhatAKubeletLeavesOutHasItsDefault(t *testing.T) {
	t.Parallel()
	got, err := kubeletapi.ParseConfig([]byte(`{"kubeletconfig":{"cpuManagerPolicy":"none"}}`))
	testkit.Check(t, err)
	want := kubeletapi.Config{
		Kubelet: annotation.Kubelet{
			CPU: annotation.KubeletCPU{Policy: "none"}, Memory: annotation.KubeletMemory{Policy: "None"},
			Topology: annotation.KubeletTopology{Policy: "none", Scope: "container"},
		},
		CgroupDriver: host.Cgroupfs,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings differ (-want +got):\n%s", diff)
	}
}

func TestSettingsThatCannotBeReadAreRefusedByName(t *testing.T) {
	t.Parallel()
	with := func(field string) string { return `{"kubeletconfig":{"cpuManagerPolicy":"static",` + field + `}}` }
	tests := map[string]struct{ text, says string }{
		"nothing":                   {``, "unexpected end"},
		"half an answer":            {answer[:len(answer)/2], "unexpected end"},
		"a page":                    {`<html>`, "invalid character"},
		"another object":            {`{"componentconfig":{}}`, "has no kubeletconfig"},
		"no settings":               {`{"kubeletconfig":null}`, "has no kubeletconfig"},
		"settings without a policy": {`{"kubeletconfig":{}}`, "has no kubeletconfig.cpuManagerPolicy"},
		"an unknown CPU policy": {
			`{"kubeletconfig":{"cpuManagerPolicy":"quantum"}}`,
			`kubeletconfig.cpuManagerPolicy is "quantum": want none, static`,
		},
		"an unknown memory policy": {
			with(`"memoryManagerPolicy":"BestEffort"`),
			"kubeletconfig.memoryManagerPolicy",
		},
		"an unknown topology policy": {
			with(`"topologyManagerPolicy":"strict"`),
			"want none, best-effort, restricted, single-numa-node",
		},
		"an unknown scope":         {with(`"topologyManagerScope":"node"`), "kubeletconfig.topologyManagerScope"},
		"an unknown driver":        {with(`"cgroupDriver":"x"`), "want cgroupfs, systemd"},
		"a reservation of no CPUs": {with(`"reservedSystemCPUs":"3-1"`), "kubeletconfig.reservedSystemCPUs"},
		"an amount that is none":   {with(`"kubeReserved":{"cpu":"two"}`), "kubeletconfig.kubeReserved[cpu]"},
		"an amount without end":    {with(`"kubeReserved":{"cpu":"1e-2147483647"}`), "kubeletconfig.kubeReserved[cpu]"},
		"a negative amount":        {with(`"systemReserved":{"cpu":"-1"}`), "kubeletconfig.systemReserved[cpu]"},
		"memory of a node below zero": {
			with(`"reservedMemory":[{"numaNode":-1,"limits":{"memory":"1Gi"}}]`),
			"kubeletconfig.reservedMemory[0].numaNode",
		},
		"memory without an amount": {
			with(`"reservedMemory":[{"numaNode":0,"limits":{"memory":""}}]`),
			"kubeletconfig.reservedMemory[0].limits[memory]",
		},
		"a policy that is a number": {`{"kubeletconfig":{"cpuManagerPolicy":1}}`, "cpuManagerPolicy"},
		"a root above the root":     {with(`"cgroupRoot":"/a/../.."`), "kubeletconfig.cgroupRoot"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := kubeletapi.ParseConfig([]byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("ParseConfig(%s) = %v, want an error that says %q", tt.text, err, tt.says)
			}
			if diff := cmp.Diff(kubeletapi.Config{}, got); diff != "" {
				t.Errorf("a refused answer gives something:\n%s", diff)
			}
		})
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(answer))
	f.Add(
		[]byte(
			`{"kubeletconfig":{"cpuManagerPolicy":"none","reservedMemory":[{"numaNode":0,` +
				`"limits":{"memory":"9e99"}}]}}`))
	f.Add(
		[]byte(
			`{"kubeletconfig":{"cpuManagerPolicy":"static","kubeReserved":{"cpu":"9223372036854775807"},` +
				`"systemReserved":{"cpu":"9E"}}}`))
	f.Add([]byte(`{"kubeletconfig":{"cpuManagerPolicy":"c","kubeReserved":{"cpu":"E3320368592234775807"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := kubeletapi.ParseConfig(text)
		if err != nil {
			return
		}
		if c.ReservedMilliCPU < 0 {
			t.Errorf("a reservation of %d", c.ReservedMilliCPU)
		}
		for id, types := range c.Kubelet.Memory.Reserved {
			for kind, amount := range types {
				if id < 0 || amount.Sign() < 0 {
					t.Errorf("%s of %s on NUMA node %d are reserved", amount.String(), kind, id)
				}
			}
		}
		if _, err := host.ParseKubelet("static,reserved=" + c.Kubelet.CPU.Reserved); err != nil &&
			c.Kubelet.CPU.Reserved != "" {
			t.Errorf("reserved CPUs %q are no list: %v", c.Kubelet.CPU.Reserved, err)
		}
	})
}
