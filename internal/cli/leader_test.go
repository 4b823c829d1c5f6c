package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/testkit"
)

// authority returns a certificate for the scheduler that signs itself, and its text.
func authority(t *testing.T, life time.Duration) (served tls.Certificate, text string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
		DNSNames: []string{"tenon-scheduler.tenon-system.svc"}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	testkit.Check(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// forbid answers as an API server that lacks a role binding.
func forbid(w http.ResponseWriter, resource string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,` +
		`"message":"` + resource + ` is forbidden"}`))
}

// TestTheLeaderIsAskedThroughItsPod with the user's credentials, and only once its certificate is known to be the
// installation's.
func TestTheLeaderIsAskedThroughItsPod(t *testing.T) {
	served, trusted := authority(t, time.Hour)
	_, foreign := authority(t, time.Hour)
	nodes, pods, topologies := example(t)
	train, answer := waiting(t)
	pods = append(pods, train)
	for name, c := range map[string]struct {
		authority string // "" forbids to read it
		lease     string // the holder; "" for none, "forbidden" one that may not be read
		refusal   string // of the scheduler's first answer
		status    int
		args      []string
		asked     int32
		want      string
	}{
		"it answers": {authority: trusted, lease: "tenon-scheduler-0_x", asked: 1, want: "snapshot 4211"},
		"another one leads by now": {
			authority: trusted, lease: "tenon-scheduler-0_x", status: http.StatusServiceUnavailable,
			refusal: "the instance is not leader", asked: 2, want: "snapshot 4211",
		},
		"the user lacks a right": {
			authority: trusted, lease: "tenon-scheduler-0_x", status: http.StatusForbidden, asked: 1,
			refusal: "pods cannot be read: get on pods is missing",
			want: "warning: error from the scheduler: pods cannot be read: get on pods is missing; this is " +
				"what the objects",
		},
		"it points elsewhere": {
			authority: trusted, lease: "tenon-scheduler-0_x", status: http.StatusTemporaryRedirect, asked: 1,
			want: "warning: error from the scheduler: ",
		},
		"its certificate is another authority's": {
			authority: foreign, lease: "tenon-scheduler-0_x", want: "certificate signed by unknown authority",
		},
		"no authority is published": {
			authority: "none", lease: "tenon-scheduler-0_x", want: "the scheduler is shown no credentials",
		},
		"the authority may not be read": {
			lease: "tenon-scheduler-0_x", want: "get on configmaps of namespace tenon-system is missing",
		},
		"the lease may not be read": {
			authority: trusted, lease: "forbidden", want: "get on leases of namespace tenon-system is missing",
		},
		"no scheduler is installed": {authority: trusted, want: "note          no scheduler was asked"},
		"the lease has no holder":   {authority: trusted, lease: "_", want: "no scheduler leads"},
		"in the name of another user": {
			authority: trusted, lease: "tenon-scheduler-0_x", args: []string{"--as", "guest"},
			want: "does not support impersonation: remove --as",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			scheduler := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Authorization"); got != "Bearer mine" {
					t.Errorf("the scheduler is shown %q", got)
				}
				if asked.Add(1) == 1 && c.status != 0 {
					w.Header().Set("Location", "/elsewhere")
					w.WriteHeader(c.status)
					_, _ = w.Write([]byte(`{"message":"` + c.refusal + `"}`))
					return
				}
				if err := json.NewEncoder(w).Encode(answer); err != nil {
					t.Error(err)
				}
			}))
			scheduler.TLS = &tls.Config{Certificates: []tls.Certificate{served}, MinVersion: tls.VersionTLS12}
			scheduler.StartTLS()
			t.Cleanup(scheduler.Close)
			api := forwarding(t, pods, topologies, nodes, scheduler.Listener.Addr().String())
			mux := http.NewServeMux()
			mux.Handle("/", api.Config.Handler)
			mux.HandleFunc("GET /apis/coordination.k8s.io/v1/namespaces/tenon-system/leases/tenon-scheduler",
				func(w http.ResponseWriter, r *http.Request) {
					switch c.lease {
					case "":
						http.NotFound(w, r)
					case "forbidden":
						forbid(w, "leases")
					default:
						w.Header().Set("Content-Type", "application/json")
						_ = json.NewEncoder(w).Encode(coordinationv1.Lease{
							TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
							Spec:     coordinationv1.LeaseSpec{HolderIdentity: &c.lease},
						})
					}
				})
			mux.HandleFunc("GET /api/v1/namespaces/tenon-system/configmaps/tenon-ca",
				func(w http.ResponseWriter, _ *http.Request) {
					if c.authority == "" {
						forbid(w, "configmaps")
						return
					}
					w.Header().Set("Content-Type", "application/json")
					_ = json.NewEncoder(w).Encode(corev1.ConfigMap{
						TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
						Data:     map[string]string{"ca.crt": c.authority},
					})
				})
			front := httptest.NewTLSServer(mux) // without TLS no credentials are sent
			t.Cleanup(front.Close)
			code, out, errOut := run(t, "tenon", append([]string{
				"explain", "train", "--token", "mine", "--kubeconfig", kubeconfig(t, front.URL),
			}, c.args...)...)
			if code != ExitOK || !strings.Contains(out+errOut, c.want) {
				t.Errorf("exit code %d, want %q in\n%s%s", code, c.want, out, errOut)
			}
			if got := asked.Load(); got != c.asked {
				t.Errorf("the scheduler was asked %d times, want %d", got, c.asked)
			}
		})
	}
}

// An error names the component that it comes from, and no other one that passed it on.
func TestAnErrorNamesItsComponentOnce(t *testing.T) {
	t.Parallel()
	for text, e := range map[string]refusedError{
		"error from the descheduler: not allowed": {"the descheduler", http.StatusForbidden, "not allowed"},
		"error from the scheduler: no snapshot": {
			"the descheduler", http.StatusBadGateway, "error from the scheduler: no snapshot",
		},
		"pod default/web does not exist": {
			"the scheduler", http.StatusBadRequest, "ask.pods[0]: pod default/web does not exist",
		},
	} {
		if got := e.Error(); got != text {
			t.Errorf("%+v: got %q, want %q", e, got, text)
		}
	}
}
