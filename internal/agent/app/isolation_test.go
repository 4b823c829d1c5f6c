package app_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/testkit"
)

// The files of a machine that exclusive pods change, with what they have without such pods.
const (
	irq     = "proc/irq/24/smp_affinity_list"
	mask    = "proc/irq/default_smp_affinity"
	latency = "sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us"
	every   = "ffffffff,ffffffff"
)

// tuned is what these files have now.
func (w *world) tuned() string {
	w.t.Helper()
	var out []string
	for _, file := range []string{mask, irq, latency} {
		text, err := os.ReadFile(w.root.Path(file))
		testkit.Check(w.t, err)
		out = append(out, strings.TrimSpace(string(text)))
	}
	return strings.Join(out, " ")
}

// TestInterruptsLeaveTheCPUsOfPods follows one pod of each kind, through agents that come and go.
func TestInterruptsLeaveTheCPUsOfPods(t *testing.T) {
	const none = every + " 0-63 0"
	for name, c := range map[string]struct {
		class       string
		annotations map[string]string
		off         bool
		runtime     string
		want        string
	}{
		"LSE":           {class: "LSE", want: "ffffffff,fffffff3 0-1,4-63 0"},
		"LSE, flag off": {class: "LSE", off: true, want: none},
		"LSE that does not": {
			class: "LSE", annotations: map[string]string{annotation.InterruptsKey: "enable"}, want: none,
		},
		"LSR": {class: "LSR", want: none},
		"LSR that asks for it": {
			class: "LSR", annotations: map[string]string{annotation.InterruptsKey: "disable"},
			want: "ffffffff,fffffff3 0-1,4-63 0",
		},
		"LSR, sleep": {
			class: "LSR", want: every + " 0-63 10",
			annotations: map[string]string{annotation.SleepKey: "max_latency:10"},
		},
		"LSE under CRI-O, which has the annotations": {
			class: "LSE", runtime: "cri-o://1.33.0", want: every + " 0-1,4-63 0",
			annotations: map[string]string{annotation.InterruptsKey: "disable", annotation.SleepKey: "disable"},
		},
		"a wrong value counts as absent": {
			class: "LSE", want: "ffffffff,fffffff3 0-1,4-63 0",
			annotations: map[string]string{annotation.InterruptsKey: "no", annotation.SleepKey: "max_latency:-1"},
		},
		"LS": {class: "LS", annotations: map[string]string{annotation.InterruptsKey: "disable"}, want: none},
		"BE": {class: "BE", annotations: map[string]string{annotation.SleepKey: "disable"}, want: none},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
				w.file(irq, "0-63\n")
				w.file(mask, every+"\n")
				w.file(latency, "0\n")
				w.options.IsolateCPUs = !c.off
				if c.runtime != "" {
					node, err := w.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
					testkit.Check(t, err)
					node.Status.NodeInfo.ContainerRuntimeVersion = c.runtime
					_, err = w.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
					testkit.Check(t, err)
				}
				cpus := ""
				if c.class == "LSE" || c.class == "LSR" {
					cpus = "2-3"
				}
				p := pod("p", c.class, "2", cpus)
				for key, value := range c.annotations {
					p.Annotations[key] = value
				}
				check := func(when, want string) {
					t.Helper()
					later(11 * time.Second)
					if got := w.tuned(); got != want {
						t.Errorf("%s: default, interrupt and latency are %s, want %s", when, got, want)
					}
				}
				w.run(func(a *app.Agent) {
					w.create(p)
					check("before the pod starts", none)
					_, err := w.start(a, p)
					testkit.Check(t, err)
					check("while it runs", c.want)
				})
				check("without an agent", c.want)
				w.run(func(*app.Agent) {
					check("with the next agent", c.want)
					w.mark(true)
					check("when the node is left", none)
					w.mark(false)
					check("when it is back", c.want)
				})
				w.options.IsolateCPUs = false
				w.run(func(*app.Agent) { check("with the flag off", none) })
			})
		})
	}
}

func TestFilesThatCannotBeSetAreReported(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		testkit.Check(t, os.MkdirAll(w.root.Path(irq), 0o755))
		w.options.IsolateCPUs = true
		w.run(func(a *app.Agent) {
			p := pod("p", "LSE", "2", "2-3")
			w.create(p)
			_, err := w.start(a, p)
			testkit.Check(t, err)
			later(11 * time.Second)
			status, text := w.condition(event.TuningFailed), w.message(event.TuningFailed)
			if status != string(corev1.ConditionTrue) ||
				!strings.Contains(text, irq+": cannot be read: is a directory") {
				t.Errorf("the condition is %s: %q", status, text)
			}
			testkit.Check(t, os.Remove(w.root.Path(irq)))
			later(11 * time.Second)
			if status := w.condition(event.TuningFailed); status != string(corev1.ConditionFalse) {
				t.Errorf("the condition is %s once the file is gone", status)
			}
		})
	})
}

// TestANodeIsNotLeftBeforeTheMachinesFilesAreRestored has a file that cannot be written for a while.
func TestANodeIsNotLeftBeforeTheMachinesFilesAreRestored(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		w.file(irq, "0-63\n")
		w.file(mask, every+"\n")
		w.file(latency, "0\n")
		w.options.IsolateCPUs = true
		w.run(func(a *app.Agent) {
			p := pod("p", "LSE", "2", "2-3")
			w.create(p)
			_, err := w.start(a, p)
			testkit.Check(t, err)
			later(11 * time.Second)
			file := w.root.Path(irq)
			testkit.Check(t, errors.Join(os.Remove(file), os.MkdirAll(file, 0o755))) // neither readable nor writable
			w.mark(true)
			later(11 * time.Second)
			status, reason, text := w.left()
			if status != corev1.ConditionTrue || reason != "SettingsRemain" || text != "not restored yet: "+irq {
				t.Errorf("condition %s, %s: %q; want SettingsRemain with %s", status, reason, text, irq)
			}
			testkit.Check(t, os.Remove(file))
			w.file(irq, "0-1,4-63\n")
			later(time.Minute)
			if _, reason, text := w.left(); reason != event.Left {
				t.Errorf("once it can be written: %s: %q, want %s", reason, text, event.Left)
			}
			if got, want := w.tuned(), every+" 0-63 0"; got != want {
				t.Errorf("the files are %s, want %s", got, want)
			}
		})
	})
}
