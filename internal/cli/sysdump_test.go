package cli

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

// unpack returns the files of an archive by name.
func unpack(t *testing.T, name string) map[string]string {
	t.Helper()
	f, err := os.Open(name)
	testkit.Check(t, err)
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	testkit.Check(t, err)
	files := map[string]string{}
	for archive := tar.NewReader(zipped); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		testkit.Check(t, err)
		text, err := io.ReadAll(archive)
		testkit.Check(t, err)
		files[strings.TrimPrefix(h.Name, "tenon-sysdump/")] = string(text)
	}
}

// TestNoSecretReachesTheArchive: neither the value of a variable, in whatever object or log it is repeated, nor a key.
func TestNoSecretReachesTheArchive(t *testing.T) {
	const secret, key = "correct horse", "PRIVATE"
	container := `{"name":"scheduler","image":"tenon-scheduler:v1","env":[{"name":"TOKEN","value":"` + secret + `"},` +
		`{"name":"N","value":"1"}]}`
	meta := `"metadata":{"name":"tenon-scheduler-0","namespace":"tenon-system","labels":{"app.kubernetes.io/name":` +
		`"tenon-scheduler"},"managedFields":[{"manager":"m"}],"annotations":{` +
		`"kubectl.kubernetes.io/last-applied-configuration":"` + secret + `"}}`
	served := map[string]string{
		"/api/v1/namespaces/tenon-system/pods": `{"kind":"PodList","apiVersion":"v1","items":[{"kind":"Pod",` +
			`"apiVersion":"v1",` + meta + `,"spec":{"containers":[` + container + `]}}]}`,
		"/apis/apps/v1/namespaces/tenon-system/deployments": `{"kind":"DeploymentList","apiVersion":"apps/v1",` +
			`"items":[{"kind":"Deployment","apiVersion":"apps/v1",` + meta + `,"spec":{"template":{"spec":{` +
			`"initContainers":[` + container + `]}}}}]}`,
		"/api/v1/namespaces/tenon-system/events": `{"kind":"EventList","apiVersion":"v1","items":[{"kind":"Event",` +
			`"apiVersion":"v1","metadata":{"name":"e"},"message":"uses ` + secret + `"}]}`,
		"/api/v1/namespaces/tenon-system/secrets/tenon-certificates": `{"kind":"Secret","apiVersion":"v1",` +
			`"data":{"manager.key":"UFJJVkFURQ==","manager.crt":"UFJJVkFURQ=="}}`,
		"/api/v1/namespaces/tenon-system/pods/tenon-scheduler-0/log": "starts\nlogs in with " + secret + "\nends\n",
	}
	// The lines of a journal have checksums: they are as they were, also where a value of a variable is a word of them.
	const line = `{"t":"event","event":{"kind":"Pod"},"token":"correct horse","sum":"0"}` + "\n"
	last, err := view.JournalOf("../journal-1.jsonl", []byte(line))
	testkit.Check(t, err)
	text, err := json.Marshal(last)
	testkit.Check(t, err)
	served["/apis/v1/journal"] = string(text)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := served[r.URL.Path]
		if !ok {
			forbid(w, r.URL.Path)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "dump.tar.gz")
	code, out, errOut := run(t, "tenon", "sysdump", "-o", file, "--kubeconfig", kubeconfig(t, s.URL, s.URL))
	if code != ExitOK || !strings.Contains(out, file) {
		t.Fatalf("exit code %d: %s%s", code, out, errOut)
	}
	files := unpack(t, file)
	if got := files["journal/journal-1.jsonl"]; got != line {
		t.Errorf("the journal is %q, want %q", got, line)
	}
	delete(files, "journal/journal-1.jsonl")
	for name, text := range files {
		if strings.Contains(text, secret) || strings.Contains(text, key) || strings.Contains(text, "UFJJVkFURQ") {
			t.Errorf("%s has a secret:\n%s", name, text)
		}
	}
	for name, want := range map[string]string{
		"objects/pods.v1.json":                 `"name": "TOKEN"`,
		"objects/deployments.v1.apps.json":     `"name": "TOKEN"`,
		"objects/events.v1.json":               "uses (redacted)",
		"logs/tenon-scheduler-0/scheduler.log": "logs in with (redacted)\nends\n",
		"status.json":                          `"kind": "Status"`,
		"version.json":                         `"tenon":`,
		"problems.txt":                         "list devices.v1alpha1.scheduling.koordinator.sh: ",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s has no %q:\n%s", name, want, files[name])
		}
	}
	if pods := files["objects/pods.v1.json"]; strings.Contains(pods, "managedFields") || strings.Contains(pods, `"1"`) {
		t.Errorf("objects/pods.v1.json is not redacted:\n%s", pods)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if code, _, errOut = run(t, "tenon", "sysdump", "-o", file, "--kubeconfig", kubeconfig(t, s.URL)); code == ExitOK {
		t.Errorf("an archive is overwritten: %s", errOut)
	}
}
