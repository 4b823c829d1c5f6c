//go:build !nolocal

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kubectl/pkg/cmd"

	agent "github.com/tenon-project/tenon/internal/agent/command"
	"github.com/tenon-project/tenon/internal/agent/criproxy"
	proxy "github.com/tenon-project/tenon/internal/agent/criproxy/app"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/cli"
	manager "github.com/tenon-project/tenon/internal/control/app"
	descheduler "github.com/tenon-project/tenon/internal/desched/app"
	"github.com/tenon-project/tenon/internal/sim"
	"github.com/tenon-project/tenon/internal/sim/shadow"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/page"
)

// notRun are the programs of the pages that this test does not know, each with the reason.
var notRun = map[string]string{
	"helm":   "deploy: TestHelmKnowsTheCommandsOfThePages",
	"cosign": "reads what hack/tools/release signs, in its tests", "hack/kind.sh": "needs a container engine",
	"ctr": "imports images into the containerd of a node: test/e2e/node", "curl": "asks what serves on a cluster",
	"systemctl": "services of a node: test/e2e/node/guest", "sed": "files of a node", "rm": "files of a node",
	"git": "clones the repository", "grubby": "options of a node's boot",
	"ln": "files of a node", "mkdir": "files of a node", "cat": "files of a node", "cd": "the shell's",
	"export": "the shell's", "command": "the shell's", "sleep": "the shell's", "mktemp": "the shell's",
	"awk": "reads output", "grep": "reads output", "wc": "reads output", "tail": "reads output",
	"nvidia-smi": "needs a card", "mount": "needs a card's daemon", "unshare": "needs a card's daemon",
	"base64": "reads output", "openssl": "reads output", "sha256sum": "reads output",
}

// TestTheProgramsKnowTheCommandsOfThePages parses every command by the program itself: verbs, flags and numbers of
// arguments; files of JSON are read by the programs that they are for. test/manifests applies the manifests, deploy
// renders the values; the commands that page.Steps does not leave out are run by test/system and test/e2e/cluster.
func TestTheProgramsKnowTheCommandsOfThePages(t *testing.T) {
	programs := programsOfThePages()
	root := testkit.RepoRoot(t)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	testkit.Check(t, err)
	known, used := 0, map[string]bool{}
	for _, block := range page.Blocks(t) {
		switch block.Language {
		case "yaml", "text":
			continue
		case "json":
			err = readsJSON(t, block)
		case "toml":
			err = toml.Unmarshal([]byte(block.Text), new(any))
		default:
			err = nil
			if step, _ := page.Find(block); step.Scene == page.Picture || step.Command != "" {
				continue
			}
			folder := root
			for _, words := range block.Commands() {
				name := words[0]
				if name == "tenon" && len(words) > 1 && words[1] == "kubectl" {
					words, name = words[1:], "kubectl"
				}
				switch program := programs[name]; {
				case program != nil:
					err = accepts(program(), words[1:])
				case name == "make":
					err = hasTargets(string(makefile), words[1:])
				case name == "go" || name == "bash":
					err = hasFiles(folder, words[1:])
				case notRun[name] == "":
					err = fmt.Errorf("no test knows %s", name)
				}
				if name == "cd" {
					folder = filepath.Join(root, words[1])
				}
				if known++; err != nil {
					t.Errorf("%s: %s: %v", block, strings.Join(words, " "), err)
				}
				used[name], err = true, nil
			}
		}
		if err != nil {
			t.Errorf("%s: %v", block, err)
		}
	}
	for name := range notRun {
		if !used[name] {
			t.Errorf("%q is on no page", name)
		}
	}
	if known < 120 {
		t.Errorf("%d commands", known)
	}
}

// TestTheProgramsKnowTheCommandsInSentences looks for verbs and flags alone: arguments are left out there.
func TestTheProgramsKnowTheCommandsInSentences(t *testing.T) {
	programs, known := programsOfThePages(), 0
	optional := regexp.MustCompile(`[][]|\|[^] ]+`)
	for _, span := range page.Spans(t) {
		span.Text = optional.ReplaceAllString(span.Text, "")
		for _, words := range span.Commands() {
			if words[0] == "tenon" && len(words) > 1 && words[1] == "kubectl" ||
				words[0] == "kubectl" && len(words) > 1 && words[1] == "tenon" {
				words = words[1:]
			}
			program := programs[words[0]]
			if program == nil || len(words) == 1 {
				continue
			}
			known++
			c, rest, err := program().Find(words[1:])
			if err != nil {
				t.Errorf("%s: %s: %v", span, strings.TrimSpace(span.Text), err)
				continue
			}
			c.InitDefaultHelpFlag()
			c.InheritedFlags() // adds those of the commands above
			for _, word := range rest {
				name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
				long := strings.HasPrefix(word, "--")
				if !strings.HasPrefix(word, "-") || long && c.Flag(name) != nil ||
					!long && c.Flags().ShorthandLookup(name) != nil {
					continue
				}
				t.Errorf("%s: %s: %s has no flag %s", span, strings.TrimSpace(span.Text), c.CommandPath(), word)
			}
		}
	}
	if known < 100 {
		t.Errorf("%d commands", known)
	}
}

