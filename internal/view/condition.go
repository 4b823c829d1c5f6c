package view

import (
	"encoding/json"
	"strings"

	"github.com/tenon-project/tenon/internal/core/why"
)

// FromObject explains a pod by what its object says, for when no scheduler can be asked: its gates, and the condition
// that the scheduler left.
func FromObject(s Subject) Pod {
	out := s.Head
	out.Data = Data{Source: "objects"}
	switch out.State {
	case Gated:
		out.RootCause = wire(why.SchedulingGate, why.PreEnqueue, s.gateText())
		out.RootCause.Plugin = "SchedulingGates"
	case Pending:
		out.RootCause = fromCondition(s.Said)
	}
	if out.RootCause != nil {
		*out.RootCause = out.RootCause.Advised()
		out.Obstacles = append(out.Obstacles, *out.RootCause)
	}
	return out
}

// fromCondition reads the scheduler's last message. It ends in the JSON of the root cause; a message of another
// scheduler has none, and is shown as it is.
func fromCondition(said *string) *why.Wire {
	if said == nil {
		return wire(why.NotAttempted, why.PreEnqueue, "no scheduler has said anything about the pod yet")
	}
	if w, ok := parseMessage(*said); ok {
		return &w
	}
	return wire(why.UpstreamFilter, why.Filter, *said)
}

func wire(code why.Code, phase why.Phase, message string) *why.Wire {
	return &why.Wire{Code: code, Class: code.Class().String(), Phase: phase.String(), Message: message}
}

// parseMessage reads "<Code>: <text> <JSON>".
func parseMessage(message string) (why.Wire, bool) {
	head, rest, ok := strings.Cut(message, ": ")
	code, known := why.ParseCode(head)
	if !ok || !known {
		return why.Wire{}, false
	}
	w := why.Wire{Code: code, Class: code.Class().String(), Message: rest}
	at := strings.LastIndex(rest, " {")
	var tail map[string]any
	if at < 0 || json.Unmarshal([]byte(rest[at+1:]), &tail) != nil {
		return w, true
	}
	w.Message = rest[:at]
	nodes, _ := tail["nodes"].(float64)
	w.Nodes = int(nodes)
	w.Where, _ = tail["where"].(string)
	delete(tail, "code")
	delete(tail, "nodes")
	delete(tail, "where")
	if len(tail) > 0 {
		w.Params = tail
	}
	return w, true
}
