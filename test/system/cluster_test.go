package system

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// local is a cluster that `tenon up` runs in the foreground, as a child of the test.
type local struct {
	dir        string
	schedulers int
	client     kubernetes.Interface
}

// The hidden verbs of the processes that tests kill.
const (
	schedulerVerb = "__scheduler"
	managerVerb   = "__manager"
)

// soak makes the tests that kill schedulers and managers, and those with many pods, as large as `make soak` has them.
var soak = flag.Bool("soak", false, "kill 20 times instead of 6, with more pods and nodes")

// lease is as short as a Lease can be that is renewed by a busy machine: its length is in whole seconds.
const lease = 2 * time.Second

// size returns how many of something a test has: the first number, and with -soak the second.
func size(short, long int) int {
	if *soak {
		return long
	}
	return short
}

// kills is how often a test kills. internal/sim kills a scheduler at each call of a
// gang's transaction; here processes are killed.
func kills() int { return size(6, 20) }

// pod returns a pod of Tenon's scheduler in the namespace default.
func pod(name string, options ...object.PodOption) *corev1.Pod {
	return object.Pod(name, append([]object.PodOption{
		object.Scheduler("tenon-scheduler"), object.Container("main", "app"),
	}, options...)...)
}

// asks is a client that gives up: a port that takes connections and never answers must not hold the test.
var asks = &http.Client{Timeout: 20 * time.Second}

// binary is the program that is tried. Without one the test is skipped; make test has one, and shows what is skipped.
func binary(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("TENON_BIN")
	if bin == "" {
		t.Skip("NOT RUN: whole-system test: TENON_BIN does not name the built binary (make test sets it)")
	}
	return bin
}

// up starts a cluster with that many schedulers in a folder of its own and stops it when the test ends.
func up(t *testing.T, schedulers int, args ...string) *local {
	t.Helper()
	bin := binary(t)
	dir := t.TempDir()
	out := &output{}
	cmd := exec.Command(bin, append([]string{
		"up", "--data", dir, "--schedulers", strconv.Itoa(schedulers),
		"--leader-lease", lease.String(),
	}, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	testkit.Check(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		if t.Failed() {
			keepLogs(t, dir)
		}
		_ = cmd.Process.Signal(syscall.SIGINT)
		select {
		case err := <-ended:
			if err != nil {
				keepLogs(t, dir)
				t.Errorf("%s\ntenon up ended with %v", out.String(), err)
			}
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			t.Error("tenon up did not end within a minute of Ctrl-C")
		}
		checkAccounts(t, dir)
	})
	waitFor(t, 2*time.Minute, "tenon up to be ready", func() error {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("tenon up ended: %v\n%s", err, out.String())
		default:
		}
		if !strings.Contains(out.String(), "Ready in") {
			return errors.New("it has not said so yet")
		}
		return ready(dir, schedulers)
	})
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	testkit.Check(t, err)
	cfg.QPS, cfg.Burst = 2000, 4000
	client, err := kubernetes.NewForConfig(cfg)
	testkit.Check(t, err)
	return &local{dir: dir, schedulers: schedulers, client: client}
}

// checkAccounts reports what schedulers had to repair in their accounts: never anything, whatever was killed.
func checkAccounts(t *testing.T, dir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "log", "scheduler*.log"))
	testkit.Check(t, err)
	for _, file := range logs {
		text, err := os.ReadFile(file)
		testkit.Check(t, err)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "Account differed from its pods") {
				t.Errorf("%s: %s", filepath.Base(file), line)
			}
		}
	}
}

// output is what a command has written so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// ready asks every scheduler replica's diagnostics; a waiting replica answers 503, which is an answer.
func ready(dir string, schedulers int) error {
	ports, err := diagnostics(dir, schedulers)
	if err != nil {
		return err
	}
	for _, p := range ports {
		resp, err := asks.Get(fmt.Sprintf("http://127.0.0.1:%d/apis/v1/__services__", p))
		if err != nil {
			return err
		}
		resp.Body.Close()
	}
	return nil
}

