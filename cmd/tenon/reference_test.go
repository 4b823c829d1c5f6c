//go:build !nolocal

package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/api/config/v1alpha1"
	agent "github.com/tenon-project/tenon/internal/agent/command"
	proxy "github.com/tenon-project/tenon/internal/agent/criproxy/app"
	"github.com/tenon-project/tenon/internal/cli"
	manager "github.com/tenon-project/tenon/internal/control/app"
	descheduler "github.com/tenon-project/tenon/internal/desched/app"
	scheduler "github.com/tenon-project/tenon/internal/sched/app"
	"github.com/tenon-project/tenon/internal/sim"
	"github.com/tenon-project/tenon/internal/sim/shadow"
	"github.com/tenon-project/tenon/internal/testkit"
)

var update = flag.Bool("update", false, "write docs/reference/flags.md")

// flagRows are the rows of the flags that a command has itself; kubectl's global flags and those that every component
// of Kubernetes has are left out.
func flagRows(flags *pflag.FlagSet) string {
	kubectl := pflag.NewFlagSet("kubectl", pflag.ContinueOnError)
	genericclioptions.NewConfigFlags(true).AddFlags(kubectl)
	var rows strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if global := kubectl.Lookup(f.Name); f.Hidden || global != nil && global.Usage == f.Usage ||
			f.Name == "help" || f.Name == "version" || f.Name == "v" {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		value := strings.ReplaceAll(strings.Trim(f.DefValue, "[]"), ",", ", ")
		if value != "" {
			value = "`" + value + "`"
		}
		_, usage := pflag.UnquoteUsage(f)
		usage = strings.ReplaceAll(strings.Join(strings.Fields(usage), " "), "|", `\|`)
		fmt.Fprintf(&rows, "| `%s` | %s | %s |\n", name, cmp.Or(value, "–"), usage)
	})
	return rows.String()
}

// The page is written from the programs themselves: go test ./cmd/tenon -run Flags -update.
func TestTheReferenceHasAllFlags(t *testing.T) {
	var page bytes.Buffer
	page.WriteString("# Flags\n\n<!-- Written by the test of cmd/tenon from the programs, with -update. -->\n\n" +
		"The verbs explain, topology, top and doctor take kubectl's global flags, too; tenon-scheduler takes those\n" +
		"of kube-scheduler.\n")
	section := func(name, rows string) {
		if rows != "" {
			fmt.Fprintf(&page, "\n## %s\n\n| Flag | Default | Meaning |\n|---|---|---|\n%s", name, rows)
		}
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		section(c.CommandPath(), flagRows(c.LocalFlags()))
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	streams := genericiooptions.IOStreams{}
	walk(cli.NewRoot("tenon", streams, doctors, append(localVerbs(streams), sim.NewCommand(streams, machines()),
		sim.NewReplayCommand(streams), shadow.NewCommand(streams), cli.NewCheck(streams, checks()))...))
	section("tenon-scheduler", flagRows(scheduler.NewOptions().Flags.FlagSet("tenon")))
	for _, c := range []*cobra.Command{
		agent.New(nil), manager.NewCommand(), descheduler.NewCommand(), proxy.NewCommand(),
	} {
		walk(c)
	}
	name := filepath.Join("..", "..", "docs", "reference", "flags.md")
	if *update {
		testkit.Check(t, os.WriteFile(name, page.Bytes(), 0o644))
	}
	if have, err := os.ReadFile(name); err != nil || !bytes.Equal(have, page.Bytes()) {
		t.Errorf("%s is not current (%v): go test ./cmd/tenon -run Flags -update", name, err)
	}
}

func TestTheReferenceHasAllArguments(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "arguments.md"))
	testkit.Check(t, err)
	var walk func(structType reflect.Type)
	walk = func(structType reflect.Type) {
		for structType.Kind() == reflect.Pointer || structType.Kind() == reflect.Slice {
			structType = structType.Elem()
		}
		if structType.Kind() != reflect.Struct ||
			structType.PkgPath() != reflect.TypeFor[v1alpha1.NodeNUMAResourceArgs]().PkgPath() {
			return
		}
		for f := range structType.NumField() {
			field := structType.Field(f)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "" && !strings.Contains(string(page), "| `"+name+"` |") {
				t.Errorf("arguments.md lacks %s of %s", name, structType.Name())
			}
			walk(field.Type)
		}
	}
	walk(reflect.TypeFor[v1alpha1.NodeNUMAResourceArgs]())
	walk(reflect.TypeFor[v1alpha1.ElasticQuotaArgs]())
}