// TestSimulateHasNodesOnThePages: a file of pods alone is not enough, so each command gives nodes or names their
// source.
func TestSimulateHasNodesOnThePages(t *testing.T) {
	known := 0
	for _, block := range append(page.Blocks(t), page.Spans(t)...) {
		if block.Language == "yaml" || block.Language == "json" || block.Language == "text" {
			continue
		}
		for _, words := range block.Commands() {
			if len(words) < 3 || words[0] != "tenon" || words[1] != "simulate" {
				continue
			}
			known++
			if line := strings.Join(words, " "); !strings.Contains(line, "--machine") &&
				!strings.Contains(line, "--cluster") && !strings.Contains(line, "-f node.yaml") {
				t.Errorf("%s: %s has no nodes", block, line)
			}
		}
	}
	if known < 6 {
		t.Errorf("%d commands", known)
	}
}

// TestNoHelpTextBreaksMidSentence: a line of a paragraph is as long as the next word permits. Indented lines are
// tables.
func TestNoHelpTextBreaksMidSentence(t *testing.T) {
	const narrow, wide = 92, 120
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		lines := strings.Split(c.Long, "\n")
		for i, line := range lines {
			if utf8.RuneCountInString(line) > wide {
				t.Errorf("%s: wider than %d columns: %s", c.CommandPath(), wide, line)
			}
			if i+1 == len(lines) || line == "" || line[0] == ' ' || lines[i+1] == "" || lines[i+1][0] == ' ' {
				continue
			}
			next, _, _ := strings.Cut(lines[i+1], " ")
			if utf8.RuneCountInString(line+" "+next) <= narrow {
				t.Errorf("%s: a break in front of %q: %s", c.CommandPath(), next, line)
			}
		}
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	for _, program := range programsOfThePages() {
		if c := program(); c.Name() != "kubectl" {
			walk(c)
		}
	}
}

// programsOfThePages makes the command lines that the pages show.
func programsOfThePages() map[string]func() *cobra.Command {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	kubectl := func() *cobra.Command {
		return cmd.NewKubectlCommand(cmd.KubectlOptions{
			Arguments: []string{"kubectl"}, ConfigFlags: genericclioptions.NewConfigFlags(true), IOStreams: streams,
		})
	}
	tenon := func() *cobra.Command {
		return cli.NewRoot("tenon", streams, doctors, append(localVerbs(streams), sim.NewCommand(streams, machines()),
			sim.NewReplayCommand(streams), shadow.NewCommand(streams), cli.NewCheck(streams, checks()))...)
	}
	return map[string]func() *cobra.Command{
		"kubectl": kubectl, "tenon": tenon, "bin/tenon": tenon,
		"tenon-agent":   func() *cobra.Command { return agent.New(nil) },
		"tenon-manager": manager.NewCommand, "tenon-descheduler": descheduler.NewCommand,
		"tenon-runtime-proxy": proxy.NewCommand,
	}
}

// readsJSON reads a file of the page as the program does that it is for.
func readsJSON(t *testing.T, block page.Block) error {
	t.Helper()
	switch block.File {
	case "docs/reference/devices.md":
		root := host.Root{Dir: t.TempDir()}
		folder := root.Path(host.DropDirs()[0])
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, "devices.json"), []byte(block.Text), 0o600); err != nil {
			return err
		}
		devices, err := host.ReadDropped(root)
		if len(devices) == 0 {
			err = errors.Join(err, errors.New("no device"))
		}
		return err
	case "docs/reference/runtime-proxy.md":
		_, err := criproxy.ParseRegistration([]byte(block.Text))
		return err
	}
	return errors.New("no test knows what reads it")
}

// accepts reports what is wrong with a command line, which is not run.
func accepts(root *cobra.Command, args []string) error {
	root.InitDefaultHelpFlag()
	root.InitDefaultCompletionCmd()
	c, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	if !c.Runnable() {
		return fmt.Errorf("%s is not a command", c.CommandPath())
	}
	return c.ValidateArgs(c.Flags().Args())
}

func hasTargets(makefile string, words []string) error {
	for _, target := range words {
		if !strings.Contains(target, "=") &&
			!regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(target)+`:`).MatchString(makefile) {
			return fmt.Errorf("no target %s", target)
		}
	}
	return nil
}

// hasFiles looks for the packages of this repository and the scripts among the words.
func hasFiles(folder string, words []string) error {
	for _, word := range words {
		name := strings.TrimSuffix(word, "/...")
		if !strings.HasPrefix(word, "./") && filepath.Ext(word) != ".sh" {
			continue
		}
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	return nil
}
