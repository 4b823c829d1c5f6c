package verb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// asTenon makes this test binary the tenon that it tests: the components are children of it.
const asTenon = "TENON_TEST_AS_TENON"

// patience bounds a wait for something that takes a moment; it is long because machines may be slow.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(asTenon) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{Use: "tenon", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(Commands(nil)...)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(codeOf(err))
	}
}

// system is a data folder with the tenon to use on it.
type system struct {
	t   *testing.T
	dir datadir.Dir
}

func (s system) command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], append(args, "--data", s.dir.Root())...)
	cmd.Env = append(os.Environ(), asTenon+"=1")
	return cmd
}

// run runs tenon to its end.
func (s system) run(args ...string) (string, error) {
	cmd := s.command(args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func (s system) must(args ...string) string {
	s.t.Helper()
	out, err := s.run(args...)
	if err != nil {
		s.t.Fatalf("tenon %v: %v\n%s", args, err, out)
	}
	return out
}

func (s system) client() kubernetes.Interface {
	s.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.dir.Kubeconfig())
	if err != nil {
		s.t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		s.t.Fatal(err)
	}
	return client
}

func (s system) await(what string, done func(ctx context.Context) (bool, error)) {
	s.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(s.t.Context(), 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			ok, err := done(ctx)
			last = err
			return ok && err == nil, nil
		})
	if err != nil {
		s.t.Fatalf("wait until %s: %v (%v)", what, err, last)
	}
}

// place creates a pod and returns it once it runs.
func (s system) place(name, class, scheduler string) *corev1.Pod {
	s.t.Helper()
	client := s.client()
	pod := object.Pod(name, object.Scheduler(scheduler), object.Class(class), object.Both("cpu", "2", "memory", "1Gi"))
	if class != "" {
		pod.Spec.PriorityClassName = "koord-prod"
	}
	if _, err := client.CoreV1().Pods("default").Create(s.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		s.t.Fatalf("create pod %s: %v", name, err)
	}
	s.await("pod "+name+" runs", func(ctx context.Context) (bool, error) {
		var err error
		pod, err = client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning, err
	})
	return pod
}

// children is 0 when no child process runs.
func (s system) children() (sum int) {
	for _, verb := range []string{"__scheduler", "__manager", "__descheduler", "__nodes"} {
		sum += s.child(verb)
	}
	return sum
}

// child returns the id of the child process with a hidden verb, 0 while there is none.
func (s system) child(verb string) int {
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		s.t.Fatal(err)
	}
	want := strings.Join([]string{os.Args[0], verb, "--data", s.dir.Root()}, "\x00") + "\x00"
	for _, e := range entries {
		var pid int
		if text, err := os.ReadFile(e); err != nil || !strings.HasPrefix(string(text), want) {
			continue
		}
		if _, err := fmt.Sscanf(e, "/proc/%d/", &pid); err == nil {
			return pid
		}
	}
	return 0
}

