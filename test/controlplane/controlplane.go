package controlplane

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/kubeconf"
	"github.com/tenon-project/tenon/internal/local/pki"
	"github.com/tenon-project/tenon/internal/local/plane"
)

// Plane is a control plane of a test, which ends with it.
type Plane struct {
	Dir       datadir.Dir
	Ports     *datadir.Ports
	Authority *pki.Authority
	Server    kubeconf.Cluster
	Admin     pki.Pair     // of the group system:masters
	Config    *rest.Config // the administrator's, without a limit of requests
	Log       string       // a file
}

// Start starts a control plane, with further flags of the API server.
func Start(t *testing.T, flags ...string) *Plane {
	t.Helper()
	dir, err := datadir.Resolve(filepath.Join(t.TempDir(), "data"))
	check(t, err)
	check(t, dir.Make())
	ports, err := dir.Ports()
	check(t, err)
	t.Cleanup(ports.Close)
	authority, err := pki.Open(dir.PKI(), time.Now())
	check(t, err)
	admin, err := authority.Issue("admin", pki.Subject{User: "admin", Groups: []string{"system:masters"}})
	check(t, err)
	server := kubeconf.Cluster{
		Server: "https://" + ports.Address(datadir.APIServer), Authority: authority.Certificate(),
	}
	config := &rest.Config{
		Host: server.Server, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: server.Authority, CertData: admin.Cert, KeyData: admin.Key},
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	check(t, err)
	p, err := plane.Start(t.Context(), plane.Config{
		Dir: dir, PKI: authority, Listener: ports.Listener(datadir.APIServer), Log: log, Admin: config,
		Flags: flags,
	})
	check(t, err)
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return &Plane{dir, ports, authority, server, admin, config, log.Name()}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
