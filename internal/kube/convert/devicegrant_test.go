package convert_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// drawGrants draws what a pod may hold: each device once.
func drawGrants(t *rapid.T) []device.Grant {
	percent := rapid.Int64Range(0, 100)
	amount := func(kind device.Type) (v device.Vector, ratio int64) {
		if kind != device.GPU {
			v[device.Share] = rapid.Int64Range(0, 100).Draw(t, "share")
			return v, 0
		}
		v[device.Cores], v[device.Bytes] = percent.Draw(t, "cores"), rapid.Int64Range(0, 1<<45).Draw(t, "bytes")
		v[device.NPUDVPPs] = percent.Draw(t, "DVPPs")
		return v, percent.Draw(t, "ratio")
	}
	list := map[string]device.Grant{}
	for range rapid.IntRange(0, 5).Draw(t, "devices") {
		g := device.Grant{
			Type:  rapid.SampledFrom([]device.Type{device.GPU, device.RDMA, "dpu"}).Draw(t, "type"),
			ID:    rapid.SampledFrom([]string{"", "GPU-a", "GPU-b", "0000:09:00.0"}).Draw(t, "id"),
			Minor: rapid.Int32Range(-1, 3).Draw(t, "minor"),
		}
		if g.ID == "" {
			g.Minor = max(g.Minor, 0)
		}
		g.Amount, g.Ratio = amount(g.Type)
		for _, name := range []string{"a", "b"} {
			if rapid.Bool().Draw(t, "container "+name) {
				c := device.ContainerGrant{Name: name}
				c.Amount, c.Ratio = amount(g.Type)
				g.Containers = append(g.Containers, c)
			}
		}
		if rapid.Bool().Draw(t, "VF") {
			g.VFs = []string{string(g.Type) + g.ID + string('0'+g.Minor)}
		}
		g.Template = rapid.SampledFrom([]string{"", "vir02"}).Draw(t, "template")
		key := string(g.Type) + "/" + g.ID
		if g.ID == "" {
			key += string('0' + g.Minor)
		}
		list[key] = g
	}
	return slices.Collect(maps.Values(list))
}

// TestGrantsAreReadAsTheyAreWritten: a bound pod is the entry that was committed, so that Put changes nothing.
func TestGrantsAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		grants := drawGrants(t)
		want := ledger.Entry{UID: "uid", Namespace: "default", Name: "p", Devices: grants}
		text := convert.Allocations(grants).String()
		read := convert.ReadPod(newPod(onNode, annot(annotation.DeviceAllocatedKey, text)))
		got := want
		got.Devices = read.Entry.Devices
		if !got.Equal(want) || len(read.Problems) != 0 {
			t.Fatalf("%s, problems %v (-want +got):\n%s", text, read.Problems,
				cmp.Diff(device.SortedGrants(grants), got.Devices))
		}
		if read.Concerns != (len(grants) > 0) {
			t.Fatalf("%d grants: concerns %t", len(grants), read.Concerns)
		}
	})
}

