package app_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/internal/control/app"
	"github.com/tenon-project/tenon/internal/control/serving"
	"github.com/tenon-project/tenon/internal/testkit"
)

// certificate writes a certificate for 127.0.0.1 that signs itself.
func certificate(t *testing.T) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	testkit.Check(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	testkit.Check(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "webhook.crt"), filepath.Join(dir, "webhook.key")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for file, text := range map[string][]byte{
		certFile: certPEM,
		keyFile:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	} {
		testkit.Check(t, os.WriteFile(file, text, 0o600))
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	return certFile, keyFile, roots
}

// free is an address that was free a moment ago.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Check(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestRunServesUntilItsContextEnds(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	certFile, keyFile, roots := certificate(t)
	o := app.Options{
		Component: serving.Component{
			RESTConfig:    &rest.Config{Host: "https://127.0.0.1:1"}, // webhooks do not need the API server
			HealthAddress: free(t),
		},
		WebhookAddress: free(t), MetricsAddress: free(t),
		CertFile: certFile, KeyFile: keyFile, Quotas: app.DefaultQuotaOptions(),
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- app.Run(ctx, o) }()

	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs:    roots,
		MinVersion: tls.VersionTLS12,
	}, DisableKeepAlives: true}}
	await(t, client, "http://"+o.HealthAddress+"/healthz")
	await(t, client, "http://"+o.HealthAddress+"/readyz/webhooks")
	// Requests go to replicas that know pods, quotas and profiles: this one would refuse what they decide.
	if body := get(t, client, "http://"+o.HealthAddress+"/readyz"); !strings.Contains(body, "[-]objects failed") {
		t.Errorf("/readyz = %q", body)
	}
	// The metrics belong to the process: another server may have counted before.
	const refusals = `tenon_admission_answers_total{operation="CREATE",outcome="refused",webhook="validate-pod"} `
	before := counted(t, get(t, client, "http://"+o.MetricsAddress+"/metrics"), refusals)
	if text := get(t, client, "http://"+o.MetricsAddress+"/configz"); !strings.Contains(text, `"settings"`) {
		t.Errorf("/configz = %s", text)
	}
	for _, info := range []string{
		`tenon_build_info{component="tenon-manager",version="`,
		`tenon_config_info{component="tenon-manager",hash="` + o.Settings.Hash() + `"} 1`,
	} {
		if text := get(t, client, "http://"+o.MetricsAddress+"/metrics"); !strings.Contains(text, info) {
			t.Errorf("/metrics lacks %s", info)
		}
	}
	review := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u",` +
		`"operation":"CREATE",` +
		`"object":{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"koordinator.sh/qosClass":"LSR"}},` +
		`"spec":{"containers":[{"name":"c"}]}}}}`
	resp, err := client.Post("https://"+o.WebhookAddress+"/validate-pod", "application/json",
		bytes.NewBufferString(review))
	testkit.Check(t, err)
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if want := "LSR Pod must declare the requested CPUs"; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("answer %s, %v; want %q in it", text, err, want)
	}
	after := counted(t, get(t, client, "http://"+o.MetricsAddress+"/metrics"), refusals)
	if after != before+1 {
		t.Errorf("/metrics counts %d refusals after %d, want one more", after, before)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
}

