package system

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// whatAGangWaitsForCanBeRead: of three members one asks for more than any node has. The scheduler's endpoints,
// `tenon explain` on another member and `tenon gang -w` name that one and its cause, and explain of that one has the
// cause itself; with one that fits in its place the gang starts, and the watch says so.
func whatAGangWaitsForCanBeRead(t *testing.T, l *local) {
	t.Helper()
	member := func(i int, cpus int64) {
		l.submit(t, pod(fmt.Sprint("train-", i), object.Gang("train", "3"), object.Requests("cpu", fmt.Sprint(cpus))))
	}
	tenon := func(args ...string) *exec.Cmd {
		return exec.Command(os.Getenv("TENON_BIN"), append(args, "--kubeconfig", filepath.Join(l.dir, "kubeconfig"))...)
	}
	watched := &output{}
	watch := tenon("gang", "-w")
	watch.Stdout, watch.Stderr = watched, watched
	watch.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	testkit.Check(t, watch.Start())
	for i, cpus := range []int64{1, 1, 100} {
		member(i, cpus)
	}
	waitFor(t, time.Minute, "explain to name the member that does not fit", func() error {
		for name, want := range map[string]string{
			"train-0": "of gang default/train only 2 of 3 members fit: pod default/train-2 does not: ", "train-2": "",
		} {
			var answer view.Pod
			text, err := tenon("explain", name, "-o", "json").Output()
			if err == nil {
				err = json.Unmarshal(text, &answer)
			}
			if err != nil {
				return err
			}
			own := name == "train-2"
			if root := answer.RootCause; root == nil || !strings.HasPrefix(root.Message, want) ||
				!strings.Contains(string(text), "nsufficient") || own != (root.Code == why.InsufficientCPU) {
				return fmt.Errorf("%s: %s", name, text)
			}
		}
		return nil
	})
	ports, err := diagnostics(l.dir, l.schedulers)
	testkit.Check(t, err)
	get := func(path string) (int, string) {
		resp, err := asks.Get(fmt.Sprintf("http://127.0.0.1:%d/apis/v1/%s", ports[0], path))
		testkit.Check(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		testkit.Check(t, err)
		return resp.StatusCode, string(text)
	}
	const plugin = "plugins/Coscheduling/"
	for path, want := range map[string][]string{
		plugin + "gang/default/train": {
			`"name":"default/train"`, `"minRequiredNumber":3`, `"reason":"GangSiblingFailed"`,
			`"rootCausePod":"default/train-2"`, `"lastPlan":{`,
		},
		plugin + "gangs": {`"default/train":{"name":"default/train"`},
		"__services__": {
			`"/apis/v1/plugins/Coscheduling/gang/:namespace/:name"`, `"/apis/v1/plugins/Coscheduling/gangs"`,
		},
	} {
		code, text := get(path)
		for _, part := range want {
			if code != http.StatusOK || !strings.Contains(text, part) {
				t.Errorf("%s: %d, no %s in %s", path, code, part, text)
			}
		}
	}
	if code, text := get(plugin + "gang/default/none"); code != http.StatusNotFound {
		t.Errorf("a gang that does not exist: %d %s", code, text)
	}
	lines := func(state gang.Status, message string) error {
		for line := range strings.Lines(watched.String()) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "default/train" && f[1] == string(state) &&
				strings.Contains(line, message) {
				return nil
			}
		}
		return fmt.Errorf("no line with %s and %q:\n%s", state, message, watched.String())
	}
	waitFor(t, time.Minute, "the watch to name the member that does not fit", func() error {
		return lines(gang.StatusWaiting, "pod default/train-2 does not")
	})
	err = l.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(t.Context(), "train-2", metav1.DeleteOptions{})
	testkit.Check(t, err)
	member(3, 1)
	waitFor(t, time.Minute, "the watch to show that the gang runs", func() error {
		return lines(gang.StatusBound, "")
	})
	testkit.Check(t, watch.Process.Signal(syscall.SIGINT))
	if err := watch.Wait(); err != nil {
		t.Errorf("the watch ended with %v\n%s", err, watched.String())
	}
}
