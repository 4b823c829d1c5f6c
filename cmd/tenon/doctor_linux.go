package main

import (
	"context"

	"github.com/tenon-project/tenon/internal/agent/doctor"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/cli"
)

func examineMachine(ctx context.Context, root, agent string) (cli.Diagnosis, error) {
	d, err := doctor.OfMachine(ctx, host.Root{Dir: root}, agent)
	return &d, err
}
