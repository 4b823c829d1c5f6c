package criproxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/internal/agent/socket"
)

// Hook is a moment at which hook servers are asked.
type Hook string

// The hooks.
const (
	PreRunPodSandbox            Hook = "PreRunPodSandbox"
	PostStopPodSandbox          Hook = "PostStopPodSandbox"
	PreCreateContainer          Hook = "PreCreateContainer"
	PreStartContainer           Hook = "PreStartContainer"
	PostStartContainer          Hook = "PostStartContainer"
	PreUpdateContainerResources Hook = "PreUpdateContainerResources"
	PostStopContainer           Hook = "PostStopContainer"
)

// Hooks lists the hooks.
func Hooks() []Hook {
	return []Hook{
		PreRunPodSandbox, PostStopPodSandbox, PreCreateContainer, PreStartContainer, PostStartContainer,
		PreUpdateContainerResources, PostStopContainer,
	}
}

// gate reports whether a pod that must be enforced does not pass the hook's step when no server is registered for it.
func (h Hook) gate() bool { return strings.HasPrefix(string(h), "Pre") }

// Policy says what becomes of a call when a hook server fails.
type Policy string

// The policies.
const (
	// Fail returns the failure to the caller, who tries again.
	Fail Policy = "Fail"
	// Ignore goes on as if the server were not registered.
	Ignore Policy = "Ignore"
)

// Registration is a hook server as described by a file of the hooks folder.
type Registration struct {
	// Endpoint is the server's unix socket: an absolute path, with or without unix:// before it.
	Endpoint string `json:"remote-endpoint"`
	// Policy holds for all hooks that Policies does not name.
	Policy Policy `json:"failure-policy"`
	// Hooks are those that the server is asked at.
	Hooks []Hook `json:"runtime-hooks"`
	// Policies are policies of single hooks.
	Policies map[Hook]Policy `json:"failure-policies,omitempty"`
}

// policy returns what a failure at a hook means.
func (r *Registration) policy(h Hook) Policy {
	if p, ok := r.Policies[h]; ok {
		return p
	}
	return r.Policy
}

// ParseRegistration reads a registration. The error names every field that is wrong and what it may be.
func ParseRegistration(content []byte) (*Registration, error) {
	r := &Registration{}
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil {
		return nil, fmt.Errorf("%w; want an object of remote-endpoint, failure-policy, runtime-hooks and, if need be, "+
			"failure-policies", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value, want one object")
	}
	return r, errors.Join(r.problems()...)
}

func (r *Registration) problems() []error {
	var bad []error
	add := func(format string, args ...any) { bad = append(bad, fmt.Errorf(format, args...)) }
	path, err := socket.Path(r.Endpoint)
	if err != nil {
		add("remote-endpoint: %w", err)
	}
	r.Endpoint = path
	if !r.Policy.valid() {
		add("failure-policy: %q: want %s or %s", r.Policy, Fail, Ignore)
	}
	if len(r.Hooks) == 0 {
		add("runtime-hooks: is empty, want some of %s", hookNames())
	}
	for i, h := range r.Hooks {
		if !slices.Contains(Hooks(), h) {
			add("runtime-hooks[%d]: %q: want one of %s", i, h, hookNames())
		}
	}
	for h, p := range r.Policies {
		if !slices.Contains(r.Hooks, h) {
			add("failure-policies: %q: want one of runtime-hooks", h)
		}
		if !p.valid() {
			add("failure-policies[%s]: %q: want %s or %s", h, p, Fail, Ignore)
		}
	}
	slices.SortFunc(bad, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return bad
}

func (p Policy) valid() bool { return p == Fail || p == Ignore }

func hookNames() string {
	var names []string
	for _, h := range Hooks() {
		names = append(names, string(h))
	}
	return strings.Join(names, ", ")
}
