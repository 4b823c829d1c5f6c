// Command tenon-scheduler is kube-scheduler with Tenon's plugins.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/component-base/logs"

	"github.com/tenon-project/tenon/internal/sched/app"
	_ "github.com/tenon-project/tenon/internal/sched/firstgc" // a start without collections of a small heap
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer logs.FlushLogs()
	if err := app.NewCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "tenon-scheduler:", err)
		logs.FlushLogs()
		os.Exit(1)
	}
}
