package plane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tenon-project/tenon/internal/local/datadir"
)

// quota is the size at which etcd refuses writes; its own default, 2 GiB, is reached by some ten thousand pods between
// two compactions.
const quota = 8 << 30

// defragmentAt is the size from which a start defragments the database, which frees the space of deleted objects.
const defragmentAt = 1 << 30

// storeLimit bounds etcd's start. Reading a large store takes seconds.
const storeLimit = time.Minute

// StoreError is the error of an etcd that cannot run on its data: damaged files, a full disk.
type StoreError struct {
	Dir string
	Err error
}

func (e *StoreError) Error() string { return fmt.Sprintf("etcd cannot use %s: %v", e.Dir, e.Err) }

func (e *StoreError) Unwrap() error { return e.Err }

// store is an etcd that only this user can reach: it listens on unix sockets, because a loopback port is open to
// every user of the machine and etcd requires no password.
type store struct {
	etcd     *embed.Etcd
	endpoint string
	broken   *atomic.Bool
}

// startStore starts etcd. It writes to the writer of news, if there is one, what the start does to data of an earlier
// release, before it does it. fail is called with a failure after the start.
func startStore(ctx context.Context, dir datadir.Dir, log, to io.Writer, fail func(error),
) (*store, error) {
	config, err := storeConfig(dir)
	if err != nil {
		return nil, err
	}
	kept, err := readDatabase(filepath.Join(dir.Etcd(), "member", "snap", "db"))
	if err != nil {
		return nil, &StoreError{Dir: dir.Etcd(), Err: err}
	}
	news, err := kept.check(dir.Etcd())
	if err != nil {
		return nil, err
	}
	if news != "" && to != nil {
		if _, err := fmt.Fprintln(to, news); err != nil {
			return nil, fmt.Errorf("report the migration: %w", err)
		}
	}
	s := &store{endpoint: config.ListenClientUrls[0].String(), broken: new(atomic.Bool)}
	// On a full or damaged disk etcd ends the process, from the goroutine that detects it. The logger's hooks end that
	// goroutine alone, and the plane gets the error.
	failed := make(chan error, 1)
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(storeLogger(log, func(err error) {
		s.broken.Store(true)
		err = &StoreError{Dir: dir.Etcd(), Err: err}
		select {
		case failed <- err:
		default:
			fail(err)
		}
	}))
	started := make(chan error, 1)
	go func() {
		// The logger's hooks may end this goroutine; started is then never written and failed is.
		defer func() {
			if r := recover(); r != nil {
				started <- &StoreError{Dir: dir.Etcd(), Err: fmt.Errorf("%v", r)}
			}
		}()
		var err error
		if s.etcd, err = embed.StartEtcd(config); err != nil {
			err = &StoreError{Dir: dir.Etcd(), Err: err}
		}
		started <- err
	}()
	select {
	case err = <-started:
	case err = <-failed:
	}
	if err != nil {
		return nil, err
	}
	select {
	case <-s.etcd.Server.ReadyNotify():
	case err := <-failed:
		return nil, err
	case <-ctx.Done():
		return nil, errors.Join(fmt.Errorf("start etcd: %w", ctx.Err()), s.stop())
	case <-time.After(storeLimit):
		return nil, errors.Join(fmt.Errorf("start etcd: not ready after %v", storeLimit), s.stop())
	}
	for _, u := range append(config.ListenClientUrls, config.ListenPeerUrls...) {
		// Host and path: see storeConfig. Until here the sockets have the mode of the umask, which lets no other user
		// write.
		if err := os.Chmod(u.Host+u.Path, 0o700); err != nil {
			return nil, errors.Join(fmt.Errorf("close etcd's socket to others: %w", err), s.stop())
		}
	}
	if backend := s.etcd.Server.Backend(); backend.Size() > defragmentAt {
		if err := backend.Defrag(); err != nil {
			return nil, errors.Join(&StoreError{Dir: dir.Etcd(), Err: err}, s.stop())
		}
	}
	go s.watch(failed, fail)
	return s, nil
}

// watch reports a failure of etcd to the plane. failed may contain one from before watch was started.
func (s *store) watch(failed <-chan error, fail func(error)) {
	select {
	case err := <-failed:
		fail(err)
	case err, ok := <-s.etcd.Err():
		if ok && err != nil {
			fail(fmt.Errorf("etcd: %w", err))
		}
	case <-s.etcd.Server.StopNotify():
	}
}

func (s *store) stop() error {
	if s.etcd == nil || s.broken.Load() {
		return nil // Close would wait for locks that a failed goroutine holds
	}
	done := make(chan struct{})
	go func() {
		s.etcd.Close()
		close(done)
	}()
	return await("etcd", done)
}

func storeConfig(dir datadir.Dir) (*embed.Config, error) {
	client, err := dir.Socket("etcd.sock")
	peer, peerErr := dir.Socket("etcd-peer.sock")
	if err := errors.Join(err, peerErr); err != nil {
		return nil, err
	}
	c := embed.NewConfig()
	c.Dir = dir.Etcd()
	c.ListenClientUrls = []url.URL{{Scheme: "unix", Path: client}}
	// For peers etcd takes the socket's path from the host.
	c.ListenPeerUrls = []url.URL{{Scheme: "unix", Host: peer}}
	// A member must advertise addresses. There are no other members: these are never dialled.
	c.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:2379"}}
	c.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:2380"}}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.QuotaBackendBytes = quota
	c.Logger = "zap"
	c.LogLevel = "error"
	return c, nil
}

func storeLogger(w io.Writer, broken endGoroutine) *zap.Logger {
	encoder := zapcore.NewConsoleEncoder(zap.NewProductionEncoderConfig())
	core := zapcore.NewCore(encoder, zapcore.AddSync(w), zapcore.ErrorLevel)
	return zap.New(core, zap.WithFatalHook(broken), zap.WithPanicHook(broken)).Named("etcd")
}

// endGoroutine stands in for the end of the process after a fatal log line.
type endGoroutine func(error)

// OnWrite implements zapcore.CheckWriteHook.
func (f endGoroutine) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	f(entryError(entry.Message, fields))
	runtime.Goexit()
}

func entryError(message string, fields []zapcore.Field) error {
	for _, field := range fields {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			return fmt.Errorf("%s: %w", message, err)
		}
	}
	return errors.New(message)
}
