//go:build linux

package stage

import (
	"os"
	"strings"
)

// ProxySocket is where tenon-runtime-proxy serves CRI.
func (s *Stage) ProxySocket() string { return s.Path("cri.sock") }

// HooksDir has the registrations of hook servers, one file each.
func (s *Stage) HooksDir() string { return s.Path("hooks.d") }

// Register registers a hook server with the proxy: the file is NAME.json.
func (s *Stage) Register(name, text string) {
	s.t.Helper()
	s.Write("hooks.d/"+name+".json", text)
}

// registration is the agent's own, as tenon-runtime-proxy install writes it.
const registration = `{"remote-endpoint": "unix://$SOCKET", "failure-policy": "Ignore", "runtime-hooks": [
  "PreRunPodSandbox", "PostStopPodSandbox", "PreCreateContainer", "PreStartContainer", "PostStartContainer",
  "PreUpdateContainerResources", "PostStopContainer"]}
`

// Proxy starts tenon-runtime-proxy in front of containerd, with the agent as hook server, and waits until it answers.
func (s *Stage) Proxy() *Process {
	s.t.Helper()
	must(s.t, os.MkdirAll(s.HooksDir(), 0o755))
	s.Register("tenon-agent", strings.ReplaceAll(registration, "$SOCKET", s.HookSocket()))
	p := s.Run(Command{Name: "proxy", Path: Binary("tenon-runtime-proxy"), Args: []string{
		"run", "--listen=" + s.ProxySocket(), "--runtime=unix://" + s.Socket(), "--hooks-dir=" + s.HooksDir(),
	}})
	r := s.Runtime(s.ProxySocket())
	Await(s.t, "the proxy", func() error {
		if !p.Running() {
			s.t.Fatalf("the proxy ended: %v\n%s", p.Err(), p.Log())
		}
		ctx, cancel := timeout(patience)
		defer cancel()
		return r.ready(ctx)
	})
	return p
}
