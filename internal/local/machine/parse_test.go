package machine_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestSpecsOfTheFlagMachine(t *testing.T) {
	t.Parallel()
	none := annotation.Kubelet{
		CPU: annotation.KubeletCPU{Policy: "none"}, Memory: annotation.KubeletMemory{Policy: "None"},
		Topology: annotation.KubeletTopology{Policy: "none", Scope: "container"},
	}
	tests := map[string]struct {
		name    string
		count   int
		kubelet func(*annotation.Kubelet)
	}{
		"epyc-2s":                 {"epyc-2s", 1, nil},
		"epyc-2s=3":               {"epyc-2s", 3, nil},
		"xeon-2s@":                {"xeon-2s", 1, nil},
		"xeon-2s@none,restricted": {"xeon-2s", 1, func(k *annotation.Kubelet) { k.Topology.Policy = "restricted" }},
		"xeon-2s@restricted": {"xeon-2s", 1, func(k *annotation.Kubelet) { // a topology policy implies static
			k.CPU.Policy, k.CPU.Reserved, k.Topology.Policy = "static", "0,48", "restricted"
		}},
		"xeon-2s,kubelet=restricted": {"xeon-2s", 1, func(k *annotation.Kubelet) {
			k.CPU.Policy, k.CPU.Reserved, k.Topology.Policy = "static", "0,48", "restricted"
		}},
		"xeon-2s,kubelet=restricted+memory-static+full-pcpus-only=2": {"xeon-2s", 2, func(k *annotation.Kubelet) {
			k.CPU.Policy, k.CPU.Reserved, k.Topology.Policy = "static", "0,48", "restricted"
			k.CPU.Options = map[string]string{"full-pcpus-only": "true"}
			k.Memory.Policy = "Static"
			k.Memory.Reserved = map[int32]corev1.ResourceList{0: {"memory": resource.MustParse("1Gi")}}
		}},
		"xeon-2s@static+reserved=0+48,best-effort=7": {"xeon-2s", 7, func(k *annotation.Kubelet) {
			k.CPU.Policy, k.CPU.Reserved, k.Topology.Policy = "static", "0,48", "best-effort"
		}},
		"xeon-2s@memory-static,reserved-memory=0:1Gi,1:2Gi=3": {"xeon-2s", 3, func(k *annotation.Kubelet) {
			k.Memory.Policy = "Static"
			k.Memory.Reserved = map[int32]corev1.ResourceList{
				0: {"memory": resource.MustParse("1Gi")}, 1: {"memory": resource.MustParse("2Gi")},
			}
		}},
		"xeon-2s@version=1.34": {"xeon-2s", 1, func(k *annotation.Kubelet) { k.Version = "v1.34.0" }},
		"xeon-2s@static,version=1.37.1=2": {"xeon-2s", 2, func(k *annotation.Kubelet) {
			k.CPU.Policy, k.CPU.Reserved, k.Version = "static", "0,48", "v1.37.1"
		}},
		"hybrid@static": {"hybrid", 1, func(k *annotation.Kubelet) { // without reserved= the first core is reserved
			k.CPU.Policy, k.CPU.Reserved = "static", "0-1"
		}},
		"epyc-2s@static,full-pcpus-only,distribute-cpus-across-numa,single-numa-node,scope=pod,reserved=0-1,64-65=2": {
			"epyc-2s", 2, func(k *annotation.Kubelet) {
				k.CPU.Policy, k.CPU.Reserved, k.Topology.Policy, k.Topology.Scope = "static", "0-1,64-65",
					"single-numa-node", "pod"
				k.CPU.Options = map[string]string{"full-pcpus-only": "true", "distribute-cpus-across-numa": "true"}
			},
		},
		"arm64-1s@static,reserved=3": {
			"arm64-1s", 1,
			func(k *annotation.Kubelet) { k.CPU.Policy, k.CPU.Reserved = "static", "3" },
		},
		"arm64-1s@reserved=3,static=4": {
			"arm64-1s", 4,
			func(k *annotation.Kubelet) { k.CPU.Policy, k.CPU.Reserved = "static", "3" },
		},
	}
	for spec, test := range tests {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			d, count, err := machine.Parse(spec)
			testkit.Check(t, err)
			want := none
			if test.kubelet != nil {
				test.kubelet(&want)
			}
			if d.Name != test.name || count != test.count {
				t.Errorf("Parse(%q) = %s × %d, want %s × %d", spec, d.Name, count, test.name, test.count)
			}
			if diff := cmp.Diff(want, d.Kubelet); diff != "" {
				t.Errorf("Parse(%q) kubelet (-want +got):\n%s", spec, diff)
			}
		})
	}
}

