package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
)

// takeoverFile keeps the moment of take-over below the Root: pods that a static kubelet pinned before it keep their CPUs,
// over restarts of the agent too.
const takeoverFile = "var/lib/tenon-agent/takeover.json"

// takeoverSince returns when take-over phase 2 began on this node: what the file says, else the published annotation,
// else now, when it begins. The answer is kept in the file. A published moment in the future is not believed.
func takeoverSince(root host.Root, published string, now time.Time) (since metav1.Time, begins bool, err error) {
	file := root.Path(takeoverFile)
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return metav1.Time{}, false, fmt.Errorf("read the moment of take-over: %w", err)
	}
	for _, candidate := range []string{string(text), published} {
		t, _, err := annotation.ParseTakeover(candidate)
		if err == nil && !t.Since.IsZero() && !t.Since.After(now) {
			return t.Since, false, keepTakeover(file, t.Since)
		}
	}
	since = metav1.NewTime(now.Truncate(time.Second)) // as the annotation has it
	err = keepTakeover(file, since)
	return since, err == nil, err
}

func keepTakeover(file string, since metav1.Time) error {
	if err := keepFile(file, annotation.Takeover{Phase: 2, Since: since}.String()); err != nil {
		return fmt.Errorf("keep the moment of take-over: %w", err)
	}
	return nil
}

// forgetTakeover ends a take-over: the kubelet pins no CPUs any more, or it is the one again who does.
func forgetTakeover(root host.Root) error {
	if err := os.Remove(root.Path(takeoverFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the moment of take-over: %w", err)
	}
	return nil
}
