package event

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
)

// Reason is the reason of an Event. Its name never changes its meaning.
type Reason uint8

// Entry describes one Reason. It stands in reasons.json, under its name.
type Entry struct {
	// Name is the reason of the Event, in CamelCase.
	Name string
	// From is the program that sends the Event.
	From string
	// On is the kind of the objects that the Event is about.
	On string
	// Normal Events need no action; the others are Warnings.
	Normal bool
	// Condition is true where the condition tenon.sh/Name of the Node is True while the situation lasts.
	Condition bool
	Texts
}

// Texts are what a user reads about a Reason, in whole sentences.
type Texts struct {
	// Means is what happened.
	Means string
	// Does is what the program does then. "" where it does nothing more.
	Does string
	// Do is what a user does. "" where nothing is to be done.
	Do string
}

var (
	// reasonsJSON has the Entry of each Reason, in the order of the reasons.
	//go:embed reasons.json
	reasonsJSON []byte
	entries     = decodeReasons()
)

// decodeReasons reads the entries of all reasons, once at the start of a program. Unknown fields are a broken build.
func decodeReasons() (entries [numReasons]Entry) {
	d := json.NewDecoder(bytes.NewReader(reasonsJSON))
	d.DisallowUnknownFields()
	_, err := d.Token()
	for i := 1; err == nil && i < len(entries); i++ {
		var name json.Token
		if name, err = d.Token(); err == nil {
			err = d.Decode(&entries[i])
			entries[i].Name = fmt.Sprint(name)
		}
	}
	if err != nil {
		panic(fmt.Sprintf("event: reasons.json is part of the program: %v", err))
	}
	return entries
}

// Left is the reason of the condition NodeLeft once the agent is not needed any more.
const Left = "Left"

// String returns the name.
func (r Reason) String() string { return entries[r].Name }

// Entry returns what the list says of r.
func (r Reason) Entry() Entry { return entries[r] }

// Condition returns the type of the Node's condition.
func (r Reason) Condition() string { return "tenon.sh/" + entries[r].Name }

// Type returns the type of r's Events.
func (r Reason) Type() string {
	if entries[r].Normal {
		return "Normal"
	}
	return "Warning"
}

// Parse returns the Reason with a name; ok is false when there is none.
func Parse(name string) (r Reason, ok bool) {
	for i := range entries {
		if i > 0 && entries[i].Name == name {
			return Reason(i), true
		}
	}
	return 0, false
}

// List returns the entries in the order of the reference: by program, then by object.
func List() []Entry { return entries[1:] }
