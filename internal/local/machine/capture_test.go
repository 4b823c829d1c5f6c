package machine_test

import (
	"archive/tar"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
)

// pack writes an uncompressed archive.
func pack(t *testing.T, headers ...tar.Header) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "capture.tar")
	f, err := os.Create(path)
	testkit.Check(t, err)
	defer f.Close()
	w := tar.NewWriter(f)
	for _, h := range headers {
		body := ""
		if h.Typeflag == tar.TypeReg {
			body = "0\n"
		}
		h.Size, h.Mode = int64(len(body)), 0o644
		testkit.Check(t, w.WriteHeader(&h))
		if _, err := w.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Check(t, w.Close())
	return path
}

const cpuDir = "sys/devices/system/cpu"

func TestArchivesCannotWriteOutsideOfTheirFolder(t *testing.T) {
	t.Parallel()
	online := tar.Header{Typeflag: tar.TypeReg, Name: "m/" + cpuDir + "/online"}
	tests := map[string]struct {
		entries []tar.Header
		want    string
	}{
		"an entry with .. in it": {
			[]tar.Header{{Typeflag: tar.TypeReg, Name: "m/sys/../../../../evil"}}, "leads out of the archive",
		},
		"a link to an absolute path": {
			[]tar.Header{online, {Typeflag: tar.TypeSymlink, Name: "m/" + cpuDir + "/cpu0/node0", Linkname: "/etc"}},
			"leads out of the archive",
		},
		"a relative link that climbs out": {
			[]tar.Header{online, {
				Typeflag: tar.TypeSymlink, Name: "m/" + cpuDir + "/cpu0/node0",
				Linkname: "../../../../../../../etc",
			}},
			"leads out of the archive",
		},
		"a hard link": {
			[]tar.Header{online, {Typeflag: tar.TypeLink, Name: "m/" + cpuDir + "/possible", Linkname: online.Name}},
			"is a hard link",
		},
		"an archive of something else": {
			[]tar.Header{{Typeflag: tar.TypeReg, Name: "m/README"}}, "not a captured machine",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outer := t.TempDir()
			dir := filepath.Join(outer, "a", "b", "c")
			testkit.Check(t, os.MkdirAll(dir, 0o755))
			err := machine.Unpack(pack(t, test.entries...), dir)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want one that says %q", err, test.want)
			}
			if found, _ := filepath.Glob(filepath.Join(outer, "*", "evil")); len(found) > 0 {
				t.Errorf("Unpack wrote %q", found)
			}
		})
	}
}

func TestArchivesAreReducedToWhatDescribesAMachine(t *testing.T) {
	t.Parallel()
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: "./m/" + name} }
	dir := t.TempDir()
	keep := []string{
		cpuDir + "/online", cpuDir + "/cpu0/topology/core_id", cpuDir + "/cpu0/cache/index3/level", "proc/cpuinfo",
		"sys/devices/system/node/node0/meminfo",
		"sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
		"sys/bus/pci/devices/0000:01:00.0", "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/numa_node",
		"proc/driver/nvidia/gpus/0000:01:00.0/information", "var/run/tenon/device-infos/a.json",
	}
	drop := []string{
		cpuDir + "/cpu0/cache/index0/level", cpuDir + "/cpu0/cpuidle/state0/name", "sys/bus/usb/devices/x",
		"proc/self/cpuset", "sys/devices/pci0000:00/0000:00:01.0/resource",
		"sys/devices/system/node/node0/memory12/state",
	}
	var entries []tar.Header
	for _, name := range append(append([]string{}, keep...), drop...) {
		entries = append(entries, file(name))
	}
	testkit.Check(t, machine.Unpack(pack(t, entries...), dir))
	for _, name := range keep {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s was not unpacked", name)
		}
	}
	for _, name := range drop {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s was unpacked", name)
		}
	}
}

