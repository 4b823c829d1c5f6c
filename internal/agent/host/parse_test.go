package host

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCPUMapsOfKernels(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text string
		want []int
		bad  bool
	}{
		"one word":                         {text: "0000000f", want: []int{0, 1, 2, 3}},
		"the highest word comes first":     {text: "00000001,00000002", want: []int{1, 32}},
		"the first word may be shorter":    {text: "ff,00000000", want: []int{32, 33, 34, 35, 36, 37, 38, 39}},
		"no bit":                           {text: "00000000,00000000"},
		"a word of nine digits is refused": {text: "000000000", bad: true},
		"an empty word is refused":         {text: "00000001,,00000001", bad: true},
		"a list is refused":                {text: "0-3", bad: true},
		"a sign is refused":                {text: "-1", bad: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseMap(test.text)
			if (err != nil) != test.bad {
				t.Fatalf("ParseMap(%q) error = %v, want an error: %v", test.text, err, test.bad)
			}
			if diff := cmp.Diff(test.want, got); err == nil && diff != "" {
				t.Errorf("ParseMap(%q) (-want +got):\n%s", test.text, diff)
			}
		})
	}
}

func TestArchitectureIsRecognisedInCpuinfo(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"processor\t: 0\nvendor_id\t: GenuineIntel\n":    "amd64",
		"processor\t: 0\nCPU implementer\t: 0x41\n":      "arm64",
		"processor\t: 0\ncpu\t\t: POWER9, altivec\n":     "ppc64le",
		"vendor_id       : IBM/S390\n":                   "s390x",
		"processor\t: 0\nhart\t: 0\nisa\t: rv64imafdc\n": "riscv64",
		"system type: x\nCPU Family\t: Loongson-64bit\n": "loong64",
		"": "",
		"processor\t: 0\nsomething\t: else\nno colon\n\n": "",
	} {
		if got := parseArch(text); got != want {
			t.Errorf("parseArch(%q) = %q, want %q", text, got, want)
		}
	}
}

func FuzzMap(f *testing.F) {
	for _, seed := range []string{"0000000f", "00000001,00000002", "ff,00000000", "", ",", "fffffffff", "zz", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids, err := ParseMap(text)
		if err != nil {
			return
		}
		if !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
			t.Errorf("ParseMap(%q) = %v, want ascending and distinct", text, ids)
		}
		if n := 32 * (1 + strings.Count(text, ",")); len(ids) > 0 && ids[len(ids)-1] >= n {
			t.Errorf("ParseMap(%q) names CPU %d, above its %d bits", text, ids[len(ids)-1], n)
		}
	})
}

func FuzzMeminfo(f *testing.F) {
	for _, seed := range []string{
		"Node 0 MemTotal: 16 kB", "MemTotal:   1 kB\n", "MemTotal: -1 kB",
		"MemTotal: 99999999999999999999 kB", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if bytes, err := parseMemTotal(text); err == nil && (bytes < 0 || bytes%1024 != 0) {
			t.Errorf("parseMemTotal(%q) = %d, want a number of KiB", text, bytes)
		}
	})
}

func FuzzDistances(f *testing.F) {
	for _, seed := range []string{"10 20", "10", "", "0", "256", "10 x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		row, err := parseDistances(text)
		for _, d := range row {
			if err == nil && (d < 1 || d > 255) {
				t.Errorf("parseDistances(%q) = %v, want 1 to 255", text, row)
			}
		}
	})
}

func FuzzCPUState(f *testing.F) {
	for _, seed := range []string{
		`{"policyName":"static","defaultCpuSet":"0-3","entries":{"u":{"c":"4-5"}},"checksum":1}`,
		`{"policyName":"static","entries":{"u":{"c":"4-5"}},"podEntries":{"u":{"cpuSet":"4-7"}}}`,
		`{"policyName":"static","entries":{"container":"4-5"}}`,
		`{"policyName":"static","entries":{"container":"4-5","u":{"c":"6"}},"checksum":0}`,
		`{"policyName":"none"}`, `{}`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseCPUState(text)
		if err != nil {
			return
		}
		for uid, ids := range s.Pods {
			if len(ids) == 0 || !slices.IsSorted(ids) {
				t.Errorf("pod %q has CPUs %v, want some, ascending", uid, ids)
			}
		}
	})
}

func FuzzKubeletSettings(f *testing.F) {
	for _, seed := range []string{
		"static,full-pcpus-only,reserved=0-1,16-17", "none", "restricted,scope=pod",
		"reserved=", ",", "static,reserved=1",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		k, err := ParseKubelet(text)
		if err != nil {
			return
		}
		if k.CPU.Policy != "static" && (k.CPU.Reserved != "" || len(k.CPU.Options) > 0) {
			t.Errorf("ParseKubelet(%q) = %+v: options without the static policy", text, k)
		}
	})
}

func FuzzMemoryState(f *testing.F) {
	for _, seed := range []string{
		`{"policyName":"Static","machineState":{"0":{"numberOfAssignments":2,"memoryMap":{"memory":{"total":4,` +
			`"systemReserved":1,"allocatable":3,"reserved":1,"free":2}},"cells":[0]}},` +
			`"entries":{"u":{"c":[{"numaAffinity":[0],"type":"memory","size":1}]}},"checksum":1}`,
		`{"policyName":"Static","machineState":{"0":{"cells":[0,1]},"1":{"cells":[1,0]}},` +
			`"podEntries":{"u":{"memoryBlocks":[{"numaAffinity":[0,1],"type":"hugepages-2Mi","size":1}]}}}`,
		`{"policyName":"Static","machineState":{"0":null}}`, `{"policyName":"None"}`, `{}`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseMemoryState(text)
		if err != nil {
			return
		}
		for id, z := range s.Zones {
			if !slices.Contains(z.Group, id) {
				t.Errorf("zone %d is in group %v", id, z.Group)
			}
		}
		for uid, containers := range s.Pods {
			for name, blocks := range containers {
				for _, b := range blocks {
					if len(b.NUMAIDs) == 0 || !slices.IsSorted(b.NUMAIDs) || b.Bytes < 0 {
						t.Errorf("pod %q, container %q: block %+v", uid, name, b)
					}
					for _, id := range b.NUMAIDs {
						if _, ok := s.Zones[id]; !ok {
							t.Errorf("pod %q, container %q: block %+v is on no zone", uid, name, b)
						}
					}
				}
			}
		}
	})
}

func FuzzDeviceState(f *testing.F) {
	for _, seed := range []string{
		`{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"a","ResourceName":"x/gpu",` +
			`"DeviceIDs":{"1":["g1","w"],"0":["w"],"-1":["l"]}}],"RegisteredDevices":{"x/gpu":["g0"]}},"Checksum":1}`,
		`{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"a","ResourceName":"x","DeviceIDs":["g"]}]}}`,
		`{"Data":{}}`, `{"Data":null}`, `{}`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseDeviceState(text)
		if err != nil {
			return
		}
		type unit struct{ resource, id string }
		owners := map[unit]string{}
		for uid, containers := range s.Pods {
			for _, resources := range containers {
				for name, devices := range resources {
					for _, d := range devices {
						u := unit{name, d.ID}
						if other, taken := owners[u]; d.Resource != name || !slices.IsSorted(d.NUMAIDs) || taken &&
							other != uid {
							t.Errorf("device %+v of pods %q and %q", d, uid, other)
						}
						owners[u] = uid
					}
				}
			}
		}
	})
}
