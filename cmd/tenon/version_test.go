//go:build !nolocal

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/api/version"
	agent "github.com/tenon-project/tenon/internal/agent/command"
	proxy "github.com/tenon-project/tenon/internal/agent/criproxy/app"
	"github.com/tenon-project/tenon/internal/cli"
	manager "github.com/tenon-project/tenon/internal/control/app"
	descheduler "github.com/tenon-project/tenon/internal/desched/app"
	scheduler "github.com/tenon-project/tenon/internal/sched/app"
)

func TestEveryProgramPrintsItsVersion(t *testing.T) {
	scheduling := scheduler.NewCommand()
	// The flag is one of the whole process.
	t.Cleanup(func() {
		if err := scheduling.Flags().Set("version", "false"); err != nil {
			t.Error(err)
		}
	})
	for name, c := range map[string]*cobra.Command{
		"tenon": cli.NewRoot("tenon", genericiooptions.IOStreams{}, doctors), "tenon-agent": agent.New(nil),
		"tenon-manager": manager.NewCommand(), "tenon-descheduler": descheduler.NewCommand(),
		"tenon-runtime-proxy": proxy.NewCommand(), "tenon-scheduler": scheduling,
	} {
		var out bytes.Buffer
		c.SetOut(&out)
		c.SetArgs([]string{"--version"})
		if err := c.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, want := out.String(), name+" version "+version.String()+"\n"; !strings.HasPrefix(got, want) {
			t.Errorf("%s --version prints %q, want %q", name, got, want)
		}
	}
}
