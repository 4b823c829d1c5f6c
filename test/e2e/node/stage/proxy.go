//go:build linux

package stage

// Proxy starts tenon-runtime-proxy in front of containerd and returns it with its socket, once it answers.
func (s *Stage) Proxy(flags ...string) (*Process, string) {
	s.t.Helper()
	socket := s.Path("cri.sock")
	p := s.Run(Command{Name: "proxy", Path: Binary("tenon-runtime-proxy"), Args: append([]string{
		"--listen=" + socket, "--runtime-endpoint=" + s.Socket(), "--hook-socket=" + s.HookSocket(),
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
