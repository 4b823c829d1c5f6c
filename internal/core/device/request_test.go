package device_test

import (
	"flag"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/device"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// cases is how many random cases each property meets, unless -rapid.checks says otherwise.
const cases = 500

const gib = 1 << 30

func TestMain(m *testing.M) {
	setChecks(cases)
	flag.Parse()
	if testing.Short() && flag.Lookup("rapid.checks").Value.String() == strconv.Itoa(cases) {
		setChecks(5 * cases) // of which rapid then makes a fifth
	}
	m.Run()
}

func setChecks(n int) {
	if err := flag.Set("rapid.checks", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}

// TestTheFlagSetsTheNumberOfCases: `make search` and `make soak` ask for more cases than the package.
func TestTheFlagSetsTheNumberOfCases(t *testing.T) {
	t.Parallel()
	// The property fails, as so few cases are not of all kinds that it counts.
	out, _ := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSetsAreAllThatIsFeasible$", "-test.v",
		"-rapid.checks=7").CombinedOutput()
	if !strings.Contains(string(out), "passed 7 tests") {
		t.Errorf("with -rapid.checks=7 the property prints\n%s", out)
	}
}

type asks = map[string]int64

// pod is a pod whose containers c0, c1, … have equal requests and limits.
func pod(list ...asks) device.Pod {
	var p device.Pod
	for i, a := range list {
		p.Containers = append(p.Containers, device.Container{Name: "c" + strconv.Itoa(i), Requests: a, Limits: a})
	}
	return p
}

func share(core, ratio, bytes int64) device.Need {
	n := device.Need{Ratio: ratio}
	n.Amount[device.Cores], n.Amount[device.Bytes] = core, bytes
	return n
}

func part(n int64) device.Need {
	var need device.Need
	need.Amount[device.Share] = n
	return need
}

func npu(core, cpu, dvpp, bytes, ratio int64) device.Need {
	n := device.Need{Ratio: ratio, Template: true}
	n.Amount = device.Vector{device.NPUCores: core, device.NPUCPUs: cpu, device.NPUDVPPs: dvpp, device.Bytes: bytes}
	return n
}

func TestRequestsAreReadPerDevice(t *testing.T) {
	t.Parallel()
	all := device.Need{Whole: true}
	kinds := device.Kinds{{Type: "dpu", Resource: "example.com/dpu", Unit: 1}}
	for name, c := range map[string]struct {
		asks  asks
		count int64
		need  device.Need
	}{
		"whole GPUs":           {asks{"nvidia.com/gpu": 2}, 2, device.Need{Whole: true, Vendor: "nvidia.com/gpu"}},
		"whole GPUs of AMD":    {asks{"amd.com/gpu": 1}, 1, device.Need{Whole: true, Vendor: "amd.com/gpu"}},
		"MIG devices":          {asks{"nvidia.com/mig-1g.5gb": 3}, 3, device.Need{Whole: true, Profile: "1g.5gb"}},
		"half of one":          {asks{device.GPUPercent: 50}, 1, share(50, 50, 0)},
		"two":                  {asks{device.GPUPercent: 200}, 2, all},
		"core and ratio":       {asks{device.GPUCore: 50, device.GPURatio: 60}, 1, share(50, 60, 0)},
		"ratio of several":     {asks{device.GPUCore: 100, device.GPURatio: 200}, 2, share(50, 100, 0)},
		"core and bytes":       {asks{device.GPUCore: 60, device.GPUMemory: 4 * gib}, 1, share(60, 0, 4*gib)},
		"core of several":      {asks{device.GPUCore: 200, device.GPUMemory: 16 * gib}, 2, share(100, 0, 8*gib)},
		"bytes round up":       {asks{device.GPUCore: 300, device.GPUMemory: 10}, 3, share(100, 0, 4)},
		"bytes alone":          {asks{device.GPUMemory: 5}, 1, share(0, 0, 5)},
		"ratio alone":          {asks{device.GPURatio: 30}, 1, share(0, 30, 0)},
		"ratio alone, several": {asks{device.GPURatio: 300}, 3, share(0, 100, 0)},
		"spread over two": {
			asks{device.GPUShared: 2, device.GPUCore: 100, device.GPUMemory: 4 * gib}, 2, share(50, 0, 2*gib),
		},
		"spread, no hundreds": {asks{device.GPUShared: 2, device.GPURatio: 150}, 2, share(0, 75, 0)},
		"spread, whole":       {asks{device.GPUShared: 2, device.GPUCore: 200, device.GPURatio: 200}, 2, all},
		"part of a NIC":       {asks{device.RDMAShare: 1}, 1, part(1)},
		"NICs":                {asks{"kubernetes.io/rdma": 300}, 3, part(100)},
		"FPGA":                {asks{device.FPGAShare: 100}, 1, part(100)},
		"a type of the node":  {asks{"example.com/dpu": 3}, 3, part(1)},
		"template by ratio":   {asks{device.NPUCore: 10, device.GPURatio: 25}, 1, npu(10, 0, 0, 0, 25)},
		"template by bytes": {
			asks{device.GPUShared: 1, device.NPUCore: 8, device.NPUCPU: 4, device.NPUDVPP: 100, device.GPUMemory: gib},
			1, npu(8, 4, 100, gib, 0),
		},
	} {
		r, faults := device.NewRequest(pod(c.asks), kinds)
		if len(faults) > 0 || len(r.Parts) != 1 || len(r.Warnings) > 0 {
			t.Errorf("%s: %v gives %+v, faults %v", name, c.asks, r, faults)
			continue
		}
		want := device.Part{Container: "c0", Type: r.Parts[0].Type, Count: c.count, Need: c.need}
		if diff := cmp.Diff(want, r.Parts[0]); diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, c.asks, diff)
		}
	}
}