// diagnostics returns the ports of the schedulers' diagnostics, replica by replica.
func diagnostics(dir string, schedulers int) ([]int, error) {
	text, err := os.ReadFile(filepath.Join(dir, "ports.json"))
	if err != nil {
		return nil, err
	}
	var ports map[string]int
	if err := json.Unmarshal(text, &ports); err != nil {
		return nil, err
	}
	out := []int{ports["diagnostics"]}
	for replica := 2; replica <= schedulers; replica++ {
		out = append(out, ports[fmt.Sprintf("diagnostics-%d", replica)])
	}
	return out, nil
}

// leader returns which replica (0, 1, …) leads, by asking all of them.
func (l *local) leader() (int, error) {
	ports, err := diagnostics(l.dir, l.schedulers)
	if err != nil {
		return 0, err
	}
	for i, p := range ports {
		resp, err := asks.Get(fmt.Sprintf("http://127.0.0.1:%d/apis/v1/__services__", p))
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return i, nil
		}
	}
	return 0, fmt.Errorf("no replica leads")
}

// ask reads what the leading scheduler's diagnostics answer at a path below /apis/v1/.
func (l *local) ask(path string, into any) error {
	leader, err := l.leader()
	if err != nil {
		return err
	}
	ports, err := diagnostics(l.dir, l.schedulers)
	if err != nil {
		return err
	}
	resp, err := asks.Get(fmt.Sprintf("http://127.0.0.1:%d/apis/v1/%s", ports[leader], path))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}

// processes returns the ids of the processes of a hidden verb, such as __scheduler, by replica number.
func (l *local) processes(verb string) (map[int]int, error) {
	found := map[int]int{}
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, path := range procs {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		args := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
		if !slices.Contains(args, verb) || !slices.Contains(args, l.dir) {
			continue
		}
		replica := 0
		if i := slices.Index(args, "--replica"); i >= 0 && i+1 < len(args) {
			if replica, err = strconv.Atoi(args[i+1]); err != nil {
				return nil, err
			}
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return nil, err
		}
		found[replica] = pid
	}
	return found, nil
}

// killLeader kills the leading replica outright and returns when another one leads and the dead one is back.
func (l *local) killLeader(t *testing.T) {
	t.Helper()
	var victim, pid int
	waitFor(t, time.Minute, "a leader", func() error {
		var err error
		if victim, err = l.leader(); err != nil {
			return err
		}
		pids, err := l.processes(schedulerVerb)
		if err != nil {
			return err
		}
		if pid = pids[victim]; pid == 0 {
			return fmt.Errorf("replica %d has no process; have %v", victim, pids)
		}
		return nil
	})
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill scheduler %d: %v", pid, err)
	}
	waitFor(t, time.Minute, "the killed scheduler to be back beside a new leader", func() error {
		pids, err := l.processes(schedulerVerb)
		if err != nil {
			return err
		}
		if len(pids) < 2 || pids[victim] == pid {
			return fmt.Errorf("replicas: %v", pids)
		}
		_, err = l.leader()
		return err
	})
}

func waitFor(t *testing.T, limit time.Duration, what string, done func() error) {
	t.Helper()
	limit *= 3 // they are of a quiet machine
	deadline := time.Now().Add(limit)
	var err error
	for time.Now().Before(deadline) {
		if err = done(); err == nil {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("waiting for %s: %v", what, t.Context().Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatalf("waiting for %s: %v after %v", what, err, limit)
}

// keepLogs copies the logs to a folder that outlives the test. They are not printed: what failed must be the last that
// is said of a test.
func keepLogs(t *testing.T, dir string) {
	t.Helper()
	kept, err := os.MkdirTemp("", "tenon-logs-")
	if err == nil {
		err = os.CopyFS(kept, os.DirFS(filepath.Join(dir, "log")))
	}
	if err != nil {
		t.Errorf("keep logs: %v", err)
		return
	}
	t.Logf("the logs are in %s", kept)
}
