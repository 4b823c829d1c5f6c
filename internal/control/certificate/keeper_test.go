package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tenon-project/tenon/internal/testkit"
)

func TestTheFirstPassesMakeAndPublishCertificates(t *testing.T) {
	t.Parallel()
	s, k, _ := settled(t)
	c, err := k.GetCertificate(nil)
	testkit.Check(t, err)
	for where, bundle := range s.bundles() {
		if n := len(parse(*bundle)); n != 1 {
			t.Errorf("%s has %d authorities, want 1", where, n)
		}
	}
	elsewhere := s.objects["validatingwebhookconfigurations"].(*admissionregistrationv1.ValidatingWebhookConfiguration)
	if got := elsewhere.Webhooks[1].ClientConfig.CABundle; got != nil {
		t.Errorf("a webhook that names no Service has the authority %q", got)
	}
	secret := s.objects["secrets"].(*corev1.Secret)
	for key := range secret.Data {
		if strings.HasPrefix(key, "next.") || key == "ca.key" {
			t.Errorf("the Secret has %s", key)
		}
	}
	if hour := time.Date(2029, 12, 31, 23, 0, 0, 0, time.UTC); !c.Leaf.NotBefore.Equal(hour) {
		t.Errorf("valid from %s, want an hour before it was made", c.Leaf.NotBefore)
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		after       time.Duration
		request     string
		rotated     bool
		authorities int
		failure     string
	}{
		"not before two thirds of their life": {after: 59 * day, authorities: 1},
		"at two thirds of their life":         {after: 60 * day, rotated: true, authorities: 2},
		"the old authority until it expires":  {after: 91 * day, rotated: true, authorities: 1},
		"at once when asked to":               {request: rotateNow, rotated: true, authorities: 2},
		"and the old authority dropped":       {request: rotateReplace, rotated: true, authorities: 1},
		"a request that does not exist": {
			request: "later", authorities: 1,
			failure: `tenon.sh/rotate-certificates: "later" is not allowed: use "now" or "replace"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, k, now := settled(t)
			before := k.served.Load()
			*now = now.Add(tt.after)
			if tt.request != "" {
				s.rotate(tt.request)
			}
			var failure string
			for range 10 { // a server may be refused for a moment where its authority is dropped
				if _, err := k.pass(t.Context()); err != nil {
					failure = err.Error()
				}
			}
			if failure != tt.failure {
				t.Errorf("pass = %q, want %q", failure, tt.failure)
			}
			if rotated := k.served.Load() != before; rotated != tt.rotated {
				t.Errorf("rotated: %t, want %t", rotated, tt.rotated)
			}
			current := s.state(*now)
			if len(current.authorities) != tt.authorities || current.rotate != "" {
				t.Errorf(
					"%d authorities, want %d; annotation %q",
					len(current.authorities),
					tt.authorities,
					current.rotate,
				)
			}
			if refusal := s.refusal(k.served.Load(), *now); refusal != "" {
				t.Error(refusal)
			}
		})
	}
}

func TestRequestsWithoutEndAddNoAuthoritiesWithoutEnd(t *testing.T) {
	t.Parallel()
	s, k, now := settled(t)
	var failed error
	for range 2 * mostAuthorities {
		s.rotate(rotateNow)
		for range 5 {
			if _, err := k.pass(t.Context()); err != nil {
				failed = err
			}
		}
	}
	if n := len(s.state(*now).authorities); n != mostAuthorities {
		t.Errorf("%d authorities, want %d", n, mostAuthorities)
	}
	const want = `tenon.sh/rotate-certificates: 8 authorities are valid, at most 8 may be: ` +
		`use "replace" to drop the earlier ones`
	if failed == nil || failed.Error() != want {
		t.Errorf("pass = %v, want %s", failed, want)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	except := func(resource string) func(string) bool {
		return func(r string) bool { return r != resource }
	}
	for name, tt := range map[string]struct {
		fault   func(*server)
		failure string
		rotated bool
	}{
		"the Secret is deleted": {
			fault:   func(s *server) { delete(s.objects, "secrets") },
			rotated: true,
		},
		"the Secret is empty": {
			fault:   func(s *server) { s.edit(func(secret *corev1.Secret) { secret.Data = nil }) },
			rotated: true,
		},
		"garbage for a key": {
			fault: func(s *server) {
				s.edit(func(secret *corev1.Secret) { secret.Data["manager.key"] = []byte("garbage") })
			},
			rotated: true,
		},
		"garbage for authorities": {
			fault: func(s *server) {
				s.edit(func(secret *corev1.Secret) { secret.Data["ca.crt"] = []byte("garbage") })
			},
			rotated: true,
		},
		"the Secret is that of another program": {
			fault: func(s *server) {
				s.edit(func(secret *corev1.Secret) { secret.Data = map[string][]byte{"tls.crt": nil} })
			},
			failure: `write Secret ns/certificates: it has tls.crt, which is not the manager's: name another one`,
		},
		"an upgrade empties caBundle":   {fault: (*server).upgrade},
		"the ConfigMap is deleted":      {fault: func(s *server) { delete(s.objects, "configmaps") }},
		"garbage where it is published": {fault: func(s *server) { *s.bundles()["mutating 1"] = []byte("garbage") }},
		"the Secret may not be written, and caBundle is empty": {
			fault: func(s *server) {
				s.rotate(rotateNow)
				s.upgrade()
				s.mayWrite = except("secrets")
			},
			failure: `write Secret ns/certificates: secrets is forbidden: no such right`,
		},
		"no Secret, and none may be created": {
			fault: func(s *server) {
				delete(s.objects, "secrets")
				s.mayWrite = except("secrets")
			},
			failure: `write Secret ns/certificates: secrets is forbidden: no such right`,
		},
		"a webhook configuration may not be written": {
			fault: func(s *server) {
				s.rotate(rotateNow)
				s.mayWrite = except("validatingwebhookconfigurations")
			},
			failure: `publish the authorities in ValidatingWebhookConfiguration tenon: ` +
				`validatingwebhookconfigurations.admissionregistration.k8s.io is forbidden: no such right`,
		},
		"a webhook configuration may not be read": {
			fault: func(s *server) {
				s.rotate(rotateNow)
				s.mayRead = except("mutatingwebhookconfigurations")
			},
			failure: `mutatingwebhookconfigurations.admissionregistration.k8s.io is forbidden: no such right`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, k, _ := settled(t)
			before := k.served.Load()
			tt.fault(s)
			err := s.syncUntilStable(t, k)
			if failure := errorText(err); failure != tt.failure {
				t.Errorf("pass = %q, want %q", failure, tt.failure)
			}
			if rotated := k.served.Load() != before; rotated != tt.rotated {
				t.Errorf("rotated: %t, want %t", rotated, tt.rotated)
			}
			for where, bundle := range s.bundles() {
				if len(*bundle) == 0 {
					t.Errorf("%s is empty", where)
				}
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestAReplicaWithoutRightsServesNothing and says where to look.
func TestAReplicaWithoutRightsServesNothing(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.mayWrite = func(resource string) bool { return !strings.HasPrefix(resource, "validating") }
	k := NewKeeper(Options{
		Client:    s.client(func(string, string) error { return nil }),
		Namespace: "ns", Secret: "certificates", Now: time.Now,
	})
	if err := s.syncUntilStable(t, k); err == nil {
		t.Error("no error")
	}
	const want = "no certificate yet: Secret ns/certificates and the manager's log say why"
	if _, err := k.GetCertificate(nil); errorText(err) != want {
		t.Errorf("GetCertificate = %v, want %s", err, want)
	}
}

// TestAReplicaServesThoughItMayReadTheSecretAlone, as one that has just started.
func TestAReplicaServesThoughItMayReadTheSecretAlone(t *testing.T) {
	t.Parallel()
	s, first, _ := settled(t)
	s.mayRead = func(resource string) bool { return resource == "secrets" }
	k := NewKeeper(first.o)
	if err := s.syncUntilStable(t, k); err == nil {
		t.Error("no error")
	}
	if served := k.served.Load(); served == nil || !served.Leaf.Equal(first.served.Load().Leaf) {
		t.Errorf("serves %v, want what the first one serves", served)
	}
}

// TestACertificateIsReplacedWithoutARestart, and a client that trusts the ConfigMap sees no difference.
func TestACertificateIsReplacedWithoutARestart(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	client := fake.NewClientset()
	k := NewKeeper(Options{Client: client, Namespace: "ns", Secret: "certificates", Now: time.Now})
	done := make(chan error, 1)
	go func() { done <- k.Start(ctx) }()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: k.GetCertificate})
	testkit.Check(t, err)
	server := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()

	serial := func() string {
		shown, err := client.CoreV1().ConfigMaps("ns").Get(ctx, configMap, metav1.GetOptions{})
		if err != nil {
			return ""
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(shown.Data[bundleKey]))
		conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{
			RootCAs: roots, ServerName: "tenon-manager.ns.svc", MinVersion: tls.VersionTLS12,
		})
		if err != nil {
			return ""
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	await := func(what string, isSo func() bool) {
		t.Helper()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for late := time.After(time.Minute); !isSo(); {
			select {
			case <-tick.C:
			case <-late:
				t.Fatal(what)
			}
		}
	}
	await("no certificate is served", func() bool { return serial() != "" })
	first := serial()
	secret, err := client.CoreV1().Secrets("ns").Get(ctx, "certificates", metav1.GetOptions{})
	testkit.Check(t, err)
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, "tenon.sh/rotate-certificates", rotateNow)
	if _, err := client.CoreV1().Secrets("ns").Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for more := true; more; { // as Start does a few seconds later
		if more, err = k.pass(ctx); err != nil {
			t.Fatal(err)
		}
	}
	await("the same certificate is served after a request", func() bool { s := serial(); return s != "" && s != first })
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTheClockIsThatOfTheAPIServer(t *testing.T) {
	t.Parallel()
	date := "Tue, 01 Jan 2030 00:00:00 GMT"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", date)
	}))
	defer server.Close()
	var clock Clock
	ask := func() {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
		testkit.Check(t, err)
		resp, err := clock.Wrap(http.DefaultTransport).RoundTrip(r)
		testkit.Check(t, err)
		resp.Body.Close()
	}
	if ask(); clock.Now().UTC().Year() != 2030 {
		t.Errorf("the time is %s, the API server's is %s", clock.Now(), date)
	}
	date = "yesterday"
	if ask(); clock.Now().UTC().Year() != 2030 {
		t.Errorf("the time is %s after an answer without a date", clock.Now())
	}
	gone := &net.OpError{Op: "dial", Err: errors.New("gone")}
	_, err := clock.Wrap(roundTripper(func() error { return gone })).RoundTrip(nil)
	if !errors.Is(err, gone) {
		t.Errorf("RoundTrip = %v, want %v", err, gone)
	}
}

type roundTripper func() error

func (r roundTripper) RoundTrip(*http.Request) (*http.Response, error) { return nil, r() }

func TestDataIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	s, _, now := settled(t)
	current := s.state(*now)
	testkit.Check(t, current.issue(*now))
	read := decode(current.hosts, current.data(), "", *now)
	if !maps.EqualFunc(read.data(), current.data(), func(a, b []byte) bool { return string(a) == string(b) }) ||
		read.pending == nil || read.signer == nil {
		t.Errorf("read %v, written %v", read, current)
	}
}
