package cli

import (
	"cmp"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
)

// Values of --color.
const (
	colorAuto   = "auto"
	colorAlways = "always"
	colorNever  = "never"
)

// paint colours text for one stream. The zero value paints nothing.
type paint struct {
	on bool
	// ascii replaces symbols for locales that cannot show them.
	ascii bool
}

// newPaint decides from the flag, the stream and the environment (NO_COLOR, TERM, LANG).
func newPaint(when string, out io.Writer, env func(string) string) (paint, error) {
	if !slices.Contains([]string{colorAuto, colorAlways, colorNever}, when) {
		return paint{}, usagef("--color %s is not allowed: use auto, always, never", when)
	}
	able := isTerminal(out) && env("NO_COLOR") == "" && env("TERM") != "dumb"
	// The precedence of POSIX locales. An environment that says nothing is taken as able.
	locale := strings.ToLower(cmp.Or(env("LC_ALL"), env("LC_CTYPE"), env("LANG"), "utf-8"))
	return paint{
		on:    when == colorAlways || when == colorAuto && able,
		ascii: !strings.Contains(locale, "utf-8") && !strings.Contains(locale, "utf8"),
	}, nil
}

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// tint is an ANSI colour; colour is never the only sign.
type tint string

const (
	plain   tint = ""
	bold    tint = "1"
	dim     tint = "2"
	red     tint = "31"
	yellow  tint = "33"
	magenta tint = "35"
)

func (p paint) text(c tint, s string) string {
	if !p.on || c == plain {
		return s
	}
	return "\x1b[" + string(c) + "m" + s + "\x1b[0m"
}

func (p paint) symbol(s, ascii string) string {
	if p.ascii {
		return ascii
	}
	return s
}
