package kube_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
)

// exported is a node of 8 CPUs on two NUMA nodes as an exporter writes it.
func exported(name, free string) *unstructured.Unstructured {
	cpus := map[string]any{}
	for c := range 8 {
		cpus[strconv.Itoa(c)] = map[string]any{"numa": int64(c / 4), "socket": int64(c / 4), "core": int64(c % 4)}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "nodeinfo.volcano.sh/v1alpha1", "kind": "Numatopology",
		"metadata": map[string]any{"name": name, "annotations": map[string]any{"timestamp": "1"}},
		"spec": map[string]any{
			"policies":    map[string]any{"CPUManagerPolicy": "static", "TopologyManagerPolicy": "restricted"},
			"resReserved": map[string]any{"cpu": "1"},
			"numares":     map[string]any{"cpu": map[string]any{"allocatable": free, "capacity": int64(8)}},
			"cpuDetail":   cpus,
		},
	}}
}

func TestNumatopologyCacheKeepsTheSpecAndSharesMachines(t *testing.T) {
	c, _ := client(t, exported("a", "0-7"), exported("b", "4-7"))
	i := kube.NewNumatopologyInformer(c)
	start(t, i)
	a, _, _ := i.GetStore().GetByKey("a")
	b, _, _ := i.GetStore().GetByKey("b")
	x, y := a.(*nodeinfo.Numatopology), b.(*nodeinfo.Numatopology)
	if len(x.Annotations) != 0 || len(x.Spec.CPUDetail) != 8 ||
		x.Spec.Policies[nodeinfo.CPUManagerPolicy] != "static" || y.Spec.NumaResMap["cpu"].Allocatable != "4-7" {
		t.Errorf("got %+v, want the spec and no annotation", x)
	}
	x.Spec.CPUDetail["probe"] = nodeinfo.CPUInfo{}
	if _, shared := y.Spec.CPUDetail["probe"]; !shared {
		t.Error("equal machines have a map of CPUs each")
	}
}

func TestNumatopologiesThatAreNotInstalledYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, server := client(t, exported("a", "0-7"))
		var installed atomic.Bool
		server.hidden = func() bool { return !installed.Load() }
		s := kube.NewStore()
		i := kube.NewNumatopologyInformer(c)
		if _, err := follow(accounts.Accounts{Nodes: s}, "Numatopology", i); err != nil {
			t.Fatal(err)
		}
		start(t, i)
		if s.Known("a") != nil {
			t.Fatal("an object is there before its resource")
		}
		installed.Store(true)
		time.Sleep(time.Minute) //nolint:forbidigo // the clock is the bubble's
		synctest.Wait()
		if s.View("a").Machine() == nil {
			t.Error("the object is not there after the installation")
		}
	})
}

func TestNumatopologyStandsInForAReport(t *testing.T) {
	t.Parallel()
	s := kube.NewStore()
	s.PutNode(node("n", nil))
	if got := s.View("n").Facts(); got.Machine != nil || got.Fault.Code != why.TopologyMissing {
		t.Fatalf("facts of an unknown node: %+v", got)
	}
	n := kube.ReadNumatopology(exported("n", "0-5"))
	s.PutNumatopology(n)
	v := s.View("n")
	if f := v.Facts(); f.Machine == nil || !f.Imported || f.Mode != ledger.Follow || f.Topology != hint.Restricted ||
		len(f.Given) != 1 || f.Given[0].CPUs.Len() != 2 {
		t.Fatalf("facts from an exporter: %+v", f)
	}
	if !s.AnyStaticKubelet() {
		t.Error("the cluster's counters miss the node")
	}
	if s.AnyConstrained() {
		t.Error("a node whose kubelet chooses, which does not confine shared pods, is counted as constrained")
	}
	again := n.DeepCopy()
	again.Annotations = map[string]string{"timestamp": "2"}
	if s.PutNumatopology(again); s.View("n") != v {
		t.Error("a new time stamp made a new account")
	}
	s.PutTopology(topology(t, "n", machine(t, 2, 2)))
	if f := s.View("n").Facts(); f.Imported || f.Machine.NumNUMA() != 2 || f.Model.Config.CPU.Static {
		t.Errorf("the agent's report does not count before the exporter's: %+v", f)
	}
	s.RemoveTopology("n")
	if !s.View("n").Facts().Imported {
		t.Error("without the report the exporter does not count again")
	}
	s.RemoveNumatopology("n")
	s.RemoveNode("n")
	if s.Known("n") != nil || s.AnyStaticKubelet() {
		t.Error("the node is not forgotten")
	}
}

func TestOddNumatopologiesHaveNoCPUs(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(spec map[string]any){
		"a NUMA node in words": func(s map[string]any) {
			s["cpuDetail"].(map[string]any)["3"] = map[string]any{"numa": "one"}
		},
		"CPUs in a list": func(s map[string]any) { s["cpuDetail"] = []any{} },
		"free CPUs that are numbers": func(s map[string]any) {
			s["numares"] = map[string]any{"cpu": map[string]any{"allocatable": int64(3)}}
		},
	} {
		odd := exported("n", "0-7")
		change(odd.Object["spec"].(map[string]any))
		s := kube.NewStore()
		s.PutNumatopology(kube.ReadNumatopology(odd))
		known, _ := s.Node("n")
		if f := known.View.Facts(); f.Machine != nil || f.Fault.Code != why.InvalidTopology ||
			len(known.Problems) != 1 {
			t.Errorf("%s: machine %v, fault %s, problems %v; want no machine, %s and one problem", name, f.Machine,
				f.Fault.Code, known.Problems, why.InvalidTopology)
		}
	}
	odd := exported("n", "0-7")
	odd.Object["spec"].(map[string]any)["policies"] = "static"
	if n := kube.ReadNumatopology(odd); len(n.Spec.CPUDetail) != 8 || n.Spec.Policies != nil {
		t.Errorf("odd policies: got %+v, want them left out and the machine kept", n.Spec)
	}
	if n := kube.ReadNumatopology(
		&unstructured.Unstructured{Object: map[string]any{"spec": "none"}}); n.Spec.CPUDetail != nil {
		t.Errorf("a spec that is none: %+v", n.Spec)
	}
}