func TestDevicesOfAPod(t *testing.T) {
	t.Parallel()
	amount := device.Vector{device.Cores: 50, device.Bytes: 4 * gib}
	for name, c := range map[string]struct {
		text    string
		want    []device.Grant
		problem string
	}{
		"with containers": {
			`{"gpu":[{"minor":0,"id":"GPU-a","resources":{"koordinator.sh/gpu-core":"50",` +
				`"koordinator.sh/gpu-memory":"4Gi",` +
				`"koordinator.sh/gpu-memory-ratio":"50"},"extension":{"containers":{"main":` +
				`{"koordinator.sh/gpu-core":"50",` +
				`"koordinator.sh/gpu-memory":"4Gi","koordinator.sh/gpu-memory-ratio":"50"}}}}],` +
				`"rdma":[{"minor":0,"id":"0000:09:00.0","resources":{"koordinator.sh/rdma":"1"},` +
				`"extension":{"vfs":[{"minor":0,"busID":"0000:09:00.2"}]}}]}`,
			[]device.Grant{
				{
					Type: device.GPU, ID: "GPU-a", Amount: amount, Ratio: 50,
					Containers: []device.ContainerGrant{{Name: "main", Amount: amount, Ratio: 50}},
				},
				{
					Type: device.RDMA, ID: "0000:09:00.0", Amount: device.Vector{device.Share: 1},
					VFs: []string{"0000:09:00.2"},
				},
			},
			"",
		},
		"of an old version, without ids and with other names": {
			`{"gpu":[{"minor":2,"resources":{"kubernetes.io/gpu-core":"50","kubernetes.io/gpu-memory":"4Gi"}}]}`,
			[]device.Grant{{Type: device.GPU, Minor: 2, Amount: amount}},
			"",
		},
		"without a minor": {
			`{"gpu":[{"id":"GPU-a","resources":{"koordinator.sh/gpu":"30"}}]}`,
			[]device.Grant{
				{Type: device.GPU, ID: "GPU-a", Minor: -1, Amount: device.Vector{device.Cores: 30}, Ratio: 30},
			},
			"",
		},
		"one of two that names no device": {
			`{"gpu":[{"minor":-1,"resources":{}},{"minor":1,"resources":{"koordinator.sh/gpu-core":"50"}}]}`,
			[]device.Grant{{Type: device.GPU, Minor: 1, Amount: device.Vector{device.Cores: 50}}},
			"device 0 of the list",
		},
		"not JSON":         {`gpu`, nil, "invalid character"},
		"neither of both":  {`{"gpu":[{"resources":{}}]}`, nil, "must have an id or a minor"},
		"an amount of two": {`{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"200"}}]}`, nil, "percentage"},
	} {
		pod := convert.ReadPod(newPod(onNode, annot(annotation.DeviceAllocatedKey, c.text)))
		if diff := cmp.Diff(c.want, pod.Entry.Devices); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		switch {
		case c.problem == "" && len(pod.Problems) > 0:
			t.Errorf("%s: problems %v", name, pod.Problems)
		case c.problem != "" && (len(pod.Problems) != 1 || pod.Problems[0].Key != annotation.DeviceAllocatedKey ||
			!strings.Contains(pod.Problems[0].Text, c.problem)):
			t.Errorf("%s: problems %v, want %q", name, pod.Problems, c.problem)
		}
		if pod.Concerns != (c.want != nil) {
			t.Errorf("%s: concerns %t", name, pod.Concerns)
		}
	}
}

// TestAVirtualFunctionIsWrittenWithoutANumber: other readers of the annotation take -1 for none.
func TestAVirtualFunctionIsWrittenWithoutANumber(t *testing.T) {
	t.Parallel()
	got := convert.Allocations([]device.Grant{{
		Type: device.RDMA, ID: "0000:09:00.0", Minor: -1, VFs: []string{"0000:09:00.2", "0000:09:00.3"},
	}})
	want := annotation.DeviceAllocations{"rdma": {{
		ID: "0000:09:00.0", Resources: annotation.DeviceAmounts{},
		Extension: &annotation.DeviceExtension{VFs: []annotation.VirtualFunction{
			{Minor: -1, BusID: "0000:09:00.2"}, {Minor: -1, BusID: "0000:09:00.3"},
		}},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func FuzzGrants(f *testing.F) {
	f.Add(`{"gpu":[{"minor":0,"id":"GPU-a","resources":{"koordinator.sh/gpu-core":"50",` +
		`"koordinator.sh/gpu-memory":"4Gi"}}]}`)
	f.Add(`{"gpu":[{"minor":-3,"resources":{"koordinator.sh/gpu-memory":"9E"}}],"x":[{"id":"a","resources":{"y":` +
		`"1"}}]}`)
	f.Add(`{"rdma":[{"id":"a","extension":{"vfs":[{"busID":"b"}],"containers":{"":{"koordinator.sh/rdma":"5"}}}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		read := func(text string) ([]device.Grant, error) {
			return convert.Grants(map[string]string{annotation.DeviceAllocatedKey: text})
		}
		grants, _ := read(text)
		again, err := read(convert.Allocations(grants).String())
		if err != nil || !slices.EqualFunc(grants, again, device.Grant.Equal) {
			t.Fatalf("%q: written and read again, %+v is %+v, %v", text, grants, again, err)
		}
	})
}
