package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// Service is a gRPC server on a socket.
type Service struct {
	Server *grpc.Server
	// Listener is one from Listen, Path the socket's.
	Listener net.Listener
	Path     string
	// Drain is how long calls may take to end.
	Drain time.Duration
	// Again is called when the socket was removed and is there again, Failed once for each error that prevents that.
	Again  func()
	Failed func(error)
}

// Serve answers calls until ctx ends, and restores the socket when it is removed. It returns when all calls have ended,
// or were cut off after Drain.
func (s *Service) Serve(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- s.Server.Serve(s.Listener) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var more sync.WaitGroup
	defer more.Wait()
	restored := make(chan struct{})
	go func() {
		defer close(restored)
		restore(ctx, s.Listener, s.Path, func(l net.Listener) {
			s.Again()
			more.Go(func() { _ = s.Server.Serve(l) })
		}, s.Failed)
	}()
	select {
	case err := <-served:
		cancel()
		<-restored
		s.Server.Stop()
		return fmt.Errorf("serve %s: %w", s.Path, err)
	case <-ctx.Done():
	}
	<-restored                                     // the server's listeners are all there
	late := time.AfterFunc(s.Drain, s.Server.Stop) // streams of events never end by themselves
	defer late.Stop()
	s.Server.GracefulStop()
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // which it is when it had not begun
		return fmt.Errorf("serve %s: %w", s.Path, err)
	}
	return nil
}
