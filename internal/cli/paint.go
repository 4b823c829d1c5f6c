package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

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

// columns aligns rows of cells, two spaces apart. Colour codes must be applied after alignment, so cells are plain.
type columns struct {
	paint
	width  int // of the terminal, 0 = unlimited: longer lines are cut
	indent string
	right  int // columns 1 to right are aligned to the right
	// folds continues a table that is wider than the terminal below, where each part repeats column 0: nothing is cut.
	folds bool
	rows  [][]string
}

func (c *columns) add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = fmt.Sprint(cell)
	}
	c.rows = append(c.rows, row)
}

func (c *columns) lines() []string {
	var widths []int
	for _, row := range c.rows {
		widths = append(widths, make([]int, max(0, len(row)-len(widths)))...)
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, len(c.rows))
	for i, row := range c.rows {
		var line strings.Builder
		for j, cell := range row {
			width := -widths[j]
			if 0 < j && j <= c.right {
				width = widths[j]
			}
			fmt.Fprintf(&line, "%*s  ", width, cell)
		}
		lines[i] = c.fit(c.indent+strings.TrimRight(line.String(), " "), c.width)
	}
	return lines
}

func (c *columns) String() string {
	rest := c.fold()
	text := strings.Join(append(c.lines(), ""), "\n")
	if rest != nil {
		text += "\n" + rest.String()
	}
	return text
}

// fold moves the columns that do not fit the terminal into another table, which it returns; nil if all fit.
func (c *columns) fold() *columns {
	if !c.folds || c.width <= 0 || len(c.rows) == 0 {
		return nil
	}
	used := utf8.RuneCountInString(c.indent)
	for i := range c.rows[0] {
		widest := 0
		for _, row := range c.rows {
			widest = max(widest, utf8.RuneCountInString(row[i]))
		}
		if used += widest; i < 2 || used <= c.width {
			used += 2 // between two columns
			continue
		}
		rest := *c
		rest.right, rest.rows = c.right-i+1, nil
		for j, row := range c.rows {
			rest.rows = append(rest.rows, append([]string{row[0]}, row[i:]...))
			c.rows[j] = row[:i]
		}
		return &rest
	}
	return nil
}

// terminalWidth is 0 off a terminal.
func terminalWidth(out io.Writer) int {
	if !isTerminal(out) {
		return 0
	}
	width, _, err := term.GetSize(int(out.(*os.File).Fd()))
	if err != nil {
		return 0
	}
	return width
}

// fit cuts a line at the terminal's edge. Colour codes must be applied afterwards. A width of 0 is unlimited.
func (p paint) fit(line string, width int) string {
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return line
	}
	mark := p.symbol("…", "...")
	return string([]rune(line)[:max(0, width-utf8.RuneCountInString(mark))]) + mark
}

// wrap breaks text behind separators so that no part is wider than width; a word that is wider stays whole. A width of
// 0 or less is unlimited.
func wrap(text, separator string, width int) []string {
	if width <= 0 || utf8.RuneCountInString(text) <= width {
		return []string{text}
	}
	var parts []string
	line := ""
	for _, word := range strings.SplitAfter(text, separator) {
		if line != "" && utf8.RuneCountInString(line+strings.TrimRight(word, " ")) > width {
			parts = append(parts, strings.TrimRight(line, " "))
			line = ""
		}
		line += word
	}
	return append(parts, strings.TrimRight(line, " "))
}
