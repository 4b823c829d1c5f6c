package machine

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
)

// presetsJSON has the machines that have a name. It is part of the program.
//
//go:embed presets.json
var presetsJSON []byte

// Presets returns the machines that have a name, in the order in which they are listed to people.
func Presets() []Description { return slices.Clone(presets()) }

var presets = sync.OnceValue(func() (all []Description) {
	var list []struct {
		Name, Summary string
		Arch, Model   string // of the CPUs
		Shape         shape
		Board         board
	}
	d := json.NewDecoder(bytes.NewReader(presetsJSON))
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil {
		panic(fmt.Sprintf("machine: presets.json: %v", err))
	}
	for _, p := range list {
		all = append(all, Description{
			Name: p.Name, Summary: p.Summary, arch: p.Arch, model: p.Model, shape: p.Shape, board: p.Board,
		})
	}
	return all
})
