package event

// Reason is the reason of an Event. Its name never changes its meaning.
type Reason uint8

// Entry describes one Reason.
type Entry struct {
	Name string
	// From is the program that sends the Event.
	From string
	// On is the kind of the objects that the Event is about.
	On string
	// Normal Events need no action; the others are Warnings.
	Normal bool
	// Condition is true where the condition tenon.sh/Name of the Node is True while the situation lasts.
	Condition bool
	// Means says what happened, Does what the program does then, Do what a user does.
	Means, Does, Do string
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
