package rights

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/internal/cli"
	"github.com/tenon-project/tenon/internal/local/pki"
	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/test/controlplane"
)

// consoleHost is the name of the console in the cluster, issuer that of the API server in its tokens.
const (
	consoleHost = "tenon-console.tenon-system.svc"
	issuer      = "https://kubernetes.default.svc"
)

// visited is a console in the cluster, with an account for each kind of visitor.
type visited struct {
	*cluster
	port   string
	client *http.Client
	signer *ecdsa.PrivateKey // of the tokens of service accounts
	// accounts are those of namespace ml, by name.
	accounts map[string]*corev1.ServiceAccount
}

// chartArgs returns the arguments with which the chart starts the console, with other values for some flags.
func chartArgs(t *testing.T, values map[string]string) (args []string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/testdata/ha.golden")
	testkit.Check(t, err)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var d appsv1.Deployment
		if yaml.Unmarshal([]byte(document), &d) == nil && d.Kind == "Deployment" && d.Name == "tenon-console" {
			args = d.Spec.Template.Spec.Containers[0].Args
		}
	}
	for i, arg := range args {
		flag, _, _ := strings.Cut(arg, "=")
		if value, other := values[flag]; other {
			args[i] = flag + "=" + value
			delete(values, flag)
		}
	}
	if len(args) == 0 || len(values) > 0 {
		t.Fatalf("the chart starts the console with %q: flags %v are missing", args, values)
	}
	return args
}

// visit starts a control plane with pods in two namespaces, and the console as the chart starts it.
func visit(t *testing.T) *visited {
	t.Helper()
	p := controlplane.Start(t)
	v := &visited{
		cluster:  &cluster{server: p.Server, admin: asUser(t, p.Config)},
		accounts: map[string]*corev1.ServiceAccount{},
	}
	keys, err := p.Authority.TokenKey()
	testkit.Check(t, err)
	key, err := keyutil.ParsePrivateKeyPEM(keys.Key)
	testkit.Check(t, err)
	v.signer = key.(*ecdsa.PrivateKey)
	v.node(t, "n")
	core := v.admin.typed.CoreV1()
	for _, namespace := range []string{"ml", "other"} {
		made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		_, err := core.Namespaces().Create(t.Context(), made, metav1.CreateOptions{})
		testkit.Check(t, err)
		for _, name := range []string{"default", "member", "guest", "viewer"} {
			account, err := core.ServiceAccounts(namespace).Create(t.Context(),
				&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			testkit.Check(t, err)
			if namespace == "ml" {
				v.accounts[name] = account
			}
		}
		for pod, options := range map[string][]testobject.PodOption{
			"waits-in-" + namespace: nil, "runs-in-" + namespace: {testobject.On("n")},
		} {
			made := testobject.Pod(namespace+"/"+pod, append(options, testobject.Container("c", "x"))...)
			made.Spec.AutomountServiceAccountToken = new(bool)
			made, err := core.Pods(namespace).Create(t.Context(), made, metav1.CreateOptions{})
			testkit.Check(t, err)
			made.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable",
				Message: "0/1 nodes are available: 1 <script>alert(1)</script>.",
			}}
			_, err = core.Pods(namespace).UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
			testkit.Check(t, err)
		}
	}
	pods := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}}
	groups := pods
	groups.APIGroups = []string{"scheduling.sigs.k8s.io", "scheduling.x-k8s.io", "scheduling.k8s.io"}
	groups.Resources = []string{"podgroups", "compositepodgroups"}
	rights := v.admin.typed.RbacV1()
	_, err = rights.Roles("ml").Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "member"}, Rules: []rbacv1.PolicyRule{pods, groups},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	_, err = rights.RoleBindings("ml").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "member"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "member"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "ml", Name: "member"}},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	nodes := pods
	nodes.Resources = []string{"pods", "nodes"}
	v.grant(t, "system:serviceaccount:ml:viewer", []rbacv1.PolicyRule{nodes})
	v.start(t, p)
	return v
}

