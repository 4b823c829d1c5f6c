package command_test

import (
	"bytes"
	gojson "encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/agent/command"
	"github.com/tenon-project/tenon/internal/agent/doctor"
)

func TestDoctorReportsFailuresByItsExitCode(t *testing.T) {
	t.Parallel()
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		c := command.New(nil)
		c.SetOut(&out)
		c.SetErr(&bytes.Buffer{})
		c.SetArgs(append([]string{"doctor"}, args...))
		err := c.ExecuteContext(t.Context())
		return out.String(), err
	}
	out, err := run("--root", t.TempDir(), "-o", "json")
	var code interface{ ExitCode() int }
	if !errors.As(err, &code) || code.ExitCode() != 5 {
		t.Errorf("an empty machine: %v, want exit code 5", err)
	}
	var d doctor.Diagnosis
	if err := gojson.Unmarshal([]byte(out), &d); err != nil || d.Kind != "Diagnosis" || len(d.Findings) == 0 {
		t.Errorf("answer %s: %v", out, err)
	}
	if _, err := run("-o", "xml"); err == nil || !strings.Contains(err.Error(), `output "xml": want table or json`) {
		t.Errorf("an unknown format: %v", err)
	}
	if _, err := run("--root", "/nonexistent"); err == nil || errors.As(err, &code) {
		t.Errorf("no machine: %v", err)
	}
}
