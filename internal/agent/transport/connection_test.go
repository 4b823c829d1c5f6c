package transport

import (
	"errors"
	"testing"

	"github.com/tenon-project/tenon/internal/agent/transport/nri"
)

func TestWhyANodePromisesNothing(t *testing.T) {
	t.Parallel()
	connected := func(version string) func(*connections) {
		return func(t *connections) { t.connect(nri.ParseRuntime("containerd", version)) }
	}
	tests := map[string]struct {
		steps  []func(*connections)
		reason string
	}{
		"nothing has happened yet": {nil, "NoTransport"},
		"no runtime answers": {[]func(*connections){func(t *connections) {
			t.disconnect(
				errors.New("no such file"))
		}}, "NoTransport"},
		"a runtime that promises": {[]func(*connections){connected("v2.4.2")}, ""},
		"a runtime that does not": {[]func(*connections){connected("v2.1.5")}, "OldRuntime"},
		"a runtime without its fence": {[]func(*connections){
			connected("v2.4.2"),
			func(t *connections) { t.fence(false) },
		}, "FenceDisabled"},
		"the fence is up again": {[]func(*connections){
			connected("v2.4.2"),
			func(t *connections) { t.fence(false); t.fence(true) },
		}, ""},
		"a connection that was lost": {[]func(*connections){
			connected("v2.4.2"),
			func(t *connections) { t.disconnect(errors.New("closed")) },
		}, "NoTransport"},
		"a proxy in place of NRI": {[]func(*connections){func(t *connections) { t.proxy(true) }}, ""},
		"a proxy that is gone again": {
			[]func(*connections){func(t *connections) { t.proxy(true); t.proxy(false) }},
			"NoTransport",
		},
		"a proxy before an old runtime": {
			[]func(*connections){connected("v1.7.2"), func(t *connections) { t.proxy(true) }},
			"",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var at connections
			for _, step := range tt.steps {
				step(&at)
			}
			if reason, text := at.degradation(); reason != tt.reason || (reason == "") != (text == "") {
				t.Errorf("degradation() = %q, %q, want %q", reason, text, tt.reason)
			}
		})
	}
}

func TestChangeOfTheRuntimeIsReportedOnce(t *testing.T) {
	t.Parallel()
	var at connections
	for i, step := range []struct {
		what string
		news bool
		want bool
	}{
		{"first failure", at.disconnect(errors.New("a")), true},
		{"the same again", at.disconnect(errors.New("a")), false},
		{"another cause", at.disconnect(errors.New("b")), true},
		{"the fence is up", at.fence(true), false},
		{"the fence is down", at.fence(false), true},
		{"and still is", at.fence(false), false},
		{"a proxy asks", at.proxy(true), true},
		{"a proxy asks again", at.proxy(true), false},
		{"the proxy is gone", at.proxy(false), true},
		{"and still is", at.proxy(false), false},
	} {
		if step.news != step.want {
			t.Errorf("step %d, %s: news %v, want %v", i, step.what, step.news, step.want)
		}
	}
}
