//go:build e2e_node

package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// Allocations of pods, as the scheduler writes them.
const (
	halfOfA = `{"gpu":[{"minor":0,"id":"GPU-a","resources":{"koordinator.sh/gpu-core":"50",` +
		`"koordinator.sh/gpu-memory":"8Gi","koordinator.sh/gpu-memory-ratio":"50"}}]}`
	both = `{"gpu":[{"minor":0,"id":"GPU-a","resources":{"koordinator.sh/gpu-core":"100"}},` +
		`{"minor":1,"id":"GPU-b","resources":{"koordinator.sh/gpu-core":"100"}}]}`
	oneEach = `{"gpu":[{"minor":0,"id":"GPU-a","resources":{},"extension":{"containers":{"main":{}}}},` +
		`{"minor":1,"id":"GPU-b","resources":{},"extension":{"containers":{"second":{}}}}]}`
	secondAdapter = `{"rdma":[{"minor":1,"id":"0000:09:00.0","resources":{"koordinator.sh/rdma":"100"}}]}`
	notThere      = `{"gpu":[{"minor":0,"id":"GPU-c","resources":{}}]}`
	withoutID     = `{"gpu":[{"minor":0,"resources":{}}]}`
)

// withSecond gives a pod a second container.
func withSecond(p *corev1.Pod) {
	second := *p.Spec.Containers[0].DeepCopy()
	second.Name = "second"
	p.Spec.Containers = append(p.Spec.Containers, second)
}

// wishing lets image and pod ask for all GPUs.
func wishing(p *corev1.Pod) {
	p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}}
}

// requesting lets a pod request a GPU.
func requesting(p *corev1.Pod) {
	one := object.List("nvidia.com/gpu", "1")
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: one, Limits: one}
}

func TestAContainerUsesTheCardsOfItsPodAlone(t *testing.T) {
	for _, route := range paths {
		t.Run(string(route), func(t *testing.T) {
			a := newAccelerated(t, route, true)
			for i := range 2 {
				_, c := a.run(pod(fmt.Sprintf("share-%d", i), given(halfOfA), a.trying))
				a.uses(c, "GPU-a", "nvidia0", "nvidiactl")
			}
			_, c := a.run(pod("whole", given(both), wishing, a.trying))
			a.uses(c, "GPU-a,GPU-b", "nvidia0", "nvidia1", "nvidiactl")

			b := a.sandbox(pod("one-each", given(oneEach), withSecond, a.trying))
			a.uses(a.start(b, "main"), "GPU-a", "nvidia0", "nvidiactl")
			a.uses(a.start(b, "second"), "GPU-b", "nvidia1", "nvidiactl")

			_, c = a.run(pod("adapter", given(secondAdapter), a.trying))
			a.uses(c, "void", "infiniband/uverbs1")

			_, c = a.run(pod("plain", a.trying))
			a.uses(c, "void")
			_, c = a.run(pod("wishing", wishing, a.trying))
			a.uses(c, "void")
			a.mismatches(0)
		})
	}
}

func TestAPodWithoutItsDevicesDoesNotStart(t *testing.T) {
	for i, route := range closed {
		t.Run(string(route), func(t *testing.T) {
			a := newAccelerated(t, route, true)
			for name, test := range map[string]struct {
				option podOption
				event  string
			}{
				"unallocated": {requesting, "UnallocatedDevicePod"},
				"without-id":  {given(withoutID), "BadAnnotation"},
				"not-there":   {given(notThere), "DeviceUnavailable"},
			} {
				name = fmt.Sprintf("%s-%d", name, i) // Events of the last path are still there
				b := a.sandbox(pod(name, test.option))
				// What a pod requests is known from the API, a moment after it is bound.
				stage.Await(t, name+" to be refused", func() error {
					c, err := b.Create(t.Context(), "main")
					if err == nil {
						return errors.Join(fmt.Errorf("container %s was created", c.ID), c.Remove(t.Context()))
					}
					if !strings.Contains(err.Error(), test.event) {
						t.Errorf("the runtime says %q, want the reason %s in it", err, test.event)
					}
					return nil
				})
				a.event(name, test.event)
			}
			_, c := a.run(pod("plain", a.trying))
			a.uses(c, "void")
		})
	}
}

// The file by which the runtime resolves devices is whole or not there, whenever the agent is killed.
func TestDevicesOutliveAgentAndRuntime(t *testing.T) {
	for _, route := range closed {
		t.Run(string(route), func(t *testing.T) {
			a := newAccelerated(t, route, true)
			_, running := a.run(pod("running", given(halfOfA), a.trying))
			created, err := a.sandbox(pod("created", given(both), a.trying)).Create(t.Context(), "main")
			testkit.Check(t, err)
			waiting := a.sandbox(pod("waiting", given(secondAdapter), fenced, a.trying))
			a.agent.Kill()
			a.refused(t.Context(), waiting, "main") //nolint:errcheck // it is checked there
			if route == byNRI {                     // the proxy lets no container with devices start without the agent
				testkit.Check(t, created.Start(t.Context()))
				a.uses(created, "GPU-a,GPU-b", "nvidia0", "nvidia1", "nvidiactl")
			}
			file := a.s.Path("cdi", "tenon.sh-gpu.json")
			whole := read(t, file)
			a.s.Write("cdi/tenon.sh-gpu.json", strings.Replace(whole, "GPU-a", "GPU-old", 1)) // of another machine
			a.s.Write("cdi/tenon.sh-gpu.json.new", whole[:len(whole)/2])                      // what it was writing
			a.agent.Start()
			a.awaitAgent(route)
			stage.Await(t, "the file of this machine", func() error {
				if got := read(t, file); got != whole {
					return fmt.Errorf("it has %s, want %s", got, whole)
				}
				return nil
			})
			stage.Await(t, "the pod that was held back", func() error {
				c, err := waiting.Run(t.Context(), "main")
				if err == nil {
					a.uses(c, "void", "infiniband/uverbs1")
				}
				return err
			})

			a.containerd.Kill()
			a.containerd.Start()
			a.awaitAgent(route)
			a.uses(running, "GPU-a", "nvidia0", "nvidiactl")
			_, late := a.run(pod("late", given(halfOfA), a.trying))
			a.uses(late, "GPU-a", "nvidia0", "nvidiactl")
			_, plain := a.run(pod("plain", a.trying))
			a.uses(plain, "void")
			a.mismatches(0)
		})
	}
}

