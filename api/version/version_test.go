package version_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
)

// built is what a program says that hack/build.sh has built.
func built(t *testing.T, version string) string {
	t.Helper()
	folder := t.TempDir()
	build := exec.CommandContext(t.Context(), "bash", "../../hack/build.sh", folder, "./testdata/print")
	build.Env = append(build.Environ(), "VERSION="+version, "GOFLAGS=-buildvcs=false")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	text, err := exec.CommandContext(t.Context(), filepath.Join(folder, "print")).Output()
	testkit.Check(t, err)
	return string(text)
}

func TestAProgramHasTheVersionThatItIsBuiltAs(t *testing.T) {
	t.Parallel()
	for _, want := range []string{"v1.2.3", "c42a8db07d11-dirty"} {
		if got := built(t, want); got != want {
			t.Errorf("built as %q, it says %q", want, got)
		}
	}
}
