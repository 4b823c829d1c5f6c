package console

import (
	"context"
	"crypto/rand"
	"crypto/tls"
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

const interval = time.Second

// Console is a server that has started.
type Console struct {
	// Address is what the user opens. On loopback it contains the token.
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
	c := serve(ctx, listener, Options{SignIn: OneToken(source, token, time.Now().Add(Lifetime)), Port: port})
	c.Address = fmt.Sprintf("http://%s/#t=%s", listener.Addr(), token)
	return c, nil
}

// Certificate is where the certificate of a server and its key are, as PEM. The files are read for each connection,
// so that they can be replaced.
type Certificate struct {
	Cert, Key string
}

// StartTLS serves a console that other machines reach under the names hosts, until ctx ends. Whoever asks signs in.
func StartTLS(ctx context.Context, address string, c Certificate, hosts []string,
	signIn func(context.Context, string) (Source, error),
) (*Console, error) {
	load := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		return &pair, err
	}
	if _, err := load(nil); err != nil {
		return nil, fmt.Errorf("read the certificate of the console: %w", err)
	}
	config := &tls.Config{GetCertificate: load, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve the console: %w", err)
	}
	served := serve(ctx, tls.NewListener(listener, config), Options{SignIn: signIn, Hosts: hosts})
	served.Address = fmt.Sprintf("https://%s/", listener.Addr())
	return served, nil
}

func serve(ctx context.Context, listener net.Listener, o Options) *Console {
	o.Files, o.Every = web.Files(), interval
	s := &http.Server{
		Handler:           New(o),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: writeTimeout,
		ReadTimeout:       writeTimeout,
		IdleTimeout:       readTimeout,
	}
	c := &Console{ended: make(chan error, 1)}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	go func() {
		defer stop()
		err := s.Serve(listener)
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		c.ended <- err
	}()
	return c
}

// Wait returns once the server has ended, with its error.
func (c *Console) Wait() error { return <-c.ended }
