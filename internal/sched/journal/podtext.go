package journal

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// textSize bounds the bytes of a podTexts.
const textSize = 4 << 20

// podTexts encodes pods. It remembers the JSON text of their parts, because pods of one workload are equal but for
// their names and UIDs. A part is found by its protocol buffer, which is encoded without reflection. The zero value is
// ready for use; it is not safe for concurrent use.
type podTexts struct {
	// byPart has JSON texts by the type of a part and its protocol buffer. size is the sum of all keys and texts; when
	// it would exceed textSize, all are forgotten.
	byPart map[string][]byte
	size   int
	// key of the last part, and what was recorded of the last pod, for reuse. last has no name and no UID.
	key  []byte
	last corev1.Pod
}

// part is a part of a pod. kind distinguishes parts of different types whose protocol buffers are equal.
type part interface {
	Size() int
	MarshalToSizedBuffer(to []byte) (int, error)
}

// append appends the JSON text of what an event records of a pod.
func (t *podTexts) append(out []byte, op string, pod *corev1.Pod) ([]byte, error) {
	t.last = recordedPod(op, pod)
	t.last.Name, t.last.UID = "", ""
	meta, err := t.text('m', &t.last.ObjectMeta)
	if err != nil {
		return nil, fmt.Errorf("encode the metadata of a pod: %w", err)
	}
	out = append(appendString(append(out, `{"metadata":{"name":`...), pod.Name), `,"uid":`...)
	out = appendString(out, string(pod.UID))
	if len(meta) > len("{}") {
		out = append(out, ',')
	}
	out = append(append(out, meta[1:]...), `,"spec":`...)
	spec, err := t.text('s', &t.last.Spec)
	if err != nil {
		return nil, fmt.Errorf("encode the spec of a pod: %w", err)
	}
	out = append(append(out, spec...), `,"status":`...)
	status, err := t.text('t', &t.last.Status)
	if err != nil {
		return nil, fmt.Errorf("encode the status of a pod: %w", err)
	}
	return append(append(out, status...), '}'), nil
}

// text returns the JSON text of a part. The caller does not change it.
func (t *podTexts) text(kind byte, p part) ([]byte, error) {
	size := p.Size()
	t.key = slices.Grow(t.key[:0], 1+size)[:1+size]
	t.key[0] = kind
	if _, err := p.MarshalToSizedBuffer(t.key[1:]); err != nil {
		return nil, err
	}
	if text, known := t.byPart[string(t.key)]; known {
		return text, nil
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	if t.size += len(t.key) + len(text); t.byPart == nil || t.size > textSize {
		t.byPart, t.size = map[string][]byte{}, len(t.key)+len(text)
	}
	t.byPart[string(t.key)] = text
	return text, nil
}

// appendString appends a string as JSON text.
func appendString(out []byte, s string) []byte {
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, _ := json.Marshal(s) // a string has no error
			return append(out, text...)
		}
	}
	return append(append(append(out, '"'), s...), '"')
}

// appendPodEvent appends the record of an event of a pod, as json.Marshal encodes it.
func (w *writer) appendPodEvent(out []byte, e *entry, pod *corev1.Pod) ([]byte, error) {
	out = strconv.AppendUint(append(out, `{"t":"`+EventType+`","gen":`...), e.gen, 10)
	at, err := e.at.MarshalJSON()
	if err != nil {
		return nil, err
	}
	out = appendString(append(append(append(out, `,"ts":`...), at...), `,"event":{"op":`...), e.op)
	out, err = w.pods.append(append(out, `,"kind":"Pod","object":`...), e.op, pod)
	return append(out, "}}"...), err
}
