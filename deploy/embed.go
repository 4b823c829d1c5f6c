package deploy

import (
	"bytes"
	"embed"
	"io/fs"
)

//go:embed agent/*.yaml crds/*.yaml priority/*.yaml rbac/*.yaml webhooks/*.yaml
var files embed.FS

// CRDs returns the CustomResourceDefinitions, one YAML document each.
func CRDs() [][]byte { return read("crds") }

// PriorityClasses returns the four classes of Koordinator, one YAML document each.
func PriorityClasses() [][]byte { return read("priority") }

// RBAC returns the namespace, service accounts, roles and bindings of Tenon's processes, and the admission policy that
// keeps an agent to its own node: one YAML document each, in an order in which they can be applied.
func RBAC() [][]byte { return read("rbac") }

// Webhooks returns the webhook configurations, one YAML document each. Their clientConfig names the service; it has no
// CA bundle.
func Webhooks() [][]byte { return read("webhooks") }

// Agent returns the agent's DaemonSet, one YAML document. Its namespace is that of the RBAC manifests.
func Agent() [][]byte { return read("agent") }

// read returns the documents of a folder, by file name, then position.
func read(dir string) [][]byte {
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		panic(err) // the folder is part of the binary
	}
	var docs [][]byte
	for _, e := range entries {
		text, err := files.ReadFile(dir + "/" + e.Name())
		if err != nil {
			panic(err)
		}
		for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
			docs = append(docs, bytes.TrimPrefix(doc, []byte("---\n")))
		}
	}
	return docs
}