func TestBadRequestsNameContainerFieldAndRule(t *testing.T) {
	t.Parallel()
	for text, c := range map[string]struct {
		rule  device.Rule
		field string
		asks  asks
	}{
		"nvidia.com/gpu: must not be requested together with koordinator.sh/gpu-core": {
			device.OneGPUName, device.NVIDIAGPU, asks{"nvidia.com/gpu": 1, device.GPUCore: 50},
		},
		"together with nvidia.com/gpu": {
			device.OneGPUName, device.AMDGPU, asks{"nvidia.com/gpu": 1, "amd.com/gpu": 1},
		},
		"with nvidia.com/mig-2g.10gb": {
			device.OneGPUName, "nvidia.com/mig-1g.5gb",
			asks{"nvidia.com/mig-1g.5gb": 1, "nvidia.com/mig-2g.10gb": 1},
		},
		"together with koordinator.sh/gpu-memory;": {
			device.ShorthandAlone, device.GPUPercent, asks{device.GPUPercent: 50, device.GPUMemory: gib},
		},
		"declare GPU memory and GPU memory ratio at same time": {
			device.OneMemory, device.GPUMemory, asks{device.GPUMemory: 1, device.GPURatio: 50},
		},
		"GPU memory and GPU memory ratio all is zero": {
			device.MemoryMissing, device.GPUCore, asks{device.GPUCore: 50},
		},
		"koordinator.sh/gpu.shared: GPU memory": {
			device.MemoryMissing, device.GPUShared, asks{device.GPUShared: 2, device.GPUCore: 50},
		},
		"150 must be percentage of 100": {device.HundredMultiple, device.GPUPercent, asks{device.GPUPercent: 150}},
		"250 must be percentage of 100": {
			device.HundredMultiple, device.GPURatio, asks{device.GPUCore: 50, device.GPURatio: 250},
		},
		"101 must be percentage of 100": {
			device.HundredMultiple, device.GPUCore, asks{device.GPUCore: 101, device.GPUMemory: 1},
		},
		"rdma: 120 must be percentage of 100": {device.HundredMultiple, device.RDMAShare, asks{device.RDMAShare: 120}},
		"200 requests several GPUs": {
			device.CountsAgree, device.GPUCore, asks{device.GPUCore: 200, device.GPURatio: 100},
		},
		"100 must be a multiple of 3": {
			device.Divisible, device.GPUCore, asks{device.GPUCore: 100, device.GPURatio: 300},
		},
		"200 must be at most 100 on one device": {
			device.MostPerDevice, device.GPUCore, asks{device.GPUCore: 400, device.GPURatio: 200},
		},
		"51 must be a multiple of 2": {
			device.Divisible, device.GPURatio, asks{device.GPUShared: 2, device.GPURatio: 51},
		},
		"2 must be 1 where": {
			device.TemplateOne, device.GPUShared, asks{device.GPUShared: 2, device.NPUCore: 1, device.NPUCPU: 1},
		},
		"101 must be at most 100 on one device": {
			device.MostPerDevice, device.NPUDVPP, asks{
				device.GPUShared: 1, device.NPUCore: 1, device.NPUCPU: 1, device.NPUDVPP: 101, device.GPUMemory: 1,
			},
		},
		"must be requested as huawei.com/npu-core and": {
			device.TemplateForm, device.NPUCore, asks{device.NPUCore: 1, device.GPUMemory: 1},
		},
		"must be requested as huawei.com/npu-core": {
			device.TemplateForm, device.NPUCore, asks{
				device.GPUShared: 1, device.NPUCore: 1, device.NPUCPU: 1, device.GPUMemory: 1, device.GPUCore: 1,
			},
		},
	} {
		_, faults := device.NewRequest(pod(asks{"cpu": 1}, c.asks), nil)
		if len(faults) != 1 {
			t.Errorf("%v: faults %v, want one", c.asks, faults)
			continue
		}
		f := faults[0]
		if f.Container != "c1" || f.Field != c.field || f.Rule != c.rule || !strings.Contains(f.Error(), text) ||
			!strings.HasPrefix(f.Error(), `container "c1": `+c.field) {
			t.Errorf("%v: got %+v %q, want rule %d of %s and %q", c.asks, f, f, c.rule, c.field, text)
		}
	}
}

