package machine_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/local/machine"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestSpecsOfTheFlagMachine(t *testing.T) {
	t.Parallel()
	none := host.Kubelet{CPUPolicy: "none", MemoryPolicy: "None", TopologyPolicy: "none", TopologyScope: "container"}
	tests := map[string]struct {
		name    string
		count   int
		kubelet func(*host.Kubelet)
	}{
		"epyc-2s":            {"epyc-2s", 1, nil},
		"epyc-2s=3":          {"epyc-2s", 3, nil},
		"xeon-2s@":           {"xeon-2s", 1, nil},
		"xeon-2s@restricted": {"xeon-2s", 1, func(k *host.Kubelet) { k.TopologyPolicy = "restricted" }},
		"hybrid@static": {"hybrid", 1, func(k *host.Kubelet) { // without reserved= the first core is reserved
			k.CPUPolicy, k.ReservedCPUs = "static", "0-1"
		}},
		"epyc-2s@static,full-pcpus-only,distribute-cpus-across-numa,single-numa-node,scope=pod,reserved=0-1,64-65=2": {
			"epyc-2s", 2, func(k *host.Kubelet) {
				k.CPUPolicy, k.ReservedCPUs, k.TopologyPolicy, k.TopologyScope = "static", "0-1,64-65", "single-numa-node", "pod"
				k.CPUOptions = map[string]string{"full-pcpus-only": "true", "distribute-cpus-across-numa": "true"}
			},
		},
		"arm64-1s@static,reserved=3":   {"arm64-1s", 1, func(k *host.Kubelet) { k.CPUPolicy, k.ReservedCPUs = "static", "3" }},
		"arm64-1s@reserved=3,static=4": {"arm64-1s", 4, func(k *host.Kubelet) { k.CPUPolicy, k.ReservedCPUs = "static", "3" }},
	}
	for spec, test := range tests {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			d, count, err := machine.Parse(spec)
			if err != nil {
				t.Fatal(err)
			}
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
		"xeon":                            "no preset (epyc-2s, xeon-2s, epyc-256, arm64-1s, snc2, hybrid)",
		"":                                "no preset",
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
		"/does/not/exist.tar.bz2":         "no archive or folder",
	} {
		_, _, err := machine.Parse(spec)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) error = %v, want one that says %q", spec, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"epyc-2s@static,reserved=0-1=2", "=", "@", "xeon-2s@", "hybrid=99999999999999999999"} {
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
