//go:build e2e_node

package runtime

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// withOthers gives a pod an init container, a sidecar and one for debugging.
func withOthers(p *corev1.Pod) {
	small := corev1.ResourceRequirements{Requests: object.List("cpu", "100m")}
	always := corev1.ContainerRestartPolicyAlways
	p.Spec.InitContainers = []corev1.Container{
		{Name: "init", Image: probeImage, Args: []string{"once"}, ImagePullPolicy: corev1.PullNever, Resources: small},
		{
			Name: "sidecar", Image: probeImage, ImagePullPolicy: corev1.PullNever, Resources: small,
			RestartPolicy: &always,
		},
	}
}

func debugging(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debug", Image: probeImage, ImagePullPolicy: corev1.PullNever,
	}}}
	return p
}

func TestEveryKindOfContainerOfABoundPodIsOnItsCPUs(t *testing.T) {
	for _, route := range paths {
		t.Run(string(route), func(t *testing.T) {
			w := newWorld(t, route, options{})
			_, plain := w.run(pod("plain"))
			made := w.bind(pod("bound", withClass("LSR"), guaranteed("1"), allocated(exclusive), withOthers))
			made, err := w.plane.Client.CoreV1().Pods(made.Namespace).UpdateEphemeralContainers(t.Context(), made.Name,
				debugging(made), metav1.UpdateOptions{})
			testkit.Check(t, err)
			b, err := w.runtime.RunPod(t.Context(), made)
			testkit.Check(t, err)
			first := w.start(b, "init")
			stage.Await(t, "the init container to end", func() error {
				state, err := first.State(t.Context())
				if err == nil && state != runtimeapi.ContainerState_CONTAINER_EXITED {
					err = fmt.Errorf("it is %v", state)
				}
				return err
			})
			w.never(first, exclusive)
			for _, name := range []string{"sidecar", "main", "debug"} {
				c := w.start(b, name)
				w.wants(c, exclusive)
				w.never(c, exclusive)
			}
			w.wants(plain, shared)
			w.pause(b, exclusive)
		})
	}
}

// pause waits until the sandbox's own container is on CPUs.
func (w *world) pause(b *stage.Sandbox, cpus string) {
	w.Helper()
	stage.Await(w, "the pause container of "+b.Pod.Name, func() error {
		got, err := w.s.Effective(b.PauseGroup())
		if err == nil && got != cpus {
			err = fmt.Errorf("the kernel lets it use %q, want %q", got, cpus)
		}
		return err
	})
}

func TestThePauseContainersOfOthersLeaveTheExclusiveCPUs(t *testing.T) {
	for _, route := range paths {
		t.Run(string(route), func(t *testing.T) {
			w := newWorld(t, route, options{})
			plain := w.sandbox(pod("plain"))
			w.pause(plain, allCPUs)
			bound, _ := w.run(pod("bound", withClass("LSR"), guaranteed("1"), allocated(exclusive)))
			w.pause(plain, shared)
			w.pause(bound, exclusive)
			testkit.Check(t, bound.Remove(t.Context()))
			w.unbind(bound.Pod)
			w.pause(plain, allCPUs)
		})
	}
}

// A pod with addresses of its own: what the plugins of CNI do is not in the agent's way.
func TestAPodOnTheNetworkStartsOnItsCPUs(t *testing.T) {
	w := newWorld(t, byNRI, options{})
	p := pod("networked", withClass("LSR"), guaranteed("1"), allocated(exclusive))
	p.Spec.HostNetwork = false
	_, c := w.run(p)
	w.wants(c, exclusive)
	w.never(c, exclusive)
}
