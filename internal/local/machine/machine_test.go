package machine_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

func TestWrittenPresetReadsBackAsItsDescription(t *testing.T) {
	t.Parallel()
	for _, d := range machine.Presets() {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(testkit.Dir(t), "node")
			testkit.Check(t, d.Write(dir))
			got, err := host.Read(host.Root{Dir: dir}, "")
			testkit.Check(t, err)
			want := grid.Build(t, d.Spec())
			if diff := cmp.Diff(want.Spec(), got.Machine.Spec()); diff != "" {
				t.Errorf("machine read from the tree (-described +read):\n%s", diff)
			}
			if !got.Machine.Equal(want) {
				t.Error("the machine read from the tree does not equal the description")
			}
			if len(got.Notes) != 0 {
				t.Errorf("notes = %q, want none: a generated tree leaves nothing open", got.Notes)
			}
			if boot, err := host.BootID(host.Root{Dir: dir}); err != nil || len(boot) != 36 {
				t.Errorf("boot id = %q, %v, want a UUID", boot, err)
			}
			if lscpu := lscpuCounts(t, dir); lscpu != "" {
				if ours := counts(got.Machine); ours != lscpu {
					t.Errorf("lscpu counts %s, the description %s", lscpu, ours)
				}
			}
		})
	}
}

func TestMachineOfPartsReadsBackAsItsParts(t *testing.T) {
	t.Parallel()
	parts := topo.Spec{Arch: "amd64", NUMA: []topo.NUMASpec{
		{ID: 0, MemoryBytes: 6 << 30, Distances: []int{10, 21, 31}},
		{ID: 1, MemoryBytes: 0, Distances: []int{21, 10, 31}},
		{ID: 4, MemoryBytes: 2 << 30, Distances: []int{31, 31, 10}}, // no CPUs, ids with a gap
	}}
	for id := range 12 { // adjacent siblings, two L3 groups in the first NUMA node
		parts.CPUs = append(parts.CPUs, topo.CPUSpec{
			ID: id, Core: id / 2, L3: id / 4, Socket: id / 8,
			NUMA: id / 8,
		})
	}
	d, err := machine.Of("parts", "Intel(R) Xeon(R) Gold 6330 CPU @ 2.00GHz", parts, "restricted,reserved=0-1")
	testkit.Check(t, err)
	if k := d.Kubelet; k.CPU.Policy != "static" || k.Topology.Policy != "restricted" || k.CPU.Reserved != "0-1" {
		t.Errorf("kubelet settings %+v, want static, restricted and 0-1 reserved", k)
	}
	dir := filepath.Join(testkit.Dir(t), "node")
	testkit.Check(t, d.Write(dir))
	got, err := host.Read(host.Root{Dir: dir}, "")
	testkit.Check(t, err)
	if diff := cmp.Diff(d.Spec(), got.Machine.Spec()); diff != "" {
		t.Errorf("machine read from the tree (-described +read):\n%s", diff)
	}
	for name, want := range map[string]string{"has_cpu": "0-1\n", "has_memory": "0,4\n", "online": "0-1,4\n"} {
		if text, err := os.ReadFile(filepath.Join(dir, "sys/devices/system/node", name)); err != nil ||
			string(text) != want {
			t.Errorf("%s = %q, %v; want %q", name, text, err, want)
		}
	}
	if _, err := machine.Of("parts", "", parts, "static,reserved=99"); err == nil ||
		!strings.Contains(err.Error(), "99") {
		t.Errorf("a machine without CPU 99 that reserves it: %v, want an error that names it", err)
	}
	if _, err := machine.Of("parts", "", topo.Spec{}, ""); err == nil {
		t.Error("a machine without CPUs is accepted")
	}
}

// counts are CPUs, cores, sockets and NUMA nodes.
func counts(m *topo.Machine) string {
	online := m.Online()
	return strings.Join([]string{itoa(online.Len()), itoa(m.NumCores()), itoa(m.NumSockets()), itoa(len(m.CPUNodes()))},
		" ")
}

// lscpuCounts are the same by lscpu, "" where it is not installed.
func lscpuCounts(t *testing.T, dir string) string {
	t.Helper()
	if _, err := exec.LookPath("lscpu"); err != nil {
		t.Logf("NOT RUN: comparison with lscpu: util-linux is not installed")
		return ""
	}
	out, err := exec.CommandContext(t.Context(), "lscpu", "--sysroot", dir, "-p=CPU,CORE,SOCKET,NODE").Output()
	if err != nil {
		t.Errorf("lscpu: %v", err)
		return ""
	}
	distinct := [4]map[string]bool{{}, {}, {}, {}}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		for i, field := range strings.Split(strings.TrimSpace(line), ",") {
			distinct[i][field] = true
		}
	}
	return strings.Join([]string{
		itoa(len(distinct[0])), itoa(len(distinct[1])), itoa(len(distinct[2])),
		itoa(len(distinct[3])),
	}, " ")
}

