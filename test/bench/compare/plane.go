package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/kubeconf"
	"github.com/tenon-project/tenon/internal/local/pki"
	"github.com/tenon-project/tenon/internal/local/plane"
)

// unthrottled makes the API server neither queue nor refuse requests, accept pods and nodes although no controllers run
// beside it, and delete claims and volumes at once.
var unthrottled = []string{
	"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,StorageObjectInUseProtection",
	"--enable-priority-and-fairness=false",
	"--max-requests-inflight=0",
	"--max-mutating-requests-inflight=0",
}

// servePlane runs etcd and the API server in this process until ctx ends. The kubeconfig appears when both are ready
// and the topology CRD is there.
func servePlane(ctx context.Context, path string, flags []string) error {
	dir, err := datadir.Resolve(path)
	if err != nil {
		return err
	}
	if err := dir.Make(); err != nil {
		return err
	}
	authority, err := pki.Open(dir.PKI(), time.Now())
	if err != nil {
		return err
	}
	admin, err := authority.Issue("admin", pki.Subject{User: "admin", Groups: []string{"system:masters"}})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := "https://" + listener.Addr().String()
	cfg := &rest.Config{
		Host: server, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: authority.Certificate(), CertData: admin.Cert,
			KeyData: admin.Key,
		},
	}
	// A certificate is verified anew for each request, which took 4 to 13 % of the API server's CPU; schedulers in a
	// cluster have tokens.
	token := filepath.Join(dir.PKI(), "bench-token")
	secret := rand.Text()
	users := token + ".csv"
	err = errors.Join(datadir.WriteFile(token, []byte(secret), 0o600),
		datadir.WriteFile(users, []byte(secret+",admin,admin,system:masters\n"), 0o600))
	if err != nil {
		return err
	}
	p, err := plane.Start(ctx, plane.Config{
		Dir: dir, PKI: authority, Listener: listener, Log: os.Stderr, Admin: cfg,
		Flags: slices.Concat(unthrottled, flags, []string{"--token-auth-file=" + users}),
	})
	if err != nil {
		return err
	}
	if err := addTopologyKind(ctx, cfg); err != nil {
		return fmt.Errorf("install the topology kind: %w", err)
	}
	if err := kubeconf.WriteToken(dir.Kubeconfig(),
		kubeconf.Cluster{Server: server, Authority: authority.Certificate()}, token); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return p.Stop()
	case <-p.Broken().Done():
		return p.Err()
	}
}
