package main

import (
	"github.com/tenon-project/tenon/internal/agent/doctor"
	"github.com/tenon-project/tenon/internal/cli"
)

// doctors examine for the verb doctor.
var doctors = cli.Doctor{
	Machine: examineMachine,
	Node: func(o cli.NodeObjects) cli.Diagnosis {
		d := doctor.NewDiagnosis("node "+o.Node.Name, doctor.Node(doctor.NodeView(o)))
		return &d
	},
}
