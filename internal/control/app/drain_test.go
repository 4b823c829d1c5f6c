package app

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
)

// plainServer serves until its context ends.
type plainServer struct {
	ctrlwebhook.Server
	hook http.Handler
}

func (s *plainServer) Register(_ string, hook http.Handler) { s.hook = hook }

func (s *plainServer) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// TestWebhooksAnswerUntilTheAPIServerKnows: an upgrade of the manager refused pods, whose requests went to a replica
// that had stopped to listen, or over a connection that it closed at the same moment.
func TestWebhooksAnswerUntilTheAPIServerKnows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := &plainServer{}
		server := &drainingServer{Server: inner}
		server.Register("/", http.NotFoundHandler())
		closes := func() bool {
			answer := httptest.NewRecorder()
			inner.hook.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
			return answer.Header().Get("Connection") == "close"
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- server.Start(ctx) }()
		synctest.Wait()
		if closes() {
			t.Error("a server that goes on has connections closed")
		}
		begun := time.Now()
		cancel()
		synctest.Wait()
		if !closes() {
			t.Error("a server that ends keeps its connections")
		}
		if err := <-ended; err != nil || time.Since(begun) != drainTime {
			t.Errorf("it ended after %v with %v, want %v", time.Since(begun), err, drainTime)
		}
	})
}
