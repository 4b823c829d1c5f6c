package command

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// What keeps the agent small: it runs on every node.
const (
	// gcPercent is how much the heap may grow before it is collected, where the environment does not say. The heap is
	// small and little happens, so that collecting twice as often costs nothing that can be measured.
	gcPercent = 50
	// readyPoll is the time between two questions whether the start is over.
	readyPoll = time.Second
)

// collectOften makes the garbage collector prefer memory over CPU, unless the operator has decided.
func collectOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// releaseStart waits until ready answers nil, or ctx ends. Then it gives back the memory that only the start needed.
func releaseStart(ctx context.Context, ready func() error) {
	err := wait.PollUntilContextCancel(ctx, readyPoll, true,
		func(context.Context) (bool, error) { return ready() == nil, nil })
	if err == nil {
		debug.FreeOSMemory()
	}
}
