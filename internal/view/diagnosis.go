package view

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// CheckStatus is how a check came out.
type CheckStatus string

// Statuses, from best to worst for a reader who wants to know what to do.
const (
	CheckOK      CheckStatus = "ok"
	CheckUnknown CheckStatus = "unknown" // it could not be looked at
	CheckWait    CheckStatus = "wait"    // it is under way and ends by itself
	CheckWarn    CheckStatus = "warn"    // it works, with less than could be
	CheckFail    CheckStatus = "fail"    // pods do not get what was promised to them
)

// Finding is what one check found.
type Finding struct {
	// Check is a stable name such as "nri".
	Check  string      `json:"check"`
	Status CheckStatus `json:"status"`
	// Found is the value that was met; Where the file, process or field that has it.
	Found string `json:"found"`
	Where string `json:"where,omitempty"`
	// Why says what follows from it, Remedy what to do; both are empty where all is well.
	Why    string `json:"why,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

// Diagnosis is the answer of a verb that checks.
type Diagnosis struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Subject    string    `json:"subject"`
	Findings   []Finding `json:"findings"`
}

// NewDiagnosis wraps findings for programs.
func NewDiagnosis(subject string, findings []Finding) Diagnosis {
	return Diagnosis{APIVersion: "cli.tenon.sh/v1", Kind: "Diagnosis", Subject: subject, Findings: findings}
}

// Healthy reports whether no check failed or waits.
func (d *Diagnosis) Healthy() bool {
	return !slices.ContainsFunc(d.Findings, func(f Finding) bool {
		return f.Status == CheckFail || f.Status == CheckWait
	})
}

// Print writes a table: a line for each finding, and below what is not well why that matters and what to do. In a
// terminal of that width (0: unlimited) texts are wrapped.
func (d *Diagnosis) Print(w io.Writer, width int) error {
	widest := 0
	for _, f := range d.Findings {
		widest = max(widest, len(f.Check))
	}
	var b strings.Builder
	b.WriteString(d.Subject + "\n")
	counts := map[CheckStatus]int{}
	for _, f := range d.Findings {
		counts[f.Status]++
		where := ""
		if f.Where != "" {
			where = " (" + f.Where + ")"
		}
		printHanging(&b, fmt.Sprintf("%-8s%-*s  ", f.Status, widest, f.Check), f.Found+where, width)
		label := fmt.Sprintf("%8s%-*s  ", "", widest, "")
		if f.Why != "" {
			printHanging(&b, label+"why ", f.Why, width)
		}
		if f.Remedy != "" {
			label += "do  "
			lines := []string{f.Remedy}
			if width > 0 {
				lines = wrapRemedy(f.Remedy, max(width-len(label), min(width, 20)))
			}
			for _, line := range lines {
				b.WriteString(label + line + "\n")
				label = strings.Repeat(" ", len(label))
			}
		}
	}
	fmt.Fprintf(&b, "%d ok, ", counts[CheckOK])
	if waits := counts[CheckWait]; waits > 0 {
		fmt.Fprintf(&b, "%d wait, ", waits)
	}
	fmt.Fprintf(&b, "%d unknown, %d warn, %d fail\n", counts[CheckUnknown], counts[CheckWarn], counts[CheckFail])
	_, err := io.WriteString(w, b.String())
	return err
}

// printHanging writes a text behind a label; lines that do not fit a terminal of that width begin below the text.
func printHanging(b *strings.Builder, label, text string, width int) {
	for _, line := range Wrap(text, " ", max(width-len(label), min(width, 20))) {
		b.WriteString(label + line + "\n")
		label = strings.Repeat(" ", len(label))
	}
}

// Because adds what follows from what was found, and what to do.
func (f Finding) Because(status CheckStatus, why, remedy string) Finding {
	f.Status, f.Why, f.Remedy = status, why, remedy
	return f
}
