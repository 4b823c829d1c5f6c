package convert_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// TestAliasesOfAPodGiveTheSameDecision is K2 for what a pod may say.
func TestAliasesOfAPodGiveTheSameDecision(t *testing.T) {
	t.Parallel()
	spec := func(text string) podOption { return annot(annotation.ResourceSpecKey, text) }
	status := func(text string) podOption { return annot(annotation.ResourceStatusKey, text) }
	policy := func(text string) podOption { return annot(annotation.NUMATopologySpecKey, text) }
	tests := map[string]struct{ canonical, alias podOption }{
		"QoS class in another case": {class("LSR"), class("lsr")},
		"bind policy PCPUOnly": {
			spec(`{"requiredCPUBindPolicy":"FullPCPUs"}`), spec(`{"requiredCPUBindPolicy":"PCPUOnly"}`),
		},
		"bind policy in another case": {
			spec(`{"preferredCPUBindPolicy":"SpreadByPCPUs"}`), spec(`{"preferredCPUBindPolicy":"spreadbypcpus"}`),
		},
		"bind policy Default": {spec(`{}`), spec(`{"preferredCPUBindPolicy":"Default"}`)},
		"exclusive policy PCPU": {
			spec(`{"preferredCPUExclusivePolicy":"PCPULevel"}`),
			spec(`{"preferredCPUExclusivePolicy":"PCPU"}`),
		},
		"exclusive policy Default":      {spec(`{}`), spec(`{"preferredCPUExclusivePolicy":"Default"}`)},
		"exclusive policy without name": {spec(`{}`), spec(`{"preferredCPUExclusivePolicy":""}`)},
		"topology policy of a kubelet": {
			policy(`{"numaTopologyPolicy":"SingleNUMANode"}`), policy(`{"numaTopologyPolicy":"single-numa-node"}`),
		},
		"CPU list with spaces and out of order": {status(`{"cpuset":"0-2,9"}`), status(`{"cpuset":"9, 0-1, 2"}`)},
		"shared pools as amounts by NUMA node": {
			status(`{"cpuSharedPools":[{"socket":0,"node":1}]}`),
			status(`{"numaNodeResources":[{"node":1,"resources":{"cpu":"2"}}]}`),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, others := range [][]podOption{{class("LSR"), container("2")}, {class("LS"), bounded("2", "4")}} {
				canonical, alias := newPod(append(others, tt.canonical)...), newPod(append(others, tt.alias)...)
				want, wantReason, _ := convert.Request(canonical, convert.DefaultArgs())
				got, reason, detail := convert.Request(alias, convert.DefaultArgs())
				if wantReason != reason {
					t.Fatalf("canonical: %+v, alias: %+v %s", wantReason, reason, detail)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("request (-canonical +alias):\n%s", diff)
				}
				onNode(canonical)
				onNode(alias)
				a, _ := convert.EntryUnder(convert.Args{}, canonical)
				b, _ := convert.EntryUnder(convert.Args{}, alias)
				if !a.Equal(b) {
					t.Errorf("entry of the canonical form %+v, of the alias %+v", a, b)
				}
			}
		})
	}
}

// TestAliasesOfANodeGiveTheSameFacts is K2 for what a node and its topology may say.
func TestAliasesOfANodeGiveTheSameFacts(t *testing.T) {
	t.Parallel()
	type object struct{ labels, topology map[string]string }
	labels := func(key, value string) object { return object{labels: map[string]string{key: value}} }
	topology := func(key, value string) object { return object{topology: map[string]string{key: value}} }
	static := `{"policy":"static","options":{"full-pcpus-only":"true"}}`
	tests := map[string]struct{ canonical, alias object }{
		"the topology label of seed 000": {
			labels(annotation.NodeNUMATopologyPolicy, "Restricted"),
			labels("node.koordinator.sh/numa-topology-alignment-policy", "Restricted"),
		},
		"the misprinted bind label of seed 000": {
			labels(annotation.NodeCPUBindPolicy, "SpreadByPCPUs"),
			labels("node.koordator.sh/cpubind-policy", "SpreadByPCPUs"),
		},
		"node bind policy PCPUOnly": {
			labels(annotation.NodeCPUBindPolicy, "FullPCPUsOnly"),
			labels(annotation.NodeCPUBindPolicy, "PCPUOnly"),
		},
		"node bind policy FullPCPUs": {
			labels(annotation.NodeCPUBindPolicy, "FullPCPUsOnly"),
			labels(annotation.NodeCPUBindPolicy, "FullPCPUs"),
		},
		"topology policy none": {
			labels(annotation.NodeNUMATopologyPolicy, "None"),
			labels(annotation.NodeNUMATopologyPolicy, "none"),
		},
		"topology policy best-effort": {
			labels(annotation.NodeNUMATopologyPolicy, "BestEffort"),
			labels(annotation.NodeNUMATopologyPolicy, "best-effort"),
		},
		"topology policy restricted": {
			labels(annotation.NodeNUMATopologyPolicy, "Restricted"),
			labels(annotation.NodeNUMATopologyPolicy, "restricted"),
		},
		"topology policy single-numa-node": {
			labels(annotation.NodeNUMATopologyPolicy, "SingleNUMANode"),
			labels(annotation.NodeNUMATopologyPolicy, "single-numa-node"),
		},
		"allocate strategy in another case": {
			labels(annotation.NodeNUMAAllocateStrategy, "DistributeEvenly"),
			labels(annotation.NodeNUMAAllocateStrategy, "distributeevenly"),
		},
		"kubelet policy under cpu-manger-policy": {
			topology(annotation.KubeletCPUManagerPolicy, static),
			topology("kubelet.koordinator.sh/cpu-manger-policy", static),
		},
		"kubelet policy under kubelet.koartiator": {
			topology(annotation.KubeletCPUManagerPolicy, static),
			topology("kubelet.koartiator.sh/cpu-manager-policy", static),
		},
		"kubelet option True": {
			topology(annotation.KubeletCPUManagerPolicy, static),
			topology(annotation.KubeletCPUManagerPolicy, `{"policy":"static","options":{"full-pcpus-only":"True"}}`),
		},
		"kubelet option 1": {
			topology(annotation.KubeletCPUManagerPolicy, static),
			topology(annotation.KubeletCPUManagerPolicy, `{"policy":"static","options":{"full-pcpus-only":"1"}}`),
		},
		"allocation under cpu, by a string": {
			topology(annotation.PodCPUAllocsKey, `[{"uid":"u","cpuset":"1","managedByKubelet":true}]`),
			topology(annotation.PodCPUAllocsKey, `[{"uid":"u","cpu":"1","managedByKubelet":"true"}]`),
		},
		"allocations null": {topology(annotation.PodCPUAllocsKey, `[]`), topology(annotation.PodCPUAllocsKey, `null`)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := func(o object) ledger.Facts {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: o.labels}}
				nrt := map[string]string{annotation.CPUTopology: fourNodes}
				for k, v := range o.topology {
					nrt[k] = v
				}
				f, problems := convert.Facts(node, newNRT(nrt), convert.DefaultArgs())
				if len(problems) > 0 {
					t.Errorf("%+v has problems: %v", o, problems)
				}
				return f
			}
			if a, b := facts(tt.canonical), facts(tt.alias); !a.Equal(&b) {
				t.Errorf("facts of the canonical form %+v, of the alias %+v", a, b)
			}
		})
	}
}
