//go:build e2e_node

package runtime

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// limitedBy asks for what keeps a container to its share of a GPU.
func limitedBy(provider string) podOption {
	return func(p *corev1.Pod) {
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[annotation.GPUIsolationLabel] = provider
	}
}

// mounts returns the lines of the mounts of a container, by where they are.
func (a *accelerated) mounts(c *stage.Container) map[string]string {
	a.Helper()
	stage.Await(a, "the probe in "+c.Name, func() error { _, err := c.Said("ready"); return err })
	processes, err := c.Cgroup("cgroup.procs")
	testkit.Check(a, err)
	pid, _, _ := strings.Cut(processes, "\n")
	mounts := map[string]string{}
	for line := range strings.Lines(read(a.T, "/proc/"+strings.TrimSpace(pid)+"/mountinfo")) {
		if fields := strings.Fields(line); len(fields) > 4 {
			mounts[fields[4]] = line
		}
	}
	return mounts
}

// A real runtime makes the mounts: of each container's own memory for HAMi-core, of the daemon's folders for MPS. No
// library, daemon or card is behind them.
func TestAContainerIsMadeWithWhatLimitsIt(t *testing.T) {
	for _, route := range []path{byNRI, byOldNRI} {
		t.Run(string(route), func(t *testing.T) {
			a := newAccelerated(t, route, true)
			testkit.Check(t, syscall.Mount("tmpfs", "/usr/local", "tmpfs", 0, "mode=755"))
			t.Cleanup(func() { _ = syscall.Unmount("/usr/local", syscall.MNT_DETACH) })
			testkit.Check(t, os.MkdirAll("/usr/local/vgpu", 0o755))
			_, c := a.run(pod("hami", given(halfOfA), limitedBy(annotation.HAMiCore), a.trying))
			a.uses(c, "GPU-a", "nvidia0", "nvidiactl")
			mounts := a.mounts(c)
			lock := mounts["/tmp/vgpulock"]
			if !strings.Contains(lock, "- tmpfs ") || !strings.Contains(lock, "size=16384k") ||
				mounts["/usr/local/vgpu"] == "" {
				t.Errorf("mounts of a container with HAMi-core: lock %q, library %q", lock, mounts["/usr/local/vgpu"])
			}

			b := a.sandbox(pod("mps", given(halfOfA), limitedBy(annotation.MPS), a.trying))
			if _, err := b.Create(t.Context(), "main"); err == nil ||
				!strings.Contains(err.Error(), "no nvidia-cuda-mps-control") {
				t.Errorf("without a daemon of MPS: %v", err)
			}
			for name, text := range map[string]string{
				machineRoot + "/var/run/tenon/mps/pipe/nvidia-cuda-mps-control.pid": "99",
				machineRoot + "/proc/99/cmdline":                                    "nvidia-cuda-mps-control\x00",
				"/run/tenon/mps/pipe/control":                                       "",
				"/run/tenon/mps/shm/of-the-daemon":                                  "",
			} {
				testkit.Check(t, os.MkdirAll(filepath.Dir(name), 0o755))
				testkit.Check(t, os.WriteFile(name, []byte(text), 0o644))
			}
			drop := machineRoot + "/var/run/tenon/device-infos/cards.json"
			cards := strings.ReplaceAll(read(t, drop), `"minor"`, `"computeMode":"Exclusive_Process","minor"`)
			testkit.Check(t, os.WriteFile(drop, []byte(cards), 0o644))
			stage.Await(a, "the agent to know the daemon", func() (err error) {
				c, err = b.Create(t.Context(), "main")
				return err
			})
			testkit.Check(t, c.Start(t.Context()))
			a.uses(c, "GPU-a", "nvidia0", "nvidiactl")
			mounts = a.mounts(c)
			if mounts["/run/tenon/mps/pipe"] == "" || !strings.Contains(mounts["/dev/shm"], "/tenon/mps/shm") {
				t.Errorf("mounts of a container with MPS: pipes %q, shared memory %q", mounts["/run/tenon/mps/pipe"],
					mounts["/dev/shm"])
			}
		})
	}
}
