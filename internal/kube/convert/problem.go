package convert

import (
	"fmt"
	"strings"
)

// Problem is something in an object that cannot be used and was left out, or whose effect is not what its writer
// expects.
type Problem struct {
	// Object is the kind and name, e.g. Node/n0.
	Object string
	// Key is the label, annotation or field; Value what it holds, cut to a length that fits a message.
	Key, Value string
	Text       string
	// Kind says what a reader does about it.
	Kind ProblemKind
}

// ProblemKind is a kind of Problem.
type ProblemKind uint8

// Kinds of problem.
const (
	// BadValue: treated as absent.
	BadValue ProblemKind = iota
	// BadNodeLabel: a node's policy label, treated as absent.
	BadNodeLabel
	// BadLabel: a label of another object, treated as absent.
	BadLabel
	// AliasConflict: key and alias differ; the canonical key counts.
	AliasConflict
	// BadTopology: the node's CPU topology contradicts itself.
	BadTopology
	// PartlyInForce: it counts, and not for all pods that it is about.
	PartlyInForce
)

// Field is where in the object the value stands: a label, an annotation or a field.
func (p Problem) Field() string {
	name, _, _ := strings.Cut(p.Key, "[")
	switch {
	case p.Kind == BadNodeLabel || p.Kind == BadLabel || p.Kind == AliasConflict || p.Kind == PartlyInForce:
		return "metadata.labels[" + p.Key + "]"
	case strings.Contains(name, "/"):
		return "metadata.annotations[" + p.Key + "]"
	}
	return p.Key
}

// String returns the object, the key and what is wrong.
func (p Problem) String() string { return fmt.Sprintf("%s: %s: %s", p.Object, p.Key, p.Text) }

const maxValue = 128

func cut(value string) string {
	if len(value) > maxValue {
		return value[:maxValue] + "…"
	}
	return value
}
