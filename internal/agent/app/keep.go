package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
)

// reportFile keeps, below the Root, the generation of what was published last: it grows over a restart also when the
// object was deleted meanwhile.
const reportFile = "var/lib/tenon-agent/report.json"

// keptReport returns the report that was kept last; the zero Report when there is none that can be read.
func keptReport(root host.Root) (annotation.Report, error) {
	text, err := os.ReadFile(root.Path(reportFile))
	if errors.Is(err, fs.ErrNotExist) {
		return annotation.Report{}, nil
	}
	if err != nil {
		return annotation.Report{}, fmt.Errorf("read the last generation: %w", err)
	}
	r, _, err := annotation.ParseReport(string(text))
	if err != nil {
		return annotation.Report{}, fmt.Errorf("read the last generation: %s: %w", root.Path(reportFile), err)
	}
	return r, nil
}

func keepReport(root host.Root, r annotation.Report) error {
	if err := keepFile(root.Path(reportFile), r.String()); err != nil {
		return fmt.Errorf("keep the generation: %w", err)
	}
	return nil
}

// keepFile makes a file hold a text, or leaves it as it was.
func keepFile(file, text string) error {
	if old, err := os.ReadFile(file); err == nil && string(old) == text {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	temporary := file + ".new"
	if err := os.WriteFile(temporary, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, file)
}
