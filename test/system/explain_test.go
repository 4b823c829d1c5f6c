package system

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// explainShowsChangesOfACgroupByHand writes another set into the cgroup of a pod, as a person would by hand:
// explain shows the difference, and after the agent's next look that it was there.
func explainShowsChangesOfACgroupByHand(t *testing.T, l *local) {
	t.Helper()
	ctx := t.Context()
	waitFor(t, time.Minute, "the namespace's service account", func() error {
		_, err := l.client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	bound := object.Pod("bound", object.Class("LSR"), object.Container("app", "app"),
		object.Both("cpu", "4", "memory", "1Gi"))
	_, err := l.client.CoreV1().Pods("default").Create(ctx, bound, metav1.CreateOptions{})
	testkit.Check(t, err)
	// app returns what explain says of the container's cpuset.
	app := func() (view.Cgroup, view.CgroupValue, error) {
		var answer struct {
			Actual *view.Cgroups `json:"actual"`
			Notes  []string      `json:"notes"`
		}
		text, err := l.explain("-o", "json")
		if err == nil {
			err = json.Unmarshal(text, &answer)
		}
		if err != nil || answer.Actual == nil {
			return view.Cgroup{}, view.CgroupValue{}, fmt.Errorf("no actual: %w, %v", err, answer.Notes)
		}
		for _, g := range answer.Actual.Groups {
			for _, v := range g.Values {
				if g.Container == "app" && v.File == "cpuset.cpus" {
					return g, v, nil
				}
			}
		}
		return view.Cgroup{}, view.CgroupValue{}, fmt.Errorf("no cpuset of the container: %+v", answer.Actual)
	}
	var group view.Cgroup
	waitFor(t, time.Minute, "the container on its CPUs", func() error {
		g, v, err := app()
		if group = g; err == nil && (v.State != view.Matches || v.Got != "0-3") {
			err = fmt.Errorf("%+v", v)
		}
		return err
	})

	testkit.Check(t, os.WriteFile(filepath.Join(group.Path, "cpuset.cpus"), []byte("0-63\n"), 0o644))
	waitFor(t, time.Minute, "the drift and its repair to be reported", func() error {
		g, v, err := app()
		if err == nil && (v.State != view.Matches || g.Drift == nil || g.Drift.Got != "0-63" ||
			g.Drift.Repaired == nil) {
			err = fmt.Errorf("%+v, drift %+v", v, g.Drift)
		}
		return err
	})
	text, err := l.explain()
	for _, want := range []string{
		"app: cpuset.cpus 0-3, as wanted (CPUs of the pod's allocation)", group.Path,
		`another program set cpuset.cpus to "0-63" instead of "0-3", set back `,
	} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%v: no %q in\n%s", err, want, text)
		}
	}
}

// explain runs the command line about the pod bound.
func (l *local) explain(args ...string) ([]byte, error) {
	return exec.Command(os.Getenv("TENON_BIN"),
		append([]string{"explain", "bound", "--kubeconfig", filepath.Join(l.dir, "kubeconfig")}, args...)...).Output()
}
