package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/api/version"
	"github.com/tenon-project/tenon/internal/help"
)

type versions struct {
	Tenon string `json:"tenon"`
	// Kubernetes is the version of the Kubernetes client that is linked.
	Kubernetes string `json:"kubernetes"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
}

func builtFrom() versions {
	return versions{
		Tenon: version.String(), Kubernetes: version.Kubernetes(), Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

func newVersion(streams genericiooptions.IOStreams) *cobra.Command {
	var format string
	c := help.Command(texts, "version", &cobra.Command{
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := builtFrom()
			return printAnswer(streams.Out, format, v, func() string {
				return fmt.Sprintf("tenon       %s\nkubernetes  %s\ngo          %s %s\n", v.Tenon, v.Kubernetes, v.Go,
					v.Platform)
			})
		},
	})
	outputFlag(c, &format)
	return c
}
