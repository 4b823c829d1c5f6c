package kubeletapi

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// Endpoint is where a kubelet serves: https, a host and a port.
type Endpoint struct{ Host, Port string }

// String returns the URL.
func (e Endpoint) String() string {
	if e.Host == "" {
		return ""
	}
	return "https://" + net.JoinHostPort(e.Host, e.Port)
}

// ParseEndpoint reads a URL like https://10.0.0.7:10250. Anything but scheme, host and port is refused: a token goes
// there.
func ParseEndpoint(text string) (Endpoint, error) {
	refuse := func(why string) (Endpoint, error) {
		return Endpoint{},
			fmt.Errorf("kubelet endpoint %q: %s: want https://HOST:PORT, such as https://127.0.0.1:10250", text, why)
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
	return Endpoint{u.Hostname(), u.Port()}, nil
}

// errNoEndpoint is answered for a Node that does not say where its kubelet serves.
var errNoEndpoint = errors.New("the Node's status has no InternalIP, or no daemonEndpoints.kubeletEndpoint.Port")

// endpointOf returns where the Node says that its kubelet serves.
func endpointOf(node *corev1.Node) (Endpoint, error) {
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP && a.Address != "" && port > 0 {
			return Endpoint{a.Address, strconv.Itoa(int(port))}, nil
		}
	}
	return Endpoint{}, errNoEndpoint
}
