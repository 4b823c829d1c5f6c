package convert_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube/convert"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// TestAProblemNamesTheNodeThatIsNotThere: what the agent has copied from the Node is still its own.
func TestAProblemNamesTheNodeThatIsNotThere(t *testing.T) {
	t.Parallel()
	nrt := newNRT(map[string]string{annotation.NodeReservation: "{"})
	var known convert.Known
	_, problems := known.Read(convert.Sources{Topology: nrt}, convert.DefaultArgs())
	if len(problems) != 1 || problems[0].Object != "Node/"+nrt.Name || nrt.Name == "" {
		t.Errorf("got %+v, want one problem of Node/%s", problems, nrt.Name)
	}
	_, problems = known.Read(convert.Sources{Topology: newNRT(nil)}, convert.DefaultArgs())
	if len(problems) != 0 {
		t.Errorf("without the copy: %+v", problems)
	}
}

func TestKnownAnswersAsFactsDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var known convert.Known
		texts := []string{twoNodes, fourNodes, `{"detail":[]}`, `{`, ""}
		kubelets := []string{
			`{"cpu":{"policy":"static","reserved":"0-1"}}`, "",
			`{"cpu":{"policy":"none"},"topology":{"policy":"restricted"}}`,
			`{"cpu":{"policy":"static","reserved":"0-1","options":{"full-pcpus-only":"true"}}}`, `{"cpu":1}`,
		}
		managers := []string{`{"policy":"static","reservedCPUs":"1"}`, `{"policy":"none"}`, `[`}
		for range rapid.IntRange(1, 12).Draw(t, "nodes") {
			nrt := newNRT(map[string]string{
				annotation.CPUTopology:     rapid.SampledFrom(texts).Draw(t, "topology"),
				annotation.NodeReservation: `{"reservedCPUs":"0"}`,
				annotation.KubeletKey:      rapid.SampledFrom(kubelets).Draw(t, "kubelet"),
			})
			if rapid.Bool().Draw(t, "manager") {
				nrt.Annotations[annotation.KubeletCPUManagerPolicy] = rapid.SampledFrom(managers).Draw(t, "policy")
			}
			if rapid.Bool().Draw(t, "zones") {
				nrt.Zones = v1alpha2.ZoneList{
					{Name: "node-0", Type: "Node", Costs: v1alpha2.CostList{
						{Name: "node-0", Value: 10},
						{Name: "node-1", Value: rapid.Int64Range(11, 12).Draw(t, "distance")},
					}},
					{Name: "node-1", Type: rapid.SampledFrom([]string{"Node", "cache"}).Draw(t, "type")},
				}
			}
			node := newNode(map[string]string{"kubernetes.io/arch": rapid.SampledFrom([]string{
				"amd64",
				"arm64",
			}).Draw(t, "arch")})
			want, wantProblems := convert.Facts(node, nrt, convert.DefaultArgs())
			got, problems := known.Read(convert.Sources{Node: node, Topology: nrt}, convert.DefaultArgs())
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(ledger.Facts{}, "Machine"),
				cmp.Transformer("list", cpuset.Set.String)); diff != "" {
				t.Fatalf("facts (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(wantProblems, problems); diff != "" {
				t.Fatalf("problems (-want +got):\n%s", diff)
			}
			if (want.Machine == nil) != (got.Machine == nil) || want.Machine != nil &&
				!want.Machine.Equal(got.Machine) {
				t.Fatalf("machine %v, want %v", got.Machine, want.Machine)
			}
		}
	})
}

func TestKnownSharesMachines(t *testing.T) {
	t.Parallel()
	var known convert.Known
	read := func(text string) *topo.Machine {
		nrt := newNRT(map[string]string{annotation.CPUTopology: text})
		f, _ := known.Read(convert.Sources{Topology: nrt}, convert.DefaultArgs())
		return f.Machine
	}
	if read(twoNodes) != read("  "+twoNodes) {
		t.Error("equal machines of two texts are two values")
	}
}
