package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/testkit"
)

const (
	pci    = "sys/devices/pci0000:3a/0000:3a:00.0/"
	driver = "proc/driver/nvidia/gpus/"
)

// accelerated is a machine with cards of each kind. Minors run against the order of the addresses.
func accelerated(t *testing.T, change ...func(files map[string]string)) host.Root {
	t.Helper()
	files := map[string]string{
		"proc/devices": "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n510 nvidia-uvm\n\nBlock devices:\n" +
			"  8 nvidia\n",
		driver + "0000:3b:00.0/information": "Model: \t\t H100\nGPU UUID: \t GPU-b\nBus Location: \t 0000:3b:00.0\n" +
			"Device Minor: \t 1\n",
		driver + "0000:5e:00.0/information": "GPU UUID: \t GPU-a\nDevice Minor: \t 0\n",
		driver + "0000:af:00.0/information": "GPU UUID: \t GPU-????????-????\nDevice Minor: \t 2\n",
		"sys/class/kfd/kfd/uevent":          "MAJOR=234\nMINOR=0\nDEVNAME=kfd\n",
		"sys/class/misc/rdma_cm/uevent":     "MAJOR=10\nMINOR=58\nDEVNAME=infiniband/rdma_cm\n",
		// A node that is not a PCI device, and a display adapter of another vendor.
		"sys/class/drm/card9/uevent": "MAJOR=226\nMINOR=9\nDEVNAME=dri/card9\n",
	}
	links := map[string]string{}
	for _, f := range []struct{ class, name, bus, vendor, numbers, path string }{
		{"drm", "card0", "0000:03:00.0", "0x1a03", "226:0", "dri/card0"},
		{"drm", "card1", "0000:3b:00.0", "0x10de", "226:1", "dri/card1"},
		{"drm", "card2", "0000:63:00.0", "0x1002", "226:2", "dri/card2"},
		{"drm", "renderD130", "0000:63:00.0", "0x1002", "226:130", "dri/renderD130"},
		{"drm", "renderD131", "0000:88:00.0", "0x10ee", "226:131", "dri/renderD131"},
		{"infiniband_verbs", "uverbs1", "0000:09:00.0", "0x15b3", "231:193", "infiniband/uverbs1"},
		{"infiniband_mad", "umad1", "0000:09:00.0", "0x15b3", "231:1", "infiniband/umad1"},
		{"infiniband_verbs", "uverbs2", "0000:09:00.2", "0x15b3", "231:194", "infiniband/uverbs2"},
	} {
		major, minor, _ := strings.Cut(f.numbers, ":")
		at := pci + f.bus + "/" + f.class + "/" + f.name
		files[at+"/uevent"] = "MAJOR=" + major + "\nMINOR=" + minor + "\nDEVNAME=" + f.path + "\n"
		files[pci+f.bus+"/vendor"] = f.vendor
		links["sys/class/"+f.class+"/"+f.name] = "../../../" + at
		links["sys/bus/pci/devices/"+f.bus] = "../../../../" + pci + f.bus
	}
	files[pci+"0000:63:00.0/unique_id"] = "1f3b\n"
	files[pci+"0000:b1:00.0/fpga_region/region0/dfl-port.0/uevent"] = "MAJOR=236\nMINOR=64\nDEVNAME=dfl-port.0\n"
	links["sys/bus/platform/devices/dfl-port.0"] = "../../../../" + pci + "0000:b1:00.0/fpga_region/region0/dfl-port.0"
	links[pci+"0000:09:00.2/physfn"] = "../0000:09:00.0"
	for _, f := range change {
		f(files)
	}
	root := write(t, files)
	for name, target := range links {
		at := filepath.Join(root.Dir, name)
		testkit.Check(t, os.MkdirAll(filepath.Dir(at), 0o755))
		testkit.Check(t, os.Symlink(target, at))
	}
	return root
}

