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

	"github.com/tenon-project/tenon/internal/view"
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
//
// Where a table is wider than the terminal, its last column is wrapped if it then has a third of the width. Otherwise
// the columns that do not fit continue below in a table of their own. No cell is cut.
type columns struct {
	paint
	width  int // of the terminal, 0 = unlimited
	indent string
	right  int   // columns 1 to right are aligned to the right
	keys   int   // columns that each part of a divided table repeats; 0 is one
	parts  []int // columns at which a table that is too wide is divided first, ascending
	rows   [][]string
}

func (c *columns) add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = fmt.Sprint(cell)
	}
	c.rows = append(c.rows, row)
}

// widths returns the widest cell of each column.
func (c *columns) widths() (widths []int) {
	for _, row := range c.rows {
		widths = append(widths, make([]int, max(0, len(row)-len(widths)))...)
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// room returns what a row leaves for its last column.
func (c *columns) room(widths []int) int {
	room := c.width - utf8.RuneCountInString(c.indent)
	for _, width := range widths[:len(widths)-1] {
		room -= width + 2
	}
	return room
}

// narrowest is the width of a last column below which its text is written below the row.
const narrowest = 20

// lines returns the lines of each row, on several where its last cell is wrapped.
func (c *columns) lines() [][]string {
	widths := c.widths()
	lines := make([][]string, len(c.rows))
	for i, row := range c.rows {
		var line strings.Builder
		for j, cell := range row {
			width := -widths[j]
			if 0 < j && j <= c.right {
				width = widths[j]
			}
			if j == len(widths)-1 && c.width > 0 && utf8.RuneCountInString(cell) > c.room(widths) {
				lines[i] = c.wrapped(line.String(), cell, c.room(widths))
				break
			}
			fmt.Fprintf(&line, "%*s  ", width, cell)
		}
		if lines[i] == nil {
			lines[i] = []string{c.fit(c.indent+strings.TrimRight(line.String(), " "), c.width)}
		}
	}
	return lines
}

// wrapped returns a row whose last cell has several lines: beside the others if it has the room, else below them.
func (c *columns) wrapped(others, cell string, room int) []string {
	beside, lines := c.indent+others, []string(nil)
	if room < narrowest {
		lines = append(lines, c.fit(strings.TrimRight(beside, " "), c.width))
		beside = c.indent + "    "
		room = c.width - len(beside)
	}
	for _, part := range view.Wrap(cell, " ", room) {
		lines = append(lines, beside+part)
		beside = strings.Repeat(" ", utf8.RuneCountInString(beside))
	}
	return lines
}

func (c *columns) String() string {
	rest := c.fold()
	text := strings.Join(append(slices.Concat(c.lines()...), ""), "\n")
	if rest != nil {
		text += "\n" + rest.String()
	}
	return text
}

// fold moves the columns that do not fit the terminal into another table, which it returns; nil if all fit, or if the
// last one fits when it is wrapped.
func (c *columns) fold() *columns {
	if c.width <= 0 || len(c.rows) == 0 {
		return nil
	}
	widths, keys := c.widths(), max(c.keys, 1)
	if c.room(widths) >= min(widths[len(widths)-1], c.width/3) {
		return nil
	}
	at, used := 0, utf8.RuneCountInString(c.indent)
	for i, width := range widths {
		if used += width; i > keys && used > c.width {
			at = i
			break
		}
		used += 2 // between two columns
	}
	if at == 0 {
		return nil
	}
	for _, part := range slices.Backward(c.parts) {
		if part <= at {
			at = part
			break
		}
	}
	rest := *c
	rest.right, rest.rows, rest.parts = max(c.right-at+keys, keys-1), nil, nil
	for _, part := range c.parts {
		if part > at {
			rest.parts = append(rest.parts, part-at+keys)
		}
	}
	for j, row := range c.rows {
		rest.rows = append(rest.rows, slices.Concat(row[:keys], row[min(at, len(row)):]))
		c.rows[j] = row[:min(at, len(row))]
	}
	for i, row := range rest.rows {
		if i > 0 && slices.ContainsFunc(row[keys:], func(cell string) bool { return cell != "" }) {
			return &rest
		}
	}
	return nil // headings without a value below
}

// fit cuts a line at the terminal's edge. Colour codes must be applied afterwards. A width of 0 is unlimited.
func (p paint) fit(line string, width int) string {
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return line
	}
	mark := p.symbol("…", "...")
	return string([]rune(line)[:max(0, width-utf8.RuneCountInString(mark))]) + mark
}
