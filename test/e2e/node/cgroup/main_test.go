//go:build e2e_cgroup

package cgroup

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
)

var (
	ownMachine = flag.Bool("own-machine", false, "the machine is the test's own: CPU 1 may go offline")
	setFiles   = flag.Bool("set-files", false, "the machine is the test's own: its files may be set")

	// here is the kernel of this machine, and cases counts what passed on it.
	here  *realKernel
	cases atomic.Int32
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == taskMode {
		liveAsTask()
		return
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		return notRun(errors.New("root"))
	}
	var err error
	if here, err = newRealKernel(); err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || here == nil {
			return notRun(err)
		}
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := here.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if code == 0 {
		fmt.Printf("level 2: %d cases passed on cgroup %v\n", cases.Load(), here.Dialect())
	}
	return code
}

// notRun says that level 2 did not run; that is neither a failure nor a pass.
func notRun(why error) int {
	fmt.Printf("NOT RUN: level 2 (%v)\n", why)
	return 0
}

// passed counts a case that ends without a failure.
func passed(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() && !t.Skipped() {
			cases.Add(1)
		}
	})
}
