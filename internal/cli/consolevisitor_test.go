package cli

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/internal/console"
	"github.com/tenon-project/tenon/internal/testkit"
)

// vouching is an API server that knows three tokens: reader may read everything, guest nothing, and lost expires after
// it was shown once.
func vouching(t *testing.T, next http.Handler) *httptest.Server {
	t.Helper()
	var shown atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		refuse := func(code int32, reason metav1.StatusReason) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(int(code))
			_ = json.NewEncoder(w).Encode(metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: reason,
				Code: code, Message: "user " + name + " is refused",
			})
		}
		known := slices.Contains([]string{"reader", "guest", "unnamed", "lost"}, name)
		switch {
		case !known, name == "lost" && shown.Add(1) > 1:
			refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
		case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
			self := authenticationv1.SelfSubjectReview{
				TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
			}
			if self.Status.UserInfo.Username = name; name == "unnamed" {
				self.Status.UserInfo.Username = anonymous
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(self)
		case name != "reader":
			refuse(http.StatusForbidden, metav1.StatusReasonForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// Whatever the console may do itself, a visitor sees what the API server lets the bearer of his token see: neither
// credentials nor the address of a scheduler that asks for none are taken from where the console was started.
func TestVisitorsOfTheConsoleReadWithTheirTokensAlone(t *testing.T) {
	nodes, pods, topologies := example(t)
	blocked, _ := waiting(t)
	api := vouching(t, apiServer(t, nodes, append(pods, blocked), topologies).Config.Handler)
	open := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the scheduler is asked without a token for %s", r.URL)
	}))
	t.Cleanup(open.Close)
	t.Setenv("KUBECONFIG", kubeconfig(t, api.URL, open.URL))
	v := visitors{&rest.Config{
		Host: api.URL, BearerToken: "reader", Username: "reader", Password: "reader",
		Impersonate: rest.ImpersonationConfig{UserName: "reader"},
	}, doctors}
	for _, token := range []string{"", "wrong", "unnamed", "reader\nx", "READER"} {
		_, err := v.signIn(t.Context(), token)
		if refused := (*console.Refusal)(nil); token != "reader\nx" &&
			(!errors.As(err, &refused) || refused.Status != http.StatusUnauthorized) || err == nil {
			t.Errorf("token %q: got %v, want it refused", token, err)
		}
	}
	reader, err := v.signIn(t.Context(), "reader")
	testkit.Check(t, err)
	guest, err := v.signIn(t.Context(), "guest")
	testkit.Check(t, err)
	for _, topic := range []string{"pending", "nodes", "gpus", "node/epyc", "pod/default/lse"} {
		if answer, err := reader.Read(t.Context(), topic); err != nil || len(answer.JSON) == 0 {
			t.Errorf("reader, %s: got %q, %v", topic, answer.JSON, err)
		}
	}
	for _, topic := range []string{
		"pending", "nodes", "gpus", "node/epyc", "pod/default/lse", "decisions", "quotas",
		"modes", "evictions", "evicted", "reservations",
	} {
		if answer, err := guest.Read(t.Context(), topic); err == nil || len(answer.JSON) > 0 ||
			!strings.Contains(err.Error(), "user guest is refused") {
			t.Errorf("guest, %s: got %q, %v", topic, answer.JSON, err)
		}
	}
	if answer, err := guest.WhatIf(t.Context(), []byte(`{"ask":{"pods":["default/lse"]}}`)); err == nil {
		t.Errorf("guest is answered %s", answer)
	}
	if _, err := v.signIn(t.Context(), "lost"); err != nil {
		t.Errorf("lost: %v", err)
	}
	if _, err := v.signIn(t.Context(), "lost"); err == nil {
		t.Error("a token that has expired is taken once more")
	}
	api.Close()
	_, err = v.signIn(t.Context(), "reader")
	if refused := (*console.Refusal)(nil); err == nil || errors.As(err, &refused) {
		t.Errorf("without the API server: got %v, want an error that does not blame the token", err)
	}
}

func TestAConsoleForOtherMachinesNeedsACertificate(t *testing.T) {
	nodes, _, topologies := example(t)
	path := kubeconfig(t, apiServer(t, nodes, []corev1.Pod{}, topologies).URL)
	for args, want := range map[string]string{
		"--listen 0.0.0.0:0":                             "use a loopback address",
		"--tls-cert-file a":                              "belong together",
		"--tls-private-key-file a":                       "belong together",
		"--allowed-hosts tenon.example":                  "--allowed-hosts tenon.example is not allowed without",
		"--tls-cert-file none --tls-private-key-file no": "read the certificate of the console: open none",
	} {
		words := append([]string{"console", "--kubeconfig", path}, strings.Fields(args)...)
		code, _, errOut := run(t, "tenon", words...)
		if code == 0 || !strings.Contains(errOut, want) {
			t.Errorf("%s: got %d %q, want %q", args, code, errOut, want)
		}
	}
}
