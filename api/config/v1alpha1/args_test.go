package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	floor := int32(0)
	tests := map[string]struct {
		obj  runtime.Object
		want func(*v1alpha1.NodeNUMAResourceArgs)
	}{
		"no arguments":    {obj: nil},
		"empty arguments": {obj: &runtime.Unknown{Raw: []byte(`{}`)}},
		"arguments of Koordinator with their kind": {
			obj: &runtime.Unknown{Raw: []byte(
				`{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"NodeNUMAResourceArgs",` +
					`"defaultCPUBindPolicy":"SpreadByPCPUs","scoringStrategy":{"type":"MostAllocated"},` +
					`"numaScoringStrategy":{"type":"MostAllocated"}}`)},
			want: func(a *v1alpha1.NodeNUMAResourceArgs) {
				a.APIVersion, a.Kind = "kubescheduler.config.k8s.io/v1", "NodeNUMAResourceArgs"
				a.DefaultCPUBindPolicy, a.ScoringStrategy.Type, a.NUMAScoringStrategy.Type = "SpreadByPCPUs",
					"MostAllocated", "MostAllocated"
			},
		},
		"our own, in YAML": {
			obj: &runtime.Unknown{
				ContentType: runtime.ContentTypeYAML,
				Raw: []byte(
					"minSharedCPUs: 0\nbindAllPodsOnPolicyNodes: true\nvolcanoScore: " +
						"true\nvolcanoStrictPolicyMatch: true\ndefaultNUMATopologyPolicy: BestEffort\n" +
						"followAssumedKubelets: Refuse\n"),
			},
			want: func(a *v1alpha1.NodeNUMAResourceArgs) {
				a.MinSharedCPUs, a.BindAllPodsOnPolicyNodes = &floor, true
				a.VolcanoScore, a.VolcanoStrictPolicyMatch = true, true
				a.DefaultNUMATopologyPolicy, a.FollowAssumedKubelets = "BestEffort", v1alpha1.FollowRefuse
			},
		},
		"weights that say the default in other words": {
			obj: &runtime.Unknown{Raw: []byte(
				`{"scoringStrategy":{"resources":[{"name":"memory","weight":3},{"name":"cpu","weight":3}]}}`)},
			want: func(a *v1alpha1.NodeNUMAResourceArgs) {
				a.ScoringStrategy.Resources = []v1alpha1.ResourceWeight{
					{Name: "memory", Weight: 3},
					{Name: "cpu", Weight: 3},
				}
			},
		},
		"arguments that are decoded already": {
			obj:  &v1alpha1.NodeNUMAResourceArgs{DefaultCPUExclusivePolicy: "PCPULevel"},
			want: func(a *v1alpha1.NodeNUMAResourceArgs) { a.DefaultCPUExclusivePolicy = "PCPULevel" },
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := v1alpha1.Default()
			if tt.want != nil {
				tt.want(&want)
			}
			got, err := v1alpha1.Decode[v1alpha1.NodeNUMAResourceArgs](tt.obj)
			testkit.Check(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		raw  string
		want []string // each in the text
	}{
		"an unknown field": {
			`{"defaultCPUBindPolcy":"FullPCPUs"}`,
			[]string{`defaultCPUBindPolcy: unknown field, did you mean "defaultCPUBindPolicy"?`},
		},
		"an unknown field inside": {
			`{"scoringStrategy":{"typ":"MostAllocated"}}`,
			[]string{`scoringStrategy.typ: unknown field, did you mean "type"?`},
		},
		"another case": {
			`{"minsharedcpus":1}`,
			[]string{`minsharedcpus: unknown field, did you mean "minSharedCPUs"?`},
		},
		"a field twice": {`{"minSharedCPUs":1,"minSharedCPUs":2}`, []string{"minSharedCPUs"}},
		"a wrong type": {
			`{"minSharedCPUs":"two"}`,
			[]string{`NodeNUMAResourceArgs:1:2: minSharedCPUs: "two" is not allowed: use a number`},
		},
		"no object": {`[]`, []string{"NodeNUMAResourceArgs:1:1: a list is not allowed: use an object"}},
		"another kind": {
			`{"kind":"DeviceShareArgs"}`,
			[]string{`kind: Unsupported value: "DeviceShareArgs": supported values: "NodeNUMAResourceArgs"`},
		},
		"another version": {
			`{"apiVersion":"kubescheduler.config.k8s.io/v1beta3"}`,
			[]string{`apiVersion: Unsupported value: "kubescheduler.config.k8s.io/v1beta3"`},
		},
		"an unknown bind policy": {
			`{"defaultCPUBindPolicy":"ConstrainedBurst"}`,
			[]string{`defaultCPUBindPolicy: Unsupported value: "ConstrainedBurst": supported values: "FullPCPUs", ` +
				`"SpreadByPCPUs"`},
		},
		"an unknown exclusive": {
			`{"defaultCPUExclusivePolicy":"x"}`,
			[]string{`defaultCPUExclusivePolicy: Unsupported value: "x"`},
		},
		"an unknown topology policy": {
			`{"defaultNUMATopologyPolicy":"single-numa-node"}`,
			[]string{`defaultNUMATopologyPolicy: Unsupported value: "single-numa-node": supported values: "None", ` +
				`"BestEffort", "Restricted", "SingleNUMANode"`},
		},
		"an unknown trust": {
			`{"followAssumedKubelets":"Never"}`,
			[]string{`followAssumedKubelets: Unsupported value: "Never": supported values: "Refuse", ` +
				`"RankLast", "Trust"`},
		},
		"an unknown strategy": {
			`{"numaScoringStrategy":{"type":"DistributeEvenly"}}`,
			[]string{`numaScoringStrategy.type: Unsupported value: "DistributeEvenly"`},
		},
		"a negative floor": {
			`{"minSharedCPUs":-1}`,
			[]string{"minSharedCPUs: Invalid value: -1: must be 0 or more"},
		},
		"a resource that is not scored": {
			`{"scoringStrategy":{"resources":[{"name":"gpu"}]}}`,
			[]string{`scoringStrategy.resources[0].name: Unsupported value: "gpu"`},
		},
		"a resource twice": {
			`{"scoringStrategy":{"resources":[{"name":"cpu"},{"name":"cpu"}]}}`,
			[]string{`scoringStrategy.resources[1].name: Duplicate value: "cpu"`},
		},
		"unequal weights": {
			`{"scoringStrategy":{"resources":[{"name":"cpu","weight":1},` +
				`{"name":"memory","weight":2}]}}`,
			[]string{"scoringStrategy.resources[1].weight: Invalid value: 2: cpu and memory must weigh the same"},
		},
		"a weight out of range": {
			`{"scoringStrategy":{"resources":[{"name":"cpu","weight":101}]}}`,
			[]string{"scoringStrategy.resources[0].weight: Invalid value: 101: must be 1…100"},
		},
		"one resource of two": {
			`{"scoringStrategy":{"resources":[{"name":"cpu"}]}}`,
			[]string{"scoringStrategy.resources: Required value: cpu and memory must both be named"},
		},
		"all problems at once": {
			`{"minSharedCPUs":-1,"defaultCPUBindPolicy":"x"}`,
			[]string{"minSharedCPUs", "defaultCPUBindPolicy"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := v1alpha1.Decode[v1alpha1.NodeNUMAResourceArgs](&runtime.Unknown{Raw: []byte(tt.raw)})
			if err == nil {
				t.Fatalf("%s was accepted", tt.raw)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error of %s is %q, want %q in it", tt.raw, err, want)
				}
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(`{"minSharedCPUs":1}`)
	f.Add("scoringStrategy:\n  type: MostAllocated\n")
	f.Fuzz(func(t *testing.T, raw string) {
		a, err := v1alpha1.Decode[v1alpha1.NodeNUMAResourceArgs](&runtime.Unknown{Raw: []byte(raw)})
		if err != nil {
			return
		}
		if again, err := v1alpha1.Decode[v1alpha1.NodeNUMAResourceArgs](&a); err != nil || !cmp.Equal(a, again) {
			t.Fatalf("%q was read as %+v, which reads as %+v, %v", raw, a, again, err)
		}
	})
}
