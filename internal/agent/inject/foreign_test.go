package inject_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
)

func TestVisibleGPUs(t *testing.T) {
	t.Parallel()
	const nvidia = "nvidia.com/gpu"
	for text, want := range map[string][]host.Device{
		"NVIDIA_VISIBLE_DEVICES=GPU-a":      {{Resource: nvidia, ID: "GPU-a"}},
		"NVIDIA_VISIBLE_DEVICES= 0,GPU-b ,": {{Resource: nvidia, ID: "0"}, {Resource: nvidia, ID: "GPU-b"}},
		"AMD_VISIBLE_DEVICES=1":             {{Resource: "amd.com/gpu", ID: "1"}},
		"NVIDIA_VISIBLE_DEVICES=all":        nil, "PATH=0": nil, "NVIDIA_VISIBLE_DEVICES=": nil,
		"NVIDIA_VISIBLE_DEVICES=none": nil, "NVIDIA_VISIBLE_DEVICES=void": nil,
		"NVIDIA_VISIBLE_DEVICES=/var/run/nvidia-container-devices": nil,
	} {
		got := inject.Visible([]string{"PATH=/bin", "NVIDIA_VISIBLE_DEVICES=7", text})
		if !strings.HasPrefix(text, "NVIDIA") {
			got = inject.Visible([]string{text})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q after another value (-want +got):\n%s", text, diff)
		}
	}
}

// TestNoCardIsGivenTwice: whichever of two pods comes second, by the kubelet or by Tenon, is held back.
func TestNoCardIsGivenTwice(t *testing.T) {
	t.Parallel()
	n := machine()
	n.Foreign = map[string]string{"GPU-a": "other"}
	n.Granted = map[string]bool{"GPU-b": true}
	n.Resolve = func(name string) string { return map[string]string{"1": "GPU-b", "GPU-b": "GPU-b"}[name] }
	for _, mode := range []string{annotation.DeviceOwn, annotation.DeviceMoving} {
		n.Mode = mode
		own := allocated(gpuA)
		_, err := inject.Decide(n, &own)
		const says = "the pod with UID other has gpu GPU-a"
		if !errors.Is(err, inject.ErrConflict) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s, a card that the kubelet gave away: %v", mode, err)
		}
	}
	n.Mode = annotation.DeviceMoving
	for env, says := range map[string]string{
		"NVIDIA_VISIBLE_DEVICES=1":     "the kubelet gives it GPU-b",
		"NVIDIA_VISIBLE_DEVICES=GPU-b": "the kubelet gives it GPU-b",
		"NVIDIA_VISIBLE_DEVICES=GPU-a": "", "NVIDIA_VISIBLE_DEVICES=all": "", "PATH=GPU-b": "",
	} {
		c := plain()
		c.Has.Env = []string{env}
		answer, err := inject.Decide(n, &c)
		if (err == nil) != (says == "") || err != nil && (!errors.Is(err, inject.ErrConflict) ||
			!strings.Contains(err.Error(), says)) || !answer.IsEmpty() {
			t.Errorf("%s: got %+v, %v, want an error that says %q", env, answer, err, says)
		}
	}
	n.Mode = annotation.DeviceFollow
	own := allocated(gpuA)
	if answer, err := inject.Decide(n, &own); err != nil || !answer.IsEmpty() {
		t.Errorf("under Follow: got %+v, %v, want nothing", answer, err)
	}
}
