package app_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/statedir"
	"github.com/tenon-project/tenon/internal/testkit"
)

// written returns an LSR pod with an annotation as it stands.
func written(name, status string) *corev1.Pod {
	p := pod(name, "LSR", "2", "")
	p.Annotations[annotation.ResourceStatusKey] = status
	return p
}

// TestUnusableInputIsReportedOnThePod: each case is reported once, and the pod beside it keeps its CPUs.
func TestUnusableInputIsReportedOnThePod(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pods  []*corev1.Pod
		want  string // an Event
		start error  // of the last pod; nil when it may run
	}{
		"CPUs that the machine does not have": {
			[]*corev1.Pod{written("bad", `{"cpuset":"4-5,400"}`)},
			"AllocationUnusable CPU 400 of the pod's allocation is left out: unknown on this machine", nil,
		},
		"only CPUs that the machine does not have": {
			[]*corev1.Pod{written("bad", `{"cpuset":"400-401"}`)},
			"AllocationUnusable CPUs 400-401 of the pod's allocation", apply.ErrUnallocated,
		},
		"an annotation that is not JSON": {
			[]*corev1.Pod{written("bad", `{"cpuset":"4-5`)},
			"BadAnnotation annotation scheduling.koordinator.sh/resource-status is not used: ", apply.ErrMalformed,
		},
		"an annotation of the wrong type": {
			[]*corev1.Pod{written("bad", `{"cpuset":[4,5]}`)},
			"BadAnnotation annotation scheduling.koordinator.sh/resource-status is not used: ", apply.ErrMalformed,
		},
		"a CPU list that is none": {
			[]*corev1.Pod{written("bad", `{"cpuset":"four"}`)},
			"BadAnnotation annotation scheduling.koordinator.sh/resource-status is not used: ", apply.ErrMalformed,
		},
		"CPUs that another pod has": {
			[]*corev1.Pod{written("first", `{"cpuset":"4-5"}`), written("bad", `{"cpuset":"5-6"}`)},
			"AllocationConflict CPU 5 is allocated to two pods", apply.ErrHandOverPending,
		},
		"shared pools on NUMA nodes that the machine does not have": {
			[]*corev1.Pod{func() *corev1.Pod {
				p := pod("bad", "LS", "1500m", "")
				p.Annotations[annotation.ResourceStatusKey] = `{"cpuSharedPools":[{"socket":0,"node":7}]}`
				return p
			}()},
			"AllocationUnusable this machine has no CPUs on NUMA nodes 7", nil,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inWorld(t, "hybrid", func(t *testing.T, w *world) {
				recorder := events.NewFakeRecorder(100)
				w.options.Recorder = recorder
				w.run(func(a *app.Agent) {
					ls := pod("ls", "LS", "1500m", "")
					w.create(ls)
					if _, err := w.start(a, ls); err != nil {
						t.Fatal(err)
					}
					var err error
					for _, p := range tt.pods {
						w.create(p)
						_, err = w.start(a, p)
					}
					if !errors.Is(err, tt.start) {
						t.Errorf("start = %v, want %v", err, tt.start)
					}
					later(2 * time.Minute)
				})
				close(recorder.Events)
				sent := 0
				var all []string
				for e := range recorder.Events {
					all = append(all, e)
					if strings.Contains(e, tt.want) {
						sent++
					}
				}
				if want := len(tt.pods); sent != want { // a conflict is reported on both pods
					t.Errorf("%d Events, want %d with %q: %q", sent, want, tt.want, all)
				}
			})
		})
	}
}

