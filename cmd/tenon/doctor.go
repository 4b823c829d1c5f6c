package main

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/deploy"
	"github.com/tenon-project/tenon/internal/agent/doctor"
	"github.com/tenon-project/tenon/internal/cli"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/journal"
	"github.com/tenon-project/tenon/internal/view"
)

// definitions are the names of the chart's CustomResourceDefinitions.
func definitions() (names []string) {
	for _, text := range deploy.CRDs() {
		var o metav1.PartialObjectMetadata
		utilruntime.Must(yaml.Unmarshal(text, &o)) // it is a part of the program
		names = append(names, o.Name)
	}
	return names
}

// examiner examines objects of the API.
type examiner struct{}

func (examiner) Node(o convert.NodeObjects) view.Diagnosis {
	return view.NewDiagnosis("node "+o.Node.Name, doctor.Node(doctor.NodeView(o)))
}

func (examiner) Cluster(o convert.ClusterObjects) view.Diagnosis {
	return view.NewDiagnosis("cluster before an installation in "+o.Namespace.Name,
		doctor.Cluster(doctor.ClusterView(o), definitions()))
}

func (examiner) Workloads(o convert.WorkloadObjects) view.Diagnosis {
	return view.NewDiagnosis("workloads", doctor.Workloads(doctor.WorkloadView(o)))
}

// doctors examine for the verb doctor.
var doctors = cli.Doctor{
	Machines: added(),
	Machine:  examineMachine,
	GPUs:     examineGPUs,
	API:      examiner{},
	Past:     journal.PastOf,
	Warnings: func(pod *corev1.Pod) []string { return admission.Create(pod, nil).Warnings },
}