func TestReadCards(t *testing.T) {
	t.Parallel()
	got, err := host.ReadCards(accelerated(t))
	testkit.Check(t, err)
	want := host.Cards{
		List: []host.Card{
			{Kind: host.RDMA, ID: "0000:09:00.0", BusID: "0000:09:00.0", Files: []host.DeviceFile{
				{Path: "/dev/infiniband/uverbs1", Major: 231, Minor: 193},
				{Path: "/dev/infiniband/umad1", Major: 231, Minor: 1},
			}},
			{
				Kind: host.RDMA, ID: "0000:09:00.2", BusID: "0000:09:00.2", Parent: "0000:09:00.0",
				Files: []host.DeviceFile{{Path: "/dev/infiniband/uverbs2", Major: 231, Minor: 194}},
			},
			{Kind: host.NVIDIA, ID: "GPU-b", BusID: "0000:3b:00.0", Files: []host.DeviceFile{
				{Path: "/dev/nvidia1", Major: 195, Minor: 1}, {Path: "/dev/dri/card1", Major: 226, Minor: 1},
			}},
			{
				Kind: host.NVIDIA, ID: "GPU-a", BusID: "0000:5e:00.0",
				Files: []host.DeviceFile{{Path: "/dev/nvidia0", Major: 195, Minor: 0}},
			},
			{Kind: host.AMD, ID: "1f3b", BusID: "0000:63:00.0", Files: []host.DeviceFile{
				{Path: "/dev/dri/card2", Major: 226, Minor: 2}, {Path: "/dev/dri/renderD130", Major: 226, Minor: 130},
			}},
			{
				Kind: host.FPGA, ID: "0000:88:00.0", BusID: "0000:88:00.0",
				Files: []host.DeviceFile{{Path: "/dev/dri/renderD131", Major: 226, Minor: 131}},
			},
			{
				Kind: host.NVIDIA, BusID: "0000:af:00.0",
				Files: []host.DeviceFile{{Path: "/dev/nvidia2", Major: 195, Minor: 2}},
			},
			{
				Kind: host.FPGA, ID: "0000:b1:00.0", BusID: "0000:b1:00.0",
				Files: []host.DeviceFile{{Path: "/dev/dfl-port.0", Major: 236, Minor: 64}},
			},
		},
		Common: map[host.CardKind][]host.DeviceFile{
			host.NVIDIA: {
				{Path: "/dev/nvidiactl", Major: 195, Minor: 255},
				{Path: "/dev/nvidia-uvm", Major: 510},
				{Path: "/dev/nvidia-uvm-tools", Major: 510, Minor: 1},
			},
			host.AMD:  {{Path: "/dev/kfd", Major: 234}},
			host.RDMA: {{Path: "/dev/infiniband/rdma_cm", Major: 10, Minor: 58}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cards (-want +got):\n%s", diff)
	}
}

func TestABadCardDoesNotHideTheOthers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(files map[string]string)
		err    string
		// files is how many the card GPU-a has.
		files int
	}{
		"the information is a folder": {func(files map[string]string) {
			delete(files, driver+"0000:3b:00.0/information")
			files[driver+"0000:3b:00.0/information/x"] = ""
		}, "0000:3b:00.0/information", 1},
		"the older name of the driver": {func(files map[string]string) {
			files["proc/devices"] = "Character devices:\n195 nvidia-frontend\n"
		}, "", 1},
		"no major number": {func(files map[string]string) {
			files["proc/devices"] = "Character devices:\n  1 mem\n"
		}, "proc/devices", 0},
		"a minor that is not a number": {func(files map[string]string) {
			files[driver+"0000:5e:00.0/information"] = "GPU UUID: GPU-a\nDevice Minor: N/A\n"
		}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cards, err := host.ReadCards(accelerated(t, test.change))
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("err = %v, want one with %q", err, test.err)
			}
			if len(cards.List) != 8 {
				t.Errorf("%d cards, want 8: %+v", len(cards.List), cards.List)
			}
			for _, c := range cards.List {
				if c.ID == "GPU-a" && len(c.Files) != test.files {
					t.Errorf("GPU-a has files %v, want %d", c.Files, test.files)
				}
			}
			for kind, files := range cards.Common {
				for _, f := range files {
					if f.Major == 0 {
						t.Errorf("%s of %s has no major number", f.Path, kind)
					}
				}
			}
		})
	}
}

func TestAMachineWithoutCards(t *testing.T) {
	t.Parallel()
	cards, err := host.ReadCards(write(t, small()))
	if err != nil || len(cards.List) > 0 {
		t.Errorf("ReadCards = %+v, %v; want none", cards, err)
	}
}

func TestReadCDI(t *testing.T) {
	t.Parallel()
	root := write(t, map[string]string{
		"run/cdi/tenon.sh-gpu.yaml":    "kind: tenon.sh/gpu\ndevices:\n- name: GPU-b\n- name: GPU-a\n",
		"run/cdi/tenon.sh-gpu.json":    `{"kind":"tenon.sh/gpu","devices":[{"name":"GPU-a"}]}`,
		"run/cdi/example.com-gpu.yaml": "kind: tenon.sh/gpu\ndevices:\n- name: x\n",
		"run/cdi/nvidia.yaml":          "kind: nvidia.com/gpu\ndevices:\n- name: all\n",
	})
	got, err := host.ReadCDI(root, "tenon.sh/gpu")
	if diff := cmp.Diff([]string{"tenon.sh/gpu=GPU-a", "tenon.sh/gpu=GPU-b"}, got); diff != "" || err != nil {
		t.Errorf("names (-want +got), %v:\n%s", err, diff)
	}
	if got, err := host.ReadCDI(write(t, small()), "tenon.sh/gpu"); err != nil || len(got) > 0 {
		t.Errorf("without files: %v, %v", got, err)
	}
	other := write(t, map[string]string{
		"run/cdi/tenon.sh-gpu.json": `{"kind":"a.b/gpu","devices":[{"name":"x"}]}`,
	})
	if got, err := host.ReadCDI(other, "tenon.sh/gpu"); err != nil || len(got) > 0 {
		t.Errorf("of another kind: %v, %v", got, err)
	}
	bad := write(t, map[string]string{"run/cdi/tenon.sh-gpu.json": "{"})
	if _, err := host.ReadCDI(bad, "tenon.sh/gpu"); err == nil || !strings.Contains(err.Error(), "tenon.sh-gpu.json") {
		t.Errorf("err = %v, want one that names the file", err)
	}
}