func TestNameThatIsPackedTwiceChangesNoOtherFile(t *testing.T) {
	t.Parallel()
	// The body of every entry is "0\n", so all files share one inode until one is replaced.
	dir := t.TempDir()
	folder := func(i string) string { return cpuDir + "/cpu" + i + "/topology/core_id" }
	link := tar.Header{Typeflag: tar.TypeSymlink, Name: "m/" + folder("0"), Linkname: "physical_package_id"}
	err := machine.Unpack(pack(t, tar.Header{Typeflag: tar.TypeReg, Name: "m/" + folder("0")},
		tar.Header{Typeflag: tar.TypeReg, Name: "m/" + folder("1")}, link, link), dir)
	testkit.Check(t, err)
	if target, err := os.Readlink(filepath.Join(dir, folder("0"))); err != nil || target != "physical_package_id" {
		t.Errorf("the entry packed last is a link to %q, %v", target, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, folder("1"))); err != nil || string(text) != "0\n" {
		t.Errorf("the other file reads %q, %v", text, err)
	}
}

func TestTornArchiveIsNamed(t *testing.T) {
	t.Parallel()
	for name, suffix := range map[string]string{"no bzip2": ".tar.bz2", "no gzip": ".tar.gz", "no tar": ".tar"} {
		path := filepath.Join(t.TempDir(), "torn"+suffix)
		if err := os.WriteFile(path, []byte("this is not an archive, and it is longer than any magic number"),
			0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := machine.Parse(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error = %v, want one that names %s", name, err, path)
		}
	}
}

// A machine that is captured, as a folder or as an archive, has the devices that it had.
func TestCapturesKeepDevices(t *testing.T) {
	t.Parallel()
	read := func(dir string) (cards host.Cards, found [][]host.Dropped) {
		root := host.Root{Dir: dir}
		cards, err := host.ReadCards(root)
		testkit.Check(t, err)
		for _, kind := range []host.CardKind{host.NVIDIA, host.AMD, host.RDMA, host.FPGA} {
			list, err := host.FindDevices(root, kind)
			testkit.Check(t, err)
			found = append(found, list)
		}
		dropped, err := host.ReadDropped(root)
		testkit.Check(t, err)
		return cards, append(found, dropped)
	}
	devices := 0
	for _, preset := range machine.Presets() {
		original, copied, unpacked := testkit.Dir(t), testkit.Dir(t), testkit.Dir(t)
		archive := filepath.Join(t.TempDir(), "capture.tar")
		testkit.Check(t, preset.Write(original))
		f, err := os.Create(archive)
		testkit.Check(t, err)
		w := tar.NewWriter(f)
		if err := errors.Join(w.AddFS(os.DirFS(original)), w.Close(), f.Close(), machine.Unpack(original, copied),
			machine.Unpack(archive, unpacked)); err != nil {
			t.Fatal(err)
		}
		cards, found := read(original)
		devices += len(cards.List)
		for _, dir := range []string{copied, unpacked} {
			gotCards, gotFound := read(dir)
			if diff := cmp.Diff(cards, gotCards); diff != "" {
				t.Errorf("cards of %s (-original +captured):\n%s", preset.Name, diff)
			}
			if diff := cmp.Diff(found, gotFound); diff != "" {
				t.Errorf("devices of %s (-original +captured):\n%s", preset.Name, diff)
			}
		}
	}
	if devices < 50 {
		t.Errorf("the presets have %d devices", devices)
	}
}

// The capture of a machine with an RDMA adapter has its folder, and no class of device files.
func TestDevicesOfARealCapture(t *testing.T) {
	t.Parallel()
	archive := filepath.Join(testkit.SharedData(t, "machines"), "32em64t-2n8c+dax+nvme+mic+dimms.tar.bz2")
	d, _, err := machine.Parse(archive)
	testkit.Check(t, err)
	list := d.Devices("n")
	if len(list) != 1 {
		t.Fatalf("%+v; want one adapter", list)
	}
	at := host.DroppedTopology{
		NodeID: "1", PCIEID: "pci0000:80", BusID: "0000:82:00.0", Bridges: []string{"pci0000:80", "0000:80:02.2"},
	}
	if d := list[0]; !cmp.Equal(d.Topology, at) || d.Status == nil || d.Status.ErrCode != "NoDeviceFile" {
		t.Errorf("%+v, want one at %+v without a device file", d, at)
	}
}
