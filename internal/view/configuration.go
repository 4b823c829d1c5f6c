package view

// Configuration is what a process runs with.
type Configuration struct {
	// Settings are all values in force, sorted by field.
	Settings []Setting `json:"settings"`
	// Gates are those that differ from the defaults of Kubernetes, sorted by name.
	Gates []Gate `json:"gates"`
}

// Setting is one value in force. Origin is "default", FILE:LINE or the flag. A list has its items by name where they
// have names. Field is the flag itself where no field of a file is the same.
type Setting struct {
	Field  string `json:"field"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// Gate is a feature gate. Origin is the flag, or "Tenon" for a default of Tenon.
type Gate struct {
	Name    string `json:"name"`
	Enabled bool   `json:"enabled"`
	Default bool   `json:"default"`
	// Stage is how far the feature is, such as ALPHA.
	Stage  string `json:"stage"`
	Origin string `json:"origin"`
}
