//go:build linux

package stage

import (
	"os/exec"
)

// Proxy starts tenon-runtime-proxy in front of containerd and returns it with its socket, once it answers. The agent is
// registered as its hook server, as tenon-runtime-proxy install does it.
func (s *Stage) Proxy(flags ...string) (*Process, string) {
	s.t.Helper()
	socket, node := s.Path("cri.sock"), s.Path("proxy")
	out, err := exec.Command(Binary("tenon-runtime-proxy"), "install", "--root="+node, "--listen="+socket,
		"--agent-socket="+s.HookSocket()).CombinedOutput()
	if err != nil {
		s.t.Fatalf("register the agent: %v\n%s", err, out)
	}
	p := s.Run(Command{Name: "proxy", Path: Binary("tenon-runtime-proxy"), Args: append([]string{
		"run", "--listen=" + socket, "--runtime=" + s.Socket(), "--hooks-dir=" + node + "/etc/runtime/hookserver.d", "-v=2",
	}, flags...)})
	r := s.Runtime(socket)
	Await(s.t, "the proxy", func() error {
		if !p.Running() {
			s.t.Fatalf("the proxy ended: %v\n%s", p.Err(), p.Log())
		}
		ctx, cancel := timeout(patience)
		defer cancel()
		return r.ready(ctx)
	})
	return p, socket
}
