// Command tenon-runtime-proxy stands between a kubelet and a container runtime without NRI.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/tenon-project/tenon/internal/agent/criproxy/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := app.NewCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		os.Exit(1) // cobra has printed it
	}
}
