package inject_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
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
