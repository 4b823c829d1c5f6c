package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/internal/testkit"
)

func TestTheLocalClusterIsFoundWhenNothingElseNamesACluster(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files []string // below home
		env   map[string]string
		found bool
	}{
		"a local cluster alone":         {files: []string{".tenon/kubeconfig"}, found: true},
		"nothing at all":                {},
		"another cluster of the user's": {files: []string{".tenon/kubeconfig", ".kube/config"}},
		"one that the environment names": {
			files: []string{".tenon/kubeconfig"},
			env:   map[string]string{"KUBECONFIG": "/k"},
		},
		"the cluster whose pod this is": {
			files: []string{".tenon/kubeconfig"},
			env:   map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
		},
		"a user without a home": {files: []string{".tenon/kubeconfig"}, env: map[string]string{"HOME": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			for _, f := range test.files {
				f = filepath.Join(home, f)
				testkit.Check(t, os.MkdirAll(filepath.Dir(f), 0o700))
				testkit.Check(t, os.WriteFile(f, nil, 0o600))
			}
			env := func(key string) string {
				if value, ok := test.env[key]; ok || key != "HOME" {
					return value
				}
				return home
			}
			want := ""
			if test.found {
				want = filepath.Join(home, ".tenon/kubeconfig")
			}
			if got := LocalCluster(env); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestACommandNamesAClusterThatIsNotLocal(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		program  string
		replicas []string
		want     int
	}{
		"a cluster of tenon up": {"tenon", []string{"http://127.0.0.1:1"}, 0},
		"another cluster":       {"tenon", nil, 1},
		"kubectl's own context": {"kubectl-tenon", nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := kubeconfig(t, "https://127.0.0.1:1", test.replicas...)
			for _, verb := range []string{"top", "topology", "quota", "gang", "status"} {
				code, _, errOut := run(t, test.program, verb, "--kubeconfig", path)
				const line = "cluster https://127.0.0.1:1\n"
				if code != ExitUnreachable || strings.Count(errOut, line) != test.want {
					t.Errorf("%s: exit code %d, want %d lines %q on standard error:\n%s", verb, code, test.want, line,
						errOut)
				}
			}
		})
	}
}

// TestWarningsOfTheServerAreShownUnlessTheProgramCausedThem: the program chooses which version of an API it reads.
func TestWarningsOfTheServerAreShownUnlessTheProgramCausedThem(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	var h rest.WarningHandler = ServerWarnings{Out: &out}
	h.HandleWarningHeader(299, "-", "scheduling.k8s.io/v1beta1 PodGroup is deprecated in v1.40+, unavailable in v1.43+")
	h.HandleWarningHeader(299, "-", "the pod's node is cordoned")
	h.HandleWarningHeader(110, "-", "response is stale")
	if got, want := out.String(), "warning: the pod's node is cordoned\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
