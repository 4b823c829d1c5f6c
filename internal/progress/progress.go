package progress

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/term"
)

const (
	patience = 2 * time.Second // before anything is shown
	interval = 200 * time.Millisecond
	erase    = "\r\x1b[K" // the line of the cursor
)

var frames = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

type key struct{}

// Show shows what is done until end is called or ctx ends. Step, with the context that Show returns, counts units of
// it.
func Show(ctx context.Context, out io.Writer, what, unit string) (counted context.Context, end func()) {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("CI") != "" || os.Getenv("TERM") == "dumb" {
		return ctx, func() {}
	}
	return show(ctx, out, what, unit)
}

// Step counts one unit of what Show shows. It is safe for concurrent use.
func Step(ctx context.Context) {
	if count, ok := ctx.Value(key{}).(*atomic.Int64); ok {
		count.Add(1)
	}
}

func show(ctx context.Context, out io.Writer, what, unit string) (counted context.Context, end func()) {
	count, begun := new(atomic.Int64), time.Now()
	ending, stop := context.WithCancel(ctx)
	var drawing sync.WaitGroup
	drawing.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for frame := 0; ; frame++ {
			select {
			case <-ending.Done():
				if time.Since(begun) >= patience {
					_, _ = io.WriteString(out, erase)
				}
				return
			case <-tick.C:
			}
			since := time.Since(begun)
			if since < patience {
				continue
			}
			text := fmt.Sprintf("%s%c %s: ", erase, frames[frame%len(frames)], what)
			if n := count.Load(); n > 0 {
				text += fmt.Sprintf("%d %s, ", n, unit)
			}
			_, _ = io.WriteString(out, text+since.Truncate(time.Second).String())
		}
	})
	return context.WithValue(ctx, key{}, count), func() { stop(); drawing.Wait() }
}
