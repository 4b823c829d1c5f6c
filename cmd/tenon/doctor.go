package main

import (
	"github.com/tenon-project/tenon/internal/agent/doctor"
	"github.com/tenon-project/tenon/internal/cli"
	"github.com/tenon-project/tenon/internal/view"
)

// doctors examine for the verb doctor.
var doctors = cli.Doctor{
	Machine: examineMachine,
	Node: func(o cli.NodeObjects) view.Diagnosis {
		return view.NewDiagnosis("node "+o.Node.Name, doctor.Node(doctor.NodeView(o)))
	},
}
