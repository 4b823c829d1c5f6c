package why

import (
	"encoding/json"
	"fmt"
)

// Wire is an obstacle as JSON: what explain, simulate, the diagnostics API and the console show.
type Wire struct {
	Code    Code           `json:"code"`
	Class   string         `json:"class"`
	Plugin  string         `json:"plugin,omitempty"`
	Phase   string         `json:"phase,omitempty"`
	Nodes   int            `json:"nodes,omitempty"`
	Example string         `json:"example,omitempty"`
	Where   string         `json:"where,omitempty"`
	Params  map[string]any `json:"params,omitempty"`
	Message string         `json:"message"`
	// Do is the remedy, in the answers of explain.
	Do string `json:"do,omitempty"`
}

// Advised returns w with the remedy of its code.
func (w Wire) Advised() Wire {
	w.Do = w.Code.Entry().Remedy
	return w
}

// Wire returns the JSON form of o.
func (o Obstacle) Wire() Wire {
	return Wire{
		Code: o.Code, Class: o.Code.Class().String(), Plugin: o.Plugin, Phase: o.Phase.String(),
		Nodes: o.Nodes, Example: o.Object, Where: o.Where.String(), Params: o.Params(), Message: o.Phrase(),
	}
}

// Phrase is the plugin's own text for codes of upstream plugins, else the registry's text, followed by the detail
// where there is one.
func (f Finding) Phrase() string {
	text := f.Reason.Text()
	switch {
	case f.Detail == "":
		return text
	case f.Code.Entry().Upstream:
		return f.Detail
	}
	return text + ": " + f.Detail
}

// Params returns the numbers of r under their JSON names; nil when the code has none.
func (r Reason) Params() map[string]any {
	e := r.Code.Entry()
	params := map[string]any{}
	if e.Amount {
		if r.Resource != NoResource {
			params["resource"] = string(r.Resource)
		}
		if r.Unit != NoUnit && r.Asked != 0 {
			params["unit"] = r.Unit.String()
		}
	}
	if e.Amount && r.Asked != 0 {
		params["free"] = r.Free
	}
	if r.Asked != 0 {
		params["asked"] = r.Asked
	}
	if e.Extra != "" && r.Extra != 0 {
		params[e.Extra] = r.Extra
	}
	if len(params) == 0 {
		return nil
	}
	return params
}

// Flat is the compact JSON at the end of a message: code, nodes and parameters side by side.
func (o Obstacle) Flat() string {
	text := fmt.Sprintf(`{"code":%q`, o.Code)
	if o.Nodes > 0 {
		text += fmt.Sprintf(`,"nodes":%d`, o.Nodes)
	}
	if params := o.Params(); params != nil {
		tail, err := json.Marshal(params) // sorted by key
		if err != nil {
			panic(fmt.Sprintf("why: numbers and names always encode: %v", err))
		}
		text += "," + string(tail[1:len(tail)-1])
	}
	if where := o.Where.String(); where != "" {
		text += fmt.Sprintf(`,"where":%q`, where)
	}
	return text + "}"
}
