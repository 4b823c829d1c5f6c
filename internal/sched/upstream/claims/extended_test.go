package claims

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestWhatExtendedResourcesAskFor: a class maps example.com/card.
func TestWhatExtendedResourcesAskFor(t *testing.T) {
	t.Parallel()
	requests := func(amounts ...string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: object.List(amounts...)}
	}
	plain, plugin := &corev1.Node{}, &corev1.Node{}
	plain.Status.Allocatable = object.List("cpu", "8", "example.com/card", "0")
	plugin.Status.Allocatable = object.List("example.com/card", "8")
	for name, c := range map[string]struct {
		init, main corev1.ResourceRequirements
		node       *corev1.Node
		want       string // class and count
		tooMany    bool
	}{
		"a card":                  {main: requests("example.com/card", "2"), want: "all 2"},
		"on a node":               {main: requests("example.com/card", "2"), node: plain, want: "all 2"},
		"on a node with a plugin": {main: requests("example.com/card", "2"), node: plugin},
		"no card":                 {main: requests("example.com/card", "0")},
		"no class":                {main: requests("example.com/other", "2")},
		"no extended resource":    {main: requests("cpu", "2")},
		"beside others": {
			main: requests("cpu", "2", "example.com/card", "1", "a.b/c", "4"), want: "all 1",
		},
		"an init container":           {init: requests("example.com/card", "3"), want: "all 3"},
		"as many as a claim can have": {main: requests("example.com/card", "32"), want: "all 32"},
		"one more":                    {main: requests("example.com/card", "33"), want: "all 33", tooMany: true},
		"one more of a plugin":        {main: requests("example.com/card", "33"), node: plugin},
		"the largest number": {
			main: requests("example.com/card", "9223372036854775807"), want: "all 9223372036854775807", tooMany: true,
		},
		"the most that it needs ever": {
			init: requests("example.com/card", "1"), main: requests("example.com/card", "2"), want: "all 2",
		},
	} {
		pod := object.Pod("p", object.UID("p"))
		pod.Spec.InitContainers = []corev1.Container{{Resources: c.init}}
		pod.Spec.Containers = []corev1.Container{{Resources: c.main}}
		got := ""
		if lacks := (&choice{dra: &shop{}}).tooMany(pod, c.node); (lacks != nil) != c.tooMany {
			t.Errorf("%s: too many devices: %v, want %t", name, lacks, c.tooMany)
		}
		if own := (&choice{dra: &shop{}}).extended(pod, c.node); own != nil {
			for _, r := range own.Spec.Devices.Requests {
				got += fmt.Sprint(r.Exactly.DeviceClassName, " ", r.Exactly.Count)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
