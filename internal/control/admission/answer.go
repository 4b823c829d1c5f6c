package admission

import (
	"fmt"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Refusal is one rule that an object breaks.
type Refusal struct {
	Code  why.Code
	Field string
	// Text names the rule and, where there is a choice, the allowed values.
	Text string
}

// String returns the field and the text.
func (r Refusal) String() string { return r.Field + ": " + r.Text }

// Answer is what a webhook says. An object without refusals is admitted.
type Answer struct {
	Refusals []Refusal
	Warnings []string
}

// Allowed reports whether the object is admitted.
func (a *Answer) Allowed() bool { return len(a.Refusals) == 0 }

func (a *Answer) refuse(code why.Code, field, format string, args ...any) {
	a.Refusals = append(a.Refusals, Refusal{Code: code, Field: field, Text: fmt.Sprintf(format, args...)})
}

func (a *Answer) warn(field, format string, args ...any) {
	a.Warnings = append(a.Warnings, field+": "+fmt.Sprintf(format, args...))
}

// values takes over the warnings of an annotation's reader.
func (a *Answer) values(field string, warnings []annotation.Warning) {
	for _, w := range warnings {
		a.warn(field, "%s", w)
	}
}

func labelField(key string) string      { return "metadata.labels[" + key + "]" }
func annotationField(key string) string { return "metadata.annotations[" + key + "]" }

func indexed(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }
