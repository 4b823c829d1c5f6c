package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// workflow is what the tests read of a workflow of GitHub Actions.
type workflow struct {
	Permissions map[string]string `json:"permissions"`
	Jobs        map[string]struct {
		Timeout int `json:"timeout-minutes"`
		Steps   []struct {
			Uses string            `json:"uses"`
			Run  string            `json:"run"`
			Env  map[string]string `json:"env"`
		} `json:"steps"`
	} `json:"jobs"`
}

var (
	pinned     = regexp.MustCompile(`^[a-z-]+/[a-z-]+@[0-9a-f]{40}$`)
	makeTarget = regexp.MustCompile(`\bmake ([a-z-]+)`)
)

// Workflows do what make does on any machine: their actions are pinned, their targets exist, and no expression stands
// in a script, where the name of a branch would be run.
func TestWorkflowsArePinnedAndRunTargetsThatExist(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../.github/workflows/*.yaml")
	if err != nil || len(files) != 2 {
		t.Fatalf("workflows: %v, %v, want 2", files, err)
	}
	targets := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var w workflow
		if err := yaml.Unmarshal(text, &w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(w.Permissions) == 0 {
			t.Errorf("%s: the token has the default permissions", file)
		}
		for name, job := range w.Jobs {
			if job.Timeout == 0 {
				t.Errorf("%s: the job %s has no time limit", file, name)
			}
			for _, step := range job.Steps {
				if step.Uses != "" && !pinned.MatchString(step.Uses) {
					t.Errorf("%s: %q is not pinned by its commit", file, step.Uses)
				}
				if strings.Contains(step.Run, "${{") {
					t.Errorf("%s: an expression stands in the script %q: pass it by env", file, step.Run)
				}
				for _, found := range makeTarget.FindAllStringSubmatch(step.Run, -1) {
					targets[found[1]] = true
					if !strings.Contains("\n"+string(makefile), "\n"+found[1]+":") {
						t.Errorf("%s: the Makefile has no target %q", file, found[1])
					}
				}
			}
		}
	}
	for _, target := range []string{"test", "test-node", "release", "push"} {
		if !targets[target] {
			t.Errorf("no workflow runs make %s", target)
		}
	}
}
