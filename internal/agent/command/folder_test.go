package command_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/deploy"
	"github.com/tenon-project/tenon/internal/agent/command"
	"github.com/tenon-project/tenon/internal/testkit"
)

const runtimeTests = "../../../test/e2e/node/runtime/"

// folders are those of the node that the agent's DaemonSet mounts: what the agent says, or does not do, without.
func folders() map[string]struct{ path, fails, test string } {
	return map[string]struct{ path, fails, test string }{
		"sys":     {path: "sys", fails: "sys/devices/system/cpu/present: not a directory"},
		"proc":    {path: "proc", fails: "proc/cpuinfo: not a directory"},
		"cgroup":  {path: "sys/fs/cgroup", fails: "fs/cgroup: has neither a cpuset hierarchy nor cgroup.controllers"},
		"state":   {path: "var/lib/tenon-agent", fails: "lock the machine"},
		"run":     {path: "run/tenon", fails: "no hook is answered"},
		"kubelet": {path: "var/lib/kubelet", fails: "the kubelet's records are not read"},
		// These need a runtime or devices, and an API server. The tests take them away there.
		"nri":     {test: runtimeTests + "image_test.go TestWithoutTheFolderOfNRIBoundPodsDoNotStart"},
		"plugins": {test: runtimeTests + "device_test.go TestAPluginNeedsTheFolderOfTheKubelet"},
		"cdi":     {test: runtimeTests + "device_test.go TestWithoutDescriptionsDeviceFilesAreGiven"},
		"etc-cdi": {test: "../inject/cdi_test.go TestDescribeFindsTheDevicesOfTheToolkit"},
	}
}

// TestEachFolderOfTheDaemonSetIsNeeded runs the agent on a node with all of them, and without each.
func TestEachFolderOfTheDaemonSetIsNeeded(t *testing.T) {
	t.Parallel()
	var ds appsv1.DaemonSet
	testkit.Check(t, yaml.UnmarshalStrict(deploy.Agent()[0], &ds))
	if err := agentOn(t, nodeWithout(t, ""), time.Minute); err != nil {
		t.Fatalf("with all folders: %v", err)
	}
	left := folders()
	for _, v := range ds.Spec.Template.Spec.Volumes {
		if v.HostPath == nil {
			continue
		}
		f, known := left[v.Name]
		delete(left, v.Name)
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			if file, name, elsewhere := strings.Cut(f.test, " "); elsewhere {
				text, err := os.ReadFile(file)
				if err != nil || !strings.Contains(string(text), "\nfunc "+name+"(") {
					t.Errorf("no %s: %v", f.test, err)
				}
				return
			}
			err := agentOn(t, nodeWithout(t, f.path), 3*time.Second)
			if !known || err == nil || !strings.Contains(err.Error(), f.fails) {
				t.Errorf("without %s: %v, want %q", v.HostPath.Path, err, f.fails)
			}
		})
	}
	if len(left) > 0 {
		t.Errorf("the DaemonSet does not mount %v", left)
	}
}

// nodeWithout returns the root of a node; a file is in place of one of its folders.
func nodeWithout(t *testing.T, path string) string {
	t.Helper()
	dir := tree(t, "xeon-2s")
	if link := filepath.Join(testkit.Dir(t), "n"); os.Symlink(dir, link) == nil {
		dir = link // sockets have short paths
	}
	for name, text := range map[string]string{
		"sys/fs/cgroup/cgroup.controllers":  "cpuset cpu memory\n",
		"run/tenon/.keep":                   "",
		"var/lib/kubelet/cpu_manager_state": `{"policyName":"static","defaultCpuSet":"0-95","checksum":1}`,
	} {
		name = filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(name), 0o755)
		if err == nil {
			err = os.WriteFile(name, []byte(text), 0o600)
		}
		testkit.Check(t, err)
	}
	if path != "" {
		at := filepath.Join(dir, path)
		_ = os.MkdirAll(filepath.Dir(at), 0o755) // it is there
		testkit.Check(t, errors.Join(os.RemoveAll(at), os.WriteFile(at, nil, 0o600)))
	}
	return dir
}

// agentOn runs the agent on a node without an API server until the runtime proxy can ask it, and returns what does not
// work.
func agentOn(t *testing.T, dir string, limit time.Duration) error {
	t.Helper()
	if _, notes, err := run(t, "probe", "--root", dir); err == nil && !strings.Contains(notes, "state files show") {
		return fmt.Errorf("the kubelet's records are not read: %q", notes)
	}
	config := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(config, []byte(
		`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],
		"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	hooks := filepath.Join(dir, "run/tenon/hooks.sock")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c, ended := command.New(nil), make(chan error, 1)
	c.SetArgs([]string{
		"run", "--root", dir, "--kubeconfig", config, "--health-address=", "--nri-socket=", "--hook-socket", hooks,
	})
	c.SilenceErrors = true
	go func() { ended <- c.ExecuteContext(ctx) }()
	patience := time.After(limit)
	for {
		if hook, err := new(net.Dialer).DialContext(ctx, "unix", hooks); err == nil {
			_ = hook.Close()
			cancel()
			return <-ended
		}
		select {
		case err := <-ended:
			return err
		case <-time.After(20 * time.Millisecond):
		case <-patience:
			cancel()
			<-ended
			return errors.New("no hook is answered")
		}
	}
}
