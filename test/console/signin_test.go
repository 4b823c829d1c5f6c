package console

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// administrator asks the API server of a kubeconfig as its user.
type administrator struct {
	t         *testing.T
	server    string
	authority []byte
	client    *http.Client
}

func newAdministrator(t *testing.T, kubeconfig string) *administrator {
	t.Helper()
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	value := func(key string) []byte {
		found := regexp.MustCompile(key + `: (\S+)`).FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s has no %s", kubeconfig, key)
		}
		return found[1]
	}
	data := func(key string) []byte {
		decoded, err := base64.StdEncoding.DecodeString(string(value(key)))
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		return decoded
	}
	pair, err := tls.X509KeyPair(data("client-certificate-data"), data("client-key-data"))
	if err != nil {
		t.Fatal(err)
	}
	a := &administrator{t: t, server: string(value("server")), authority: data("certificate-authority-data")}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(a.authority)
	a.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: trusted, Certificates: []tls.Certificate{pair},
	}}}
	return a
}

// ask sends an object to a path of the API server, nil for none, and reads the answer into another one.
func (a *administrator) ask(method, path, contentType string, object, into any) {
	a.t.Helper()
	body, err := json.Marshal(object)
	if err != nil {
		a.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(a.t.Context(), method, a.server+path, bytes.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	request.Header.Set("Content-Type", contentType)
	response, err := a.client.Do(request)
	if err != nil {
		a.t.Fatal(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	if err := json.Unmarshal(text, into); response.StatusCode/100 != 2 || err != nil {
		a.t.Fatalf("%s %s: %s %v\n%s", method, path, response.Status, err, text)
	}
}

// create posts an object, and returns what the API server made of it.
func (a *administrator) create(path string, object any) (answer struct{ Status struct{ Token string } }) {
	a.t.Helper()
	a.ask(http.MethodPost, path, "application/json", object, &answer)
	return answer
}

type fields = map[string]any

// visitor makes an account that may read the pods of namespace default alone, or all if role is a ClusterRole.
func (a *administrator) visitor(name, role string) (token string) {
	const accounts, rbac = "/api/v1/namespaces/default/serviceaccounts", "/apis/rbac.authorization.k8s.io/v1/"
	a.create(accounts, fields{"metadata": fields{"name": name}})
	binding := fields{
		"metadata": fields{"name": name},
		"subjects": []fields{{"kind": "ServiceAccount", "namespace": "default", "name": name}},
		"roleRef":  fields{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
	}
	if role != "" {
		a.create(rbac+"clusterrolebindings", binding)
	} else {
		binding["roleRef"] = fields{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
		read := fields{
			"apiGroups": []string{"", "scheduling.sigs.k8s.io", "scheduling.x-k8s.io", "scheduling.k8s.io"},
			"resources": []string{"pods", "podgroups", "compositepodgroups"}, "verbs": []string{"get", "list"},
		}
		a.create(rbac+"namespaces/default/roles", fields{
			"metadata": fields{"name": name}, "rules": []fields{read},
		})
		a.create(rbac+"namespaces/default/rolebindings", binding)
	}
	return a.create(accounts+"/"+name+"/token", fields{"spec": fields{}}).Status.Token
}

// certificate writes a certificate for localhost that no browser knows.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"},
	}
	made, err := x509.CreateCertificate(rand.Reader, template, template, signer.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: made}, "tls.key": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
}

// signIn opens a console as the chart starts it, and signs in with tokens.
func signIn(t *testing.T, kubeconfig string) {
	a := newAdministrator(t, kubeconfig)
	authority := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(authority, a.authority, 0o600); err != nil {
		t.Fatal(err)
	}
	cert, key := certificate(t)
	address, stop := startConsole(t, "--kubeconfig", os.DevNull, "--server", a.server,
		"--certificate-authority", authority, "--tls-cert-file", cert, "--tls-private-key-file", key,
		"--listen", "127.0.0.1:0", "--allowed-hosts", "tenon-console.tenon-system.svc")
	defer stop()
	b := newBrowser(t, strings.Replace(address, "127.0.0.1", "localhost", 1))
	b.mayFail = true // a token that is refused is a line of the browser's log
	enter := func(token string) {
		b.do("enter a token", chromedp.SetValue("input[name=token]", token), chromedp.Click("form button.primary"))
	}
	b.size(1280, 900)
	b.open("/pending")
	b.shows("Sign in", "the token is missing, wrong or expired")
	b.picture("sign-in")
	b.checkAccess()
	b.checkKeyboard()
	b.size(360, 800)
	b.picture("sign-in-360")
	b.size(1280, 900)
	enter("wrong")
	b.shows("Sign in", "the token is missing, wrong or expired")

	// Who reads one namespace learns which right is missing for all of them, and sees that one.
	enter(a.visitor("member", ""))
	b.shows("cannot list resource \"pods\" in API group \"\" at the cluster scope", "● live")
	b.do("choose a namespace", chromedp.SendKeys("input[name=namespace]", "default"+kb.Enter))
	b.shows("InsufficientDevices")
	if at := b.at(); !strings.Contains(at, "namespace=default") {
		t.Errorf("the address %s does not name the namespace", at)
	}
	b.click("Overview")
	b.shows("Of namespace default", "InsufficientDevices", "gangs are bound")
	b.open("/")
	const choose = "With rights for one namespace"
	for path, text := range map[string]string{
		"/gangs?namespace=default": "default/train", "/gangs/default/eval": "default/eval-0",
		"/decisions?namespace=default": "is missing", "/system": "list on nodes is missing",
		"/": choose, "/gangs": choose, "/fleet": choose, "/gpus": choose, "/quota": choose, "/evictions": choose,
		"/reservations": choose, "/node/hgx-h100-0": choose,
	} {
		b.open(path)
		b.shows("● live", text)
		b.checkAccess()
	}

	// Another tab has no token; who reads all sees all.
	tab := newBrowser(t, b.origin)
	tab.mayFail = true
	tab.open("/fleet")
	tab.shows("Sign in")
	token := a.visitor("reader", "cluster-admin")
	tab.do("enter a token", chromedp.SetValue("input[name=token]", token), chromedp.Click("form button.primary"))
	tab.shows("5 of 5 nodes", "hgx-h100-0")
	if text := tab.at() + fmt.Sprint(tab.faults); strings.Contains(text, token) {
		t.Error("the token is in an address or in a log")
	}
	for _, tab := range []*browser{b, tab} {
		tab.checkFaults()
	}
}
