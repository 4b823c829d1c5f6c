package datadir

import (
	"errors"
	"path/filepath"
)

// Node is a simulated machine of the cluster.
type Node struct {
	Name string `json:"name"`
	// Machine is a machine spec without a count, such as epyc-2s@static.
	Machine string `json:"machine"`
}

// SavedNodes returns the machines of the last start, none where there was none.
func (d Dir) SavedNodes() ([]Node, error) {
	var nodes []Node
	if err := d.readJSON("nodes.json", &nodes); err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if n.Name == "" || n.Machine == "" {
			return nil, &Corrupt{File: d.path("nodes.json"), Err: errors.New("a node without a name or a machine")}
		}
	}
	return nodes, nil
}

// SaveNodes keeps the machines for the processes of this start and for the next one.
func (d Dir) SaveNodes(nodes []Node) error { return d.writeJSON("nodes.json", nodes) }

// Node returns the folder of a simulated machine's tree.
func (d Dir) Node(name string) string { return filepath.Join(d.Nodes(), name) }
