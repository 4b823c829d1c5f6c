//go:build e2e_node

package runtime

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

func TestARuntimeWithoutAnAgentRunsPods(t *testing.T) {
	stage.Count(t)
	s := stage.New(t)
	s.Containerd(stage.ContainerdOptions{})
	r := s.Runtime(s.Socket())
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "plain", Namespace: "default", UID: types.UID("u1")},
		Spec: corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{
			Name: "main", Image: "localhost/probe:1",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}},
		}}},
	}
	b, err := r.RunPod(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.Run(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	stage.Await(t, "the probe", func() error { _, err := c.Said("ready"); return err })
	said, _ := c.Said("Cpus_allowed_list")
	cpus, err := c.CPUs()
	if said != cpus || err != nil {
		t.Errorf("cpus %q said %q: %v", cpus, said, err)
	}
	shares, err := c.Cgroup("cpu.shares")
	if shares != "512" {
		t.Errorf("cpu.shares %q %v", shares, err)
	}
	if err := b.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
}
