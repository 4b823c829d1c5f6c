package nodenumaresource

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/qos"
)

func TestBindAllPodsOnPolicyNodes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, `{"bindAllPodsOnPolicyNodes":true}`)
	plain := f.addNode("plain", machine(t, "amd64", 2, 4, 2))
	full := f.addNode("full", machine(t, "amd64", 2, 4, 2), labelled(annotation.NodeCPUBindPolicy, "FullPCPUsOnly"))

	if got := f.schedule(t, newPod("pinned", asks("2", "4")), full); got != "0,8" {
		t.Errorf("a pod without class on a FullPCPUsOnly node: got CPUs %q, want 0,8", got)
	}
	f.store.PutPod(newPod("pinned", asks("2", "4"), bound("full", "0,8")))
	e, ok := f.store.View("full").Entry("pinned")
	if !ok || e.Role != qos.ExclusiveWithBE || e.CPUList != "0,8" {
		t.Errorf("the account has %+v, %v, want CPUs 0,8 shared with BE alone", e, ok)
	}

	for name, tc := range map[string]struct {
		pod         podOption
		plain, full string
	}{
		"a fraction": {
			pod:  asks("100m", "1"),
			full: "UnschedulableAndUnresolvable: the requested CPUs must be integer",
		},
		"an odd number": {
			pod:  asks("3", "3"),
			full: "UnschedulableAndUnresolvable: node(s) requested cpus not multiple cpus per core",
		},
		"too many": {
			pod:  asks("14", "14"),
			full: "Unschedulable: node(s) CPU shared pool would fall below its floor",
		},
		"whole cores":    {pod: asks("4", "4")},
		"nothing of CPU": {pod: func(*corev1.Pod) {}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod(name, tc.pod)
			cs, skipped := f.preFilter(t, pod)
			if skipped {
				if tc.full != "" {
					t.Fatal("PreFilter skips it")
				}
				return
			}
			got := []string{
				verdict(f.Filter(t.Context(), cs, pod, plain)),
				verdict(f.Filter(t.Context(), cs, pod, full)),
			}
			if diff := cmp.Diff([]string{tc.plain, tc.full}, got); diff != "" {
				t.Errorf("without and with the label (-want +got):\n%s", diff)
			}
		})
	}
}
