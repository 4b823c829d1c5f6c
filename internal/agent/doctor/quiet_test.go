//go:build linux

package doctor

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
)

// ofIsolation are the findings of the check isolation: status, what was found, and the remedy.
func ofIsolation(all []Finding) (lines []string) {
	for _, f := range all {
		if f.Check == "isolation" {
			lines = append(lines, strings.TrimSuffix(string(f.Status)+" "+f.Found+" | "+f.Remedy, " | "))
		}
	}
	return lines
}

// TestIsolationIsReportedInTheOrderOfWorth has the machine of good, whose four CPUs are cores of their own.
func TestIsolationIsReportedInTheOrderOfWorth(t *testing.T) {
	t.Parallel()
	const cpu, grub = "sys/devices/system/cpu/", "grubby --update-kernel=ALL --args="
	isolated := map[string]string{cpu + "isolated": "2-3\n", cpu + "nohz_full": "2-3\n"}
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"nothing is isolated": {nil, []string{
			"ok not isolated (isolcpus): CPUs 0-3 | " + grub + "isolcpus=domain,managed_irq,CPUS",
			"ok tick (no nohz_full): CPUs 0-3 | " + grub + "nohz_full=CPUS",
			"ok RCU callbacks (no rcu_nocbs): CPUs 0-3 | " + grub + "rcu_nocbs=CPUS",
		}},
		"isolated CPUs lack nothing": {isolated, []string{"ok undisturbed: CPUs 2-3"}},
		"isolated CPUs alone": {map[string]string{cpu + "isolated": "2-3"}, []string{
			"warn tick (no nohz_full): CPUs 2-3 | " + grub + "nohz_full=2-3",
			"warn RCU callbacks (no rcu_nocbs): CPUs 2-3 | " + grub + "rcu_nocbs=2-3",
		}},
		"callbacks by the command line": {
			map[string]string{
				cpu + "isolated": "2-3", "proc/cmdline": "quiet rcu_nocbs=2-3 isolcpus=managed_irq,2-3\n",
			},
			[]string{"warn tick (no nohz_full): CPUs 2-3 | " + grub + "nohz_full=2-3"},
		},
		"irqbalance, then the governor": {
			map[string]string{"proc/33/comm": "irqbalance\n", cpu + "cpu1/cpufreq/scaling_governor": "powersave\n"},
			[]string{
				"warn irqbalance runs | systemctl disable --now irqbalance",
				"warn frequency governor powersave | cpupower frequency-set -g performance",
			},
		},
		"a command line with a wrong list": {map[string]string{"proc/cmdline": "rcu_nocbs=x"}, []string{
			"ok undisturbed: CPUs 2-3", "unknown what disturbs CPUs cannot be read in full: " +
				`proc/cmdline: rcu_nocbs: cpu list item "x": want an id like 3 or a range like 0-3`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := good()
			if c.files != nil && c.files[cpu+"isolated"] == "" {
				maps.Copy(files, isolated)
			}
			maps.Copy(files, c.files)
			root := lay(t, files)
			got := ofIsolation(Machine(answers(root, "2.4.2")))
			for i := range got {
				got[i] = strings.ReplaceAll(got[i], root.Path()+"/", "")
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestIsolationOfANodeIsWhatItsAgentSaw: the topology has CPUs 0-3 on two cores of two threads.
func TestIsolationOfANodeIsWhatItsAgentSaw(t *testing.T) {
	t.Parallel()
	const cores = `{"detail":[{"id":0,"core":0},{"id":1,"core":1},{"id":2,"core":0},{"id":3,"core":1}]}`
	for name, c := range map[string]struct {
		quiet, cores string
		want         []string
	}{
		"without CPUs": {"{}", "", nil},
		"unreadable":   {"[]", cores, nil},
		"managed interrupts, and another sibling": {
			`{"isolated":"2","noHzFull":"2","fixedInterrupts":"2-3"}`, cores, []string{
				"warn sibling threads are in other use: CPU 2 | echo off > /sys/devices/system/cpu/smt/control",
				"warn interrupts that cannot be moved: CPU 2 | grubby --update-kernel=ALL " +
					"--args=isolcpus=domain,managed_irq,2",
			},
		},
		"managed interrupts that no other CPU can take": {
			`{"isolated":"1,3","noHzFull":"1,3","fixedInterrupts":"3","sparesManaged":true}`, cores,
			[]string{"warn interrupts that cannot be moved: CPU 3 | ethtool -L DEVICE combined 1"},
		},
	} {
		v := NodeView{Node: &corev1.Node{}, Topology: &v1alpha2.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{annotation.IsolatedCPUsKey: c.quiet, annotation.CPUTopology: c.cores},
		}}}
		if got := ofIsolation(Node(v)); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