func TestSpellingsAndLimits(t *testing.T) {
	t.Parallel()
	p := pod(asks{device.GPUCore: 50, device.GPURatio: 50}, asks{"kubernetes.io/gpu-core": 50, device.GPURatio: 50})
	_, faults := device.NewRequest(p, nil)
	if len(faults) != 1 || faults[0].Rule != device.OneSpelling || faults[0].Container != "c1" {
		t.Errorf("two spellings in a pod: %v", faults)
	}
	p = pod(asks{"kubernetes.io/gpu": 50})
	p.Containers[0].Limits = asks{"kubernetes.io/gpu": 60}
	_, faults = device.NewRequest(p, nil)
	want := `container "c0": kubernetes.io/gpu: request 50 must equal limit 60`
	if len(faults) != 1 || faults[0].Error() != want {
		t.Errorf("request below limit: %v, want %q", faults, want)
	}
	p.Containers[0].Requests = nil
	if r, faults := device.NewRequest(p, nil); len(faults) > 0 || r.Parts[0].Need.Ratio != 60 {
		t.Errorf("a limit alone: %+v %v", r, faults)
	}
	if faults = device.Zeros(pod(asks{device.GPUShared: 0, device.GPUCore: 0}).Containers); len(faults) != 1 {
		t.Errorf("zeros: %v, want gpu.shared alone", faults)
	}
}

func TestAPodMayBeValidAsASum(t *testing.T) {
	t.Parallel()
	r, faults := device.NewRequest(pod(asks{device.GPUCore: 50}, asks{device.GPURatio: 40}), nil)
	if len(faults) > 0 || len(r.Warnings) != 1 || r.Warnings[0].Container != "c0" {
		t.Fatalf("request %+v, faults %v", r, faults)
	}
	if diff := cmp.Diff([]device.Part{{Type: device.GPU, Count: 1, Need: share(50, 40, 0)}}, r.Parts); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	p := pod(asks{device.RDMAShare: 2}, asks{device.RDMAShare: 3}, asks{"example.com/other": 1})
	p.Hints = map[device.Type]device.Hint{device.RDMA: {Strategy: device.RequestsAsCount}}
	p.Joint = device.Joint{Types: []device.Type{device.GPU, device.RDMA}, Scope: device.SamePCIe}
	r, faults = device.NewRequest(p, nil)
	if len(faults) > 0 || len(r.Parts) != 2 || r.Parts[1].Count != 3 || len(r.Joint.Types) > 0 {
		t.Errorf("NICs by count, with a joint type that is not asked for: %+v %v", r, faults)
	}
	p.Hints[device.RDMA] = device.Hint{Strategy: device.ApplyForAll}
	p.Containers[0].Requests = asks{device.RDMAShare: 200}
	_, faults = device.NewRequest(p, nil)
	if len(faults) != 1 || faults[0].Rule != device.MostPerDevice {
		t.Errorf("more than one device has, of all: %v", faults)
	}
}

