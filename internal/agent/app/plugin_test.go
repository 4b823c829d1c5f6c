package app_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
)

func TestPluginsThatANodeNeeds(t *testing.T) {
	t.Parallel()
	presence := map[string]int{"tenon.sh/presence": 1}
	both := map[string]int{"tenon.sh/presence": 1, "nvidia.com/gpu": 2}
	for name, test := range map[string]struct {
		mode           annotation.DeviceMode
		cards          int
		capacity, left string // of nvidia.com/gpu; "" where the Node does not have it
		running        string
		lost           bool // the kubelet says that no device of it is healthy
		want           map[string]int
	}{
		"no devices":                           {want: map[string]int{}},
		"GPUs of which no Device is known yet": {cards: 2, want: presence},
		"a Device without GPUs":                {mode: annotation.DeviceOwn, want: presence},
		"no plugin was ever there":             {mode: annotation.DeviceOwn, cards: 2, want: presence},
		"the vendor's plugin is there": {
			mode: annotation.DeviceOwn, cards: 2, capacity: "2", left: "2", want: presence,
		},
		"it is gone": {
			mode: annotation.DeviceOwn, cards: 2, capacity: "2", left: "0", want: both,
		},
		"it is gone, which the Node does not say yet": {
			mode: annotation.DeviceOwn, cards: 2, capacity: "2", left: "2", lost: true, want: both,
		},
		"it is gone for long": {
			mode: annotation.DeviceOwn, cards: 2, capacity: "0", left: "0", want: both,
		},
		"the agent's is in its place": {
			mode: annotation.DeviceOwn, cards: 2, capacity: "2", left: "2", running: "nvidia.com/gpu", want: both,
		},
		"it is gone, and pods have GPUs of it": {
			mode: annotation.DeviceMoving, cards: 2, capacity: "2", left: "0", want: presence,
		},
		"the node is the kubelet's again": {
			mode: annotation.DeviceFollow, cards: 2, capacity: "2", left: "2", running: "nvidia.com/gpu",
			want: presence,
		},
		"it is gone, and the driver lists no GPUs": {
			mode: annotation.DeviceOwn, capacity: "2", left: "0", want: presence,
		},
	} {
		n := &inject.Node{Mode: test.mode}
		for range test.cards {
			n.Cards.List = append(n.Cards.List, host.Card{Kind: host.NVIDIA})
		}
		node := &corev1.Node{}
		if test.capacity != "" {
			node.Status.Capacity = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(test.capacity)}
			node.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(test.left)}
		}
		lost := func(resource string) bool { return test.lost && resource == "nvidia.com/gpu" }
		running := map[string]context.CancelFunc{test.running: func() {}}
		if diff := cmp.Diff(test.want, app.WantedPlugins(n, node, lost, running)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
