package kubeletapi_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/testkit"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	return sign(t, x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}, nil)
}

// sign creates a certificate; it is self-signed without an authority.
func sign(t *testing.T, template x509.Certificate, issuer *authority) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Check(t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	parent, signer := &template, key
	if issuer != nil {
		parent, signer = issuer.cert, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, parent, &key.PublicKey, signer)
	testkit.Check(t, err)
	cert, err := x509.ParseCertificate(der)
	testkit.Check(t, err)
	return authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// named is the template of a serving certificate.
func named(common string, hosts ...string) x509.Certificate {
	c := x509.Certificate{Subject: pkix.Name{CommonName: common}}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	return c
}

// kubelet serves over TLS and counts the tokens that it sees.
type kubelet struct {
	*httptest.Server
	tokens atomic.Int32
	conns  atomic.Int32
	answer http.HandlerFunc
}

func serve(t *testing.T, cert authority, answer http.HandlerFunc) *kubelet {
	t.Helper()
	k := &kubelet{answer: answer}
	k.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer secret" {
			k.tokens.Add(1)
		}
		if r.URL.Path != "/configz" || r.Method != http.MethodGet {
			http.Error(w, "no", http.StatusNotFound)
			return
		}
		k.answer(w, r)
	}))
	k.Config.ErrorLog = log.New(io.Discard, "", 0)
	k.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			k.conns.Add(1)
		}
	}
	k.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.cert.Raw}, PrivateKey: cert.key}}}
	k.StartTLS()
	t.Cleanup(k.Close)
	return k
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
}

// machine is a Root with certificate files.
func machine(t *testing.T, files map[string][]byte) host.Root {
	t.Helper()
	root := host.Root{Dir: testkit.Dir(t)}
	testkit.Check(t, os.MkdirAll(root.Path("var/lib/kubelet/pki"), 0o755))
	for name, text := range files {
		testkit.Check(t, os.WriteFile(root.Path("var/lib/kubelet/pki", name), text, 0o600))
	}
	return root
}

func node(url string) *corev1.Node {
	host, port, _ := strings.Cut(strings.TrimPrefix(url, "https://"), ":")
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}}
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "elsewhere"},
		{Type: corev1.NodeInternalIP, Address: host},
	}
	fmt.Sscan(port, &n.Status.DaemonEndpoints.KubeletEndpoint.Port)
	return n
}

func client(t *testing.T, root host.Root, ca []byte, endpoint string) *kubeletapi.Client {
	t.Helper()
	c, err := kubeletapi.NewClient(kubeletapi.ClientOptions{
		Node: "n0", Root: root, Endpoint: endpoint,
		API: &rest.Config{
			Host: "https://api", BearerToken: "secret",
			TLSClientConfig: rest.TLSClientConfig{CAData: ca},
		},
	})
	testkit.Check(t, err)
	return c
}

// TestTheTokenGoesToTheNodesKubeletAlone: whoever serves without a certificate that the machine's files or the
// cluster's authority vouch for gets no request at all.
func TestTheTokenGoesToTheNodesKubeletAlone(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	own := sign(t, named("n0@1700000000", "n0"), nil)
	outdated := named("n0@1500000000", "n0")
	outdated.NotBefore, outdated.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	old := sign(t, outdated, nil)
	tests := map[string]struct {
		serves  authority
		files   map[string][]byte
		ca      []byte
		trusted bool
	}{
		"a certificate of its own, which the machine has": {
			own,
			map[string][]byte{"kubelet.crt": own.pem},
			ca.pem, true,
		},
		"… beside others, and a key": {
			own,
			map[string][]byte{"kubelet.crt": append(
				append([]byte("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"), ca.pem...),
				own.pem...)},
			ca.pem, true,
		},
		"… in the file of the certificate that it was issued": {
			own,
			map[string][]byte{"kubelet-server-current.pem": own.pem},
			nil, true,
		},
		"… and that has run out": {
			old,
			map[string][]byte{"kubelet.crt": old.pem},
			ca.pem, true,
		},
		"a certificate of its own, which the machine does not have": {
			own,
			map[string][]byte{"kubelet.crt": ca.pem},
			ca.pem, false,
		},
		"… where the machine has none": {own, nil, ca.pem, false},
		"… where the machine's file is torn": {
			own,
			map[string][]byte{"kubelet.crt": own.pem[:len(own.pem)/2]},
			ca.pem, false,
		},
		"the cluster's, for the node's user": {
			sign(t, named("system:node:n0", "10.0.0.9"), &ca),
			nil, ca.pem, true,
		},
		"the cluster's, for the node's name": {
			sign(t, named("x", "n0"), &ca), nil, ca.pem,
			true,
		},
		"the cluster's, for the node's address": {
			sign(t, named("x", "127.0.0.1"), &ca), nil,
			ca.pem, true,
		},
		"the cluster's, for another node": {
			sign(t, named("system:node:n1", "n1"), &ca), nil,
			ca.pem, false,
		},
		"another cluster's": {sign(t,
			named("system:node:n0", "n0", "127.0.0.1"), &other), nil, ca.pem, false},
		"the cluster's, where no authority is known": {
			sign(t, named("system:node:n0"), &ca), nil, nil,
			false,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := serve(t, tt.serves, says(answer))
			c, err := client(t, machine(t, tt.files), tt.ca, "").Config(t.Context(), node(k.URL))
			if tt.trusted {
				if err != nil || c.Kubelet.CPU.Policy != "static" || k.tokens.Load() != 1 {
					t.Errorf("Config = %v, %v with %d tokens; want the settings for one", c.Kubelet.CPU.Policy, err,
						k.tokens.Load())
				}
				return
			}
			if !errors.Is(err, kubeletapi.ErrUntrusted) || k.tokens.Load() != 0 {
				t.Errorf("Config = %v with %d tokens sent, want ErrUntrusted and none", err, k.tokens.Load())
			}
		})
	}
}

