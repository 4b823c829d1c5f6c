//go:build linux && e2e_cluster

package fabricated

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/fold"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// world is what all nodes of a run share: a control plane with our scheduler and webhooks, and a containerd.
type world struct {
	*stage.Stage
	runtime *stage.Containerd
	cri     runtimeapi.RuntimeServiceClient
	data    datadir.Dir
	client  kubernetes.Interface
	objects dynamic.Interface
	store   fold.Store
	real    int // CPUs that the kernel has
}

// newWorld starts all but the nodes, for which it makes credentials.
func newWorld(t *testing.T, nodes []string) *world {
	t.Helper()
	w := &world{Stage: stage.New(t)}
	w.store = fold.Store{Dir: w.Path("fold")}
	testkit.Check(t, os.MkdirAll(w.store.Dir, 0o755))
	w.real = realCPUs(t, w.Stage)
	stage.AddAddress(t, stage.NodeAddress)
	w.QuietSysctls()
	testkit.Check(t, os.MkdirAll("/var/lib/kubelet", 0o755)) // the stage's own, in memory
	w.runtime = w.Containerd(stage.ContainerdOptions{Runc: w.wrapper(t)})
	w.cri = w.Runtime(w.Socket()).Client()
	w.startPlane(t, nodes)
	return w
}

// wrapper installs foldrunc in front of runc.
func (w *world) wrapper(t *testing.T) string {
	t.Helper()
	program := w.Path("foldrunc")
	text, err := os.ReadFile(os.Getenv(wrapperVariable))
	testkit.Check(t, err)
	testkit.Check(t, os.WriteFile(program, text, 0o755))
	settings, err := json.Marshal(map[string]any{"runc": stage.Tool("runc"), "store": w.store.Dir, "cpus": w.real})
	testkit.Check(t, err)
	testkit.Check(t, os.WriteFile(program+".json", settings, 0o644))
	return program
}

// wrapperVariable names the built foldrunc.
const wrapperVariable = "TENON_FOLDRUNC"

// buildWrapper builds foldrunc, before the stage is entered.
func buildWrapper(dir string) error {
	program := filepath.Join(dir, "foldrunc")
	cmd := exec.Command("go", "build", "-trimpath", "-o", program,
		"github.com/tenon-project/tenon/test/e2e/node/foldrunc")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build foldrunc: %w\n%s", err, text)
	}
	return os.Setenv(wrapperVariable, program)
}

// realCPUs is how many CPUs the kernel lets the stage use: they must be 0 to N-1.
func realCPUs(t *testing.T, s *stage.Stage) int {
	t.Helper()
	list, err := s.Effective(s.Group())
	testkit.Check(t, err)
	ids, err := fold.Parse(list)
	testkit.Check(t, err)
	for i, id := range ids {
		if i != id {
			t.Fatalf("the kernel's CPUs %s do not begin at 0 or have gaps: virtual ones cannot be folded on them", list)
		}
	}
	if len(ids) == 0 {
		t.Fatal("the stage's group has no CPUs")
	}
	return len(ids)
}

// startPlane starts the control plane with the scheduler and the manager.
func (w *world) startPlane(t *testing.T, nodes []string) {
	t.Helper()
	var err error
	w.data, err = datadir.Resolve(w.Path("plane"))
	testkit.Check(t, err)
	plane := w.Run(stage.Command{
		Name: "plane", Path: stage.Binary("tenon"),
		Args: []string{
			joinVerb, "--data=" + w.data.Root(), "--node=" + strings.Join(nodes, ","), "--schedulers=1",
			"--webhooks",
		},
	})
	t.Cleanup(func() {
		plane.Stop(t)
		if t.Failed() {
			w.showPlane(t)
		}
	})
	stage.Await(t, "the control plane", func() error {
		if !plane.Running() {
			t.Fatalf("the control plane ended: %v\n%s", plane.Err(), plane.Log())
		}
		if !strings.HasSuffix(strings.TrimSpace(plane.Log()), "\n"+joinReady) {
			return errors.New("it is not ready")
		}
		return nil
	})
	config, err := clientcmd.BuildConfigFromFlags("", w.data.Kubeconfig())
	testkit.Check(t, err)
	config.QPS, config.Burst = 500, 1000
	w.client, err = kubernetes.NewForConfig(config)
	testkit.Check(t, err)
	w.objects, err = dynamic.NewForConfig(config)
	testkit.Check(t, err)
}

// The hidden verb of tenon that runs a control plane for nodes that another process runs, and what it prints once it
// serves.
const (
	joinVerb  = "__join"
	joinReady = "ready"
)

// credential is the kubeconfig of a node's kubelet or agent.
func (w *world) credential(component, node string) string {
	return w.data.Credential(component + "-" + node)
}

func (w *world) showPlane(t *testing.T) {
	t.Helper()
	for _, name := range []string{"control-plane", "scheduler", "manager"} {
		if text, err := os.ReadFile(w.data.Log(name)); err == nil {
			t.Logf("%s (end):\n%s", name, text[max(0, len(text)-3000):])
		}
	}
}
