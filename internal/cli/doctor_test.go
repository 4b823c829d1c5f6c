package cli

import (
	"context"

	"github.com/tenon-project/tenon/internal/agent/doctor"
	"github.com/tenon-project/tenon/internal/agent/host"
)

// doctors are those of the command.
var doctors = Doctor{
	Machine: func(ctx context.Context, root, agent string) (Diagnosis, error) {
		d, err := doctor.OfMachine(ctx, host.Root{Dir: root}, agent)
		return &d, err
	},
	Node: func(o NodeObjects) Diagnosis {
		d := doctor.NewDiagnosis("node "+o.Node.Name, doctor.Node(doctor.NodeView(o)))
		return &d
	},
}
