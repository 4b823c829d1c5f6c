//go:build e2e_node

package runtime

import (
	"os"
	"testing"

	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

func TestMain(m *testing.M) {
	os.Exit(stage.Main(m, stage.Needs{
		Level: 3, Unit: "cases", Plane: true, Binaries: []string{"tenon-agent", "tenon-runtime-proxy"},
	}))
}
