// Command tenon-agent publishes what a node is and keeps its containers on the CPUs that were allocated to them.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/tenon-project/tenon/internal/agent/command"
	"github.com/tenon-project/tenon/internal/agent/transport/nri"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command.New(nri.Run).ExecuteContext(ctx)
	stop()
	var own interface{ ExitCode() int }
	switch {
	case err == nil: // cobra has printed the others
	case errors.As(err, &own):
		os.Exit(own.ExitCode())
	default:
		os.Exit(1)
	}
}
