package inject_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestCDISpec(t *testing.T) {
	t.Parallel()
	const adapter = `{
  "cdiVersion": "0.5.0",
  "kind": "tenon.sh/fpga",
  "devices": [
    {
      "name": "0000:b1:00.0",
      "containerEdits": {
        "deviceNodes": [
          {
            "path": "/dev/dfl-port.0",
            "major": 236,
            "minor": 64,
            "type": "c",
            "permissions": "rw"
          }
        ]
      }
    }
  ]
}
`
	got, err := inject.CDISpec("tenon.sh/fpga", &machine().Cards)
	if diff := cmp.Diff(adapter, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	gpu := func(id, bus string) host.Card {
		return host.Card{Kind: host.NVIDIA, ID: id, BusID: bus, Files: []host.DeviceFile{file("/dev/nvidia0", 195, 0)}}
	}
	for name, test := range map[string]struct {
		kind    string
		change  func(*inject.Node)
		version string
		devices []string
	}{
		"ids that begin with a letter": {"tenon.sh/gpu", nil, "0.3.0", []string{"GPU-b", "GPU-a"}},
		"addresses, of functions too": {
			"tenon.sh/rdma", nil, "0.5.0",
			[]string{"0000:09:00.0", "0000:09:00.1", "0000:09:00.2"},
		},
		"an id that begins with a digit": {"tenon.sh/gpu", withAMD, "0.5.0", []string{"GPU-b", "GPU-a", "1f3b"}},
		"an id that cannot be a name": {"tenon.sh/gpu", func(n *inject.Node) {
			n.Cards.List = []host.Card{
				gpu("GPU a", "1"), gpu("GPU-", "2"), gpu(":a", "3"), gpu("GPU-x", "4"),
				gpu("GPU=1", "5"),
			}
		}, "0.3.0", []string{"GPU-x"}},
		"an id that two cards have": {"tenon.sh/gpu", func(n *inject.Node) {
			n.Cards.List = []host.Card{gpu("GPU-x", "1"), gpu("GPU-x", "2"), gpu("GPU-y", "3")}
		}, "0.3.0", []string{"GPU-y"}},
		"no cards": {"tenon.sh/gpu", func(n *inject.Node) { n.Cards.List = nil }, "", nil},
	} {
		n := machine()
		if test.change != nil {
			test.change(n)
		}
		text, err := inject.CDISpec(test.kind, &n.Cards)
		var spec struct {
			Version string                  `json:"cdiVersion"`
			Devices []struct{ Name string } `json:"devices"`
		}
		if test.version != "" {
			if err := json.Unmarshal([]byte(text), &spec); err != nil {
				t.Errorf("%s: %v in %s", name, err, text)
			}
		}
		var names []string
		for _, d := range spec.Devices {
			names = append(names, d.Name)
		}
		if err != nil || spec.Version != test.version || !slices.Equal(names, test.devices) ||
			(text == "") != (test.version == "") {
			t.Errorf("%s: got version %q and %q (%v), want %q and %q", name, spec.Version, names, err, test.version,
				test.devices)
		}
	}
}

// A device of NVIDIA's toolkit is used where it is the card, with the device file that the card has now.
func TestToolkitNames(t *testing.T) {
	t.Parallel()
	described := func(paths ...string) host.DescribedCDI { return host.DescribedCDI{Paths: paths} }
	for name, test := range map[string]struct {
		files map[string]host.DescribedCDI
		want  []string
	}{
		"nothing": {nil, nil},
		"each card": {map[string]host.DescribedCDI{
			"GPU-a": described("/dev/nvidiactl", "/dev/nvidia0"),
			"GPU-b": described("/dev/nvidia1", "/dev/nvidia-modeset"),
		}, []string{"nvidia.com/gpu=GPU-b", "nvidia.com/gpu=GPU-a"}},
		"a file of another card": {map[string]host.DescribedCDI{
			"GPU-a": described("/dev/nvidia1"), "GPU-b": described("/dev/nvidia0", "/dev/nvidia1"),
		}, nil},
		"a file of a card without a UUID": {
			map[string]host.DescribedCDI{"GPU-a": described("/dev/nvidia0", "/dev/nvidia2")}, nil,
		},
		"no file": {map[string]host.DescribedCDI{"GPU-a": described()}, nil},
		"a card by its number, and all": {
			map[string]host.DescribedCDI{"0": described("/dev/nvidia0"), "all": described("/dev/nvidia0")}, nil,
		},
		"an adapter": {map[string]host.DescribedCDI{"0000:09:00.0": described("/dev/infiniband/uverbs0")}, nil},
	} {
		if got := inject.ToolkitNames(&machine().Cards, test.files); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// What the toolkit has on the disk counts where nothing of the administrator does.
func TestDescribeFindsTheDevicesOfTheToolkit(t *testing.T) {
	t.Parallel()
	root := host.Root{Dir: t.TempDir()}
	write := func(file, text string) {
		t.Helper()
		testkit.Check(t, os.MkdirAll(filepath.Dir(root.Path(file)), 0o755))
		testkit.Check(t, os.WriteFile(root.Path(file), []byte(text), 0o600))
	}
	names := func() []string {
		t.Helper()
		got, err := inject.Describe(root, &machine().Cards, func() {})
		testkit.Check(t, err)
		return slices.DeleteFunc(got, func(name string) bool { return !strings.HasSuffix(name, "GPU-a") })
	}
	write("etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\ncontainerEdits: {deviceNodes: [{path: /dev/nvidiactl}]}\n"+
		"devices: [{name: GPU-a, containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}]\n")
	if got := names(); !slices.Equal(got, []string{"tenon.sh/gpu=GPU-a", "nvidia.com/gpu=GPU-a"}) {
		t.Errorf("got %q", got)
	}
	write("run/cdi/tenon.sh-gpu.yaml", "kind: tenon.sh/gpu\ndevices: [{name: GPU-a}]\n")
	if got := names(); !slices.Equal(got, []string{"tenon.sh/gpu=GPU-a"}) {
		t.Errorf("beside a file of the administrator: got %q", got)
	}
	testkit.Check(t, errors.Join(os.Remove(root.Path("run/cdi/tenon.sh-gpu.yaml")), os.RemoveAll(root.Path("etc/cdi"))))
	if got := names(); !slices.Equal(got, []string{"tenon.sh/gpu=GPU-a"}) {
		t.Errorf("without /etc/cdi: got %q, want none of the toolkit's", got)
	}
}
