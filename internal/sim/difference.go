package sim

import (
	"fmt"
	"maps"
	"reflect"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/sched/journal"
)

// Difference is the first decision that is not the recorded one.
type Difference struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Gen      uint64 `json:"gen"`
	Pod      string `json:"pod"`
	Field    string `json:"field"`
	Recorded string `json:"recorded"`
	Replayed string `json:"replayed"`
}

// differs returns the first field in which two decisions differ.
func differs(recorded, got *journal.Decision) *Difference {
	if got == nil {
		return &Difference{Field: "decision", Recorded: "the pod was tried", Replayed: "the pod is not in the queue"}
	}
	for _, field := range []struct {
		name           string
		recorded, made any
	}{
		{"pod", recorded.Pod, got.Pod},
		{"node", recorded.Node, got.Node},
		{"refused", recorded.Refused, got.Refused},
		{"nominated", recorded.Nominated, got.Nominated},
		{"patch", withoutTime(recorded.Patch), withoutTime(got.Patch)},
		{"score", recorded.Best, got.Best},
		{"scores", recorded.Scores, got.Scores},
	} {
		if field.name == "scores" && (len(recorded.Scores) == 0 || len(got.Scores) == 0) {
			continue // of many equal nodes three are kept
		}
		if !reflect.DeepEqual(field.recorded, field.made) {
			return &Difference{
				Field: field.name, Recorded: fmt.Sprint(field.recorded), Replayed: fmt.Sprint(field.made),
			}
		}
	}
	return nil
}

// withoutTime returns a patch without the time at which it was made.
func withoutTime(patch map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, patch)
	delete(out, annotation.BindTimestampKey)
	return out
}
