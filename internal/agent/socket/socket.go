package socket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
)

// connectLimit is the longest time to check whether a process listens on a unix socket: the kernel answers at once, and
// only a process that gets no CPU takes longer.
const connectLimit = time.Second

// ErrClaimed is returned by Claim when another process has the socket.
var ErrClaimed = errors.New("another process has the socket")

// mode keeps everybody but the owner from a socket through which containers can be run.
const mode = 0o600

// Claim keeps other proxies from a socket until it is closed, or the process ends in any way. The folder of the socket
// is made when it is missing. The error is ErrClaimed when another process has it.
func Claim(socket string) (io.Closer, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return nil, err
	}
	path := socket + ".lock"
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, mode)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w: it holds %s", ErrClaimed, path)
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// Listen creates a unix socket that only its owner may use. A stale socket of a dead process is removed; a socket that
// a process listens on, and a file that is not a socket, is an error.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	if err := vacate(ctx, path); err != nil {
		return nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		// The mode of a socket that is not bound yet becomes that of its file: other users can never connect.
		err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), mode) })
		return errors.Join(err, failed)
	}}
	return config.Listen(ctx, "unix", path)
}

// restoreEvery is the time between two looks at the file of a socket.
const restoreEvery = time.Second

// restore listens again after the file of a listener from Listen, or its folder, was removed, and passes the new
// listener to serve. Existing connections and the old listener remain open: the caller that stops the server closes
// both. It calls failed once for each error that prevents the new socket, and returns when ctx ends.
func restore(ctx context.Context, l net.Listener, path string, serve func(net.Listener), failed func(error)) {
	own, _ := os.Lstat(path)
	reported := ""
	tick := time.NewTicker(restoreEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now, err := os.Lstat(path); err == nil && own != nil && os.SameFile(own, now) {
			continue
		}
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		var next net.Listener
		if err == nil {
			next, err = Listen(ctx, path)
		}
		if err != nil {
			if text := err.Error(); text != reported && ctx.Err() == nil {
				reported = text
				failed(err)
			}
			continue
		}
		if old, ok := l.(*net.UnixListener); ok {
			old.SetUnlinkOnClose(false) // the file is the new one's
		}
		l, reported = next, ""
		own, _ = os.Lstat(path)
		serve(next)
	}
}

// vacate removes what a dead process left at a socket's path.
func vacate(ctx context.Context, path string) error {
	file, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case file.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("listen on %s: a file that is not a socket exists", path)
	}
	switch err := Probe(ctx, path); {
	case err == nil:
		return fmt.Errorf("listen on %s: another program listens there", path)
	case !errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("listen on %s: %w", path, err)
	}
	return os.Remove(path)
}

// Probe returns nil when a process listens on a socket, and otherwise at once the reason.
func Probe(ctx context.Context, path string) error {
	limited, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(limited, "unix", path)
	if err != nil {
		return err
	}
	return conn.Close()
}

// MaxPath is the longest path of a unix socket in bytes.
const MaxPath = 107

// Path returns the path of a unix socket's endpoint: PATH, unix:PATH or unix://PATH, PATH being absolute.
func Path(endpoint string) (string, error) {
	path, _ := strings.CutPrefix(endpoint, "unix:")
	path = strings.TrimPrefix(path, "//")
	switch {
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("%q: want the absolute path of a unix socket, such as /run/tenon/hooks.sock or "+
			"unix:///run/tenon/hooks.sock", endpoint)
	case len(path) > MaxPath:
		return "", fmt.Errorf("%q: has %d bytes, want %d or less, the longest path of a unix socket", endpoint,
			len(path), MaxPath)
	}
	return path, nil
}

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
