package cli

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/agent/doctor"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// examiner examines nodes alone.
type examiner struct{ Examiner }

func (examiner) Node(o convert.NodeObjects) view.Diagnosis {
	return view.NewDiagnosis("node "+o.Node.Name, doctor.Node(doctor.NodeView(o)))
}

// doctors are those of the command.
var doctors = Doctor{
	Machine: func(ctx context.Context, root, agent string) (view.Diagnosis, error) {
		return doctor.OfMachine(ctx, host.Root{Dir: root}, agent)
	},
	GPUs: func(ctx context.Context, root string) (view.Diagnosis, error) {
		return doctor.OfGPUs(ctx, host.Root{Dir: root})
	},
	API:      examiner{},
	Warnings: func(pod *corev1.Pod) []string { return admission.Create(pod, nil).Warnings },
}
