package command

import (
	gojson "encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tenon-project/tenon/internal/agent/doctor"
	"github.com/tenon-project/tenon/internal/agent/host"
)

type unhealthy struct{ error }

// ExitCode is that of a health check that fails.
func (unhealthy) ExitCode() int { return 5 }

func newDoctorCommand() *cobra.Command {
	var root, output, address string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine: what keeps pods from their CPUs here, and what to do",
		Long: "Check this machine: what keeps pods from their CPUs here, and what to do. Nothing is changed.\n" +
			"The exit code is 5 when a check fails.",
		Example: "  tenon-agent doctor\n  tenon-agent doctor --root ./capture -o json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := doctor.OfMachine(c.Context(), host.Root{Dir: root}, address)
			return printDiagnosis(c.OutOrStdout(), output, &d, err)
		},
	}
	c.Flags().StringVar(&address, "health-address", "127.0.0.1:10271",
		"health address of the machine's agent; empty to skip the agent")
	gpu := &cobra.Command{
		Use:   "gpu",
		Short: "Check the NVIDIA cards of this machine, and say what to do",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := doctor.OfGPUs(c.Context(), host.Root{Dir: root})
			return printDiagnosis(c.OutOrStdout(), output, &d, err)
		},
	}
	for _, verb := range []*cobra.Command{c, gpu} {
		verb.Flags().StringVar(&root, "root", "/", "directory to use as the host's /")
		verb.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	}
	c.AddCommand(gpu)
	return c
}

// printDiagnosis prints a diagnosis that could be made; the error of a check that fails has an exit code.
func printDiagnosis(w io.Writer, output string, d *doctor.Diagnosis, err error) error {
	switch {
	case err != nil:
		return err
	case output == "table":
		err = d.Print(w, 0)
	case output == "json":
		err = printJSON(w, d)
	default:
		err = fmt.Errorf("output %q: want table or json", output)
	}
	if err == nil && !d.Healthy() {
		return unhealthy{errors.New("a check failed")}
	}
	return err
}

func printJSON(w io.Writer, value any) error {
	e := gojson.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(value)
}
