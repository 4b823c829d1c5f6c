//go:build linux && e2e_cluster

package fabricated

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run enters the stage. The outermost process prints the conclusion when all is over.
func run(m *testing.M) int {
	needs := stage.Needs{Level: level, Tools: []string{"kubelet"}, Binaries: []string{"tenon"}}
	if os.Getenv(conclusionVariable) != "" {
		return stage.Main(m, needs)
	}
	dir, err := os.MkdirTemp("", "tenon-cluster-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	conclusion := filepath.Join(dir, "conclusion")
	os.Setenv(conclusionVariable, conclusion)
	if err := buildWrapper(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := stage.Main(m, needs)
	if text, err := os.ReadFile(conclusion); err == nil {
		os.Stdout.Write(text)
	}
	return code
}

const (
	// level is the rung of the ladder.
	level = 4
	// conclusionVariable names the file that takes the last line.
	conclusionVariable = "TENON_CLUSTER_CONCLUSION"
)
