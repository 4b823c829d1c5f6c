package criproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/runtime/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/socket"
)

const (
	// hookLimit is the longest time that a hook may take.
	hookLimit = 1500 * time.Millisecond
	// hookReserve is what a hook leaves of the caller's time for the runtime.
	hookReserve = 100 * time.Millisecond
	// hungLimit is the longest time that a hook may take that may be left out, once its server took too long.
	hungLimit = 100 * time.Millisecond
)

// dispatcher asks hook servers. It is safe for concurrent use.
type dispatcher struct {
	registry *registry
	log      klog.Logger
	limit    time.Duration // the longest time that a hook may take
	// background counts the hook calls in the background.
	background sync.WaitGroup
	// greeted is when greet last looked, in nanoseconds since the epoch.
	greeted atomic.Int64

	mu    sync.Mutex // guards the fields below
	peers map[string]*peer
}

// peer is the connection to a hook server.
type peer struct {
	conn   *grpc.ClientConn
	client v1alpha1.RuntimeHookServiceClient
	lost   bool // its last answer was a failure; logged once. The dispatcher's mu guards it, and the next.
	hung   bool // … because it took too long
}

func newDispatcher(dir string, log klog.Logger) *dispatcher {
	r := &registry{dir: dir, log: log, files: map[string]*registered{}}
	return &dispatcher{registry: r, log: log, limit: hookLimit, peers: map[string]*peer{}}
}

// question is one call to one hook server. It takes over what the server answers.
type question func(context.Context, v1alpha1.RuntimeHookServiceClient) error

// ask puts a question to all servers that are registered for a hook, one after the other. enforced says that the pod
// does not pass without its hooks. The error, with a gRPC status, means that the step must not happen.
func (d *dispatcher) ask(ctx context.Context, h Hook, enforced bool, q question) error {
	servers := d.registry.servers(h)
	if len(servers) == 0 && enforced && h.gate() {
		return status.Errorf(codes.FailedPrecondition,
			"runtime proxy: no hook server is registered for %s in %s, and this pod must not run unenforced: start "+
				"tenon-agent and register it, or remove the proxy from the kubelet's way",
			h, d.registry.dir)
	}
	for _, s := range servers {
		limit := d.limit
		if !enforced && s.policy(h) == Ignore && d.hangs(s.Endpoint) {
			limit = min(limit, hungLimit) // a server that hangs does not hold up every step of every pod
		}
		if err := d.consult(ctx, h, s, q, limit); err != nil && d.prevents(h, s, enforced, err) {
			return failure(h, s, d.registry.dir, err)
		}
	}
	return nil
}

// greetEvery is the shortest time between two looks for hook servers that are not connected.
const greetEvery = time.Second

// greet asks hook servers that are not connected for their health, in the background and no matter what they answer. A
// proxy that only connected with its first container would be unknown until then, and an agent that knows of no proxy
// keeps pods away whose first container that would be.
func (d *dispatcher) greet() {
	now, last := time.Now().UnixNano(), d.greeted.Load()
	if now-last < int64(greetEvery) || !d.greeted.CompareAndSwap(last, now) {
		return
	}
	for _, s := range d.registry.servers(PreCreateContainer) {
		p, err := d.peer(s.Endpoint)
		if err != nil || p.conn.GetState() == connectivity.Ready { // which it became by a call
			continue
		}
		d.background.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), hookLimit)
			defer cancel()
			if p.awake(ctx, s.Endpoint) == nil {
				_, _ = healthpb.NewHealthClient(p.conn).Check(ctx, &healthpb.HealthCheckRequest{})
			}
		})
	}
}

// announce calls a hook in the background, also after its caller has gone; no answer is awaited. Every announced call
// has ended when close returns. Hooks may overtake each other.
func (d *dispatcher) announce(ctx context.Context, h Hook, q question) {
	ctx = context.WithoutCancel(ctx)
	d.background.Go(func() {
		for _, s := range d.registry.servers(h) {
			if err := d.consult(ctx, h, s, q, d.limit); err != nil {
				d.log.V(1).Info("Hook failed after a stop", "hook", h, "file", s.file, "reason", err.Error())
			}
		}
	})
}

