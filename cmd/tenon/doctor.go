package main

import (
	"context"

	"github.com/tenon-project/tenon/internal/agent/doctor"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/cli"
)

// doctors examine for the verb doctor.
var doctors = cli.Doctor{
	Machine: func(ctx context.Context, root, agent string) (cli.Diagnosis, error) {
		d, err := doctor.OfMachine(ctx, host.Root{Dir: root}, agent)
		return &d, err
	},
	Node: func(o cli.NodeObjects) cli.Diagnosis {
		d := doctor.NewDiagnosis("node "+o.Node.Name, doctor.Node(doctor.NodeView(o)))
		return &d
	},
}
