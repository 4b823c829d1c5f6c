package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
)

// shutdownTimeout bounds how long open requests may take when the process ends, and how long a client may take to send
// the header of a request.
const shutdownTimeout = 5 * time.Second

// serve starts the secure server and, when asked for, the plain one. A server that dies ends the process.
func (s *Scheduler) serve(ctx context.Context, cancel context.CancelCauseFunc) error {
	if s.config.SecureServing != nil {
		diagnostics, err := s.diagnostics(ctx, s.config.Authorization.Authorizer)
		if err != nil {
			return err
		}
		server := s.server(ctx)
		stopped, _, err := s.config.SecureServing.Serve(server.Guard(server.Endpoints(diagnostics)),
			shutdownTimeout, ctx.Done())
		if err != nil {
			return fmt.Errorf("start the secure server: %w", err)
		}
		go func() {
			<-stopped
			cancel(errors.New("the secure server has stopped"))
		}()
	}
	if s.options.LegacyDebugAddress != "" {
		return s.servePlain(ctx, cancel)
	}
	return nil
}

// servePlain serves diagnostics on a loopback address, without authentication and so read-only, apart from the debug
// flags where that is allowed.
func (s *Scheduler) servePlain(ctx context.Context, cancel context.CancelCauseFunc) error {
	diagnostics, err := s.diagnostics(ctx, nil)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.options.LegacyDebugAddress)
	if err != nil {
		return fmt.Errorf("--legacy-debug-address: %w", err)
	}
	plain := diag.ReadOnly(diagnostics, "this port has no authentication and is read-only, use the secure port")
	if s.options.LegacyDebugAllowFlags {
		plain = withFlags(diagnostics, plain)
	}
	server := &http.Server{Handler: plain, ReadHeaderTimeout: shutdownTimeout}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			cancel(fmt.Errorf("serve diagnostics on %s: %w", listener.Addr(), err))
		}
	}()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	klog.FromContext(ctx).Info("Serving diagnostics without authentication", "address", listener.Addr().String())
	return nil
}

// withFlags passes changes of debug flags on to diagnostics, and all else to plain. The Host of a change must be a
// loopback address: a page of a browser whose name resolves to one changes nothing.
func withFlags(diagnostics, plain http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err == nil && isLoopback(host) && strings.HasPrefix(r.URL.Path, "/debug/flags/") {
			diagnostics.ServeHTTP(w, r)
			return
		}
		plain.ServeHTTP(w, r)
	})
}

// server has the paths of kube-scheduler, with checks of health. Not being the leader fails none of them.
func (s *Scheduler) server(ctx context.Context) *hooks.Server {
	server := &hooks.Server{
		Config: s.config, Flags: s.options.Flags, Leading: s.core.Tracker.Leading.Load,
		Live: []healthz.HealthChecker{healthz.NamedCheck("scheduling-cycle",
			func(*http.Request) error { return s.core.Gate.Check(time.Now()) })},
		Ready: []healthz.HealthChecker{
			healthz.NewShutdownHealthz(ctx.Done()),
			healthz.NamedCheck("accounts", func(*http.Request) error { return s.known() }),
		},
	}
	if s.config.LeaderElection != nil {
		server.Live = append(server.Live, s.config.LeaderElection.WatchDog)
	}
	return server
}

// known returns an error until all accounts are complete.
func (s *Scheduler) known() error {
	if !s.store.IsSynced() {
		return errors.New("nodes, topologies and pods are not all known yet")
	}
	return nil
}
