package operator

import (
	"embed"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed cases
var files embed.FS

// Node is the node of the cases: 64 CPUs, named n0.
const Node = `{apiVersion: v1, kind: Node, metadata: {name: n0, labels: {kubernetes.io/hostname: n0, ` +
	`kubernetes.io/os: linux}}, status: {allocatable: {cpu: "64", memory: 256Gi, pods: "110"}}}`

// Case is one manifest.
type Case struct {
	Name string
	// Want counts the pods of each state as tenon simulate prints them, "0" for no pod, and "refused" for a manifest
	// of which the API server refuses an object.
	Want string
	// Apart is why a cluster cannot be asked the same, "" for a case that is compared with one.
	Apart string
	Text  string
}

// Cases returns all manifests.
func Cases() (out []Case, err error) {
	names, err := files.ReadDir("cases")
	if err != nil {
		return nil, err
	}
	for _, f := range names {
		text, err := files.ReadFile("cases/" + f.Name())
		if err != nil {
			return nil, err
		}
		for _, part := range strings.Split("\n"+string(text), "\n### ")[1:] {
			head, body, _ := strings.Cut(part, "\n")
			name, want, _ := strings.Cut(head, " | ")
			want, apart, _ := strings.Cut(want, " | ")
			out = append(out, Case{name, want, apart, body})
		}
	}
	return out, nil
}

// Objects returns the objects of a case: the items of a list instead of the list.
func (c Case) Objects() (out []map[string]any, err error) {
	for _, doc := range strings.Split("\n"+c.Text, "\n---") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			return nil, err
		}
		kind, _ := o["kind"].(string)
		items, isList := o["items"].([]any)
		if !isList && o != nil {
			out = append(out, o)
		}
		for _, item := range items {
			one := item.(map[string]any)
			if one["kind"] == nil {
				one["apiVersion"], one["kind"] = o["apiVersion"], strings.TrimSuffix(kind, "List")
			}
			out = append(out, one)
		}
	}
	return out, nil
}
