package kubeletapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
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

// Client asks the kubelet of one node for its settings. It is safe for concurrent use.
type Client struct {
	o    ClientOptions
	tls  *tls.Config // with the cluster's authority, if any, and client certificates, if any
	auth *rest.Config

	mu   sync.Mutex // guards the fields below
	at   string
	http *http.Client
}

// NewClient returns a Client. It refuses an endpoint that is none and a configuration whose files cannot be read.
func NewClient(o ClientOptions) (*Client, error) {
	c := &Client{o: o, auth: rest.CopyConfig(o.API)}
	var err error
	if o.Endpoint != "" {
		if c.o.Endpoint, err = ParseEndpoint(o.Endpoint); err != nil {
			return nil, err
		}
	}
	c.auth.Insecure, c.auth.ServerName = false, ""
	if c.tls, err = rest.TLSConfigFor(c.auth); err != nil {
		return nil, fmt.Errorf("configure the kubelet's client: %w", err)
	}
	if c.tls == nil {
		c.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return c, nil
}

// ParseEndpoint reads a URL like https://10.0.0.7:10250. Anything but scheme, host and port is refused: a token goes
// there.
func ParseEndpoint(text string) (string, error) {
	refuse := func(why string) (string, error) {
		return "", fmt.Errorf("kubelet endpoint %q: %s: want https://HOST:PORT, such as https://127.0.0.1:10250", text,
			why)
	}
	u, err := url.Parse(text)
	if err != nil {
		return refuse("is not a URL")
	}
	switch {
	case u.Scheme != "https":
		return refuse("the agent's token goes over TLS alone")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/":
		return refuse("has more than a host and a port")
	case u.Hostname() == "":
		return refuse("has no host")
	}
	if n, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || n == 0 {
		return refuse("has no port")
	}
	return "https://" + u.Host, nil
}

// errNoEndpoint is answered for a Node that does not say where its kubelet serves.
var errNoEndpoint = errors.New("the Node's status has no InternalIP, or no daemonEndpoints.kubeletEndpoint.Port")

// endpointOf returns where the Node says that its kubelet serves.
func endpointOf(node *corev1.Node) (string, error) {
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP && a.Address != "" && port > 0 {
			return "https://" + net.JoinHostPort(a.Address, strconv.Itoa(int(port))), nil
		}
	}
	return "", errNoEndpoint
}

// Config asks for the settings in force. node is the API's object, for its address. The error is ErrUntrusted, or says
// what the kubelet answered.
func (c *Client) Config(ctx context.Context, node *corev1.Node) (Config, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	at := c.o.Endpoint
	if at == "" {
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

func (c *Client) get(ctx context.Context, at string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/configz", http.NoBody)
	if err != nil {
		return nil, err
	}
	client, err := c.clientFor(at, request.URL.Hostname())
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // the caller names the URL
	}
	if err != nil {
		return nil, err
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

// clientFor keeps one connection to an endpoint.
func (c *Client) clientFor(at, host string) (*http.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.http != nil && c.at == at {
		return c.http, nil
	}
	v := verifier{root: c.o.Root, roots: c.tls.RootCAs, node: c.o.Node, host: host}
	config := c.tls.Clone()
	config.RootCAs, config.ServerName = nil, host
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
