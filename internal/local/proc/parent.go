package proc

import (
	"io"
	"os"
	"syscall"
	"time"
)

// lifelineFD is the first of exec.Cmd's ExtraFiles.
const lifelineFD = 3

// FollowParent makes this process end as after SIGTERM when the process that started it through Start is gone. It is
// for platforms and moments in which the kernel does not see to it.
func FollowParent() {
	lifeline := os.NewFile(lifelineFD, "lifeline")
	if lifeline == nil {
		return
	}
	if info, err := lifeline.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return // started by hand
	}
	go func() {
		_, _ = io.Copy(io.Discard, lifeline) // ends when the other end closes: nothing is ever written
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		<-time.After(stopLimit)
		os.Exit(1)
	}()
}