// ours is a specification that an administrator makes: it also sets a variable.
const ours = `cdiVersion: 0.5.0
kind: tenon.sh/gpu
devices:
- name: GPU-a
  containerEdits: {env: [FROM=cdi]}
- name: GPU-b
  containerEdits: {env: [FROM=cdi]}
`

func TestDevicesAreDescribedToTheRuntime(t *testing.T) {
	for _, route := range closed {
		t.Run(string(route), func(t *testing.T) {
			a := newAccelerated(t, route, true)
			for name, want := range map[string][]string{
				"tenon.sh-gpu.json":  {`"cdiVersion": "0.3.0"`, `"name": "GPU-a"`, `"name": "GPU-b"`},
				"tenon.sh-rdma.json": {`"cdiVersion": "0.5.0"`, `"name": "0000:09:00.0"`},
			} {
				text := read(t, a.s.Path("cdi", name))
				for _, part := range want {
					if !strings.Contains(text, part) {
						t.Errorf("%s lacks %s:\n%s", name, part, text)
					}
				}
			}
			_, c := a.run(pod("theirs", given(both), a.trying))
			a.uses(c, "GPU-a,GPU-b", "nvidia0", "nvidia1", "nvidiactl")
			if from, err := c.Said("env:FROM"); err == nil {
				t.Errorf("the variable of another specification is set: %s", from)
			}

			a.s.Write("cdi/tenon.sh-gpu.yaml", ours)
			stage.Await(t, "the agent's file to go", func() error {
				if _, err := os.Stat(a.s.Path("cdi", "tenon.sh-gpu.json")); err == nil {
					return fmt.Errorf("it is beside the administrator's")
				}
				return nil
			})
			_, c = a.run(pod("ours", given(halfOfA), a.trying))
			a.uses(c, "GPU-a", "nvidia0", "nvidiactl")
			if from, err := c.Said("env:FROM"); err != nil || from != "cdi" {
				t.Errorf("the variable of the specification is %q (%v), want cdi", from, err)
			}
		})
	}
}

func TestWithoutDescriptionsDeviceFilesAreGiven(t *testing.T) {
	for _, route := range paths {
		t.Run(string(route), func(t *testing.T) {
			a := newAccelerated(t, route, false)
			a.says("Cannot read, describe or compare all cards", "run/cdi: not a directory")
			_, c := a.run(pod("share", given(halfOfA), a.trying))
			a.uses(c, "GPU-a", "nvidia0", "nvidiactl")
			_, c = a.run(pod("plain", a.trying))
			a.uses(c, "void")
		})
	}
}

// The agent registers a device plugin in a folder of the kubelet. Where that is missing it says so, and goes on trying.
func TestAPluginNeedsTheFolderOfTheKubelet(t *testing.T) {
	a := newAccelerated(t, byNRI, true)
	const folder = "var/lib/kubelet/device-plugins"
	a.says("A device plugin is not registered with the kubelet", folder+"/")
	testkit.Check(t, os.MkdirAll(filepath.Join(machineRoot, folder), 0o755))
	stage.Await(t, "the plugin's socket", func() error {
		_, err := os.Stat(filepath.Join(machineRoot, folder, "tenon.sh_presence.sock"))
		return err
	})
}

// A container that can use a card which is not its own, whoever let it, is reported and goes on.
func TestARunningContainerWithAnotherCardIsReported(t *testing.T) {
	for i, route := range paths {
		t.Run(string(route), func(t *testing.T) {
			a := newAccelerated(t, route, true)
			if a.s.Cgroups().Unified() {
				const text = "what cgroup v2 allows is a program of the kernel that no file changes"
				fmt.Printf("level 3: no case of %s: %s\n", t.Name(), text) //nolint:forbidigo // seen without -v
				t.Skip(text)
			}
			_, mine := a.run(pod("mine", given(halfOfA)))
			strayed := fmt.Sprintf("strayed-%d", i) // Events of the last path are still there
			_, c := a.run(pod(strayed, given(halfOfA)))
			allow := fmt.Sprintf("c %d:1 rw", a.numbers["nvidia1"][0])
			testkit.Check(t, a.s.Cgroups().Write(c.Group, "devices.allow", allow))
			if note := a.event(strayed, "DeviceMismatch"); !strings.Contains(note, "/dev/nvidia1") {
				t.Errorf("the Event says %q, want the file in it", note)
			}
			a.mismatches(1)
			for _, x := range []*stage.Container{mine, c} {
				if cpus, err := x.CPUs(); err != nil || cpus == "" {
					t.Errorf("container %s of %s does not run: %v", x.Name, x.ID, err)
				}
			}
		})
	}
}
