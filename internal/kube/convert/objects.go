package convert

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	scheduling "github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/quota"
)

// ClusterObjects is what the API says of a cluster that is to get Tenon.
type ClusterObjects struct {
	// Version is the API server's, as in v1.36.3.
	Version string
	// Policies says that the API server serves ValidatingAdmissionPolicies.
	Policies bool
	Nodes    []corev1.Node
	// Cgroups are the versions of cgroups, as in 2, that kubelets report, by node. Of nodes with equal systems one is
	// asked.
	Cgroups map[string]string
	// CRDs are the CustomResourceDefinitions, by name, with the Helm release NAMESPACE/NAME of each; "" for none.
	CRDs map[string]string
	// Programs are the names of DaemonSets and Deployments, as NAMESPACE/NAME.
	Programs []string
	// Namespace is where Tenon is to be installed; without a UID it does not exist.
	Namespace corev1.Namespace
	// Denied is what the caller may not do, and an installation does.
	Denied []string
}

// WorkloadObjects is what the API says of pods and of what operators and Kueue write for them.
type WorkloadObjects struct {
	Pods   []corev1.Pod
	Quotas []quota.Spec
	// PodGroups are those of scheduling.x-k8s.io, which operators write.
	PodGroups []scheduling.PodGroup
	// MPIJobs are of kubeflow.org/v2beta1, VolcanoJobs of batch.volcano.sh, Workloads those of Kueue.
	MPIJobs, VolcanoJobs, Workloads []unstructured.Unstructured
}

// NodeObjects is what the API says of a node.
type NodeObjects struct {
	Node *corev1.Node
	// Topology is nil where the node has none; Written is when it was last written.
	Topology *v1alpha2.NodeResourceTopology
	Written  time.Time
	// Device is nil where the node has none.
	Device *devicev1alpha1.Device
	// Agent is the agent's pod on the node; nil where there is none. AgentUnknown says why it could not be looked for.
	Agent        *corev1.Pod
	AgentUnknown error
	// Slices are the ResourceSlices of the cluster, Account is that of the node. Twice names each card that a claim and
	// a pod have. ClaimsUnknown says why these could not be read.
	Slices        []resourcev1.ResourceSlice
	Account       *ledger.View
	Twice         []string
	ClaimsUnknown error
	Now           time.Time
}
