package verb

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestDownRefusesWhenTheKubeconfigInUseIsOfAnotherCluster(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	usual, err := datadir.Resolve("")
	testkit.Check(t, err)
	other := filepath.Join(t.TempDir(), "kubeconfig")
	for name, test := range map[string]struct {
		inUse string
		want  string
	}{
		"no kubeconfig":       {"", ""},
		"that of the cluster": {usual.Kubeconfig(), ""},
		"that of another one": {other, "KUBECONFIG is " + other + ", which is not the cluster in " +
			"" + usual.Root()},
		"several, and the cluster's": {other + string(filepath.ListSeparator) + usual.Kubeconfig(), ""},
	} {
		err := checkKubeconfig(usual, test.inUse)
		if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

func TestThePrintedCommandsNameTheFolderOfTheirCluster(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	usual, err := datadir.Resolve("")
	if err != nil || usual.Flag() != "" {
		t.Errorf("the default folder: got %q, %v", usual.Flag(), err)
	}
	other, err := datadir.Resolve("/x/y")
	if err != nil || other.Flag() != " --data /x/y" {
		t.Errorf("another folder: got %q, %v", other.Flag(), err)
	}
}
