package transport

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/agent/hook"
)

// Times of a call of the container runtime.
const (
	// GuardTime is when the own guard gives up: before the runtime's 2 s, after which it would go on without us.
	GuardTime = 1500 * time.Millisecond
	// Budget is what a call may take that is answered from memory: all other calls of the node wait for it.
	Budget = 50 * time.Millisecond
)

// NRIOptions are what serving NRI needs.
type NRIOptions struct {
	// Socket is the path of the runtime's NRI socket.
	Socket  string
	Handler hook.Handler
	Link    Link
	// Clock is the real one when nil.
	Clock clock.WithTicker
}

// Link follows the connection to a container runtime.
type Link interface {
	// Connected is called for each connection that the runtime accepted, Disconnected with the reason why one ended or
	// could not be made.
	Connected(ctx context.Context, r Runtime)
	Disconnected(ctx context.Context, why error)
	// Timed takes the duration of each call. More than the Budget is too long; a call that took GuardTime was cut off.
	Timed(call string, d time.Duration)
	// Fenced is called each time the runtime shows whether it checks the annotation that names required plugins.
	Fenced(yes bool)
}

// Runtime is a container runtime as it names itself.
type Runtime struct{ Name, Version string }

// ParseRuntime parses the name and version that Configure receives.
func ParseRuntime(name, version string) Runtime {
	return Runtime{Name: name, Version: strings.TrimPrefix(version, "v")}
}

// Old says why containers may start without us on this runtime; "" when they may not.
func (r Runtime) Old() string {
	// The first versions whose validators fail closed.
	first, known := map[string]string{"containerd": "2.2", "cri-o": "1.34"}[strings.ToLower(r.Name)]
	if !known {
		return "runtime " + r.Name + " " + r.Version +
			" is not known to fail closed: want containerd 2.2 or CRI-O 1.34, or a later one"
	}
	if v, err := version.ParseGeneric(r.Version); err == nil && v.AtLeast(version.MustParseGeneric(first)) {
		return ""
	}
	return r.Name + " " + r.Version + " continues without a plugin that fails: want " + first + " or later"
}