func TestBadSpecsSayWhatIsMeant(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"epyc2s":                          "Did you mean epyc-2s?",
		"xeon":                            "not a preset (epyc-2s, xeon-2s, epyc-256, arm64-1s, snc2, hybrid, hgx-",
		"":                                "not a preset",
		"epyc-2s=0":                       `count "0": want a number from 1 to 10000`,
		"epyc-2s=many":                    `count "many"`,
		"epyc-2s=10001":                   "from 1 to 10000",
		"epyc-2s@statik":                  "Did you mean static?",
		"epyc-2s@static,none":             "CPU policies static and none",
		"epyc-2s@restricted,best-effort":  "topology policies restricted and best-effort",
		"epyc-2s@full-pcpus-only":         "need the CPU policy static",
		"epyc-2s@reserved=0-1":            "need the CPU policy static",
		"epyc-2s@static,reserved=":        "reserved= names no CPU",
		"epyc-2s@static,reserved=3-1":     "the end is below the start",
		"epyc-2s@static,reserved=500-501": "the machine has 0-127",
		"epyc-2s@scope=node":              "want container or pod",
		"/does/not/exist.tar.bz2":         "an archive or a folder",

		"xeon-2s@hugepages-4Mi=1Gi":        "supported 1Gi, 2Mi",
		"xeon-2s@hugepages-1Gi=1500Mi":     "must be a multiple of the page size",
		"xeon-2s@hugepages-1Gi=9e99999999": "must be a multiple of the page size",
		"xeon-2s@hugepages-1Gi=many":       "must be a multiple of the page size",
		"xeon-2s@hugepages-1Gi=200Gi":      "its huge pages take",
		"xeon-2s@hugepages-1Gi=8Gi=lots":   `count "lots"`,

		"epyc-2s@none,follow": "follow needs the CPU policy static",
		"epyc-2s@folow":       "Did you mean follow?",
		"epyc-2s@tight": `unknown kubelet setting "tight": ` +
			`want any of none, static, `,
		"epyc-2s@tight,restricted":        "version=1.MINOR, follow",
		"epyc-2s@static,version=1.35":     "runs the managers of Kubernetes 1.37",
		"epyc-2s@restricted,version=1.36": "runs the managers of Kubernetes 1.37",
		"epyc-2s@memory-static,reserved-memory=7:1Gi": "NUMA node 7, which the machine " +
			"does not have",
		"epyc-2s@memory-static,reserved-memory=0:1Ti": "NUMA node 0, which has",
		"epyc-2s@memory-static,reserved-memory=0:hugepages-2Mi:2Mi": "only with memory reserved for the " +
			"system",
		"epyc-2s@static,full-pcpus-only,distribute-cpus-across-numa,reserved=0": "splits a core",
	} {
		_, _, err := machine.Parse(spec)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) error = %v, want one that says %q", spec, err, want)
		}
	}
}

func TestHugepagesAreASettingOfTheMachine(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]struct {
		count int
		pages map[int64]int64 // of each NUMA node
	}{
		"xeon-2s":                   {1, nil},
		"xeon-2s@hugepages-1Gi=8Gi": {1, map[int64]int64{1 << 30: 8}},
		"xeon-2s@static,hugepages-2Mi=1Gi,hugepages-1Gi=2Gi=3": {3, map[int64]int64{1 << 30: 2, 2 << 20: 512}},
		"snc2":                 {1, map[int64]int64{1 << 30: 8, 2 << 20: 2048}},
		"snc2@hugepages-1Gi=0": {1, map[int64]int64{1 << 30: 0, 2 << 20: 2048}},
	} {
		d, count, err := machine.Parse(spec)
		if err != nil || count != want.count {
			t.Errorf("Parse(%q) = count %d, %v; want count %d", spec, count, err, want.count)
			continue
		}
		for _, n := range d.Spec().NUMA {
			if !maps.Equal(n.Hugepages, want.pages) {
				t.Errorf("%s: NUMA node %d has pages %v, want %v", spec, n.ID, n.Hugepages, want.pages)
			}
		}
	}
}

