package plane

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/pki"
)

// Config are the options of Start.
type Config struct {
	Dir      datadir.Dir
	PKI      *pki.Authority
	Listener net.Listener // of the API server, on loopback; the plane closes it
	Log      io.Writer
	Admin    *rest.Config // leads to Listener
	Flags    []string     // further API server flags; a repeated flag overrides
	Program  string       // a kube-apiserver that is run in place of the one of this process; empty: none
	News     io.Writer    // gets news for the user, a line each; nil: none
}

// Plane is a running control plane.
type Plane struct {
	config Config
	store  *store
	stops  []func() error  // stop the components over the store; in the order of their starts
	broken context.Context // ends with the first failure as its cause
	fail   context.CancelCauseFunc
}

const stopLimit = 10 * time.Second

// Start starts etcd and the API server and returns when both serve. The plane runs until Stop, also after the end of
// ctx.
func Start(ctx context.Context, c Config) (*Plane, error) {
	logTo(c.Log)
	p := &Plane{config: c}
	p.broken, p.fail = context.WithCancelCause(context.Background())
	var err error
	if p.store, err = startStore(ctx, c.Dir, c.Log, c.News, p.fail); err != nil {
		return nil, err
	}
	if err := p.startAPIServer(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// Broken ends when a component has ended without Stop. The plane then has to be stopped.
func (p *Plane) Broken() context.Context { return p.broken }

// Err returns why the plane is broken, nil while it is not.
func (p *Plane) Err() error { return context.Cause(p.broken) }

// Stop stops controllers, API server and etcd, in this order.
func (p *Plane) Stop() error {
	var errs []error
	for _, stop := range slices.Backward(p.stops) {
		errs = append(errs, stop())
	}
	if p.store != nil {
		errs = append(errs, p.store.stop())
	}
	return errors.Join(errs...)
}

// supervise runs a component until its context ends. If the component ends before, the plane has failed. What the
// component returns afterwards is ignored.
func (p *Plane) supervise(name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := run(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("ended without an error")
		}
		p.fail(fmt.Errorf("%s: %w", name, err))
	}()
	p.stops = append(p.stops, func() error {
		cancel()
		if p.store.broken.Load() {
			return nil // the component would wait for a store that never answers
		}
		return await(name, done)
	})
}

func await(name string, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-time.After(stopLimit):
		return fmt.Errorf("stop %s: still running after %v", name, stopLimit)
	}
}

func logTo(w io.Writer) {
	// Each component applies its own, equal logging configuration.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	if err := flags.Parse([]string{
		"-logtostderr=false", "-alsologtostderr=false", "-stderrthreshold=FATAL",
		"-one_output", // else an error is written once for each severity below it
	}); err != nil {
		panic("plane: klog lost a flag: " + err.Error())
	}
	klog.SetOutput(w)
}