func TestChangeOfARunningPodsAllocationIsReportedAndNotFollowed(t *testing.T) {
	inWorld(t, "hybrid", func(t *testing.T, w *world) {
		recorder := events.NewFakeRecorder(100)
		w.options.Recorder = recorder
		w.run(func(a *app.Agent) {
			first, second := pod("first", "LSR", "2", "2-3"), pod("second", "LSR", "2", "4-5")
			var groups []hook.Container
			for _, p := range []*corev1.Pod{first, second} {
				w.create(p)
				c, err := w.start(a, p)
				testkit.Check(t, err)
				groups = append(groups, c)
			}
			for _, cpus := range []string{"4-5", "6-7"} {
				first = first.DeepCopy()
				status := annotation.ResourceStatus{CPUSet: cpus}
				first.Annotations[annotation.ResourceStatusKey] = annotation.Encode(status)
				if _, err := w.client.CoreV1().Pods("default").Update(t.Context(), first,
					metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				later(time.Minute)
				if got := w.cpuset(groups[0]); got != "2-3" {
					t.Errorf("cpuset = %s after the allocation became %s, want 2-3", got, cpus)
				}
			}
		})
		close(recorder.Events)
		var sent []string
		for e := range recorder.Events {
			if strings.Contains(e, "AllocationRefused") {
				sent = append(sent, e)
			}
		}
		want := []string{
			`Warning AllocationRefused the pod keeps CPUs 2-3; they are not changed to "4-5" while it runs`,
			`Warning AllocationRefused the pod keeps CPUs 2-3; they are not changed to "6-7" while it runs`,
		}
		if !slices.Equal(sent, want) {
			t.Errorf("events = %q, want %q", sent, want)
		}
	})
}

func TestValueThatTheKernelRefusesIsReportedOnThePodAndRetried(t *testing.T) {
	inWorld(t, "hybrid", func(t *testing.T, w *world) {
		recorder := events.NewFakeRecorder(100)
		w.options.Recorder = recorder
		broken := &brokenTree{Cgroup: w.tree}
		w.options.Cgroup = broken
		w.run(func(a *app.Agent) {
			ls := pod("ls", "LS", "1500m", "")
			w.create(ls)
			c, err := w.start(a, ls)
			testkit.Check(t, err)
			broken.refuse.Store(c.Cgroup)
			w.create(pod("lsr", "LSR", "2", "2-3"))
			later(time.Minute)
			if got := w.cpuset(c); got != "0-31" {
				t.Errorf("cpuset = %s of a group that cannot be written", got)
			}
			broken.refuse.Store("")
			later(time.Minute)
			if got := w.cpuset(c); got != "0-1,4-31" {
				t.Errorf("cpuset = %s once it can be written again, want 0-1,4-31", got)
			}
		})
		close(recorder.Events)
		sent := 0
		for e := range recorder.Events {
			if strings.Contains(e, "EnforcementFailed") {
				sent++
				if !strings.Contains(e, "cpuset.cpus of ") || !strings.Contains(e, "permission denied") {
					t.Errorf("the Event does not name file and cause: %s", e)
				}
			}
		}
		if sent != 1 {
			t.Errorf("%d Events of the failure, want one", sent)
		}
	})
}

// brokenTree refuses writes to one group.
type brokenTree struct {
	apply.Cgroup
	refuse atomic.Value // a string
}

func (b *brokenTree) Write(group, file, value string) error {
	if group == b.refuse.Load() && file == desired.CPUs {
		return &os.PathError{Op: "write", Path: group + "/" + file, Err: syscall.EACCES}
	}
	return b.Cgroup.Write(group, file, value)
}

func TestKubeletThatAssignsExclusiveCPUsIsReported(t *testing.T) {
	inWorld(t, "hybrid@static,reserved=0", func(t *testing.T, w *world) {
		w.run(func(a *app.Agent) {
			late := pod("late", "", "2", "")
			w.create(late)
			lateGroup, err := w.start(a, late)
			testkit.Check(t, err)
			lsr := pod("lsr", "LSR", "2", "2-3")
			w.create(lsr)
			if _, err := w.start(a, lsr); err != nil {
				t.Fatal(err)
			}
			w.state(
				`{"policyName":"static","defaultCpuSet":"0,4-31","entries":{"uid-late":{"main":"1-2"},` +
					`"uid-lsr":{"main":"3"}},"checksum":1}`)
			later(time.Minute)
			if got := w.condition(event.KubeletStaticActive); got != "True" {
				t.Errorf("condition = %q while the kubelet takes CPU 2 for another pod's, want True", got)
			}
			if got := w.cpuset(lateGroup); got != "0-1,4-31" {
				t.Errorf("cpuset of the other pod = %s, want it off 2-3", got)
			}
			w.state(`{"policyName":"static","defaultCpuSet":"0,4-31","entries":{"uid-lsr":{"main":"3"}},"checksum":1}`)
			later(time.Minute)
			if got := w.condition(event.KubeletStaticActive); got != "False" {
				t.Errorf("condition = %q after the kubelet let go, want False", got)
			}
		})
	})
}

func TestSecondAgentOfAMachineIsRefused(t *testing.T) {
	inWorld(t, "hybrid", func(t *testing.T, w *world) {
		w.run(func(*app.Agent) {
			second, err := app.New(w.options)
			testkit.Check(t, err)
			err = second.Run(t.Context())
			if !errors.Is(err, statedir.ErrSecondAgent) ||
				!strings.Contains(err.Error(), "another agent works on this machine: process ") {
				t.Errorf("Run of a second agent = %v, want %v", err, statedir.ErrSecondAgent)
			}
		})
		w.run(func(a *app.Agent) { // the first one has ended
			if err := a.Ready(); err != nil {
				t.Errorf("the next agent is not ready: %v", err)
			}
		})
	})
}
