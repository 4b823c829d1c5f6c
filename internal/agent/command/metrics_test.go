package command

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tenon-project/tenon/internal/testkit"
)

// TestMetricsAreForThoseWhomTheAPIServerLetsReadThem, and it is asked once a minute for each token.
func TestMetricsAreForThoseWhomTheAPIServerLetsReadThem(t *testing.T) {
	t.Parallel()
	client, away := fake.NewClientset(), false
	client.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if away {
			return true, nil, errors.New("away")
		}
		review := a.(clienttesting.CreateAction).GetObject().(*authentication.TokenReview)
		review.Status.User = authentication.UserInfo{
			Username: review.Spec.Token, Extra: map[string]authentication.ExtraValue{"k": {"v"}},
		}
		review.Status.Authenticated = review.Spec.Token != "forged"
		return true, review, nil
	})
	client.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorization.SubjectAccessReview)
		asked := review.Spec.NonResourceAttributes
		review.Status.Allowed = review.Spec.User == "prometheus" && asked.Path == "/metrics" && asked.Verb == "get" &&
			fmt.Sprint(review.Spec.Extra) == "map[k:[v]]"
		return true, review, nil
	})
	now := time.Now()
	g := newGuard(client, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "1")
	}))
	g.now = func() time.Time { return now }
	get := func(header string) (int, string) {
		r, w := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody), httptest.NewRecorder()
		r.Header.Set("Authorization", header)
		g.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for _, c := range []struct {
		name, header string
		want         int
	}{
		{"no token", "", http.StatusUnauthorized},
		{"a password", "Basic cHJvbWV0aGV1cw==", http.StatusUnauthorized},
		{"a token that is not the API server's", "Bearer forged", http.StatusUnauthorized},
		{"an account without the right", "Bearer guest", http.StatusForbidden},
		{"an account with the right", "Bearer prometheus", http.StatusOK},
		{"the same again", "Bearer prometheus", http.StatusOK},
	} {
		if got, body := get(c.header); got != c.want || (body == "1") != (c.want == http.StatusOK) {
			t.Errorf("%s: %d %q, want %d", c.name, got, body, c.want)
		}
	}
	if asked := len(client.Actions()); asked != 5 {
		t.Errorf("the API server was asked %d times, want 5: %v", asked, client.Actions())
	}
	away = true
	if got, _ := get("Bearer prometheus"); got != http.StatusOK {
		t.Errorf("while the API server is away a known token gets %d", got)
	}
	now = now.Add(answerLife)
	if got, _ := get("Bearer prometheus"); got != http.StatusServiceUnavailable {
		t.Errorf("after a minute without the API server a token gets %d", got)
	}
	for range maxAsks {
		g.asks <- struct{}{}
	}
	if got, _ := get("Bearer another"); got != http.StatusTooManyRequests {
		t.Errorf("one question more than %d gets %d", maxAsks, got)
	}
	away, g.asks = false, make(chan struct{}, maxAsks)
	for i := range 3 * maxAnswers {
		get(fmt.Sprint("Bearer ", i))
	}
	if len(g.answers) > maxAnswers {
		t.Errorf("%d tokens are remembered, want at most %d", len(g.answers), maxAnswers)
	}
}

func TestTheAddressOfMetrics(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"": "", ":10272": "", "10.0.0.1:1": "", "[::1]:65535": "", "10272": "missing port", ":0": "must be 1…65535",
		":metrics": "must be 1…65535", ":65536": "must be 1…65535",
	} {
		err := checkMetricsAddress(address)
		if (err == nil) != (want == "") || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q: %v, want %q", address, err, want)
		}
	}
}

func TestMetricsAreServedOverTLS(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c",
		"clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],
		"contexts":[{"name":"c","context":{"cluster":"c"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testkit.Check(t, err)
	address := free.Addr().String()
	_ = free.Close() // the port is free again
	stop, err := serveMetrics(t.Context(), address, "n", file, http.NotFoundHandler())
	testkit.Check(t, err)
	defer stop()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12},
	}}
	for url, want := range map[string]int{
		"https://" + address + "/metrics": http.StatusUnauthorized,
		"https://" + address + "/configz": http.StatusNotFound,
		"http://" + address + "/metrics":  http.StatusBadRequest,
	} {
		response, err := client.Get(url)
		testkit.Check(t, err)
		if _ = response.Body.Close(); response.StatusCode != want {
			t.Errorf("%s: %s, want %d", url, response.Status, want)
		}
	}
}
