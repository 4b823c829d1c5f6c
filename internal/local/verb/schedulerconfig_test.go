package verb

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/internal/testkit"
)

// TestASchedulerConfigIsTheClusters: its profiles and arguments count, and its connection is replaced.
func TestASchedulerConfigIsTheClusters(t *testing.T) {
	c, err := readSchedulerConfig("testdata/by-load.yaml")
	testkit.Check(t, err)
	trusted := []string{"default-scheduler", "tenon-scheduler", "koord-scheduler", "by-load"}
	if d := cmp.Diff(trusted, c.names()); d != "" {
		t.Errorf("schedulers whose pods count (-want +got):\n%s", d)
	}
	if r := c.quotas.Revoke; r == nil || !r.DryRun || r.Delay != 7*time.Minute {
		t.Errorf("the manager revokes by %+v, want the arguments of the file", r)
	}
	written := filepath.Join(t.TempDir(), "scheduler.yaml")
	testkit.Check(t, c.write(written, "/its/kubeconfig"))
	text, err := os.ReadFile(written)
	testkit.Check(t, err)
	var got struct{ ClientConnection map[string]any }
	testkit.Check(t, yaml.Unmarshal(text, &got))
	want := map[string]any{"kubeconfig": "/its/kubeconfig", "qps": 70.0}
	if d := cmp.Diff(want, got.ClientConnection); d != "" {
		t.Errorf("clientConnection (-want +got):\n%s", d)
	}
	again, err := readSchedulerConfig(written)
	if err != nil || !cmp.Equal(c.profiles, again.profiles) {
		t.Errorf("what is written has the profiles %v, want %v: %v", again.profiles, c.profiles, err)
	}
}

func TestWithoutASchedulerConfigDefaultsHold(t *testing.T) {
	t.Parallel()
	c, err := readSchedulerConfig("")
	testkit.Check(t, err)
	if c.file != "" || len(c.names()) != 3 || c.quotas == nil || c.checkDemo() != nil {
		t.Errorf("got %+v", c)
	}
}
