package host_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/testkit"
)

// TestWhatDisturbsCPUsIsRead of the small machine, which has CPUs 0-3.
func TestWhatDisturbsCPUsIsRead(t *testing.T) {
	t.Parallel()
	irq := func(n, effective, actions string) map[string]string {
		return map[string]string{
			"proc/irq/" + n + "/smp_affinity_list": "0-3", "proc/irq/" + n + "/effective_affinity_list": effective,
			"sys/kernel/irq/" + n + "/actions": actions,
		}
	}
	for name, c := range map[string]struct {
		files  map[string]string
		fixed  string // the interrupt whose file no one may write
		want   annotation.IsolatedCPUs
		reason string
	}{
		"nothing": {},
		"the boot": {
			files: map[string]string{
				cpu + "isolated": "2-3", cpu + "nohz_full": "3",
				"proc/cmdline": "ro isolcpus=domain,managed_irq,2-3 rcu_nocbs=1-2,9 quiet\n",
			},
			want: annotation.IsolatedCPUs{Isolated: "2-3", NoHzFull: "3", NoCallbacks: "1-2", SparesManaged: true},
		},
		"callbacks of all CPUs": {
			files: map[string]string{"proc/cmdline": "rcu_nocbs"}, want: annotation.IsolatedCPUs{NoCallbacks: "0-3"},
		},
		"callbacks of all CPUs, by name": {
			files: map[string]string{"proc/cmdline": "rcu_nocbs=all"},
			want:  annotation.IsolatedCPUs{NoCallbacks: "0-3"},
		},
		"isolated without the flag": {files: map[string]string{"proc/cmdline": "isolcpus=1"}},
		"a list of callbacks that is not one": {
			files: map[string]string{"proc/cmdline": "rcu_nocbs=3-1"}, reason: "proc/cmdline: rcu_nocbs: ",
		},
		"irqbalance": {
			files: map[string]string{"proc/7/comm": "irqbalance\n", "proc/8/comm": "bash\n"},
			want:  annotation.IsolatedCPUs{Irqbalance: true},
		},
		"a process that has no name any more": {files: map[string]string{"proc/7/stat": ""}},
		"governors, each once": {
			files: map[string]string{
				cpu + "cpu0/cpufreq/scaling_governor": "schedutil\n",
				cpu + "cpu1/cpufreq/scaling_governor": "performance",
				cpu + "cpu2/cpufreq/scaling_governor": "powersave", cpu + "cpu3/cpufreq/scaling_governor": "powersave",
			},
			want: annotation.IsolatedCPUs{SlowGovernors: []string{"powersave", "schedutil"}},
		},
		"an interrupt that can be moved": {files: irq("24", "1", "eth0")},
		"an interrupt that cannot be moved": {
			files: irq("24", "1", "virtio0-req.0"), fixed: "24", want: annotation.IsolatedCPUs{FixedInterrupts: "1"},
		},
		"an interrupt without a handler": {files: irq("24", "1", ""), fixed: "24"},
		"an interrupt whose CPUs are not a list": {
			files: irq("24", "all", "a"), fixed: "24", reason: "proc/irq/24/effective_affinity_list: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := small()
			for file, text := range c.files {
				files[file] = text
			}
			root := write(t, files)
			if c.fixed != "" {
				testkit.Check(t, os.Chmod(root.Path("proc/irq", c.fixed, "smp_affinity_list"), 0o444))
			}
			read, err := host.Read(root, "amd64")
			testkit.Check(t, err)
			got, err := host.Quiet(root, read.Machine)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (err == nil) != (c.reason == "") || err != nil && !strings.Contains(err.Error(), c.reason) {
				t.Errorf("the error is %v, want one with %q", err, c.reason)
			}
		})
	}
}
