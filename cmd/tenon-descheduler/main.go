// Command tenon-descheduler moves pods to other nodes, one safe step after the other.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/tenon-project/tenon/internal/desched/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := app.NewCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		os.Exit(1) // cobra has printed it
	}
}
