package kubeconf

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenon-project/tenon/internal/local/pki"
	"github.com/tenon-project/tenon/internal/testkit"
)

var cluster = Cluster{
	Server: "https://127.0.0.1:6443", Authority: []byte("authority"),
	Diagnostics: "http://127.0.0.1:10251", Standby: []string{"http://127.0.0.1:10252"},
}

func TestAdministratorsFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	testkit.Check(t, WriteCertificate(path, cluster, pki.Pair{Cert: []byte("certificate"), Key: []byte("key")}))
	config, err := clientcmd.LoadFromFile(path)
	testkit.Check(t, err)
	if config.CurrentContext != "tenon" {
		t.Errorf("current context is %q, want tenon", config.CurrentContext)
	}
	c := config.Clusters[config.Contexts["tenon"].Cluster]
	extension, ok := c.Extensions["tenon.sh"].(*runtime.Unknown)
	if !ok {
		t.Fatalf("extension tenon.sh is %T", c.Extensions["tenon.sh"])
	}
	const want = `{"diagnostics":"http://127.0.0.1:10251","standby":["http://127.0.0.1:10252"]}`
	if got := string(extension.Raw); got != want {
		t.Errorf("extension tenon.sh is %s, want %s", got, want)
	}
	rest, err := clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
	testkit.Check(t, err)
	if rest.Host != cluster.Server || string(rest.CAData) != "authority" || string(rest.CertData) != "certificate" ||
		string(rest.KeyData) != "key" {
		t.Errorf("client configuration is %+v", rest)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode().Perm())
	}
}

func TestTokenIsReadFromItsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, token := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "token")
	testkit.Check(t, os.WriteFile(token, []byte("abc"), 0o600))
	testkit.Check(t, WriteToken(path, cluster, token))
	rest, err := clientcmd.BuildConfigFromFlags("", path)
	testkit.Check(t, err)
	if rest.BearerTokenFile != token {
		t.Errorf("token file is %q, want %q: a token that is renewed must be read again", rest.BearerTokenFile, token)
	}
}