// TestACertificateThatIsRenewedIsTakenUp: the link that the kubelet moves is absolute, and below a Root leads
// elsewhere.
func TestACertificateThatIsRenewedIsTakenUp(t *testing.T) {
	t.Parallel()
	first, second := sign(t, named("n0", "n0"), nil), sign(t, named("n0", "n0"), nil)
	root := machine(t, map[string][]byte{"kubelet-server-1.pem": first.pem, "kubelet-server-2.pem": second.pem})
	link := root.Path("var/lib/kubelet/pki/kubelet-server-current.pem")
	testkit.Check(t, os.Symlink("/var/lib/kubelet/pki/kubelet-server-1.pem", link))
	c := client(t, root, nil, "")
	if _, err := c.Config(t.Context(), node(serve(t, first, says(answer)).URL)); err != nil {
		t.Fatal(err)
	}
	renewed := node(serve(t, second, says(answer)).URL)
	if _, err := c.Config(t.Context(), renewed); !errors.Is(err, kubeletapi.ErrUntrusted) {
		t.Errorf("before the link moved: %v, want ErrUntrusted", err)
	}
	testkit.Check(t, os.Remove(link))
	testkit.Check(t, os.Symlink("/var/lib/kubelet/pki/kubelet-server-2.pem", link))
	if _, err := c.Config(t.Context(), renewed); err != nil {
		t.Errorf("after the link moved: %v", err)
	}
}

func TestAnUnexpectedAnswerIsReported(t *testing.T) {
	t.Parallel()
	own := sign(t, named("n0", "n0"), nil)
	root := machine(t, map[string][]byte{"kubelet.crt": own.pem})
	elsewhere := serve(t, own, says(answer))
	tests := map[string]struct {
		answer http.HandlerFunc
		says   string
	}{
		"forbidden": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "Forbidden (user=x)", http.StatusForbidden)
		}, "get on nodes/configz"},
		"no such path": {func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) }, "answered 404"},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+"/configz", http.StatusFound)
		}, "goes nowhere else"},
		"too much": {
			func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat(" ", 5<<20)) },
			"larger than",
		},
		"half": {says(answer[:100]), "unexpected end"},
		"cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, "{")
			panic(http.ErrAbortHandler)
		}, "EOF"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := serve(t, own, tt.answer)
			_, err := client(t, root, nil, "").Config(t.Context(), node(k.URL))
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Config = %v, want an error that says %q", err, tt.says)
			}
		})
	}
	t.Cleanup(func() {
		if n := elsewhere.tokens.Load(); n != 0 {
			t.Errorf("%d tokens went to where the kubelet pointed", n)
		}
	})
}

func TestOneConnectionServesManyQuestions(t *testing.T) {
	t.Parallel()
	own := sign(t, named("n0", "n0"), nil)
	k := serve(t, own, says(answer))
	c := client(t, machine(t, map[string][]byte{"kubelet.crt": own.pem}), nil, k.URL)
	for range 5 {
		if _, err := c.Config(t.Context(), &corev1.Node{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := k.conns.Load(); n != 1 {
		t.Errorf("%d connections for five questions, want 1", n)
	}
}

func TestANodeWithoutAnAddressIsReported(t *testing.T) {
	t.Parallel()
	if _, err := client(t, machine(t, nil), nil, "").Config(t.Context(), &corev1.Node{}); err == nil ||
		!strings.Contains(err.Error(), "InternalIP") {
		t.Errorf("Config = %v, want an error that names what the Node lacks", err)
	}
}

func TestEndpointsThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"http://127.0.0.1:10250":          "over TLS alone",
		"127.0.0.1:10250":                 "want https://HOST:PORT",
		"https://127.0.0.1":               "has no port",
		"https://:10250":                  "has no host",
		"https://127.0.0.1:0":             "has no port",
		"https://127.0.0.1:70000":         "has no port",
		"https://u:p@127.0.0.1:10250":     "more than a host and a port",
		"https://127.0.0.1:10250/configz": "more than a host and a port",
		"https://127.0.0.1:10250?x=1":     "more than a host and a port",
		"https://[::1:10250":              "is not a URL",
	} {
		if e, err := kubeletapi.ParseEndpoint(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("ParseEndpoint(%q) = %v, %v, want an error that says %q", text, e, err, says)
		}
	}
	for text, want := range map[string]string{
		"https://127.0.0.1:10250": "https://127.0.0.1:10250", "https://[::1]:10250/": "https://[::1]:10250",
		"https://n0:1": "https://n0:1",
	} {
		if e, err := kubeletapi.ParseEndpoint(text); err != nil || e != want {
			t.Errorf("ParseEndpoint(%q) = %v, %v, want %s", text, e, err, want)
		}
	}
}

func TestAPIConfigurationsThatCannotBeReadAreRefused(t *testing.T) {
	t.Parallel()
	_, err := kubeletapi.NewClient(kubeletapi.ClientOptions{
		Node: "n0", Root: machine(t, nil),
		API: &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(t.TempDir(), "none")}},
	})
	if err == nil {
		t.Error("an authority that is not there was taken")
	}
}
