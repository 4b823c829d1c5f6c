package criproxy

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/internal/agent/socket"
)

// Version asks for the version of a runtime, through a proxy or not, and returns it as text. An error means that
// kubelets would get no answer either.
func Version(ctx context.Context, endpoint string) (string, error) {
	path, err := socket.Path(endpoint)
	if err != nil {
		return "", err
	}
	conn, err := dial(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	v, err := cri.NewRuntimeServiceClient(conn).Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return "", fmt.Errorf("%s: Version: %w", path, err)
	}
	return fmt.Sprintf("%s %s, CRI %s", v.GetRuntimeName(), v.GetRuntimeVersion(), v.GetRuntimeApiVersion()), nil
}

// Registered is a registration and the file that it stands in.
type Registered struct {
	*Registration
	File string
	// Answers reports whether a process listens on its endpoint.
	Answers bool
}

// ReadRegistrations reads the files of a hooks folder, in the order in which their servers are asked. Those that cannot
// be used are in the error.
func ReadRegistrations(ctx context.Context, dir string) ([]Registered, error) {
	names, err := registrations(dir)
	if err != nil {
		return nil, err
	}
	var found []Registered
	var bad []error
	for _, name := range names {
		path := filepath.Join(dir, name)
		r, err := ReadRegistration(path)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		found = append(found, Registered{r, path, socket.Probe(ctx, r.Endpoint) == nil})
	}
	return found, errors.Join(bad...)
}
