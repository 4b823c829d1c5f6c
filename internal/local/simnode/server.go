package simnode

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/view"
)

// Answers to kubectl logs and exec.
const (
	noLogs = "simulated container: it runs no program, so it has no logs\n"
	noExec = "simulated container: it runs no program, so nothing can be executed in it or attached to it"
)

// serve starts the kubelets' endpoint and returns its port; 0 when there is none. It listens before it returns.
func serve(ctx context.Context, o Options, registry metrics.KubeRegistry, working agents) (port int, stop func(),
	err error,
) {
	if o.Address == "" {
		return 0, func() {}, nil
	}
	pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		return 0, nil, fmt.Errorf("kubelet endpoint: %w", err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Address)
	if err != nil {
		return 0, nil, fmt.Errorf("kubelet endpoint: %w", err)
	}
	server := &http.Server{
		Handler: handler(registry, working), ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(l, "", "") // always an error; ErrServerClosed at the end
	}()
	stop = func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
			_ = server.Close()
		}
		<-done
	}
	return l.Addr().(*net.TCPAddr).Port, stop, nil
}

// agents are the agents of the nodes by the nodes' index; nil while a node's agent does not run.
type agents []atomic.Pointer[app.Agent]

func (a agents) all() (working []*app.Agent) {
	for i := range a {
		if agent := a[i].Load(); agent != nil {
			working = append(working, agent)
		}
	}
	return working
}

// handler answers kubectl's requests to a kubelet with an explanation, and serves what the agents of all nodes serve.
// None of this needs authentication.
func handler(registry metrics.KubeRegistry, working agents) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	mux.Handle("GET /metrics", metrics.HandlerFor(registry, metrics.HandlerOpts{}))
	mux.Handle("GET "+view.CgroupsPattern, app.InspectHandler(working.all))
	mux.HandleFunc("/containerLogs/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, noLogs) })
	for _, path := range []string{"/exec/", "/attach/", "/portForward/", "/run/"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, noExec, http.StatusNotImplemented)
		})
	}
	return mux
}
