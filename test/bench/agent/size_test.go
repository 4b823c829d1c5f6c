//go:build e2e_node

package agent

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// Promises about a node with 250 pods.
const (
	maxAnonymous = 25 << 20 // bytes
	maxIdle      = 0.5      // percent of one CPU
)

// window is for how long nothing changes while CPU time is measured, after settling.
const (
	settling = 20 * time.Second
	window   = time.Minute
)

// TestSizeWithManyPods measures memory and idle CPU of the agent with 250 pods in the API and in the cgroup tree, each
// with a process.
func TestSizeWithManyPods(t *testing.T) {
	stage.Count(t)
	m := newMachine(t, "many", stage.ContainerdOptions{})
	for i := range pods {
		p := m.make(i)
		for _, name := range []string{"pause", "main"} {
			group := fmt.Sprintf("%s/%s%s", m.s.PodGroup(p), name, p.UID)
			testkit.Check(t, m.s.Cgroups().Make(group))
			if name == "main" {
				m.live(group)
			}
		}
	}
	m.startAgent(true)
	wait(t, settling)
	before, began := ticks(t, m.agent.PID()), time.Now()
	wait(t, window)
	used := float64(ticks(t, m.agent.PID())-before) / ticksPerSecond / time.Since(began).Seconds() * 100
	anonymous, files := resident(t, m.agent.PID(), "RssAnon"), resident(t, m.agent.PID(), "RssFile")
	peak := resident(t, m.agent.PID(), "VmHWM")
	table.add("anonymous memory of the agent, 250 pods", "–", fmt.Sprintf("%.1f MiB", mib(anonymous)), "≤ 25 MiB")
	table.add("… pages of its program in memory (peak of both)", "–",
		fmt.Sprintf("%.1f MiB (%.1f MiB)", mib(files), mib(peak)), "–")
	table.add("CPU of the agent while nothing changes, over a minute", "–", fmt.Sprintf("%.2f %%", used), "≤ 0.5 %")
	if anonymous > maxAnonymous {
		t.Errorf("the agent takes %.1f MiB of anonymous memory with %d pods, at most 25 are promised", mib(anonymous),
			pods)
	}
	if used > maxIdle {
		t.Errorf("the agent takes %.2f %% of a CPU while nothing changes, promised are 0.5", used)
	}
}

// make makes the ith pod in the API: as large as pods are that a Deployment with an injected sidecar made.
func (m *machine) make(i int) *corev1.Pod {
	m.Helper()
	p := apiPod(i)
	p.UID, p.Spec.NodeName = "", m.node.Name
	delete(p.Annotations, annotation.ResourceStatusKey) // the machine has not so many CPUs
	p.Labels[annotation.QoSClass] = "LS"
	p.Annotations["example.com/injected"] = strings.Repeat("x", 1000)
	main := &p.Spec.Containers[0]
	main.Image = "registry.example.com/team/project/service:v1.2.3-0123456789abcdef"
	for e := range 20 {
		main.Env = append(main.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", e), Value: strings.Repeat("v", 40)})
	}
	sidecar := *main.DeepCopy()
	sidecar.Name = "sidecar"
	p.Spec.Containers = append(p.Spec.Containers, sidecar)
	made, err := m.plane.Client.CoreV1().Pods(p.Namespace).Create(m.Context(), p, metav1.CreateOptions{})
	testkit.Check(m, err)
	return made
}

// live puts a process into a group.
func (m *machine) live(group string) {
	m.Helper()
	cmd := exec.Command("sleep", "infinity")
	testkit.Check(m, cmd.Start())
	m.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	testkit.Check(m, m.s.Cgroups().Write(group, "cgroup.procs", strconv.Itoa(cmd.Process.Pid)))
}

// wait is part of the measurement: nothing is to happen meanwhile.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// ticksPerSecond is the unit of /proc/PID/stat.
const ticksPerSecond = 100

// ticks is the CPU time of a process, user and system.
func ticks(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	testkit.Check(t, err)
	_, rest, _ := strings.Cut(string(text), ") ")
	sum := 0
	for _, field := range strings.Fields(rest)[11:13] {
		n, err := strconv.Atoi(field)
		testkit.Check(t, err)
		sum += n
	}
	return sum
}

// resident is a line of /proc/PID/status in bytes.
func resident(t *testing.T, pid int, key string) int64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	testkit.Check(t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), key+":"); ok {
			n, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			testkit.Check(t, err)
			return n << 10
		}
	}
	t.Fatalf("process %d has no %s", pid, key)
	return 0
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }
