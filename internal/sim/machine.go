package sim

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// Machines are the machines that --machine adds.
type Machines struct {
	// Objects returns the objects of the machines that the values of --machine name. The error of a value that is not
	// allowed has an exit code.
	Objects func(specs []string) ([]runtime.Object, error)
	// Presets are the names of the built-in machines, which a shell completes.
	Presets []string
}

func (m Machines) documents(specs []string) ([]document, error) {
	objects, err := m.Objects(specs)
	if err != nil {
		return nil, fmt.Errorf("--machine: %w", err)
	}
	docs := make([]document, 0, len(objects))
	for i, o := range objects {
		text, err := json.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("--machine: encode %T: %w", o, err)
		}
		docs = append(docs, document{origin{file: "--machine", document: i + 1}, text})
	}
	return docs, nil
}
