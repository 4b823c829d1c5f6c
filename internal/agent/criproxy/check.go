package criproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/internal/agent/socket"
)

// Check asks for the version of the runtime behind a proxy and reads the registrations of its hook servers: it prints
// one line for the runtime and one for each registration. An error means that kubelets would get no answer, or names
// the registrations that cannot be used.
func Check(ctx context.Context, out io.Writer, listen, hooksDir string) error {
	path, err := socket.Path(listen)
	if err != nil {
		return err
	}
	conn, err := dial(path)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	v, err := cri.NewRuntimeServiceClient(conn).Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return fmt.Errorf("%s: Version: %w", path, err)
	}
	fmt.Fprintf(out, "ok    %s: %s %s, CRI %s\n", listen, v.GetRuntimeName(), v.GetRuntimeVersion(),
		v.GetRuntimeApiVersion())
	names, err := registrations(hooksDir)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		fmt.Fprintf(out, "none  %s: no hook server is registered: pods with CPUs or devices do not start\n", hooksDir)
	}
	var bad []error
	for _, name := range names {
		file := filepath.Join(hooksDir, name)
		r, err := readRegistration(file)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		state := "ok   "
		if socket.Probe(ctx, r.Endpoint) != nil {
			state = "away "
		}
		fmt.Fprintf(out, "%s %s: %s, %s, %v\n", state, file, r.Endpoint, r.Policy, r.Hooks)
	}
	return errors.Join(bad...)
}