// start starts the console and waits until it serves.
func (v *visited) start(t *testing.T, p *controlplane.Plane) {
	t.Helper()
	pair, err := p.Authority.Issue("console", pki.Subject{Hosts: []string{consoleHost}})
	testkit.Check(t, err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(p.Authority.Certificate())
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: in, ErrOut: os.Stderr}
	ended := make(chan int, 1)
	args := chartArgs(t, map[string]string{
		"--listen": "127.0.0.1:0", "--server": p.Server.Server,
		"--certificate-authority": p.Authority.CertificateFile(),
		"--tls-cert-file":         pair.CertFile, "--tls-private-key-file": pair.KeyFile,
	})
	go func() {
		ended <- cli.Run(ctx, cli.NewRoot("kubectl-tenon", streams, cli.Doctor{}), args, os.Stderr)
		_ = in.Close()
	}()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != 0 {
			t.Errorf("the console ended with %d", code)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	testkit.Check(t, err)
	address := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "console https://"), "/")
	_, v.port, err = net.SplitHostPort(address)
	testkit.Check(t, err)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+v.port)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	v.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// token signs a token of an account as the API server would.
func (v *visited) token(t *testing.T, account, audience string, expires time.Time) string {
	t.Helper()
	var parts []string
	for _, part := range []any{map[string]string{"alg": "ES256", "typ": "JWT"}, map[string]any{
		"iss": issuer, "aud": []string{audience}, "exp": expires.Unix(), "iat": expires.Add(-2 * time.Hour).Unix(),
		"nbf": expires.Add(-2 * time.Hour).Unix(), "sub": "system:serviceaccount:ml:" + account,
		"kubernetes.io": map[string]any{"namespace": "ml", "serviceaccount": map[string]string{
			"name": account, "uid": string(v.accounts[account].UID),
		}},
	}} {
		text, err := json.Marshal(part)
		testkit.Check(t, err)
		parts = append(parts, base64.RawURLEncoding.EncodeToString(text))
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, ".")))
	r, s, err := ecdsa.Sign(rand.Reader, v.signer, sum[:])
	testkit.Check(t, err)
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return strings.Join(append(parts, base64.RawURLEncoding.EncodeToString(signature)), ".")
}

