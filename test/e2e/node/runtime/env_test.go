//go:build e2e_node

package runtime

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"

	runtimeapi "github.com/tenon-project/tenon/api/runtime/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// environment is a hook server of another program that sets variables in every container.
type environment struct {
	runtimeapi.UnimplementedRuntimeHookServiceServer
}

func (environment) PreCreateContainerHook(_ context.Context,
	r *runtimeapi.ContainerResourceHookRequest,
) (*runtimeapi.ContainerResourceHookResponse, error) {
	return &runtimeapi.ContainerResourceHookResponse{ContainerEnvs: map[string]string{
		"ADDED": "by a hook", "HOME": "/replaced", "SEEN": r.GetContainerEnvs()["OWN"],
	}}, nil
}

// A second hook server beside the agent adds and replaces environment.
func TestAHookAddsAndReplacesEnvironmentThroughTheProxy(t *testing.T) {
	w := newWorld(t, byProxy, options{})
	socket := w.s.Path("environment.sock")
	l, err := net.Listen("unix", socket)
	testkit.Check(t, err)
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeHookServiceServer(server, environment{})
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	w.s.Register("environment", `{"remote-endpoint": "unix://`+socket+
		`", "failure-policy": "Fail", "runtime-hooks": ["PreCreateContainer"]}`)

	p := pod("bound", withClass("LSR"), guaranteed("1"), allocated(exclusive))
	p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: "OWN", Value: "mine"},
		corev1.EnvVar{Name: "HOME", Value: "/own"})
	b := w.sandbox(p)
	c := w.start(b, "main")
	w.wants(c, exclusive)
	stage.Await(t, "the probe", func() error { _, err := c.Said("ready"); return err })
	for key, want := range map[string]string{
		"env:ADDED": "by a hook", "env:HOME": "/replaced", "env:OWN": "mine",
		"env:SEEN": "mine",
	} {
		if got, err := c.Said(key); got != want {
			t.Errorf("%s is %q, %v; want %q", key, got, err, want)
		}
	}
}
