package app

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
)

// drainTime is how long the webhooks answer after the manager was asked to end. The API server learns only then that
// the pod is not an endpoint of their Service any more, and keeps connections to it.
const drainTime = 5 * time.Second

// drainingServer serves for drainTime more when its context ends, and lets each client close its connection meanwhile.
type drainingServer struct {
	ctrlwebhook.Server
	draining atomic.Bool
}

func (s *drainingServer) Start(ctx context.Context) error {
	until, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		s.draining.Store(true)
		time.AfterFunc(drainTime, cancel)
	})()
	return s.Server.Start(until)
}

func (s *drainingServer) Register(path string, hook http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		hook.ServeHTTP(w, r)
	}))
}
