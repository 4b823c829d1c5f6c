package criproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // what a caller may compress with
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/internal/agent/socket"
)

// crioSuffix ends every endpoint of CRI-O by which a kubelet knows that it is CRI-O's.
const crioSuffix = "/run/crio/crio.sock"

const (
	// drainLimit is how long calls under way may take when the proxy ends.
	drainLimit = 5 * time.Second
	// sweepEvery is the time between two looks at what the runtime has.
	sweepEvery = 5 * time.Minute
	// sweepLimit is the longest time that a look may take.
	sweepLimit = 30 * time.Second
	// patience is the longest pause between two attempts to reach the runtime at the start.
	patience = time.Second
)

// Options say what a Proxy stands between.
type Options struct {
	// Listen is the unix socket that kubelets connect to: an absolute path. In front of CRI-O it ends in
	// /run/crio/crio.sock, because kubelets know CRI-O by that.
	Listen string
	// Runtime and Images are endpoints of unix sockets; Images is that of Runtime when empty.
	Runtime, Images string
	// HooksDir has the registrations of hook servers.
	HooksDir string
}

// Problems returns an error for each option that is wrong, which begins with its flag.
func (o Options) Problems() []error { return o.complete() }

// complete validates the options and converts endpoints to paths.
func (o *Options) complete() (errs []error) {
	paths := []struct {
		field string
		path  *string
	}{{"--listen", &o.Listen}, {"--runtime", &o.Runtime}, {"--image-endpoint", &o.Images}}
	if o.Images == "" {
		o.Images = o.Runtime
	}
	for _, p := range paths {
		path, err := socket.Path(*p.path)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.field, err))
			continue
		}
		*p.path = path
	}
	if o.HooksDir == "" {
		errs = append(errs, errors.New("--hooks-dir: is empty, want the folder of hook servers' registrations"))
	}
	if o.Listen == o.Runtime || o.Listen == o.Images {
		errs = append(errs, fmt.Errorf("--listen: %q is the runtime's own socket, want another path", o.Listen))
	}
	if IsCRIO(o.Runtime) && !IsCRIO(o.Listen) {
		errs = append(errs,
			fmt.Errorf("--listen: %q: want a path that ends in %s, such as /run/tenon%s: kubelets know CRI-O by it",
				o.Listen, crioSuffix, crioSuffix))
	}
	return errs
}

// IsCRIO reports whether kubelets take an endpoint for CRI-O's.
func IsCRIO(endpoint string) bool { return strings.HasSuffix(endpoint, crioSuffix) }

// Proxy is a CRI endpoint in front of another.
type Proxy struct {
	o               Options
	runtime, images *grpc.ClientConn
	state           *state
	hooks           *dispatcher
	steps           map[string]step
	drain           time.Duration
}

// New returns a Proxy that does not listen yet. The error names each option that is wrong.
func New(o Options) (*Proxy, error) {
	if err := errors.Join(o.complete()...); err != nil {
		return nil, err
	}
	return &Proxy{o: o, steps: steps(), drain: drainLimit}, nil
}

// Run waits for the runtime, listens and answers until ctx ends; ready is called once it listens. Calls under way then
// have five seconds. It returns nil at the end of ctx, and socket.ErrClaimed when another proxy has the socket. It can
// be called once.
func (p *Proxy) Run(ctx context.Context, ready func()) error {
	lock, err := socket.Claim(p.o.Listen)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := p.connect(ctx); err != nil {
		return err
	}
	defer p.close()
	if err := p.know(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	l, err := socket.Listen(ctx, p.o.Listen)
	if err != nil {
		return err
	}
	log := klog.FromContext(ctx)
	sandboxes, containers := p.state.size()
	log.Info("Proxy listens", "endpoint", p.o.Listen, "runtime", p.o.Runtime, "sandboxes", sandboxes, "containers",
		containers)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tasks.Go(func() { p.sweep(ctx) })
	p.hooks.registry.announce()
	ready()
	return p.serve(ctx, l)
}

// connect makes connections that are used later.
func (p *Proxy) connect(ctx context.Context) error {
	var err error
	if p.runtime, err = dial(p.o.Runtime); err != nil {
		return err
	}
	p.images = p.runtime
	if p.o.Images != p.o.Runtime {
		if p.images, err = dial(p.o.Images); err != nil {
			return errors.Join(err, p.runtime.Close())
		}
	}
	p.state = newState(cri.NewRuntimeServiceClient(p.runtime))
	p.hooks = newDispatcher(p.o.HooksDir, klog.FromContext(ctx))
	return nil
}

// serve answers calls until ctx ends.
func (p *Proxy) serve(ctx context.Context, l net.Listener) error {
	s := grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(p.handle),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		// A container that was refused after its start is stopped, even if the caller or the proxy ends meanwhile.
		grpc.WaitForHandlers(true),
		// Whether pings are too many is for the kubelet and the runtime to say.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	log := klog.FromContext(ctx)
	service := socket.Service{
		Server: s, Listener: l, Path: p.o.Listen, Drain: p.drain,
		Again:  func() { log.Info("Proxy listens again: its socket was removed", "endpoint", p.o.Listen) },
		Failed: func(err error) { log.Error(err, "Proxy's socket was removed and cannot be made again") },
	}
	return service.Serve(ctx)
}

// handle answers any call.
func (p *Proxy) handle(_ any, down grpc.ServerStream) error {
	method, ok := grpc.MethodFromServerStream(down)
	if !ok {
		return status.Error(codes.Internal, "runtime proxy: a call without a method")
	}
	p.hooks.greet()
	if step, ok := p.steps[method]; ok {
		return p.intercept(method, step, down)
	}
	return p.pass(method, down)
}

// upstream returns the connection that answers a method.
func (p *Proxy) upstream(method string) *grpc.ClientConn {
	if strings.HasPrefix(method, "/"+cri.ImageService_ServiceDesc.ServiceName+"/") {
		return p.images
	}
	return p.runtime
}

// know learns what the runtime has. It waits for a runtime that does not answer yet.
func (p *Proxy) know(ctx context.Context) error {
	log := klog.FromContext(ctx)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, patience) {
		err := p.state.rebuild(ctx)
		if err == nil {
			return nil
		}
		switch status.Code(err) {
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
			log.V(1).Info("Runtime does not answer yet", "runtime", p.o.Runtime, "reason", err.Error())
		default:
			log.Error(err, "Failed to list sandboxes and containers", "runtime", p.o.Runtime)
		}
		if !wait(ctx, pause) {
			return ctx.Err()
		}
	}
}

// wait returns after a time, or false when ctx ends before.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// sweep forgets from time to time what the runtime no longer has.
func (p *Proxy) sweep(ctx context.Context) {
	for wait(ctx, sweepEvery) {
		limited, cancel := context.WithTimeout(ctx, sweepLimit)
		if err := p.state.sweep(limited); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(1).Info("What is gone cannot be forgotten now", "reason", err.Error())
		}
		cancel()
	}
}

func (p *Proxy) close() {
	_ = p.runtime.Close()
	if p.images != p.runtime {
		_ = p.images.Close()
	}
	_ = p.hooks.close()
}
