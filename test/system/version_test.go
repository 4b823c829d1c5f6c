package system

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
)

func TestKubectlNamesTheReleaseThatItIs(t *testing.T) {
	t.Parallel()
	text, err := exec.CommandContext(t.Context(), binary(t), "kubectl", "version", "--client", "-o", "json").Output()
	testkit.Check(t, err)
	var said struct {
		ClientVersion struct{ GitVersion, Major, Minor string }
	}
	testkit.Check(t, json.Unmarshal(text, &said))
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	release, err := list.Output()
	testkit.Check(t, err)
	got, want := said.ClientVersion, strings.TrimSpace(string(release))
	if got.GitVersion != want || "v"+got.Major+"."+got.Minor != want[:strings.LastIndex(want, ".")] {
		t.Errorf("kubectl says it is %+v, want %s", got, want)
	}
}
