package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// profiledSeconds are profiled: of a burst from its first bind on, of gangs from the scheduler's start on.
const profiledSeconds = 6

// profile stores what the scheduler does and holds, as NODES-RUN.cpu and NODES-RUN.heap. It returns a
// function that waits for the files; a profile that cannot be read is reported and left out.
func (b *bench) profile(ctx context.Context, port int, run string) (wait func()) {
	if b.profiles == "" || port == 0 {
		return func() {}
	}
	var stored sync.WaitGroup
	stored.Go(func() {
		b.store(ctx, port, run+".cpu", fmt.Sprintf("/debug/pprof/profile?seconds=%d", profiledSeconds))
	})
	return func() {
		stored.Wait()
		b.store(ctx, port, run+".heap", "/debug/pprof/heap")
	}
}

func (b *bench) store(ctx context.Context, port int, file, path string) {
	body, err := get(ctx, port, path)
	for range 100 { // a scheduler that has just been started does not listen yet
		if !errors.Is(err, syscall.ECONNREFUSED) || !sleep(ctx, 50*time.Millisecond) {
			break
		}
		body, err = get(ctx, port, path)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(b.profiles, fmt.Sprintf("%d-%s", b.nodes, file)), body, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "profile:", err)
	}
}
