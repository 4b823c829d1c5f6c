package kube

import (
	"encoding/json"
	"testing"
)

// TestWhatIsReadOfAnExplanation: the question, and who has answered it, whatever else its fields are.
func TestWhatIsReadOfAnExplanation(t *testing.T) {
	t.Parallel()
	const metadata = `{"metadata": {"name": "q", "managedFields": [{}]}, "spec": `
	const spec = `{"questionObjectKey": "ns/p"}`
	for name, c := range map[string]struct {
		text, asks, said string
		answered         bool
	}{
		"no status": {metadata + spec + `}`, "ns/p", "", false},
		"an answer": {
			metadata + spec + `, "status": {"failedMessage": "no", "lastUpdateTime": "2026-01-02T03:04:05Z"}}`,
			"ns/p", "no", true,
		},
		"an answer with a list": {
			metadata + spec + `, "status": {"schedulable": [], "lastUpdateTime": "2026-01-02T03:04:05Z"}}`,
			"ns/p", "", true,
		},
		"a time that is none": {
			metadata + spec + `, "status": {"failedMessage": "no", "lastUpdateTime": "now"}}`,
			"ns/p", "no", true,
		},
		"a spec that is none": {metadata + `{"questionObjectKey": "ns/p", "ttl": 1}}`, "", "", false},
	} {
		text := json.RawMessage(c.text)
		o := readExplanation(&text)
		if o.Name != "q" || o.ManagedFields != nil || o.Spec.QuestionObjectKey != c.asks ||
			o.Status.FailedMessage != c.said || (o.Status.LastUpdateTime != nil) != c.answered {
			t.Errorf("%s: got %+v", name, o)
		}
	}
}
