package hook_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// accelerated is a node with a GPU that Tenon allocates.
func accelerated(n *node, _ *hook.Options) {
	n.devices = &inject.Node{
		Mode: annotation.DeviceOwn, Types: []string{annotation.DeviceGPU},
		Cards: host.Cards{List: []host.Card{{
			Kind: host.NVIDIA, ID: "GPU-a", BusID: "0000:3b:00.0",
			Files: []host.DeviceFile{{Path: "/dev/nvidia0", Major: 195}},
		}}},
	}
}

// A pod that another scheduler bound is held back although it uses nothing of Tenon: the device that it would get may
// be another pod's.
func TestAPodWithoutItsDevicesIsHeldBack(t *testing.T) {
	t.Parallel()
	n := ready(t, accelerated)
	p := sandbox("a", "", "")
	asking := inAPI(p)
	asking.Spec.Containers[0].Resources.Limits = object.List("nvidia.com/gpu", "1")
	n.engine.Update(desired.FromAPI(convert.ReadPod(asking)))
	_, err := n.service.Devices(in(p, "c1"))
	wantCause(t, err, inject.ErrUnallocated)
	wantCause(t, n.service.CheckDevices(in(p, "c1")), inject.ErrUnallocated)
	if len(n.troubles) != 2 || n.troubles[0].LetPass || n.troubles[0].Container != "main" {
		t.Errorf("reported %+v, want both refusals", n.troubles)
	}
	if n.injected != 1 || n.caught != 1 {
		t.Errorf("%d answers and %d refusals of the validation are counted, want one of each", n.injected, n.caught)
	}
}

func TestDevicesAreAnsweredWhoeverDecidesAboutCPUs(t *testing.T) {
	t.Parallel()
	for _, writes := range []bool{true, false} {
		n := newNode(t, accelerated) // and before the pods of the node are known
		n.writes = writes
		p := sandbox("a", "", "")
		p.Annotations[annotation.DeviceAllocatedKey] = `{"gpu":[{"id":"GPU-a","resources":{}}]}`
		got, err := n.service.Devices(in(p, "c1"))
		n.must(err)
		want(t, "the variable", got.Env["NVIDIA_VISIBLE_DEVICES"], "GPU-a")
		got, err = n.service.Devices(in(sandbox("b", "", ""), "c2"))
		n.must(err)
		want(t, "the variable", got.Env["NVIDIA_VISIBLE_DEVICES"], "void")
	}
}

func TestANodeWithoutDevicesAnswersNothing(t *testing.T) {
	t.Parallel()
	n := ready(t)
	p := sandbox("a", "", "")
	p.Annotations[annotation.DeviceAllocatedKey] = "{"
	got, err := n.service.Devices(in(p, "c1"))
	if err != nil || !got.IsEmpty() || n.service.CheckDevices(in(p, "c1")) != nil {
		t.Errorf("got %+v, %v; want nothing", got, err)
	}
}

func TestAnAllocationThatCannotBeReadHoldsBack(t *testing.T) {
	t.Parallel()
	n := ready(t, accelerated)
	p := sandbox("a", "", "")
	p.Annotations[annotation.DeviceAllocatedKey] = "{"
	_, err := n.service.Devices(in(p, "c1"))
	wantCause(t, err, inject.ErrMalformed)
}

// What containers may use is compared with what was allocated to their pods, and a difference is reported once.
func TestRunningContainersAreComparedWithTheirAllocation(t *testing.T) {
	t.Parallel()
	n := ready(t, accelerated)
	plain, own, proxied := sandbox("a", "", ""), sandbox("b", "", ""), sandbox("c", "", "")
	own.Annotations[annotation.DeviceAllocatedKey] = `{"gpu":[{"id":"GPU-a","resources":{}}]}`
	n.must(n.run(in(plain, "c1")))
	n.must(n.run(in(own, "c2")))
	n.must(n.tree.MkdirAll("kubepods/burstable/podc/c3"))
	n.must(n.service.RunPod(t.Context(), proxied))
	n.must(n.service.Start(t.Context(), hook.Container{Pod: proxied, ID: "c3", Name: "main"})) // no group is reported
	const uses = "c 195:0 rw"
	rules := map[string]string{"poda/c1": "c 1:3 rw", "podb/c2": uses, "podc/c3": "c 1:3 rw"}
	var failure error
	compare := func(times int) (reported []string) {
		t.Helper()
		n.troubles = nil
		for range times {
			n.clock.Step(2 * time.Second)
			err := n.service.CompareDevices(func(group string) (host.Access, bool, error) {
				text, lives := rules[strings.TrimPrefix(group, "kubepods/burstable/")]
				return host.ParseAccess(text), lives, failure
			})
			if !errors.Is(err, failure) {
				t.Errorf("got %v, want %v", err, failure)
			}
		}
		for _, x := range n.troubles {
			wantCause(t, x.Err, inject.ErrMismatch)
			reported = append(reported, x.Name)
		}
		slices.Sort(reported)
		return reported
	}
	for _, step := range []struct {
		name   string
		change func()
		want   string
	}{
		{"as created", func() {}, ""},
		{"a card of another pod", func() { rules["poda/c1"], rules["podc/c3"] = uses, uses }, "pod-a pod-c"},
		{"the same", func() {}, ""},
		{"not its own", func() { rules["podb/c2"] = "" }, "pod-b"},
		{"as it was", func() { rules["poda/c1"], rules["podb/c2"] = "", uses }, ""},
		{"and again", func() { rules["poda/c1"] = uses }, "pod-a"},
		{"what cannot be read", func() { rules["poda/c1"], failure = "", errors.New("disk") }, ""},
		{"no process", func() { failure = nil; delete(rules, "podb/c2") }, ""},
		{"ended", func() { n.service.Stop(in(own, "c2")); rules["podb/c2"] = "" }, ""},
	} {
		step.change()
		if got := compare(1); len(got) != 0 {
			t.Errorf("%s: reported %q at the first sight", step.name, got)
		}
		if got := strings.Join(compare(2), " "); got != step.want {
			t.Errorf("%s: reported %q, want %q", step.name, got, step.want)
		}
	}
}

