package deploy

import (
	"bytes"
	"embed"
	"io/fs"
	"strings"
)

//go:embed manifests/*.yaml
var files embed.FS

// ShadowRules are the rules of the ClusterRole with which tenon shadow reads a cluster, a YAML list.
//
//go:embed chart/files/roles/shadow.yaml
var ShadowRules string

// CRDs returns the CustomResourceDefinitions, one YAML document each.
func CRDs() [][]byte { return read("CustomResourceDefinition") }

// PriorityClasses returns the four classes of Koordinator, one YAML document each.
func PriorityClasses() [][]byte { return read("PriorityClass") }

// RBAC returns the namespace, service accounts, roles and bindings of Tenon's processes, and the admission policies
// that keep an agent to its own node: one YAML document each, in an order in which they can be applied.
func RBAC() [][]byte {
	return read("Namespace", "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
}

// Webhooks returns the webhook configurations, one YAML document each, for the pods of schedulers with the names;
// without a name, of those that the chart serves and trusts by default. Their clientConfig names the service; it has no
// CA bundle.
func Webhooks(schedulers ...string) [][]byte {
	docs := read("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
	for i := range docs {
		if len(schedulers) > 0 {
			docs[i] = bytes.ReplaceAll(docs[i], []byte("['tenon-scheduler', 'koord-scheduler']"),
				[]byte("['"+strings.Join(schedulers, "', '")+"']"))
		}
	}
	return docs
}

// Agent returns the agent's DaemonSet, one YAML document. Its namespace is that of the RBAC manifests.
func Agent() [][]byte { return read("DaemonSet") }

// Workloads returns scheduler, manager and descheduler: their Deployments, and what belongs to those, one YAML document
// each.
func Workloads() [][]byte {
	return read("Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy")
}

// read returns the documents of the kinds, in the order of the kinds, then of the file names.
func read(kinds ...string) [][]byte {
	entries, err := fs.ReadDir(files, "manifests")
	if err != nil {
		panic(err) // the folder is part of the binary
	}
	var docs [][]byte
	for _, kind := range kinds {
		for _, e := range entries {
			text, err := files.ReadFile("manifests/" + e.Name())
			if err != nil {
				panic(err)
			}
			for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
				if bytes.Contains(doc, []byte("\nkind: "+kind+"\n")) {
					docs = append(docs, doc)
				}
			}
		}
	}
	return docs
}