// request returns a request as a page of the console sends it.
func (v *visited) request(t *testing.T, method, path, token, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://"+consoleHost+path, strings.NewReader(body))
	testkit.Check(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	if method == http.MethodPost {
		r.Header.Set("Origin", "https://"+consoleHost)
	}
	return r
}

// update is a message of a stream.
type update struct {
	Topic, Error string
	Answer       json.RawMessage
}

// read returns the first round of a stream: each topic with its answer, or with its error.
func (v *visited) read(t *testing.T, token string, topics ...string) map[string]update {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	query := "?topic=" + strings.Join(topics, "&topic=")
	r := v.request(t, http.MethodGet, "/api/v1/stream"+query, token, "").WithContext(ctx)
	// The console asks in the name of its visitor, whatever a header says.
	r.Header.Set("Impersonate-User", "admin")
	r.Header.Set("Impersonate-Group", "system:masters")
	response, err := v.client.Do(r)
	testkit.Check(t, err)
	defer response.Body.Close()
	answers := map[string]update{}
	for lines := bufio.NewReader(response.Body); ; {
		line, err := lines.ReadString('\n')
		if err != nil || strings.HasPrefix(line, "event: read") {
			return answers
		}
		if data, found := strings.CutPrefix(line, "data: "); found {
			var u update
			testkit.Check(t, json.Unmarshal([]byte(data), &u))
			answers[u.Topic] = u
		}
	}
}

// TestTheConsoleShowsWhatItsVisitorMayRead runs the console as the chart does, against a real API server.
func TestTheConsoleShowsWhatItsVisitorMayRead(t *testing.T) {
	v := visit(t)
	asked, err := v.admin.typed.CoreV1().ServiceAccounts("ml").CreateToken(t.Context(), "member",
		&authentication.TokenRequest{}, metav1.CreateOptions{})
	testkit.Check(t, err)
	later := time.Now().Add(time.Hour)
	member, guest := asked.Status.Token, v.token(t, "guest", issuer, later)
	viewer := v.token(t, "viewer", issuer, later)
	v.await(t, "the API server knows the rights of the member", func(context.Context) error {
		if got := v.read(t, member, "pending/ml")["pending/ml"]; got.Error != "" {
			return fmt.Errorf("not yet: %s", got.Error)
		}
		return nil
	})
	const waits, runs, waitsElsewhere, runsElsewhere = "waits-in-ml", "runs-in-ml", "waits-in-other", "runs-in-other"
	for who, c := range map[string]struct {
		token string
		all   bool
		// want is what an answer has, by topic. All others are refusals, unless the account reads all.
		want map[string]string
	}{
		"a member of one namespace": {member, false, map[string]string{
			"pending/ml": waits, "pod/ml/" + waits: waits, "pod/ml/" + runs: `"node":"n"`,
			"status": "list on nodes is missing", "gangs/ml": `"GangList"`,
		}},
		"an account without rights": {guest, false, map[string]string{"status": "list on nodes is missing"}},
		"an account that reads all": {viewer, true, map[string]string{
			"pending": waitsElsewhere, "pending/ml": waits, "pending/other": waitsElsewhere, "pod/ml/" + runs: runs,
			"pod/ml/" + waits: waits, "pod/other/" + waitsElsewhere: waitsElsewhere,
			"pod/other/" + runsElsewhere: runsElsewhere,
		}},
	} {
		topics := []string{
			"pending", "pending/ml", "pending/other", "pod/ml/" + waits, "pod/ml/" + runs,
			"pod/other/" + waitsElsewhere, "pod/other/" + runsElsewhere, "node/n", "nodes", "gpus", "quotas", "gangs",
			"decisions", "modes", "evictions", "reservations", "status", "gangs/ml",
			"gangs/other", "gangs/ml/../other",
			"pod/ml/../../other/pods/" + waitsElsewhere, "pod/ml%2F..%2Fother/" + waitsElsewhere,
			"pending/ml/../other", "node/../namespaces/other/pods", "node/n/../../secrets",
		}
		for some := range slices.Chunk(topics, 8) {
			answers := v.read(t, c.token, some...)
			for topic, got := range answers {
				switch want, sees := c.want[topic]; {
				case sees && !strings.Contains(string(got.Answer), want):
					t.Errorf("%s, %s: got %s %s, want %s", who, topic, got.Error, got.Answer, want)
				case !sees && c.all:
				case !sees && (len(got.Answer) > 0 || got.Error == ""):
					t.Errorf("%s, %s: sees %s", who, topic, got.Answer)
				}
				if bytes.Contains(got.Answer, []byte("<script")) {
					t.Errorf("%s, %s: markup is sent as it is: %s", who, topic, got.Answer)
				}
			}
			if len(answers) != len(some) {
				t.Errorf("%s: got answers to %v, asked for %v", who, slices.Collect(maps.Keys(answers)), some)
			}
		}
		answer, err := v.client.Do(v.request(t, http.MethodPost, "/api/v1/whatif", c.token,
			`{"ask":{"pods":["other/waits-in-other"]}}`))
		testkit.Check(t, err)
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			t.Errorf("%s is answered what if without a scheduler: %s", who, text)
		}
	}
	v.attack(t, member)
}

