package rights

import "encoding/json"

// mustJSON is for objects that the tests made themselves.
func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