// TestAnAliasAsksForTheSame is P9, with random amounts of every name.
func TestAnAliasAsksForTheSame(t *testing.T) {
	t.Parallel()
	alias := map[string]string{
		device.GPUPercent: "kubernetes.io/gpu", device.GPUCore: "kubernetes.io/gpu-core",
		device.GPUMemory: "kubernetes.io/gpu-memory", device.GPURatio: "kubernetes.io/gpu-memory-ratio",
		device.RDMAShare: "kubernetes.io/rdma", device.FPGAShare: "kubernetes.io/fpga",
	}
	canonical := slices.Sorted(maps.Keys(alias))
	valid := 0
	rapid.Check(t, func(t *rapid.T) {
		drawn := drawAsks(t, canonical)
		p, q := pod(drawn...), pod()
		for i := range drawn {
			renamed := asks{}
			for name, n := range drawn[i] {
				renamed[alias[name]] = n
			}
			q.Containers = append(q.Containers, pod(renamed).Containers[0])
			q.Containers[i].Name = p.Containers[i].Name
		}
		a, faults := device.NewRequest(p, nil)
		b, others := device.NewRequest(q, nil)
		if diff := cmp.Diff(faults, others); diff != "" {
			t.Fatalf("faults of %v differ by alias:\n%s", drawn, diff)
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Fatalf("requests of %v differ by alias:\n%s", drawn, diff)
		}
		if a != nil {
			valid++
			checkSums(t, drawn, a)
		}
	})
	if valid < cases/20 {
		t.Errorf("only %d of the drawn pods are valid", valid)
	}
}

func drawAsks(t *rapid.T, names []string) []asks {
	list := make([]asks, rapid.IntRange(1, 3).Draw(t, "containers"))
	for i := range list {
		list[i] = asks{}
		for range rapid.IntRange(0, 3).Draw(t, "names") {
			name := rapid.SampledFrom(names).Draw(t, "name")
			list[i][name] = rapid.SampledFrom([]int64{1, 50, 99, 100, 101, 150, 200, 300, 1 << 62}).Draw(t, "amount")
		}
	}
	return list
}

// checkSums compares what a pod asks per device with what its containers said: no percent is lost or added.
func checkSums(t *rapid.T, drawn []asks, r *device.Request) {
	sums := map[string]int64{}
	bytes, core := int64(0), int64(0)
	for _, p := range r.Parts {
		switch {
		case p.Type != device.GPU:
			sums[string(p.Type)] += p.Count * p.Need.Amount[device.Share]
		case p.Need.Whole:
			core += 100 * p.Count
		default:
			core += p.Count * p.Need.Amount[device.Cores]
			bytes += p.Count * p.Need.Amount[device.Bytes]
		}
		if p.Count < 1 || p.Need.Amount[device.Cores] > 100 || p.Need.Ratio > 100 {
			t.Fatalf("%v gives %+v", drawn, p)
		}
	}
	want, wantCore, wantBytes := map[string]int64{}, int64(0), int64(0)
	for _, a := range drawn {
		wantCore += a[device.GPUCore] + a[device.GPUPercent]
		wantBytes += a[device.GPUMemory]
		want["rdma"] += a[device.RDMAShare]
		want["fpga"] += a[device.FPGAShare]
	}
	if core != wantCore || bytes < wantBytes || sums["rdma"] != want["rdma"] || sums["fpga"] != want["fpga"] {
		t.Fatalf("%v: cores %d, bytes %d, others %v, of %+v", drawn, core, bytes, sums, r.Parts)
	}
}

// TestRatiosNeverAddUpToMoreThanADevice is P8.
func TestRatiosNeverAddUpToMoreThanADevice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(1, 1<<45).Draw(t, "total")
		sum, left := int64(0), int64(100)
		for left > 0 {
			ratio := rapid.Int64Range(1, left).Draw(t, "ratio")
			left -= ratio
			sum += device.BytesOf(total, ratio)
		}
		if sum > total || device.BytesOf(total, 100) != total {
			t.Fatalf("100 percent of %d came to %d", total, sum)
		}
		used := rapid.Int64Range(0, total).Draw(t, "used")
		shown, free := device.UsedRatio(total, used), device.FreeRatio(total, total-used)
		if shown*total < 100*used || (shown-1)*total >= 100*used && used > 0 || shown+free != 100 {
			t.Fatalf("%d of %d bytes used is shown as %d, free as %d", used, total, shown, free)
		}
	})
	// The GPU of the documents: 30 pods of 1500 MiB on 80 GiB.
	total, used := int64(80*gib), int64(30*1500<<20)
	if r := device.UsedRatio(total, used); r != 55 {
		t.Errorf("used ratio %d, want 55", r)
	}
	if free := total - used; device.BytesOf(total, 45) > free || device.BytesOf(total, 46) <= free {
		t.Error("45 percent must fit beside 45000 MiB of 80 GiB, and 46 must not")
	}
}