// attack sends what a page of the console never sends. The token is a valid one.
func (v *visited) attack(t *testing.T, member string) {
	t.Helper()
	const stream, whatIf = "/api/v1/stream?topic=pending/ml", "/api/v1/whatif"
	hour := time.Hour
	header := func(key, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(key, value) }
	}
	without := func(then func(*http.Request)) func(*http.Request) {
		return func(r *http.Request) { r.Header.Del("Authorization"); then(r) }
	}
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	as := func(account, audience string, expires time.Duration) func(*http.Request) {
		return header("Authorization", "Bearer "+v.token(t, account, audience, time.Now().Add(expires)))
	}
	type attempt struct {
		method, path, body string
		change             func(*http.Request)
		status             int
	}
	attempts := map[string]attempt{
		"a foreign host":              {path: stream, change: host("evil.example"), status: 403},
		"an address":                  {path: stream, change: host("192.0.2.1"), status: 403},
		"a host that begins the same": {path: stream, change: host(consoleHost + ".evil.example"), status: 403},
		"no host name but a port":     {path: stream, change: host(":443"), status: 403},
		"a foreign origin": {
			path: stream, change: header("Origin", "https://evil.example"), status: 403,
		},
		"an origin without TLS": {path: stream, change: header("Origin", "http://"+consoleHost), status: 403},
		"an origin of another port": {
			path: stream, change: header("Origin", "https://"+consoleHost+":1"), status: 403,
		},
		"a question of a foreign origin": {
			http.MethodPost, whatIf, "{}", header("Origin", "https://evil.example"), 403,
		},
		"a question of no origin": {http.MethodPost, whatIf, "{}", header("Origin", "null"), 403},
		"no token":                {path: stream, change: without(func(*http.Request) {}), status: 401},
		"an empty token":          {path: stream, change: header("Authorization", "Bearer "), status: 401},
		"a word as token":         {path: stream, change: header("Authorization", "Bearer admin"), status: 401},
		"another scheme": {
			path: stream, change: header("Authorization", "Basic YWRtaW46YWRtaW4="), status: 401,
		},
		"a token in the query": {
			path: stream + "&token=" + member, change: without(func(*http.Request) {}), status: 401,
		},
		"a token in a cookie": {
			path: stream, change: without(header("Cookie", "tenon-token="+member)), status: 401,
		},
		"a token with its end cut off": {
			path: stream, change: header("Authorization", "Bearer "+member[:len(member)-4]), status: 401,
		},
		"a token that has expired":         {path: stream, change: as("member", issuer, -hour), status: 401},
		"a token of another audience":      {path: stream, change: as("member", "vault", hour), status: 401},
		"a question with an expired token": {http.MethodPost, whatIf, "{}", as("member", issuer, -hour), 401},
		"the name of a user in a header": {
			path: stream, change: without(header("X-Remote-User", "admin")), status: 401,
		},
		"a question of over 1 MiB":    {http.MethodPost, whatIf, strings.Repeat(" ", 1<<20+1), nil, 413},
		"a question that is not JSON": {http.MethodPost, whatIf, "<b>", nil, 400},
		"no topic":                    {path: "/api/v1/stream", status: 400},
		"the API of the cluster":      {path: "/api/v1/namespaces/other/pods", status: 404},
		"the API behind a stream":     {path: "/api/v1/stream/../namespaces/other/pods", status: 307},
		"a path in ciphers":           {path: "/api/v1/%2e%2e/%2e%2e/etc/passwd", status: 404},
		"a path of backslashes":       {path: `/api/v1/..%5c..%5cetc%5cpasswd`, status: 404},
		"a file of the machine":       {path: "/etc/passwd", status: 200}, // a view of the console
		"an unknown file":             {path: "/app.js.map", status: 200},
	}
	for _, method := range []string{
		"PROPFIND", http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodTrace,
		http.MethodPost,
	} {
		attempts[method+" of a stream"] = attempt{method, stream, "{}", nil, 404}
		attempts[method+" of a page"] = attempt{method, "/", "{}", nil, 405}
		if method != http.MethodPost {
			attempts[method+" of a question"] = attempt{method, whatIf, "{}", nil, 404}
		}
	}
	for name, a := range attempts {
		method := a.method
		if method == "" {
			method = http.MethodGet
		}
		r := v.request(t, method, a.path, member, a.body)
		if a.change != nil {
			a.change(r)
		}
		response, err := v.client.Do(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != a.status || bytes.Contains(text, []byte("waits-in")) ||
			bytes.Contains(text, []byte("root:")) {
			t.Errorf("%s: got %s %.300q, want %d", name, response.Status, text, a.status)
		}
		if response.Header.Get("Content-Security-Policy") == "" ||
			response.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: headers are %v", name, response.Header)
		}
	}
	for name, connect := range map[string]func() error{
		"HTTP without TLS": func() error {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+v.port+"/", nil)
			testkit.Check(t, err)
			response, err := http.DefaultClient.Do(r)
			if err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusBadRequest {
				err = io.EOF
			}
			return err
		},
		"TLS 1.1": func() error {
			_, err := (&tls.Dialer{Config: &tls.Config{
				InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11,
			}}).DialContext(t.Context(), "tcp", "127.0.0.1:"+v.port)
			return err
		},
		"another name than that of the certificate": func() error {
			_, err := (&tls.Dialer{Config: &tls.Config{
				RootCAs: v.client.Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "evil.example",
			}}).DialContext(t.Context(), "tcp", "127.0.0.1:"+v.port)
			return err
		},
	} {
		if connect() == nil {
			t.Errorf("%s is served", name)
		}
	}
}
