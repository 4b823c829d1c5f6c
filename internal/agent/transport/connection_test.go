package transport

import "testing"

func TestWhyANodePromisesNothing(t *testing.T) {
	t.Parallel()
	connected := func(version string) func(*connections) {
		r := ParseRuntime("containerd", version)
		return func(c *connections) { c.runtime, c.lost = &r, "" }
	}
	fence := func(checked bool) func(*connections) { return func(c *connections) { c.unfenced = !checked } }
	proxy := func(asks bool) func(*connections) { return func(c *connections) { c.proxied = asks } }
	lose := func(cause string) func(*connections) {
		return func(c *connections) { c.runtime, c.lost = nil, cause }
	}
	tests := map[string]struct {
		steps  []func(*connections)
		reason string
	}{
		"nothing has happened yet":      {nil, "NoTransport"},
		"no runtime answers":            {[]func(*connections){lose("no such file"), lose("closed")}, "NoTransport"},
		"a runtime that promises":       {[]func(*connections){connected("v2.4.2")}, ""},
		"a runtime that does not":       {[]func(*connections){connected("v2.1.5")}, "OldRuntime"},
		"a runtime without its fence":   {[]func(*connections){connected("v2.4.2"), fence(false)}, "FenceDisabled"},
		"the fence is up again":         {[]func(*connections){connected("v2.4.2"), fence(false), fence(true)}, ""},
		"a connection that was lost":    {[]func(*connections){connected("v2.4.2"), lose("closed")}, "NoTransport"},
		"a proxy in place of NRI":       {[]func(*connections){proxy(true)}, ""},
		"a proxy that is gone again":    {[]func(*connections){proxy(true), proxy(false)}, "NoTransport"},
		"a proxy before an old runtime": {[]func(*connections){connected("v1.7.2"), proxy(true)}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var at Transports
			for i, step := range tt.steps {
				if !at.change(step) || at.change(step) {
					t.Errorf("step %d is not news once", i)
				}
			}
			if reason, text := at.connections().degradation(); reason != tt.reason || (reason == "") != (text == "") {
				t.Errorf("degradation() = %q, %q, want %q", reason, text, tt.reason)
			}
		})
	}
}

func TestPromisesOfRuntimes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		name, version string
		old           bool
	}{
		"containerd of today":         {"containerd", "v2.4.2", false},
		"the first containerd":        {"containerd", "2.2.0", false},
		"a build of containerd":       {"containerd", "v2.3.0-rc.1-12-gabcdef.m", false},
		"containerd without fences":   {"containerd", "v2.1.5", true},
		"containerd of old":           {"containerd", "1.7.28", true},
		"the first CRI-O":             {"cri-o", "1.34.0", false},
		"CRI-O without fences":        {"cri-o", "1.33.4", true},
		"CRI-O in other letters":      {"CRI-O", "1.35.1", false},
		"a version that is none":      {"containerd", "devel", true},
		"a runtime that is not known": {"dockerd", "29.0.0", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := ParseRuntime(tt.name, tt.version).Old(); (got != "") != tt.old {
				t.Errorf("Old() = %q, want old %v", got, tt.old)
			}
		})
	}
}
