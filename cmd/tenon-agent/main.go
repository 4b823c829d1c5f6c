// Command tenon-agent publishes what a node is and keeps its containers on the CPUs that were allocated to them.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/tenon-project/tenon/internal/agent/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := app.NewCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		os.Exit(1) // cobra has printed it
	}
}
