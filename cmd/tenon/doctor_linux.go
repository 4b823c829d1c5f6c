package main

import (
	"context"

	"github.com/tenon-project/tenon/internal/agent/doctor"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/view"
)

func examineMachine(ctx context.Context, root, agent string) (view.Diagnosis, error) {
	return doctor.OfMachine(ctx, host.Root{Dir: root}, agent)
}

func examineGPUs(ctx context.Context, root string) (view.Diagnosis, error) {
	return doctor.OfGPUs(ctx, host.Root{Dir: root})
}
