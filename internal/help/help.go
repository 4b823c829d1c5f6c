package help

import (
	"embed"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Command returns c with the texts of a verb. It panics if files, which are part of the program, lack them.
func Command(files embed.FS, verb string, c *cobra.Command) *cobra.Command {
	text, err := files.ReadFile("help/" + verb + ".txt")
	about, examples, hasExamples := strings.Cut(string(text), "\nExamples:\n")
	if err != nil || !hasExamples {
		panic(fmt.Sprintf("help: texts of %s: %v", verb, err))
	}
	var rest string
	c.Use, rest, _ = strings.Cut(about, "\n")
	c.Short, rest, _ = strings.Cut(rest, "\n")
	c.Long, c.Example = strings.Trim(rest, "\n"), strings.TrimRight(examples, "\n")
	return c
}
