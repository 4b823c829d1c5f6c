//go:build e2e_node

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/test/e2e/node/cgroupfs"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// A load uses all CPUs for two parts of equal length: best-effort pods are to give way in the first one.
const (
	loadVariable = "TENON_BENCH_LOAD"
	loadPart     = 1500 * time.Millisecond
	loadRounds   = 5
)

// work is the process of a load: it begins when it can read a byte, and prints how far it came in each part.
func work() {
	_, _ = os.Stdin.Read(make([]byte, 1))
	threads := goruntime.NumCPU()
	goruntime.GOMAXPROCS(threads + 1)
	var done atomic.Int64
	for range threads {
		go func() {
			for n := uint64(1); ; done.Add(1) {
				for range 20_000 {
					n = n*6364136223846793005 + 1442695040888963407
				}
				if n == 0 {
					return
				}
			}
		}()
	}
	time.Sleep(loadPart)
	first := done.Load()
	time.Sleep(loadPart)
	fmt.Println(first, done.Load()-first)
}

// side is a way to protect a load.
type side struct {
	name      string
	protect   protection
	lost      [2][]float64 // by part, in percent of what the load does alone
	took      [2][]float64 // by part, the pod's CPU time in percent of the pod's and the load's
	reactions []stage.Reaction
}

// protection is what protects a load from best-effort pods.
type protection struct {
	stops    bool // they do not run
	weighs   bool // the least weight, which a kubelet gives them
	suppress bool
}

// TestSuppression measures what a load on all CPUs loses to a best-effort pod that uses all CPUs too, beside the same
// load alone, and how soon the pod gives way. The sides alternate in one run, each second round in the opposite order.
func TestSuppression(t *testing.T) {
	stage.Count(t)
	m := newMachine(t, "suppressed", stage.ContainerdOptions{})
	m.s.HideOthers()
	m.startAgent(true)
	m.runPod("be", object.Class("BE"), func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"burn"} })
	ls := m.runPod("ls", object.Class("LS"), object.Requests("cpu", "1"))
	sides := []*side{
		{name: "no best-effort pod", protect: protection{stops: true}},
		{name: "equal weights"},
		{name: "equal weights, suppression", protect: protection{suppress: true}},
		{name: "weights", protect: protection{weighs: true}},
		{name: "weights, suppression", protect: protection{weighs: true, suppress: true}},
	}
	for round := range loadRounds {
		order := slices.Clone(sides)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		did := map[*side][2]float64{}
		for _, one := range order {
			did[one] = m.load(one, ls)
		}
		for _, one := range sides {
			for part := range one.lost {
				one.lost[part] = append(one.lost[part], 100-100*did[one][part]/did[sides[0]][part])
			}
		}
	}
	fmt.Printf("\n| | the load loses in %v | in the next %[1]v | the pod takes in %[1]v | in the next %[1]v | "+
		"quota down after | kept to after |\n|---|---:|---:|---:|---:|---:|---:|\n", loadPart)
	for _, one := range sides[1:] {
		var quota, use []float64
		for _, r := range one.reactions {
			quota, use = append(quota, r.Quota.Seconds()), append(use, r.Use.Seconds())
		}
		const percent = "%.1f %%"
		fmt.Printf("| %s | %s | %s | %s | %s | %s | %s |\n", one.name, spread(one.lost[0], percent),
			spread(one.lost[1], percent), spread(one.took[0], percent), spread(one.took[1], percent),
			spread(quota, "%.2f s"), spread(use, "%.2f s"))
	}
}

// spread returns the median of values, and their range.
func spread(values []float64, format string) string {
	if len(values) == 0 {
		return "–"
	}
	slices.Sort(values)
	text := func(i int) string { return fmt.Sprintf(format, values[i]) }
	last := len(values) - 1
	return fmt.Sprintf("%s (%s to %s, %d)", text(last/2), text(0), text(last), len(values))
}

// runPod runs a pod with one container, and returns its group.
func (m *machine) runPod(name string, options ...object.PodOption) string {
	m.Helper()
	options = append([]object.PodOption{object.On(m.node.Name), object.Grace(0), object.Probe}, options...)
	p := object.Pod(name, options...)
	p.Spec.HostNetwork = true
	p, err := m.plane.Client.CoreV1().Pods(p.Namespace).Create(m.Context(), p, metav1.CreateOptions{})
	testkit.Check(m, err)
	b, err := m.runtime.RunPod(m.Context(), p)
	testkit.Check(m, err)
	_, err = b.Run(m.Context(), "main")
	testkit.Check(m, err)
	return b.Group
}

// load protects a load in one way, and returns how far it came in each part.
func (m *machine) load(one *side, group string) (did [2]float64) {
	m.Helper()
	be := m.s.BestEffortGroup()
	signal := func(s syscall.Signal) {
		for _, dir := range m.s.Cgroups().Dirs(be) {
			for _, pid := range cgroupfs.Processes(dir) {
				_ = syscall.Kill(pid, s)
			}
		}
	}
	shares, weight := "1024", "39"
	if one.protect.weighs {
		shares, weight = "2", "1"
	}
	file := "cpu.shares"
	if m.s.Cgroups().Unified() {
		file, shares = "cpu.weight", weight
	}
	testkit.Check(m, m.s.Cgroups().Write(be, file, shares))
	if one.protect.stops {
		signal(syscall.SIGSTOP)
		defer signal(syscall.SIGCONT)
	}
	if one.protect.suppress {
		defer m.plane.Suppress(m.node.Name, 65)()
	}
	m.awaitQuota(one.protect.suppress, group)

	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), loadVariable+"=1")
	begin, err := cmd.StdinPipe()
	testkit.Check(m, err)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	testkit.Check(m, cmd.Start())
	for _, dir := range m.s.Cgroups().Dirs(group) {
		err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0)
		if !errors.Is(err, fs.ErrNotExist) { // not every hierarchy has the group
			testkit.Check(m, err)
		}
	}
	read := m.s.Watch(group, func() {
		_, err := begin.Write([]byte{1})
		testkit.Check(m, errors.Join(err, cmd.Wait()))
	})
	begun, half := stage.Begun(read), len(read)-1
	for i := range read {
		if read[i].At.Sub(read[begun].At) >= loadPart {
			half = i
			break
		}
	}
	for part, span := range [][2]int{{begun, half}, {half, len(read) - 1}} {
		pod, load := read[span[1]].BE-read[span[0]].BE, read[span[1]].LS-read[span[0]].LS
		one.took[part] = append(one.took[part], 100*float64(pod)/float64(max(1, pod+load)))
	}
	target := time.Duration(0) // the most that the pod may use in the second part
	for _, u := range read[half:] {
		target = max(target, u.Quota)
	}
	if r, ok := stage.React(read, target); ok {
		one.reactions = append(one.reactions, r)
	}
	_, err = fmt.Sscan(out.String(), &did[0], &did[1])
	testkit.Check(m, err)
	return did
}

// awaitQuota waits until best-effort pods have a quota that no longer grows, or none.
func (m *machine) awaitQuota(some bool, group string) {
	m.Helper()
	last, since := time.Duration(0), time.Now()
	stage.Await(m, "the quota of best-effort pods", func() error {
		u, err := m.s.Use(group)
		if moved := u.Quota - last; moved > 20*time.Millisecond || moved < -20*time.Millisecond {
			last, since = u.Quota, time.Now()
		}
		if err == nil && (some != (u.Quota >= 0) || time.Since(since) < 2*time.Second) {
			err = fmt.Errorf("it is %v since %v", u.Quota, time.Since(since))
		}
		return err
	})
}
