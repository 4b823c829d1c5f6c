package progress

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Width returns the columns of the terminal that out is, and 0 off a terminal.
func Width(out io.Writer) int {
	f, ok := out.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}