// TestSystem starts one cluster and treats it as users and machines do. The steps build on each other.
func TestSystem(t *testing.T) {
	dir, err := datadir.Resolve(filepath.Join(t.TempDir(), "data"))
	testkit.Check(t, err)
	s := system{t: t, dir: dir}
	defer func() { _, _ = s.run("down") }()

	out := s.must("up", "--detach", "--machine", "snc2", "--machine", "epyc-2s@static,restricted,memory-static")
	for _, part := range []string{"Ready in", "snc2-0", "epyc-2s-0", " KUBECONFIG=" + dir.Kubeconfig()} {
		if !strings.Contains(out, part) {
			t.Errorf("tenon up does not say %q:\n%s", part, out)
		}
	}
	first := s.place("pinned", "LSR", "")
	if first.Annotations[annotation.ResourceStatusKey] == "" {
		t.Error("an LSR pod runs without CPUs of its own")
	}
	if fence, there := first.Annotations[annotation.RequiredPlugins]; there {
		t.Errorf("a simulated node has no runtime that reads %s, and a pod carries %q", annotation.RequiredPlugins,
			fence)
	}
	s.place("plain", "", "")
	s.place("ported", "", "koord-scheduler")
	s.place("named", "", "tenon-scheduler")

	t.Run("a bad pod is refused by the webhook", func(t *testing.T) {
		bad := object.Pod("bad", object.Class("LSX"), object.Container("c", "x"))
		if _, err := s.client().CoreV1().Pods("default").Create(t.Context(), bad, metav1.CreateOptions{}); err == nil {
			t.Error("a pod of an unknown QoS class was admitted")
		}
	})
	t.Run("a kubelet refuses a pod that it cannot align", func(t *testing.T) {
		// two nodes' CPUs, one node's memory
		torn := object.Pod("torn", object.On("epyc-2s-0"), object.Both("cpu", "40", "memory", "1Gi"))
		pods := s.client().CoreV1().Pods("default")
		if _, err := pods.Create(t.Context(), torn, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.await("pod torn is decided about", func(ctx context.Context) (bool, error) {
			var err error
			torn, err = pods.Get(ctx, "torn", metav1.GetOptions{})
			return err == nil && torn.Status.Phase != corev1.PodPending, err
		})
		if torn.Status.Phase != corev1.PodFailed || torn.Status.Reason != "TopologyAffinityError" {
			t.Errorf("the pod is %s: %s: %s", torn.Status.Phase, torn.Status.Reason, torn.Status.Message)
		}
	})
	t.Run("logs answer in words", func(t *testing.T) {
		text, err := s.client().CoreV1().Pods("default").GetLogs("plain", &corev1.PodLogOptions{}).DoRaw(t.Context())
		if err != nil || !strings.Contains(string(text), "simulated") {
			t.Errorf("got %q, %v", text, err)
		}
	})
	t.Run("diagnostics are where the kubeconfig says", func(t *testing.T) {
		config, err := clientcmd.LoadFromFile(dir.Kubeconfig())
		testkit.Check(t, err)
		extension, ok := config.Clusters["tenon"].Extensions["tenon.sh"].(*runtime.Unknown)
		if !ok {
			t.Fatalf("the kubeconfig has no extension tenon.sh: %v", config.Clusters["tenon"].Extensions)
		}
		var address struct{ Diagnostics string }
		testkit.Check(t, json.Unmarshal(extension.Raw, &address))
		response, err := http.Get(address.Diagnostics + "/apis/v1/__services__")
		testkit.Check(t, err)
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			t.Errorf("status %s", response.Status)
		}
	})
	t.Run("a second start names the process", func(t *testing.T) {
		owner, running, err := dir.Running()
		if err != nil || !running {
			t.Fatalf("Running() = %v, %v", running, err)
		}
		out, err := s.run("up")
		if want := fmt.Sprintf("process %d", owner.PID); err == nil || !strings.Contains(out, want) {
			t.Errorf("got %v, %q; want an error that says %q", err, out, want)
		}
	})
	t.Run("components that are killed come back", func(t *testing.T) {
		for _, verb := range []string{"__scheduler", "__manager", "__descheduler", "__nodes"} {
			old := s.child(verb)
			if old == 0 {
				t.Fatalf("no process %s", verb)
			}
			testkit.Check(t, syscall.Kill(old, syscall.SIGKILL))
			s.await(verb+" is back", func(context.Context) (bool, error) {
				p := s.child(verb)
				return p != 0 && p != old, nil
			})
		}
		s.await("the webhooks answer again", func(ctx context.Context) (bool, error) {
			_, err := s.client().CoreV1().Pods("default").Create(ctx, object.Pod("probe", object.Class("LS"),
				object.Container("c", "x")), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err == nil, err
		})
		s.place("after-children", "LSR", "")
	})
	t.Run("a start after kill -9 goes on with the same data", func(t *testing.T) {
		owner, _, err := dir.Running()
		testkit.Check(t, err)
		testkit.Check(t, owner.Signal(syscall.SIGKILL))
		s.await("the folder is free and the children are gone", func(context.Context) (bool, error) {
			_, running, err := dir.Running()
			return !running && s.children() == 0, err
		})
		s.must("up", "--detach")
		again, err := s.client().CoreV1().Pods("default").Get(t.Context(), "pinned", metav1.GetOptions{})
		testkit.Check(t, err)
		if again.UID != first.UID ||
			again.Annotations[annotation.ResourceStatusKey] != first.Annotations[annotation.ResourceStatusKey] {
			t.Errorf("the pinned pod is another one, or has other CPUs: %v, was %v", again.Annotations,
				first.Annotations)
		}
		s.place("after-kill", "LSR", "")
	})
	t.Run("down stops it, and with --purge leaves nothing", func(t *testing.T) {
		if out := s.must("down"); !strings.Contains(out, "the data are kept") {
			t.Errorf("tenon down says %q", out)
		}
		if n := s.children(); n != 0 {
			t.Error("children are left")
		}
		s.must("down", "--purge")
		if _, err := os.Stat(dir.Root()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the folder is still there: %v", err)
		}
	})
}