// prevents reports whether an error of a server fails the step. After a container has started, only a refusal does: a
// caller that receives a failure would neither stop the container nor continue with the steps after a start.
func (d *dispatcher) prevents(h Hook, s server, enforced bool, err error) bool {
	switch {
	case status.Code(err) == codes.FailedPrecondition:
		return true
	case h == PostStartContainer:
		return false
	}
	return enforced || s.policy(h) == Fail
}

// failure names the server whose hook failed. A refusal keeps its code: it does not concern the connection.
func failure(h Hook, s server, dir string, err error) error {
	code := codes.Unavailable
	if status.Code(err) == codes.FailedPrecondition {
		code = codes.FailedPrecondition
	}
	return status.Errorf(code, "runtime proxy: hook %s of %s (%s): %s", h, s.Endpoint, filepath.Join(dir, s.file),
		status.Convert(err).Message())
}

// consult asks one server.
func (d *dispatcher) consult(ctx context.Context, h Hook, s server, q question, limit time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok { // and what the caller can spare
		limit = min(limit, time.Until(deadline)-hookReserve)
	}
	if limit <= 0 {
		return status.Errorf(codes.DeadlineExceeded, "less than %v of the caller's time is left", hookReserve)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p, err := d.peer(s.Endpoint)
	if err != nil {
		return err
	}
	if err = p.awake(ctx, s.Endpoint); err == nil {
		err = q(ctx, p.client)
	}
	d.logChange(p, h, s, err)
	return err
}

// logChange logs once when a server starts to fail, and once when it answers again.
func (d *dispatcher) logChange(p *peer, h Hook, s server, err error) {
	lost := err != nil && status.Code(err) != codes.FailedPrecondition
	d.mu.Lock()
	changed := p.lost != lost
	p.lost, p.hung = lost, status.Code(err) == codes.DeadlineExceeded
	d.mu.Unlock()
	switch {
	case changed && lost:
		d.log.Error(err, "Hook server fails", "hook", h, "file", s.file, "endpoint", s.Endpoint, "policy", s.policy(h))
	case changed:
		d.log.Info("Hook server answers again", "file", s.file, "endpoint", s.Endpoint)
	}
}

// hangs reports whether an endpoint took too long for its last answer.
func (d *dispatcher) hangs(endpoint string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.peers[endpoint]
	return p != nil && p.hung
}

// peer returns the connection to an endpoint; it is made when it is used.
func (d *dispatcher) peer(endpoint string) (*peer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.peers[endpoint]; p != nil {
		return p, nil
	}
	conn, err := dial(endpoint)
	if err != nil {
		return nil, err
	}
	p := &peer{conn: conn, client: v1alpha1.NewRuntimeHookServiceClient(conn)}
	d.peers[endpoint] = p
	return p, nil
}

// awake returns at once when no process listens on the endpoint, and detects at once when one listens again: gRPC by
// itself would wait for the end of its backoff. An attempt to connect that is under way may have begun before the
// process listened, so its end is awaited.
func (p *peer) awake(ctx context.Context, endpoint string) error {
	if err := p.leave(ctx, connectivity.Connecting); err != nil {
		return err
	}
	if p.conn.GetState() != connectivity.TransientFailure {
		return nil
	}
	if err := socket.Probe(ctx, endpoint); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	p.conn.ResetConnectBackoff()
	return p.leave(ctx, connectivity.TransientFailure)
}

// leave waits while the connection is in a state.
func (p *peer) leave(ctx context.Context, s connectivity.State) error {
	for p.conn.GetState() == s {
		if !p.conn.WaitForStateChange(ctx, s) {
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	return nil
}

// close waits for the hook calls in the background and ends all connections. No call to ask or announce follows.
func (d *dispatcher) close() error {
	d.background.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, p := range d.peers {
		errs = append(errs, p.conn.Close())
	}
	clear(d.peers)
	return errors.Join(errs...)
}

// maxMessage is more than what kubelets and runtimes send each other, 16 MiB: the limit that counts is theirs.
const maxMessage = 64 << 20

// dial connects to a unix socket whenever it is needed, and again soon after it was lost.
func dial(path string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+path,
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}),
		grpc.WithAuthority("localhost"), // as gRPC calls the other end of a unix socket
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithIdleTimeout(0), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: time.Second,
			},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return conn, nil
}