func TestWhatARuntimeReportsIsToBeCompared(t *testing.T) {
	t.Parallel()
	n := ready(t, accelerated)
	p := sandbox("a", "", "")
	c := in(p, "c1")
	c.Running = true
	n.service.Sync([]hook.Pod{p}, []hook.Container{c})
	seen := 0
	read := func(string) (host.Access, bool, error) {
		seen++
		return host.Access{}, true, nil
	}
	n.must(n.service.CompareDevices(read))
	if n.synced != 1 || seen != 1 || len(n.troubles) != 0 {
		t.Errorf("Synced was called %d times and %d containers were read, want 1 and 1; reported %+v", n.synced, seen,
			n.troubles)
	}
	// What is not seen in the kernel, the runtime says: another program made the container while no agent answered.
	c.Devices.Files = []inject.File{{DeviceFile: host.DeviceFile{Path: "/dev/nvidia0", Major: 195}}}
	n.service.Sync([]hook.Pod{p}, []hook.Container{c})
	n.must(n.service.CompareDevices(read))
	n.clock.Step(time.Second)
	n.must(n.service.CompareDevices(read))
	if len(n.troubles) != 0 {
		t.Errorf("reported %+v, which may be a container that is being made", n.troubles)
	}
	n.clock.Step(time.Second)
	n.must(n.service.CompareDevices(read))
	if len(n.troubles) != 1 || !errors.Is(n.troubles[0].Err, inject.ErrMismatch) {
		t.Errorf("reported %+v, want the file that the runtime reports", n.troubles)
	}
}

// TestVisibleDevicesOfRunningContainers: what a runtime has at a connect, and what starts later, until it ends.
func TestVisibleDevicesOfRunningContainers(t *testing.T) {
	t.Parallel()
	n := ready(t, accelerated)
	p := sandbox("a", "", "")
	old, done := in(p, "c1"), in(p, "c2")
	old.Name, old.Devices.Env = "old", []string{"NVIDIA_VISIBLE_DEVICES=GPU-b"}
	done.Name, done.Devices.Env, done.Ended = "done", []string{"NVIDIA_VISIBLE_DEVICES=GPU-c"}, true
	n.service.Sync([]hook.Pod{p}, []hook.Container{old, done})
	b := []host.Device{{Resource: "nvidia.com/gpu", ID: "GPU-b"}}
	visible := map[string]map[string][]host.Device{p.UID: {"old": b}}
	if diff := cmp.Diff(visible, n.service.Visible()); diff != "" {
		t.Errorf("after the connect (-want +got):\n%s", diff)
	}
	later := in(sandbox("b", "", ""), "c3")
	later.Devices.Env = []string{"NVIDIA_VISIBLE_DEVICES=GPU-b"}
	if _, _, err := n.service.Create(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	visible[later.UID] = map[string][]host.Device{later.Name: b}
	n.service.Stop(old)
	delete(visible, p.UID)
	if diff := cmp.Diff(visible, n.service.Visible()); diff != "" {
		t.Errorf("after a start and a stop (-want +got):\n%s", diff)
	}
}

// TestAForgedAllocationGivesAContainerNothing: annotations count only on pods of trusted schedulers, and a container of
// a pod whose scheduler is not known yet waits.
func TestAForgedAllocationGivesAContainerNothing(t *testing.T) {
	t.Parallel()
	n := ready(t, accelerated)
	n.trust = hook.Unknown
	p := sandbox("a", "LSE", "6-7")
	p.Annotations[annotation.DeviceAllocatedKey] = `{"gpu":[{"id":"GPU-a","resources":{}}]}`
	_, err := n.service.Devices(in(p, "c1"))
	wantCause(t, err, apply.ErrNotReady)
	_, _, err = n.service.Create(t.Context(), in(p, "c1"))
	wantCause(t, err, apply.ErrNotReady)
	if plain, err := n.service.Devices(in(sandbox("b", "", ""), "c2")); err != nil ||
		plain.Env["NVIDIA_VISIBLE_DEVICES"] != "void" {
		t.Errorf("a pod that uses nothing of Tenon: %v, %v, want no wait", plain, err)
	}
	n.trust = hook.Untrusted
	got, err := n.service.Devices(in(p, "c1"))
	n.must(err)
	want(t, "the variable of the forged pod", got.Env["NVIDIA_VISIBLE_DEVICES"], "void")
	set, _, err := n.service.Create(t.Context(), in(p, "c1"))
	n.must(err)
	want(t, "its CPUs", set.CPUs, "0-7")
	n.trust = hook.Trusted
	got, err = n.service.Devices(in(p, "c1"))
	n.must(err)
	want(t, "the variable of a trusted pod", got.Env["NVIDIA_VISIBLE_DEVICES"], "GPU-a")
}
