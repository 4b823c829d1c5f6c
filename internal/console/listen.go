package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/tenon-project/tenon/web"
)

// Lifetime is how long the address of a console is valid.
const Lifetime = 12 * time.Hour

const interval = 2 * time.Second

// Console is a server that has started.
type Console struct {
	// Address is what the user opens. It contains the token.
	Address string
	ended   chan error
}

// CheckAddress refuses addresses that other machines could reach.
func CheckAddress(address string) error {
	host, _, err := net.SplitHostPort(address)
	ip, notAnIP := netip.ParseAddr(host)
	if err != nil || host != "localhost" && (notAnIP != nil || !ip.IsLoopback()) {
		const text = "%q is not allowed: use a loopback address with a port, such as 127.0.0.1:0 (0: any free port)"
		return fmt.Errorf(text, address)
	}
	return nil
}

// Start serves a console on a loopback address until ctx ends.
func Start(ctx context.Context, address string, source Source) (*Console, error) {
	if err := CheckAddress(address); err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve the console: %w", err)
	}
	port, token := listener.Addr().(*net.TCPAddr).Port, rand.Text()
	s := &http.Server{
		Handler: New(Options{
			Source: source, Files: web.Files(), Port: port, Token: token, Expires: time.Now().Add(Lifetime),
			Every: interval,
		}),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: writeTimeout,
		ReadTimeout:       writeTimeout,
		IdleTimeout:       readTimeout,
	}
	c := &Console{Address: fmt.Sprintf("http://%s/#t=%s", listener.Addr(), token), ended: make(chan error, 1)}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	go func() {
		defer stop()
		err := s.Serve(listener)
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		c.ended <- err
	}()
	return c, nil
}

// Wait returns once the server has ended, with its error.
func (c *Console) Wait() error { return <-c.ended }