// TestAManagerWithoutACertificateIsNotReady, and says in a metric that it has none.
func TestAManagerWithoutACertificateIsNotReady(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	o := app.Options{
		Component: serving.Component{
			RESTConfig: &rest.Config{Host: "https://127.0.0.1:1"}, HealthAddress: free(t), Namespace: "ns",
		},
		WebhookAddress: free(t), MetricsAddress: free(t), CertificateSecret: "certificates",
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- app.Run(ctx, o) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	await(t, client, "http://"+o.HealthAddress+"/healthz")
	await(t, client, "http://"+o.MetricsAddress+"/metrics")
	if body := get(t, client, "http://"+o.HealthAddress+"/readyz"); !strings.Contains(body, "[-]webhooks failed") {
		t.Errorf("/readyz = %q", body)
	}
	const none = "\ntenon_certificate_expiry_timestamp_seconds 0\n"
	if !strings.Contains(get(t, client, "http://"+o.MetricsAddress+"/metrics"), none) {
		t.Errorf("/metrics lacks %q", none)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
}

// counted is the value of a counter on a page of metrics, 0 where the page has none.
func counted(t *testing.T, page, series string) int {
	t.Helper()
	_, value, found := strings.Cut(page, series)
	if !found {
		return 0
	}
	value, _, _ = strings.Cut(value, "\n")
	n, err := strconv.Atoi(value)
	if err != nil {
		t.Fatalf("%s: %v", series, err)
	}
	return n
}

// await asks until the answer is 200.
func await(t *testing.T, client *http.Client, url string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		testkit.Check(t, err)
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("%s did not become ready", url)
		}
	}
}

func get(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	resp, err := client.Get(url)
	testkit.Check(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	testkit.Check(t, err)
	return string(body)
}

func TestRunRefusesBadOptions(t *testing.T) {
	t.Parallel()
	good := app.Options{
		Component:      serving.Component{RESTConfig: &rest.Config{}},
		WebhookAddress: "127.0.0.1:9443", CertFile: "/a/tls.crt",
		KeyFile: "/a/tls.key",
	}
	tests := map[string]struct {
		change func(*app.Options)
		want   string
	}{
		"no port": {
			func(o *app.Options) { o.WebhookAddress = "127.0.0.1" },
			"webhook address: address 127.0.0.1: missing port in address",
		},
		"a port that is none": {
			func(o *app.Options) { o.WebhookAddress = ":x" },
			`webhook address: ":x": the port must be 1…65535`,
		},
		"a port out of range": {
			func(o *app.Options) { o.WebhookAddress = ":70000" },
			`webhook address: ":70000": the port must be 1…65535`,
		},
		"no certificate": {
			func(o *app.Options) { o.CertFile = "" },
			"the webhooks need a certificate file and a key file in one folder",
		},
		"a key elsewhere": {
			func(o *app.Options) { o.KeyFile = "/b/tls.key" },
			"the webhooks need a certificate file and a key file in one folder",
		},
		"a Secret that cannot exist": {
			func(o *app.Options) { o.CertificateSecret, o.Namespace = "a/b", "ns" },
			`certificate secret: want the name of a Secret and the release's namespace, got "a/b" and "ns"`,
		},
		"a Secret without a namespace": {
			func(o *app.Options) { o.CertificateSecret = "certificates" },
			`certificate secret: want the name of a Secret and the release's namespace, got "certificates" and ""`,
		},
		"metrics without port": {
			func(o *app.Options) { o.MetricsAddress = "localhost" },
			"metrics address: address localhost: missing port in address",
		},
		"no kubeconfig there": {
			func(o *app.Options) { o.RESTConfig, o.Kubeconfig = nil, "/does/not/exist" },
			"find the API server: stat /does/not/exist: no such file or directory",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := good
			tt.change(&o)
			if err := app.Run(t.Context(), o); err == nil || err.Error() != tt.want {
				t.Errorf("Run = %v, want %s", err, tt.want)
			}
		})
	}
}

func TestCommandKeepsItsFlags(t *testing.T) {
	t.Parallel()
	cmd := app.NewCommand()
	for _, name := range []string{
		"kubeconfig", "webhook-address", "tls-cert-file", "tls-private-key-file",
		"metrics-address", "health-address", "scheduler-identities", "v", "elastic-quota-args", "leader-elect",
		"leader-elect-namespace", "certificate-secret",
	} {
		if cmd.Flags().Lookup(name) == nil {
			t.Errorf("no flag --%s", name)
		}
	}
}
