package kubeletapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/internal/agent/host"
)

// Bounds of one question to a kubelet.
const (
	askLimit = 5 * time.Second
	// maxConfigBytes is many times what a kubelet answers.
	maxConfigBytes = 4 << 20
)

// Client asks the kubelet of one node for its settings. It is safe for concurrent use.
type Client struct {
	node     string
	root     host.Root
	endpoint Endpoint // zero: read from the Node
	roots    *x509.CertPool
	tls      *tls.Config // client certificates, if any
	auth     *rest.Config

	mu   sync.Mutex // guards the fields below
	at   Endpoint
	http *http.Client
}

// ClientOptions are what a Client needs.
type ClientOptions struct {
	// Node is the node's name.
	Node string
	// Root is where the kubelet's own certificates are read from.
	Root host.Root
	// API is how the agent talks to the API server: its credential, and its authority, count for the kubelet too.
	// Whether it verifies the API server does not.
	API *rest.Config
	// Endpoint is where the kubelet serves; "" takes it from the Node.
	Endpoint string
}

// NewClient returns a Client. It refuses an endpoint that is none and a configuration whose files cannot be read.
func NewClient(o ClientOptions) (*Client, error) {
	c := &Client{node: o.Node, root: o.Root}
	var err error
	if o.Endpoint != "" {
		if c.endpoint, err = ParseEndpoint(o.Endpoint); err != nil {
			return nil, err
		}
	}
	c.auth = rest.CopyConfig(o.API)
	c.auth.Insecure, c.auth.ServerName = false, ""
	if c.tls, err = rest.TLSConfigFor(c.auth); err != nil {
		return nil, fmt.Errorf("configure the kubelet's client: %w", err)
	}
	if c.tls == nil {
		c.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	c.roots = c.tls.RootCAs
	return c, nil
}

// Config asks for the settings in force. node is the API's object, for its address. The error is ErrUntrusted, or says
// what the kubelet answered.
func (c *Client) Config(ctx context.Context, node *corev1.Node) (Config, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	at := c.endpoint
	if at == (Endpoint{}) {
		var err error
		if at, err = endpointOf(node); err != nil {
			return Config{}, err
		}
	}
	text, err := c.get(ctx, at)
	if err != nil {
		return Config{}, fmt.Errorf("ask the kubelet at %s for its settings: %w", at, err)
	}
	return ParseConfig(text)
}

func (c *Client) get(ctx context.Context, at Endpoint) ([]byte, error) {
	client, err := c.clientFor(at)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String()+"/configz", http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, bare(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxConfigBytes+1))
	switch {
	case answer.StatusCode != http.StatusOK:
		return nil, refusal(answer.StatusCode, text)
	case err != nil:
		return nil, err
	case len(text) > maxConfigBytes:
		return nil, fmt.Errorf("the answer is larger than %d bytes", maxConfigBytes)
	}
	return text, nil
}

// refusal says what a kubelet that does not answer wants.
func refusal(code int, text []byte) error {
	said := strings.TrimSpace(strings.ToValidUTF8(string(text[:min(len(text), 200)]), ""))
	if code == http.StatusForbidden || code == http.StatusUnauthorized {
		return fmt.Errorf(
			"it answered %d (%s): the agent's account needs the right get on nodes/configz, which kubelets know "+
				"from 1.33 on; for an older one give its settings by --kubelet", code, said)
	}
	return fmt.Errorf("it answered %d (%s)", code, said)
}

// bare drops the URL that the caller names.
func bare(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}

// clientFor keeps one connection to an endpoint.
func (c *Client) clientFor(at Endpoint) (*http.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.http != nil && c.at == at {
		return c.http, nil
	}
	v := verifier{root: c.root, roots: c.roots, node: c.node, host: at.Host}
	config := c.tls.Clone()
	config.RootCAs, config.ServerName = nil, at.Host
	// A kubelet's own certificate has no authority and does not name its address, which is why verify and not the
	// library decides. It is asked on every connection, resumed ones too.
	//nolint:gosec // VerifyConnection below refuses what neither a pin nor the authority vouch for
	config.InsecureSkipVerify = true
	config.VerifyConnection = v.verify
	transport, err := rest.HTTPWrappersForConfig(c.auth, &http.Transport{
		TLSClientConfig: config, MaxIdleConns: 1, IdleConnTimeout: 2 * time.Minute, TLSHandshakeTimeout: askLimit,
	})
	if err != nil {
		return nil, err
	}
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
	c.at = at
	c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("it sent the agent elsewhere: the agent's token goes nowhere else")
	}}
	return c.http, nil
}
