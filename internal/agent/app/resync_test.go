package app_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenon-project/tenon/internal/agent/app"
)

// maxResyncAllocs bounds what a resync without changes allocates: it reads some files. To write a topology and to parse
// it takes thousands.
const maxResyncAllocs = 400

func TestAResyncWithoutChangesNeitherWritesNorParsesATopology(t *testing.T) {
	for _, spec := range []string{"epyc-256", "epyc-256@static"} {
		t.Run(spec, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, spec)
				w.run(func(a *app.Agent) {
					w.create(pod("lsr", "LSR", "2", "2-3"))
					later(time.Minute)
					if n := testing.AllocsPerRun(5, func() { a.Refresh(t.Context()) }); n > maxResyncAllocs {
						t.Errorf("%v allocations, want at most %d", n, maxResyncAllocs)
					}
				})
			})
		})
	}
}
