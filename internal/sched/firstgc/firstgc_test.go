package firstgc

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// child has a process of the test print how often it has collected garbage after 12 MB, and the percentage that is in
// force after a collection.
const child = "FIRSTGC_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	var kept [][]byte
	for range 12 {
		kept = append(kept, make([]byte, 1<<20))
	}
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	percent := func() int {
		p := debug.SetGCPercent(delayed)
		debug.SetGCPercent(p)
		return p
	}
	for range 100 {
		if runtime.GC(); percent() != delayed {
			break
		}
		<-time.After(time.Millisecond)
	}
	_, _ = fmt.Fprintln(os.Stdout, s.NumGC > 0, percent())
	runtime.KeepAlive(kept)
}

func TestTheFirstCollectionWaitsForTheHeapAndGOGCHoldsFromThenOn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ env, want string }{
		"default":                       {"GOGC=", "false 100"},
		"GOGC of the manifests":         {"GOGC=200", "false 200"},
		"GOGC that asks for less":       {"GOGC=50", "true 50"},
		"GOGC that asks for more":       {"GOGC=1000", "false 1000"},
		"no collections":                {"GOGC=off", "false -1"},
		"a limit of memory below 12 MB": {"GOMEMLIMIT=10MiB", "true 100"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), child+"=1", "GOGC=", test.env)
			out, err := cmd.Output()
			if got := string(out); err != nil || got != test.want+"\n" {
				t.Errorf("collected within 12 MB, and percentage: got %q, want %q (%v)", got, test.want, err)
			}
		})
	}
}
