package host_test

import (
	"path/filepath"
	"testing"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
)

func BenchmarkRead(b *testing.B) {
	for _, name := range []string{"arm64-1s", "epyc-256"} {
		b.Run("machine="+name, func(b *testing.B) {
			d, _, err := machine.Parse(name)
			testkit.Check(b, err)
			root := host.Root{Dir: filepath.Join(testkit.Dir(b), "node")}
			testkit.Check(b, d.Write(root.Dir))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := host.Read(root, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