func TestPresetsAreTheMachinesOfTheirSummary(t *testing.T) {
	t.Parallel()
	want := map[string]string{ // CPUs, cores, sockets, NUMA nodes
		"epyc-2s": "128 64 2 4", "xeon-2s": "96 48 2 2", "hgx-h100": "224 112 2 2", "t4-2": "64 32 2 2",
		"epyc-256": "256 128 2 8", "arm64-1s": "64 64 1 1",
		"snc2": "112 56 2 4", "hybrid": "32 24 1 1", "dgx-v100": "80 40 2 2", "pcie-bridges": "128 64 2 2",
		"mi300x": "256 128 2 2", "fpga-2": "64 32 2 2",
	}
	got := map[string]string{}
	for _, d := range machine.Presets() {
		m := grid.Build(t, d.Spec())
		got[d.Name] = counts(m)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWriteRefusesAFolderWithContent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.Check(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o644))
	if err := machine.Presets()[0].Write(dir); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("error = %v, want a folder with content to be refused", err)
	}
}

func TestCapturedMachineIsUsedLikeAPreset(t *testing.T) {
	t.Parallel()
	archive := filepath.Join(testkit.SharedData(t, "machines"), "32intel64-2p8co2t+8ve.tar.bz2")
	d, count, err := machine.Parse(archive + "@static,reserved=0,16=3")
	testkit.Check(t, err)
	if count != 3 || d.Name != "32intel64-2p8co2t-8ve" || d.Kubelet.CPU.Reserved != "0,16" {
		t.Errorf("Parse = %s, %d nodes, reserved %q", d.Name, count, d.Kubelet.CPU.Reserved)
	}
	want := "32 16 2 2"
	fromArchive, fromFolder := filepath.Join(testkit.Dir(t), "a"), filepath.Join(testkit.Dir(t), "b")
	testkit.Check(t, d.Write(fromArchive))
	folder, _, err := machine.Parse(fromArchive)
	testkit.Check(t, err)
	testkit.Check(t, folder.Write(fromFolder))
	for name, dir := range map[string]string{
		"unpacked from an archive": fromArchive,
		"copied from a folder":     fromFolder,
	} {
		r, err := host.Read(host.Root{Dir: dir}, "")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := counts(r.Machine); got != want {
			t.Errorf("%s: machine of %s, want %s", name, got, want)
		}
	}
}

func TestPresetsTellOfTheirDevices(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"hgx-h100":     "8 gpu 8 rdma 0 fpga, 4 root complexes, 2 NUMA nodes, 56 links",
		"t4-2":         "2 gpu 0 rdma 0 fpga, 2 root complexes, 2 NUMA nodes, 0 links",
		"dgx-v100":     "8 gpu 4 rdma 0 fpga, 4 root complexes, 2 NUMA nodes, 32 links",
		"pcie-bridges": "8 gpu 0 rdma 0 fpga, 4 root complexes, 2 NUMA nodes, 8 links",
		"mi300x":       "8 gpu 8 rdma 0 fpga, 8 root complexes, 2 NUMA nodes, 56 links",
		"fpga-2":       "0 gpu 0 rdma 2 fpga, 2 root complexes, 2 NUMA nodes, 0 links",
	}
	for _, d := range machine.Presets() {
		dir := filepath.Join(testkit.Dir(t), "node")
		testkit.Check(t, d.Write(dir))
		found, err := host.ReadDropped(host.Root{Dir: dir})
		testkit.Check(t, err)
		types, roots, nodes, links := map[string]int{}, map[string]bool{}, map[string]bool{}, 0
		for _, f := range found {
			types[f.Type]++
			roots[f.Topology.PCIEID], nodes[f.Topology.NodeID] = true, true
			for _, l := range f.Topology.P2PLinks {
				links += len(strings.Split(l.PeerMinor, ","))
			}
		}
		got := ""
		if len(found) > 0 {
			got = fmt.Sprintf("%d gpu %d rdma %d fpga, %d root complexes, %d NUMA nodes, %d links", types["gpu"],
				types["rdma"], types["fpga"], len(roots), len(nodes), links)
		}
		if got != want[d.Name] {
			t.Errorf("%s: got %q, want %q", d.Name, got, want[d.Name])
		}
	}
}

// The agent finds device files for every device that a preset has.
func TestPresetsHaveDrivers(t *testing.T) {
	t.Parallel()
	for _, preset := range machine.Presets() {
		t.Run(preset.Name, func(t *testing.T) {
			t.Parallel()
			root := host.Root{Dir: filepath.Join(t.TempDir(), "n-0")}
			testkit.Check(t, preset.Write(root.Dir))
			cards, err := host.ReadCards(root)
			testkit.Check(t, err)
			files := map[string]bool{} // by type and id
			for _, c := range cards.List {
				common := c.Kind == host.FPGA || len(cards.Common[c.Kind]) > 0
				files[c.Kind.Type()+" "+c.ID] = common && len(c.Files) > 0
			}
			devices := preset.Devices("n-0")
			for _, d := range devices {
				if !files[d.Type+" "+d.UUID] {
					t.Errorf("%s %s has no files", d.Type, d.UUID)
				}
			}
			if len(files) != len(devices) {
				t.Errorf("%d cards, want %d", len(files), len(devices))
			}
		})
	}
}
