package command

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
)

const (
	// askTime is the longest time that the API server may take to say who asks for metrics.
	askTime = 5 * time.Second
	// answerLife is for how long what the API server said of a token counts.
	answerLife = time.Minute
	// maxAnswers bounds the tokens that are known, maxAsks the questions to the API server at a time.
	maxAnswers, maxAsks = 64, 4
)

// guard passes requests for metrics on, of those whom the API server lets get them. It is safe for concurrent use.
type guard struct {
	client kubernetes.Interface
	next   http.Handler
	now    func() time.Time
	asks   chan struct{} // holds one for each question under way

	mu      sync.Mutex // guards answers
	answers map[[sha256.Size]byte]answer
}

// answer is the HTTP status for a token.
type answer struct {
	status int
	until  time.Time
}

func newGuard(client kubernetes.Interface, next http.Handler) *guard {
	return &guard{
		client: client, next: next, now: time.Now, asks: make(chan struct{}, maxAsks),
		answers: map[[sha256.Size]byte]answer{},
	}
}

// ServeHTTP implements http.Handler.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status := http.StatusUnauthorized
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		status = g.status(r.Context(), token)
	}
	if status != http.StatusOK {
		http.Error(w, http.StatusText(status), status)
		return
	}
	g.next.ServeHTTP(w, r)
}

func (g *guard) status(ctx context.Context, token string) int {
	key, now := sha256.Sum256([]byte(token)), g.now()
	g.mu.Lock()
	known := g.answers[key]
	g.mu.Unlock()
	if now.Before(known.until) {
		return known.status
	}
	select {
	case g.asks <- struct{}{}:
		defer func() { <-g.asks }()
	default: // whoever reaches the node could keep the API server busy
		return http.StatusTooManyRequests
	}
	status, err := g.ask(ctx, token)
	if err != nil {
		return http.StatusServiceUnavailable
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.answers) >= maxAnswers {
		clear(g.answers)
	}
	g.answers[key] = answer{status, now.Add(answerLife)}
	return status
}

func (g *guard) ask(ctx context.Context, token string) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	who, err := g.client.AuthenticationV1().TokenReviews().Create(ctx,
		&authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	if !who.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := who.Status.User
	extra := make(map[string]authorization.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorization.ExtraValue(values)
	}
	may, err := g.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorization.SubjectAccessReview{
		Spec: authorization.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			NonResourceAttributes: &authorization.NonResourceAttributes{Path: "/metrics", Verb: "get"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	if !may.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

// serveMetrics serves metrics at an address, "" for none, with a certificate that it signs itself: no node gets a key
// by which it could pass for another one.
func serveMetrics(ctx context.Context, address, node, kubeconfig string, metrics http.Handler) (stop func(),
	err error,
) {
	if address == "" {
		return func() {}, nil
	}
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config) // with a limit of its own: what others ask holds nothing else up
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(node, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for the metrics: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for the metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", newGuard(client, metrics))
	return serve(ctx, address, mux, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
}

// checkMetricsAddress refuses what is not HOST:PORT.
func checkMetricsAddress(address string) error {
	if address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		if n, bad := strconv.ParseUint(port, 10, 16); bad != nil || n == 0 {
			err = fmt.Errorf("port %q must be 1…65535", port)
		}
	}
	if err != nil {
		return fmt.Errorf("--metrics-address %q: want HOST:PORT or :PORT, such as :10272: %w", address, err)
	}
	return nil
}
