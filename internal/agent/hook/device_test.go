package hook_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// accelerated is a node with a GPU that Tenon allocates.
func accelerated(_ *node, o *hook.Options) {
	o.Devices = func() *inject.Node {
		return &inject.Node{
			Mode: annotation.DeviceOwn, Types: []string{annotation.DeviceGPU},
			Cards: host.Cards{List: []host.Card{{
				Kind: host.NVIDIA, ID: "GPU-a", BusID: "0000:3b:00.0",
				Files: []host.DeviceFile{{Path: "/dev/nvidia0", Major: 195}},
			}}},
		}
	}
}

// A pod that another scheduler bound is held back although it uses nothing of Tenon: the device that it would get may
// be another pod's.
func TestAPodWithoutItsDevicesIsHeldBack(t *testing.T) {
	t.Parallel()
	n := ready(t, accelerated)
	p := sandbox("a", "", "")
	asking := object(p)
	asking.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	n.engine.Update(desired.FromAPI(convert.ReadPod(asking)))
	_, err := n.service.Devices(in(p, "c1"))
	wantCause(t, err, inject.ErrUnallocated)
	wantCause(t, n.service.CheckDevices(in(p, "c1")), inject.ErrUnallocated)
	if len(n.troubles) != 2 || n.troubles[0].LetPass || n.troubles[0].Container != "main" {
		t.Errorf("reported %+v, want both refusals", n.troubles)
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
