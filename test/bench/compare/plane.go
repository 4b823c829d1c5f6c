package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/kubeconf"
	"github.com/tenon-project/tenon/internal/local/pki"
	"github.com/tenon-project/tenon/internal/local/plane"
)

// unthrottled makes the API server neither queue nor refuse requests, and accept pods and nodes although no controllers
// run beside it.
var unthrottled = []string{
	"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
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
	p, err := plane.Start(ctx, plane.Config{
		Dir: dir, PKI: authority, Listener: listener, Log: os.Stderr, Admin: cfg,
		Flags: slices.Concat(unthrottled, flags),
	})
	if err != nil {
		return err
	}
	if err := addTopologyKind(ctx, cfg); err != nil {
		return fmt.Errorf("install the topology kind: %w", err)
	}
	if err := kubeconf.WriteCertificate(dir.Kubeconfig(),
		kubeconf.Cluster{Server: server, Authority: authority.Certificate()}, admin); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return p.Stop()
	case <-p.Broken().Done():
		return p.Err()
	}
}
