package host_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/quiet"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestInterruptsOfSomeCPUs(t *testing.T) {
	t.Parallel()
	const text = "           CPU0       CPU2       CPU3\n" +
		"   0:         10          0          1  IO-APIC    2-edge      timer\n" +
		"  24:          1          2          3  PCI-MSIX-0000:00:03.0    0-edge      virtio0-input.0\n" +
		"  25:          1          x          3  PCI-MSIX-0000:00:03.0    1-edge      cut\n" +
		"  26:          1          2\n" +
		" LOC:        100        200 4294967295   Local timer interrupts\n" +
		" ERR:          7\n"
	for name, c := range map[string]struct {
		text string
		cpus []int
		want quiet.Counts
	}{
		"two of three": {text, []int{3, 2, 9}, quiet.Counts{CPUs: []int{2, 3}, Sources: map[string]quiet.Source{
			"0": {Handler: "timer", Fired: []uint64{0, 1}}, "24": {Handler: "virtio0-input.0", Fired: []uint64{2, 3}},
			"LOC": {Handler: "interrupts", Fired: []uint64{200, 4294967295}},
		}}},
		"not a table": {"CPU0 CPUS\n  0: 1 2\n", []int{0}, quiet.Counts{}},
		"empty":       {"", []int{0}, quiet.Counts{Sources: map[string]quiet.Source{}}},
	} {
		dir := t.TempDir()
		testkit.Check(t, os.MkdirAll(filepath.Join(dir, "proc"), 0o755))
		testkit.Check(t, os.WriteFile(filepath.Join(dir, "proc/interrupts"), []byte(c.text), 0o600))
		got, err := host.Interrupts(host.Root{Dir: dir}, c.cpus)
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if got, err := host.Interrupts(host.Root{Dir: t.TempDir()}, []int{0}); err != nil || len(got.CPUs) > 0 {
		t.Errorf("without the file: %v, %v; want no CPUs", got, err)
	}
}