func TestFollowIsAWishOfTheNode(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]bool{
		"epyc-2s@follow": true, "epyc-2s,kubelet=restricted+follow": true, "epyc-2s@static,follow,restricted=2": true,
		"epyc-2s@static": false, "epyc-2s": false,
	} {
		d, _, err := machine.Parse(spec)
		testkit.Check(t, err)
		if d.Follow != want || want && d.Kubelet.CPU.Policy != "static" {
			t.Errorf("Parse(%q): follow is %t with the CPU policy %s, want %t and static", spec, d.Follow,
				d.Kubelet.CPU.Policy, want)
		}
	}
}

// broken returns the folder of a machine with four CPUs on the NUMA nodes of these ids.
func broken(t *testing.T, ids ...int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "box")
	put := func(text string, elem ...string) {
		t.Helper()
		name := filepath.Join(append([]string{dir, "sys/devices/system"}, elem...)...)
		testkit.Check(t, os.MkdirAll(filepath.Dir(name), 0o755))
		testkit.Check(t, os.WriteFile(name, []byte(text+"\n"), 0o644))
	}
	put(fmt.Sprintf("0-%d", len(ids)-1), "cpu/online")
	put(fmt.Sprintf("0-%d", len(ids)-1), "cpu/present")
	for cpu, id := range ids {
		name, node := fmt.Sprintf("cpu%d", cpu), fmt.Sprintf("node%d", id)
		put(itoa(cpu), "cpu", name, "topology/core_id")
		put("0", "cpu", name, "topology/physical_package_id")
		put(itoa(cpu), "cpu", name, "topology/thread_siblings_list")
		put(itoa(cpu), "node", node, "cpulist")
		put(fmt.Sprintf("Node %d MemTotal: 4194304 kB", id), "node", node, "meminfo")
		put(strings.TrimSpace(strings.Repeat("20 ", cpu)+"10 "+strings.Repeat("20 ", len(ids)-cpu-1)), "node", node,
			"distance")
	}
	return dir
}

func TestMachinesThatTheKubeletCannotServeAreRefused(t *testing.T) {
	t.Parallel()
	sparse, high, many := broken(t, 0, 8), broken(t, 0, 64), broken(t, 0, 1, 2, 3, 4, 5, 6, 7, 8)
	for name, test := range map[string]struct{ spec, want string }{
		"sparse ids and distances": {
			sparse + "@restricted,prefer-closest-numa-nodes",
			"panics on the NUMA node id 8 of 2 nodes",
		},
		"sparse ids":                         {sparse + "@restricted", ""},
		"sparse ids, distances are not read": {sparse + "@single-numa-node,prefer-closest-numa-nodes", ""},
		"an id beyond the masks":             {high + "@best-effort", "panics on the NUMA node id 64"},
		"an id beyond the masks, no policy":  {high + "@static", ""},
		"nine nodes": {
			many + "@restricted",
			"at most 8 NUMA nodes (max-allowable-numa-nodes), the machine has 9",
		},
		"nine nodes, allowed":   {many + "@restricted,max-allowable-numa-nodes=9", ""},
		"nine nodes, no policy": {many + "@static", ""},
	} {
		_, _, err := machine.Parse(test.spec)
		if test.want == "" && err != nil || test.want != "" &&
			(err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: error %v, want one that says %q", name, err, test.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"epyc-2s@static,reserved=0-1=2", "=", "@", "xeon-2s@",
		"hybrid=99999999999999999999",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		if strings.ContainsAny(spec, "/.") {
			return // no path: the fuzzer must not read the machine that it runs on
		}
		d, count, err := machine.Parse(spec)
		if err == nil && (d.Name == "" || count < 1 || count > machine.MaxCount) {
			t.Errorf("Parse(%q) = %q × %d", spec, d.Name, count)
		}
	})
}
